"""What tests of dead letters need: teams, dead letters made in various ways, and a worker for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from switchboard.app.access import Access, Principal
from switchboard.app.dead_letters.requests import Reroute
from switchboard.app.dead_letters.service import DeadLetterService
from switchboard.app.rules.records import RuleRecords
from switchboard.app.rules.replays import Replays
from switchboard.app.rules.service import RuleService
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.domain.routing import Member, RuleChange, SystemId, Target, Team, TeamId
from switchboard.store.rules import versions as rules
from switchboard.store.rules.versions import Authorship
from tests.hands import Scripted, at_work, settled
from tests.lab import ROOT, Lab, butler, lab, rule, submission, to
from tests.waiting import eventually

SALES, STOCK = TeamId("sales"), TeamId("stock")
TEAMS = (
    Team(
        ROOT,
        None,
        members=(
            butler("echo"),
            butler("spare"),
            Member(SystemId("System3/root"), ROOT, 3, "echo"),
            Member(SystemId("System4/root"), ROOT, 4, "echo"),
        ),
    ),
    Team(SALES, ROOT, members=(butler("seller", team=SALES), Member(SystemId("System4/sales"), SALES, 4, "echo"))),
    Team(STOCK, SALES, members=(butler("keeper", team=STOCK),)),
)
RULES = (
    rule(ROOT, [to("System1/echo")], channel="telegram"),
    rule(ROOT, [to(team="sales")], channel="slack"),
    rule(STOCK, [to("System1/keeper")], channel="email"),
)
"""What comes by mail or by api is a dead letter of the root, by slack one of sales."""
OPERATOR = Principal("operator", "olga")
HANDLER = Principal("agent", "watch", system_id="System4/root")
SALES_HANDLER = Principal("agent", "sales watch", system_id="System4/sales")
WHY = Reroute("it belongs there")


def to_butler(name: str, **more: Any) -> Reroute:
    return Reroute("it belongs there", to(f"System1/{name}"), **more)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[Lab, DeadLetterService]]:
    async with lab(url, TEAMS, RULES) as parts:
        yield parts, service_of(parts)


def service_of(parts: Lab) -> DeadLetterService:
    runtime = Runtime(Settings(data_dir=Path("/nowhere")), parts.database, parts.notifier, parts.rule_book)
    access = Access(parts.database)
    return DeadLetterService(runtime, access, RuleService(runtime, access, RuleRecords(runtime), Replays(runtime)))


async def a_dead_letter(parts: Lab, *, channel: str = "email", **more: Any) -> UUID:
    """The dead letter of a message that nobody took."""
    accepted = await parts.accept.accept(submission(channel=channel, **more))
    dead_letter: UUID = await parts.database.value(
        "select dead_letter_id from dead_letter where request_id = $1", accepted.request_id
    )
    return dead_letter


async def request_of(parts: Lab, dead_letter: UUID) -> UUID:
    found: UUID = await parts.database.value(
        "select request_id from dead_letter where dead_letter_id = $1", dead_letter
    )
    return found


async def work_off(parts: Lab, engine: Scripted | None = None) -> None:
    """Until no lane of the workers has anything left to do."""
    async with at_work(parts.worker(None if engine is None else {"echo": engine})):
        await eventually(lambda: settled(parts))


@asynccontextmanager
async def held(url: str, dead_letter: UUID) -> AsyncIterator[None]:
    """Nobody else can change this dead letter."""
    holder = await asyncpg.connect(url, server_settings={"search_path": "switchboard"})
    try:
        async with holder.transaction():
            await holder.execute("select from dead_letter where dead_letter_id = $1 for update", dead_letter)
            yield
    finally:
        await holder.close()


async def cut_off(parts: Lab, query: str) -> None:
    """End the connection of a process that waits for a lock with this query."""
    here = "from pg_stat_activity where datname = current_database()"
    waiting = f"select pid {here} and wait_event_type = 'Lock' and query like $1"
    await eventually(lambda: parts.database.value(waiting, query))
    await parts.database.value("select pg_terminate_backend($1)", await parts.database.value(waiting, query))


async def add_rule(parts: Lab, team: TeamId, targets: Sequence[Target], channel: str, priority: int = 0) -> None:
    """A rule that another process wrote."""
    made = rule(team, targets, channel=channel, priority=priority)
    await rules.write(parts.database, [RuleChange(None, made)], by=Authorship("test", "more"))
    await parts.rule_book.refresh()
