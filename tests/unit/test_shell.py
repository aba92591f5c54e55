"""What the terminal of a shell says, read however it is cut into pieces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.shell import ShellReport, Spoken, prompt

TOKEN = "a" * 8
REPORT = b"\x1eaaaaaaaa\x1f0\x1f3\x1f/workspace\x1e"
NEXT = b"\x1eaaaaaaaa\x1f1\x1f4\x1f/\x1e"


def said(*pieces: bytes, most: int = 1000) -> Spoken:
    spoken = Spoken(TOKEN, most)
    for piece in pieces:
        spoken.feed(piece)
    return spoken


def test_a_report_ends_a_command() -> None:
    spoken = said(b"one\r\ntwo\r\n" + REPORT)
    assert spoken.report == ShellReport(3, "/workspace")
    assert spoken.take() == b"one\ntwo\n"
    assert spoken.take() == b""


def test_what_is_no_report_is_output() -> None:
    for text in (
        b"\x1e",
        b"\x1ebbbbbbbb\x1f0\x1f0\x1f/\x1e",
        b"\x1eaaaaaaaa\x1f0\x1fnone\x1f/\x1e",
        b"\x1eaaaaaaaa\x1f0\x1f1234\x1f/\x1e",
        REPORT[1:],
    ):
        spoken = said(text, b"over")
        assert spoken.report is None, text
        said_later = said(text + b"over" + REPORT)
        assert said_later.report == ShellReport(3, "/workspace")
        assert said_later.take() == text + b"over"


def test_what_comes_between_two_commands_belongs_to_the_second() -> None:
    spoken = said(b"first" + REPORT + b"job")
    assert spoken.report
    assert spoken.take() == b"firstjob"
    spoken.feed(b"late")
    spoken.begin(1)
    spoken.feed(b"second" + NEXT)
    assert (spoken.report, spoken.take()) == (ShellReport(4, "/"), b"latesecond")


def test_a_report_of_an_earlier_command_is_none_unless_any_is_meant() -> None:
    spoken = said(b"first" + REPORT)
    spoken.begin(1)
    spoken.feed(REPORT + b"second")
    assert (spoken.report, spoken.take()) == (None, b"firstsecond")
    spoken.expect_any()
    spoken.feed(REPORT)
    assert spoken.report == ShellReport(3, "/workspace")


def test_only_so_much_is_kept() -> None:
    spoken = said(b"x" * 11, most=10)
    assert (spoken.too_much, spoken.take()) == (True, b"x" * 10)
    assert (spoken.too_much, spoken.take()) == (False, b"")
    spoken.feed(b"y" + REPORT)
    assert (spoken.take(), spoken.report) == (b"y", ShellReport(3, "/workspace"))


def test_a_beginning_that_goes_on_for_ever_is_output() -> None:
    spoken = said(b"\x1eaaaaaaaa\x1f0\x1f1\x1f", *[b"x" * 1000] * 30, most=100_000)
    assert len(spoken.take()) > 20_000


TEXTS = st.lists(st.sampled_from([REPORT, NEXT, b"a", b"\x1e", b"\x1f", b"\x1eaaaa", b"\r\n", b"3"]), max_size=12)


@given(TEXTS, st.lists(st.integers(0, 200), max_size=10))
def test_pieces_make_no_difference(parts: Sequence[bytes], cuts: Sequence[int]) -> None:
    text = b"".join(parts) + REPORT
    at = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    whole, pieces = said(text), said(*(text[a:b] for a, b in pairwise(at)))
    assert (pieces.report, pieces.take()) == (whole.report, whole.take())


def test_the_prompt_is_one_line_without_a_report_in_it() -> None:
    assert "\n" not in prompt(TOKEN)
    assert said(prompt(TOKEN).encode()).report is None
