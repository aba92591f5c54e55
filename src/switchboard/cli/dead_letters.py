"""`switchboard dlq`: dead letters, why they are dead, and what is done with them. Called by `main.py`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final
from uuid import UUID

import typer
from rich.text import Text

from switchboard.cli.client import Client, ask, part
from switchboard.cli.output import (
    FAILED,
    OK,
    AsJson,
    Json,
    clean,
    done,
    errors,
    more,
    one_line,
    out,
    print_json,
    state,
    table,
    when,
)
from switchboard.cli.rule_options import reason_for, targets

app = typer.Typer(help="Dead letters: what nobody could take, why, and what to do with it.", no_args_is_help=True)

_AT_ONCE: Final = 500
_SHOWN: Final = 20

Ids = Annotated[list[UUID] | None, typer.Argument(help="Dead letters; several, or none with --all.", metavar="[ID]...")]
Team = Annotated[str | None, typer.Option(help="Only of this team.")]
Category = Annotated[str | None, typer.Option(help="Only of this category, such as no_route.")]
Channel = Annotated[str | None, typer.Option(help="Only of messages of this channel.")]
System = Annotated[str | None, typer.Option(help="Only what this butler could not take, such as System1/memo.")]
Since = Annotated[str | None, typer.Option(help="Only what died then or later, such as 2026-01-31T12:00:00Z.")]
Until = Annotated[str | None, typer.Option(help="Only what died before.")]
All = Annotated[bool, typer.Option("--all", help="All pending ones that the other options leave.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Do nothing; say what would come of it.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before many are touched.")]
Keys = Annotated[
    list[str] | None,
    typer.Option("--filter", metavar="KEY[=VALUE]", help="Of --rule: must be equal; the value is the message's own."),
]


@app.command("list")
def list_letters(  # noqa: PLR0913 - the options of a command
    *,
    team: Team = None,
    status: Annotated[str | None, typer.Option(help="Only these: pending or handled.")] = None,
    category: Category = None,
    channel: Channel = None,
    system: System = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most so many.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on after this point.")] = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters."""
    asked = {"status": status, "category": category, "channel": channel, "since": since, "until": until, "limit": limit}
    page = ask(
        lambda client: client.get("/v1/dead-letters", {**asked, "team_id": team, "system_id": system, "cursor": cursor})
    )
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
        again = more("dlq list", cursor=page["next_cursor"], team=team, system=system, **asked)
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


