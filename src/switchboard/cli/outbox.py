"""`switchboard outbox`: replies on their way. Called by `main.py`."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from switchboard.cli.client import ask, part
from switchboard.cli.output import AsJson, one_line, out, print_json, state, table, when

app = typer.Typer(help="Outgoing replies; send one again.", no_args_is_help=True)


@app.command("list")
def list_replies(
    *,
    only: Annotated[
        str | None, typer.Option("--state", help="Only this state: pending, sending, sent, uncertain, failed or dead.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List replies."""
    found = ask(lambda client: client.get("/v1/outbox", {"state": only, "limit": limit}))
    if as_json:
        print_json(found)
        return
    rows = (
        (
            r["outbox_id"],
            when(r["created_at"], short=True),
            f"{r['channel']}/{r['endpoint']}",
            state(r["state"]),
            one_line(r.get("error") or r["text"]),
        )
        for r in found["replies"]
    )
    out().print(table("id", "since", "account", "state", "text or error", rows=rows, keep=("id", "since", "state")))


@app.command("resend")
def resend(
    outbox_id: Annotated[UUID, typer.Argument(help="The reply's id.", metavar="ID")],
    *,
    as_json: AsJson = False,
) -> None:
    """Send a reply again that is uncertain, failed or dead: it goes to the end of its conversation's lane."""
    answer = ask(lambda client: client.post(f"/v1/outbox/{part(outbox_id)}/resend", {}))
    if as_json:
        print_json(answer)
    else:
        out().print(f"{outbox_id}: {answer['state']}")
