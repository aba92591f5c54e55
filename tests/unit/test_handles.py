"""Who vouches for a sender, and within what an identity means the same person."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import pytest
from msgspec.structs import replace

from switchboard.core.calls import WantedCall, call_message
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.handle import Handle, handle_behind, handle_of
from switchboard.core.people.owners import is_certain_owner, owns
from switchboard.core.people.readers import person_named, person_of
from switchboard.core.routing.facts import facts
from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import Member, Owner, SystemId, TeamId
from switchboard.ports.facts import Reader
from tests.lab import butler, envelope

VOUCHED: Final = {
    "telegram": ("platform", "channel"),
    "telegram_bot": ("platform", "channel"),
    "telegram_user_client": ("platform", "channel"),
    "discord": ("platform", "channel"),
    "signal": ("platform", "channel"),
    "slack": ("platform", "endpoint"),
    "email": ("address", "channel"),
}


def test_who_is_vouched_for_by_nobody_only_claims_an_identity() -> None:
    found = {name: (channel.identity, channel.realm) for name, channel in CHANNELS.items()}
    assert found == dict.fromkeys(CHANNELS, ("claimed", "endpoint")) | VOUCHED


@pytest.mark.parametrize(
    ("channel", "sender", "handle"),
    [
        ("telegram", "5488", Handle("telegram", "", "5488")),
        ("slack", "U1", Handle("slack", "here", "U1")),
        ("api", "ann", Handle("api", "here", "ann")),
        ("email", "Ann <Ann@Example.org>", Handle("email", "", "ann@example.org")),
        ("email", "nobody at all", Handle("email", "", "nobody at all")),
    ],
)
def test_a_handle_names_the_endpoint_only_where_identities_are_its_own(
    channel: str, sender: str, handle: Handle
) -> None:
    given, kind = envelope("hello", channel=channel, endpoint="here", sender=sender), CHANNELS[channel]
    known = facts(given, kind)
    assert handle_of(given, kind, known) == handle
    certain = kind.identity == "platform" or "email_sender" in known
    assert handle_behind(person_of(given)) == (handle if certain else None)


@pytest.mark.parametrize(
    ("sender", "owner"),
    [
        (Owner("telegram", "bot:house", "5488"), True),
        (Owner("telegram", "embedded:app", "5488"), False),
        (Owner("email", "house@example.org", "ann@example.org"), True),
        (Owner("email", "house@example.org", "Ann <Ann@Example.org>"), True),
        (Owner("email", "house@example.org", "ann@example.org <eve@example.org>"), False),
        (Owner("email", "embedded:app", "ann@example.org"), False),
        (Owner("slack", "acme", "U1"), True),
        (Owner("slack", "other", "U1"), False),
    ],
)
def test_owners_are_those_whose_facts_a_person_is_told(sender: Owner, *, owner: bool) -> None:
    linked = (Handle("telegram", "", "5488"), Handle("email", "", "ann@example.org"), Handle("slack", "acme", "U1"))
    handles = frozenset(Owner(one.channel, one.realm, one.identity) for one in linked)
    assert owns(sender, replace(butler("hers"), linked=handles)) == owner
    assert (handle_behind(person_named(sender.channel, sender.endpoint, sender.identity)) in linked) == owner


@pytest.mark.parametrize(
    ("person", "owners", "certain", "owns_it"),
    [
        ("ann", ("person:ann",), True, True),
        ("bob", ("person:ann",), True, False),
        ("ann", ("person:ann",), False, False),
        (None, ("person:-",), False, False),
    ],
)
def test_whom_a_call_is_for_owns_what_they_own_at_once(
    person: str | None, owners: tuple[str, ...], certain: bool, owns_it: bool
) -> None:
    wanted = WantedCall("calendar_undo", {}, SystemId("System1/clerk"), person, caller="operator-1", by_operator=True)
    called = call_message(wanted, RequestId(UUID(int=1)), datetime(2027, 3, 1, tzinfo=UTC)).envelope
    clerk = Member(SystemId("System1/clerk"), TeamId("root"), 1, "model")
    reader = Reader(clerk.system_id, Conversation("c"), person_of(called), private=True, authentic=certain)
    assert is_certain_owner(clerk, owners, called, reader) == owns_it
    chat = envelope("hello", channel="telegram", sender="ann")
    assert not is_certain_owner(clerk, owners, chat, reader)