@app.command("reroute")
def reroute(  # noqa: PLR0913 - the options of a command
    ids: Ids = None,
    *,
    to: Annotated[
        str | None, typer.Option(help="System1/NAME or a team; without it the rules of now decide.", metavar="TARGET")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why; it stays on record.", metavar="TEXT")] = None,
    rule: Annotated[str | None, typer.Option(help="Make a rule of this name of it.", metavar="NAME")] = None,
    filters: Keys = None,
    team: Team = None,
    category: Category = None,
    channel: Channel = None,
    system: System = None,
    since: Since = None,
    until: Until = None,
    everything: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Send dead letters on: to a butler, to a team, or by the rules of now."""
    wanted = _wanted(
        ids, everything, team_id=team, category=category, channel=channel, system_id=system, since=since, until=until
    )
    said: dict[str, Any] = {"reason": reason_for(reason, dry_run=dry_run)}
    if to is not None:
        said["to"] = targets([to])[0]
    if rule is None and filters:
        raise typer.BadParameter("only a rule has filters: --rule NAME", param_hint="--filter")
    if rule is not None:
        if not ids or len(ids) != 1 or dry_run:
            raise typer.BadParameter("a rule is made of one dead letter, for good", param_hint="--rule")
        said["rule"] = {"name": rule, "filters": _filters(filters or ())}
    if ids and len(ids) == 1 and not dry_run:
        _print_rerouted(ask(lambda client: client.post(_path(ids[0], "reroute"), said)), as_json=as_json)
        return
    _many(_Many({"filter": wanted, "action": "reroute", **said}, "reroute", dry_run, yes or bool(ids)), as_json=as_json)


@app.command("handle")
def handle(  # noqa: PLR0913 - the options of a command
    ids: Ids = None,
    *,
    resolution: Annotated[
        str | None, typer.Option(help="How it was settled; it stays on record.", metavar="TEXT")
    ] = None,
    team: Team = None,
    category: Category = None,
    channel: Channel = None,
    system: System = None,
    since: Since = None,
    until: Until = None,
    everything: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Close dead letters with which nothing more is to be done."""
    wanted = _wanted(
        ids, everything, team_id=team, category=category, channel=channel, system_id=system, since=since, until=until
    )
    if resolution is None and not dry_run:
        raise typer.BadParameter("say how it was settled: --resolution TEXT", param_hint="--resolution")
    said = {"resolution": resolution or "dry run"}
    if ids and len(ids) == 1 and not dry_run:
        answer = ask(lambda client: client.post(_path(ids[0], "handle"), said))
        if as_json:
            print_json(answer)
        else:
            out().print(f"{ids[0]} {'was closed before' if answer['already'] else 'is closed'}")
        return
    _many(_Many({"filter": wanted, "action": "handle", **said}, "close", dry_run, yes or bool(ids)), as_json=as_json)


def _path(dead_letter_id: UUID, action: str) -> str:
    return f"/v1/dead-letters/{part(dead_letter_id)}/{action}"


def _wanted(ids: Sequence[UUID] | None, everything: bool, **filters: str | None) -> Json:
    """Which letters are meant: those named, or with --all those of the filters."""
    given: Json = {name: value for name, value in filters.items() if value is not None}
    if bool(ids) == (everything or bool(given)):
        raise typer.BadParameter("name dead letters, or say --all (with filters)", param_hint="ID")
    if not ids and not everything:
        raise typer.BadParameter("that may be many: say --all too", param_hint="--all")
    return {"ids": [str(one) for one in ids]} if ids else given


def _filters(words: Sequence[str]) -> list[str] | dict[str, str]:
    """Keys alone, or keys with values; not both, for then it is not clear what was meant."""
    split = [word.partition("=") for word in words]
    if not any(equals for _, equals, _ in split):
        return [key for key, _, _ in split]
    if not all(equals for _, equals, _ in split):
        raise typer.BadParameter("either all with a value or all without", param_hint="--filter")
    return {key: value for key, _, value in split}


def _print_rerouted(answer: Json, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    to = ", ".join(delivery["system_id"] for delivery in answer["deliveries"])
    letter = answer["dead_letter"]
    was = "was sent on before" if answer["already"] else "is sent on"
    out().print(f"{letter['dead_letter_id']} {was} to {clean(to)} (decision {answer['decision_n']})", soft_wrap=True)
    if answer.get("rule"):
        rule = answer["rule"]["rule"]
        out().print(f"rule {clean(rule['name'])} of team {clean(rule['team_id'])}: {rule['rule_id']}", soft_wrap=True)


@dataclass(frozen=True, slots=True)
class _Many:
    """One body for many letters, and what it is called."""

    body: Mapping[str, Any]
    verb: str
    dry_run: bool
    yes: bool


def _many(work: _Many, *, as_json: bool) -> None:
    """Do it page by page; letters that fail are told and stay pending."""
    if not work.dry_run and not work.yes:
        _confirm(work)
    outcome = ask(lambda client: _all_pages(client, {**work.body, "dry_run": work.dry_run, "limit": _AT_ONCE}))
    if as_json:
        print_json(outcome)
    else:
        _print_outcome(outcome, work)
    done(FAILED if outcome["failed"] else OK)


def _confirm(work: _Many) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter("nobody can be asked here: say --yes, or look with --dry-run", param_hint="--yes")
    look = {**work.body, "dry_run": True, "limit": 1}
    matched = ask(lambda client: client.post("/v1/dead-letters/bulk", look))["matched"]
    if not typer.confirm(f"{work.verb.capitalize()} {matched} dead letters?", err=True):
        raise typer.Exit(FAILED)


async def _all_pages(client: Client, body: Mapping[str, Any]) -> Json:
    """All pages as one answer."""
    page = await client.post("/v1/dead-letters/bulk", body, timeout=300)
    whole = dict(page)
    while page["next_cursor"] is not None:
        page = await client.post("/v1/dead-letters/bulk", {**body, "cursor": page["next_cursor"]}, timeout=300)
        whole = {**page, "matched": whole["matched"]} | {name: whole[name] + page[name] for name in ("done", "failed")}
    return whole


def _print_outcome(outcome: Json, work: _Many) -> None:
    count, failed = outcome["done"], outcome["failed"]
    would = "would " if work.dry_run else ""
    out().print(f"{would}{work.verb}: {count} of {outcome['matched']}, {len(failed)} stay pending")
    for failure in failed[:_SHOWN]:
        errors().print(f"{failure['dead_letter_id']}: {one_line(failure['error'], 300)}", soft_wrap=True)
    if len(failed) > _SHOWN:
        errors().print(f"and {len(failed) - _SHOWN} more")


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
    if letter["status"] == "handled":
        rows += [("handled", f"{when(letter['handled_at'])} by {letter['handled_by_system_id']}")]
        rows += [("resolution", letter["resolution"])]
    rows += [("sent on to", one["system_id"]) for one in letter.get("rerouted_to", [])]
    rows += [("notice", f"{n.get('system_id')}: {n.get('state')}") for n in letter.get("notices", [])]
    console = out()
    console.print(table("", "", rows=rows, wrap=True))
    text = (letter.get("payload") or {}).get("payload", {}).get("normalized_text", "")
    console.print(Text("\n" + clean(text)))
