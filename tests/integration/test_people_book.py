"""Who a person is reaches decisions within a second, and only where somebody vouches for the sender."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final

import pytest
from msgspec.structs import replace

from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.core.people.handle import handle_at
from switchboard.core.people.owners import owns
from switchboard.core.routing.lint import lint_people
from switchboard.domain.routing import Decision, Owner, SystemId, Team
from switchboard.journey.decide import DecideLeg
from switchboard.journey.people_book import PeopleBook
from switchboard.journey.rulebook import RuleBook
from switchboard.lanes.background import run_in_background
from switchboard.lanes.notifier import PEOPLE, Notifier
from switchboard.ports.channel import Channel, Identities, Realm
from switchboard.store.database import Database
from switchboard.store.people import people as store
from switchboard.store.rules import teams
from tests.lab import ROOT, TRUSTING, butler, envelope, lab
from tests.routing import rule
from tests.waiting import eventually

RULES: Final = (
    rule("System1/hers", person="ann"),
    rule("System1/family", groups="family"),
    rule("System1/all"),
)
TEAM: Final = Team(ROOT, None, members=tuple(butler(name) for name in ("hers", "family", "all")))
PASSED: Final = {"headers": {"Authentication-Results": "mx.example; dmarc=pass header.from=example.org"}}
FORGED: Final = {"headers": {"Authentication-Results": "mx.example; dmarc=fail header.from=example.org"}}


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await Database.connect(database_url)
    await teams.seed(opened, [TEAM], RULES, author="test", reason="seeded")
    yield opened
    await opened.close()


async def link(database: Database, person: str, channel: str, identity: str) -> None:
    async with database.transaction() as one:
        await store.begin_change(one)
        await store.create(one, person, person.title())
        assert await store.link(one, person, handle_at(CHANNELS[channel], "bot:house", identity), "operator")
        await store.join_group(one, person, "family")


async def knows(book: PeopleBook, person: str) -> bool:
    return person in book.people.persons


async def decide_as(database: Database) -> DecideLeg:
    notifier = Notifier(database)
    people_book = PeopleBook(database, notifier)
    await people_book.refresh()
    return DecideLeg(await RuleBook.open(database, notifier), TRUSTING, people_book)


@pytest.mark.parametrize(
    ("channel", "sender", "raw", "endpoint", "receiver"),
    [
        ("telegram", "5488", None, "bot:house", "hers"),
        ("telegram", "5488", None, "bot:another", "hers"),
        ("telegram", "77", None, "bot:house", "family"),
        ("telegram", "999", None, "bot:house", "all"),
        ("slack", "U1", None, "bot:house", "hers"),
        ("slack", "U1", None, "bot:another", "all"),
        ("api", "ann", None, "bot:house", "all"),
        ("email", "Ann <Ann@example.org>", PASSED, "bot:house", "hers"),
        ("email", "ann@example.org", FORGED, "bot:house", "all"),
        ("email", "ann@example.org", None, "bot:house", "all"),
    ],
)
async def test_a_rule_for_a_person_gets_what_they_certainly_wrote(
    database: Database, channel: str, sender: str, raw: object, endpoint: str, receiver: str
) -> None:
    for handle in (("telegram", "5488"), ("slack", "U1"), ("api", "ann"), ("email", "ann@example.org")):
        await link(database, "ann", *handle)
    await link(database, "bob", "telegram", "77")
    leg = await decide_as(database)
    decision = leg(envelope("hello", channel=channel, sender=sender, raw=raw, endpoint=endpoint), None, None)
    assert isinstance(decision, Decision)
    assert [one.system_id for one in decision.chosen] == [f"System1/{receiver}"]
    person = {"hers": "ann", "family": "bob"}.get(receiver)
    assert (decision.facts.get("person"), decision.facts.get("groups")) == (person, person and "family")


@pytest.mark.parametrize("told", [True, False])
async def test_what_is_linked_counts_in_every_process_soon(database: Database, told: bool) -> None:
    notifier = Notifier(database)
    book = PeopleBook(database, notifier)
    async with AsyncExitStack() as stack:
        await run_in_background(stack, lambda: book.follow(every=60.0 if told else 0.05))
        await link(database, "ann", "telegram", "5488")
        if told:
            notifier.notify(PEOPLE)
        await eventually(lambda: knows(book, "ann"))


async def test_rules_that_name_nobody_are_found(database: Database) -> None:
    await link(database, "ann", "telegram", "5488")
    await link(database, "web", "api", "web")
    wrong = rule("System1/all", groups="famly")
    wrong = replace(wrong, filters={"person": ("anne", "web", "ann"), **wrong.filters})
    found = [*lint_people([*RULES, wrong], (await store.load(database)).names(CHANNELS))]
    assert [(one.code, one.message, one.meant) for one in found] == [
        ("names_nobody", "can never match: person 'anne' is nobody; did you mean ann?", ("ann",)),
        ("names_nobody", "can never match: person 'web' has no handle that proves who writes", ()),
        ("names_nobody", "can never match: groups 'famly' is nobody; did you mean family?", ("family",)),
    ]


@pytest.mark.parametrize(
    ("identity", "realm", "linked_at", "endpoints"),
    [
        ("platform", "channel", "", ("here", "there")),
        ("platform", "endpoint", "here", ("here",)),
        ("claimed", "endpoint", "here", ()),
    ],
)
async def test_a_person_owns_a_butler_on_channels_of_plug_ins_that_vouch(
    database_url: str, identity: Identities, realm: Realm, linked_at: str, endpoints: tuple[str, ...]
) -> None:
    plugged = Channel(name="plugged", providers=frozenset({"plugged"}), identity=identity, realm=realm)
    hers = replace(butler("hers"), options={"owners": ["person:ann"]})
    tree = [Team(ROOT, None, members=(hers,))]
    async with lab(database_url, tree, [], channels=Channels((*CHANNELS.values(), plugged))) as parts:
        async with parts.database.transaction() as one:
            await store.begin_change(one)
            await store.create(one, "ann", "Ann")
            assert await store.link(one, "ann", handle_at(plugged, linked_at, "7"), "operator")
            assert await store.tell_owners(one, "ann", "operator", "linked")
        await parts.rule_book.refresh()
        member = parts.rule_book.rules.members[SystemId("System1/hers")]
        owning = [at for at in ("here", "there") if owns(Owner("plugged", at, "7"), member)]
        assert owning == list(endpoints)
