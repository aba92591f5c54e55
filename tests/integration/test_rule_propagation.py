"""A change of rules takes effect in every process: whole, soon, and without a message lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from switchboard.bench.propagation import PropagationWorkload, measure
from switchboard.core.routing.index import RoutingIndex
from switchboard.domain.envelope import Envelope
from switchboard.domain.routing import Decision, Rule, RuleChange, SystemId
from switchboard.journey.decide import DecideLeg
from switchboard.journey.rulebook import RuleBook
from switchboard.lanes.notifier import RULES, Notifier
from switchboard.store.database import Database
from switchboard.store.rules import teams
from switchboard.store.rules import versions as rules
from switchboard.store.rules.versions import Authorship
from tests.lab import ROOT, butler, envelope, rule, team_of, to
from tests.waiting import eventually

BY = Authorship("test", "edited")
TEAM = team_of(butler("one"), butler("two"))


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await Database.connect(database_url)
    await teams.seed(opened, [TEAM], [rule("System1/one")], author="test", reason="seeded")
    yield opened
    await opened.close()


def decision(book: RuleBook, given: Envelope) -> Decision:
    decided = DecideLeg(book)(given, None, None)
    assert isinstance(decided, Decision)
    return decided


def receiver(book: RuleBook) -> str:
    [chosen] = decision(book, envelope()).chosen
    return chosen.system_id


async def only_rule(database: Database) -> Rule:
    _, [found] = await rules.list_rules(database)
    return found


async def lead_to(database: Database, system: str) -> int:
    """Edit the one rule there is, as another process would."""
    found = await only_rule(database)
    version, _ = await rules.write(database, [RuleChange(found, replace(found, targets=(to(system),)))], by=BY)
    return version


async def test_edited_rules_are_applied_where_they_stand(database: Database) -> None:
    book = await RuleBook.open(database, Notifier(database))
    before = book.rules
    await lead_to(database, "System1/one")
    version = await lead_to(database, "System1/two")
    assert receiver(book) == "System1/one"
    assert await book.refresh()
    assert (book.rules.version, receiver(book)) == (version, "System1/two")
    assert book.rules is before, "nothing was read again"
    assert not await book.refresh()
    assert decision(book, envelope()).version == version


async def test_new_teams_and_members_are_reloaded(database: Database) -> None:
    book = await RuleBook.open(database, Notifier(database))
    three = butler("three")
    await teams.seed(database, [replace(TEAM, members=(*TEAM.members, three))], [], author="test", reason="more")
    await lead_to(database, "System1/three")
    assert await book.refresh()
    assert receiver(book) == "System1/three"
    assert book.rules.members[three.system_id] == three
    assert (book.rules.version, book.rules.teams) == (3, (await teams.load_with_rules_of(database, ())).teams)


async def test_an_index_that_does_not_match_the_changes_is_rebuilt(database: Database) -> None:
    book = await RuleBook.open(database, Notifier(database))
    found = await only_rule(database)
    book.rules.index.apply(1, [RuleChange(found, None)])  # as a defect would leave it
    version = await lead_to(database, "System1/two")
    with capture_logs() as logs:
        assert await book.refresh()
    assert "rules do not match the changes that were made to them" in {entry["event"] for entry in logs}
    assert (book.rules.version, receiver(book)) == (version, "System1/two")


async def test_many_rules_are_loaded_piece_by_piece(database: Database) -> None:
    many = [rule("System1/two", sender=f"s{n}") for n in range(6000)]
    inactive = replace(rule("System1/two", sender="s"), active=False)
    await rules.write(database, [RuleChange(None, one) for one in (*many, inactive)], by=BY)
    async with teams.open_rules(database) as stored:
        pieces = [len(some) async for some in stored.rules]
    assert sum(pieces) == 6002
    assert max(pieces) <= 2000
    book = await RuleBook.open(database, Notifier(database))
    assert (book.rules.index.loaded, book.rules.version) == (6001, 2)
    [chosen] = decision(book, envelope(sender="s5999")).chosen
    assert chosen.system_id == SystemId("System1/two")


async def changed_rules(database: Database, count: int) -> list[Rule]:
    """2,100 rules with a filter are made; so many of them, as they are stored."""
    many = [rule("System1/one", sender=f"s{n}") for n in range(2100)]
    await rules.write(database, [RuleChange(None, one) for one in many], by=BY)
    _, found = await rules.list_rules(database)
    return [one for one in found if one.filters][:count]


async def test_a_version_of_many_changes_is_made_ready_beside_the_one_in_force(database: Database) -> None:
    changed = await changed_rules(database, 501)
    book = await RuleBook.open(database, Notifier(database))
    before = book.rules
    changes = [RuleChange(one, replace(one, targets=(to("System1/two"),))) for one in changed]
    version, _ = await rules.write(database, changes, by=BY)
    assert await book.refresh()
    assert book.rules.teams is before.teams, "nothing was read again"
    assert (before.version, book.rules.version) == (version - 1, version)
    fresh = await RuleBook.open(database, Notifier(database))
    for n in range(2100):
        message = envelope(sender=f"s{n}")
        assert decision(book, message) == decision(fresh, message)
    assert book.rules.index.loaded == 2101
    _, [last] = await rules.list_rules(database, limit=1)
    await rules.write(database, [RuleChange(last, replace(last, priority=1))], by=BY)
    assert await book.refresh()
    assert book.rules.teams is before.teams, "what took over goes on like the one before"


async def test_an_avoided_butler_stays_no_candidate_after_a_large_rule_change(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one who falls silent while the version is being made ready beside the one in force."""
    await teams.seed(database, [replace(TEAM, classify=True)], [], author="test", reason="asks")
    changed = await changed_rules(database, 501)
    book = await RuleBook.open(database, Notifier(database), classifying=True)
    one, two = SystemId("System1/one"), SystemId("System1/two")
    before, take_over = book.rules, RoutingIndex.take_over

    def last_moment(index: RoutingIndex) -> None:
        book.avoid([one])
        take_over(index)

    monkeypatch.setattr(RoutingIndex, "take_over", last_moment)
    changes = [RuleChange(found, replace(found, priority=1)) for found in changed]
    await rules.write(database, changes, by=BY)
    assert await book.refresh()
    assert book.rules.index is not before.index
    assert book.rules.teams is before.teams, "nothing was read again"
    assert [target.system_id for target in book.rules.index.candidates(ROOT)] == [two]


