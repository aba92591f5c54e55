"""Measures how fast stored messages are decided again by other rules, beside the same decisions without a database.

Called by `switchboard bench backtest`. Messages are submitted to the API of a separate server, a thousand rules are
imported, and a backtest is requested over HTTP, as the command line does. The baseline is the pure comparison of the
same number of messages in this process.
"""

from __future__ import annotations

import json
import statistics
from datetime import UTC, datetime
from time import perf_counter
from typing import Final
from uuid import UUID

import aiohttp
from msgspec import Struct

from switchboard.bench import lab
from switchboard.core.routing.backtest import BacktestTally, Case
from switchboard.core.routing.index import RoutingIndex
from switchboard.domain.json_values import JsonObject
from switchboard.domain.routing import Member, Rule, SystemId, Target, Team, TeamId

MESSAGES: Final = 20_000
_BATCH: Final = 200
_CHATS: Final = 2000
_RULES: Final = 1000
_ROOT: Final = TeamId("root")
_ECHO: Final = SystemId("System1/echo")


class BacktestResult(Struct, frozen=True):
    """Messages per second, medians over the rounds; each message is decided twice: by the old and by the new rules."""

    one_rule: float
    """Proposed: one rule changed."""
    whole_file: float
    """Proposed: a file in which every rule is different."""
    pure: float
    """The same comparison without database, HTTP and JSON."""


async def measure(messages: int = MESSAGES, rounds: int = 3) -> BacktestResult:
    """Run it on a database of its own."""
    with lab.home() as place:
        async with (
            lab.switchboard(place, "serve") as server,
            aiohttp.ClientSession(server.url, headers=server.headers) as http,
        ):
            for n in range(messages // _BATCH):
                await lab.post(http, "/v1/ingest/batch", {"envelopes": lab.messages(_BATCH, _CHATS, f"m{n}")})
            await lab.post(http, "/v1/rules/import", {"document": _file(0), "reason": "to have many rules"})
            async with http.get("/v1/rules", params={"team_id": _ROOT, "limit": "1"}) as answer:
                first = (await answer.json())["rules"][0]["rule_id"]
            one = {"changes": [{"rule_id": first, "active": False}]}
            return BacktestResult(
                statistics.median([await _backtest(http, one, messages) for _ in range(rounds)]),
                statistics.median([await _backtest(http, {"document": _file(1)}, messages) for _ in range(rounds)]),
                statistics.median([_pure(messages) for _ in range(rounds)]),
            )


async def _backtest(http: aiohttp.ClientSession, proposal: JsonObject, messages: int) -> float:
    began = perf_counter()
    lines = (await lab.post(http, "/v1/rules/backtest", {"last": messages, **proposal})).splitlines()
    result = json.loads(lines[-1])["result"]
    return float(result["looked_at"]) / (perf_counter() - began)


def _file(shift: int) -> JsonObject:
    """A rule per chat; a different shift changes the priority of every rule."""
    targets = [{"system_id": _ECHO}]
    rules = [
        {
            "name": f"chat {n}",
            "channel": "api",
            "filters": {"thread": f"chat-{n}"},
            "priority": shift,
            "targets": targets,
        }
        for n in range(_RULES)
    ]
    everything = {"name": "everything", "channel": "*", "targets": targets}
    return {"format": "switchboard.rules.v1", "teams": {_ROOT: [*rules, everything]}}


def _pure(messages: int) -> float:
    team = Team(_ROOT, None, members=(Member(_ECHO, _ROOT, 1, "echo"),))
    now = datetime.now(UTC)
    before, after = (
        RoutingIndex(
            version,
            [team],
            (
                Rule(
                    *("", "api", {"thread": f"chat-{n}"}, (Target(_ECHO),), version),
                    rule_id=UUID(int=n),
                    team_id=_ROOT,
                    created_at=now,
                )
                for n in range(_RULES)
            ),
        )
        for version in (1, 2)
    )
    cases = [
        Case(UUID(int=n), {"channel": "api", "endpoint": "api:bench", "thread": f"chat-{n % _CHATS}"}, None)
        for n in range(messages)
    ]
    began = perf_counter()
    BacktestTally(before, after).add(cases)
    return messages / (perf_counter() - began)
