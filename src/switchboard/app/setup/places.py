"""What a new installation finds on the machine: directories for itself and for its butler's files, and the time zone.

Called before anything is written. In: paths as typed; out: absolute paths, or an error that says what would be correct.
Next: `files.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from switchboard.core.zones import find_zone
from switchboard.domain.errors import ConfigurationError, InvalidInput
from switchboard.embedded.binaries import account_for, require_open

_WITH_ALL_BELOW: Final = ("/bin", "/boot", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr")
_THEMSELVES: Final = ("/dev", "/dev/shm", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var")  # noqa: S108


def require_new(directory: Path, names: Iterable[PurePosixPath]) -> None:
    """Raise ConfigurationError if one of the files already exists."""
    place = next((one for one in (directory, *directory.absolute().parents) if one.exists()), directory)
    if not place.is_dir():
        raise ConfigurationError(f"{place} is a file; name a directory")
    for name in names:
        if os.path.lexists(directory / name):
            raise ConfigurationError(f"{directory / name} exists, and is not overwritten; name another directory")


def workspace_at(directory: Path, typed: str) -> Path:
    """The directory of the butler's files; a relative path is relative to the installation. Raises InvalidInput."""
    place = (directory / Path(typed).expanduser()).absolute()
    reason = _why_not(place.resolve(), directory.resolve())
    if reason:
        raise InvalidInput(f"{place} {reason}; name a directory for the butler's files alone", field="workspace")
    return place


def as_in_team_file(directory: Path, place: Path, teams: PurePosixPath) -> str:
    """How a team file names a directory: relative to itself if it moves with the installation."""
    home = directory.absolute()
    return os.path.relpath(place, home / teams) if place.is_relative_to(home) else str(place)


def zone_of_machine(localtime: Path = Path("/etc/localtime")) -> str:
    """The IANA name of the time zone of this machine; UTC if it cannot be told."""
    named = os.environ.get("TZ", "").removeprefix(":") or str(localtime.resolve()).partition("/zoneinfo/")[2]
    try:
        return find_zone(named).key
    except ValueError:
        return "UTC"


def _why_not(place: Path, installation: Path) -> str | None:
    if place.exists() and not place.is_dir():
        return "is a file"
    return _belongs_to_others(place) or _why_ours(place, installation)


def _belongs_to_others(place: Path) -> str | None:
    home = Path.home().resolve()
    if place == home:
        return "is your home directory, with your keys and passwords"
    if home.is_relative_to(place) or place in map(Path, _THEMSELVES):
        return "belongs to the system or to several users"
    if any(place.is_relative_to(Path(one).resolve()) for one in _WITH_ALL_BELOW):
        return "belongs to the system"
    return None


def _why_ours(place: Path, installation: Path) -> str | None:
    if installation.is_relative_to(place):
        return "contains the butler's own settings"
    ours = "is where Switchboard keeps its own settings, secrets or database"
    return (
        ours
        if any(place.is_relative_to(one) or one.is_relative_to(place) for one in _own_places(installation))
        else None
    )


def _own_places(installation: Path) -> Iterator[Path]:
    """The directories in which nothing is a butler's."""
    yield from (installation / one for one in ("channels.d", "data", "keys", "teams"))
    if data := os.environ.get("SWITCHBOARD_DATA_DIR"):
        yield Path(data).resolve()


def closed_to_database(directory: Path) -> str | None:
    """Why the database of an installation in this directory would not start, in the words of `switchboard up`."""
    if os.environ.get("SWITCHBOARD_DATABASE_URL"):
        return None
    data = Path(os.environ.get("SWITCHBOARD_DATA_DIR") or directory / "data").absolute()
    try:
        asyncio.run(require_open(data, account_for(data), "choose another directory, such as /srv/switchboard"))
    except ConfigurationError as error:
        return error.message
    return None
