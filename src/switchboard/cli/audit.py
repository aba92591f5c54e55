"""`switchboard audit`: audit log of operator actions and refusals. Called by `main.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from switchboard.cli.client import ask
from switchboard.cli.output import AsJson, more, one_line, out, print_json, table, when

app = typer.Typer(help="Refused requests and administrative actions.", no_args_is_help=True)


@app.command("list")
def list_entries(
    *,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number, newest first.")] = 50,
    action: Annotated[str | None, typer.Option(help="Only this action, such as refused:rules_edit.")] = None,
    cursor: Annotated[str | None, typer.Option(help="Continue after this point.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the audit log of operator actions and refused requests, the newest first.

    Edits of rules are in `rules versions`.
    """
    params = {"limit": limit, "action": action, "cursor": cursor}
    found = ask(lambda client: client.get("/v1/audit", params))
    if as_json:
        print_json(found)
        return
    rows = ((when(e["at"], short=True), e["actor"], e["action"], _detail(e["detail"])) for e in found["entries"])
    out().print(table("at", "who", "what", "detail", rows=rows, keep=("at", "who", "what"), wrap=True))
    if found.get("next_cursor"):
        again = more("audit list", cursor=found["next_cursor"], limit=limit, action=action)
        out().print(again, style="dim", soft_wrap=True)


def _detail(detail: Mapping[str, object]) -> str:
    told = ((name, ", ".join(map(str, value)) if isinstance(value, list) else value) for name, value in detail.items())
    return one_line("  ".join(f"{name}={value}" for name, value in told if value not in (None, "")), 400)
