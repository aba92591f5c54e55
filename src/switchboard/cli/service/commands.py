"""`switchboard service`: install, show and remove the unit of systemd. Called by `cli/main.py`.

Nothing is switched on or made to linger: what to do next is printed. Next: `planning.py`, `unit.py`, `systemd.py`.
"""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Annotated

import typer

from switchboard.cli.output import Json, errors, out, show, wants_json
from switchboard.cli.service import systemd
from switchboard.cli.service.planning import ServicePlan, Wanted, plan_service, unit_file
from switchboard.cli.service.unit import NAME, is_unchanged, unit_text
from switchboard.domain.errors import ConfigurationError

app = typer.Typer(help="Run as a service of systemd: install, show or remove its unit.", no_args_is_help=True)

Directory = Annotated[
    Path | None,
    typer.Option(
        help="Where the unit file is; by default where systemd reads those of the system or the user.", file_okay=False
    ),
]


@app.command("install")
def install(  # noqa: PLR0913 - one parameter per option
    *,
    user: Annotated[str | None, typer.Option(help="As root: the existing account that runs the service.")] = None,
    create_user: Annotated[str | None, typer.Option(help="As root: the account to make for the service.")] = None,
    credential: Annotated[
        list[str] | None, typer.Option(help="NAME=FILE: a secret that the service reads as a credential; repeatable.")
    ] = None,
    watchdog: Annotated[bool, typer.Option("--watchdog", help="Restart it when it hangs for a minute.")] = False,
    directory: Directory = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written, and write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a unit file of others, or an edited one.")] = False,
) -> None:
    """Write the unit for the installation in this directory; it is not started yet.

    As a user it is one of yours, as root one of the system, which runs as another account.
    """
    if user is not None and create_user is not None:
        raise typer.BadParameter("name an existing account or one to make, not both", param_hint="--create-user")
    account = user or create_user
    plan = plan_service(Wanted(account, create_user is not None, credential or (), watchdog, directory))
    text = unit_text(plan.unit)
    found = {**_plan_as_json(plan), "text": text, "written": not dry_run}
    if not wants_json():
        _print_plan(plan, text if dry_run else None)
    _require_unedited(plan.file, text, force=force)
    replaced = plan.file.exists()
    if not dry_run:
        _write_unit(plan, text)
        if directory is None and systemd.why_none() is None and (trouble := systemd.control("daemon-reload")):
            errors().print(f"systemctl daemon-reload: {trouble}", style="yellow")
    steps = list(_next_steps(plan, replaced=replaced))
    found["next"] = steps
    show(found, *([] if dry_run else [f"written: {plan.file}"]), *(f"next: {line}" for line in steps))


@app.command("status")
def show_status(*, directory: Directory = None) -> None:
    """Show the unit file, and what systemd says about the service."""
    file, why = unit_file(directory), systemd.why_none()
    found: Json = {
        "unit": str(file),
        "installed": file.is_file(),
        "unchanged": file.is_file() and is_unchanged(file.read_text(encoding="utf-8", errors="replace")),
        "systemd": why is None,
        "reason": why,
        "state": dict(systemd.unit_state()) if why is None else {},
        "lingers": None if os.geteuid() == 0 else systemd.lingers(getpass.getuser()),
    }
    show(found, *_status_lines(found))


@app.command("remove")
def remove(
    *,
    directory: Directory = None,
    force: Annotated[bool, typer.Option("--force", help="Remove also an edited unit file, or one of others.")] = False,
) -> None:
    """Stop the service and remove its unit. Data, settings, workspaces and accounts of users stay."""
    file = unit_file(directory)
    if not os.path.lexists(file):
        show({"unit": str(file), "removed": False}, f"{file} is not there; nothing to remove")
        return
    _require_unedited(file, None, force=force)
    runs = directory is None and systemd.why_none() is None
    if runs and (trouble := systemd.control("disable", "--now", NAME)):
        raise ConfigurationError(f"the service could not be stopped, and nothing was removed: {trouble}")
    file.unlink()
    if runs and (trouble := systemd.control("daemon-reload")):
        errors().print(f"systemctl daemon-reload: {trouble}", style="yellow")
    show({"unit": str(file), "removed": True}, f"removed: {file}; data and settings stay")


