"""`switchboard dlq`: dead letters, whole, and why they are dead. Called by `main.py`."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer
from rich.text import Text

from switchboard.cli.client import ask, part
from switchboard.cli.output import AsJson, Json, clean, more, one_line, out, print_json, state, table, when

app = typer.Typer(help="Dead letters: what nobody could take, and why.", no_args_is_help=True)


@app.command("list")
def list_letters(
    *,
    team: Annotated[str | None, typer.Option(help="Only of this team.")] = None,
    status: Annotated[str | None, typer.Option(help="Only these: pending or handled.")] = None,
    category: Annotated[str | None, typer.Option(help="Only of this category, such as no_route.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most so many.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on after this point.")] = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters."""
    params = {"team_id": team, "status": status, "category": category, "limit": limit, "cursor": cursor}
    page = ask(lambda client: client.get("/v1/dead-letters", params))
    if as_json:
        print_json(page)
        return
    rows = (
        (
            x["dead_letter_id"],
            when(x["created_at"], short=True),
            x["team_id"],
            state(x["status"]),
            x["category"],
            one_line(x["reason"]),
        )
        for x in page["dead_letters"]
    )
    out().print(table("id", "since", "team", "status", "category", "reason", rows=rows, keep=("id", "since", "status")))
    if page.get("next_cursor"):
        again = more("dlq list", cursor=page["next_cursor"], limit=limit, team=team, status=status, category=category)
        out().print(again, style="dim", soft_wrap=True)


@app.command("show")
def show_letter(
    dead_letter_id: Annotated[UUID, typer.Argument(help="The dead letter's id.", metavar="ID")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter with its message and who was told of it."""
    letter = ask(lambda client: client.get(f"/v1/dead-letters/{part(dead_letter_id)}"))
    if as_json:
        print_json(letter)
    else:
        _show(letter)


def _show(letter: Json) -> None:
    names = (
        "dead_letter_id",
        "request_id",
        "status",
        "team_id",
        "category",
        "reason",
        "system_id",
        "handler",
        "channel",
    )
    rows = [(name, letter.get(name)) for name in names] + [("created_at", when(letter.get("created_at")))]
    rows += [("notice", f"{n.get('system_id')}: {n.get('state')}") for n in letter.get("notices", [])]
    console = out()
    console.print(table("", "", rows=rows, wrap=True))
    text = (letter.get("payload") or {}).get("payload", {}).get("normalized_text", "")
    console.print(Text("\n" + clean(text)))
