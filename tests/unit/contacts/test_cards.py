"""Cards of all versions and makers are read, and a change touches only the lines of what changes."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.text.content_lines import content_lines
from switchboard.domain.errors import InvalidInput
from switchboard.modules.contacts.cards import Card, CardChange, CardWay, FieldName, card_of, change_card

APPLE: Final = """BEGIN:VCARD
VERSION:3.0
PRODID:-//Apple Inc.//macOS 14//EN
N:Lovelace;Ada;Augusta,King;Countess;
FN:Ada Lovelace
ORG:Analytical Engines\\, Ltd;Programs
item1.EMAIL;type=INTERNET;type=pref:ada@example.org
item1.X-ABLabel:_$!<Work>!$_
item2.TEL;type=CELL;type=VOICE:+44 20 7946 0000
item3.ADR;type=HOME:;;12 St James's Square;London;;SW1Y 4JH;UK
BDAY;X-APPLE-OMIT-YEAR=1604:1604-12-10
X-SOCIALPROFILE;type=telegram:ada_l
NOTE:first\\nsecond
CATEGORIES:Friends,Chess
PHOTO;ENCODING=b;TYPE=JPEG:/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAMCAgMCAgMDAwMEAwMEBQgFBQQE
 BQoHBwYIDAoMDAsKCwsNDhIQDQ4RDgsLEBYQERMUFRUVDA8XGBYUGBIUFRT/
