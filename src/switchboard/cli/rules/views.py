"""Renders rules, their changes, and the effects of changes for people.

Called by `commands.py`, `history.py`, `checks.py`, `sops.py`, `teams.py` and `cli/dead_letters/views.py`. In: the API's
JSON about rules (rules, changes, findings, blast); out: texts for `rich`, with strangers' text cleaned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from switchboard.cli.output import Json, clean, one_line, out, show, table, when
from switchboard.core.routing.rulefile import changed_fields, rule_from_json
from switchboard.domain.routing import RuleChange

SEVERITIES: Final[Mapping[str, str]] = {"error": "bold red", "warning": "yellow", "note": "cyan"}
"""How bad a finding is, the worst first, and its style."""

_SIGNS: Final[Mapping[str, str]] = {"+": "green", "-": "red", "~": "yellow"}


_ID: Final = 36
"""Cells of an id, which is never broken: people copy it."""
_NAME: Final = 40


def rule_table(rules: Sequence[Json], *, sort: bool) -> RenderableType:
    """Rules as a table; `sort`: by team and order of evaluation."""
    names = ("team", "state", "prio", "rule", "when and where to, id")
    shown = sorted(rules, key=_sort_key_of) if sort else rules
    return table(*names, rows=map(_rule_row, shown), keep=names[:-1], wrap=True, room=_ID)


def _sort_key_of(rule: Json) -> tuple[object, ...]:
    return rule["team_id"], *looking_order(rule)


def _rule_row(rule: Json) -> tuple[object, ...]:
    on = Text("on", style="green") if rule["active"] else Text("off", style="red")
    leads = conditions_of(rule).append_text(targets_after(rule))
    if rule["source"]:
        leads.append(f"  {one_line(rule['source'])}", style="dim")
    leads.append(f"  {rule['rule_id']}", style="dim")
    return rule["team_id"], on, rule["priority"], one_line(rule["name"], _NAME), leads


def version_head(version: Json) -> Text:
    """A version of the rules: its author, time and reason."""
    made = f"  {when(version['created_at'])}  {one_line(version['author'])}: {one_line(version['reason'], 300)}"
    return Text(f"version {version['version']}", style="bold").append(made, style="not bold default")


def count_with_noun(number: int, noun: str) -> str:
    """`1 rule`, `3,000 rules`."""
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def looking_order(rule: Json) -> tuple[object, ...]:
    """The position of a rule in its team, as ranked by `core/routing/index.py`."""
    star, filters = rule["channel"] == "*", len(rule["filters"])
    age = datetime.fromisoformat(str(rule["created_at"]))
    return (star and not filters, -int(rule["priority"]), -filters, star, age, str(rule["rule_id"]))


def filters_of(rule: Json) -> str:
    """`telegram_chat_id=5 chat_type=private`."""
    return pairs_of(rule["filters"])


def targets_of(rule: Json) -> str:
    """`onboarding, System1/diary`."""
    return _receivers_text(rule["targets"])


def pairs_of(filters: Mapping[str, object]) -> str:
    """`sender=ann media=photo media=voice`: one pair per value."""
    each = (
        (name, value)
        for name, any_of in filters.items()
        for value in (any_of if isinstance(any_of, list) else [any_of])
    )
    return one_line(" ".join(f"{name}={value}" for name, value in each))


def _receivers_text(targets: Sequence[Mapping[str, object]]) -> str:
    return one_line(", ".join(str(t.get("system_id") or t.get("team_id")) for t in targets))


def receivers_of(receivers: Json) -> str:
    """Receivers and dead letters of a message: `System1/diary, dead letter of finance (no_route)`."""
    dead = (f"dead letter of {one['team']} ({one['category']})" for one in receivers["dead_letters"])
    asked = (f"the choice of a model in {team}" for team in receivers.get("models", ()))
    return one_line(", ".join([*map(str, receivers["butlers"]), *dead, *asked]) or "nobody")


def rule_line(rule: Json) -> Text:
    """A rule on one line: its name, when it fires, where it leads."""
    return Text(f"{one_line(rule['team_id'])}  ").append_text(rule_text(rule))


def rule_text(rule: Json) -> Text:
    """The same in a list of its team."""
    line = Text().append(one_line(rule["name"]), style="bold").append("  ")
    line.append_text(conditions_of(rule)).append_text(targets_after(rule))
    if rule["priority"]:
        line.append(f"  priority {rule['priority']}", style="dim")
    if rule["copy"]:
        line.append("  copy", style="magenta")
    if rule["reply_to_automatic"]:
        line.append("  replies to automatic mail", style="magenta")
    return line if rule["active"] else line.append("  off", style="red")


def conditions_of(rule: Json) -> Text:
    """Channel and filters: `telegram chat_type=private`."""
    return Text().append(f"{clean(rule['channel'])} {filters_of(rule)}".rstrip(), style="yellow")


def targets_after(rule: Json) -> Text:
    """` → onboarding`."""
    return Text().append(" → ", style="dim").append(targets_of(rule), style="cyan")


def change_lines(changes: Iterable[Json]) -> Iterator[Text]:
    """The changes one by one: `+` new, `-` removed, `~` changed with each field before and after."""
    for change in changes:
        before, after = change["before"], change["after"]
        rule = after or before
        sign = "~" if before and after else "+" if after else "-"
        line = Text().append(f"{sign} ", style=_SIGNS[sign])
        if sign != "~":
            yield line.append_text(rule_line(rule))
            continue
        line.append(one_line(rule["team_id"])).append("  ").append(one_line(before["name"]), style="bold")
        yield line.append(f"  {clean(rule['rule_id'])}", style="dim")
        yield from field_lines(before, after)


def field_lines(before: Json, after: Json) -> Iterator[Text]:
    """Each field that differs, before and after."""
    change = RuleChange(rule_from_json(before), rule_from_json(after))
    for name, (then, now) in changed_fields(change).items():
        line = Text().append(f"    {name}  ", style="dim").append(_value_text(name, then), style="red")
        yield line.append(" → ", style="dim").append(_value_text(name, now), style="green")


def _value_text(name: str, value: Any) -> str:
    match name:
        case "filters":
            return pairs_of(value) or "none"
        case "targets":
            return _receivers_text(value)
        case _:
            return str(value).lower() if isinstance(value, bool) else one_line(value)


def finding_lines(findings: Sequence[Json]) -> Iterator[Text]:
    """Findings about rules: the worst first, each with the probably intended value."""
    order = list(SEVERITIES)
    for one in sorted(findings, key=lambda one: order.index(one["severity"])):
        line = Text().append(f"{one['severity']}: ", style=SEVERITIES[one["severity"]])
        place = "  ".join(one_line(one[name]) for name in ("team_id", "rule_name") if one.get(name))
        line.append(place, style="bold").append(f"  {one_line(one['message'], 400)}")
        yield line.append(meant_of(one), style="yellow")


def meant_of(finding: Json) -> str:
    """The probably intended value, unless the message already says it."""
    said = [one_line(word) for word in finding.get("meant") or () if str(word) not in str(finding["message"])]
    return f" (correct would be {', '.join(said[:5])})" if said else ""


def blast_lines(blast: Json | None, *, period: str = "of the last day", dry_run: bool = False) -> Iterator[Text]:
    """How many stored messages would be routed differently, in one line, then some of them."""
    if blast is None:
        yield Text("the effect on stored messages could not be computed", style="dim")
        return
    looked_at, changed = int(blast["looked_at"]), int(blast["changed"])
    messages = f"{count_with_noun(looked_at, 'message')} {period}".strip()
    if not looked_at:
        yield Text(f"there are no{messages.removeprefix('0')} to compare with", style="dim")
        return
    newest = "" if blast["complete"] else "the newest "
    would = "would be routed differently" if dry_run else "would now be routed differently"
    count = f"{changed:,}" if changed else "none"
    yield Text(f"{count} of {newest}{messages} {would}", style="bold" if changed else "")
    for one in blast["examples"]:
        line = Text().append(f"  {clean(one['request_id'])}  ", style="dim")
        line.append(receivers_of(one["before"]), style="red")
        yield line.append(" → ", style="dim").append(receivers_of(one["after"]), style="green")
    if (rest := changed - len(blast["examples"])) > 0 and blast["examples"]:
        yield Text(f"  … and {rest:,} more", style="dim")


def show_edit(answer: Json, changes: Sequence[Json] | None = None, *, dry_run: bool) -> None:
    """The answer to an edit; `changes`: those of the answer, unless it contains them itself."""
    told = answer.get("changes", ()) if changes is None else changes
    show(answer, lambda _: print_edit(answer, told, dry_run=dry_run))


def print_edit(answer: Json, changes: Sequence[Json], *, dry_run: bool) -> None:
    """The result of an edit: its version, the changes, findings, and the effect on messages."""
    console = out()
    console.print(_edit_head(answer, changes, dry_run=dry_run), soft_wrap=True)
    if not changes:
        return
    hidden = int(answer.get("changed", len(changes))) - len(changes)
    for line in (
        *change_lines(changes),
        *([Text(f"  … and {hidden:,} more", style="dim")] if hidden > 0 else []),
        *finding_lines(answer.get("warnings") or ()),
        *blast_lines(answer.get("blast"), dry_run=dry_run),
    ):
        console.print(line, soft_wrap=True)


def _edit_head(answer: Json, changes: Sequence[Json], *, dry_run: bool) -> Text:
    if not changes:
        return Text(f"nothing to change; version {answer['version']} stays in force")
    count = count_with_noun(int(answer.get("changed", len(changes))), "rule")
    if dry_run:
        return Text(f"dry run: nothing is written; it would change {count}:", style="bold yellow")
    return Text(f"version {answer['version']} is in force; {count} changed:", style="bold")
