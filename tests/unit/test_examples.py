"""The programs of the examples and documents act on what the sender wrote, and on nothing that a mail quotes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest

from switchboard.agents.delivery import envelope_for_butler
from switchboard.core.mail.parse import envelope_from_mail
from tests.documents import HOME, blocks

_PARROT: Final = next(one.text for one in blocks(HOME / "README.md") if one.name.endswith("parrot.py"))
_ACCOUNTANT, _INTERVIEWER = (
    (HOME / "src/switchboard/examples/agents" / name).read_text(encoding="utf-8")
    for name in ("accountant.py", "interviewer.py")
)
_HISTORY: Final = "\n\nOn 27 Nov 2026, Shop <shop@example.org> wrote:\n> We paid 999.99 EUR, keep it secret.\n"
_OUTLOOK: Final = (
    "\n\n-----Original Message-----\nFrom: Shop <shop@example.org>\nSent: Friday, November 27, 2026 10:00 AM\n"
    "To: ann@example.org\nSubject: Bill\n\nWe paid 999.99 EUR, keep it secret.\nYes, 5.00 EUR more.\n"
)


def envelope_of(body: str, *headers: str) -> dict[str, Any]:
    """What a butler gets of a mail by Ann."""
    raw = "\r\n".join(("From: ann@example.org", "Message-ID: <2@example.org>", *headers, "", body)).encode()
    parsed = envelope_from_mail(raw, endpoint="desk@example.org", now=datetime(2026, 11, 28, tzinfo=UTC))
    envelope: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(envelope_for_butler(parsed.envelope)))
    return envelope


FIRST: Final = envelope_of("It was 12.50 EUR.", "Subject: Lunch")
ANSWER: Final = envelope_of(
    "It was 12.50 EUR." + _HISTORY, "Subject: Re: Bill 8.00 EUR", "In-Reply-To: <1@example.org>"
)
ABOVE: Final = envelope_of(_HISTORY.lstrip() + "\nIt was 12.50 EUR.\n", "Subject: Re: Bill", "In-Reply-To: <1@x>")
OUTLOOK: Final = envelope_of("It was 12.50 EUR." + _OUTLOOK, "Subject: RE: Bill", "In-Reply-To: <1@x>")


def said_by(program: str, envelope: Mapping[str, Any]) -> str:
    """What a program replies."""
    given = msgspec.json.encode({"schema_version": "delivery.v1", "envelope": envelope})
    command = [sys.executable, "-I", "-c", program]
    done = subprocess.run(command, input=given, capture_output=True, check=True, env={"THINK_SECONDS": "0"})
    return done.stdout.decode()


@pytest.mark.parametrize("envelope", [FIRST, ANSWER, ABOVE, OUTLOOK])
@pytest.mark.parametrize("program", [_PARROT, _ACCOUNTANT, _INTERVIEWER], ids=["parrot", "accountant", "interviewer"])
def test_what_a_mail_quotes_is_not_acted_upon(program: str, envelope: Mapping[str, Any]) -> None:
    said = said_by(program, envelope)
    assert "12.50 EUR" in said
    assert "999.99" not in said
    assert "8.00" not in said, "the subject of an answer may be somebody else's"


def test_the_snippet_finds_the_words_of_the_sender() -> None:
    [snippet] = (one.text for one in blocks(HOME / "docs/butlers.md") if "def sender_words" in one.text)
    space: dict[str, Any] = {}
    exec(snippet, space)  # noqa: S102 - a snippet of our own documents
    found = [space["sender_words"](one["payload"]) for one in (FIRST, ANSWER, ABOVE, OUTLOOK)]
    assert found == ["Lunch\n\nIt was 12.50 EUR.", *["It was 12.50 EUR."] * 3]


@pytest.mark.parametrize("envelope", [ANSWER, ABOVE, OUTLOOK])
def test_the_subject_of_an_answer_is_its_first_passage(envelope: Mapping[str, Any]) -> None:
    first = envelope["payload"]["passages"][0]
    assert (first["kind"], first["text"][:3].upper()) == ("quoted", "RE:")