UID:ada-1
END:VCARD
"""
OLD: Final = (
    "BEGIN:VCARD\r\nVERSION:2.1\r\n"
    "N;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:M=C3=BCller;J=C3=B6rg\r\n"
    "TEL;HOME;FAX:030 1\r\nEND:VCARD\r\n"
)
GROUP: Final = (
    "BEGIN:VCARD\r\nVERSION:4.0\r\nKIND:group\r\nFN:Family\r\nMEMBER:urn:uuid:ada-1\r\nUID:g\r\nEND:VCARD\r\n"
)
NEW: Final = (
    'BEGIN:VCARD\r\nVERSION:4.0\r\nTEL;VALUE=uri;PREF=1;TYPE="voice,home":tel:+4930\r\n'
    "PHOTO:data:image/png;base64,iVB=\r\nBDAY:--0412\r\nEND:VCARD\r\n"
)
CARDS: Final = (APPLE, OLD, GROUP, NEW)


def test_a_card_of_apple_is_read() -> None:
    card = card_of(APPLE.encode())
    assert (card.name, card.given, card.family, card.organisation) == (
        "Ada Lovelace",
        "Ada",
        "Lovelace",
        "Analytical Engines, Ltd, Programs",
    )
    assert (card.birthday, card.note, card.categories) == ("--12-10", "first\nsecond", ("Friends", "Chess"))
    assert card.ways == (
        CardWay("email", "ada@example.org", 6, "work", preferred=True),
        CardWay("phone", "+44 20 7946 0000", 8, "cell"),
        CardWay("address", "12 St James's Square, London, SW1Y 4JH, UK", 9, "home"),
        CardWay("handle", "telegram:ada_l", 11, "telegram"),
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (OLD, Card("", "Jörg Müller", "2.1", True, "Jörg", "Müller", ways=(CardWay("phone", "030 1", 3, "home"),))),
        (GROUP, Card("g", "Family", "4.0", group=True, members=("ada-1",))),
        (NEW, Card("", "+4930", "4.0", True, birthday="--04-12", ways=(CardWay("phone", "+4930", 2, "home", True),))),
        ("BEGIN:VCARD\nEND:VCARD", Card("", "(no name)", "2.1", True)),
    ],
)
def test_cards_without_names_and_of_other_versions_are_read(text: str, meant: Card) -> None:
    assert card_of(text.encode()) == meant


CHANGES: Final[tuple[tuple[str, CardChange, list[str], list[str]], ...]] = (
    (APPLE, CardChange("name", "Ada King"), ["FN:Ada Lovelace"], ["FN:Ada King"]),
    (
        APPLE,
        CardChange("given", "A;da"),
        ["N:Lovelace;Ada;Augusta,King;Countess;"],
        ["N:Lovelace;A\\;da;Augusta,King;Countess;"],
    ),
    (
        APPLE,
        CardChange("email", "a@b.example", "ada@example.org"),
        ["item1.EMAIL;type=INTERNET;type=pref:ada@example.org"],
        ["item1.EMAIL;type=INTERNET;type=pref:a@b.example"],
    ),
    (
        APPLE,
        CardChange("email", "", "ada@example.org"),
        ["item1.EMAIL;type=INTERNET;type=pref:ada@example.org", "item1.X-ABLabel:_$!<Work>!$_"],
        [],
    ),
    (APPLE, CardChange("phone", "+1", ""), [], ["TEL:+1"]),
    (APPLE, CardChange("title", ""), [], []),
    (
        NEW,
        CardChange("phone", "+1", "+4930"),
        ['TEL;VALUE=uri;PREF=1;TYPE="voice,home":tel:+4930'],
        ['TEL;VALUE=uri;PREF=1;TYPE="voice,home":tel:+1'],
    ),
    (
        OLD,
        CardChange("family", "Mühl"),
        ["N;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:M=C3=BCller;J=C3=B6rg"],
        ["N;CHARSET=UTF-8:Mühl;Jörg;;;"],
    ),
    (OLD, CardChange("name", "Jörg"), [], ["FN;CHARSET=UTF-8:Jörg"]),
)


@pytest.mark.parametrize(("text", "change", "gone", "new"), CHANGES)
def test_only_the_lines_of_what_changes_differ(text: str, change: CardChange, gone: list[str], new: list[str]) -> None:
    before, after = text.splitlines(), change_card(text.encode(), [change]).decode().splitlines()
    assert [one for one in before if one not in after] == gone
    assert [one for one in after if one not in before] == new
    assert [one for one in before if one not in gone] == [one for one in after if one not in new]


def test_what_is_not_there_and_a_name_taken_away_are_refused() -> None:
    for change in (CardChange("email", "x@y", "nobody@example.org"), CardChange("name", " ")):
        with pytest.raises(InvalidInput):
            change_card(APPLE.encode(), [change])
    with pytest.raises(InvalidInput, match="no vCard"):
        card_of(b"BEGIN:VEVENT\r\nEND:VEVENT\r\n")


@given(
    st.sampled_from(CARDS),
    st.lists(st.text('AZ:;=,"\\\t\r\n.é=', max_size=30), max_size=4),
    st.sampled_from(("name", "given", "family", "nickname", "organisation", "birthday", "note", "email", "address")),
    st.text(max_size=90),
)
def test_what_was_changed_is_read_again(text: str, odd: list[str], field: FieldName, new: str) -> None:
    data = text.replace("END:VCARD", "\r\n".join(["", *odd, "END:VCARD"])).encode()
    value = f"x{new}"
    try:
        changed = change_card(data, [CardChange(field, value)])
    except InvalidInput:
        return  # odd lines hide the card or would swallow the new one
    before = [line.raw for line in content_lines(data)]
    assert len([one for one in content_lines(changed) if one.raw not in before]) <= 1
    card_of(changed)


@pytest.mark.parametrize("filling", ["A:\n" * 60_000, "X-A:b\r\n" * 6_000], ids=["ends", "properties"])
def test_a_card_of_too_many_lines_is_not_read(filling: str) -> None:
    """It would hold up whoever reads it, for seconds."""
    with pytest.raises(InvalidInput, match="more than 5,000 lines"):
        card_of(f"BEGIN:VCARD\r\nVERSION:3.0\r\nFN:Eve\r\n{filling}END:VCARD\r\n".encode())


def test_a_large_picture_makes_no_card_too_large() -> None:
    picture = "PHOTO;ENCODING=b;TYPE=JPEG:/9j/\r\n" + f" {'A' * 74}\r\n" * 12_000
    assert card_of(f"BEGIN:VCARD\r\nVERSION:3.0\r\nFN:Eve\r\n{picture}END:VCARD\r\n".encode()).name == "Eve"


def test_endless_nicknames_are_cut() -> None:
    """A nickname is a row, by which people are found."""
    lines = ("NICKNAME:" + "eve," * 200_000 + "\r\n") * 2
    found = card_of(f"BEGIN:VCARD\r\nVERSION:3.0\r\nFN:Eve\r\n{lines}END:VCARD\r\n".encode())
    assert found.nicknames == ("eve",) * 200
