"""Trusted files: our own and root's, unless others may write to them. Also writes private files.

Called for settings and team files (`settings.py`, `rules/seed.py`) and for the data directory (`database.py`,
`access.py`, the command line's `client.py`): anyone who can write these can run programs as the user who starts
Switchboard, or install their own operator's token.
"""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from pathlib import Path
from typing import Final

from switchboard.domain.errors import ConfigurationError

_CODE_OWNER: Final = Path(__file__).stat().st_uid
"""Trusted, as it is their code that runs. So root may use the checkout of another user."""


def require_ours(path: Path) -> None:
    """Raise ConfigurationError if another user owns `path`, or a link in its place, or may write to it.

    Raises OSError if it cannot be inspected.
    """
    _check_owner(path, path.lstat())
    _check_mode(path, path.stat())


def read_ours(file: Path) -> str:
    """The text of a file that `require_ours` accepts, read from the very file that was checked."""
    _check_owner(file, file.lstat())
    with file.open(encoding="utf-8") as opened:
        _check_mode(file, os.fstat(opened.fileno()))
        return opened.read()


def write_private(file: Path, text: str) -> None:
    """Replace a file by one that only we may read. Raises OSError.

    Atomically: readers never see half of it, and at no moment may others read it.
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(file)


def _check_mode(path: Path, status: os.stat_result) -> None:
    _check_owner(path, status)
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_private_group(status)):
        raise ConfigurationError(
            f"{path} is writable by other users; close it: chmod go-w {shlex.quote(str(path.absolute()))}"
        )


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in _trusted_users():
        owner = _name_of_user(status.st_uid)
        advice = _advice_on(path, owner)
        raise ConfigurationError(
            f"{path} belongs to the user {owner}, and is used only if it belongs to you or to root; {advice}"
        )


def _advice_on(path: Path, owner: str) -> str:
    """Root may be whoever it belongs to, such as the account of a service, which would lose it by a chown."""
    if os.geteuid() == 0:
        return f"give the command as that user: runuser -u {shlex.quote(owner)} -- switchboard …"
    return (
        "use another one, or make it yours if you trust what it contains: "
        f"chown {_name_of_user(os.geteuid())} {shlex.quote(str(path.absolute()))}"
    )


def _trusted_users() -> set[int]:
    return {0, os.geteuid(), _CODE_OWNER}


def _is_private_group(status: os.stat_result) -> bool:
    """Whether the owner is the only member of the file's group, as where each user has a group of the same name."""
    try:
        group = grp.getgrgid(status.st_gid)
    except KeyError:
        return status.st_gid == status.st_uid
    return group.gr_name == _name_of_user(status.st_uid) and set(group.gr_mem) <= {group.gr_name}


def _name_of_user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
