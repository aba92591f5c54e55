"""Markdown on a terminal: nothing of a text is left out, and what is complete stays as it is."""

from __future__ import annotations

import re
from io import StringIO
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from switchboard.cli.messages.markdown import length_of_finished_blocks, markdown

_WORDS = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
_MARKS = st.sampled_from(
    ["\n", "\n\n", " ", " ", "**", "*", "`", "```\n", "\n```\n", "# ", "\n- ", "\n1. ", "\n> ", "    ", "[", "](", ")",
     "![", "<", ">", "<b>", "</b>", "&", ";", "|", "\n|-|-|\n", "\n---\n", "\n===\n", "~~", "!", "]: ", "<!-- ", " -->"]
)  # fmt: skip
_TEXTS = st.lists(st.one_of(_WORDS, _MARKS), max_size=30).map(" ".join)


def printed(text: str, speaker: str = "", width: int = 80) -> str:
    console = Console(file=StringIO(), width=width, color_system=None, force_terminal=False)
    console.print(markdown(text, speaker), end="")
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a **b** `c`", "clerk_1: a b c\n"),
        ("one\ntwo", "clerk_1: one\ntwo\n"),
        ("- one\n- two", "clerk_1:\n\n • one\n • two\n"),
        ("3. c\n4. d", "clerk_1:\n\n 3 c\n 4 d\n"),
        ("# T", "clerk_1:\n\nT\n"),
        ("[bank](https://evil.example)", "clerk_1: bank (https://evil.example)\n"),
        ("![cat](https://x.example/c.png)", "clerk_1: !cat (https://x.example/c.png)\n"),
        ("<https://x.example>", "clerk_1: https://x.example\n"),
        ("<b>x</b> &lt;", "clerk_1: <b>x</b> &lt;\n"),
        ("[a]: https://x.example", "clerk_1: [a]: https://x.example\n"),
        ("word " * 20, "clerk_1: " + "word " * 14 + "\n" + "word " * 6),
    ],
)
def test_a_reply_is_rendered(text: str, shown: str) -> None:
    assert [line.rstrip() for line in printed(text, "clerk_1").splitlines()] == [
        line.rstrip() for line in shown.splitlines()
    ]


@given(_TEXTS)
@example("` ```\n a `")  # fences within a span of code
def test_no_word_is_left_out(text: str) -> None:
    without_languages = re.sub(r"```[^\n]*", "", text)
    shown = re.findall("[a-z]+", printed(text, width=10_000))
    assert set(re.findall("[a-z]+", without_languages)) <= set(shown)


@given(_TEXTS, st.integers(1, 9))
def test_what_is_finished_stays(text: str, step: int) -> None:
    ends = [length_of_finished_blocks(text[:at]) for at in range(0, len(text) + 1, step)]
    assert ends == list(accumulate(ends, max))


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("one", "one"),
        ("one\n\n", "one\n\n"),
        ("one\n\ntwo", "two"),
        ("- a\n\n  more", "- a\n\n  more"),
        ("```\na\n\nb", "```\na\n\nb"),
        ("```\na\n```\n\nb", "b"),
        ("~~~~\n```\n\n~~~\n\nb", "~~~~\n```\n\n~~~\n\nb"),
    ],
)
def test_a_block_is_finished_by_what_follows_it(text: str, rest: str) -> None:
    assert text[length_of_finished_blocks(text) :] == rest
