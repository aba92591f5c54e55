"""A PostgreSQL server that must be created or started: initdb, pg_ctl, and the wait until it answers.

Called by `supervisor.py`, which holds the lock. In: a `ClusterPlan`; out: an `EmbeddedServer`. Next: `binaries.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import pwd
import shlex
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from switchboard.domain.errors import ConfigurationError, Unavailable
from switchboard.embedded.binaries import Programs, explain, find_programs, run
from switchboard.embedded.files import disk_errors, is_new, new_file
from switchboard.embedded.postmaster import (
    LOG,
    PATIENCE,
    POLL,
    ClusterPlan,
    EmbeddedServer,
    live_postmaster,
    postmaster,
    probe,
    stop,
)

_DEFAULTS: Mapping[str, str] = {
    "shared_buffers": "256MB",
    "max_connections": "200",
    "jit": "off",
    "fsync": "on",
    "synchronous_commit": "on",
    # So WAL segments are soon reused; creating new ones took a tenth of the time at full speed. And recovery after a
    # crash is short.
    "max_wal_size": "512MB",
    "min_wal_size": "512MB",
    "checkpoint_timeout": "15min",
} | ({"recovery_init_sync_method": "syncfs"} if sys.platform == "linux" else {})

_IN_PROCESS_IO: Final = {"io_method": "sync"}
"""Since PostgreSQL 18: three processes less, which would read ahead what our look-ups by key never want."""

_HBA: Final = """\
local all         all              peer map=switchboard
local replication all              peer map=switchboard
host  all         all all          scram-sha-256
host  replication all 127.0.0.1/32 scram-sha-256
host  replication all ::1/128      scram-sha-256"""
"""Over the socket it is the kernel that says who connects; over TCP, which `listen` opens, a password does."""
_IDENT: Final = 'switchboard root postgres\nswitchboard "{name}" postgres'
"""The superuser is for root and for the user of the server."""
_WRITE_ACCESS: Final = 'printf "%s\\n" "$2" > "$1"/pg_hba.conf && printf "%s\\n" "$3" > "$1"/pg_ident.conf'
_ORPHANS: Final = 30.0
"""Seconds that the backends of a killed postmaster may take to notice."""
_LOG_LIMIT: Final = 16 * 2**20
_NO_PID: Final = 2**31 - 1
"""Above the largest process id of any system."""
_SOCKET_LIMIT: Final = 103 if sys.platform == "darwin" else 107


async def create_and_launch(plan: ClusterPlan, mutex: int) -> EmbeddedServer:
    programs = await find_programs(plan.binaries, plan.account)
    with disk_errors(plan.data_dir):
        if is_new(plan.data_dir):
            await _initialise_cluster(plan, programs, mutex)
        _require_same_version(plan.data_dir, programs)
        ran_before = live_postmaster(plan.data_dir) is not None
        try:
            return await _launch_server(plan, programs)
        except BaseException:
            if not ran_before:  # others may still use a server that we did not start
                await stop(plan.data_dir)
            raise


def _require_same_version(data_dir: Path, programs: Programs) -> None:
    written_by = (data_dir / "PG_VERSION").read_text().strip()
    if written_by != str(programs.major):
        raise ConfigurationError(
            f"{data_dir} was written by PostgreSQL {written_by}, but the programs in {programs.directory} are "
            f"version {programs.major}; name the programs of version {written_by} as postgres_binaries, "
            "or move the data, see docs/upgrading.md"
        )


async def _initialise_cluster(plan: ClusterPlan, programs: Programs, mutex: int) -> None:
    """Create the cluster in a subdirectory, then move it up, PG_VERSION last: both can be interrupted and repeated.

    Inside and not beside, because the data directory may be a mount, and its parent not ours.
    """
    fresh, done = plan.data_dir / ".initdb", plan.data_dir / ".initdb-done"
    if not done.exists():
        if fresh.exists():
            shutil.rmtree(fresh)
        await _run_initdb(plan, programs, fresh, mutex)
        fresh.rename(done)
    for entry in sorted(done.iterdir(), key=lambda entry: entry.name == "PG_VERSION"):
        entry.rename(plan.data_dir / entry.name)
    done.rmdir()


async def _run_initdb(plan: ClusterPlan, programs: Programs, fresh: Path, mutex: int) -> None:
    """Run initdb; it shares our lock, so that no other process starts while an orphaned initdb still runs."""
    arguments = ["--username=postgres", "--encoding=UTF8", "--data-checksums", "--no-instructions", f"--pgdata={fresh}"]
    arguments += ["--auth-local=peer", "--auth-host=scram-sha-256"]
    arguments += ["--no-sync"] if plan.settings.get("fsync") == "off" else []
    arguments += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if programs.major >= 17 else []
    for locale in ("C.UTF-8", "C"):  # not every system has the former
        made = await programs.run("initdb", *arguments, f"--locale={locale}", data_dir=plan.data_dir, pass_fds=(mutex,))
        if made.code == 0:
            break
        if locale == "C" or "invalid locale" not in made.text:
            raise explain(f"cannot create a PostgreSQL database in {plan.data_dir}", made.text, plan.data_dir)
    name = plan.account.name if plan.account else pwd.getpwuid(os.geteuid()).pw_name
    # Written as the account.
    command = ("/bin/sh", "-c", _WRITE_ACCESS, "sh", str(fresh), _HBA, _IDENT.format(name=name))
    await run(*command, cwd=plan.data_dir, account=plan.account)


async def _launch_server(plan: ClusterPlan, programs: Programs) -> EmbeddedServer:
    """Start it and wait until it answers, also for a server that runs but does not answer yet (a recovery)."""
    socket_dir = _socket_dir(plan)
    begun = time.monotonic()
    while time.monotonic() < begun + PATIENCE:
        if live_postmaster(plan.data_dir) is None:
            _clear_stale_locks(plan, socket_dir)
            failure = await _pg_ctl_start(plan, programs, socket_dir)
            # The backends of a killed postmaster still hold its shared memory; they are about to notice and end.
            if failure and ("shared memory block" not in failure or time.monotonic() > begun + _ORPHANS):
                listen = (plan.addresses, plan.port) if plan.addresses else None
                raise explain(f"PostgreSQL does not start in {plan.data_dir}", failure, plan.data_dir, listen)
        server, _ = await probe(plan)
        if server:
            return server
        await asyncio.sleep(POLL)
    raise Unavailable(f"the PostgreSQL server of {plan.data_dir} does not answer; see {plan.data_dir / LOG}")


async def _pg_ctl_start(plan: ClusterPlan, programs: Programs, socket_dir: Path) -> str:
    """'' if the server is up, else what pg_ctl says and the last lines of this start's log."""
    log = plan.data_dir / LOG
    if log.exists() and log.stat().st_size > _LOG_LIMIT:
        log.replace(log.with_suffix(".log.1"))
    before = log.stat().st_size if log.exists() else 0
    # The log's name is relative, because pg_ctl hands it to a shell; `-o` is meant for that shell.
    options = _server_options(plan, programs.major, socket_dir)
    command = ["start", "-w", "-s", "-t", f"{PATIENCE:.0f}", "-l", LOG, "-o", options]
    outcome = await programs.run("pg_ctl", *command, data_dir=plan.data_dir)
    if outcome.code == 0:
        return ""
    said = log.read_bytes()[before:].decode(errors="replace") if log.exists() else ""
    return "\n".join([outcome.text.strip(), f"The last lines of {log}:", *said.splitlines()[-12:]])


