"""`switchboard tasks`: what butlers say or do at a time, and what became of it. Called by `main.py`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from switchboard.cli import names
from switchboard.cli.client import ask
from switchboard.cli.ids import ask_about
from switchboard.cli.output import Cursor, Json, details, show, show_page, table, when

app = typer.Typer(help="Tasks: list or show them; pause, resume, cancel or run one.", no_args_is_help=True)

TaskId = Annotated[str, typer.Argument(help="The task's id, or its first or last characters.", metavar="TASK")]
State = Literal["active", "paused", "done", "cancelled"]
Reason = Annotated[str | None, typer.Option(help="The reason; it is recorded.", metavar="TEXT")]
Limit = Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")]


@app.command("list")
def list_tasks(
    *,
    butler: Annotated[str | None, typer.Option(help="Only of this butler, such as home or System1/home.")] = None,
    state: Annotated[State | None, typer.Option(help="Only those in this state.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> None:
    """List the tasks of all people."""
    system_id = names.butler(butler) if butler else None
    asked = {"system_id": system_id, "state": state, "limit": limit, "cursor": cursor}
    found = ask(lambda client: client.get("/v1/tasks", asked))
    rows = (
        (one["task_id"], one["state"], one["kind"], one["text"], one["when"], when(one["due"]), one["person"])
        for one in found["tasks"]
    )
    shown = table("id", "state", "kind", "text", "when", "next", "person", rows=rows, keep=("id",))
    show_page(found, shown, "tasks list", butler=butler, state=state, limit=limit)


@app.command("show")
def show_task(task: TaskId) -> None:
    """Show one task, and each time it was due."""
    _show_answer(ask_about("task", task, lambda client, one: client.get(f"/v1/tasks/{one}")))


@app.command("cancel")
def cancel(task: TaskId, *, reason: Reason = None) -> None:
    """Cancel a task; its person is not told."""
    show(_do_with_task(task, "cancel", reason), f"{task}: cancelled")


@app.command("pause")
def pause(task: TaskId, *, reason: Reason = None) -> None:
    """Pause a task: it is not due until it is resumed; its person is not told."""
    show(_do_with_task(task, "pause", reason), f"{task}: paused; let it go on: switchboard tasks resume {task}")


@app.command("resume")
def resume(task: TaskId, *, reason: Reason = None) -> None:
    """Let a paused task continue from its next time; what was due in between is left out."""
    answer = _do_with_task(task, "resume", reason)
    show(answer, f"{task}: resumed; next {when(answer['ledger']['task']['due'])}")


@app.command("run")
def run(task: TaskId, *, reason: Reason = None) -> None:
    """Carry out a task now, in addition to its times; a paused one continues."""
    show(_do_with_task(task, "run", reason), f"{task}: due now; see `switchboard tasks show {task}`")


def _do_with_task(task: str, what: str, reason: str | None) -> Json:
    body = {} if reason is None else {"reason": reason}
    return ask_about("task", task, lambda client, one: client.post(f"/v1/tasks/{one}/{what}", body))


def _show_answer(answer: Json) -> None:
    task = answer["ledger"]["task"]
    rows: list[tuple[str, object]] = [(name, task[name]) for name in ("task_id", "system_id", "person", "conversation")]
    rows += [("kind", task["kind"]), ("text", task["text"]), ("when", f"{task['when']} {task['zone']}")]
    since = f" since {when(task['paused_at'])}" if task.get("paused_at") else ""
    rows += [
        ("state", f"{task['state']}{since}: {task['why']}" if task["why"] else f"{task['state']}{since}"),
        ("next", when(task["due"])),
    ]
    rows += [("only if", task["gate"])] if task.get("gate") else []
    rows += [("firing", _firing_line(one)) for one in answer["ledger"]["firings"]]
    show(answer, details(rows))


def _firing_line(firing: Json) -> str:
    late = f", {firing['late_s']} s late" if firing["late_s"] > 60 else ""
    passed = f", {firing['passed']} before it went by" if firing["passed"] else ""
    message = f", message {firing['request_id']}" if firing["request_id"] else ""
    why = f": {firing['why']}" if firing["why"] else ""
    gate = "" if firing.get("gate_exit") is None else f", condition {firing['gate_exit']}"
    return f"{when(firing['due'])}  {firing['state']}{late}{passed}{gate}{message}{why}"
