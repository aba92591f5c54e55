"""Rules in the database: versions, their history, who is refused, and what a follower is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.routing.backtest import Case
from switchboard.core.routing.explain import in_order
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import Conflict, NotFound
from switchboard.domain.message import Conversation, Message, RequestId
from switchboard.domain.routing import (
    Decision,
    Rule,
    RuleChange,
    SystemId,
    Target,
    TeamId,
    TrailStep,
    Unrouted,
)
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.messages import inbox
from switchboard.store.messages.inbox import Arrival
from switchboard.store.rules import teams
from switchboard.store.rules import versions as rules
from switchboard.store.rules.replay import cases_since, count_cases
from switchboard.store.rules.versions import Authorship, Many, MovedOn, Since
from tests.lab import ROOT, butler, envelope, rule, team_of

HOME = TeamId("home")
TEAMS = (
    team_of(butler("echo"), "System4/root"),
    team_of(butler("cook"), team_id=HOME),
)
BY = Authorship("control (System3/root)", "because")


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await Database.connect(database_url)
    await teams.seed(opened, TEAMS, [], author="test", reason="seeded")
    yield opened
    await opened.close()


def a_rule(team: TeamId = ROOT, *, source: str = "", **filters: str) -> Rule:
    """A rule with every field set to something."""
    made = rule("System1/echo", "home", team=team, channel="telegram", priority=7)
    when = made.created_at + timedelta(days=1, microseconds=1)
    return replace(made, filters=filters, created_by="a", updated_by="b", updated_at=when, source=source, version=0)


def new(*made: Rule) -> list[RuleChange]:
    return [RuleChange(None, one) for one in made]


async def put(database: Database, *changes: RuleChange) -> int:
    version, _ = await rules.write(database, changes, by=BY)
    return version


async def stored(database: Database, rule_id: UUID) -> Rule:
    found = await rules.get_rule(database, rule_id)
    assert found is not None
    return found


def by_id(*given: Rule) -> list[Rule]:
    return sorted(given, key=lambda one: one.rule_id)


async def test_a_write_is_one_version_with_its_history(database: Database) -> None:
    one, two = a_rule(sender="alice"), replace(a_rule(HOME), updated_at=None)
    assert await put(database, *new(one, two)) == 2
    first = replace(one, version=2)
    assert await stored(database, one.rule_id) == first
    assert await stored(database, two.rule_id) == replace(two, version=2, updated_at=two.created_at)
    second = replace(first, active=False, updated_by="c", version=3)
    assert await put(database, RuleChange(first, replace(second, version=2))) == 3
    assert await put(database, RuleChange(second, None)) == 4
    assert await rules.get_rule(database, one.rule_id) is None
    history = await rules.history(database, one.rule_id)
    assert [change for _, change in history] == [
        RuleChange(second, None),
        RuleChange(first, second),
        RuleChange(None, first),
    ]
    assert [(v.version, v.author, v.reason, v.changes, v.teams) for v, _ in history] == [
        (4, BY.author, BY.reason, 1, False),
        (3, BY.author, BY.reason, 1, False),
        (2, BY.author, BY.reason, 2, False),
    ]
    assert await rules.history(database, uuid4()) == []
    assert await rules.changes_of(database, 3) == [RuleChange(first, second)]
    assert {change.rule.team_id for change in await rules.changes_of(database, 2)} == {ROOT, HOME}


async def test_pages_of_versions(database: Database) -> None:
    for _ in range(4):
        await put(database, *new(a_rule()))
    page = await rules.versions(database, None, 3)
    assert [entry.version for entry in page] == [5, 4, 3]
    assert [(e.version, e.teams, e.changes) for e in await rules.versions(database, 3, 9)] == [
        (2, False, 1),
        (1, True, 0),
    ]
    assert await rules.get_version(database, 5) == page[0]
    assert await rules.get_version(database, 6) is None


async def test_no_changes_make_no_version(database: Database) -> None:
    assert await rules.write(database, [], by=BY) == (1, [])
    assert len(await rules.versions(database, None, 9)) == 1


async def test_an_edit_of_an_older_state_is_told_who_changed_it(database: Database) -> None:
    one = a_rule()
    await put(database, *new(one))
    seen = await stored(database, one.rule_id)
    await rules.write(database, [RuleChange(seen, replace(seen, priority=1))], by=Authorship("eve (System3/x)", "mine"))
    other = a_rule()
    with pytest.raises(Conflict, match=r"was changed by eve \(System3/x\) in version 3; look at it again"):
        await put(database, *new(other), RuleChange(seen, replace(seen, priority=2)))
    assert (await stored(database, one.rule_id)).priority == 1
    assert await rules.get_rule(database, other.rule_id) is None, "all or nothing"
    assert await teams.rule_set_version(database) == 3
    with pytest.raises(Conflict, match=r"already, written by eve \(System3/x\) in version 3"):
        await put(database, *new(one))
    await put(database, RuleChange(await stored(database, one.rule_id), None))
    with pytest.raises(Conflict, match=r"not there any more: it was removed by control \(System3/root\) in version 4"):
        await put(database, RuleChange(seen, replace(seen, priority=2)))
    with pytest.raises(Conflict, match="not there any more: it was removed by nobody"):
        await put(database, RuleChange(replace(other, version=1), other))


async def test_an_expected_version_is_that_of_the_whole_rule_set(database: Database) -> None:
    one = a_rule()
    written = await rules.write(database, new(one), by=BY, expected_version=1)
    assert written == (2, new(await stored(database, one.rule_id)))
    with pytest.raises(MovedOn, match="moved on to version 2; you saw 1"):
        await rules.write(database, new(a_rule()), by=BY, expected_version=1)
    assert await teams.rule_set_version(database) == 2


async def test_a_rule_does_not_change_its_team(database: Database) -> None:
    one = a_rule()
    await put(database, *new(one))
    seen = await stored(database, one.rule_id)
    with pytest.raises(ValueError, match="that of another team"):
        await put(database, RuleChange(seen, replace(seen, team_id=HOME)))
    assert await teams.rule_set_version(database) == 2


async def test_of_many_who_change_the_same_rule_at_once_one_succeeds(database: Database) -> None:
    one = a_rule()
    await put(database, *new(one))
    seen = await stored(database, one.rule_id)
    writes = [put(database, RuleChange(seen, replace(seen, priority=n))) for n in range(8)]
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 7
    assert [outcome for outcome in outcomes if isinstance(outcome, int)] == [3]


@pytest.mark.slow
async def test_an_import_is_written_in_bulk(database: Database) -> None:
    many = [a_rule(sender=f"s{n}") for n in range(25_000)]
    assert await put(database, *new(*many)) == 2
    version, found = await rules.list_rules(database)
    assert version == 2
    assert found == by_id(*(replace(one, version=2) for one in many))
    assert await put(database, *(RuleChange(one, None) for one in found)) == 3
    assert await rules.list_rules(database) == (3, [])
    assert await rules.rules_at(database, 2) == found


async def test_lists_by_team_and_source_in_pages(database: Database) -> None:
    made = [a_rule(team, source=source) for team in (ROOT, HOME) for source in ("", "sop:a", "sop:b") for _ in range(3)]
    await put(database, *new(*made))
    everything = by_id(*(replace(one, version=2) for one in made))
    assert await rules.list_rules(database) == (2, everything)
    chosen: Sequence[tuple[TeamId | None, str | None]] = [(None, None), (HOME, None), (None, "sop:a"), (HOME, "sop:b")]
    for team, source in chosen:
        fits = [r for r in everything if team in (None, r.team_id) and source in (None, r.source)]
        assert (await rules.list_rules(database, team, source=source))[1] == fits
        _, page = await rules.list_rules(database, team, source=source, limit=2)
        _, rest = await rules.list_rules(database, team, source=source, after=page[-1].rule_id)
        assert (page, rest) == (fits[:2], fits[2:])
    assert (await rules.list_rules(database, source="sop:none"))[1] == []


async def test_many_rules_are_read_in_pieces_and_come_as_one_list(database: Database) -> None:
    made = [a_rule(team, sender=f"s{n}") for n in range(600) for team in (ROOT, HOME)]
    await put(database, *new(*made))
    everything = by_id(*(replace(one, version=2) for one in made))
    assert await rules.list_rules(database) == (2, everything)
    assert await rules.list_rules(database, HOME, limit=550) == (2, [r for r in everything if r.team_id == HOME][:550])
    await put(database, *(RuleChange(one, replace(one, priority=1)) for one in everything[::2]))
    assert await rules.rules_at(database, 2) == everything
    async with rules.open_rules_at(database, 2, [ROOT]) as pieces:
        sizes = [len(some) async for some in pieces]
    assert sum(sizes) == 600
    assert max(sizes) < 600


ORDERS: list[dict[str, Any]] = [
    {"priority": priority, "filters": filters, "channel": channel, "created_at": created_at, "active": active}
    for active in (True, False)
    for priority in (-1, 3)
    for filters in ({}, {"sender": "a"}, {"sender": "a", "thread": "b"}, {"telegram_chat_type": "group"})
    for channel in ("telegram", "*")
    for created_at in (datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC))
]


async def test_the_first_rules_of_teams_are_those_that_are_looked_at_first(database: Database) -> None:
    made = [replace(a_rule(team), **order, version=2) for order in ORDERS for team in (ROOT, ROOT, HOME)]
    await put(database, *new(*made))
    found = await teams.overview(database, len(made), CHANNELS.implies, teams.TeamFilter())
    assert (found.version, [team.team_id for team in found.teams]) == (2, sorted((ROOT, HOME)))
    for team in (ROOT, HOME):
        own = [one for one in made if one.team_id == team]
        off = [replace(one, active=True) for one in own if not one.active]
        order = [*in_order(own), *(replace(one, active=False) for one in in_order(off))]
        assert found.first[team] == order
        assert found.counts[team] == len(own)
        one = await teams.overview(database, 5, CHANNELS.implies, teams.TeamFilter(team))
        assert ([t.team_id for t in one.teams], one.first, one.counts) == ([team], {team: order[:5]}, {team: len(own)})
    assert (await teams.overview(database, 5, CHANNELS.implies, teams.TeamFilter(TeamId("nobody")))).teams == ()


async def test_the_rules_of_some_teams_are_read_as_of_one_version(database: Database) -> None:
    root, home = a_rule(), a_rule(HOME)
    await put(database, *new(root, home))
    here, there = await stored(database, root.rule_id), await stored(database, home.rule_id)
    assert await rules.rules_of(database, [ROOT, HOME]) == (2, [there, here])
    assert await rules.rules_of(database, [HOME]) == (2, [there])
    assert await rules.rules_of(database, []) == (2, [])


async def test_standing_procedures_are_listed_with_what_they_registered(database: Database) -> None:
    off = replace(a_rule(source="sop:b"), active=False)
    await put(database, *new(a_rule(), a_rule(HOME, source="sop:b"), off, a_rule(source="sop:a")))
    found = [(one.source, one.rules, one.active, sorted(one.teams)) for one in await rules.list_sops(database)]
    assert found == [("sop:a", 1, 1, [ROOT]), ("sop:b", 2, 1, [HOME, ROOT])]


async def test_the_rules_of_any_version_can_be_told(database: Database) -> None:
    told: dict[int, list[Rule]] = {0: [], 1: []}
    alive: dict[UUID, Rule] = {}
    made = [a_rule(team) for team in (ROOT, HOME, ROOT, HOME)]
    for n in range(12):
        one = made[n % 4]
        before = alive.get(one.rule_id)
        after = None if n % 5 == 4 and before else replace(before or one, priority=n)
        version = await put(database, RuleChange(before, after))
        if after is None:
            del alive[one.rule_id]
        else:
            alive[one.rule_id] = await stored(database, one.rule_id)
        told[version] = by_id(*alive.values())
    assert any(len(told[v]) < len(told[v - 1]) for v in told if v), "some were removed"
    for version, there in told.items():
        assert await rules.rules_at(database, version) == there
        for some in ([HOME], [ROOT, HOME], []):
            assert await rules.rules_at(database, version, some) == [one for one in there if one.team_id in some]
    for version in (99, -1):
        with pytest.raises(NotFound, match=f"no version {version}"):
            await rules.rules_at(database, version)


async def test_what_lies_between_two_versions_is_taken_together(database: Database) -> None:
    kept, passing = a_rule(), a_rule(HOME)
    await put(database, *new(kept))
    first = await stored(database, kept.rule_id)
    await put(database, RuleChange(first, replace(first, priority=1)), *new(passing))
    middle = await stored(database, kept.rule_id)
    await put(database, RuleChange(middle, replace(middle, priority=2)))
    await put(database, RuleChange(await stored(database, passing.rule_id), None))
    last = await stored(database, kept.rule_id)
    assert await rules.changes_between(database, 2, 5) == [RuleChange(first, last)]
    assert await rules.changes_between(database, 5, 2) == [RuleChange(last, first)]
    assert await rules.changes_between(database, 0, 2) == [RuleChange(None, first)]
    assert await rules.changes_between(database, 5, 5) == []
    with pytest.raises(NotFound, match="no version 6"):
        await rules.changes_between(database, 2, 6)


async def test_a_follower_is_told_what_changed_in_order(database: Database) -> None:
    one = a_rule()
    await put(database, *new(one))
    first = await stored(database, one.rule_id)
    await put(database, RuleChange(first, replace(first, priority=1)))
    second = await stored(database, one.rule_id)
    assert await rules.changes_since(database, 3) == Since(3, False, ())
    assert await rules.changes_since(database, 2) == Since(3, False, (RuleChange(first, second),))
    assert await rules.changes_since(database, 1) == Since(
        3, False, (RuleChange(None, first), RuleChange(first, second))
    )
    assert await rules.changes_since(database, 0) == Since(3, True, ()), "version 1 made teams"
    assert await rules.changes_since(database, 4) == Since(3, True, ()), "another database, or a restored one"


async def test_a_follower_reads_very_many_changes_in_pieces(database: Database) -> None:
    await put(database, *new(*(a_rule() for _ in range(501))))
    await put(database, *new(a_rule(HOME)))
    assert await rules.changes_since(database, 1) == Since(3, False, (), Many(502, frozenset({ROOT, HOME})))
    async with rules.open_changes(database, 1, 3) as pieces:
        told = [some async for some in pieces]
    assert max(map(len, told)) <= 500
    assert [change for some in told for change in some] == [
        *await rules.changes_of(database, 2),
        *await rules.changes_of(database, 3),
    ]


async def test_seeded_rules_have_a_history(database: Database) -> None:
    office = TeamId("office")
    made = replace(a_rule(office), updated_at=None)
    assert await teams.seed(database, [team_of(team_id=office)], [made, a_rule(HOME)], author="file", reason="seeded")
    [(version, change)] = await rules.history(database, made.rule_id)
    assert (version.version, version.author, version.teams, version.changes) == (2, "file", True, 1)
    assert change == RuleChange(None, await stored(database, made.rule_id))
    assert change.rule == replace(made, version=2, updated_at=made.created_at)


def decided(given: Envelope, facts: dict[str, str], *trail: TrailStep) -> Arrival:
    message = Message(RequestId(new_uuid7()), Conversation("c"), str(uuid4()), given, b"", "x", datetime.now(UTC))
    return Arrival(message, Decision(1, (), (Unrouted(ROOT, "no_route", "x", None),), trail, facts))


async def test_stored_messages_are_read_as_rules_saw_them(database: Database) -> None:
    asked, pinned = {"channel": "telegram", "sender": 'a "b" \u2028 é'}, (Target(system_id=SystemId("System1/echo")),)
    batch = [
        decided(envelope(), asked),
        decided(envelope(), asked, TrailStep(ROOT, "rule", targets=pinned)),
        decided(envelope(), {}, TrailStep(ROOT, "pin", targets=pinned)),
        decided(envelope(), asked, TrailStep(ROOT, "pin_unreachable", targets=pinned), TrailStep(ROOT, "no_route")),
    ]
    await inbox.accept(database, batch)
    await database.run("insert into decision select request_id, 2, 1, 1, '[]', now(), '{}' from decision")
    echo = SystemId("System1/echo")
    newest_first = [
        Case(arrival.message.request_id, arrival.decided.facts, pin)
        for arrival, pin in zip(reversed(batch), (echo, echo, None, None), strict=True)
    ]

    async def read(since: datetime | None, last: int | None, chunk: int) -> list[list[Case]]:
        return [some async for some in cases_since(database, since=since, last=last, chunk=chunk)]

    assert await read(None, None, 10) == [newest_first]
    assert await read(None, None, 3) == [newest_first[:3], newest_first[3:]]
    assert await read(None, 3, 2) == [newest_first[:2], newest_first[2:3]]
    assert await read(None, None, 2) == [newest_first[:2], newest_first[2:]]
    assert await read(None, 0, 2) == []
    for last, count in ((None, 4), (3, 3), (9, 4), (0, 0)):
        assert await count_cases(database, since=None, last=last) == count
    assert await count_cases(database, since=datetime.now(UTC) + timedelta(hours=1), last=None) == 0
    assert await read(batch[0].message.received_at - timedelta(seconds=1), None, 9) == [newest_first]
    assert await read(datetime.now(UTC) + timedelta(hours=1), None, 9) == []
    await database.run("update decision set facts = null where request_id = $1", batch[2].message.request_id)
    assert await read(None, 3, 9) == [[case for case in newest_first if case.request_id != batch[2].message.request_id]]
