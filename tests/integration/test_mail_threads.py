"""Mails, end to end in the accept leg: which are one message, and which one conversation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from switchboard.core.envelope.read import read_envelope
from switchboard.core.mail.parse import envelope_from_mail
from switchboard.journey.accept import Submission
from switchboard.store.inbox import Acceptance
from tests.hands import assert_balanced
from tests.lab import Lab, envelope_json, lab
from tests.servers import open_server
from tests.strategies import NOW

HOUSE = "house@home.example"


def mail(sender: str, text: str, own: str, **fields: str) -> bytes:
    head = {"From": sender, "To": HOUSE, "Message-ID": f"<{own}@x.example>", **fields}
    return (
        "".join(f"{name.replace('_', '-')}: {value}\n" for name, value in head.items()).encode() + b"\n" + text.encode()
    )


def taken(raw: bytes) -> Submission:
    read = envelope_from_mail(raw, endpoint=HOUSE, provider="imap", now=NOW)
    return Submission(read.envelope, read.raw, "message/rfc822")


def as_json(text: str, sender: str, event: str, **more: Any) -> Submission:
    raw = json.dumps(envelope_json(text, channel="email", endpoint=HOUSE, sender=sender, event=event, **more)).encode()
    return Submission(read_envelope(raw), raw)


async def accepted(parts: Lab, *given: Submission) -> list[Acceptance]:
    outcomes = await parts.accept.accept_all(given)
    assert all(isinstance(one, Acceptance) for one in outcomes)
    return [one for one in outcomes if isinstance(one, Acceptance)]


async def test_a_mail_is_one_message_in_whatever_form_it_comes(database_url: str) -> None:
    raw = mail(
        "Ann <ann@x.example>", "We meet at 5.", "m1", Subject="=?utf-8?q?Caf=C3=A9?=", References="<r@x.example>"
    )
    headers = {"headers": {"message-id": "<m1@x.example>", "subject": "Café"}}
    async with lab(database_url) as parts:
        first, *others = await accepted(
            parts,
            taken(raw),
            taken(b"Received: by way of another\n" + raw),
            as_json("Café\n\nWe meet at 5.\n", "Ann@X.example", "<m1@x.example>"),
            as_json("Café We  meet at 5.", "Ann <ann@x.example>", "m1@x.example", thread="t"),
            as_json("We meet at 5.", "ann@x.example", "4711", raw=headers),
        )
        assert [one.duplicate for one in (first, *others)] == [False, True, True, True, True]
        assert {one.request_id for one in others} == {first.request_id}


async def test_nobody_swallows_a_mail_by_its_message_id(database_url: str) -> None:
    """Neither one that came before with another sender or text, nor both."""
    given = [
        taken(mail("evil@y.example", "nothing", "m1")),
        taken(mail("ann@x.example", "nothing", "m1")),
        taken(mail("ann@x.example", "The invoice is due.", "m1")),
    ]
    async with lab(database_url) as parts:
        first = await accepted(parts, *given)
        assert [one.duplicate for one in first] == [False, False, False]
        for each in given, given[::-1]:
            again = [(await accepted(parts, one))[0] for one in each]
            assert [one.duplicate for one in again] == [True, True, True]
            assert {one.request_id for one in again} == {one.request_id for one in first}
        assert await parts.count("select count(*) from message_inbox") == 3
        await assert_balanced(parts)


async def test_an_id_of_the_provider_is_nobodys_choice(database_url: str) -> None:
    async with lab(database_url) as parts:
        first, again = await accepted(parts, as_json("one", "a@x.example", "18f2"), as_json("1", "a@x.example", "18f2"))
        assert (first.duplicate, again.duplicate) == (False, True)


async def posted(server: Any, raw: bytes) -> UUID:
    headers = {"content-type": "message/rfc822"}
    answer = await server.http.post(f"/v1/ingest?endpoint={HOUSE}", content=raw, headers=headers)
    assert answer.status_code == 202, answer.text
    return UUID(answer.json()["request_id"])


async def explained(server: Any, request_id: UUID) -> Mapping[str, Any]:
    explanation: Mapping[str, Any] = (await server.http.get(f"/v1/messages/{request_id}/explain")).json()
    return explanation


async def test_explain_names_the_message_that_has_the_same_id(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path) as server:
        one = await posted(server, mail("evil@y.example", "nothing", "m1"))
        other = await posted(server, mail("ann@x.example", "The invoice is due.", "m1"))
        assert (await explained(server, one))["notes"] == []
        assert (await explained(server, other))["notes"] == [
            f"message {one} has the same id, but another sender or text; both are kept"
        ]
