"""The embedded PostgreSQL against the real programs: every promise of `embedded/supervisor.py`, with real kills.

Run as a program, this module is a user of a server in another process: see `_Other` and `_main`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest
import uvloop

from switchboard.domain.errors import ConfigurationError
from switchboard.embedded.binaries import account_for, find_programs
from switchboard.embedded.postmaster import EmbeddedServer, stop
from switchboard.embedded.sizes import settings_of, size_for
from switchboard.embedded.supervisor import embedded_postgres
from tests.clusters import copied_clusters
from tests.places import passable
from tests.ports import free_port

__all__ = ["copied_clusters"]

FAST = {"fsync": "off", "log_checkpoints": "off"}
DEBIAN = Path("/usr/lib/postgresql")
AS_ROOT = os.geteuid() == 0
pytestmark = pytest.mark.slow
needs_root = pytest.mark.skipif(not AS_ROOT, reason="only root can become another user or mount a file system")
needs_open_checkout = pytest.mark.skipif(
    not all(parent.stat().st_mode & stat.S_IXOTH for parent in Path(asyncpg.__file__).resolve().parents),
    reason="no other user can get at this checkout",
)
copies = pytest.mark.usefixtures("copied_clusters")
"""For what begins when there is a database."""


@pytest.fixture
async def place() -> AsyncIterator[Path]:
    """As for other tests, and no database in it is left running."""
    with passable() as directory:
        yield directory
        for data_dir in data_dirs_below(directory):
            await stop(data_dir, immediate=True)


def data_dirs_below(place: Path) -> list[Path]:
    return [found.parent for found in place.rglob("postmaster.pid")]


async def ask(server: EmbeddedServer, query: str) -> object:
    connection = await asyncpg.connect(server.url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def chown_all(directory: Path, owner: os.stat_result) -> None:
    for path in [directory, *directory.rglob("*")]:
        os.chown(path, owner.st_uid, owner.st_gid)


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def account_name(data_dir: Path) -> str:
    return pwd.getpwuid(data_dir.stat().st_uid).pw_name


async def asked_as(user: str, server: EmbeddedServer) -> str:
    """What a connection of another user gets: `ok`, or the error."""
    entry = pwd.getpwnam(user)
    source = (
        "import asyncio, os, sys, asyncpg; os.setgroups([]); "
        f"os.setgid({entry.pw_gid}); os.setuid({entry.pw_uid}); "
        "asyncio.run(asyncpg.connect(sys.argv[1])); print('ok')"
    )
    command = [sys.executable, "-c", source, server.url]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, _ = await process.communicate()
    return said.decode()


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().split()[2]


def owner_of(path: Path) -> int:
    return path.stat().st_uid


def rights(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_mode, status.st_uid, status.st_gid


def postmaster(data_dir: Path) -> int:
    return int((data_dir / "postmaster.pid").read_text().split()[0])


def answers(server: EmbeddedServer) -> bool:
    """Whether somebody listens on the server's socket."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(server.socket_dir / f".s.PGSQL.{server.port}")) == 0


@dataclass(frozen=True, slots=True)
class _Other:
    """Another process that uses the server of `data_dir` until told to leave or killed."""

    process: asyncio.subprocess.Process

    @classmethod
    async def start(cls, data_dir: Path, *, user: str = "", binaries: str = "") -> _Other:
        command = [sys.executable, "-m", __name__, str(data_dir), user, binaries]
        pipe, checkout = subprocess.PIPE, Path(__file__).parents[2]
        made = asyncio.create_subprocess_exec(*command, cwd=checkout, stdin=pipe, stdout=pipe, start_new_session=True)
        return cls(await made)

    async def report(self) -> dict[str, str]:
        """What it says once it is in: {url, data_dir} or {error}."""
        assert self.process.stdout
        said: dict[str, str] = json.loads(await self.process.stdout.readline())
        return said

    async def leave(self) -> None:
        await self.process.communicate(b"leave\n")
        assert self.process.returncode == 0

    async def kill(self) -> None:
        self.process.kill()
        await self.process.communicate()


