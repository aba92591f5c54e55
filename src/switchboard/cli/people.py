"""`switchboard people`: which handles are one person. Called by `main.py`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from switchboard.cli.client import ask, part
from switchboard.cli.exporting import write_export
from switchboard.cli.output import FAILED, Cursor, Json, clean, details, exit_unless_ok, show, show_page, table, when

app = typer.Typer(
    help="Who is who: list, show or add persons; link handles; export or erase what is kept.", no_args_is_help=True
)

PersonId = Annotated[str, typer.Argument(help="The person's id, such as ann.", metavar="PERSON")]
Channel = Annotated[str, typer.Argument(help="The channel, such as telegram.")]
Identity = Annotated[
    str, typer.Argument(help="The platform's id of the person, as `messages show` has it; of mail, the address.")
]
Endpoint = Annotated[
    str | None, typer.Option(help="The endpoint, where an identity means somebody at one only, as in Slack.")
]
Limit = Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")]


@app.command("list")
def list_people(*, limit: Limit = 100, cursor: Cursor = None) -> None:
    """List persons by id, with their groups and handles."""
    found = ask(lambda client: client.get("/v1/people", {"limit": limit, "cursor": cursor}))
    rows = (
        (one["person_id"], one["name"], ", ".join(one["groups"]), ", ".join(map(_handle_text, one["handles"])))
        for one in found["people"]
    )
    show_page(found, table("id", "name", "groups", "handles", rows=rows, keep=("id",)), "people list", limit=limit)


@app.command("show")
def show_person(person: PersonId) -> None:
    """Show one person."""
    _show_answer(ask(lambda client: client.get(f"/v1/people/{part(person)}")))


@app.command("add")
def add(
    person: Annotated[
        str, typer.Argument(help="The id: lower-case letters, digits and -. It never changes.", metavar="PERSON")
    ],
    name: Annotated[str | None, typer.Option(help="What people call them; the id if it is not given.")] = None,
) -> None:
    """Add a person, without handles and groups."""
    body = {"person_id": person, "name": name or person}
    answer = ask(lambda client: client.post("/v1/people", body))
    show(
        answer, f"{clean(person)}: added; link handles with `switchboard people link {clean(person)} CHANNEL IDENTITY`"
    )


@app.command("rename")
def rename(person: PersonId, name: Annotated[str, typer.Argument(help="What people call them from now on.")]) -> None:
    """Change the name of a person; the id stays."""
    answer = ask(lambda client: client.post(f"/v1/people/{part(person)}/rename", {"name": name}))
    show(answer, f"{clean(person)}: is called {clean(name)} now")


@app.command("link")
def link(person: PersonId, channel: Channel, identity: Identity, *, endpoint: Endpoint = None) -> None:
    """Say that a handle is this person. It lets nobody in: see `switchboard pairing`."""
    body = {"channel": channel, "identity": identity, "endpoint": endpoint}
    answer = ask(lambda client: client.post(f"/v1/people/{part(person)}/link", body))
    proves = any(one["proves"] for one in answer["person"]["handles"] if one["channel"] == channel)
    only = "" if proves else f"\nonly listed: on {clean(channel)} whoever writes chooses the name, which proves nothing"
    show(answer, f"{clean(identity)} of {clean(channel)} is {clean(person)}{only}")


@app.command("unlink")
def unlink(person: PersonId, channel: Channel, identity: Identity, *, endpoint: Endpoint = None) -> None:
    """Say that a handle is this person no longer."""
    body = {"channel": channel, "identity": identity, "endpoint": endpoint}
    answer = ask(lambda client: client.post(f"/v1/people/{part(person)}/unlink", body))
    show(answer, f"{clean(identity)} of {clean(channel)} is {clean(person)} no longer")


@app.command("group")
def group(
    person: PersonId,
    groups: Annotated[list[str] | None, typer.Argument(help="All groups of the person; none: they leave all.")] = None,
) -> None:
    """Put a person in these groups, and in no others."""
    answer = ask(lambda client: client.put(f"/v1/people/{part(person)}/groups", {"groups": groups or []}))
    found = ", ".join(answer["person"]["groups"])
    show(answer, f"{clean(person)}: in {found}" if found else f"{clean(person)}: in no group")


@app.command("remove")
def remove(person: PersonId) -> None:
    """Remove a person; their handles are nobody's then, and nothing that was said is erased."""
    answer = ask(lambda client: client.delete(f"/v1/people/{part(person)}"))
    show(answer, f"{clean(person)}: removed")