def _server_options(plan: ClusterPlan, major: int, socket_dir: Path) -> str:
    """The server's settings as shell words; the caller cannot change where it listens."""
    ours = {
        "listen_addresses": plan.addresses,
        "port": str(plan.port),
        "unix_socket_directories": str(socket_dir),
        "unix_socket_permissions": "0700",
    }
    io = _IN_PROCESS_IO if major >= 18 else {}
    pairs = {**_DEFAULTS, **io, **plan.settings, **ours}.items()
    return shlex.join(word for key, value in pairs for word in ("-c", f"{key}={value}"))


def _clear_stale_locks(plan: ClusterPlan, socket_dir: Path) -> None:
    """Let a new server pass the lock files of a dead one whose pid is still taken, by a zombie or another process.

    postmaster.pid is rewritten and not removed: it names the shared memory by which PostgreSQL makes sure that no
    backend of the dead server still writes.
    """
    path = plan.data_dir / "postmaster.pid"
    if postmaster(plan.data_dir) is not None:
        _, _, rest = path.read_text().partition("\n")
        substitute = path.with_suffix(".new")
        substitute.unlink(missing_ok=True)
        with os.fdopen(new_file(substitute, plan.account), "w") as file:
            file.write(f"{_NO_PID}\n{rest}")
        substitute.replace(path)
    (socket_dir / f".s.PGSQL.{plan.port}.lock").unlink(missing_ok=True)


def _socket_dir(plan: ClusterPlan) -> Path:
    """The data directory, or a private one if its name is too long for a socket or contains a separator.

    Deterministic for data directory and user; attaching processes read it from postmaster.pid.
    """
    socket = plan.data_dir / f".s.PGSQL.{plan.port}"
    if len(os.fsencode(socket)) <= _SOCKET_LIMIT and not set(str(plan.data_dir)) & set(",\"'\\"):
        return plan.data_dir
    uid = plan.account.uid if plan.account else os.geteuid()
    name = hashlib.sha256(os.fsencode(plan.data_dir) + f":{uid}".encode()).hexdigest()[:16]
    directory = Path(tempfile.gettempdir()).resolve() / f"switchboard-{name}"
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
        if plan.account:
            os.chown(directory, plan.account.uid, plan.account.gid)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != uid or stat.S_IMODE(status.st_mode) != 0o700:
        raise ConfigurationError(
            f"{directory}, meant for the socket, is not a private directory of this user; remove it"
        )
    return directory


def remove_socket_dir(server: EmbeddedServer) -> None:
    if server.socket_dir != server.data_dir:
        with contextlib.suppress(OSError):
            server.socket_dir.rmdir()