async def _main(data_dir: Path, user: str, binaries: str) -> None:
    if user:
        entry = pwd.getpwnam(user)
        os.setgroups(())
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    try:
        async with embedded_postgres(data_dir, settings=FAST, binaries=Path(binaries) if binaries else None) as server:
            sys.stdout.write(json.dumps({"url": server.url, "data_dir": str(await ask(server, "show data_directory"))}))
            sys.stdout.write("\n")
            sys.stdout.flush()
            await asyncio.to_thread(sys.stdin.readline)
    except ConfigurationError as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")


# Life


@copies
async def test_a_small_server_can_be_copied_and_a_large_one_has_its_buffers(place: Path) -> None:
    async with embedded_postgres(place / "data", settings=settings_of(size_for(workers=1))) as small:
        assert await ask(small, "show shared_buffers") == "16MB"
        assert await ask(small, "show wal_level") == "replica"
        assert await ask(small, "show max_wal_senders") == "2"
        launchers = (
            "select count(*) from pg_stat_activity where backend_type like 'logical%' or backend_type like 'io%'"
        )
        assert await ask(small, launchers) == 0
    async with embedded_postgres(place / "data", settings=settings_of("large")) as large:
        assert await ask(large, "show shared_buffers") == "256MB"


async def test_it_starts_from_nothing_is_attached_to_and_starts_again(place: Path) -> None:
    async with embedded_postgres(place / "data") as server:
        assert server.version.startswith("18.")
        assert await ask(server, "select current_database()") == "switchboard"
        async with embedded_postgres(place / "data") as attached:
            assert await ask(attached, "select pg_postmaster_start_time()") == await ask(
                server, "select pg_postmaster_start_time()"
            )
        assert answers(server)
    assert not answers(server)
    async with embedded_postgres(place / "data") as again:
        assert await ask(again, "select 1") == 1


async def test_the_settings_are_ours_unless_the_caller_says_otherwise(place: Path) -> None:
    settings = {"work_mem": "7MB", "jit": "on", "cluster_name": 'it\'s $HOME "here"', "port": "1"}
    async with embedded_postgres(place / "data", settings=settings) as server:
        shown = {
            name: await ask(server, f"show {name}")
            for name in ("work_mem", "jit", "cluster_name", "port", "fsync", "synchronous_commit", "max_connections")
        }
        assert shown == {
            "work_mem": "7MB",
            "jit": "on",
            "cluster_name": 'it\'s $HOME "here"',
            "port": "5432",
            "fsync": "on",
            "synchronous_commit": "on",
            "max_connections": "200",
        }
        assert await ask(server, "show listen_addresses") == ""
        assert await ask(server, "show data_checksums") == "on"
        assert await ask(server, "select lower('ÄÖ')") == "äö"
        assert stat.S_IMODE((place / "data").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["with space", "a \"b\" 'c' $HOME `id` , d", "long" * 30])
async def test_any_name_of_a_directory_will_do(place: Path, name: str) -> None:
    async with embedded_postgres(place / name, settings=FAST, database='odd "name"/?') as server:
        assert await ask(server, "show data_directory") == str(place / name)
        assert await ask(server, "select current_database()") == 'odd "name"/?'
        assert stat.S_IMODE(server.socket_dir.stat().st_mode) == 0o700
        assert (server.socket_dir == server.data_dir) == (name == "with space")
        async with embedded_postgres(place / name, settings=FAST) as attached:
            assert attached.socket_dir == server.socket_dir
    assert server.socket_dir.exists() == (name == "with space")


def test_it_runs_under_uvloop_as_well(place: Path) -> None:
    async def use() -> object:
        async with embedded_postgres(place / "data", settings=FAST) as server:
            return await ask(server, "select 1")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(use()) == 1


