"""`switchboard dlq`: dead letters, their reasons, and their handling.

Called by `cli/main.py`. In: options; out: requests. `views.py` shows the results. Next: the server's
`DeadLetterService`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

import typer
from msgspec import Struct

from switchboard.cli.client import Client, ask, ask_about_team
from switchboard.cli.dead_letters.views import dead_letter_table, print_dead_letter, print_outcome, print_rerouted
from switchboard.cli.ids import ask_about, check_id, resolve_id
from switchboard.cli.names import butler, targets
from switchboard.cli.output import FAILED, OK, Cursor, Json, exit_unless_ok, show, show_page
from switchboard.cli.rules.options import moment, pairs, reason_for, said_or_asked
from switchboard.cli.rules.views import count_with_noun
from switchboard.domain.json_values import JsonMapping, JsonObject

app = typer.Typer(
    help="Dead letters: messages that could not be delivered, why, and what to do with them.", no_args_is_help=True
)

_AT_ONCE: Final = 500

Id = Annotated[str, typer.Argument(help="The dead letter's id, or its first or last characters.", metavar="ID")]
Ids = Annotated[
    list[str] | None,
    typer.Argument(help="Ids of dead letters, or their first or last characters; none with --all.", metavar="ID"),
]
Team = Annotated[str | None, typer.Option(help="Only this team.")]
Category = Annotated[str | None, typer.Option(help="Only this category, such as no_route.")]
Channel = Annotated[str | None, typer.Option(help="Only messages of this channel.")]
System = Annotated[str | None, typer.Option(help="Only those of this butler, such as memo or System1/memo.")]
Since = Annotated[
    str | None,
    typer.Option(help="Only those created at this time or later, such as 2026-01-31 or 2026-01-31T12:00:00Z."),
]
Until = Annotated[str | None, typer.Option(help="Only those created before this time.")]
All = Annotated[bool, typer.Option("--all", help="All pending ones that match the other options.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; show what would happen.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="KEY[=VALUE]",
        help="With --rule, at least one: a filter; a key alone takes the value of the message.",
    ),
]
Priority = Annotated[int | None, typer.Option(help="With --rule: higher priorities are evaluated first.")]


@app.command("list")
def list_dead_letters(  # noqa: PLR0913 - the options of a command
    *,
    team: Team = None,
    in_state: Annotated[
        Literal["pending", "handled"], typer.Option("--state", help="Pending ones, or handled ones.")
    ] = "pending",
    every: Annotated[bool, typer.Option("--all", help="Both pending and handled ones.")] = False,
    category: Category = None,
    channel: Channel = None,
    system: System = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")] = 50,
    cursor: Cursor = None,
) -> None:
    """List dead letters: those that are still to be handled, unless --state or --all says otherwise."""
    asked = {"status": None if every else in_state, "category": category, "channel": channel, "limit": limit}
    asked |= {"since": moment(since, "--since"), "until": moment(until, "--until")}
    params = {**asked, "team_id": team, "system_id": system and butler(system), "cursor": cursor}
    page = ask(lambda client: ask_about_team(client, "/v1/dead-letters", params, "dead_letters"))
    again = {name: value for name, value in asked.items() if name != "status"}
    again |= {"team": team, "system": system} | ({"all": True} if every else {"state": in_state})
    show_page(page, dead_letter_table(page["dead_letters"]), "dlq list", **again)


@app.command("show")
def show_dead_letter(dead_letter_id: Id) -> None:
    """Show one dead letter with its message and who was notified."""
    dead_letter = ask_about(
        "dead_letter", dead_letter_id, lambda client, found: client.get(f"/v1/dead-letters/{found}")
    )
    show(dead_letter, print_dead_letter)


@app.command("reroute")
def reroute(  # noqa: PLR0913 - the options of a command
    ids: Ids = None,
    *,
    to: Annotated[
        str | None, typer.Option(help="A butler or a team; without it the current rules decide.", metavar="TARGET")
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option(help="The reason, required even with --yes; it is recorded.", metavar="TEXT"),
    ] = None,
    rule: Annotated[str | None, typer.Option(help="Also create a rule of this name.", metavar="NAME")] = None,
    filters: Keys = None,
    priority: Priority = None,
    team: Team = None,
    category: Category = None,
    channel: Channel = None,
    system: System = None,
    since: Since = None,
    until: Until = None,
    everything: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Reroute dead letters: to a butler, to a team, or by the current rules."""
    wanted = _select_letters(
        ids, everything, team_id=team, category=category, channel=channel, system_id=system, since=since, until=until
    )
    made = _rule_wish(rule, filters or (), priority)
    if made:
        _check_one_for_rule(ids, dry_run=dry_run)
    said: JsonObject = {"reason": reason_for(reason, dry_run=dry_run), **made}
    if to is not None:
        said["to"] = targets([to])[0]
    if ids and len(ids) == 1 and not dry_run:
        show(_settle_letter(ids[0], "reroute", said), print_rerouted)
        return
    _settle_many(
        _Many({"filter": wanted, "action": "reroute", **said}, "Reroute", "rerouted", dry_run, yes or bool(ids))
    )


