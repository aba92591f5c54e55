"""`switchboard mcp`: MCP servers whose tools butlers use, and acceptance of tools that change. Called by `main.py`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from rich.console import RenderableType

from switchboard.cli.client import ask
from switchboard.cli.output import FAILED, Json, clean, exit_unless_ok, out, show, state, table, when

app = typer.Typer(help="MCP servers: which tools they have; accept what changes.", no_args_is_help=True)

Server = Annotated[str, typer.Argument(help="The server's name in the settings.", metavar="SERVER")]
_WAITING: Final = frozenset({"new", "changed"})


@app.command("list")
def list_servers() -> None:
    """List MCP servers as workers found them last, and how many of their tools wait to be accepted."""
    found = ask(lambda client: client.get("/v1/mcp-servers"))
    rows = (
        (
            s["server"],
            "not started yet" if s["at"] is None else when(s["at"], short=True),
            s["tools"],
            s["waiting"],
            s["why"] or "",
        )
        for s in found["servers"]
    )
    names = ("server", "last seen", "tools", "waiting", "problem")
    show(found, table(*names, rows=rows, keep=names[:4]))


@app.command("show")
def show_server(server: Server) -> None:
    """Show the tools of a server; of those that wait, what was accepted and what the server says now."""
    found = _tools(server)
    show(found, lambda _: _print(found["tools"]))


def _choose_tools(server: str, tools: Sequence[str]) -> list[Json]:
    """The waiting tools with these names, by default all. Raises BadParameter for any other."""
    waiting = {one["tool"]: one for one in _tools(server)["tools"] if one["state"] in _WAITING}
    if unknown := [name for name in tools if name not in waiting]:
        there = ", ".join(map(clean, waiting)) or "none"
        raise typer.BadParameter(f"{clean(unknown[0])} does not wait; there are: {there}", param_hint="TOOL")
    return [waiting[name] for name in tools or waiting]


@app.command("accept")
def accept(
    server: Server,
    tools: Annotated[
        list[str] | None, typer.Argument(help="The tools; without any, all that wait.", metavar="TOOL")
    ] = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not show and ask.")] = False,
) -> None:
    """Accept tools that are new or have changed, as the server lists them now, so that they may be used."""
    chosen = _choose_tools(server, tools or ())
    if chosen and not yes:
        _confirm(chosen)
    marks = {one["tool"]: one["seen_mark"] for one in chosen}
    nothing: Json = {"server": server, "accepted": 0}
    answer = ask(lambda client: client.post(f"/v1/mcp-servers/{server}/accept", {"tools": marks})) if marks else nothing
    show(answer, f"{clean(server)}: {answer['accepted']} accepted")


def _confirm(chosen: list[Json]) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter(
            "not a terminal: look with `switchboard mcp show`, then pass --yes", param_hint="--yes"
        )
    _print(chosen)
    if not typer.confirm("Accept?", err=True):
        exit_unless_ok(FAILED)


def _tools(server: str) -> Json:
    return ask(lambda client: client.get(f"/v1/mcp-servers/{server}"))


def _print(tools: list[Json]) -> None:
    out().print(_table(tools))
    for one in tools:
        if one["left_out"]:
            out().print(clean(f"{one['tool']} is not offered: {one['left_out']}"), soft_wrap=True)
    for one in (one for one in tools if one["state"] in _WAITING):
        for name in ("accepted", "seen"):
            if one[name] is not None:
                out().print(clean(f"{one['tool']}, {name}: {_words(one[name])}"), soft_wrap=True)


def _table(tools: list[Json]) -> RenderableType:
    rows = (
        (one["tool"], state(one["state"]), one["name"], one["effect"], one["risk"], one["accepted_by"] or "")
        for one in tools
    )
    names = ("tool", "state", "name", "effect", "risk", "accepted by")
    return table(*names, rows=rows, keep=names[:3])


def _words(said: Json) -> str:
    """A server's description of a tool, as JSON: invisible characters are escaped."""
    return json.dumps({"description": said["description"], "parameters": said["parameters"]})