@app.command("export")
def export(
    person: PersonId,
    to: Annotated[Path, typer.Option("--to", help="The new directory: people.jsonl, originals and files.")],
) -> None:
    """Write everything that is kept of a person into a directory that only you can read."""
    if to.exists():
        raise typer.BadParameter(f"{to} is there already; name a new directory", param_hint="--to")
    to.mkdir(mode=0o700)
    try:
        count, files = ask(lambda client: write_export(client, person, to))
    except BaseException:
        shutil.rmtree(to)  # half of it would be taken for all
        raise
    told = {"person_id": person, "exported": count, "files": files, "directory": str(to)}
    show(told, f"{clean(person)}: {count} things and {files} files are in {to}")


@app.command("erase")
def erase(
    person: PersonId,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how much there is.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Erase what a person said and what was learned from it, under all handles that are linked now. It is final."""
    if not (dry_run or yes):
        _confirm_erasure(person)
    _show_erasure(_request_erasure(person, dry_run=dry_run), dry_run=dry_run)


def _request_erasure(person: str, *, dry_run: bool) -> Json:
    path, body = f"/v1/people/{part(person)}/erase", {"dry_run": dry_run}
    return ask(lambda client: client.post(path, body, timeout=3600.0))


def _confirm_erasure(person: str) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter("not a terminal: look with --dry-run, then pass --yes", param_hint="--yes")
    shown = _request_erasure(person, dry_run=True)["erasure"]
    files = f", and {_workspaces_text(shown)}," if shown["workspaces"] else ""
    if not typer.confirm(f"Erase {_counts_text(shown)}{files} of {clean(person)} for good?", err=True):
        exit_unless_ok(FAILED)


def _show_erasure(answer: Json, *, dry_run: bool) -> None:
    found, verb = answer["erasure"], "would erase" if dry_run else "erased"
    lines = [f"{clean(found['person_id'])}: {verb} {_counts_text(found)}"]
    if found["open"]:
        lines.append(f"{found['open']} messages are worked on, or are dead letters: erase again when they have ended")
    lines += _file_lines(found, dry_run=dry_run)
    lines.append("Not erased by this:")
    lines += [f"- {one}" for one in found["out_of_reach"]]
    show(answer, "\n".join(lines))


def _file_lines(found: Json, *, dry_run: bool) -> list[str]:
    lines = [f"{'would empty' if dry_run else 'empties'} {_workspaces_text(found)}"] if found["workspaces"] else []
    if found["pending"] and not dry_run:
        lines.append("Workers remove files within a minute, or when they run again; not done yet:")
        lines += [f"- {_disk_text(one)}" for one in found["pending"]]
    return lines


def _workspaces_text(found: Json) -> str:
    return f"the workspaces of butlers who worked for nobody else: {clean(', '.join(found['workspaces']))}"


def _disk_text(disk: Json) -> str:
    problem = "" if disk["problem"] is None else f": {clean(disk['problem'])}"
    return f"{clean(disk['host'])}, last seen {when(disk['seen_at'])}{problem}"


def _counts_text(found: Json) -> str:
    """What there is of it, such as “3 messages, 1 facts”."""
    return ", ".join(f"{one['count']} {one['kept_in']}" for one in found["erased"] if one["count"]) or "nothing"


def _show_answer(answer: Json) -> None:
    person = answer["person"]
    rows: list[tuple[str, object]] = [("id", person["person_id"]), ("name", person["name"])]
    rows += [("groups", ", ".join(person["groups"])), ("since", when(person["created_at"]))]
    rows += [("handle", _handle_line(one)) for one in person["handles"]]
    show(answer, details(rows))


def _handle_line(handle: Json) -> str:
    only = "" if handle["proves"] else "; only listed, it proves nothing"
    return f"{_handle_text(handle)}  (linked by {handle['linked_by']}, {when(handle['linked_at'])}{only})"


def _handle_text(handle: Json) -> str:
    account = handle["channel"] if handle["endpoint"] is None else f"{handle['channel']}/{handle['endpoint']}"
    return f"{account}:{handle['identity']}"
