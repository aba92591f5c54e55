"""`switchboard setup`: how far the first run is, and skipping what is not wanted. Called by `main.py`.

Next: `app/setup/first_run.py`. Settings are written by `switchboard init`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import typer

from switchboard.cli.client import ask
from switchboard.cli.output import show, state, table
from switchboard.cli.rules.options import reason_for

app = typer.Typer(help="The first run: see how far it is, skip a step.", no_args_is_help=True)

Card = Annotated[
    Literal["say", "model", "channel", "keep", "all"], typer.Argument(help="The step, or `all`.", metavar="STEP")
]
_WHAT: Final = {
    "say": "somebody was answered",
    "model": "a butler has a model: `switchboard init`",
    "channel": "a channel is connected: `switchboard channels add`",
    "keep": "it starts with the machine, and is backed up: `switchboard service install`, `switchboard backup`",
}


@app.command("show")
def show_setup() -> None:
    """Show which steps are done, and what completes them."""
    found = ask(lambda client: client.get("/v1/setup"))
    rows = ((card, state(found["cards"][card]), _WHAT[card]) for card in _WHAT)
    show(found, table("step", "state", "done when", rows=rows, keep=("step", "state")))


@app.command("skip")
def skip_step(
    card: Card,
    *,
    reason: Annotated[str | None, typer.Option(help="The reason, required; it is recorded.", metavar="TEXT")] = None,
) -> None:
    """Skip a step, or all that are left: the page then no longer begins with them."""
    change = {"card": "welcome" if card == "all" else card, "state": "skipped", "reason": reason_for(reason)}
    show(ask(lambda client: client.post("/v1/setup/cards", change)), f"skipped: {card}")
