"""Processes of the executable from start to end: real signals, killed workers, imports, the embedded database."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from switchboard.cli.messages import talk
from switchboard.cli.messages.talk import Draft
from tests.forked import ForkedCommand
from tests.processes import (
    DEADLINE,
    EXECUTABLE,
    butler,
    environment,
    running,
    switchboard,
    that_know,
    told,
    write_teams,
)

pytestmark = pytest.mark.slow


def test_up_from_nothing_on_the_embedded_database(place: Path) -> None:
    """The three lines; a message; a second start that remembers; nothing is left running."""
    env = environment(place / "data")
    with running(env, "up") as server:
        token = Path(server.said["token_file"])
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        sent = told(server.environment, "send", "remember the milk", "--wait", "30")
        doctor = told(server.environment, "doctor")
        assert doctor["healthy"], doctor
        assert server.stop() == 0
    assert told(server.environment, "messages", "list", code=3)["error"]["code"] == "no_server"
    assert not (place / "data/postgres/postmaster.pid").exists()
    # While nothing runs, the doctor opens the database itself.
    down = {f["name"]: f["status"] for f in told(server.environment, "doctor", code=1)["findings"]}
    assert (down["server"], down["workers"], down["books: messages"]) == ("error", "error", "ok")
    assert not (place / "data/postgres/postmaster.pid").exists()
    process = subprocess.Popen(
        [EXECUTABLE, "up"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline() for _ in range(3)]
        url = re.search(r"http://\S+", lines[0])
        assert url is not None
        assert str(token) in lines[1]
        tried = re.fullmatch(rf"Try it: (.+ SWITCHBOARD_URL={re.escape(url[0])} (\S*/)?switchboard chat)\n", lines[2])
        assert tried is not None
        elsewhere = {name: value for name, value in env.items() if not name.startswith("SWITCHBOARD_")}
        chat = subprocess.run(["/bin/sh", "-c", f"{tried[1]} --once hello"], env=elsewhere, check=False)
        assert chat.returncode == 0, "as it stands, in another terminal"
        listed = told({**env, "SWITCHBOARD_URL": url[0]}, "messages", "list")["messages"]
        assert [m["request_id"] for m in listed][1:] == [sent["request_id"]]
    finally:
        process.send_signal(signal.SIGHUP)
        assert process.wait(DEADLINE) == 0
        process.stdout.close()
    assert not (place / "data/postgres/postmaster.pid").exists()


def test_signals_ignored_from_the_start_end_nothing_but_sigterm_does(place: Path) -> None:
    """As under `nohup` or behind `&` in a script; and whatever the parent ignores, there is a way to end it."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'trap "" INT QUIT HUP TERM; exec "$@"', "sh", EXECUTABLE, "up", "--json"],
        env=environment(place / "data"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["url"]
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGHUP)
    told({**environment(place / "data"), "SWITCHBOARD_URL": url}, "send", "still there?", "--wait", "30")
    withheld = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)
    for pid in _started_by(process.pid):
        assert [number for number in withheld if _ignored(pid) >> (number - 1) & 1] == [], pid
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    assert that_know(place) == []


def _started_by(pid: int) -> list[int]:
    """All its descendants."""
    below = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return below + [one for child in below for one in _started_by(child)]


def _ignored(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("SigIgn:")[2].split()[0], 16)


_INTERRUPTED_AT_IMPORT = """
import os, runpy, signal, sys

def hook(event, given):
    if event == "import" and given[0] == {module!r}:
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(hook)
runpy.run_path({executable!r}, run_name="__main__")
"""


