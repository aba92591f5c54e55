"""`switchboard lanes`: waiting, running, parked and paused work, in order. Called by `main.py`."""

from __future__ import annotations

from typing import Annotated

import typer

from switchboard.cli.client import ask
from switchboard.cli.output import clean, details, one_of, show, state, table, when

app = typer.Typer(help="Lanes that are waiting, running or paused; resume one.", no_args_is_help=True)

Lane = Annotated[str, typer.Argument(help="The lane's key, as `lanes list` shows it.")]


@app.command("list")
def list_lanes() -> None:
    """List the lanes that are not idle or have parked items, the longest waiting first."""
    found = ask(lambda client: client.whole("/v1/lanes", "lanes"))
    rows = (
        (x["lane"], state(x["state"]), x["waiting"], x["parked"], x["attempts"], when(x["ready_at"], short=True))
        for x in found["lanes"]
    )
    names = ("lane", "state", "waiting", "parked", "attempts", "due")
    show(found, table(*names, rows=rows, keep=("lane", "state", "due")))


@app.command("show")
def show_lane(lane: Lane) -> None:
    """Show one of the lanes that `lanes list` shows."""
    found = one_of(ask(lambda client: client.whole("/v1/lanes", "lanes"))["lanes"], "lane", lane, "busy lane")
    times = {"ready_at", "lease_until"}
    rows = ((name.replace("_", " "), when(value) if name in times else value) for name, value in found.items())
    show(found, details(rows))


@app.command("resume")
def resume(lane: Lane) -> None:
    """Resume a paused lane with its next item."""
    answer = ask(lambda client: client.post("/v1/lanes/resume", {"lane": lane}))
    show(answer, f"{clean(lane)} is resumed")
