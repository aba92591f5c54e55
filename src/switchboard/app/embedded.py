"""The embedded PostgreSQL: from an empty directory to a server that answers, and away again with its last user.

Called by the composition root when no SWITCHBOARD_DATABASE_URL is set, and by tests. In: a data directory (it *is* the
PGDATA, so every PostgreSQL tool works on it); out: an `EmbeddedServer` with a URL. Next: `store/database.py`.

Two lock files in the data directory, both `flock`, so that the kernel tidies up after a `kill -9`: `switchboard.lock`
is held while somebody initialises, starts or stops; `switchboard.users` is held shared by each user as long as it uses
the server. The postmaster lives in a session of its own and survives us; whoever comes next attaches to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import asyncpg

from switchboard.app.embedded_binaries import Account, Programs, account_for, explain, find_programs, require_open, run
from switchboard.domain.errors import ConfigurationError, Unavailable

LOG = "server.log"
MUTEX = "switchboard.lock"
USERS = "switchboard.users"

_DEFAULTS: Mapping[str, str] = {
    "shared_buffers": "256MB",
    "max_connections": "200",
    "jit": "off",
    "fsync": "on",
    "synchronous_commit": "on",
    # So segments of the log are soon used again; to make them anew took a tenth of the time at full speed. And a crash
    # leaves little to catch up with.
    "max_wal_size": "512MB",
    "min_wal_size": "512MB",
    "checkpoint_timeout": "15min",
} | ({"recovery_init_sync_method": "syncfs"} if sys.platform == "linux" else {})

_PATIENCE = 600.0  # seconds: a recovery may take minutes, but a hung server must not hang us for ever
_ORPHANS = 30.0  # seconds that the backends of a killed postmaster may take to notice
_POLL = 0.02
_LOG_LIMIT = 16 * 2**20
_NO_PID = 2**31 - 1  # above the largest process id of every system
_SOCKET_LIMIT = 103 if sys.platform == "darwin" else 107

_FACTS = """
select split_part(current_setting('server_version'), ' ', 1), current_setting('data_directory'),
       current_setting('listen_addresses'), exists (select from pg_database where datname = $1)
