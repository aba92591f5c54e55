"""`switchboard rules versions|diff|restore|export|import`: past rules, and rules as files.

Called by `commands.py`, whose group these commands belong to. In: versions and files; out: differences, or changes
made. Next: `checks.py`, which tests a file before it is imported; the server's `RuleRecords`, for restore and import
its `RuleService`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from switchboard.cli.client import Client, ask
from switchboard.cli.output import Cursor, Json, one_line, out, print_json, show, show_page, table, wants_json, when
from switchboard.cli.reading import read_object, render_document, write_document
from switchboard.cli.rules.checks import print_outcomes
from switchboard.cli.rules.options import DryRun, File, Reason, read_rules, reason_for
from switchboard.cli.rules.views import change_lines, count_with_noun, show_edit, version_head
from switchboard.domain.errors import InvalidInput

Expected = Annotated[
    int | None, typer.Option("--expect", metavar="VERSION", help="Only if this version is still in force.")
]
Version = Annotated[int, typer.Argument(min=1, metavar="VERSION", help="A version, see `switchboard rules versions`.")]
_LONG: Final = 300.0
"""Seconds that a large import or restore may take."""


def versions(
    version: Annotated[
        int | None, typer.Argument(min=1, metavar="VERSION", help="Only this version, with its changes.")
    ] = None,
    *,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")] = 50,
    cursor: Cursor = None,
) -> None:
    """List the versions of the rules, the newest first: who, when, why."""
    if version is not None:
        show(ask(lambda client: client.get(f"/v1/rules/versions/{version}")), _print_version)
        return
    page = ask(lambda client: client.get("/v1/rules/versions", {"limit": limit, "cursor": cursor}))
    rows = (
        (v["version"], when(v["created_at"], short=True), v["author"], _count_text(v), one_line(v["reason"]))
        for v in page["versions"]
    )
    names = ("version", "since", "by", "changed", "why")
    show_page(page, table(*names, rows=rows, keep=names[:3]), "rules versions", limit=limit)


def _count_text(version: Json) -> str:
    """`3 rules`; `teams` if members or teams may also have changed."""
    count = int(version["changes"])
    words = [count_with_noun(count, "rule")] if count else []
    return ", ".join([*words, *(["teams"] if version["teams"] else [])])


def _print_version(found: Json) -> None:
    out().print(version_head(found), soft_wrap=True)
    _print_changes(found)


def diff(
    first: Version,
    second: Annotated[int | None, typer.Argument(min=1, metavar="VERSION", help="By default the one in force.")] = None,
) -> None:
    """Show the differences between two versions of the rules."""

    async def work(client: Client) -> Json:
        # Every list of rules names the version in force.
        last = (await client.get("/v1/rules", {"limit": 1}))["version"] if second is None else second
        return await client.get("/v1/rules/diff", {"from": first, "to": last}, timeout=_LONG)

    found = ask(work)
    head = Text(f"from version {found['from']} to version {found['to']}:", style="bold")
    show(found, head, _print_changes)


def _print_changes(found: Json) -> None:
    if not found["changes"]:
        out().print("no rule differs", style="dim")
    for line in change_lines(found["changes"]):
        out().print(line, soft_wrap=True)
    if (rest := int(found["changed"]) - len(found["changes"])) > 0:
        out().print(f"  … and {rest:,} more", style="dim")


def restore(
    version: Version,
    *,
    team: Annotated[str | None, typer.Option(help="Only the rules of this team.")] = None,
    expect: Expected = None,
    reason: Reason = None,
    dry_run: DryRun = False,
) -> None:
    """Restore the rules of a version.

    This makes a new version: nothing of the history is lost.
    """
    body = {"version": version, "team_id": team, "expected_version": expect, "dry_run": dry_run}
    _edit_rules("/v1/rules/restore", body | {"reason": reason_for(reason, dry_run=dry_run)})


def export(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="YAML if the suffix says so, otherwise JSON.")
    ] = None,
    *,
    team: Annotated[str | None, typer.Option(help="Only this team.")] = None,
    version: Annotated[int | None, typer.Option(min=1, help="As of this version; by default the one in force.")] = None,
) -> None:
    """Write the rules to a file, or to stdout."""
    params = {"team_id": team, "version": version}
    document = ask(lambda client: client.get("/v1/rules/export", params, timeout=_LONG))
    if file is not None:
        write_document(file, document)
    count = sum(len(rules) for rules in document["teams"].values())
    if wants_json():
        print_json(document if file is None else {"file": str(file), "version": document["version"], "rules": count})
    elif file is None:
        sys.stdout.write(render_document(document))
    else:
        are = "is" if count == 1 else "are"
        out().print(
            f"{count_with_noun(count, 'rule')} of version {document['version']} {are} in {file}", soft_wrap=True
        )


def import_rules(
    file: File,
    *,
    tests: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Cases that must pass with these rules, otherwise nothing is written."),
    ] = None,
    expect: Expected = None,
    reason: Reason = None,
    dry_run: DryRun = False,
) -> None:
    """Replace the rules of the teams in FILE.

    Teams that FILE does not name keep theirs. With --tests, cases are tried first, and nothing is written if one fails.
    """
    body: dict[str, object] = {"document": read_rules(file), "expected_version": expect, "dry_run": dry_run}
    if tests is not None:
        body["tests"] = read_object(tests)
    body["reason"] = reason_for(reason, dry_run=dry_run)
    _edit_rules("/v1/rules/import", body)


def _edit_rules(path: str, body: Mapping[str, object]) -> None:
    given = {name: value for name, value in body.items() if value is not None}
    try:
        answer = ask(lambda client: client.post(path, given, timeout=_LONG))
    except InvalidInput as error:
        if error.code == "route_tests_failed" and error.details and not wants_json():
            print_outcomes(error.details)
        raise
    show_edit(answer, dry_run=bool(given["dry_run"]))


COMMANDS: Final[tuple[tuple[str, Callable[..., None]], ...]] = (
    ("versions", versions),
    ("diff", diff),
    ("restore", restore),
    ("export", export),
    ("import", import_rules),
)
