"""Lists that a page cuts itself: what each cursor shows, and that no other one shows anything."""

from __future__ import annotations

import pytest

from switchboard.domain.errors import InvalidInput
from switchboard.server.web.reading import ROWS, cut_list


@pytest.mark.parametrize(
    ("cursor", "shown", "following"),
    [(None, range(ROWS), "50"), ("50", range(50, 100), "100"), ("100", range(100, 120), None), ("900", [], None)],
)
def test_a_cursor_is_a_place_in_the_list(cursor: str | None, shown: list[int], following: str | None) -> None:
    page = cut_list(range(120), cursor)
    assert (list(page.rows), page.before, page.following) == (list(shown), int(cursor or 0), following)


@pytest.mark.parametrize("cursor", ["-5", "5.0", "x", "", "9" * 5000])
def test_no_other_cursor_shows_anything(cursor: str) -> None:
    with pytest.raises(InvalidInput, match="was not issued"):
        cut_list(range(120), cursor)
