"""`switchboard connectors`: which endpoints are served, and by what. Called by `main.py`."""

from __future__ import annotations

from typing import Annotated

import typer

from switchboard.cli.client import ask
from switchboard.cli.output import Json, details, one_line, one_of, show, state, table, when

app = typer.Typer(help="Connectors, as they last reported themselves.", no_args_is_help=False)


@app.callback(invoke_without_command=True)
def connectors(context: typer.Context) -> None:
    """List the connectors, unless a command follows."""
    if context.invoked_subcommand is None:
        list_connectors()


@app.command("list")
def list_connectors() -> None:
    """List every process that serves an account or stands by, as it last reported itself."""
    found = ask(lambda client: client.whole("/v1/connectors", "connectors"))
    rows = (
        (
            _account(c),
            state(c["liveness"]),
            state(c["state"]),
            when(c["last_seen_at"], short=True),
            _version_and_error(c),
        )
        for c in found["connectors"]
    )
    names = ("account", "connector", "reports", "last seen", "version, error")
    show(found, table(*names, rows=rows, keep=names[:4]))


@app.command("show")
def show_connector(
    account: Annotated[str, typer.Argument(help="Channel and endpoint, such as telegram/bot:house.")],
) -> None:
    """Show one connector with its counters."""
    listed = ask(lambda client: client.whole("/v1/connectors", "connectors"))["connectors"]
    listed.sort(key=lambda one: (one["serving"], one["last_seen_at"]))  # of several processes, the last one is shown
    found = one_of([{**one, "account": _account(one)} for one in listed], "account", account, "connector for")
    times = {"since": "since", "first_seen_at": "first seen", "last_seen_at": "last seen"}
    names = ("account", "liveness", "state", "instance_id", "version", "error_message", "lag_s")
    rows: list[tuple[str, object]] = [(name.replace("_", " "), found[name]) for name in names]
    rows += [(name, when(found[key])) for key, name in times.items()]
    show(found, details([*rows, *sorted(found["counters"].items())]))


def _account(connector: Json) -> str:
    return f"{connector['channel']}/{connector['endpoint']}"


def _version_and_error(connector: Json) -> str:
    return one_line("  ".join(str(connector[name]) for name in ("version", "error_message") if connector[name]))
