"""`switchboard outbox`: replies on their way. Called by `main.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from switchboard.cli.client import Client, ask
from switchboard.cli.ids import ask_about
from switchboard.cli.messages.talk import describe_file
from switchboard.cli.output import Cursor, Json, clean, details, one_line, show, show_page, state, table, when
from switchboard.cli.saving import save_file
from switchboard.core.files.reply_files import reply_name
from switchboard.domain.ledger import OutboxState

app = typer.Typer(help="Outgoing replies: list them, show one, save its files, or send it again.", no_args_is_help=True)

OutboxId = Annotated[str, typer.Argument(help="The reply's id, or its first or last characters.", metavar="ID")]


@app.command("list")
def list_replies(
    *,
    only: Annotated[OutboxState | None, typer.Option("--state", help="Only replies in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")] = 100,
    cursor: Cursor = None,
) -> None:
    """List replies, the newest first."""
    asked = {"limit": limit, "state": only}
    found = ask(lambda client: client.get("/v1/outbox", {**asked, "cursor": cursor}))
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
    names = ("id", "since", "state", "account", "text or error")
    show_page(found, table(*names, rows=rows, keep=names[:3]), "outbox list", **asked)


@app.command("show")
def show_reply(outbox_id: OutboxId) -> None:
    """Show one reply with its text and every attempt to send it."""
    reply = ask_about("reply", outbox_id, lambda client, found: client.get(f"/v1/outbox/{found}"))
    names = ("outbox_id", "request_id", "conversation", "system_id", "channel", "endpoint", "thread", "recipient")
    rows: list[tuple[str, object]] = [("state", state(reply["state"]))]
    rows += [(name, reply[name]) for name in (*names, "reply_to", "platform_message_id", "error")]
    rows += [("created", when(reply["created_at"])), ("settled", when(reply["settled_at"]))]
    rows += [("attempt", _attempt(one)) for one in reply["receipts"]]
    rows += [("part", _part(one)) for one in reply["parts"]]
    rows += [("file", describe_file(one)) for one in reply.get("files", ())]
    show(reply, details(rows), Text("\n" + clean(reply["text"])))


def _attempt(receipt: Json) -> str:
    return f"{when(receipt['at'])}  {receipt['outcome']}  {one_line(receipt['error'] or '')}".rstrip()


def _part(part: Json) -> str:
    said = part["platform_message_id"] or part["error"] or ""
    return f"{part['part'] + 1} of {part['of']}  {part['state']}  {one_line(said)}".rstrip()


@app.command("save")
def save(
    outbox_id: OutboxId,
    *,
    to: Annotated[
        Path,
        typer.Option("--to", help="The directory; by default this one.", metavar="DIRECTORY", file_okay=False),
    ] = Path(),
) -> None:
    """Save the files of a reply. One whose name is taken already gets a number before it; nothing is replaced."""
    files = ask_about("reply", outbox_id, lambda client, found: _save(client, str(found), to))
    show({"saved": [str(one) for one in files]}, "\n".join(map(str, files)) or "the reply has no files")


async def _save(client: Client, outbox_id: str, to: Path) -> list[Path]:
    reply = await client.get(f"/v1/outbox/{outbox_id}")
    names = [reply_name(one["filename"]) for one in reply.get("files", ())]
    return [
        await save_file(client.download(f"/v1/outbox/{outbox_id}/files/{n}"), to, name) for n, name in enumerate(names)
    ]


@app.command("resend")
def resend(
    outbox_id: OutboxId,
    *,
    reason: Annotated[str | None, typer.Option(help="The reason; it is recorded.", metavar="TEXT")] = None,
) -> None:
    """Send a reply again that is uncertain, failed or dead: it goes to the end of its conversation's lane."""
    body = {} if reason is None else {"reason": reason}
    answer = ask_about("reply", outbox_id, lambda client, found: client.post(f"/v1/outbox/{found}/resend", body))
    show(answer, f"{outbox_id}: {answer['state']}")
