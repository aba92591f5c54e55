"""`switchboard audit`: audit log of operator actions and refusals. Called by `main.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final
from uuid import UUID

import typer
from rich.text import Text

from switchboard.cli.client import ask
from switchboard.cli.output import Cursor, Json, details, one_line, show, show_page, table, when
from switchboard.domain.errors import InvalidInput, NotFound

app = typer.Typer(help="Refused requests and administrative actions.", no_args_is_help=True)

_BEGINNING: Final = re.compile(r"[0-9a-f]{4,32}")
_ID: Final = 36


@app.command("list")
def list_entries(
    *,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number, newest first.")] = 50,
    action: Annotated[str | None, typer.Option(help="Only this action, such as refused:rules_edit.")] = None,
    cursor: Cursor = None,
) -> None:
    """List the audit log of operator actions and refused requests, the newest first.

    Edits of rules are in `rules versions`.
    """
    asked = {"limit": limit, "action": action}
    found = ask(lambda client: client.get("/v1/audit", {**asked, "cursor": cursor}))
    rows = ((when(e["at"], short=True), e["actor"], e["action"], _detail_and_id(e)) for e in found["entries"])
    shown = table("at", "who", "what", "detail, id", rows=rows, keep=("at", "who", "what"), wrap=True, room=_ID)
    show_page(found, shown, "audit list", **asked)


@app.command("show")
def show_entry(
    entry_id: Annotated[str, typer.Argument(help="The entry's id, or the beginning of it.", metavar="ID")],
) -> None:
    """Show one entry in full."""
    digits = entry_id.replace("-", "").lower()
    if not _BEGINNING.fullmatch(digits):
        raise typer.BadParameter(f"{entry_id!r} is not an id; see `switchboard audit list`", param_hint="ID")
    # Entries with lower ids than the next one: the newest of these is the wanted one, if its id begins so.
    after = UUID(int=min(int(digits.ljust(32, "f"), 16) + 1, 2**128 - 1))
    entries = ask(lambda client: client.get("/v1/audit", {"limit": 2, "cursor": str(after)}))["entries"]
    found = [one for one in entries if str(one["audit_id"]).replace("-", "").startswith(digits)]
    if not found:
        raise NotFound(f"no entry of the audit log has an id that begins with {entry_id}; see `switchboard audit list`")
    if len(found) > 1:
        raise InvalidInput(f"{entry_id} is the beginning of several ids; give more of it", code="ambiguous_id")
    [entry] = found
    rows: list[tuple[str, object]] = [("id", entry["audit_id"]), ("at", when(entry["at"])), ("who", entry["actor"])]
    show(entry, details([*rows, ("what", entry["action"]), *entry["detail"].items()]))


def _detail_and_id(entry: Json) -> Text:
    told = _detail(entry["detail"])
    return Text(f"{told}  " if told else "").append(str(entry["audit_id"]), style="dim")


def _detail(detail: Mapping[str, object]) -> str:
    told = ((name, ", ".join(map(str, value)) if isinstance(value, list) else value) for name, value in detail.items())
    return one_line("  ".join(f"{name}={value}" for name, value in told if value not in (None, "")), 400)
