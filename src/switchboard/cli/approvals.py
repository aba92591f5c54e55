"""`switchboard approvals`: butlers' questions to people, and the decisions. Called by `main.py`.

Arguments were written by a model: they are shown whole, as JSON in which nothing is hidden (`core/turns/asking.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import typer

from switchboard.cli.client import ask
from switchboard.cli.ids import ask_about
from switchboard.cli.output import Cursor, Json, clean, details, one_line, show, show_page, state, table, when
from switchboard.core.text.outside import outside_json
from switchboard.core.turns.asking import render_arguments

app = typer.Typer(
    help="What butlers ask people: list, show, approve or refuse calls of tools, answer questions.",
    no_args_is_help=True,
)

ApprovalId = Annotated[
    str, typer.Argument(help="Its id, or its first or last characters, as `approvals list` shows it.", metavar="ID")
]
Digest = Annotated[
    str | None,
    typer.Option(help="The digest that `show` showed: nothing is decided if it is another now.", metavar="DIGEST"),
]
Limit = Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")]
State = Literal["pending", "approved", "refused", "answered", "expired", "ended"]


@app.command("list")
def list_approvals(
    *,
    in_state: Annotated[
        State | None, typer.Option("--state", help="Only those in this state; by default those that wait.")
    ] = "pending",
    every: Annotated[bool, typer.Option("--all", help="Those of the last 30 days, in any state.")] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> None:
    """List what waits for a decision, the newest first."""
    wanted = None if every else in_state
    found = ask(lambda c: c.get("/v1/approvals", {"state": wanted, "limit": limit, "cursor": cursor}))
    rows = (
        (
            a["approval_id"],
            state(a["state"]),
            when(a["deadline_at"], short=True),
            a["system_id"],
            f"{a['channel']}:{a['sender']}",
            a["tool"],
            one_line(outside_json(a["arguments"])),
        )
        for a in found["approvals"]
    )
    names = ("id", "state", "until", "butler", "for", "tool", "arguments")
    shown = table(*names, rows=rows, keep=names[:3])
    asked = {"all": True} if every else {"state": in_state}
    show_page(found, shown, "approvals list", limit=limit, **asked)


@app.command("show")
def show_approval(approval_id: ApprovalId) -> None:
    """Show what is asked in full: the call with all of its arguments, or the question."""
    found = ask_about("approval", approval_id, lambda client, one: client.get(f"/v1/approvals/{one}"))
    show(found, details(_rows(found)), f"\n{render_arguments(found['arguments'])}")


@app.command("approve")
def approve(approval_id: ApprovalId, *, digest: Digest = None) -> None:
    """Let the call be made, once, with exactly the arguments that `show` shows."""
    _decide(approval_id, "approve", _as_shown(digest))


@app.command("refuse")
def refuse(
    approval_id: ApprovalId,
    *,
    reason: Annotated[str, typer.Option(help="The reason; the model is told.")] = "",
    digest: Digest = None,
) -> None:
    """Refuse the call, or leave the question without an answer; the model continues without it."""
    _decide(approval_id, "refuse", {"reason": reason, **_as_shown(digest)})


@app.command("answer")
def answer(
    approval_id: ApprovalId,
    text: Annotated[str, typer.Argument(help="The answer, or the number of an option.")],
    *,
    digest: Digest = None,
) -> None:
    """Answer a question on behalf of the person who was asked."""
    _decide(approval_id, "answer", {"text": text, **_as_shown(digest)})


def _rows(a: Json) -> list[tuple[str, object]]:
    return [
        ("id", a["approval_id"]),
        ("state", state(a["state"])),
        ("butler", a["system_id"]),
        ("message", a["request_id"]),
        ("from", f"{a['channel']}/{a['endpoint']}, {a['sender']}"),
        ("text", one_line(a["message"], 1000)),
        ("asked", when(a["asked_at"])),
        ("until", when(a["deadline_at"])),
        ("decided", a["decided_at"] and f"{when(a['decided_at'])} by {a['decided_by'] or 'the clock'}"),
        ("answer", a["answer"] and one_line(a["answer"], 4000)),
        ("tool", a["tool"]),
        ("effect", a["effect"]),
        ("risk", a["risk"]),
        ("why", a["why"]),
        ("digest", a["digest"]),
    ]


def _as_shown(digest: str | None) -> Mapping[str, str]:
    return {} if digest is None else {"digest": digest}


def _decide(approval_id: str, how: str, body: Mapping[str, str]) -> None:
    a = ask_about("approval", approval_id, lambda client, one: client.post(f"/v1/approvals/{one}/{how}", body))
    show(a, f"{a['state']}: {clean(a['tool'])}\n{render_arguments(a['arguments'])}")
