"""What the unit will be, found from the settings here: paths, what is lacking for it, what must be said.

Called by `commands.py`, before anything is written. In: options and the settings in the current directory; out: a
`ServicePlan`. Next: `unit.py`.
"""

from __future__ import annotations

import os
import pwd
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Final

import typer
from msgspec import Struct

from switchboard.app.ops.engines import WORKSPACES
from switchboard.app.ops.installation.inventory import Inventory, take_inventory
from switchboard.app.settings import Settings, load_settings
from switchboard.app.settings_file import FILE_NAME, read_settings_file
from switchboard.app.whereabouts import default_data_dir
from switchboard.cli.service.unit import NAME, UnitPlan
from switchboard.distribution import OUR_VARIABLES
from switchboard.domain.errors import ConfigurationError
from switchboard.embedded.binaries import UnprivilegedUser

SYSTEM_UNITS: Final = Path("/etc/systemd/system")
_READ: Final = 4
_PASS: Final = 1
"""Of the mode of a file."""
_NOBODY_YET: Final = -1
"""The number of an account that is to be made: it owns nothing, and is in no group."""
_ACCOUNT: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_CREDENTIAL: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,60})=(.+)")


class Wanted(Struct, frozen=True):
    """The options of `service install`. `new`: the account is to be made."""

    account: str | None
    new: bool
    credentials: Sequence[str]
    watchdog: bool
    directory: Path | None


class ServicePlan(Struct, frozen=True):
    """A unit file and its place, the directories that are made for it, and notes for the operator.

    `owner`: who gets these directories; None: whoever makes them. `new_account`: made before.
    """

    unit: UnitPlan
    file: Path
    directories: tuple[Path, ...]
    owner: UnprivilegedUser | None
    new_account: str | None
    notes: tuple[str, ...]


def unit_file(directory: Path | None) -> Path:
    """Where the unit is: one of the system for root, otherwise that of the user."""
    if directory is not None:
        return directory.absolute() / NAME
    if os.geteuid() == 0:
        return SYSTEM_UNITS / NAME
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user" / NAME


def plan_service(wanted: Wanted) -> ServicePlan:
    """Find everything. Raises BadParameter or ConfigurationError for what would prevent the service from starting."""
    owner = _find_owner(wanted)
    settings, root = load_settings(), Path.cwd()
    file = read_settings_file()
    inventory = take_inventory(settings, file, root, workspaces=True)
    data_dir = settings.data_dir.absolute()
    workspaces = tuple(_workspaces_outside(settings, inventory, root))
    teams = (settings.teams_dir.absolute(),) if settings.teams_dir else ()
    channels = settings.channels_dir.absolute()
    unit = UnitPlan(
        program=_this_program(),
        directory=root,
        data_dir=data_dir,
        account=wanted.account,
        writable=(*teams, channels, *workspaces),
        credentials=_read_credentials(wanted.credentials),
        drain_s=settings.worker.drain,
        watchdog=wanted.watchdog,
    )
    lacking: tuple[str, ...] = ()
    if wanted.account is not None:
        runner = owner or UnprivilegedUser(wanted.account, _NOBODY_YET, _NOBODY_YET)
        _require_within_reach(unit, runner)
        _require_no_program_user(settings, wanted.account)
        read = (*teams, channels, *(piece.source for piece in inventory.pieces.values() if piece.secret))
        lacking = tuple(_not_yet_given(unit, runner, file.path, read))
    if owner is not None and lacking:
        raise ConfigurationError("; ".join(lacking))
    missing = tuple(place for place in (data_dir, channels, *workspaces) if not place.exists())
    new = wanted.account if wanted.new else None
    notes = (*lacking, *_notes_on_unit(unit, inventory), *_notes_on_settings(file.path))
    return ServicePlan(unit, unit_file(wanted.directory), missing, owner, new, notes)


def _notes_on_settings(file: Path | None) -> Iterator[str]:
    if file is None:
        yield f"there is no {FILE_NAME} here, so the service has the default settings, and no butlers of yours"


def _find_owner(wanted: Wanted) -> UnprivilegedUser | None:
    """The account of a unit of the system; None for one of a user, and for an account that does not exist yet."""
    if os.geteuid() != 0:
        if wanted.account is not None:
            raise typer.BadParameter("only root can install a service for another user", param_hint="--user")
        return None
    if wanted.account is None:
        raise typer.BadParameter(
            "the service never runs as root: name an existing account, or make one with --create-user switchboard",
            param_hint="--user",
        )
    if wanted.new and not _ACCOUNT.fullmatch(wanted.account):
        raise typer.BadParameter(f"{wanted.account!r} is no name of an account", param_hint="--create-user")
    try:
        found = pwd.getpwnam(wanted.account)
    except KeyError:
        if wanted.new:
            return None
        raise typer.BadParameter(
            f"there is no account {wanted.account!r}; --create-user {wanted.account} makes it", param_hint="--user"
        ) from None
    if found.pw_uid == 0:
        raise typer.BadParameter("the service never runs as root", param_hint="--user")
    return UnprivilegedUser(found.pw_name, found.pw_uid, found.pw_gid)


