"""Measures how long it takes until an edited rule decides in other processes, under load; detects torn decisions.

Called by `switchboard bench propagation`, and by a test that asserts everything but the times. This process edits, and
two servers, in separate processes, decide. Every edit changes three rules together in one version, and a message
passes two of them, so that half an edit would be noticed. Every decision is recomputed from the history and compared.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Final
from uuid import UUID

import aiohttp
from msgspec import Struct
from msgspec.structs import replace

from switchboard.bench import lab
from switchboard.core.routing.decide import decide
from switchboard.core.routing.index import RoutingIndex
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.json_values import JsonObject
from switchboard.domain.routing import Rule, RuleChange, SystemId, Target, TeamId
from switchboard.lanes.notifier import RULES, Notifier
from switchboard.store.books import audit_books
from switchboard.store.database import Database, from_json, to_json
from switchboard.store.rules import versions as store
from switchboard.store.rules.teams import open_rules, rule_set_version
from switchboard.store.rules.versions import Authorship

_SUB_TEAMS: Final = ("left", "right")
_BY: Final = Authorship("bench", "to see how fast it gets about")
_KEYS: Final = 500
_VERSION: Final = "select version from decision where request_id = $1"
_DECIDED: Final = """
select d.request_id, d.version, d.trail, d.facts,
       array(select v.system_id from delivery v where v.request_id = d.request_id order by v.system_id) as butlers
