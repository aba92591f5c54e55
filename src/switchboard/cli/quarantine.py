"""`switchboard quarantine`: events of platforms that could not be made into messages. Called by `main.py`."""

from __future__ import annotations

from base64 import b64decode
from typing import Annotated

import typer
from rich.text import Text

from switchboard.cli.client import ask
from switchboard.cli.ids import ask_about
from switchboard.cli.output import Cursor, clean, details, one_line, show, show_page, table, when

app = typer.Typer(
    help="Events that could not be made into messages: list, show, replay or discard them.", no_args_is_help=True
)

QuarantineId = Annotated[str, typer.Argument(help="The event's id, or its first or last characters.", metavar="ID")]


@app.command("list")
def list_events(
    *,
    replay: Annotated[
        bool | None, typer.Option("--replay/--waiting", help="Only those to be replayed, or not.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")] = 100,
    cursor: Cursor = None,
) -> None:
    """List the events in quarantine, the newest first."""
    asked = {"limit": limit, "replay": replay}
    found = ask(lambda client: client.get("/v1/quarantine", {**asked, "cursor": cursor}))
    rows = (
        (
            e["quarantine_id"],
            when(e["at"], short=True),
            f"{e['channel']}/{e['endpoint']}",
            one_line(e["event_id"]),
            "replay" if e["replay"] else "waiting",
            one_line(e["reason"]),
        )
        for e in found["events"]
    )
    names = ("id", "since", "account", "event", "state", "reason")
    show_page(found, table(*names, rows=rows, keep=names[:3]), "quarantine list", **asked)


@app.command("show")
def show_event(quarantine_id: QuarantineId) -> None:
    """Show one event as the platform sent it, and why it could not be taken."""
    event = ask_about("event", quarantine_id, lambda client, found: client.get(f"/v1/quarantine/{found}"))
    names = ("quarantine_id", "channel", "endpoint", "event_id", "reason", "size_bytes", "replay")
    rows: list[tuple[str, object]] = [(name, event[name]) for name in names]
    raw = b64decode(event["raw"]).decode(errors="replace")
    show(event, details([*rows, ("at", when(event["at"]))]), Text("\n" + clean(raw)))


@app.command("replay")
def replay_event(quarantine_id: QuarantineId) -> None:
    """Let the connector of its account submit an event again."""
    answer = ask_about("event", quarantine_id, lambda client, one: client.post(f"/v1/quarantine/{one}/replay", {}))
    show(answer, f"{clean(answer['quarantine_id'])}: its connector will submit it again")


@app.command("discard")
def discard_event(quarantine_id: QuarantineId) -> None:
    """Remove an event from quarantine permanently."""
    answer = ask_about("event", quarantine_id, lambda client, found: client.delete(f"/v1/quarantine/{found}"))
    show(answer, f"{clean(answer['quarantine_id'])}: discarded")
