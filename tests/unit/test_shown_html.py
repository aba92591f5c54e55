"""The HTML of a mail as people look at it, whose size its sender does not choose."""

from __future__ import annotations

from switchboard.core.mail.shown_html import MOST_SHOWN_PICTURES, sanitize_html


def test_a_picture_that_is_repeated_fills_no_memory() -> None:
    """A megabyte of `<img>` may name the same picture fifty thousand times."""
    picture = f"data:image/png;base64,{'A' * 1_000_000}"
    shown = sanitize_html("<img src=cid:a>" * 1_000, {"a": picture}).document
    assert shown.count(picture) == MOST_SHOWN_PICTURES // len(picture)
    assert len(shown) < MOST_SHOWN_PICTURES + 100_000