"""
_NOT_NOW = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # starting up, recovering, shutting down
    asyncpg.TooManyConnectionsError,
)


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A server that answers. `url` is for asyncpg and libpq; `port` also names the socket file in `socket_dir`."""

    data_dir: Path
    url: str
    socket_dir: Path
    port: int
    version: str


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the caller asked for, and whom the server will run as. Without TCP the port only names the socket file."""

    data_dir: Path
    binaries: Path | None
    settings: Mapping[str, str]
    addresses: str
    port: int
    database: str
    account: Account | None


@dataclass(frozen=True, slots=True)
class _Postmaster:
    """What postmaster.pid says; the server adds `port` and `socket_dir` a moment after `pid`."""

    pid: int
    port: int
    socket_dir: Path | None


@dataclass(slots=True)
class _Use:
    """A data directory that this process uses, by its lock files; `started` once its server answers."""

    data_dir: Path
    mutex: int
    users: int
    started: bool = False


_USES: list[_Use] = []
"""What this process uses now: the one thing that a process which ends at once must not forget."""


@contextmanager
def _registered(use: _Use) -> Iterator[_Use]:
    _USES.append(use)
    try:
        yield use
    finally:
        _USES.remove(use)


@asynccontextmanager
async def embedded_postgres(
    data_dir: Path,
    *,
    binaries: Path | None = None,
    settings: Mapping[str, str] = {},
    listen: tuple[str, int] | None = None,
    database: str = "switchboard",
) -> AsyncIterator[EmbeddedServer]:
    """Use the server of `data_dir`: create, start, recover or attach to it; on leaving, the last user stops it.

    `settings` are PostgreSQL settings as text; they count when this call starts the server, not when it attaches.
    `listen` = (address, port) opens TCP, by password (scram) only. `database` is created if it does not exist.
    A server that crashed meanwhile is brought back by entering once more, also while the first use still goes on.
    Raises ConfigurationError with what is wrong and what would be right, Unavailable if there is no answer in 600 s.
    """
    place = _absolute(data_dir)
    addresses, port = listen or ("", 5432)
    plan = _Plan(place, binaries, settings, addresses, port, database, account_for(place))
    if _is_new(place):
        await require_open(place, plan.account, "choose a data directory elsewhere, such as /var/lib/switchboard")
    with _lock_files(plan) as (mutex, users), _registered(_Use(place, mutex, users)) as use:
        async with _locked(mutex):
            alone = _nobody_else(users)
            fcntl.flock(users, fcntl.LOCK_SH)
            server = await _attach(plan, alone=alone) or await _create_and_launch(plan, mutex)
        use.started = True
        try:
            yield server
        finally:
            async with _locked(mutex):
                if _nobody_else(users):
                    await stop(place)
                    _remove_socket_dir(server)


def starting() -> bool:
    """Whether this process is starting a server: only a cancelled start takes along what it has begun."""
    return any(not use.started for use in _USES)


def tell_to_stop() -> None:
    """For who ends this very moment: those servers that nobody but this process uses are told to stop, not awaited."""
    for use in _USES:
        if _had(use.mutex) and _nobody_else(use.users) and (pid := _live_postmaster(use.data_dir)) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)


def _had(mutex: int) -> bool:
    """Whether we got the lock; who else has it for longer comes or goes, and looks after the server."""
    for _ in range(50):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(mutex, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_POLL)
    return False


async def stop(data_dir: Path, *, immediate: bool = False) -> None:
    """End the server of `data_dir`, if one runs, and wait until its process is gone; `immediate` crashes it (tests).

    Clients are cut off. By signal and not by pg_ctl, which would wait ten minutes for a zombie.
    """
    if (pid := _live_postmaster(data_dir)) is None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGQUIT if immediate else signal.SIGINT)
    deadline = time.monotonic() + _PATIENCE
    while _runs(pid, data_dir):
        if time.monotonic() > deadline:
            raise Unavailable(f"the PostgreSQL server of {data_dir} (process {pid}) does not stop")
        await asyncio.sleep(_POLL)


# The data directory and its locks


def _absolute(data_dir: Path) -> Path:
    return data_dir.resolve()


def _is_new(data_dir: Path) -> bool:
    return not (data_dir / "PG_VERSION").exists()


@contextmanager
def _disk_errors(data_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise explain(f"cannot use the data directory {data_dir}", str(error), data_dir) from error


@contextmanager
def _lock_files(plan: _Plan) -> Iterator[tuple[int, int]]:
    """The data directory made ready, and its two lock files open: (mutex, users). Closing lets go of both locks."""
    with contextlib.ExitStack() as stack:
        with _disk_errors(plan.data_dir):
            _prepare(plan)
            mutex, users = _lock_file(plan, MUTEX), _lock_file(plan, USERS)
        stack.callback(os.close, mutex)
        stack.callback(os.close, users)
        yield mutex, users


def _prepare(plan: _Plan) -> None:
    """Make the data directory and give it to the account; parents are created if missing, never changed."""
    plan.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = {entry.name for entry in plan.data_dir.iterdir()}
    if not names & {MUTEX, "PG_VERSION"} and names - {"lost+found"}:
        raise ConfigurationError(
            f"{plan.data_dir} is neither empty nor a PostgreSQL data directory (it holds {min(names)!r}); "
            "name an empty or a new directory"
        )
    if "PG_VERSION" in names:
        return
    status = plan.data_dir.stat()
    if plan.account and status.st_uid != plan.account.uid:
        os.chown(plan.data_dir, plan.account.uid, plan.account.gid)
    if stat.S_IMODE(status.st_mode) != 0o700:
        plan.data_dir.chmod(0o700)


def _lock_file(plan: _Plan, name: str) -> int:
    with contextlib.suppress(FileExistsError):
        return _new_file(plan.data_dir / name, plan.account)
    return os.open(plan.data_dir / name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)


def _new_file(path: Path, account: Account | None) -> int:
    # O_EXCL: root must not, by way of a planted link, hand over a file that it did not make itself.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    if account:
        os.fchown(descriptor, account.uid, account.gid)
    return descriptor


def _nobody_else(users: int) -> bool:
    """Whether we are the only user. Whatever the answer, our own shared lock is gone afterwards."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@asynccontextmanager