async def test_an_empty_directory_with_lost_and_found_will_do(place: Path) -> None:
    (place / "data" / "lost+found").mkdir(parents=True)
    (place / "data").chmod(0o755)
    async with embedded_postgres(place / "data", settings=FAST) as server:
        assert await ask(server, "select 1") == 1


@pytest.mark.parametrize("version", ["14", "15", "16", "17"])
async def test_other_programs_may_be_given(place: Path, version: str) -> None:
    binaries = DEBIAN / version / "bin"
    if not binaries.exists():
        pytest.skip(f"PostgreSQL {version} is not installed")
    async with embedded_postgres(place / "data", settings=FAST, binaries=binaries) as server:
        assert server.version.startswith(f"{version}.")
        assert await ask(server, "select lower('ÄÖ')") == "äö"


@copies
async def test_a_server_of_another_making_is_used_as_it_is(place: Path) -> None:
    """A copied directory brings lock files of a server that lives, but is not its own."""
    async with embedded_postgres(place / "one", settings=FAST) as one:
        connection = await asyncpg.connect(one.url)
        await connection.execute("checkpoint")
        shutil.copytree(place / "one", place / "two", ignore=shutil.ignore_patterns(".s.PGSQL.5432"))
        if AS_ROOT:
            chown_all(place / "two", (place / "one").stat())
        async with embedded_postgres(place / "two", settings=FAST) as two:
            assert await ask(two, "show data_directory") == str(two.data_dir)
            assert postmaster(one.data_dir) != postmaster(two.data_dir)
        assert await connection.fetchval("select 1") == 1
        await connection.close()