from decision d
"""


class PropagationResult(Struct, frozen=True):
    """`waits_ms`: from the commit of each edit to the first answer decided by it or a later one, per server, sorted."""

    edits: int
    messages: int
    waits_ms: tuple[float, ...]
    lost: int
    """Messages that were acknowledged but are not stored."""
    torn: int
    """Messages that did not go where the rules of their version say."""
    versions: int
    """The number of versions that decided messages."""

    def percentile(self, percent: int) -> float:
        """A percentile of the waits, in milliseconds."""
        return lab.percentile(self.waits_ms, percent)


class PropagationWorkload(Struct, frozen=True):
    """Duration and rates. `ring`: whether the servers are notified of each edit; otherwise they must poll."""

    seconds: float = 10.0
    edits_per_s: int = 10
    messages_per_s: int = 500
    ring: bool = True


class _Answer(Struct, frozen=True):
    server: int
    at: float
    request_id: UUID


@dataclass(slots=True)
class _Log:
    """Observations, by the clock of this process."""

    committed: dict[int, float] = field(default_factory=dict)
    answers: list[_Answer] = field(default_factory=list)


async def measure(plan: PropagationWorkload) -> PropagationResult:
    """Run it on a separate database, with two servers."""
    async with AsyncExitStack() as stack:
        place = stack.enter_context(lab.home())
        _write_teams(place / "teams")
        servers = [await stack.enter_async_context(lab.switchboard(place, "serve")) for _ in range(2)]
        database = await stack.enter_async_context(lab.database(place, 4))
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64)))
        log = _Log()
        await _send(http, servers, round(plan.messages_per_s * 0.5), plan.messages_per_s)  # warms up
        async with asyncio.TaskGroup() as both:
            both.create_task(_edit(database, plan, log))
            count = round(plan.messages_per_s * plan.seconds)
            sending = both.create_task(_send(http, servers, count, plan.messages_per_s))
        log.answers += sending.result()
        for server in range(len(servers)):
            log.answers += await _send_until_seen(database, http, servers, server)
        return await _judge(database, log)


def _write_teams(directory: Path) -> None:
    """A root that leads to one of two teams, each with two butlers."""
    root: JsonObject = {
        "team": {"name": "root"},
        "systems": [{"name": "root", "type": "intelligence", "engine": "echo"}],
        "routing_rules": [{"name": "edit 0", "channel": "api", "targets": [{"team_id": _SUB_TEAMS[0]}]}],
    }
    below: list[JsonObject] = [
        {
            "team": {"name": team, "parent": "root"},
            "systems": [{"name": f"{team}-{n}", "type": "operation", "engine": "echo"} for n in range(2)],
            "routing_rules": [{"name": "edit 0", "channel": "*", "targets": [{"system_id": f"System1/{team}-0"}]}],
        }
        for team in _SUB_TEAMS
    ]
    for team in (root, *below):
        (directory / f"{team['team']['name']}.json").write_text(json.dumps(team), encoding="utf-8")


def _edit_rule(rule: Rule, n: int) -> Rule:
    """The rule after the `n`-th edit, with a new name and a different target."""
    if rule.team_id in _SUB_TEAMS:
        target = Target(system_id=SystemId(f"System1/{rule.team_id}-{n // 2 % 2}"))
    else:
        target = Target(team_id=TeamId(_SUB_TEAMS[n % 2]))
    return replace(rule, name=f"edit {n}", targets=(target,))


async def _edit(database: Database, plan: PropagationWorkload, log: _Log) -> None:
    notifier = Notifier(database)
    _, rules = await store.list_rules(database)
    began = perf_counter()
    for n in range(1, round(plan.seconds * plan.edits_per_s) + 1):
        await asyncio.sleep(max(0.0, began + n / plan.edits_per_s - perf_counter()))
        edited = [_edit_rule(rule, n) for rule in rules]
        changes = [RuleChange(*pair) for pair in zip(rules, edited, strict=True)]
        version, _ = await store.write(database, changes, by=_BY)
        log.committed[version] = perf_counter()
        rules = [replace(rule, version=version) for rule in edited]
        if plan.ring:
            notifier.notify(RULES)


async def _send(
    http: aiohttp.ClientSession, servers: Sequence[lab.ReadyProcess], count: int, per_second: int
) -> list[_Answer]:
    """Post at a steady rate to the servers in turn, without waiting for answers."""
    messages = lab.messages(count, _KEYS, f"p{perf_counter()}")
    posts: list[asyncio.Task[_Answer]] = []
    async with asyncio.TaskGroup() as group:
        async for n in lab.steadily(count, per_second):
            posts.append(group.create_task(_post(http, servers, n % len(servers), messages[n])))
    return [post.result() for post in posts]


async def _send_until_seen(
    database: Database, http: aiohttp.ClientSession, servers: Sequence[lab.ReadyProcess], server: int
) -> list[_Answer]:
    """Post to one server until it decides by the newest version, so that the last edit also gets a wait."""
    newest, answers = await rule_set_version(database), list[_Answer]()
    async with asyncio.timeout(60):
        while True:
            [message] = lab.messages(1, 1, f"p{perf_counter()}")
            answers.append(await _post(http, servers, server, message))
            if await database.value(_VERSION, answers[-1].request_id) == newest:
                return answers
            await asyncio.sleep(0.01)


async def _post(
    http: aiohttp.ClientSession, servers: Sequence[lab.ReadyProcess], server: int, message: JsonObject
) -> _Answer:
    to = servers[server]
    async with http.post(f"{to.url}/v1/ingest", json=message, headers=to.headers) as response:
        answer = await response.json()
        response.raise_for_status()
    return _Answer(server, perf_counter(), UUID(answer["request_id"]))


async def _judge(database: Database, log: _Log) -> PropagationResult:
    rows = {row["request_id"]: row for row in await database.rows(_DECIDED)}
    async with open_rules(database) as stored:
        teams = stored.teams
    indexes: dict[int, RoutingIndex] = {}
    torn = 0
    for row in rows.values():
        version = row["version"]
        if version not in indexes:
            indexes[version] = RoutingIndex(version, teams, await store.rules_at(database, version))
        torn += (row["trail"], row["butlers"]) != _by_rules(indexes[version], row["facts"])
    books = await audit_books(database)
    if books.problems or not books.balanced:
        raise ConfigurationError(f"the books do not balance: {books}")
    kept = [answer for answer in log.answers if answer.request_id in rows]
    waits = _waits(log.committed, [(answer.server, rows[answer.request_id]["version"], answer.at) for answer in kept])
    return PropagationResult(
        len(log.committed),
        len(log.answers),
        tuple(sorted(waits)),
        lost=len(log.answers) - len(kept),
        torn=torn,
        versions=len(indexes),
    )


def _by_rules(index: RoutingIndex, facts: Mapping[str, str]) -> tuple[object, list[SystemId]]:
    expected = decide(index, facts)
    return from_json(to_json(expected.trail)), sorted(chosen.system_id for chosen in expected.chosen)


def _waits(committed: dict[int, float], seen: Sequence[tuple[int, int, float]]) -> list[float]:
    """Milliseconds per server and version from its commit to the first answer by it or a later one; or infinity."""
    waits: list[float] = []
    for server in {server for server, _, _ in seen}:
        answers = sorted((version, at) for by, version, at in seen if by == server)
        first = float("inf")
        for version in sorted(committed, reverse=True):
            while answers and answers[-1][0] >= version:
                first = min(first, answers.pop()[1])
            waits.append(max(0.0, first - committed[version]) * 1000)
    return waits
