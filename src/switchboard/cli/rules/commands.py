"""`switchboard rules`: shows and edits rules at run time.

Called by `cli/main.py`. In: options; out: a table, or the effect of an edit. A change is in force within a second of
the answer. Next: `history.py` (versions, export, import) and `checks.py` (tests, lint, backtest), whose commands belong
to the same group; the server's `RuleService`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final
from uuid import UUID

import typer
from rich.text import Text

from switchboard.cli.client import Client, ask, ask_about_team
from switchboard.cli.ids import ask_about
from switchboard.cli.names import targets
from switchboard.cli.output import Cursor, Json, out, show, show_page, table, wants_json, when
from switchboard.cli.rules import checks as rule_checks
from switchboard.cli.rules import history as rule_history
from switchboard.cli.rules.options import DryRun, Reason, RuleId, pairs, reason_for
from switchboard.cli.rules.views import change_lines, filters_of, rule_table, show_edit, targets_of, version_head
from switchboard.domain.errors import Conflict, NotFound

app = typer.Typer(help="Rules: list, edit, test and restore them.", no_args_is_help=True)

_PAGE: Final = 500
_COPY: Final = "Also deliver to its targets, whatever rule decides."
_AUTOMATIC: Final = "Let its targets reply to automatic mail."

Filters = Annotated[
    list[str] | None,
    typer.Option("--filter", metavar="KEY=VALUE", help="A filter; repeat it for each key and value."),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--to",
        metavar="TARGET",
        help="A butler or the System4 of the team, or a direct sub-team.",
    ),
]
Copy = Annotated[
    bool | None,
    typer.Option("--copy/--no-copy", help=_COPY, show_default=False),
]
Automatic = Annotated[
    bool | None,
    typer.Option(
        "--reply-to-automatic/--no-automatic",
        help=_AUTOMATIC,
        show_default=False,
    ),
]
Priority = Annotated[int | None, typer.Option(help="Higher priorities are evaluated first; 0 by default.")]


@app.command("list")
def list_rules(
    *,
    team: Annotated[str | None, typer.Option(help="Only this team.")] = None,
    source: Annotated[str | None, typer.Option(help="Only those registered by this source, such as sop:NAME.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=_PAGE, help="Maximum number.")] = 200,
    cursor: Cursor = None,
) -> None:
    """List rules, team by team in evaluation order.

    If they do not fit on one page, the pages are sorted by age.
    """
    params = {"team_id": team, "source": source, "limit": limit, "cursor": cursor}
    page = ask(lambda client: ask_about_team(client, "/v1/rules", params, "rules"))
    shown = rule_table(page["rules"], sort=cursor is None and not page["next_cursor"])
    show_page(page, shown, "rules list", limit=limit, team=team, source=source)


@app.command("show")
def show_rule(rule_id: RuleId) -> None:
    """Show one rule with its history."""
    found = ask_about("rule", rule_id, lambda client, meant: client.get(f"/v1/rules/{meant}"))
    rule, history = found["rule"], found["history"]
    rows: list[tuple[object, object]] = [("id", rule["rule_id"]), ("team", rule["team_id"]), ("name", rule["name"])]
    rows += [("channel", rule["channel"]), ("filters", filters_of(rule) or "none"), ("to", targets_of(rule))]
    state = "removed" if _was_removed(history) else "on" if rule["active"] else "off"
    rows += [("priority", rule["priority"]), ("state", state)]
    rows += [("copy", "yes: it also delivers, and never decides")] if rule["copy"] else []
    rows += [("automatic mail", "gets its replies")] if rule["reply_to_automatic"] else []
    rows += [("source", rule["source"])] if rule["source"] else []
    rows += [("created", f"{when(rule['created_at'])} by {rule['created_by'] or 'unknown'}")]
    rows += [("version", rule["version"])]
    show(found, table("", "", rows=rows, wrap=True), _print_history)


def _print_history(found: Json) -> None:
    for entry in found["history"]:
        out().print(Text("\n").append_text(version_head(entry)), soft_wrap=True)
        for line in change_lines([entry]):
            out().print(line, soft_wrap=True)


@app.command("create")
def create(  # noqa: PLR0913 - the options of a command
    *,
    team: Annotated[str, typer.Option(help="The team that owns the rule.")],
    name: Annotated[str, typer.Option(help="Its name, for people.")],
    channel: Annotated[str, typer.Option(help="The channel, or * for all.")],
    to: Targets,
    filters: Filters = None,
    priority: Priority = None,
    copy: Annotated[bool, typer.Option("--copy", help=_COPY)] = False,
    automatic: Annotated[bool, typer.Option("--reply-to-automatic", help=_AUTOMATIC)] = False,
    reason: Reason = None,
    dry_run: DryRun = False,
) -> None:
    """Create a rule. It takes effect within a second."""
    written = {"team_id": team, "name": name, "channel": channel, "priority": priority or 0}
    written |= {"filters": pairs(filters or ()), "targets": targets(to or ())}
    written |= {"copy": copy, "reply_to_automatic": automatic}
    body = written | {"reason": reason_for(reason, dry_run=dry_run), "dry_run": dry_run}
    answer = ask(lambda client: client.post("/v1/rules", body))
    show_edit(answer, [{"before": None, "after": answer["rule"]}], dry_run=dry_run)
    if not dry_run and not wants_json():
        out().print(f"its id is {answer['rule']['rule_id']}", style="dim")


@app.command("update")
def update(  # noqa: PLR0913 - the options of a command
    rule_id: RuleId,
    *,
    name: Annotated[str | None, typer.Option(help="Its name, for people.")] = None,
    channel: Annotated[str | None, typer.Option(help="The channel, or * for all.")] = None,
    to: Targets = None,
    filters: Filters = None,
    no_filters: Annotated[bool, typer.Option("--no-filters", help="Remove all filters.")] = False,
    priority: Priority = None,
    copy: Copy = None,
    automatic: Automatic = None,
    version: Annotated[
        int | None, typer.Option(help="The version of the rule that you have seen; by default the current one.")
    ] = None,
    reason: Reason = None,
    dry_run: DryRun = False,
) -> None:
    """Change a rule; omitted options stay unchanged.

    --filter and --to replace the whole list. A rule that somebody else has changed meanwhile is a conflict.
    """
    if filters and no_filters:
        raise typer.BadParameter("either --filter or --no-filters, not both", param_hint="--no-filters")
    patch: dict[str, object] = {"name": name, "channel": channel, "priority": priority}
    patch |= {"copy": copy, "reply_to_automatic": automatic}
    patch |= {"filters": {} if no_filters else pairs(filters) if filters else None}
    patch |= {"targets": targets(to) if to else None}
    given = {key: value for key, value in patch.items() if value is not None}
    if not given:
        raise typer.BadParameter("say what to change, such as --priority 5; see --help")
    body = given | {"reason": reason_for(reason, dry_run=dry_run), "dry_run": dry_run}
    _change_rule(rule_id, body, version)


@app.command("disable")
def disable(rule_id: RuleId, *, reason: Reason = None, dry_run: DryRun = False) -> None:
    """Disable a rule; it is kept, and can be enabled again."""
    _switch_rule(rule_id, reason, active=False, dry_run=dry_run)


@app.command("enable")
def enable(rule_id: RuleId, *, reason: Reason = None, dry_run: DryRun = False) -> None:
    """Enable a disabled rule."""
    _switch_rule(rule_id, reason, active=True, dry_run=dry_run)


@app.command("delete")
def delete(rule_id: RuleId, *, reason: Reason = None, dry_run: DryRun = False) -> None:
    """Delete a rule; restoring the previous version brings it back."""
    said = reason_for(reason, dry_run=dry_run)

    async def work(client: Client, meant: UUID) -> Json:
        found = await client.get(f"/v1/rules/{meant}")
        _refuse_removed(found["rule"], found["history"])
        seen = {"version": str(found["rule"]["version"]), "reason": said, "dry_run": str(dry_run).lower()}
        return await client.delete(f"/v1/rules/{meant}", seen)

    answer = ask_about("rule", rule_id, work)
    show_edit(answer, dry_run=dry_run)


def _switch_rule(rule_id: str, reason: str | None, *, active: bool, dry_run: bool) -> None:
    body = {"active": active, "reason": reason_for(reason, dry_run=dry_run), "dry_run": dry_run}
    _change_rule(rule_id, body, None)


def _change_rule(rule_id: str, body: Mapping[str, object], version: int | None) -> None:
    async def work(client: Client, meant: UUID) -> tuple[Json, Json]:
        found = await client.get(f"/v1/rules/{meant}")
        before = found["rule"]
        _refuse_removed(before, found["history"])
        if version is not None and version > before["version"]:
            raise Conflict(f"rule {before['name']!r} never had version {version}; its version is {before['version']}")
        seen = before["version"] if version is None else version
        return before, await client.patch(f"/v1/rules/{meant}", {**body, "version": seen})

    before, answer = ask_about("rule", rule_id, work)
    changes = [{"before": before, "after": answer["rule"]}] if answer["fresh"] else []
    show_edit(answer, changes, dry_run=bool(body["dry_run"]))


def _refuse_removed(rule: Json, history: Sequence[Json]) -> None:
    if not _was_removed(history):
        return
    last = history[0]["version"]
    raise NotFound(
        f"rule {rule['name']!r} was removed in version {last}; restore it with "
        f"`switchboard rules restore {last - 1} --team {rule['team_id']}`"
    )


def _was_removed(history: Sequence[Json]) -> bool:
    """Whether the rule was last removed by an import or a restore."""
    return bool(history) and history[0]["after"] is None


for _name, _command in (*rule_checks.COMMANDS, *rule_history.COMMANDS):
    app.command(_name)(_command)
