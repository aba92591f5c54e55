"""`switchboard explain ID`: why a message went where it went, and what became of it, as a tree to read.

Called by `main.py`. The server's Explanation (see `app/explain.py`) enters, a tree leaves; `tree_of` is also what the
demo prints.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer
from rich.text import Text
from rich.tree import Tree

from switchboard.cli.client import ask, part
from switchboard.cli.output import AsJson, Json, clean, one_line, out, print_json, state, when

_OUTCOMES = {"answered": "green", "declined": "yellow", "fenced": "yellow", "lost": "yellow"}


def explain(
    request_id: Annotated[UUID, typer.Argument(help="The message's id.", metavar="ID")],
    *,
    as_json: AsJson = False,
) -> None:
    """Explain one message: decisions with their rules, deliveries, attempts, steps, replies, dead letters."""
    found = ask(lambda client: client.get(f"/v1/messages/{part(request_id)}/explain"))
    if as_json:
        print_json(found)
    else:
        out().print(tree_of(found))


def tree_of(explanation: Json) -> Tree:
    """An Explanation as JSON -> a tree for `rich`."""
    tree = Tree(_head(explanation["message"]), guide_style="dim")
    for decision in explanation["decisions"]:
        _decision(tree, decision)
    for delivery in explanation["deliveries"]:
        _delivery(tree, delivery)
    for reply in explanation["replies"]:
        _reply(tree, reply)
    for letter in explanation["dead_letters"]:
        _dead_letter(tree, letter)
    return tree


def _label(title: str, *pieces: tuple[object, str]) -> Text:
    """A bold title, then pieces of (text, style)."""
    label = Text(title, style="bold")
    for text, style in pieces:
        if words := one_line(text):
            label.append(" ").append(words, style=style or "not bold")
    return label


def _head(message: Json) -> Text:
    label = (
        Text("message ", style="bold").append(clean(message["request_id"])).append("  ").append(state(message["state"]))
    )
    label.append(
        f"\n{when(message['received_at'])}  {clean(message['channel'])} {clean(message['endpoint'])}", style="dim"
    )
    label.append(f"\nfrom {one_line(message['sender'])}", style="dim")
    if message["thread"]:
        label.append(f"  in thread {one_line(message['thread'])}", style="dim")
    return label.append(f"\n“{one_line(message['text'], 300)}”", style="italic")


def _decision(tree: Tree, decision: Json) -> None:
    title = f"decision {decision['n']}" if decision["n"] != 1 else "decision"
    branch = tree.add(_label(title, (f"by version {decision['version']} of the rules", "dim")))
    for step in decision["trail"]:
        _step(branch, step)


def _step(branch: Tree, step: Json) -> None:
    """What happened in one team: the rules in the order of looking, and which one won."""
    team = branch.add(
        _label(f"team {clean(step['team_id'])}", (step["reason"].replace("_", " "), ""), (step["detail"], "dim"))
    )
    for rule in step["considered"] or ():
        team.add(_rule(rule))
    if step["considered"] is None and step["rule_name"]:
        team.add(
            Text("✓ ", style="green")
            .append(one_line(step["rule_name"]))
            .append("  (the rules have changed since)", style="dim")
        )
    if targets := ", ".join(str(t.get("system_id") or t.get("team_id")) for t in step["targets"]):
        team.add(Text("→ ", style="bold").append(one_line(targets), style="cyan"))


def _rule(rule: Json) -> Text:
    if rule["fired"]:
        return Text("✓ ", style="green").append(one_line(rule["name"]), style="bold")
    actual = "the message has none" if rule["actual"] is None else f"it is {one_line(rule['actual'], 60)!r}"
    why = f"  {clean(rule['failed_filter'])} should be {one_line(rule['expected'], 60)!r}, {actual}"
    return Text("✗ ", style="dim").append(one_line(rule["name"])).append(why, style="dim")


def _delivery(tree: Tree, entry: Json) -> None:
    delivery = entry["delivery"]
    label = _label("delivery", (delivery["system_id"], "cyan")).append("  ").append(state(delivery["state"]))
    if delivery["error_class"]:
        label.append(f"  {clean(delivery['error_class'])}", style="yellow")
    branch = tree.add(label.append(f"  #{delivery['seq']} of {one_line(delivery['lane'])}", style="dim"))
    attempts = {attempt["epoch"]: branch.add(_attempt(attempt)) for attempt in entry["attempts"]}
    for step in entry["steps"]:
        # A step of an attempt that is not finished yet has only the delivery to hang on.
        attempts.get(step["epoch"], branch).add(_journal(step))


def _attempt(attempt: Json) -> Text:
    outcome = str(attempt["outcome"])
    label = (
        _label("attempt", (attempt["engine"] or "", ""))
        .append("  ")
        .append(clean(outcome), style=_OUTCOMES.get(outcome, "red"))
    )
    for name in ("error_class", "error"):
        if attempt[name]:
            label.append(f"  {one_line(attempt[name], 300)}", style="yellow")
    worker = f" by worker {attempt['worker']}" if attempt["worker"] else ""
    return label.append(f"  {when(attempt['finished_at'])}{worker}", style="dim")


def _journal(step: Json) -> Text:
    mark, style = ("✓", "green") if step["state"] == "done" else ("…", "yellow")
    return (
        Text(f"{mark} ", style=style)
        .append(f"step {step['n']} {one_line(step['name'])}")
        .append(f"  {clean(step['effect'])}", style="dim")
    )


def _reply(tree: Tree, entry: Json) -> None:
    reply = entry["reply"]
    label = _label("reply", (f"of {reply['system_id']}", "cyan")).append("  ").append(state(reply["state"]))
    branch = tree.add(label.append(f"\n“{one_line(reply['text'], 300)}”", style="italic"))
    if reply["error"]:
        branch.add(Text(one_line(reply["error"], 300), style="yellow"))
    for receipt in entry["receipts"]:
        said = receipt.get("platform_message_id") or receipt.get("error") or ""
        branch.add(
            _label("receipt")
            .append("  ")
            .append(state(receipt["outcome"]))
            .append(f"  {when(receipt['at'])}  {one_line(said)}", style="dim")
        )


def _dead_letter(tree: Tree, entry: Json) -> None:
    letter = entry["dead_letter"]
    label = _label(
        "dead letter", (f"of team {letter['team_id']}", "cyan"), (letter["category"], "red"), (letter["status"], "dim")
    )
    branch = tree.add(label.append(f"\n{one_line(letter['reason'], 300)}", style="not bold"))
    for notice in entry["notices"]:
        branch.add(_label("told", (notice["system_id"], "cyan")).append("  ").append(state(notice["state"])))
