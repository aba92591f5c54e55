"""Long texts as pieces: what they say joined, how long they are, and where they are never cut."""

from __future__ import annotations

import re
from typing import Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.connectors.kernel.chunking import TextPiece, is_grapheme_end, length, split
from switchboard.ports.connector import TextUnit

UNITS: Final = ("bytes", "code_points", "utf16")
FAMILY: Final = "👨‍👩‍👧‍👦"
WORDS: Final = st.sampled_from(
    ["word", "Ende.", "e\u0301", FAMILY, "🇩🇪🇫🇷", "שלום", "**so**", "`code`", "[link](https://a.example/b)", "한"]
)
LINES: Final = st.one_of(
    st.lists(WORDS, max_size=8).map(" ".join),
    st.sampled_from(["", "```python", "```", "~~~~", "- item", "> quote", "    indented", "x" * 40]),
)
TEXTS: Final = st.one_of(st.lists(LINES, max_size=20).map("\n".join), st.text(max_size=300))


def brute_length(text: str, unit: str) -> int:
    """Counted by encoding it."""
    if unit == "code_points":
        return len(text)
    encoded = text.encode("utf-8" if unit == "bytes" else "utf-16-le", "surrogatepass")
    return len(encoded) // (1 if unit == "bytes" else 2)


def words_of(pieces: tuple[TextPiece, ...]) -> str:
    """What a reader sees of all pieces, without the lines of fences that were closed and opened again."""
    shown = (piece.text.removeprefix(piece.opening) for piece in pieces)
    return "".join("".join(text[: len(text) - len(p.closing)].split()) for p, text in zip(pieces, shown, strict=True))


@given(st.text(max_size=100), st.sampled_from(UNITS))
def test_length_is_what_the_encoding_takes(text: str, unit: str) -> None:
    assert length(text, cast("TextUnit", unit)) == brute_length(text, unit)


@given(TEXTS, st.integers(4, 120), st.sampled_from(UNITS))
def test_pieces_fit_and_joined_again_say_the_same(text: str, limit: int, unit: str) -> None:
    pieces = split(text, limit, cast("TextUnit", unit))
    assert "".join(piece.body for piece in pieces) == text
    assert words_of(pieces) == "".join(text.split())
    assert all(piece.body and brute_length(piece.text, unit) <= limit for piece in pieces)


@given(TEXTS, st.integers(200, 400))
def test_no_piece_ends_inside_a_grapheme_or_a_link_that_fits(text: str, limit: int) -> None:
    at = 0
    for piece in split(text, limit, "utf16"):
        at += len(piece.body)
        assert is_grapheme_end(text, at) or len(piece.body) < 70  # no text of marks alone is a grapheme to keep
        links = re.finditer(r"\[link\]\(https://a\.example/b\)", text)
        assert not any(link.start() < at < link.end() for link in links)


@given(st.lists(st.text("ab c", min_size=1, max_size=30), min_size=1, max_size=30), st.integers(40, 80))
def test_every_piece_of_a_fence_is_a_fence_of_its_language(lines: list[str], limit: int) -> None:
    source = "```py\n" + "\n".join(lines) + "\n```"
    for piece in split(source, limit, "code_points"):
        assert piece.text.startswith("```py\n")
        assert piece.text.endswith("\n```")


@pytest.mark.parametrize(
    ("text", "limit", "pieces"),
    [
        ("", 10, []),
        ("short", 10, ["short"]),
        ("aaaa bbbb", 4, ["aaaa", "bbbb"]),
        ("first part\n\nsecond part", 15, ["first part", "second part"]),
        ("One. Two is here. Three", 18, ["One. Two is here.", "Three"]),
        ("a line\nand a long line", 18, ["a line", "and a long line"]),
        ("see [this page](http://x.example/abc) now", 39, ["see [this page](http://x.example/abc)", "now"]),
        ("see [this page](http://x.example/abc) now", 36, ["see", "[this page](http://x.example/abc)", "now"]),
        (FAMILY * 3, 12, [FAMILY] * 3),
        ("🇩🇪🇫🇷🇮🇹", 5, ["🇩🇪", "🇫🇷", "🇮🇹"]),
        ("```\naaaaaa\nbbbbbb\n```", 16, ["```\naaaaaa\n```", "```\nbbbbbb\n```"]),
        ("intro words\n```\naa\nbb\n```", 20, ["intro words", "```\naa\nbb\n```"]),
        ("x" * 9, 4, ["xxxx", "xxxx", "x"]),
    ],
)
def test_where_a_text_is_cut(text: str, limit: int, pieces: list[str]) -> None:
    assert [piece.text for piece in split(text, limit, "utf16")] == pieces


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    "text", ["[" * 300_000, "a" * 300_000, "`" * 300_000, "\n" * 300_000, "``` " * 75_000, "e\u0301" * 9]
)
def test_hostile_texts_are_cut_as_well(text: str, unit: str) -> None:
    pieces = split(text, 4096, cast("TextUnit", unit))
    assert "".join(piece.body for piece in pieces) == text
