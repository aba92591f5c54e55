"""What is searched for in mailboxes, and where: as servers are asked, and as it is compared here."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.modules.email.folders import folders_to_search
from switchboard.modules.email.heads import FoundFolder, read_listed
from switchboard.modules.email.names import MailId, MailPlace, read_mail_id
from switchboard.modules.email.periods import read_period
from switchboard.modules.email.wanted import MailTexts, WantedMails, has_wanted_words, search_keys, words_of
from switchboard.transport.mail_servers.criteria import (
    SearchKey,
    SearchText,
    any_of,
    command_pieces,
    needs_charset,
    uid_set,
)
from switchboard.transport.mail_servers.mailbox import FetchedHead, MailFolder

TODAY: Final = date(2026, 3, 2)
PERIODS: Final = {
    "today": ("2026-03-02", "2026-03-02"),
    " Yesterday": ("2026-03-01", "2026-03-01"),
    "last week": ("2026-02-23", "2026-03-01"),
    "this  week": ("2026-03-02", "2026-03-08"),
    "last month": ("2026-02-01", "2026-02-28"),
    "this month": ("2026-03-01", "2026-03-31"),
    "last year": ("2025-01-01", "2025-12-31"),
    "2024-2": ("2024-02-01", "2024-02-29"),
    "2024": ("2024-01-01", "2024-12-31"),
    "2024-02-29": ("2024-02-29", "2024-02-29"),
}


def test_days_are_named_as_models_name_them() -> None:
    assert {text: tuple(map(str, read_period(text, TODAY))) for text in PERIODS} == PERIODS
    for wrong in ("", "soon", "2026-13", "2026-02-30", "last", "0000"):
        with pytest.raises(ValueError, match=r"write a day|there is no day"):
            read_period(wrong, TODAY)


def read_command(pieces: tuple[bytes, ...]) -> list[str]:
    """The texts in a command, as a server reads them."""
    found, rest = list[str](), b""
    for number, piece in enumerate(pieces):
        line = piece
        if number:
            size = int(rest)
            found.append(piece[:size].decode())
            line = piece[size:]
        size_of_next = re.search(rb"\{(\d+)\}$", line)
        rest = size_of_next[1] if size_of_next else b""
        quoted = re.findall(rb'"((?:[^"\\]|\\.)*)"', line)
        found += [re.sub(rb"\\(.)", rb"\1", one).decode() for one in quoted]
    return found


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=5))
def test_every_text_arrives_as_it_is_and_ends_no_command(texts: list[str]) -> None:
    keys = [key for text in texts for key in ("TEXT", SearchText(text))]
    pieces = command_pieces(keys)
    assert read_command(pieces) == texts
    assert needs_charset(keys) == any(not text.isascii() for text in texts)
    assert b"\n" not in pieces[0]


@pytest.mark.parametrize(
    ("wanted", "asked", "asked_of_ascii_only"),
    [
        (WantedMails(), b"ALL", b"ALL"),
        (WantedMails(("boiler",), "ben"), b'TEXT "boiler" FROM "ben"', b'TEXT "boiler" FROM "ben"'),
        (WantedMails(("Rechnung", "K\u00fche")), b'TEXT "Rechnung" TEXT {5}', b'TEXT "Rechnung"'),
        (WantedMails(subject="Heizk\u00f6rper"), b"SUBJECT {11}", b'SUBJECT "Heizk"'),
        (WantedMails(recipient="b"), b'OR (TO "b") (CC "b")', b'OR (TO "b") (CC "b")'),
        (
            WantedMails(first=date(2026, 2, 1), last=date(2026, 2, 28)),
            b"SINCE 31-Jan-2026 BEFORE 2-Mar-2026",
            b"SINCE 31-Jan-2026 BEFORE 2-Mar-2026",
        ),
    ],
)
def test_what_a_server_is_asked(wanted: WantedMails, asked: bytes, asked_of_ascii_only: bytes) -> None:
    assert command_pieces(search_keys(wanted))[0] == asked
    assert command_pieces(search_keys(wanted, ascii_only=True)) == (asked_of_ascii_only,)


def test_alternatives_and_numbers_are_as_short_as_they_can_be() -> None:
    three: list[list[SearchKey]] = [["A"], ["B", "C"], ["D"]]
    assert command_pieces(any_of(three)) == (b"OR (A) OR (B C) (D)",)
    assert uid_set([9, 1, 2, 3, 7, 10]) == "1:3,7,9:10"


def test_words_are_compared_here_as_a_server_would() -> None:
    mail = MailTexts("Bj\u00f6rn <b@x.example>", "ann@home.example, cem@x.example", "Die GR\u00d6SSTE", "Stra\u00dfe 1")
    assert words_of('a "b  c" d') == ("a", "b  c", "d")
    for found in (
        WantedMails(("gr\u00f6\u00dfte", "STRASSE")),
        WantedMails(("bjo\u0308rn",), "BJ\u00d6RN", "cem", "die"),
    ):
        assert has_wanted_words(found, mail)
    for missed in (
        WantedMails(("kuh",)),
        WantedMails(sender="ann"),
        WantedMails(subject="1"),
        WantedMails(recipient="b\u00f6"),
    ):
        assert not has_wanted_words(missed, mail)


def folder(name: str, *flags: str) -> MailFolder:
    return MailFolder(name, frozenset(flags), "/")


GOOGLE: Final = (folder("INBOX"), folder("[Gmail]/Alle", "\\All"), folder("[Gmail]/Gesendet", "\\Sent"))
MARKED: Final = (folder("Junk", "\\Junk"), folder("S", "\\Sent"), folder("Inbox"), folder("A", "\\Archive"))
NAMED: Final = (folder("INBOX"), folder("INBOX/Gesendete Objekte"), folder("Archiv"), folder("Work"), folder("work"))


@pytest.mark.parametrize(
    ("named", "folders", "searched"),
    [
        ("", GOOGLE, ["[Gmail]/Alle"]),
        ("", MARKED, ["Inbox", "S", "A"]),
        ("", NAMED, ["INBOX", "INBOX/Gesendete Objekte", "Archiv"]),
        ("junk", MARKED, ["Junk"]),
        ("work", NAMED, ["work"]),
        ("Gone", NAMED, []),
    ],
)
def test_the_folders_that_matter_are_searched(named: str, folders: tuple[MailFolder, ...], searched: list[str]) -> None:
    assert [one.name for one in folders_to_search(named, folders)] == searched


def test_an_id_names_a_mail_and_hides_nothing() -> None:
    for place, message_id in ((MailPlace("A/\u00dc b", 7, 42), "a/b@x.example"), (MailPlace("INBOX", 1, 1), "")):
        named = MailId("ann", place, message_id)
        assert read_mail_id(named.text) == named
    assert read_mail_id("ann/INBOX/1/2") is None
    head = b"Message-ID: <a\xe2\x80\xaeb@x.example>\r\nFrom: x\r\n\r\n"
    listed = read_listed(FetchedHead(1, None, 1, b"", head), FoundFolder("ann", "INBOX", 1), frozenset())
    assert listed.id.message_id == ""


@given(st.binary(max_size=300), st.binary(max_size=100))
def test_no_header_fields_are_too_strange_to_be_listed(head: bytes, structure: bytes) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    found = FetchedHead(1, now, 1, structure, b"From: " + head + b"\r\nDate: " + head + b"\r\n\r\n")
    listed = read_listed(found, FoundFolder("ann", "INBOX", 1), frozenset())
    assert listed.sent.tzinfo is not None
