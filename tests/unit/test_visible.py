"""What is shown to people hides nothing."""

from __future__ import annotations

import pytest

from switchboard.core.text.visible import escaped, visible


@pytest.mark.parametrize("shown", ["\u2764\ufe0f", "\u8fbb\U000e0100", "\u0645\u200c\u06cc", "a\tb\nc"])
def test_what_scripts_and_emoji_need_stays(shown: str) -> None:
    assert visible(shown) == escaped(shown) == shown


@pytest.mark.parametrize("hidden", ["\u3164", "\uffa0", "\u115f", "\u034f", "\U0001d173", "\U000e0080", "\U000e0041"])
def test_what_nobody_sees_is_written_out(hidden: str) -> None:
    assert visible(f"a{hidden}b") == "ab"
    assert escaped(f"a{hidden}b") == f"a{hidden.encode('unicode_escape').decode('ascii')}b"


def test_a_text_hidden_in_variation_selectors_is_written_out() -> None:
    hidden = "".join(chr(0xE0100 + byte - 16) for byte in b"pay mallory")
    assert escaped(f"\u2764{hidden}").count("\\U000e01") == len(hidden) - 1
