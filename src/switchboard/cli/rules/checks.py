"""`switchboard rules test|lint|backtest`: checks rules before they decide anything.

Called by `commands.py`, whose group these commands belong to. In: files of cases and of rules; out: failures, doubtful
rules, and changes in routing. Nothing is written. Next: the server's `Replays`, for lint its `RuleRecords`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from switchboard.cli.client import Client, ask
from switchboard.cli.ids import check_id, resolve_id
from switchboard.cli.names import targets
from switchboard.cli.output import FAILED, OK, Json, clean, errors, exit_unless_ok, one_line, out, show, table
from switchboard.cli.reading import read_object
from switchboard.cli.rules.options import File, any_of, read_rules
from switchboard.cli.rules.views import SEVERITIES, blast_lines, count_with_noun, meant_of, receivers_of
from switchboard.core.routing.backtest import NEWEST
from switchboard.core.routing.rulefile import FORMAT
from switchboard.domain.errors import InvalidInput, Unavailable
from switchboard.domain.json_values import JsonMapping

_LONG: Final = 300.0


def try_cases(
    file: File,
    *,
    rules: Annotated[
        Path | None, typer.Option("--file", metavar="RULES", help="Rules to test; by default those in force.")
    ] = None,
) -> None:
    """Run test cases: does each message reach the right recipients?

    Exit code 1: some do not.
    """
    body = dict(read_object(file))
    if "cases" not in body and body.get("format") == FORMAT:
        raise InvalidInput(
            f"{file} is a rule file; name the cases, and give the rules with --file {file}", field="cases"
        )
    if "cases" not in body:
        raise InvalidInput(f"{file} has no cases; docs/routing.md shows what a file of cases looks like", field="cases")
    if rules is not None:
        body["document"] = read_rules(rules)
    outcomes = ask(lambda client: client.post("/v1/rules/test", body, timeout=_LONG))
    show(outcomes, print_outcomes)
    exit_unless_ok(FAILED if outcomes["failed"] else OK)


def print_outcomes(outcomes: JsonMapping) -> None:
    """The failed cases, each with expected and actual recipients and the deciding rules; then the count."""
    for result in outcomes["results"]:
        if not result["passed"]:
            for line in _failure_lines(result):
                out().print(line, soft_wrap=True)
    passed, failed = int(outcomes["passed"]), int(outcomes["failed"])
    cases = count_with_noun(passed + failed, "case")
    summary = (
        f"{failed:,} of {cases} failed"
        if failed
        else "there are no cases"
        if not passed
        else f"all {cases} passed"
        if passed != 1
        else "the case passed"
    )
    out().print(summary, style="bold red" if failed else "bold green")


def _failure_lines(result: Json) -> Sequence[Text]:
    lines = [Text().append("✗ ", style="red").append(one_line(result["name"]), style="bold")]
    expected, got = receivers_of(result["expected"]), receivers_of(result["got"])
    lines.append(Text().append("    expected  ", style="dim").append(expected, style="green"))
    lines.append(Text().append("    got       ", style="dim").append(got, style="red"))
    for step in result["trail"]:
        why = str(step["reason"]).replace("_", " ") + (f" {step['rule_name']!r}" if step["rule_name"] else "")
        lines.append(Text(f"    team {one_line(step['team_id'])}: {one_line(why)}", style="dim"))
    return lines


def lint() -> None:
    """Find rules that are valid but probably wrong.

    Exit code 1: there are errors. Warnings and notes leave it at 0.
    """
    found = ask(lambda client: client.get("/v1/rules/lint", timeout=_LONG))
    counts = Counter(str(one["severity"]) for one in found["findings"])
    show(found, lambda _: _print_findings(found["findings"], counts))
    exit_unless_ok(FAILED if counts["error"] else OK)


def _print_findings(findings: Sequence[Json], counts: Counter[str]) -> None:
    order = list(SEVERITIES)
    rows = (
        (
            Text(str(one["severity"]), style=SEVERITIES[one["severity"]]),
            clean(one["team_id"] or ""),
            one_line(one["rule_name"] or "", 60),
            one_line(one["message"], 400) + meant_of(one),
        )
        for one in sorted(findings, key=lambda one: order.index(one["severity"]))
    )
    if findings:
        out().print(table("severity", "team", "rule", "what", rows=rows, keep=("severity", "team", "rule"), wrap=True))
    said = ", ".join(count_with_noun(counts[name], name) for name in order if counts[name])
    out().print(said or "no problems found", style="bold" if said else "green")


def backtest(
    *,
    last: Annotated[
        int | None, typer.Option(min=1, help=f"The number of messages, newest first; by default {NEWEST:,}.")
    ] = None,
    days: Annotated[float | None, typer.Option(min=0.01, help="The messages of this many days.")] = None,
    file: Annotated[Path | None, typer.Option(metavar="RULES", help="The rules to test: JSON or YAML.")] = None,
    rule: Annotated[str | None, typer.Option(metavar="ID", help="The rule to change; with --set.")] = None,
    changed: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="name, channel, priority, active, copy, reply_to_automatic, to, or filters.KEY.",
        ),
    ] = None,
) -> None:
    """Decide stored messages again by other rules: what would be routed differently?

    Nothing is written. Name the rules with --file RULES, or one changed rule with --rule ID --set FIELD=VALUE.
    """
    if (file is None) == (rule is None):
        raise typer.BadParameter(
            "name the rules to test with --file RULES, or one rule with --rule ID --set FIELD=VALUE"
        )
    if rule is not None:
        check_id(rule, "rule")
    span = _span_of(last, days)
    changes = [_with_ids(one) for one in changed or ()]

    async def work(client: Client) -> Json:
        if rule is None:
            return await replay(client, span | {"document": read_rules(file or Path())})
        present = (await client.get(f"/v1/rules/{await resolve_id(client, 'rule', rule)}"))["rule"]
        return await replay(client, span | {"changes": [changed_rule(present, changes)]})

    blast = ask(work)
    period = "" if days is None else f"of the last {days:g} days" if days != 1 else "of the last day"
    show(blast, lambda _: _print_blast(blast, period))


def _span_of(last: int | None, days: float | None) -> dict[str, object]:
    if last is not None and days is not None:
        raise typer.BadParameter("--last and --days exclude each other")
    return {"days": days} if days is not None else {} if last is None else {"last": last}


async def replay(client: Client, body: Mapping[str, object]) -> Json:
    """Follow the progress of a backtest; returns its result."""
    console = errors()
    columns = (TextColumn("deciding again"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)
        async for line in client.lines("/v1/rules/backtest", body):
            if result := line.get("result"):
                return dict(result)
            if seen := line.get("progress"):
                progress.update(task, completed=seen["looked_at"], total=seen["of"])
    raise Unavailable("the backtest ended without a result; try again", code="connection")


def _print_blast(blast: Json, period: str) -> None:
    for line in blast_lines({**blast, "examples": []}, period=period, dry_run=True):
        out().print(line, soft_wrap=True)
    rows = ((one["request_id"], receivers_of(one["before"]), receivers_of(one["after"])) for one in blast["examples"])
    if blast["examples"]:
        out().print(table("message", "current", "proposed", rows=rows, keep=("message", "current"), wrap=True))
    if (rest := int(blast["changed"]) - len(blast["examples"])) > 0:
        out().print(f"… and {rest:,} more", style="dim")


def changed_rule(rule: Json, changes: Sequence[str]) -> dict[str, object]:
    """A rule with `FIELD=VALUE` changes, for a backtest. Raises InvalidInput for unknown fields."""
    if not changes:
        raise InvalidInput("say what to change: --set priority=5", field="set")
    made: dict[str, object] = {"rule_id": rule["rule_id"]}
    filters, named = dict(rule["filters"]), dict[str, list[str]]()
    for word in changes:
        name, equals, value = word.partition("=")
        if equals and name.startswith("filters.") and name != "filters.":
            key = name.removeprefix("filters.")
            named.setdefault(key, []).extend([value] if value else [])
            kept = {name: value for name, value in filters.items() if name not in named}
            made["filters"] = kept | {name: any_of(values) for name, values in named.items() if values}
        elif equals and name in _SETTERS:
            field, read = _SETTERS[name]
            made[field] = read(value)
        else:
            raise InvalidInput(f"{word!r}: --set takes {', '.join(_SETTERS)} or filters.KEY, then = and a value")
    return made


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"priority={text!r} must be an integer", field="set") from None


def _read_truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidInput(f"{text!r} must be true or false", field="set")
    return text == "true"


def _read_targets(text: str) -> list[dict[str, str]]:
    return [{"system_id" if "/" in word else "team_id": word} for word in _split_words(text)]


def _split_words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _with_ids(change: str) -> str:
    """`to=accountant` as `to=System1/accountant`."""
    name, _, value = change.partition("=")
    if name != "to":
        return change
    return f"to={','.join(one.get('system_id') or one['team_id'] for one in targets(_split_words(value)))}"


_SETTERS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "name": ("name", str),
    "channel": ("channel", str),
    "priority": ("priority", _whole_number),
    "active": ("active", _read_truth),
    "copy": ("copy", _read_truth),
    "reply_to_automatic": ("reply_to_automatic", _read_truth),
    "to": ("targets", _read_targets),
}

COMMANDS: Final[tuple[tuple[str, Callable[..., None]], ...]] = (
    ("test", try_cases),
    ("lint", lint),
    ("backtest", backtest),
)