@app.command("handle")
def handle(  # noqa: PLR0913 - the options of a command
    ids: Ids = None,
    *,
    resolution: Annotated[
        str | None,
        typer.Option(
            help="How it was resolved, required even with --yes; it is recorded.",
            metavar="TEXT",
        ),
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
) -> None:
    """Close dead letters that need no further action."""
    wanted = _select_letters(
        ids, everything, team_id=team, category=category, channel=channel, system_id=system, since=since, until=until
    )
    asked = ("How was it resolved?", "say how it was resolved", "--resolution")
    said = {"resolution": said_or_asked(resolution, *asked, dry_run=dry_run)}
    if ids and len(ids) == 1 and not dry_run:
        answer = _settle_letter(ids[0], "handle", said)
        closed = answer["dead_letter"]["dead_letter_id"]
        show(answer, f"{closed} {'was already closed' if answer['already'] else 'is closed'}")
        return
    _settle_many(_Many({"filter": wanted, "action": "handle", **said}, "Close", "closed", dry_run, yes or bool(ids)))


def _settle_letter(given: str, action: str, said: JsonMapping) -> Json:
    return ask_about(
        "dead_letter", given, lambda client, found: client.post(f"/v1/dead-letters/{found}/{action}", said)
    )


def _select_letters(ids: Sequence[str] | None, everything: bool, **filters: str | None) -> Json:
    """The selected letters: the named ones or, with --all, those that match the filters."""
    given = _filter_values(filters)
    if ids and (everything or given):
        raise typer.BadParameter("name dead letters, or use --all with filters, not both", param_hint="ID")
    if not ids and not everything:
        what = "this may match many: add --all" if given else "name dead letters, or use --all (with filters)"
        raise typer.BadParameter(what, param_hint="--all" if given else "ID")
    return {"ids": _full_ids(ids)} if ids else given


def _full_ids(ids: Sequence[str]) -> list[str]:
    for given in ids:
        check_id(given, "dead_letter")

    async def look(client: Client) -> list[str]:
        return [str(await resolve_id(client, "dead_letter", given)) for given in ids]

    return ask(look)


def _filter_values(filters: Mapping[str, str | None]) -> Json:
    given: Json = {name: value for name, value in filters.items() if value is not None}
    given |= {name: butler(given[name]) for name in ("system_id",) if name in given}
    return given | {name: moment(given[name], f"--{name}") for name in ("since", "until") if name in given}


def _check_one_for_rule(ids: Sequence[str] | None, *, dry_run: bool) -> None:
    if not ids or len(ids) != 1:
        raise typer.BadParameter("a rule is created from a single dead letter: name it", param_hint="--rule")
    if dry_run:
        raise typer.BadParameter(
            "to see the effect of a rule, use `switchboard rules create … --dry-run`; try the dead "
            "letter without --rule",
            param_hint="--rule",
        )


def _rule_wish(name: str | None, filters: Sequence[str], priority: int | None) -> Json:
    """`{"rule": …}` if a rule is wanted. Usage error for rule options without a rule, and for a rule with --all."""
    if name is None:
        if filters or priority is not None:
            option = "--filter" if filters else "--priority"
            raise typer.BadParameter("this is part of a rule: add --rule NAME", param_hint=option)
        return {}
    if not filters:
        raise typer.BadParameter(
            "without a filter, the rule would match every message of the channel: name what is special about this one, "
            "such as --filter sender",
            param_hint="--filter",
        )
    return {"rule": {"name": name, "filters": _read_filters(filters), "priority": priority or 0}}


def _read_filters(words: Sequence[str]) -> list[str] | dict[str, str | list[str]]:
    """Keys alone, or keys with values; a mixture would be ambiguous."""
    with_value = ["=" in word for word in words]
    if all(with_value):
        return pairs(words)
    if any(with_value):
        raise typer.BadParameter("either all with a value or all without", param_hint="--filter")
    return list(words)


class _Many(Struct, frozen=True):
    """The body of a bulk request, and the name of the operation."""

    body: JsonMapping
    verb: str
    done: str
    dry_run: bool
    yes: bool


def _settle_many(work: _Many) -> None:
    """Process page by page; letters that fail are reported and stay pending."""
    if not work.dry_run and not work.yes:
        _confirm_bulk(work)
    outcome = ask(lambda client: _all_pages(client, {**work.body, "dry_run": work.dry_run, "limit": _AT_ONCE}))
    show(outcome, lambda _: print_outcome(outcome, work.done))
    exit_unless_ok(FAILED if outcome["failed"] else OK)


def _confirm_bulk(work: _Many) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter("not a terminal: pass --yes, or --dry-run to look first", param_hint="--yes")
    look = {**work.body, "dry_run": True, "limit": 1}
    matched = ask(lambda client: client.post("/v1/dead-letters/bulk", look))["matched"]
    if matched and not typer.confirm(f"{work.verb} {count_with_noun(matched, 'dead letter')}?", err=True):
        raise typer.Exit(FAILED)


async def _all_pages(client: Client, body: JsonMapping) -> Json:
    """Merge all pages into one answer."""
    page = await client.post("/v1/dead-letters/bulk", body, timeout=300)
    whole = dict(page)
    while page["next_cursor"] is not None:
        page = await client.post("/v1/dead-letters/bulk", {**body, "cursor": page["next_cursor"]}, timeout=300)
        summed = {name: whole[name] + page[name] for name in ("done", "failed", "would") if name in page}
        whole = {**page, "matched": whole["matched"]} | summed
    return whole