def _require_unedited(file: Path, text: str | None, *, force: bool) -> None:
    """Raise ConfigurationError, after the difference, for a unit file that we did not write or that was edited."""
    if force or not os.path.lexists(file):
        return
    there = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    if file.is_file() and not file.is_symlink() and (is_unchanged(there) or there == text):
        return
    if text is not None:
        lines = unified_diff(there.splitlines(), text.splitlines(), str(file), "new", lineterm="")
        errors().print("\n".join(lines), soft_wrap=True)
    verb = "remove" if text is None else "replace"
    raise ConfigurationError(f"{file} was written or edited by others, and stays as it is; use --force to {verb} it")


def _write_unit(plan: ServicePlan, text: str) -> None:
    """The account, the directories, and last the unit."""
    owner = (plan.owner.uid, plan.owner.gid) if plan.owner else None
    if plan.new_account and plan.owner is None:
        owner = _make_account(plan.new_account, plan.unit.data_dir)
    for place in plan.directories:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if owner is not None:
            _hand_over(place, *owner)
    plan.file.parent.mkdir(parents=True, exist_ok=True)
    draft = plan.file.with_name(f".{NAME}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(0o644)
    draft.replace(plan.file)


def _hand_over(place: Path, uid: int, gid: int) -> None:
    """Not through a link, which the account may have put there meanwhile. Raises OSError."""
    directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchown(directory, uid, gid)
    finally:
        os.close(directory)


def _make_account(name: str, home: Path) -> tuple[int, int]:
    """A user and a group of the system without a login. Raises ConfigurationError with what `useradd` said."""
    program = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        raise ConfigurationError(f"there is no useradd; make the account {name} another way, and name it with --user")
    no_login = ("--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin")
    command = [program, *no_login, "--home-dir", str(home), "--", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ConfigurationError(f"the account {name} could not be made: {done.stderr.strip()}")
    made = pwd.getpwnam(name)
    return made.pw_uid, made.pw_gid


def _plan_as_json(plan: ServicePlan) -> Json:
    unit = plan.unit
    return {
        "unit": str(plan.file),
        "user": unit.account or getpass.getuser(),
        "new_account": plan.new_account if plan.owner is None else None,
        "program": str(unit.program),
        "settings_directory": str(unit.directory),
        "data_dir": str(unit.data_dir),
        "writable": [str(place) for place in (unit.data_dir, *unit.writable)],
        "made": [str(place) for place in plan.directories],
        "credentials": {name: str(file) for name, file in unit.credentials.items()},
        "notes": list(plan.notes),
    }


def _print_plan(plan: ServicePlan, text: str | None) -> None:
    """What will be written, before it is."""
    for name, value in _plan_as_json(plan).items():
        if value and name not in {"notes", *(["writable"] if plan.unit.account is None else [])}:
            said = ", ".join(map(str, value)) if isinstance(value, list | dict) else value
            label = "to be made" if name == "made" else name.replace("_", " ")
            out().print(f"{label}: {said}", soft_wrap=True)
    for note in plan.notes:
        errors().print(f"note: {note}", style="yellow", soft_wrap=True)
    if text is not None:
        sys.stdout.write(f"\n{text}\n")


def _next_steps(plan: ServicePlan, *, replaced: bool) -> Iterator[str]:
    """What remains for the operator: starting it, and for a user's service that it runs without a session."""
    if why := systemd.why_none():
        yield f"{why}; the unit is for where it does"
    if plan.unit.account is None:
        yield f"systemctl --user {'restart' if replaced else 'enable --now'} {NAME}"
        user = getpass.getuser()
        if not systemd.lingers(user):
            yield f"loginctl enable-linger {user}   # else it ends when you log out"
    else:
        yield f"systemctl {'restart' if replaced else 'enable --now'} {NAME}"
        yield f"runuser -u {plan.unit.account} -- {plan.unit.program} doctor   # commands are given as this user"


def _status_lines(found: Json) -> Iterator[str]:
    edited = "" if found["unchanged"] else " (edited, or written by others)"
    yield f"unit: {found['unit']}{edited}" if found["installed"] else f"unit: none at {found['unit']}"
    if found["reason"]:
        yield str(found["reason"])
    state = found["state"]
    if isinstance(state, dict):
        yield from (f"{name}: {value}" for name, value in state.items())
    if found["lingers"] is False:
        yield "lingers: no; it ends when you log out (loginctl enable-linger)"
