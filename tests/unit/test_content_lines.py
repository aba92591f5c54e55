"""Lines of calendars and cards are read whatever they are, and a change touches no other byte."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.text.content_lines import (
    FOLD_AT,
    ContentLine,
    LineChange,
    change_lines,
    components_of,
    content_lines,
    escape_text,
    fields_of,
    fold_line,
    text_of,
    unescape_text,
)
from switchboard.domain.errors import InvalidInput

PHOTO: Final = b"PHOTO:data:image/png;base64,iVBORw0KGgo=\r\n"
CARD: Final = (
    b'BEGIN:VCARD\r\nVERSION:4.0\r\nitem1.TEL;TYPE="cell,voice";PREF=1:tel:+49\r\n  30 1\r\n'
    + PHOTO
    + b"X-ODD;=:\r\nnonsense\r\nNOTE:one\\, two\\nthree\r\nEND:VCARD\r\n"
)
ASKED: Final[tuple[tuple[bytes, tuple[object, ...]], ...]] = (
    (b"FN:Ann", ("FN", "", {}, "Ann")),
    (b"fn : Ann", ("", "", {}, "")),
    (b"item1.tel;type=home;TYPE=cell:1", ("TEL", "item1", {"TYPE": ("home", "cell")}, "1")),
    (b"TEL;HOME;FAX:1", ("TEL", "", {"TYPE": ("HOME", "FAX")}, "1")),
    (
        b'ATTENDEE;CN="Do, Re: Mi";X=a,"b;c":mailto:x',
        ("ATTENDEE", "", {"CN": ("Do, Re: Mi",), "X": ("a", "b;c")}, "mailto:x"),
    ),
    (b"NOTE:a\r\n b\r\n\tc", ("NOTE", "", {}, "abc")),
    (b"DTSTART;TZID=Europe/Berlin:20261129T1", ("DTSTART", "", {"TZID": ("Europe/Berlin",)}, "20261129T1")),
    (b"NOTE;QUOTED-PRINTABLE:a=\r\nb", ("NOTE", "", {"TYPE": ("QUOTED-PRINTABLE",)}, "ab")),
)
NASTY: Final = st.text('AB:;=,"\\ \t\r\n.é=', max_size=60)


@pytest.mark.parametrize(("raw", "meant"), ASKED)
def test_a_line_is_read(raw: bytes, meant: tuple[object, ...]) -> None:
    [line] = content_lines(raw)
    assert (line.name, line.group, line.parameters, line.value) == meant


def test_quoted_printable_of_old_cards_is_decoded() -> None:
    raw = b"FN;ENCODING=QUOTED-PRINTABLE;CHARSET=ISO-8859-1:J=FCrgen=\r\n M=\r\n=FCller"
    assert text_of(content_lines(raw)[0]) == "Jürgen Müller"


@given(NASTY)
def test_whatever_is_read_nothing_is_lost(text: str) -> None:
    data = text.encode()
    lines = content_lines(data)
    assert b"".join(line.raw for line in lines) == data
    assert all(one.first < one.last for one in components_of(lines))


@given(NASTY)
def test_text_comes_back_from_its_escapes(text: str) -> None:
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    assert unescape_text(escape_text(text)) == plain
    assert fields_of(";".join(map(escape_text, (text, "", text)))) == (plain, "", plain)


@given(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=300))
def test_a_fold_is_short_and_comes_back(text: str) -> None:
    folded = fold_line(f"NOTE:{text}")
    assert all(len(part) <= FOLD_AT for part in folded.removesuffix(b"\r\n").split(b"\r\n"))
    assert content_lines(folded)[0].value == text
    folded.decode()


@given(st.lists(NASTY, max_size=6), st.integers(0, 30), st.integers(0, 2), st.sampled_from(["TEL:2", "X:" + "é" * 90]))
def test_a_change_touches_no_other_byte(texts: list[str], at: int, removed: int, new: str) -> None:
    data = CARD + "".join(texts).encode()
    before = [line.raw for line in content_lines(data)]
    first, last = min(at, len(before)), min(at + removed, len(before))
    try:
        after = change_lines(data, [LineChange(first, last, (new,))])
    except InvalidInput:
        return  # what follows would have become a part of the new line
    kept = [line.raw for line in content_lines(after)]
    assert kept[first] == fold_line(new)
    unended = [one if one.endswith((b"\n", b"\r")) else one + b"\r\n" for one in before[:first]]
    assert kept[:first] == unended
    assert kept[first + 1 :] == before[last:]


def test_components_are_found_in_each_other() -> None:
    lines = content_lines(b"BEGIN:A\nX:1\nBEGIN:B\nY:1\nEND:B\nBEGIN:C\nZ:1\nEND:A\nEND:D\nX:2\n")
    [outer] = components_of(lines)
    assert (outer.name, outer.first, outer.last, [one.name for one in outer.inner]) == ("A", 0, 7, ["B"])
    assert [lines[index].name for index in outer.own()] == ["X", "BEGIN", "Z"]


def test_changes_that_do_not_fit_are_refused() -> None:
    for changes in (
        [LineChange(1, 3, ()), LineChange(2, 2, ("A:1",))],
        [LineChange(1, 99, ())],
        [LineChange(1, 1, ("A:1\nB:2",))],
    ):
        with pytest.raises(InvalidInput):
            change_lines(CARD, changes)
    assert ContentLine(b"").parameter("TZID") == ""


@pytest.mark.parametrize(
    "data",
    [
        b"X-A" + b";B=c" * 200_000 + b":x\r\n",
        b"BEGIN:A\r\n" * 60_000 + b"END:A\r\n" * 60_000,
        b"BEGIN:A\r\n" * 60_000 + b"END:B\r\n" * 60_000,
    ],
    ids=["parameters", "components", "ends of nothing"],
)
@pytest.mark.timeout(30)
def test_much_of_a_kind_takes_no_longer_than_anything_else(data: bytes) -> None:
    """With a quadratic step each would take minutes."""
    lines = content_lines(data)
    assert b"".join(line.raw for line in lines) == data
    assert len(components_of(lines)) in (0, 1)
