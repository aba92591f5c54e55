"""`switchboard outbox`: replies on their way. Called by `main.py`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from switchboard.cli.client import ask
from switchboard.cli.ids import ask_about
from switchboard.cli.output import (
    AsJson,
    Cursor,
    Json,
    clean,
    details,
    more,
    one_line,
    out,
    print_json,
    state,
    table,
    when,
)

app = typer.Typer(help="Outgoing replies: list them, show one, or send it again.", no_args_is_help=True)

OutboxId = Annotated[str, typer.Argument(help="The reply's id, or the beginning of it.", metavar="ID")]


@app.command("list")
def list_replies(
    *,
    only: Annotated[
        str | None, typer.Option("--state", help="Only this state: pending, sending, sent, uncertain, failed or dead.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")] = 100,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List replies, the newest first."""
    found = ask(lambda client: client.get("/v1/outbox", {"state": only, "limit": limit, "cursor": cursor}))
    if as_json:
        print_json(found)
        return
    rows = (
        (
            r["outbox_id"],
            when(r["created_at"], short=True),
            state(r["state"]),
            f"{r['channel']}/{r['endpoint']}",
            one_line(r.get("error") or r["text"]),
        )
        for r in found["replies"]
    )
    out().print(table("id", "since", "state", "account", "text or error", rows=rows, keep=("id", "since", "state")))
    if found["next_cursor"]:
        again = more("outbox list", cursor=found["next_cursor"], limit=limit, state=only)
        out().print(again, style="dim", soft_wrap=True)


@app.command("show")
def show_reply(outbox_id: OutboxId, *, as_json: AsJson = False) -> None:
    """Show one reply with its text and every attempt to send it."""
    reply = ask_about("reply", outbox_id, lambda client, found: client.get(f"/v1/outbox/{found}"))
    if as_json:
        print_json(reply)
        return
    names = ("outbox_id", "request_id", "conversation", "system_id", "channel", "endpoint", "thread", "recipient")
    rows: list[tuple[str, object]] = [("state", state(reply["state"]))]
    rows += [(name, reply[name]) for name in (*names, "reply_to", "platform_message_id", "error")]
    rows += [("created", when(reply["created_at"])), ("settled", when(reply["settled_at"]))]
    rows += [("attempt", _attempt(one)) for one in reply["receipts"]]
    out().print(details(rows))
    out().print(Text("\n" + clean(reply["text"])))


def _attempt(receipt: Json) -> str:
    return f"{when(receipt['at'])}  {receipt['outcome']}  {one_line(receipt['error'] or '')}".rstrip()


@app.command("resend")
def resend(outbox_id: OutboxId, *, as_json: AsJson = False) -> None:
    """Send a reply again that is uncertain, failed or dead: it goes to the end of its conversation's lane."""
    answer = ask_about("reply", outbox_id, lambda client, found: client.post(f"/v1/outbox/{found}/resend", {}))
    if as_json:
        print_json(answer)
    else:
        out().print(f"{outbox_id}: {answer['state']}")
