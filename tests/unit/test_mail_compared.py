"""`core/mail/compared.py`: the text by which a mail is recognised is as it was in the release before passages."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.connectors.kernel.intake import mark_of
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.envelope.identity import content_of, dedupe_key
from switchboard.core.mail import compared
from switchboard.core.mail.compared import compared_text
from switchboard.core.mail.envelope import Mail, envelope_of_head
from switchboard.core.mail.mime import read_part
from switchboard.core.mail.parse import envelope_from_mail
from switchboard.core.mail.reading import Reading
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import InvalidInput
from switchboard.ports.connector import Inbound
from tests.mail_corpus import corpus
from tests.stored_mails import CONTENTS, DESK, FAMILIES, RECEIVED, broken, handed_mails, stored_envelopes

EMAIL = CHANNELS["email"]
SOURCES = Path(compared.__file__).parents[2]
READERS = {"core/mail/parse.py", "core/mail/envelope.py", "core/channels/email.py", "connectors/kernel/intake.py"}


def text_of(raw: bytes) -> str:
    return compared_text(read_part(raw), Reading()).strip()


def body_of(text: str, subject: str = "") -> str:
    return text_of(f"From: a@x.example\nSubject: {subject}\nContent-Type: text/plain; charset=utf-8\n\n{text}".encode())


def today(raw: bytes) -> Envelope:
    return envelope_from_mail(raw, endpoint=DESK, now=RECEIVED).envelope


@pytest.mark.parametrize("name", handed_mails())
def test_each_mail_is_recognised_by_its_old_text(name: str) -> None:
    raw, old = handed_mails()[name], stored_envelopes()[name]
    assert text_of(raw) == old.payload.normalized_text
    new = today(raw)
    assert (dedupe_key(new, EMAIL), content_of(new, EMAIL)) == (dedupe_key(old, EMAIL), content_of(old, EMAIL))


@pytest.mark.parametrize("name", handed_mails())
def test_a_mail_that_waits_keeps_its_mark(name: str) -> None:
    raw, old = handed_mails()[name], stored_envelopes()[name]
    new = today(raw)
    if isinstance(new.payload.raw, dict) and "compared" in new.payload.raw:
        marks = {mark_of(Inbound(envelope=one, raw=raw, own=False, direct=True)) for one in (old, new)}
        assert len(marks) == 1


def test_broken_mails_keep_their_texts() -> None:
    texts = dict.fromkeys(FAMILIES, b"")
    for case in corpus():
        texts[case.family] += json.dumps(_old_text(case.raw)).encode()
    assert {family: sha256(text).hexdigest() for family, text in texts.items()} == FAMILIES


def _old_text(raw: bytes) -> str | None:
    try:
        today(raw)
    except InvalidInput:
        return None
    return text_of(raw)


def test_broken_mails_are_recognised() -> None:
    """Also those of which only the header fields were read."""
    found = {family: sha256() for family in CONTENTS}
    for number, case in enumerate(corpus()):
        copies = (broken(case.raw, 2 * number + n) for n in range(2) if len(case.raw) < 200_000)
        for raw in (case.raw, *copies):
            for reader in (envelope_from_mail, envelope_of_head):
                found[case.family].update(json.dumps(_identity(reader, raw)).encode())
    assert {family: one.hexdigest() for family, one in found.items()} == CONTENTS


def _identity(reader: Callable[..., Mail], raw: bytes) -> tuple[str, ...]:
    try:
        one = reader(raw, endpoint=DESK, now=RECEIVED).envelope
    except InvalidInput as error:
        return (error.code,)
    return dedupe_key(one, EMAIL), content_of(one, EMAIL) or "", one.event.external_thread_id or ""


def test_nothing_else_reads_a_mail_in_this_way() -> None:
    found = (path for path in SOURCES.rglob("*.py") if "mail.compared" in path.read_text())
    assert {str(path.relative_to(SOURCES)) for path in found} <= READERS


@pytest.mark.parametrize(
    ("style", "seen"),
    [("display:none", ""), (r"d\69splay:none", "x"), ("d&#92;69splay:none", "x"), (r"display:\6eone", "x")],
)
def test_css_escapes_are_not_read(style: str, seen: str) -> None:
    raw = f'From: a@x.example\nContent-Type: text/html\n\n<p style="{style}">x</p>C:\\temp'
    assert text_of(raw.encode()) == f"{seen}\nC:\\temp".strip()


GMAIL = (
    "Thanks, Thursday.\n\nOn Mon, Jun 1, 2026 at 9:00 AM House <house@home.example> wrote:\n\n> When?\n> \n> House\n"
)
WRAPPED = "Yes.\n\nOn Mon, Jun 1, 2026 at 9:00 AM The House of Many Words\n<house@home.example>\nwrote:\n> When?"
OUTLOOK = "Yes.\n\n________________\nFrom: House <h@x>\nSent: Monday, June 1\nTo: Ada\nSubject: When\n\nWhen?"
GERMAN = "Ja.\n\nAm Mo., 1. Juni 2026 um 09:00 Uhr schrieb Haus <h@x>:\n> Wann?"
OUTLOOK_GERMAN = "Ja.\n\nVon: Haus <h@x>\nGesendet: Montag, 1. Juni 2026 09:00\nAn: Ada\nBetreff: Wann\n\nWann?"
HTML = "Yes.\n\nOn Mon, Jun 1, 2026 at 9:00 AM House wrote:\n\nWhen?\nHouse"
ORIGINAL = "Yes.\n-----Original Message-----\nFrom: h@x\n\nWhen?"
THUNDERBIRD = "Oui.\n\nLe 01/06/2026 \u00e0 09:00, House a \u00e9crit :\n> Quand ?"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (GMAIL, "Thanks, Thursday."),
        (WRAPPED, "Yes."),
        (OUTLOOK, "Yes."),
        (GERMAN, "Ja."),
        (OUTLOOK_GERMAN, "Ja."),
        (HTML, "Yes."),
        (ORIGINAL, "Yes."),
        (THUNDERBIRD, "Oui."),
        ("Yes.\n> When?\n\n", "Yes."),
        *(
            (text, text)
            for text in (
                "On Monday I wrote:\nbuy milk",
                "On Mon, Jun 1, 2026 House wrote:\n> When?\nThursday.\n> Where?\nHere.",
                "> When?\nThursday.",
                "On 1 June she wrote:\n> all of it is quoted",
                "From: the heart\nSubject: to change",
            )
        ),
    ],
)
def test_history_is_cut(text: str, kept: str) -> None:
    assert body_of(text) == kept


@pytest.mark.parametrize("subject", ["Fwd: When", "FW: When", "WG: Wann", "Tr : Quand"])
def test_nothing_is_cut_from_a_forwarded_mail(subject: str) -> None:
    assert body_of(OUTLOOK, subject) == f"{subject}\n\n{OUTLOOK}"


LINES = st.sampled_from(["> q", "", "On 1 June A wrote:", "a line", "From: x", "Sent: 1", "Subject: y", "_" * 20])


@given(st.lists(LINES, max_size=30).map("\n".join))
def test_no_mail_is_left_without_text(text: str) -> None:
    assert text.strip().startswith(body_of(text).removesuffix("(an empty mail)"))


def test_a_megabyte_of_attributions_takes_linear_time() -> None:
    body_of("On 1 June A wrote:\n\n" * 50_000 + "> q\nx")
