"""A tree of four teams in which rules are edited: sales and lab below the root, desk below sales; and ways to edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import httpx2

from switchboard.app.access import Principal
from switchboard.domain.routing import SystemNumber, Team, TeamId
from tests.routing import ROOT, butler, member, rule, team_of
from tests.servers import Opened, Tree

SALES, DESK, LAB, OLD = (TeamId(name) for name in ("sales", "desk", "lab", "old"))
BELOW: Mapping[TeamId, TeamId | None] = {ROOT: None, SALES: ROOT, DESK: SALES, LAB: ROOT, OLD: ROOT}


def team(team_id: TeamId, *, retired: tuple[SystemNumber, ...] = ()) -> Team:
    """A team with a butler of its name and all of Systems 2 to 5."""
    offices = (
        member(f"System{number}/{team_id}", active=number not in retired) for number in get_args(SystemNumber)[1:]
    )
    return team_of(butler(team_id), *offices, team_id=team_id, parent=BELOW[team_id])


def tree() -> Tree:
    """Fresh rules each time: every team sends everything of telegram to its butler, the root some of it downward."""
    teams = (team(ROOT), team(SALES), team(DESK), team(LAB), team(OLD, retired=(3,)))
    rules = [rule(f"System1/{one}", team=one, channel="telegram") for one in BELOW]
    rules += [rule("sales", channel="slack"), rule("desk", team=SALES, channel="slack")]
    return teams, tuple(rules)


def agent(number: int, team_id: str) -> Principal:
    """The token of a system."""
    return Principal("agent", f"system{number}-{team_id}", system_id=f"System{number}/{team_id}")


def new(team_id: str, **more: Any) -> dict[str, Any]:
    """A rule of a team to its own butler."""
    targets = [{"system_id": f"System1/{team_id}"}]
    return {"team_id": team_id, "name": "new", "channel": "email", "targets": targets, "reason": "a test", **more}


async def tool(
    server: Opened, name: str, arguments: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Mapping[str, Any]:
    """Call an MCP tool; the JSON-RPC answer."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    return await mcp(server, call, headers)


async def mcp(server: Opened, call: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    """One JSON-RPC request."""
    accept = {"accept": "application/json, text/event-stream", **(headers or {})}
    answer: Mapping[str, Any] = (await server.http.post("/mcp", json=call, headers=accept)).json()
    return answer


async def rules_of(server: Opened, team_id: str, **more: str) -> list[dict[str, Any]]:
    """The rules of a team, oldest first."""
    found = await server.http.get("/v1/rules", params={"team_id": team_id, **more})
    rules: list[dict[str, Any]] = found.json()["rules"]
    return rules


async def table(server: Opened) -> list[tuple[Any, ...]]:
    """Everything that is stored of rules and their versions."""
    rules = await server.lab.database.rows("select * from rule order by rule_id")
    versions = await server.lab.database.rows("select * from rule_set order by version")
    return [tuple(row) for row in (*rules, *versions)]


async def refusals(server: Opened) -> int:
    """How many refusals are on record."""
    return await server.lab.count("select count(*) from audit where action like 'refused:%'")


def error_of(answer: httpx2.Response) -> tuple[int, str]:
    """Status and code."""
    return answer.status_code, answer.json()["error"]["code"]
