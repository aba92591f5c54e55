"""`switchboard agents`: all agents and how much each has done, and orders about remote butlers.

Called by `main.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from switchboard.cli.client import ask
from switchboard.cli.names import butler
from switchboard.cli.output import Json, clean, details, one_line, one_of, show, state, table, when

app = typer.Typer(help="Agents: how much each has done; the state of remote butlers.", no_args_is_help=True)

System = Annotated[str, typer.Argument(help="The butler, such as health or System1/health.")]
Reason = Annotated[str, typer.Option(help="The reason; it is shown, and recorded in the audit trail.")]


@app.command("list")
def list_agents() -> None:
    """List all agents: their engines, how much they have done, and whether the remote ones are available."""
    found = ask(lambda client: client.whole("/v1/agents", "agents"))
    heads = ("agent", "team", "engine", "answered", "dead", "in flight", "alive", "last seen", "description")
    show(found, table(*heads, rows=map(_row, found["agents"]), keep=("agent",)))


@app.command("show")
def show_agent(system: System) -> None:
    """Show one agent."""
    agents = ask(lambda client: client.whole("/v1/agents", "agents"))["agents"]
    agent = one_of(agents, "system_id", butler(system), "agent")
    show(agent, details(_agent_details(agent)))


def _agent_details(agent: Json) -> Iterator[tuple[str, object]]:
    names = ("system_id", "team_id", "engine", "description", "capabilities", "active", "answered", "dead", "in_flight")
    for name in (*names, "liveness", "why", "endpoint"):
        value = agent.get(name)
        yield name.replace("_", " "), ", ".join(map(str, value)) if isinstance(value, list) else value
    yield "last seen", when(agent.get("last_seen_at"))


def _row(agent: Json) -> list[object]:
    columns = ("system_id", "team_id", "engine", "answered", "dead", "in_flight")
    alive, seen = agent.get("liveness"), agent.get("last_seen_at")
    why = f"({one_line(agent['why'])}) " if agent.get("why") else ""
    return [
        *(agent.get(name) for name in columns),
        "" if alive in {None, "unwatched"} else state(str(alive)),
        when(seen, short=True) if seen else "",
        why + one_line(agent["description"]),
    ]


@app.command("quarantine")
def quarantine(system: System, *, reason: Reason) -> None:
    """Take a remote butler out of service: no model chooses it, and what rules send it becomes a dead letter."""
    _change("quarantine", {"system_id": system, "reason": reason})


@app.command("release")
def release(system: System, *, reason: Reason = "released") -> None:
    """Return a remote butler to service."""
    _change("release", {"system_id": system, "reason": reason})


@app.command("endpoint")
def endpoint(
    system: System,
    url: Annotated[str | None, typer.Argument(help="The new URL; if omitted, the one in its team file.")] = None,
    *,
    reason: Reason,
) -> None:
    """Override the URL of a remote butler in its team file; without URL, remove the override."""
    _change("endpoint", {"system_id": system, "endpoint": url, "reason": reason})


def _change(what: str, body: Mapping[str, object]) -> None:
    named = {**body, "system_id": butler(str(body["system_id"]))}
    standing = ask(lambda client: client.post(f"/v1/agents/{what}", named))
    seen = when(standing["last_seen_at"]) if standing["last_seen_at"] else "never"
    place = clean(standing["endpoint"] or "no endpoint yet")
    why = f" ({clean(standing['why'])})" if standing["why"] else ""
    line = f"{clean(standing['system_id'])} is {standing['liveness']}{why}; last seen {seen}; called at {place}"
    show(standing, line)