async def _locked(mutex: int) -> AsyncIterator[None]:
    while True:  # polled, because a thread that blocks in flock could not be cancelled
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(mutex, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        await asyncio.sleep(_POLL)
    try:
        yield
    finally:
        fcntl.flock(mutex, fcntl.LOCK_UN)


# A server that runs already


async def _attach(plan: _Plan, *, alone: bool) -> EmbeddedServer | None:
    """The running server, if it listens as asked; if not, one that nobody uses is stopped, to be started anew."""
    server, addresses = await _probe(plan)
    if server is None or (addresses, server.port) == (plan.addresses, plan.port):
        return server
    if alone:
        await stop(plan.data_dir)
        return None
    if not plan.addresses:
        return server
    raise ConfigurationError(
        f"the PostgreSQL server of {plan.data_dir} is in use and does not listen on {plan.addresses}:{plan.port}; "
        "give all its users the same address, or stop the others first"
    )


async def _probe(plan: _Plan) -> tuple[EmbeddedServer | None, str]:
    """The server that answers now and the addresses it listens on. Reached as postmaster.pid says, not as planned."""
    master = _postmaster(plan.data_dir)
    if master is None or master.socket_dir is None:
        return None, ""
    try:
        connection = await asyncpg.connect(_url(master.socket_dir, master.port, "postgres"), timeout=5)
        try:
            [(version, its_data_dir, addresses, exists)] = await connection.fetch(_FACTS, plan.database)
            if not plan.data_dir.samefile(its_data_dir):  # postmaster.pid came along when the directory was copied
                return None, ""
            if not exists:
                name = plan.database.replace('"', '""')
                await connection.execute(f'create database "{name}"')
        finally:
            await connection.close()
    except _NOT_NOW:
        return None, ""
    except asyncpg.PostgresError as error:
        raise ConfigurationError(f"the PostgreSQL server of {plan.data_dir} turns us away: {error}") from error
    url = _url(master.socket_dir, master.port, plan.database)
    return EmbeddedServer(plan.data_dir, url, master.socket_dir, master.port, version), addresses


def _url(socket_dir: Path, port: int, database: str) -> str:
    return f"postgresql://postgres@/{quote(database, safe='')}?host={quote(str(socket_dir))}&port={port}"


def _postmaster(data_dir: Path) -> _Postmaster | None:
    """What postmaster.pid says, None without one. Lines: pid, directory, start time, port, socket directory, ..."""
    try:
        lines = (data_dir / "postmaster.pid").read_text().splitlines()
        socket_dir = Path(lines[4]) if len(lines) > 4 and lines[4] else None
        return _Postmaster(int(lines[0]), int(lines[3]) if socket_dir else 0, socket_dir)
    except (FileNotFoundError, IndexError, ValueError):
        return None


def _live_postmaster(data_dir: Path) -> int | None:
    """The pid of the server of `data_dir`, if its process lives."""
    master = _postmaster(data_dir)
    return master.pid if master and _runs(master.pid, data_dir) else None


def _runs(pid: int, data_dir: Path) -> bool:
    """Whether `pid` is a live postmaster of `data_dir`: neither a zombie nor somebody else who got the number.

    A zombie stays where process 1 does not reap, as plain Python in a container, and to signals it looks alive.
    """
    state, name = _process(pid)
    if "postgres" not in name or state[:1] in {"Z", "X"}:
        return False
    with contextlib.suppress(OSError):  # root in a container may not be allowed to look; then the name must do
        return data_dir.samefile(f"/proc/{pid}/cwd")
    return True


def _process(pid: int) -> tuple[str, str]:
    """(state, name) of a process, ('', '') if there is none. States: see ps(1)."""
    if sys.platform != "linux":
        listed = subprocess.run(["/bin/ps", "-o", "stat=,comm=", "-p", str(pid)], capture_output=True, check=False)
        state, _, name = listed.stdout.decode().strip().partition(" ")
        return state, name
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "", ""
    name, _, rest = text.partition("(")[2].rpartition(")")
    return rest.split()[0], name


# A server that must be created or started


async def _create_and_launch(plan: _Plan, mutex: int) -> EmbeddedServer:
    programs = await find_programs(plan.binaries, plan.account)
    with _disk_errors(plan.data_dir):
        if _is_new(plan.data_dir):
            await _initialise(plan, programs, mutex)
        _require_same_version(plan.data_dir, programs)
        ran_before = _live_postmaster(plan.data_dir) is not None
        try:
            return await _launch(plan, programs)
        except BaseException:
            if not ran_before:  # what we did not start, others may still use
                await stop(plan.data_dir)
            raise


def _require_same_version(data_dir: Path, programs: Programs) -> None:
    written_by = (data_dir / "PG_VERSION").read_text().strip()
    if written_by != str(programs.major):
        raise ConfigurationError(
            f"{data_dir} was written by PostgreSQL {written_by}, but the programs in {programs.directory} are "
            f"version {programs.major}; name the programs of version {written_by}, or move the data over with "
            "pg_upgrade or with pg_dump and psql"
        )


async def _initialise(plan: _Plan, programs: Programs, mutex: int) -> None:
    """Make the cluster in a directory inside, then move it up, PG_VERSION last: both can be cut off and repeated.

    Inside and not beside, because the data directory may be a mount, and its parent somebody else's.
    """
    fresh, done = plan.data_dir / ".initdb", plan.data_dir / ".initdb-done"
    if not done.exists():
        if fresh.exists():
            shutil.rmtree(fresh)
        await _initdb(plan, programs, fresh, mutex)
        fresh.rename(done)
    for entry in sorted(done.iterdir(), key=lambda entry: entry.name == "PG_VERSION"):
        entry.rename(plan.data_dir / entry.name)
    done.rmdir()


async def _initdb(plan: _Plan, programs: Programs, fresh: Path, mutex: int) -> None:
    """Run initdb; it shares our lock, so that nobody starts over beside an initdb that outlived its killed parent."""
    arguments = ["--username=postgres", "--encoding=UTF8", "--data-checksums", "--no-instructions", f"--pgdata={fresh}"]
    arguments += ["--auth-local=trust", "--auth-host=scram-sha-256"]  # the socket is safe in its 0700 directory
    arguments += ["--no-sync"] if plan.settings.get("fsync") == "off" else []
    arguments += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if programs.major >= 17 else []
    for locale in ("C.UTF-8", "C"):  # not every system has the former
        made = await programs.run("initdb", *arguments, f"--locale={locale}", data_dir=plan.data_dir, pass_fds=(mutex,))
        if made.code == 0:
            break
        if locale == "C" or "invalid locale" not in made.text:
            raise explain(f"cannot create a PostgreSQL database in {plan.data_dir}", made.text, plan.data_dir)
    # initdb admits TCP from this machine only; with `listen`, others may come too, by password. Written as the account.
    rule = 'echo "host all all all scram-sha-256" >> "$1"/pg_hba.conf'
    await run("/bin/sh", "-c", rule, "sh", str(fresh), cwd=plan.data_dir, account=plan.account)


async def _launch(plan: _Plan, programs: Programs) -> EmbeddedServer:
    """Start until it answers. A server that lives but does not answer yet (a recovery) is waited for."""
    socket_dir = _socket_dir(plan)
    begun = time.monotonic()
    while time.monotonic() < begun + _PATIENCE:
        if _live_postmaster(plan.data_dir) is None:
            _bury(plan, socket_dir)
            failure = await _pg_ctl_start(plan, programs, socket_dir)
            # The backends of a killed postmaster still hold its shared memory; they are about to notice and end.
            if failure and ("shared memory block" not in failure or time.monotonic() > begun + _ORPHANS):
                listen = (plan.addresses, plan.port) if plan.addresses else None
                raise explain(f"PostgreSQL does not start in {plan.data_dir}", failure, plan.data_dir, listen)
        server, _ = await _probe(plan)
        if server:
            return server
        await asyncio.sleep(_POLL)
    raise Unavailable(f"the PostgreSQL server of {plan.data_dir} does not answer; see {plan.data_dir / LOG}")


async def _pg_ctl_start(plan: _Plan, programs: Programs, socket_dir: Path) -> str:
    """'' if the server is up, else what pg_ctl says and the last lines of this start's log."""
    log = plan.data_dir / LOG
    if log.exists() and log.stat().st_size > _LOG_LIMIT:
        log.replace(log.with_suffix(".log.1"))
    before = log.stat().st_size if log.exists() else 0
    # The log's name is relative, because pg_ctl hands it to a shell; `-o` is meant for that shell.
    command = ["start", "-w", "-s", "-t", f"{_PATIENCE:.0f}", "-l", LOG, "-o", _options(plan, socket_dir)]
    outcome = await programs.run("pg_ctl", *command, data_dir=plan.data_dir)
    if outcome.code == 0:
        return ""
    said = log.read_bytes()[before:].decode(errors="replace") if log.exists() else ""
    return "\n".join([outcome.text.strip(), f"The last lines of {log}:", *said.splitlines()[-12:]])


def _options(plan: _Plan, socket_dir: Path) -> str:
    """The server's settings as shell words; what decides where it is reached is not the caller's to change."""
    ours = {
        "listen_addresses": plan.addresses,
        "port": str(plan.port),
        "unix_socket_directories": str(socket_dir),
        "unix_socket_permissions": "0700",
    }
    pairs = {**_DEFAULTS, **plan.settings, **ours}.items()
    return shlex.join(word for key, value in pairs for word in ("-c", f"{key}={value}"))


def _bury(plan: _Plan, socket_dir: Path) -> None:
    """Let a new server pass the lock files of a dead one whose number is still taken, by a zombie or by a stranger.

    postmaster.pid is rewritten and not removed: it names the shared memory by which PostgreSQL makes sure that no
    backend of the dead server still writes.
    """
    path = plan.data_dir / "postmaster.pid"
    if _postmaster(plan.data_dir) is not None:
        _, _, rest = path.read_text().partition("\n")
        substitute = path.with_suffix(".new")
        substitute.unlink(missing_ok=True)
        with os.fdopen(_new_file(substitute, plan.account), "w") as file:
            file.write(f"{_NO_PID}\n{rest}")
        substitute.replace(path)
    (socket_dir / f".s.PGSQL.{plan.port}.lock").unlink(missing_ok=True)


def _socket_dir(plan: _Plan) -> Path:
    """The data directory, or a private one where its name is too long for a socket or unfit for a list of them.

    Deterministic for data directory and user; those who attach read it from postmaster.pid.
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
        raise ConfigurationError(f"{directory}, meant for the socket, is not a private directory of ours; remove it")
    return directory


def _remove_socket_dir(server: EmbeddedServer) -> None:
    if server.socket_dir != server.data_dir:
        with contextlib.suppress(OSError):
            server.socket_dir.rmdir()