@copies
async def test_the_server_has_no_secrets_of_ours(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of its user can read its environment."""
    monkeypatch.setenv("CANARY_KEY", "canary")
    async with embedded_postgres(place / "data", settings=FAST) as server:
        known = environment_of(postmaster(server.data_dir))
    assert b"PATH=" in known
    assert b"canary" not in known


@needs_root
async def test_only_root_and_the_user_of_the_server_are_the_superuser(place: Path) -> None:
    """Also where somebody has opened the directory and the socket to others."""
    async with embedded_postgres(place / "data", settings=FAST) as server:
        (place / "data").chmod(0o711)
        (place / f"data/.s.PGSQL.{server.port}").chmod(0o777)
        assert "Peer authentication failed" in await asked_as("daemon", server)
        assert "ok" in await asked_as(account_name(place / "data"), server)
        (place / "data").chmod(0o700)
        assert await ask(server, "select count(*) from pg_hba_file_rules where auth_method = 'trust'") == 0


@copies
async def test_tcp_is_open_only_on_demand_and_by_password_only(place: Path) -> None:
    port = free_port()
    async with embedded_postgres(place / "data", settings=FAST, listen=("127.0.0.1", port)) as server:
        assert server.port == port
        await ask(server, "alter role postgres password 'secret'")
        tcp = f"postgresql://postgres:{{}}@127.0.0.1:{port}/switchboard"
        connection = await asyncpg.connect(tcp.format("secret"))
        await connection.close()
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(tcp.format("wrong"))
    async with embedded_postgres(place / "data", settings=FAST) as server:
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", port)) != 0
        with pytest.raises(ConfigurationError, match=rf"in use and does not listen on 127\.0\.0\.1:{port}"):
            await embedded_postgres(place / "data", listen=("127.0.0.1", port)).__aenter__()
        assert answers(server)


# Several users, and kills


async def test_two_processes_start_at_once(place: Path) -> None:
    others = [await _Other.start(place / "data") for _ in range(2)]
    reports = [await other.report() for other in others]
    assert reports[0] == reports[1]
    assert "url" in reports[0]
    await others[0].leave()
    async with embedded_postgres(place / "data", settings=FAST) as server:
        assert await ask(server, "select 1") == 1
    assert answers(server), "the other process still uses it"
    await others[1].leave()
    assert not answers(server), "the last one out stops it"


async def test_a_killed_user_leaves_the_server_running_and_counts_no_more(place: Path) -> None:
    other = await _Other.start(place / "data")
    await other.report()
    before = postmaster(place / "data")
    await other.kill()
    async with embedded_postgres(place / "data", settings=FAST) as server:
        assert postmaster(place / "data") == before
        assert await ask(server, "select 1") == 1
    assert not answers(server)


async def test_what_a_killed_user_left_behind_is_restarted_to_listen(place: Path) -> None:
    other = await _Other.start(place / "data")
    await other.report()
    await other.kill()
    port = free_port()
    async with embedded_postgres(place / "data", settings=FAST, listen=("127.0.0.1", port)) as server:
        assert server.port == port


async def test_the_server_is_out_of_reach_of_ctrl_c(place: Path) -> None:
    other = await _Other.start(place / "data")
    await other.report()
    async with embedded_postgres(place / "data", settings=FAST) as server:
        os.killpg(other.process.pid, signal.SIGINT)
        await other.process.communicate(b"")
        assert other.process.returncode != 0
        assert await ask(server, "select 1") == 1


@copies
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGQUIT])
async def test_a_killed_server_is_recovered_by_the_next_to_enter(place: Path, blow: signal.Signals) -> None:
    async with embedded_postgres(place / "data") as server:
        connection = await asyncpg.connect(server.url)
        await connection.execute("create table kept as select generate_series(1, 1000) as n")
        if blow == signal.SIGQUIT:
            await stop(place / "data", immediate=True)
        else:
            os.kill(postmaster(place / "data"), signal.SIGKILL)
        connection.terminate()
        async with embedded_postgres(place / "data") as again:
            assert await ask(again, "select count(*) from kept") == 1000
        assert answers(server), "the first use goes on"
    assert not answers(server)


@copies
@pytest.mark.skipif(sys.platform != "linux", reason="subreapers are a thing of Linux")
async def test_a_zombie_is_not_taken_for_a_server(place: Path) -> None:
    with _adopting_orphans():
        async with embedded_postgres(place / "data", settings=FAST) as server:
            killed = postmaster(place / "data")
            os.kill(killed, signal.SIGKILL)
            await asyncio.to_thread(os.waitid, os.P_PID, killed, os.WEXITED | os.WNOWAIT)  # a zombie from here on
            async with embedded_postgres(place / "data", settings=FAST) as again:
                assert await ask(again, "select 1") == 1
                assert postmaster(place / "data") != killed
            assert process_state(killed) == "Z", "it was one all the time"
        assert not answers(server)


@contextlib.contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Orphaned processes become our children, and nobody reaps them: as under a process 1 that does not reap."""
    set_child_subreaper = 36
    ctypes.CDLL(None).prctl(set_child_subreaper, 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).prctl(set_child_subreaper, 0)
        with contextlib.suppress(ChildProcessError):
            # Only who is dead: this process has other children, which live on.
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


@copies
async def test_a_stale_pid_that_now_is_somebody_else_does_not_matter(place: Path) -> None:
    async with embedded_postgres(place / "data", settings=FAST):
        await stop(place / "data", immediate=True)
        (place / "data" / "postmaster.pid").write_text(f"{os.getpid()}\n{place}/data\n1\n5432\n{place}/data\n\n0 0\n")
        async with embedded_postgres(place / "data", settings=FAST) as again:
            assert await ask(again, "select 1") == 1


async def test_a_kill_in_the_middle_of_initdb_leaves_nothing_half_made(place: Path) -> None:
    """This initdb makes half a directory, says so, and outlives its killed parent until it is told to go on."""
    half = "mkdir -m 700 .initdb; echo 18 > .initdb/PG_VERSION"
    begun, go_on, binaries = await _pausing("initdb", half, place)
    victim = await _Other.start(place / "data", binaries=str(binaries))
    await asyncio.to_thread(begun.read_text)
    await victim.kill()
    late = asyncio.create_task(_first_answer(place / "data"))
    await asyncio.to_thread(go_on.write_text, "go on\n")
    assert await late == 1
    assert not (place / "data" / ".initdb").exists()


async def _pausing(name: str, script: str, place: Path) -> tuple[Path, Path, Path]:
    """Programs of which `name` runs `script`, writes to the first pipe returned, waits for the second, and ends."""
    real = (await find_programs(None, account_for(place))).directory
    begun, go_on, binaries = place / "begun", place / "go-on", place / "bin"
    for fifo in (begun, go_on):
        os.mkfifo(fifo)
        fifo.chmod(0o666)
    binaries.mkdir(mode=0o755)
    for needed in {"initdb", "pg_ctl", "postgres"} - {name}:
        (binaries / needed).symlink_to(real / needed)
    pause = f'echo > "{begun}"; read line < "{go_on}"'
    (binaries / name).write_text(f'#!/bin/sh\nreal="{real}/{name}"; {script}; {pause}\n')
    (binaries / name).chmod(0o755)
    return begun, go_on, binaries


async def _first_answer(data_dir: Path) -> object:
    async with embedded_postgres(data_dir, settings=FAST) as server:
        return await ask(server, "select 1")


async def test_a_finished_initdb_is_moved_up_even_if_it_was_cut_off(place: Path) -> None:
    data = place / "data"
    await _first_answer(data)
    (data / ".initdb-done").mkdir()
    for name in ("base", "global", "PG_VERSION"):
        (data / name).rename(data / ".initdb-done" / name)
    assert await _first_answer(data) == 1
    assert not (data / ".initdb-done").exists()


async def test_a_cancelled_start_leaves_no_server(place: Path) -> None:
    """This pg_ctl has started the server, but is not done yet."""
    begun, _, binaries = await _pausing("pg_ctl", '"$real" "$@"', place)
    starting = asyncio.create_task(embedded_postgres(place / "data", settings=FAST, binaries=binaries).__aenter__())
    await asyncio.to_thread(begun.read_text)
    assert (place / "data" / "postmaster.pid").exists()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not (place / "data" / "postmaster.pid").exists()
    assert await _first_answer(place / "data") == 1


# Root and other users


@needs_root
async def test_root_lends_a_user_and_leaves_the_parents_alone(place: Path) -> None:
    parents = [place, *place.parents]
    before = [rights(parent) for parent in parents]
    async with embedded_postgres(place / "data", settings=FAST):
        assert owner_of(place / "data") != 0
        assert owner_of(Path(f"/proc/{postmaster(place / 'data')}")) == owner_of(place / "data")
    assert [rights(parent) for parent in parents] == before


@needs_root
@needs_open_checkout
async def test_root_runs_an_existing_directory_as_its_owner(place: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    (place / "data").mkdir(mode=0o700)
    os.chown(place / "data", nobody.pw_uid, nobody.pw_gid)
    async with embedded_postgres(place / "data", settings=FAST):
        assert owner_of(Path(f"/proc/{postmaster(place / 'data')}")) == nobody.pw_uid
    other = await _Other.start(place / "data", user="nobody")
    assert "url" in await other.report(), "the owner can go on with what root has made"
    await other.leave()


@needs_root
@needs_open_checkout
async def test_two_users_of_one_machine_do_not_disturb_each_other(place: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    theirs = place / "theirs"
    theirs.mkdir(mode=0o755)
    os.chown(theirs, nobody.pw_uid, nobody.pw_gid)
    async with embedded_postgres(place / ("ours" * 30), settings=FAST) as ours:
        other = await _Other.start(theirs / ("data" * 30), user="nobody")
        assert (await other.report())["data_dir"] == str(theirs / ("data" * 30))
        assert await ask(ours, "show data_directory") == str(ours.data_dir)
        await other.leave()
        assert answers(ours)


@needs_root
async def test_a_closed_parent_is_named(place: Path) -> None:
    (place / "closed" / "deeper").mkdir(parents=True)
    (place / "closed").chmod(0o700)
    with pytest.raises(ConfigurationError, match=r"no access to \S+/closed and cannot reach \S+/closed/deeper/data;"):
        await _first_answer(place / "closed" / "deeper" / "data")
    assert stat.S_IMODE((place / "closed").stat().st_mode) == 0o700
    assert not (place / "closed" / "deeper" / "data").exists()


@needs_root
async def test_programs_that_the_user_cannot_reach_are_named(place: Path) -> None:
    real = (await find_programs(None, account_for(place))).directory
    (place / "closed").mkdir(mode=0o700)
    (place / "closed" / "bin").symlink_to(real)
    with pytest.raises(ConfigurationError, match=r"has no access to \S+/closed .*such as /opt"):
        await embedded_postgres(place / "data", binaries=place / "closed" / "bin").__aenter__()


@needs_root
async def test_no_right_to_write_is_said(place: Path) -> None:
    other = await _Other.start(place / "data", user="nobody")
    assert f"no permission to write to {place}/data" in (await other.report())["error"]
    await other.leave()


# Clear errors


async def test_a_foreign_directory_is_left_alone(place: Path) -> None:
    (place / "letter.txt").write_text("dear")
    with pytest.raises(ConfigurationError, match=r"neither empty nor a PostgreSQL data directory .*'letter.txt'"):
        await _first_answer(place)
    assert names_in(place) == ["letter.txt"]


@copies
async def test_data_of_another_version_is_refused(place: Path) -> None:
    await _first_answer(place / "data")
    (place / "data" / "PG_VERSION").write_text("13\n")
    with pytest.raises(ConfigurationError, match=r"written by PostgreSQL 13, but .* version 18; .*move the data"):
        await _first_answer(place / "data")


async def test_missing_and_wrong_programs_are_named(place: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing in \S+/none: initdb, pg_ctl, postgres; .*DATABASE_URL"):
        await embedded_postgres(place / "data", binaries=place / "none").__aenter__()
    old = place / "old"
    old.mkdir(mode=0o755)
    for name in ("initdb", "pg_ctl", "postgres"):
        (old / name).write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 13.4'\n")
        (old / name).chmod(0o755)
    with pytest.raises(ConfigurationError, match=r"is not PostgreSQL 14 or newer: 'postgres \(PostgreSQL\) 13.4'"):
        await embedded_postgres(place / "data", binaries=old).__aenter__()


@copies
async def test_a_taken_port_is_named(place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"port {port} on 127\.0\.0\.1 is in use"):
            await embedded_postgres(place / "data", settings=FAST, listen=("127.0.0.1", port)).__aenter__()


@copies
async def test_a_failed_start_shows_the_end_of_the_log(place: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)last lines of \S+/data/server\.log.*unrecognized.*no_such"):
        await embedded_postgres(place / "data", settings={**FAST, "no_such": "1"}).__aenter__()


@copies
async def test_a_foreign_socket_directory_is_refused(place: Path) -> None:
    data = place / ("long" * 30)
    async with embedded_postgres(data, settings=FAST) as server:
        pass
    server.socket_dir.mkdir(mode=0o755)
    try:
        with pytest.raises(ConfigurationError, match=r"meant for the socket, is not a private directory of this user"):
            await _first_answer(data)
    finally:
        server.socket_dir.rmdir()


@needs_root
@pytest.mark.parametrize("size", ["8m", "60m"])
async def test_a_full_disk_is_said(place: Path, size: str) -> None:
    """8 MB end initdb; in 60 MB there is room for a cluster, but none is left when the server shall start."""
    disk = place / "disk"
    disk.mkdir()
    mount = await asyncio.create_subprocess_exec("mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "none", disk)
    if await mount.wait() != 0:
        pytest.skip("not allowed to mount here")
    try:
        if size == "60m":
            await _first_answer(disk / "data")
            with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
                while file.write(b"x" * 4096):
                    pass
        with pytest.raises(ConfigurationError, match=r"the disk of \S+/disk/data is full"):
            await _first_answer(disk / "data")
    finally:
        await stop(disk / "data", immediate=True)
        await (await asyncio.create_subprocess_exec("umount", disk)).wait()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