def _this_program() -> Path:
    """This very program, not what PATH has under its name when the service starts."""
    beside = Path(sys.executable).absolute().with_name("switchboard")
    if not beside.is_file():
        raise ConfigurationError(f"{beside} is not there; install the service with an installed switchboard")
    return beside


def _read_credentials(given: Sequence[str]) -> Mapping[str, Path]:
    found: dict[str, Path] = {}
    for one in given:
        match = _CREDENTIAL.fullmatch(one)
        if match is None or match[1] in found:
            raise typer.BadParameter(f"{one!r} is not NAME=FILE, each name once", param_hint="--credential")
        found[match[1]] = Path(match[2]).expanduser().absolute()
        if not found[match[1]].is_file():
            raise typer.BadParameter(f"{found[match[1]]} is not a file", param_hint="--credential")
    return found


def _workspaces_outside(settings: Settings, inventory: Inventory, root: Path) -> Iterator[Path]:
    """The directories of butlers' files that lie outside of the data directory, whether they exist or not."""
    data = settings.data_dir.resolve()
    named = {
        ((root if reference.file == FILE_NAME else settings.teams_dir or root) / reference.written).resolve()
        for reference in inventory.references
        if reference.key == "workspace"
    }
    for place in sorted(named):
        if not place.is_relative_to(data) and place != data / WORKSPACES:
            yield place


def _require_within_reach(unit: UnitPlan, owner: UnprivilegedUser) -> None:
    """Raise ConfigurationError for a directory that is closed to the account."""
    python = Path(sys.executable).resolve()  # an environment links to where it is installed
    for place in (unit.program, python, unit.directory / FILE_NAME, unit.data_dir / "postgres"):
        if closed := next((one for one in reversed(place.parents) if not _may_access(_PASS, one, owner)), None):
            raise ConfigurationError(
                f"{owner.name} cannot reach {place}, as {closed} is closed to it; {_remedy_for(place, closed)}"
            )


def _remedy_for(place: Path, closed: Path) -> str:
    if place == Path(sys.executable).resolve():
        return "make the environment again with a Python that all may run, such as /usr/bin/python3"
    return f"choose another directory or account, or open it: chmod o+x {quote(str(closed))}"


def _require_no_program_user(settings: Settings, account: str) -> None:
    """Only root can run a program as another user, and the service never runs as root. Raises ConfigurationError."""
    if settings.program_user is not None:
        raise ConfigurationError(
            f"program_user needs root, and the service runs as {account}, whose rights programs of butlers then have; "
            f"remove it from {FILE_NAME}"
        )


def _not_yet_given(
    unit: UnitPlan, owner: UnprivilegedUser, settings: Path | None, read: Iterable[Path]
) -> Iterator[str]:
    """Settings, teams, accounts and secrets that the account may not read, and data of another user."""
    for place in ([settings] if settings else []) + sorted({*read}):
        what = _READ | (_PASS if place.is_dir() else 0)
        if not _may_access(what, place, owner):
            named = quote(str(place.absolute()))
            group = "750" if place.is_dir() else "640"
            yield f"{owner.name} cannot read {named}: chgrp {owner.name} {named} && chmod {group} {named}"
    if unit.data_dir.exists() and unit.data_dir.stat().st_uid != owner.uid:
        data = quote(str(unit.data_dir))
        yield f"{data} belongs to another user; stop what uses it, then: chown -R {owner.name}: {data}"


def _may_access(what: int, place: Path, owner: UnprivilegedUser) -> bool:
    """Whether the account may read or pass it, by its mode; what does not exist is made later."""
    try:
        status = place.stat()
    except FileNotFoundError:
        return True
    if status.st_uid == owner.uid:
        return status.st_mode >> 6 & what == what
    if status.st_gid in os.getgrouplist(owner.name, owner.gid):
        return status.st_mode >> 3 & what == what
    return status.st_mode & what == what


def _notes_on_unit(unit: UnitPlan, inventory: Inventory) -> Iterator[str]:
    """What the service lacks of what this shell has."""
    credentials = unit.credentials_dir.replace("%t", f"/run/user/{os.geteuid()}")
    yield from (f"the credential {name} is at {credentials}/{name}: name it in a …_file" for name in unit.credentials)
    for name in sorted(inventory.variables):
        if name.startswith(OUR_VARIABLES):
            yield f"{name} is set here, and not in the service: write it into {FILE_NAME}"
        else:
            yield (
                f"the variable {name} is not set in the service: write its value into a file, name it with "
                f"--credential {name.lower()}=FILE, and {credentials}/{name.lower()} with …_file instead of …_env"
            )
    for name in (f"{OUR_VARIABLES}TEAMS_DIR", f"{OUR_VARIABLES}CHANNELS_DIR"):
        if name in os.environ:
            yield f"{name} is set here, and not in the service: write it into {FILE_NAME}"
    if unit.data_dir == default_data_dir() or f"{OUR_VARIABLES}DATA_DIR" not in os.environ:
        return
    yield f"{OUR_VARIABLES}DATA_DIR is set here; commands in another shell find the data only if {FILE_NAME} names it"
