"""`switchboard explain`: why a message went where it went and what became of it, or where one would go, as a tree.

Called by `cli/main.py`. The server's Explanation (see `app/messages/explain.py`) or DryRun (see `app/rules/replays.py`)
enters, a tree leaves; the demo also prints with `tree_of`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, cast

import typer
from msgspec import to_builtins
from rich.text import Text
from rich.tree import Tree

from switchboard.cli.client import ask
from switchboard.cli.ids import ask_about
from switchboard.cli.importing.sources import is_mail
from switchboard.cli.messages.files import attachment_line
from switchboard.cli.messages.talk import describe_file
from switchboard.cli.models.views import attempt_line, dollars
from switchboard.cli.output import Json, clean, one_line, show, state, when
from switchboard.cli.reading import read_bytes, read_object
from switchboard.cli.rules.options import pairs
from switchboard.cli.rules.views import count_with_noun, pairs_of, receivers_of, targets_of
from switchboard.core.mail.parse import envelope_from_mail
from switchboard.core.text.outside import outside_json
from switchboard.core.text.words import or_list
from switchboard.domain.json_values import JsonObject

_SHOWN: Final = 12
"""Rules that are shown of a team; the one that fired is always among them. --json has more."""
_BEATEN: Final[Mapping[str, str]] = {
    "catch_all_last": "but it is a catch-all: those come last",
    "priority": "but its priority is lower",
    "more_specific": "but it is less specific",
    "named_channel": "but it is for every channel (*)",
    "older": "but it is newer",
    "id": "but its id is higher",
}
_OUTCOMES = {"answered": "green", **dict.fromkeys(("declined", "fenced", "lost", "parked"), "yellow")}


def explain(
    request_id: Annotated[
        str | None, typer.Argument(help="The message's id, or its first or last characters.", metavar="ID")
    ] = None,
    *,
    dry_run: Annotated[
        Path | None,
        typer.Option(
            "--dry-run",
            metavar="FILE",
            help="A hypothetical envelope (- is stdin) or mail (NAME.eml).",
        ),
    ] = None,
    facts: Annotated[
        list[str] | None,
        typer.Option("--facts", metavar="KEY=VALUE", help="The same, by its facts; repeat for each key."),
    ] = None,
    endpoint: Annotated[str, typer.Option(help="With a mail: the address that received it.")] = "dry-run",
) -> None:
    """Explain a message: decisions with their rules, deliveries, attempts, steps, replies, dead letters.

    With --dry-run or --facts: what the rules in force would do with a message that does not exist. Nothing is sent.
    """
    given = pairs(facts or (), "--facts")
    if given and request_id is not None:
        raise typer.BadParameter(f"{request_id!r} belongs to no option: write --facts KEY=VALUE for each fact")
    if [request_id is not None, dry_run is not None, bool(given)].count(True) != 1:
        raise typer.BadParameter("name one message: its ID, --dry-run FILE, or --facts KEY=VALUE for each fact")
    if request_id is not None:
        found = ask_about("message", request_id, lambda client, one: client.get(f"/v1/messages/{one}/explain"))
    else:
        asked = {"facts": given} if dry_run is None else {"envelope": _envelope(dry_run, endpoint)}
        found = ask(lambda client: client.post("/v1/rules/explain", asked))
    show(found, tree_of(found) if request_id is not None else _would(found))


def _envelope(file: Path, endpoint: str) -> Mapping[str, object]:
    if not is_mail(file):
        return read_object(file)
    mail = envelope_from_mail(read_bytes(file), endpoint=endpoint, now=datetime.now(UTC))
    return cast(JsonObject, to_builtins(mail.envelope))


def _would(found: Json) -> Tree:
    """A DryRun as JSON -> what the rules see of the message, the decision, and who would get it."""
    label = Text("dry run", style="bold").append("  nothing is sent", style="not bold dim")
    for name, value in found["facts"].items():
        label.append(f"\n{clean(name)} = {_all_of(value)}", style="not bold dim")
    tree = Tree(label, guide_style="dim")
    branch = tree.add(_label("decision", (f"by version {found['version']} of the rules", "dim")))
    for step in found["trail"]:
        _step(branch, step)
    receivers = found["receivers"]
    taken = receivers["butlers"] or receivers.get("models") or not receivers["dead_letters"]
    tree.add(_label("it would go to" if taken else "it would become a", (receivers_of(receivers), "cyan")))
    return tree


def tree_of(explanation: Json) -> Tree:
    """An Explanation as JSON -> a tree for `rich`."""
    tree = Tree(_head(explanation["message"]), guide_style="dim")
    if (waiting := explanation.get("waiting")) and waiting["waiting"]["state"] == "pending":
        _waiting(tree, waiting)
    for attachment in explanation.get("attachments", ()):
        tree.add(_label("file").append(" ").append(attachment_line(attachment)))
    for note in explanation.get("notes", ()):
        tree.add(_label("note", (note, "yellow")))
    parts = (
        ("transcriptions", _add_transcription),
        ("classifications", _classification),
        ("decisions", _decision),
        ("deliveries", _delivery),
        ("plans", _plan),
        ("approvals", _approval),
        ("replies", _reply),
        ("dead_letters", _dead_letter),
    )
    for name, add in parts:
        for one in explanation.get(name, ()):
            add(tree, one)
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


def _waiting(tree: Tree, found: Json) -> None:
    waiting = found["waiting"]
    place = f"behind {waiting['before_it']} of its conversation" if waiting["before_it"] else "next in its conversation"
    branch = tree.add(_label("waiting to be classified", (place, "yellow")))
    for attempt in found["attempts"]:
        branch.add(_label(attempt["outcome"], (attempt["error"] or "", "red")))


def _add_transcription(tree: Tree, heard: Json) -> None:
    tries = f"{heard['tries']} {'try' if heard['tries'] == 1 else 'tries'}"
    by = f"by {heard['model']} at {heard['host']}, {tries}" if heard["tries"] else "not sent for this message"
    branch = tree.add(_label(f"recording {heard['n'] + 1}", (f"{heard['seconds']} s at most, {by}", "dim")))
    if heard["state"] == "done":
        said = f"“{one_line(heard['text'], 300)}”" if heard["text"] else "no speech was recognised"
        branch.add(Text(said, style="italic"))
    else:
        title = "not transcribed" if heard["state"] == "failed" else "not transcribed yet"
        branch.add(_label(title, (heard["error"] or "", "yellow")))


def _classification(tree: Tree, attempt: Json) -> None:
    branch = tree.add(_label("asked for team", (attempt["team_id"], "")).append("  ").append(attempt_line(attempt)))
    branch.add(Text(f"of {one_line(', '.join(attempt['candidates']), 300)}", style="dim"))
    if attempt["corrected_to"]:
        said = f" “{one_line(attempt['correction'], 300)}”" if attempt["correction"] else ""
        by = f"corrected by {clean(attempt['corrected_by'])} {when(attempt['corrected_at'])}{said}"
        branch.add(Text(by, style="yellow"))


def _decision(tree: Tree, decision: Json) -> None:
    title = f"decision {decision['n']}" if decision["n"] != 1 else "decision"
    people = f" and {decision['people_version']} of the persons" if decision.get("people_version") else ""
    label = _label(title, (f"by version {decision['version']} of the rules{people}", "dim"))
    if decision["facts"]:
        label.append(f"\n{pairs_of(decision['facts'])}", style="not bold dim")
    branch = tree.add(label)
    for step in decision["trail"]:
        _step(branch, step)


def _step(branch: Tree, step: Json) -> None:
    """What happened in one team: the rules in order of evaluation, and which one fired."""
    team = branch.add(
        _label(f"team {clean(step['team_id'])}", (step["reason"].replace("_", " "), ""), (step["detail"], "dim"))
    )
    list_considered_rules(team, step["considered"] or (), int(step["left_out"]))
    for rule in step["nearest"]:
        lacks = clean(rule["failed_filter"]) if rule["failed"] == 1 else f"{rule['failed']} filters"
        team.add(Text().append("≈ nearest: ", style="yellow").append(f"{one_line(rule['name'])}, but for {lacks}"))
    if step["considered"] is None and step["rule_name"]:
        team.add(
            Text("✓ ", style="green")
            .append(one_line(step["rule_name"]))
            .append("  (the rules of that time are no longer known)", style="dim")
        )
    for rule in step["beaten"]:
        why = f"  matches too, {_BEATEN.get(rule['by'], clean(rule['by']))}"
        team.add(Text("· ", style="dim").append(one_line(rule["name"])).append(why, style="dim"))
    if targets := targets_of(step):
        team.add(Text("→ ", style="bold").append(targets, style="cyan"))


def list_considered_rules(team: Tree, rules: Sequence[Json], left_out: int) -> None:
    """The rules in order of evaluation: at most a few, and the one that fired. Those of other channels share a line."""
    last = rules[-1:] if rules and rules[-1]["fired"] else []
    elsewhere = [rule for rule in rules if rule["failed_filter"] == "channel"]
    misses = [rule for rule in rules if not rule["fired"] and rule not in elsewhere]
    for rule in misses[:_SHOWN]:
        team.add(_rule(rule))
    _counted_only(team, len(elsewhere), len(misses[_SHOWN:]) + left_out)
    for rule in last:
        team.add(_rule(rule))


def _counted_only(team: Tree, elsewhere: int, more: int) -> None:
    if elsewhere:
        team.add(Text(f"✗ {count_with_noun(elsewhere, 'rule')} of other channels", style="dim"))
    if more:
        team.add(Text(f"✗ … and {more:,} more that do not match", style="dim"))


def _rule(rule: Json) -> Text:
    if rule["fired"]:
        return Text("✓ ", style="green").append(one_line(rule["name"]), style="bold")
    actual = "the message has none" if rule["actual"] is None else f"it is {_actual(rule['actual'])}"
    why = f"  {clean(rule['failed_filter'])} should be {_any_of(rule['expected'])}, {actual}"
    more = f" (and {rule['failed'] - 1} more)" if rule["failed"] > 1 else ""
    return Text("✗ ", style="dim").append(one_line(rule["name"])).append(why + more, style="dim")


def _any_of(expected: str | Sequence[str]) -> str:
    values = [expected] if isinstance(expected, str) else expected
    said = or_list([repr(one_line(value, 60)) for value in values[:_SHOWN]])
    return said if len(values) <= _SHOWN else f"{said} (and {len(values) - _SHOWN} more)"


def _actual(value: str | Sequence[str]) -> str:
    return repr(one_line(value, 60)) if isinstance(value, str) else f"none of {_all_of(value)}"


def _all_of(value: str | Sequence[str]) -> str:
    return one_line(value if isinstance(value, str) else ", ".join(value))


def _delivery(tree: Tree, entry: Json) -> None:
    delivery = entry["delivery"]
    label = _label("delivery", (delivery["system_id"], "cyan")).append("  ").append(state(delivery["state"]))
    if delivery["error_class"]:
        label.append(f"  {clean(delivery['error_class'])}", style="yellow")
    branch = tree.add(label.append(f"  #{delivery['seq']} of {one_line(delivery['lane'])}", style="dim"))
    if offered := entry.get("offered"):
        branch.add(list_offered_tools(offered, delivery["system_id"]))
    for fact in entry.get("facts", ()):
        branch.add(describe_told_fact(fact))
    attempts = {attempt["epoch"]: branch.add(_attempt(attempt)) for attempt in entry["attempts"]}
    for step in entry["steps"]:
        # A step of an unfinished attempt has only the delivery to attach to.
        attempts.get(step["epoch"], branch).add(_journal(step))
    for call in entry.get("refused", ()):
        branch.add(describe_refused_call(call, (entry.get("offered") or {}).get("tools", ())))


def list_offered_tools(offered: Json, system_id: str) -> Text:
    """The tools that the model had, and why it had no others."""
    label = _label("tools", (", ".join(offered["tools"]) or "none", "dim"))
    if not offered["by_owner"]:
        label.append(f"  its sender is no owner of {clean(system_id)}, or not alone with it", style="yellow")
    return label


def describe_told_fact(fact: Json) -> Text:
    """What the model was told of earlier conversations."""
    if fact["text"] is None:
        return _label("told", ("a fact that was forgotten meanwhile", "dim"))
    return _label("told", (f"{one_line(fact['text'], 300)}  by {clean(fact['author'])}", "dim"))


def describe_refused_call(call: Json, offered: Collection[str]) -> Text:
    if call["said"] is not None:
        why = one_line(call["said"], 300)
    elif call["tool"] in offered:
        why = "not made: it was not approved, or its arguments were no JSON"
    else:
        why = "not made: this turn has no such tool"
    label = Text("✗ ", style="red").append(f"call in {clean(call['path'])}", style="default")
    return label.append(f"  {one_line(call['tool'])}", style="cyan").append(f"  {why}", style="yellow")


def _attempt(attempt: Json) -> Text:
    outcome = str(attempt["outcome"])
    label = (
        _label("attempt", (attempt["engine"] or "", ""))
        .append("  ")
        .append(clean(outcome), style=_OUTCOMES.get(outcome, "red"))
    )
    for told in (attempt["error_class"], attempt["error"]):
        if told and told != outcome:
            label.append(f"  {one_line(told, 300)}", style="yellow")
    if attempt["stop_reason"]:
        label.append(f"  stopped: {clean(attempt['stop_reason'])}", style="yellow")
    for used in attempt["usage"] or ():
        label.append(f"  {one_line(used['model'], 60)} ({describe_usage(used)})", style="dim")
    worker = f" by worker {attempt['worker']}" if attempt["worker"] else ""
    return label.append(f"  {when(attempt['finished_at'])}{worker}", style="dim")


def describe_usage(used: Json) -> str:
    parts = [f"{used['tokens_in']}+{used['tokens_out']} tokens"]
    if used["tokens_cache_read"] or used["tokens_cache_write"]:
        parts.append(f"cache {used['tokens_cache_read']} read, {used['tokens_cache_write']} written")
    return ", ".join(parts if used["cost_usd"] is None else [*parts, dollars(used["cost_usd"])])


def _journal(step: Json) -> Text:
    mark, style = {"done": ("✓", "green"), "started": ("…", "yellow")}.get(step["state"], ("✗", "red"))
    cost = f", {dollars(step['cost_usd'])}" if step["cost_usd"] is not None else ""
    spent = f"{step['tokens_in']}+{step['tokens_out']} tokens{cost}"
    return (
        Text(f"{mark} ", style=style)
        .append(f"step {one_line(step['path'])}")
        .append(f"  {one_line(step['tool'])}" if step["tool"] else "", style="cyan")
        .append("  read from text" if step.get("as_text") else "", style="yellow")
        .append(f"  {clean(step['effect'])}", style="dim")
        .append(f"  ({spent})" if step["tokens_in"] or step["tokens_out"] else "", style="dim")
    )


def _plan(tree: Tree, plan: Json) -> None:
    label = _label("plan", (f"of {plan['system_id']}: {plan['action']} {plan['target']}".strip(), "cyan"))
    label.append("  ").append(state(plan["state"])).append(f"  {plan['tokens']} tokens generated", style="not bold dim")
    by = "a template" if plan["source"] == "template" else "the router"
    branch = tree.add(label.append(f", decided by {by}", style="not bold dim"))
    for step in plan["steps"]:
        needs = f" after {', '.join(step['needs'])}" if step["needs"] else ""
        line = Text(f"{clean(step['id'])} ").append(clean(step["target"]), style="cyan").append(f"{clean(needs)}  ")
        why = f"  {one_line(step['why'], 200)}" if step["why"] else ""
        branch.add(line.append(state(step["state"])).append(why, style="yellow"))
    for note in plan["notes"]:
        branch.add(Text(one_line(note, 300), style="dim"))


def _approval(tree: Tree, asked: Json) -> None:
    label = _label("approval", (asked["tool"], "cyan")).append("  ").append(state(asked["state"]))
    said = f"\n{one_line(outside_json(asked['arguments']), 300)}"
    by = f"\nby {one_line(asked['decided_by'], 100)}  {when(asked['decided_at'])}" if asked["decided_by"] else ""
    tree.add(
        label.append(f"  {asked['approval_id']}", style="dim").append(said, style="not bold").append(by, style="dim")
    )


def _reply(tree: Tree, entry: Json) -> None:
    reply = entry["reply"]
    label = _label("reply", (f"of {reply['system_id']}", "cyan")).append("  ").append(state(reply["state"]))
    branch = tree.add(label.append(f"\n“{one_line(reply['text'], 300)}”", style="italic"))
    for file in reply.get("files", ()):
        branch.add(Text(describe_file(file)))
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
    dead_letter = entry["dead_letter"]
    label = _label(
        "dead letter",
        (f"of team {dead_letter['team_id']}", "cyan"),
        (dead_letter["category"], "red"),
        (dead_letter["status"], "dim"),
    )
    branch = tree.add(label.append(f"\n{one_line(dead_letter['reason'], 300)}", style="not bold"))
    if dead_letter["status"] == "handled":
        how = "closed" if dead_letter["rerouted_n"] is None else f"rerouted (decision {dead_letter['rerouted_n']})"
        by = (f"by {dead_letter['handled_by_system_id']}", "cyan")
        branch.add(
            _label(
                how, by, (when(dead_letter["handled_at"]), "dim"), (f"“{one_line(dead_letter['resolution'], 300)}”", "")
            )
        )
    for notice in entry["notices"]:
        branch.add(_label("notified", (notice["system_id"], "cyan")).append("  ").append(state(notice["state"])))