async def test_a_change_of_most_rules_reloads_them(database: Database) -> None:
    changed = await changed_rules(database, 700)
    book = await RuleBook.open(database, Notifier(database))
    before = book.rules
    version, _ = await rules.write(database, [RuleChange(one, replace(one, active=False)) for one in changed], by=BY)
    assert await book.refresh()
    assert book.rules.teams is not before.teams
    assert (book.rules.version, book.rules.index.loaded) == (version, 1401)


async def test_many_changes_that_do_not_fit_leave_the_version_in_force_alone(database: Database) -> None:
    changed = await changed_rules(database, 501)
    book = await RuleBook.open(database, Notifier(database))
    before = book.rules
    book.rules.index.apply(2, [RuleChange(changed[500], None)])  # as a defect would leave it
    version, _ = await rules.write(database, [RuleChange(one, replace(one, priority=1)) for one in changed], by=BY)
    with capture_logs() as logs:
        assert await book.refresh()
    assert "rules do not match the changes that were made to them" in {entry["event"] for entry in logs}
    assert (before.version, book.rules.version, book.rules.index.loaded) == (2, version, 2101)


async def test_refreshes_at_the_same_time_are_one_after_the_other(database: Database) -> None:
    book = await RuleBook.open(database, Notifier(database))
    await lead_to(database, "System1/two")
    assert sorted(await asyncio.gather(*(book.refresh() for _ in range(8)))) == [*[False] * 7, True]
    assert receiver(book) == "System1/two"


@pytest.mark.parametrize("ring", [True, False])
async def test_a_follower_is_notified_and_also_polls(database: Database, ring: bool) -> None:
    notifier = Notifier(database)
    book = await RuleBook.open(database, notifier)
    following = asyncio.create_task(book.follow(every=3600 if ring else 0.01))
    try:
        await asyncio.sleep(0)  # it begins to follow
        await lead_to(database, "System1/two")
        if ring:
            notifier.notify(RULES)

        async def arrived() -> bool:
            return receiver(book) == "System1/two"

        await eventually(arrived)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


@pytest.mark.slow
async def test_under_load_every_message_is_decided_by_one_whole_version() -> None:
    result = await measure(PropagationWorkload(seconds=5, edits_per_s=10, messages_per_s=200))
    assert result.edits == 50
    assert result.messages > 1000
    assert len(result.waits_ms) == 2 * 50
    assert result.waits_ms[-1] < float("inf"), "every edit came into force in both servers"
    assert (result.lost, result.torn) == (0, 0)
    assert result.versions > 10, "there were many versions to be torn between"
