"""What the terminal of a shell says, read however it is cut into pieces."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.text.shell import Spoken, quoted

MARK, OTHER = "a" * 32, "b" * 32
REPORT = b"\x1e%s\x1f3\x1e" % MARK.encode()
NEXT = b"\x1e%s\x1f4\x1e" % OTHER.encode()


def said(*pieces: bytes, most: int = 1000) -> Spoken:
    spoken = Spoken(most)
    spoken.expect(MARK)
    for piece in pieces:
        spoken.feed(piece)
    return spoken


def test_a_report_ends_a_command() -> None:
    spoken = said(b"one\r\ntwo\r\n" + REPORT)
    assert spoken.status(MARK) == 3
    assert spoken.take() == b"one\ntwo\n"
    assert spoken.take() == b""


@pytest.mark.parametrize(
    "text", [b"\x1e", NEXT, REPORT[1:], REPORT.replace(b"3", b"none"), REPORT.replace(b"3", b"1234")]
)
def test_what_is_no_report_is_output(text: bytes) -> None:
    spoken = said(text, b"over")
    assert spoken.status(MARK) is None
    later = said(text + b"over" + REPORT)
    assert (later.status(MARK), later.take()) == (3, text + b"over")


def test_a_mark_counts_once_and_is_never_output() -> None:
    spoken = said(b"first" + REPORT + b"job" + REPORT.replace(b"3", b"0"))
    spoken.expect(OTHER)
    spoken.feed(b"late" + REPORT + b"second" + NEXT)
    assert (spoken.status(MARK), spoken.status(OTHER)) == (3, 4)
    assert spoken.take() == b"firstjoblatesecond"


def test_only_so_much_is_kept() -> None:
    spoken = said(b"x" * 11, most=10)
    assert (spoken.too_much, spoken.take()) == (True, b"x" * 10)
    assert (spoken.too_much, spoken.take()) == (False, b"")
    spoken.feed(b"y" + REPORT)
    assert (spoken.take(), spoken.status(MARK)) == (b"y", 3)


TEXTS = st.lists(
    st.sampled_from([REPORT, NEXT, REPORT[:20], b"a", b"\x1e", b"\x1f", b"\x1eaaaa", b"\r\n", b"3"]), max_size=12
)


@given(TEXTS, st.lists(st.integers(0, 400), max_size=10))
def test_pieces_make_no_difference(parts: Sequence[bytes], cuts: Sequence[int]) -> None:
    text = b"".join(parts) + REPORT
    at = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    whole, pieces = said(text), said(*(text[a:b] for a, b in pairwise(at)))
    assert (pieces.status(MARK), pieces.take()) == (whole.status(MARK), whole.take())


@pytest.mark.parametrize("path", ["/workspace/d", "/a b", "/it's", '/ä/$x`"', "/a\nb\tc'\\", "/a\x1b\x07", "/ä\n"])
def test_a_path_is_quoted_so_that_a_shell_reads_it_again(path: str) -> None:
    shown = quoted(path)
    assert shown.isprintable()
    assert subprocess.run(["/bin/bash", "-c", f"printf %s {shown}"], stdout=subprocess.PIPE, check=True).stdout == (
        path.encode()
    )