@pytest.mark.parametrize("module", ["rich.console", "switchboard.app.settings", "switchboard.cli.processes.running"])
def test_ctrl_c_while_modules_are_imported_ends_it_without_a_word(place: Path, module: str) -> None:
    """By the signal itself: an exception was swallowed where pydantic builds its validators, and `up` ran on."""
    program = _INTERRUPTED_AT_IMPORT.format(module=module, executable=EXECUTABLE)
    done = subprocess.run(
        [sys.executable, "-c", program, "up"],
        env=environment(place / "data"),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_demo_that_is_broken_off_leaves_nothing_running(place: Path, number: signal.Signals) -> None:
    process = ForkedCommand(
        [EXECUTABLE, "demo", str(place / "demo")],
        env=environment(place / "data"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    started = place / "demo/postgres/postmaster.pid"
    _until(lambda: True if started.exists() or process.poll() is not None else None)
    process.send_signal(number)
    said, _ = process.communicate(timeout=DEADLINE)
    assert started.parent.is_dir(), said
    assert process.returncode != 0, said
    assert "Traceback" not in said
    assert that_know(place) == []


_LOOK_AT_THE_COLLECTOR = """
import gc
from switchboard.cli.processes import working
from switchboard.cli.main import main

async def look(work, stop):
    for part in work:  # tasks that run already, or coroutines
        part.cancel() if hasattr(part, "cancel") else part.close()
    print(gc.isenabled(), gc.get_freeze_count() > 10_000)

working._together = look
main()
"""


@pytest.mark.parametrize("command", ["up", "serve", "work"])
def test_garbage_is_collected_once_started_but_not_in_what_was_loaded(
    database_url: str, tmp_path: Path, command: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOOK_AT_THE_COLLECTOR, command],
        env=environment(tmp_path, DATABASE_URL=database_url),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("True True\n", 0), done.stderr


def test_what_works_with_the_database_is_not_imported_before_it_starts() -> None:
    late = ("switchboard.app.wiring", "switchboard.cli.processes.working", "fastapi", "httpx2")
    start = "import sys; import switchboard.cli.processes.running"
    look = f"{start}; print([name for name in {late} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_the_port_is_in_use(home: Path) -> None:
    env = environment(home / "data")
    with running(env, "serve") as server:
        port = server.said["url"].rpartition(":")[2]
        done = switchboard(environment(home / "other"), "serve", "--port", port)
        assert done.returncode == 1
        assert not (home / "other").exists(), "nothing was made before the address was had"
        assert "is in use" in done.stderr
        assert "Traceback" not in done.stderr


def test_server_and_workers_apart(home: Path) -> None:
    """`serve` takes, `work` answers; a drained worker ends with 0."""
    env = environment(home / "data")
    with running(env, "serve") as server:
        waiting = told(server.environment, "send", "is anybody there?", "--wait", "0.3", code=1)
        assert waiting["settled"] is False
        with running(env, "work", "--concurrency", "2", "--name", "w1") as worker:
            answered = told(server.environment, "send", "and now?", "--wait", "30")
            assert answered["state"] == "answered"
            assert told(server.environment, "messages", "show", waiting["request_id"])["state"] == "answered"
            assert worker.stop() == 0


def test_a_killed_worker_process_is_replaced(home: Path) -> None:
    env = environment(home / "data")
    with running(env, "up", "--workers", "1") as server:
        first = _children(server.process.pid)
        os.kill(first.pop(), signal.SIGKILL)
        second = _until(lambda: _children(server.process.pid) - first or None)
        assert second
        assert told(server.environment, "send", "still there?", "--wait", "30")["state"] == "answered"
    for pid in second:
        assert not Path(f"/proc/{pid}/cmdline").exists()


def test_workers_end_with_a_parent_that_was_killed(home: Path) -> None:
    env = environment(home / "data")
    with running(env, "up", "--workers", "1") as server:
        [worker] = _until(lambda: _children(server.process.pid) or None)
        server.process.kill()
        _until(lambda: True if not _lives(worker) else None)
    # The database has survived; the next one to use it stops it again.
    assert told(env, "db", "migrate")["applied"] == []


def test_the_first_signal_drains_and_the_second_ends_at_once(place: Path) -> None:
    slow = {"team": {"name": "root"}, "systems": [butler("slow", ["sleep", "600"])]}
    slow |= {"routing_rules": [{"name": "all", "channel": "*", "targets": [{"system_id": "System1/slow"}]}]}
    env = environment(place / "data", TEAMS_DIR=str(write_teams(place / "teams", slow)), WORKER__DRAIN="600")
    with running(env, "up") as server:
        sent = told(server.environment, "send", "take your time")["request_id"]
        ours = ("messages", "show", sent)
        _until(lambda: told(server.environment, *ours)["deliveries"][0]["state"] == "running" or None)
        server.process.terminate()
        _until(lambda: switchboard(server.environment, *ours).returncode == 3 or None)
        assert server.process.poll() is None
        assert server.stop() == 128 + signal.SIGTERM
        _until(lambda: True if that_know(place) == [] else None)  # nor is the database left behind
    with running(env, "serve") as server:
        assert told(server.environment, *ours)["state"] == "in_flight"


@pytest.mark.parametrize("ready", [True, False], ids=["ready", "starting"])
def test_two_signals_at_once_leave_no_database_running(place: Path, *, ready: bool) -> None:
    """As `timeout` sends them, to us and to our group; also while the database is only being made."""
    env = environment(place / "data")
    process = ForkedCommand([EXECUTABLE, "up", "--json"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    if ready:
        process.stdout.readline()
    else:
        _until(lambda: True if (place / "data/postgres/switchboard.lock").exists() else None)
    for number in (signal.SIGTERM, signal.SIGINT):  # two of a kind may reach a process as one
        process.send_signal(number)
    process.communicate(timeout=DEADLINE)
    assert process.returncode in {0, 128 + signal.SIGTERM, 128 + signal.SIGINT}
    _until(lambda: True if that_know(place) == [] else None)


def test_an_import_waits_for_a_busy_server(place: Path, tmp_path: Path) -> None:
    """429: nothing is refused, nothing is lost, it goes on when there is room again."""
    lines = [json.dumps(talk.envelope(Draft("x", "api", "busy", "joe", None, f"busy {n}"))) for n in range(25)]
    (tmp_path / "list.jsonl").write_text("\n".join(lines))
    env = environment(place / "data", ACCEPT__BACKLOG="10", LOG_LEVEL="error")
    command = ("import", str(tmp_path / "list.jsonl"), "--json")
    with running(env, "serve") as server:
        _until(lambda: switchboard(server.environment, "send", "x").returncode or None)
        assert told(server.environment, "send", "x", code=1)["error"]["code"] == "overloaded"
        importing = ForkedCommand(
            [EXECUTABLE, *command],
            env=dict(server.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert importing.stderr is not None
            assert importing.stderr.readline().startswith("waiting: ")
            with running(env, "work"):
                out, _ = importing.communicate(timeout=DEADLINE)
        finally:
            importing.kill()
            importing.communicate()
        said = json.loads(out)
        assert (said["new"], said["duplicates"], said["refused"]) == (25, 0, 0)


def _children(pid: int) -> set[int]:
    """The worker processes of a server."""
    found = set()
    for stat_file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat_file.read_text().rpartition(")")[2].split()
            command = stat_file.with_name("cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid and b"work" in command:
            found.add(int(stat_file.parent.name))
    return found


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _until(look: Any) -> Any:
    """The first answer that is not None, within the deadline."""
    deadline = time.monotonic() + DEADLINE
    while (found := look()) is None:
        assert time.monotonic() < deadline, "it did not happen in time"
        select.select([], [], [], 0.02)
    return found


def test_an_import_that_is_killed_and_run_again_takes_nothing_twice(home: Path, tmp_path: Path) -> None:
    count = 500
    line = "From joe@example.org Mon Jan  5 10:00:00 2026\n"
    mails = (f"{line}From: joe@example.org\nMessage-ID: <{n}@kill>\n\nmail {n}\n\n" for n in range(count))
    (tmp_path / "box.mbox").write_text("".join(mails))
    command = ("import", str(tmp_path / "box.mbox"), "--endpoint", "kill@example.org")
    with running(environment(home / "data", LOG_LEVEL="error"), "serve") as server:
        killed = ForkedCommand([EXECUTABLE, *command], env=dict(server.environment), stdout=subprocess.DEVNULL)
        _until(lambda: _newest(server.environment) or None)
        killed.kill()
        killed.wait(DEADLINE)
        first = _until(lambda: _newest_at_rest(server.environment))

        stopped = ForkedCommand(
            [EXECUTABLE, *command],
            env=dict(server.environment),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        _until(lambda: True if _newest(server.environment) > first else None)
        stopped.send_signal(signal.SIGINT)
        _, said = stopped.communicate(timeout=DEADLINE)
        assert stopped.returncode == 130
        assert "run the same command again" in said

        last = told(server.environment, *command)
        assert 0 < last["duplicates"] < count
        assert last["new"] + last["duplicates"] == count
        assert _taken(server.environment) == count
        assert told(server.environment, *command)["duplicates"] == count


def _newest_at_rest(env: Mapping[str, str]) -> str | None:
    """The newest message once nothing that was still under way has come after it."""
    newest = _newest(env)
    select.select([], [], [], 0.5)
    return newest if _newest(env) == newest else None


def _newest(env: Mapping[str, str]) -> str:
    """The id of the newest message, which grows; empty before there is any."""
    messages = _page(env, limit=1)["messages"]
    return messages[0]["request_id"] if messages else ""


def _taken(env: Mapping[str, str]) -> int:
    """How many messages the books know of this account."""
    taken, more = 0, dict[str, Any]()
    while True:
        page = _page(env, limit=500, **more)
        taken, more = taken + len(page["messages"]), {"cursor": page["next_cursor"]}
        if not page["next_cursor"]:
            return taken


def _page(env: Mapping[str, str], **query: Any) -> dict[str, Any]:
    """A page of the messages of this account, without a process for each look."""
    token = Path(env["SWITCHBOARD_DATA_DIR"], "operator.token").read_text().strip()
    page = httpx2.get(
        f"{env['SWITCHBOARD_URL']}/v1/messages",
        params={"endpoint": "kill@example.org", **query},
        headers={"Authorization": f"Bearer {token}"},
        trust_env=False,
    )
    return dict(page.raise_for_status().json())
