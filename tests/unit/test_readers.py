"""For whom a turn reads: found out from its message alone."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from msgspec import structs

from switchboard.core.channels.email import trusting
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.envelope.identity import conversation
from switchboard.core.envelope.strict import strict
from switchboard.core.people.readers import directory_of, person_of, reader_of
from switchboard.core.routing.facts import facts
from switchboard.domain.envelope import Envelope
from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import SystemId
from switchboard.ports.engine import Turn
from switchboard.ports.facts import Reader
from tests.lab import ROOT, butler, envelope, envelope_json

PASS = "mx.example; dkim=pass header.d=example.org"
TRUSTED = trusting({"*": ["mx.example"]})


def turn_about(one: Envelope) -> Turn:
    place = conversation(one, CHANNELS[one.source.channel])
    return Turn(butler("notes"), ROOT, RequestId(uuid4()), place, one, datetime(2026, 11, 21, tzinfo=UTC))


def reader(**given: Any) -> Reader:
    """Of a message, with the facts that acceptance would have found."""
    one = envelope(**given)
    channel = TRUSTED if one.source.channel == "email" else CHANNELS[one.source.channel]
    return reader_of(turn_about(one), facts(one, channel), channel)


def mail(auth: str | None = PASS, **headers: str) -> dict[str, Any]:
    """A mail of ann@example.org to the mailbox bot@house.example."""
    given = {"to": "bot@house.example", **headers} | ({"authentication-results": auth} if auth else {})
    return {
        "channel": "email",
        "sender": "ann@example.org",
        "endpoint": "imap:bot@house.example",
        "raw": {"headers": given},
    }


@pytest.mark.parametrize(
    ("given", "private", "authentic"),
    [
        ({"chat_type": "private"}, True, True),
        ({"chat_type": "group", "thread": "42"}, False, True),
        ({"thread": "42"}, False, True),
        ({}, True, True),
        ({"channel": "api", "thread": "anything"}, True, True),
        (mail(), True, True),
        (mail(cc="bob@example.org"), False, True),
        (mail(cc="Bob <bob@example.org>, ann@example.org"), False, True),
        (mail(cc="ann+home@example.org", to="bot+notes@house.example"), True, True),
        (mail(to="bot@house.example, list@example.org"), False, True),
        (mail(to=""), False, True),
        (mail(auth=None), True, False),
        (mail(auth="mx.example; dkim=fail header.d=example.org"), True, False),
        (mail(auth="mx.example; dkim=pass header.d=evil.example"), True, False),
        (mail(auth="mx.evil.example; dkim=pass header.d=example.org"), True, False),
    ],
)
def test_who_reads_is_told_by_the_message(given: dict[str, Any], private: bool, authentic: bool) -> None:
    found = reader(**given)
    assert (found.private, found.authentic) == (private, authentic)
    assert found.person == person_of(envelope(**given))


def test_of_several_writers_nobody_is_alone() -> None:
    raw = envelope_json(chat_type="private")
    raw["sender"]["participants"] = {"alice": "Alice", "bob": "Bob"}
    one = strict(Envelope, raw)
    turn = turn_about(one)
    assert not reader_of(turn, {}, CHANNELS["telegram"]).private


def test_a_notice_is_for_nobody_in_particular() -> None:
    one = envelope(chat_type="private")
    turn = turn_about(one)
    found = reader_of(replace(turn, dead_letter={"category": "refused"}), {}, CHANNELS["telegram"])
    assert (found.person, found.private) == ("", False)


def test_what_is_kept_for_readers_is_in_a_directory_that_no_others_have() -> None:
    first, second = RequestId(uuid4()), RequestId(uuid4())
    ann = Reader(SystemId("System1/a"), Conversation("telegram/bot/ann"), "telegram/bot/ann", private=True)
    alike = [ann, structs.replace(ann, conversation=Conversation("telegram/bot/other"))]
    others = [
        structs.replace(ann, person="telegram/bot/bob"),
        structs.replace(ann, private=False),
        structs.replace(ann, private=False, conversation=Conversation("telegram/bot/other")),
        structs.replace(ann, person="group:telegram/bot/ann"),
        structs.replace(ann, authentic=False),
    ]
    names = [directory_of(one, first) for one in (*alike, *others)]
    assert names[0] == names[1]
    assert len(set(names)) == 1 + len(others)
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in names)
    assert directory_of(others[-1], second) != names[-1], "who it is from is not sure, so it may be anybody"
