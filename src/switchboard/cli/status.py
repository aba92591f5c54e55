"""`switchboard status` and `switchboard conversations`: how it is, and who talks with whom. Called by `main.py`.

Next: `app/status.py`, `app/messages/conversations.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import typer
from rich.text import Text

from switchboard.cli.client import ask
from switchboard.cli.output import Cursor, Json, clean, one_line, show, show_page, state, table, when

app = typer.Typer(help="Conversations: list them, read one.", no_args_is_help=True)

_STYLES: Final = {"good": "green", "warning": "yellow", "bad": "red"}
_WHERE: Final = {
    "approvals": "approvals list",
    "questions": "approvals list",
    "strangers": "pairing list --state stranger",
    "dead_letters": "dlq list",
    "replies": "outbox list",
}
_MOST: Final = 1000

Limit = Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")]


def status() -> None:
    """How the installation is, and what waits for you."""
    found = ask(lambda client: client.get("/v1/status"))
    waiting = [one for one in found["needs"] if one["number"]]
    rows = (
        (
            f"more than {_MOST:,}" if one["number"] > _MOST else one["number"],
            one["kind"].replace("_", " "),
            when(one["oldest"], short=True),
            f"switchboard {_WHERE[one['kind']]}",
        )
        for one in waiting
    )
    sentence = Text(clean(found["sentence"]), style=_STYLES[found["health"]])
    if waiting:
        show(found, sentence, table("number", "what", "since", "see", rows=rows, keep=("number", "what")))
    else:
        show(found, sentence)


@app.command("list")
def list_conversations(*, limit: Limit = 50, cursor: Cursor = None) -> None:
    """List conversations, the last written in first."""
    found = ask(lambda client: client.get("/v1/conversations", {"limit": limit, "cursor": cursor}))
    rows = (
        (one["conversation"], state(one["state"]), when(one["received_at"], short=True), one["sender"], one["text"])
        for one in found["conversations"]
    )
    names = ("conversation", "state", "last", "sender", "text")
    show_page(found, table(*names, rows=rows, keep=names[:1]), "conversations list", limit=limit)


@app.command("show")
def show_conversation(
    conversation: Annotated[str, typer.Argument(help="Its name, as in `switchboard conversations list`.")],
    *,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> None:
    """Read a conversation, the oldest of the page first."""
    asked = {"conversation": conversation, "limit": limit, "cursor": cursor}
    found = ask(lambda client: client.get("/v1/conversations/entries", asked))
    lines = Text("\n").join(line for entry in reversed(found["entries"]) for line in _lines_of(entry))
    show_page(found, lines, f"conversations show {conversation}", limit=limit)


def _lines_of(entry: Json) -> Iterator[Text]:
    yield Text(f"{when(entry['received_at'], short=True)}  ", style="dim").append(one_line(entry["text"], 400))
    for reply in entry["replies"]:
        yield Text(f"  {clean(reply['system_id'])}: ", style="cyan").append(one_line(reply["text"], 400))
