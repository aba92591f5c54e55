"""`switchboard plans`: what butlers with the engine `trio` plan. Called by `main.py`; asks the server.

`try` plans without running: its text is shown as a model wrote it, cleaned. Next: `app/plans/trying.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final

import typer
from rich.text import Text

from switchboard.cli import names
from switchboard.cli.client import ask
from switchboard.cli.models.views import dollars
from switchboard.cli.output import AsJson, Json, clean, one_line, out, show, table

app = typer.Typer(help="Plans: what a butler would plan for a message.", no_args_is_help=True)

_TIMEOUT_S: Final = 300.0
_SOURCES: Final[Mapping[str, str]] = {
    "exact": "the router's answer as it stands",
    "stripped": "the router's answer without thinking and fences",
    "repaired": "the router's answer with its punctuation mended",
    "template": "a template",
}


@app.command("try")
def try_plan(
    text: Annotated[str, typer.Argument(help="What a person might write.")],
    *,
    butler: Annotated[str | None, typer.Option(help="Who is to plan it; by default the only one that plans.")] = None,
    as_json: AsJson = False,
) -> None:
    """Ask the router what it would do with a message, and do none of it. The request costs what it costs."""
    body = {"text": text, "butler": butler and names.butler(butler)}
    found = ask(lambda client: client.post("/v1/plans/try", body, timeout=_TIMEOUT_S))
    show(found, _print, as_json=as_json)


def _print(found: Json) -> None:
    steps = found["steps"]
    out().print(_decision(found), soft_wrap=True)
    if steps:
        rows = ((one["id"], ", ".join(one["needs"]), one["action"], one["target"], _input(one)) for one in steps)
        out().print(table("step", "after", "action", "target", "input", rows=rows, keep=("step", "after"), wrap=True))
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
    """What it would do, where that is from, and what it cost."""
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
    """The task of a writer in words, the arguments of a tool as JSON."""
    args = step["args"]
    task = args.get("task")
    return one_line(task if isinstance(task, str) and len(args) == 1 else json.dumps(args, ensure_ascii=False), 400)


def levels(steps: Sequence[Json]) -> Iterator[str]:
    """The graph of a plan in a line: what may run side by side, then what comes after it."""
    depth: dict[str, int] = {}
    left = list(steps)
    while left:
        ready = [one for one in left if all(need in depth for need in one["needs"])] or left
        for one in ready:
            depth[one["id"]] = 1 + max((depth.get(need, 0) for need in one["needs"]), default=0)
        left = [one for one in left if one["id"] not in depth]
    for level in range(1, max(depth.values(), default=0) + 1):
        yield " ∥ ".join(name for name, at in depth.items() if at == level)
