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
from switchboard.domain.routing import RuleChange, Target, TeamId
from switchboard.store.rules import versions as rules
from switchboard.store.rules.versions import Authorship
from tests.hands import Scripted, at_work, settled
from tests.lab import Lab, butler, lab, rule, submission, team_of, to
from tests.waiting import eventually

SALES, STOCK = TeamId("sales"), TeamId("stock")
TEAMS = (
    team_of(butler("echo"), butler("spare"), "System3/root", "System4/root"),
    team_of(butler("seller"), "System4/sales", team_id=SALES),
    team_of(butler("keeper"), team_id=STOCK, parent=SALES),
)
RULES = (
    rule("System1/echo", channel="telegram"),
    rule("sales", channel="slack"),
    rule("System1/keeper", team=STOCK, channel="email"),
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
    made = rule(*targets, team=team, channel=channel, priority=priority)
    await rules.write(parts.database, [RuleChange(None, made)], by=Authorship("test", "more"))
    await parts.rule_book.refresh()
