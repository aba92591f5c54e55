"""`switchboard plans`: plans of butlers with the engine `trio`, and their progress. Called by `main.py`.

`try` plans without running: it shows the model's text, cleaned. Next: `app/plans/trying.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from switchboard.cli import names
from switchboard.cli.client import ask
from switchboard.cli.ids import RequestId, ask_about
from switchboard.cli.models.views import dollars
from switchboard.cli.output import Cursor, Json, clean, one_line, out, show, show_page, state, table, wants_json
from switchboard.domain.errors import NotFound

app = typer.Typer(help="Plans: list, show, cancel; try what a butler would plan for a message.", no_args_is_help=True)

_TIMEOUT_S: Final = 300.0
_LOOK_EVERY_S: Final = 0.5
_LEAST_WAIT_S: Final = 0.05
"""A shorter wait is not shown."""
_ROOM: Final = 40
"""Cells for the input of a step; where there are fewer it has a line of its own."""
_SOURCES: Final[Mapping[str, str]] = {
    "exact": "the router's answer as it is",
    "stripped": "the router's answer without thinking and fences",
    "repaired": "the router's answer with its punctuation repaired",
    "template": "a template",
}


@app.command("list")
def list_plans(
    *,
    running: Annotated[bool, typer.Option("--running", help="Only those that have not ended.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")] = 50,
    cursor: Cursor = None,
) -> None:
    """List what butlers have decided to do with messages, the newest first."""
    asked = {"limit": limit, "cursor": cursor, **({"running": "true"} if running else {})}
    found = ask(lambda client: client.get("/v1/plans", asked))
    rows = (
        (
            p["request_id"],
            state(p["state"]),
            _step_progress(p),
            p["system_id"],
            _token_usage(p),
            "template" if p["source"] == "template" else "router",
            one_line(p["message"]),
        )
        for p in found["plans"]
    )
    shown = table(
        "message", "state", "done", "butler", "tokens", "from", "text", rows=rows, keep=("message", "state", "done")
    )
    show_page(found, shown, "plans list", limit=limit, **({"running": True} if running else {}))


@app.command("show")
def show_plan(
    request_id: RequestId,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow it until it has ended.")] = False,
) -> None:
    """Show the plans for a message: each step, what it needs, and how it ended."""
    found = _plans(request_id)
    if follow:
        found = _follow_plans(found, request_id)
    show(found, *(part for plan in found["plans"] for part in _plan(plan)))


@app.command("cancel")
def cancel(request_id: RequestId) -> None:
    """End the plans for a message, within a second, with the results so far."""
    answer = ask_about("message", request_id, lambda client, found: client.post(f"/v1/messages/{found}/stop", {}))
    show(answer, "stop requested" if answer["stopped"] else "no plan is running")


def _plans(request_id: str) -> Json:
    found = ask_about("message", request_id, lambda client, one: client.get(f"/v1/plans/{one}"))
    if not found["plans"]:
        raise NotFound(f"nothing was planned for {request_id}; see `switchboard plans list`")
    return found


def _follow_plans(found: Json, request_id: str) -> Json:
    """The final state; until then, a line for each change of a step."""
    told: dict[tuple[str, str], str] = {}
    while True:
        for plan in found["plans"]:
            for step in plan["steps"]:
                key = (plan["system_id"], step["id"])
                if step["state"] != "pending" and told.get(key) != step["state"] and not wants_json():
                    told[key] = step["state"]
                    out().print(_change(step), soft_wrap=True)
        if all(plan["ended_at"] for plan in found["plans"]):
            return found
        time.sleep(_LOOK_EVERY_S)
        found = _plans(request_id)


def _change(step: Json) -> Text:
    said = Text(f"{clean(step['id'])} ").append(state(step["state"])).append(f"  {clean(step['target'])}", style="cyan")
    return said.append(f"  {one_line(step['why'], 200)}" if step["why"] else "", style="yellow")


def _plan(plan: Json) -> Iterator[RenderableType]:
    head = Text(f"{clean(plan['system_id'])}: ", style="bold").append(clean(plan["action"]), style="cyan").append("  ")
    done = f"{_step_progress(plan)} done, " if plan["steps"] else ""
    head.append(state(plan["state"])).append(f"  {done}{_token_usage(plan)} tokens{_work_time(plan)}", style="not bold")
    yield head.append(f"  ({_SOURCES[plan['source']]})", style="not bold dim")
    if plan["steps"]:
        rows = (
            (*_leading_cells(s), s["action"], s["target"], _came_of(s), _took(s, plan["began_at"]), _input(s))
            for s in plan["steps"]
        )
        columns = ("step", "state", "after", "action", "target", "result", "time", "input")
        yield table(*columns, rows=rows, keep=("step", "state", "after", "result"), wrap=True, room=_ROOM)
    for step in plan["steps"]:
        if step["why"]:
            yield Text(f"{clean(step['id'])}: {one_line(step['why'], 400)}", style="yellow")
    for note in plan["notes"]:
        yield Text(one_line(note, 400), style="dim")


def _leading_cells(step: Json) -> tuple[str, Text, str]:
    return step["id"], state(step["state"]), ", ".join(step["needs"])


def _took(step: Json, began_at: str) -> str:
    """When it began, from the beginning of its plan, and how long it worked and waited."""
    if step["started_at"] is None:
        return ""
    since = datetime.fromisoformat(step["started_at"]) - datetime.fromisoformat(began_at)
    return f"+{max(since.total_seconds(), 0.0):.1f} s{_work_time(step)}"


def _work_time(one: Json) -> str:
    """How long a step, or a plan, has worked; waiting is told apart."""
    if one["seconds"] is None:
        return ""
    waited = f", waited {one['waited']:.1f} s" if one["waited"] >= _LEAST_WAIT_S else ""
    return f", {one['seconds']:.1f} s{waited}"


def _came_of(step: Json) -> str:
    """The length of its result, and the tokens generated for it, whatever the outcome."""
    size = f"{step['size']:,} characters" if step["state"] == "done" else ""
    return ", ".join(filter(None, (size, f"{step['tokens']} tokens" if step["tokens"] else "")))


def _step_progress(plan: Json) -> str:
    return f"{plan['done']}/{max(len(plan['steps']), plan['ended'])}" if plan["steps"] else str(plan["done"])


def _token_usage(plan: Json) -> str:
    return str(plan["tokens"]) if plan["token_budget"] is None else f"{plan['tokens']} of {plan['token_budget']}"


@app.command("try")
def try_plan(
    text: Annotated[str, typer.Argument(help="What a person might write.")],
    *,
    butler: Annotated[str | None, typer.Option(help="Who is to plan it; by default the only one that plans.")] = None,
) -> None:
    """Ask the router what it would do with a message, without doing it. The request costs tokens."""
    body = {"text": text, "butler": butler and names.butler(butler)}
    found = ask(lambda client: client.post("/v1/plans/try", body, timeout=_TIMEOUT_S))
    show(found, _print)


def _print(found: Json) -> None:
    steps = found["steps"]
    out().print(_decision(found), soft_wrap=True)
    if steps:
        rows = ((one["id"], ", ".join(one["needs"]), one["action"], one["target"], _input(one)) for one in steps)
        out().print(
            table(
                "step", "after", "action", "target", "input", rows=rows, keep=("step", "after"), wrap=True, room=_ROOM
            )
        )
        out().print(" → ".join(map(clean, levels(steps))), style="dim", soft_wrap=True)
    for fault in found["faults"]:
        out().print(Text(f"not taken: {one_line(fault, 400)}", style="yellow"), soft_wrap=True)
    if found["failure"]:
        out().print(
            Text(f"the router has not answered: {one_line(found['failure'], 400)}", style="red"), soft_wrap=True
        )
    for note in found["notes"]:
        out().print(Text(one_line(note, 400), style="dim"), soft_wrap=True)


def _decision(found: Json) -> Text:
    """The decision, its source, and its cost."""
    said = f"{found['action']} {found['target']}".strip()
    question = found["args"].get("question", "") if found["action"] == "ask_user" else ""
    label = Text(f"{clean(found['butler'])}: ", style="bold").append(clean(said), style="cyan")
    label.append(f" {one_line(question, 300)}" if question else "")
    tries = f" at the second try, by {', '.join(found['models'])}" if found["tries"] > 1 else ""
    label.append(f"  ({_SOURCES[found['source']]}{tries})", style="not bold dim")
    if found["unsure"]:
        label.append(f"  unsure: {found['confidence']:.2f}", style="yellow")
    spent = f"{found['tokens_in']}+{found['tokens_out']} tokens"
    cost = f", {dollars(found['cost_usd'])}" if found["cost_usd"] is not None else ""
    return label.append(f"  {spent}{cost}", style="not bold dim")


def _input(step: Json) -> str:
    """A writer's task in words, a tool's arguments as JSON."""
    args = step["args"]
    task = args.get("task")
    return one_line(task if isinstance(task, str) and len(args) == 1 else json.dumps(args, ensure_ascii=False), 400)


def _depths(steps: Sequence[Json]) -> Mapping[str, int]:
    depth: dict[str, int] = {}
    left = list(steps)
    while left:
        ready = [one for one in left if all(need in depth for need in one["needs"])] or left
        for one in ready:
            depth[one["id"]] = 1 + max((depth.get(need, 0) for need in one["needs"]), default=0)
        left = [one for one in left if one["id"] not in depth]
    return depth


def levels(steps: Sequence[Json]) -> Iterator[str]:
    """The graph of a plan on one line: steps that may run in parallel, then those after them."""
    depth = _depths(steps)
    for level in range(1, max(depth.values(), default=0) + 1):
        yield " ∥ ".join(name for name, at in depth.items() if at == level)
