"""The executable as its users run it: real processes, real signals, a real terminal, the embedded database."""

from __future__ import annotations

import getpass
import json
import os
import pty
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from switchboard.cli.main import COMMANDS, main
from switchboard.cli.messages import talk
from switchboard.cli.messages.talk import Draft
from tests.forked import ForkedCommand, commands_for_shells
from tests.places import passable
from tests.processes import (
    DEADLINE,
    EXECUTABLE,
    butler,
    environment,
    running,
    scripted_llm,
    switchboard,
    that_know,
    told,
    until,
    write_teams,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def place() -> Iterator[Path]:
    """With spaces in its name."""
    with passable("switchboard cli ") as directory:
        yield directory


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """For all tests, with a database that is made once."""
    with passable() as directory:
        yield directory


HELP = (
    *((entry.name,) for entry in COMMANDS if entry.name not in ("demo", "bench")),
    *(("messages", name) for name in ("list", "show", "correct", "raw")),
    *(("dlq", name) for name in ("list", "show", "reroute", "handle")),
    *(("tokens", name) for name in ("create", "list", "revoke")),
    *(("outbox", name) for name in ("list", "show", "resend")),
    *(("lanes", name) for name in ("list", "show", "resume")),
    *(("db", name) for name in ("migrate", "backup", "restore")),
    *(
        ("rules", name)
        for name in ("list", "show", "create", "update", "disable", "enable", "test", "lint", "backtest")
    ),
    *(("rules", name) for name in ("versions", "diff", "restore", "export", "import")),
    *(("channels", name) for name in ("list", "show", "add", "test", "pause", "resume", "remove")),
    *(("sops", name) for name in ("list", "load", "unload")),
    ("plans", "try"),
)
OPTIONS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("up",): ("--host", "--port", "--workers", "--concurrency"),
    ("serve",): ("--host", "--port"),
    ("work",): ("--concurrency", "--name"),
    ("chat",): ("--thread", "--endpoint", "--once", "--wait"),
    ("send",): ("--channel", "--endpoint", "--sender", "--thread", "--id", "--wait"),
    ("import",): ("--endpoint", "--kind", "PATH"),
    ("messages", "list"): ("--limit", "--cursor", "--channel", "--endpoint"),
    ("tokens", "create"): ("--role", "--channel", "--endpoint", "--system", "--expires-in-days"),
    ("db", "restore"): ("--force",),
    ("dlq", "list"): ("--team", "--state", "--category"),
    ("explain",): ("--dry-run", "--facts"),
    ("rules", "create"): ("--team", "--name", "--channel", "--to", "--filter", "--priority", "--reason", "--dry-run"),
    ("rules", "backtest"): ("--last", "--days", "--file", "--rule", "--set"),
    ("rules", "import"): ("--tests", "--expect", "--reason", "--dry-run"),
}
NOUNS = (
    "messages teams agents dlq tokens outbox lanes db rules sops models channels connectors "
    "pairing quarantine webhooks audit bench memory approvals mcp plans monitoring service upgrade people modules "
    "tasks conversations web-sessions setup"
)
GROUPS = {(noun,) for noun in NOUNS.split()}


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_every_command_helps(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    said = capsys.readouterr().out
    expected = OPTIONS.get(command, ()) + (() if command in GROUPS | {("connect",)} else ("--json",))
    assert ended.value.code == 0
    assert [option for option in expected if option not in said] == []
    assert "--while-stdin" not in said


def test_help_of_the_demo_names_the_setting(capsys: pytest.CaptureFixture[str]) -> None:
    """Square brackets would be taken for markup, and be gone."""
    with pytest.raises(SystemExit):
        main(["demo", "--help"])
    said = capsys.readouterr().out
    assert said.count("models") >= 2
    assert "[]" not in said


def test_help_knows_all_commands(tmp_path: Path) -> None:
    done = switchboard(environment(tmp_path), "--help")
    assert [entry.name for entry in COMMANDS if entry.name not in done.stdout] == []


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    program = (
        "import sys; from switchboard.cli.main import main\n"
        "try: main(['--help'])\nfinally: print(); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(tmp_path), capture_output=True, text=True, check=False
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "typer" in loaded
    assert not loaded & {"fastapi", "uvicorn", "asyncpg", "httpx2", "pydantic_settings", "mcp"}


@pytest.mark.parametrize("words", ["version", "version --json", "--version", "--help"])
@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [
        (">/dev/full", 1, "error: what is printed cannot be written: No space left on device\n"),
        (">&-", 0, ""),
        ("2>&-", 0, ""),
        ("<&- >&- 2>&-", 0, ""),
    ],
)
def test_stdout_may_be_full_and_streams_may_be_closed(
    tmp_path: Path, words: str, streams: str, code: int, said: str
) -> None:
    command = ["sh", "-c", f'"$0" {words} {streams}', EXECUTABLE]
    done = subprocess.run(command, env=environment(tmp_path), stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, said)


def test_what_a_terminal_cannot_show_is_escaped_and_a_width_of_0_is_none(tmp_path: Path) -> None:
    env = environment(tmp_path / "data") | {"PYTHONIOENCODING": "ascii", "COLUMNS": "0"}
    done = subprocess.run([EXECUTABLE, "doctor"], env=env, capture_output=True, text=True, check=False)
    assert "\\u2713 python" in done.stdout
    assert "Traceback" not in done.stderr


_STARTS: Final = {
    *("init", "up", "serve", "work", "connect", "demo", "bench"),
    *("channels", "webhooks", "doctor", "db", "backup", "restore", "service", "upgrade"),
}
"""Commands that need all settings; the others ask the server."""


def test_commands_that_ask_the_server_load_nothing_of_it(tmp_path: Path) -> None:
    """All of them together, and one is run; a third of its time would go to the settings."""
    asking = [entry.place for entry in COMMANDS if entry.name not in _STARTS]
    program = (
        f"import sys; from switchboard.cli.main import load, main\nfor place in {asking}: load(place)\n"
        "try: main(['messages', 'list'])\nfinally: print(); print(*sys.modules)"
    )
    env = environment(tmp_path, URL="http://127.0.0.1:1")
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert "no switchboard is running at http://127.0.0.1:1" in done.stderr
    loaded = set(done.stdout.splitlines()[-1].split())
    assert {"switchboard.cli.models.commands", "switchboard.app.whereabouts"} <= loaded
    assert not loaded & {
        *("switchboard.app.settings", "pydantic_settings", "fastapi", "uvicorn", "asyncpg", "mcp"),
        *("switchboard.llm.dispatch", "switchboard.app.models.model_tests"),
    }


def test_it_runs_as_a_module_too(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "switchboard", "version", "--json"]
    done = subprocess.run(words, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert json.loads(done.stdout) == told(environment(tmp_path), "version"), done.stderr


def test_what_stops_the_start_is_said_and_nothing_else(place: Path) -> None:
    models = [{"name": "a", "kind": "openai", "model": "x", "api_key_env": "NO_SUCH_KEY"}]
    classify = {"CLASSIFY__MODELS": '["a"]', "MODELS": json.dumps(models)}
    done = switchboard(environment(place / "data", PORT="0", **classify), "up")
    assert done.returncode == 1
    assert "NO_SUCH_KEY" in done.stderr
    assert "never awaited" not in done.stderr


@pytest.mark.parametrize(
    ("engine", "config"),
    [
        ("http", {"url": "tides.example/hook", "secret_env": "PATH"}),
        ("http", {"url": "http://[::1", "secret_env": "PATH"}),
        ("http", {"url": "http://tides.example", "secret_env": "NO_SUCH_SECRET"}),
        ("mcp", {"url": "ftp://tides.example"}),
        ("mcp", {"url": "http://tides.example", "token_env": "NO_SUCH_SECRET"}),
    ],
)
def test_wrong_options_of_a_butler_name_the_butler(place: Path, engine: str, config: dict[str, str]) -> None:
    tides = {"name": "tides", "type": "operation", "engine": engine, "config": config}
    teams = write_teams(place / "teams", {"team": {"name": "root"}, "systems": [butler("other"), tides]})
    done = switchboard(environment(place / "data", TEAMS_DIR=str(teams)), "up")
    assert done.returncode == 1
    assert "System1/tides" in done.stderr
    assert "URL" in done.stderr or "NO_SUCH_SECRET" in done.stderr


def test_raw_bytes_do_not_steer_a_terminal(home: Path) -> None:
    """Elsewhere they are exactly what came."""
    mail = (
        b"From: a@example.org\r\nMessage-ID: <steer@example.org>\r\nSubject: x\r\n\r\nred \x1b[31m \xc2\x9b2J done\r\n"
    )
    (home / "steer.eml").write_bytes(mail)
    with running(environment(home / "data"), "up") as server:
        told(server.environment, "import", home / "steer.eml", "--endpoint", "house@home.example")
        newest = told(server.environment, "messages", "list", "--limit", "1")["messages"][0]["request_id"]
        with terminal(server.environment, "messages", "raw", newest) as screen:
            screen.expect(r"red \x1b[31m \x9b2J done")
            assert screen.process.wait(DEADLINE) == 0
        piped = subprocess.run(
            [EXECUTABLE, "messages", "raw", newest], env=dict(server.environment), capture_output=True, check=True
        )
        assert piped.stdout == mail


def test_usage_errors(tmp_path: Path) -> None:
    env = environment(tmp_path)
    assert switchboard(env, "sned").returncode == 2
    assert "Did you mean" in switchboard(env, "sned").stderr
    assert switchboard(env, "send").returncode == 2
    assert switchboard(env, "up", "--port", "many").returncode == 2
    assert told(env, "version")["version"]


def test_settings_that_are_wrong_stop_the_start(tmp_path: Path) -> None:
    (tmp_path / "switchboard.toml").write_text('host = "127.0.0.1"\nportt = 1\n')
    done = switchboard(environment(tmp_path), "up", cwd=tmp_path)
    assert done.returncode == 1
    assert "switchboard.toml, line 2: portt: unknown setting" in done.stderr
    assert "Traceback" not in done.stderr


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
        assert re.fullmatch(rf"Try it: SWITCHBOARD_URL={re.escape(url[0])} (\S*/)?switchboard chat\n", lines[2])
        listed = told({**env, "SWITCHBOARD_URL": url[0]}, "messages", "list")["messages"]
        assert [m["request_id"] for m in listed] == [sent["request_id"]]
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


@contextmanager
def terminal(
    env: Mapping[str, str], *arguments: str, program: str = EXECUTABLE, controlled: bool = False
) -> Iterator[Terminal]:
    """A command on a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    start = ForkedCommand if program == EXECUTABLE else subprocess.Popen
    process = start(
        [program, *arguments],
        env=dict(env),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=controlled,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def on_its_terminal(env: Mapping[str, str], *arguments: str) -> AbstractContextManager[Terminal]:
    """A command on a terminal that it controls, so that Ctrl-C is a signal for it."""
    return terminal(env, *arguments, controlled=True)


class Terminal:
    """What is typed and what appears."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self.process = process
        self.screen = ""
        self._at = 0

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def expect(self, text: str) -> None:
        """Read until `text` appears, after what was expected before."""
        assert self._appears(text, DEADLINE), f"{text!r} did not appear; the screen shows {self.screen!r}"
        self._at = self.screen.index(text, self._at) + len(text)

    @property
    def left(self) -> str:
        """What is left on the screen: lines may have been erased, to be drawn again."""
        lines = [""]
        for piece in re.split("(\n|\x1b\\[1A\x1b\\[2K|\x1b\\[2K)", self.screen):
            match piece:
                case "\n":
                    lines.append("")
                case "\x1b[2K":
                    lines[-1] = ""
                case "\x1b[1A\x1b[2K":
                    lines[-2:] = [""]
                case _:
                    lines[-1] += piece
        return "\n".join(lines)

    def interrupt(self, text: str) -> None:
        """Press Ctrl-C at a prompt until `text` appears: Python does not see one that comes just before it waits."""
        self.type("\x03")
        if not self._appears(text, DEADLINE / 4):
            self.type("\x03")
        self.expect(text)

    def _appears(self, text: str, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while text not in self.screen[self._at :]:
            readable, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                return False
            self.screen += os.read(self._descriptor, 4096).decode(errors="replace")
        return True


SHELLS = {
    "bash": (("--norc", "-i"), "source <(_SWITCHBOARD_COMPLETE=source_bash switchboard)"),
    "zsh": (
        ("-f", "-i"),
        "autoload -Uz compinit; compinit -u -D; source <(_SWITCHBOARD_COMPLETE=source_zsh switchboard)",
    ),
    "fish": (("--no-config", "-i"), "_SWITCHBOARD_COMPLETE=source_fish switchboard | source"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_complete_below_the_first_word(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    options, load = SHELLS[shell]
    env = environment(tmp_path, URL="http://127.0.0.1:9") | {"HOME": str(tmp_path), "TERM": "xterm", "PS1": "$ "}
    with (
        commands_for_shells() as commands,
        # A terminal that the shell controls.
        terminal(env | {"PATH": f"{commands}:{env['PATH']}"}, "--ctty", shell, *options, program="setsid") as screen,
    ):
        screen.type(f"{load}; echo loa''ded\n")
        screen.expect("loaded")
        screen.type("switchboard chann\tsho\t-h\n")
        screen.expect("Show one account with its counters")
        screen.type("switchboard rules crea\t--prio\t5\n")
        screen.expect("Usage: switchboard rules create")


CLERK_TEAM = {
    "team": {"name": "root"},
    "systems": [{"name": "System1/clerk", "engine": "model"}],
    "routing_rules": [{"name": "all", "channel": "*", "targets": [{"system_id": "System1/clerk"}]}],
}


@contextmanager
def clerk(place: Path, *answers: Mapping[str, Any], timeout: int, **options: object) -> Iterator[Mapping[str, str]]:
    """A server whose butler, with these options, asks a model that gives these answers; its environment."""
    system = {"name": "System1/clerk", "engine": "model", "config": options}
    teams = write_teams(place / "teams", CLERK_TEAM | {"systems": [system]})
    with scripted_llm(list(answers), place) as url:
        model = {"name": "m", "kind": "openai", "model": "scripted-1", "base_url": f"{url}/v1", "timeout": timeout}
        env = environment(place / "data", TEAMS_DIR=str(teams), MODELS=json.dumps([model])) | {"TERM": "xterm"}
        with running(env | {"XDG_STATE_HOME": str(place)}, "up") as server:
            yield server.environment


TALE = {"text": "There was a king. " * 8, "fault": {"kind": "hang", "at": "middle"}}


def test_chat_shows_an_answer_while_it_is_written(place: Path) -> None:
    with clerk(place, *[TALE] * 8, timeout=2) as env, terminal(env, "chat") as screen:
        screen.expect("you: ")
        screen.type("tell me a tale\n")
        screen.expect("System1/clerk:")
        screen.expect("There was a king.")
        screen.expect("System1/clerk waits: the model does not answer in time")


@pytest.mark.parametrize(
    ("keys", "after"), [("and the weather?\n/stop\n", ""), ("\x03", "and the weather?\n")], ids=["stop", "ctrl-c"]
)
def test_chat_stops_an_answer(keys: str, after: str, place: Path) -> None:
    """And goes on: with what was typed meanwhile, and then with the prompt."""
    answers = (TALE, {"text": "The weather is fine."})
    with clerk(place, *answers, timeout=600) as env, on_its_terminal(env, "chat", "--thread", "tales") as screen:
        screen.expect("/stop")
        screen.expect("you: ")
        screen.type("tell me a tale\n")
        screen.expect("There was a king.")
        screen.type(keys)
        screen.expect("stopping; Ctrl-C leaves")
        screen.type(after)
        screen.expect("you: and the weather?")
        screen.expect("The weather is fine.")
        screen.expect("you: ")
        screen.type("/help\n")
        screen.expect("/stop")
        screen.expect("you: ")
        screen.interrupt("switchboard chat --thread tales")
        assert screen.process.wait(DEADLINE) == 130


def test_chat_gives_the_prompt_back_while_a_turn_waits_for_people(place: Path) -> None:
    shopping = {"name": "write_file", "arguments": {"path": "list", "content": "milk"}}
    call, listed, sunny = {"text": "", "calls": [shopping]}, {"text": "Milk is on the list."}, {"text": "It is sunny."}
    options = {"owners": [f"cli:{getpass.getuser()}"], "approve": ["write_file"]}
    with clerk(place, call, sunny, listed, call, sunny, listed, timeout=600, **options) as env:
        _approved_at_the_prompt(env)
        _approved_elsewhere(env)


def _approved_elsewhere(env: Mapping[str, str]) -> None:
    """From a pipe, the next line is said, and at its end the answer is waited for."""
    command = [EXECUTABLE, "chat", "--wait", str(DEADLINE)]
    with ForkedCommand(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write("buy milk\nand the weather?\n")
        process.stdin.close()
        until(lambda: bool(told(env, "approvals", "list")["approvals"]))
        [asked] = told(env, "approvals", "list")["approvals"]
        until(lambda: len(told(env, "messages", "list", "--state", "answered")["messages"]) == 4)
        told(env, "approvals", "approve", asked["approval_id"])
        assert process.stdout is not None
        said = process.stdout.read()
        assert process.wait(DEADLINE) == 0
    assert said.endswith("System1/clerk: It is sunny.\nSystem1/clerk: Milk is on the list.\n")


def _approved_at_the_prompt(env: Mapping[str, str]) -> None:
    with terminal(env, "chat") as screen:
        screen.expect("you: ")
        screen.type("buy milk\n")
        screen.expect("This needs approval first: write_file")
        screen.expect("System1/clerk waits for a decision about write_file: switchboard approvals show ")
        screen.expect("you can continue meanwhile")
        screen.expect("you: ")
        screen.type("and the weather?\n")
        screen.expect("It is sunny.")
        screen.expect("you: ")
        [asked] = told(env, "approvals", "list")["approvals"]
        screen.type(f"/approve {asked['approval_id'][:8]}\n")
        screen.expect("Approved: write_file")
        screen.expect("Milk is on the list.")
        screen.expect("you: ")
        assert screen.left.count("This needs approval first") == 1
        screen.type("\x04")
        assert screen.process.wait(DEADLINE) == 0


def test_chat_leaves_an_answer_that_does_not_end(place: Path) -> None:
    """Programs do not stop in the middle: who does not wait for them leaves, and is told how to come back."""
    team = CLERK_TEAM | {"systems": [butler("clerk", ["sleep", "1000"])]}
    env = environment(place / "data", TEAMS_DIR=str(write_teams(place / "teams", team)), WORKER__DRAIN="0.1")
    with running(env | {"TERM": "xterm", "XDG_STATE_HOME": str(place)}, "up") as server:
        with on_its_terminal(server.environment, "chat", "--thread", "long") as screen:
            screen.expect("you: ")
            screen.type("work\n")
            until(lambda: bool(told(server.environment, "messages", "list")["messages"]))
            screen.type("\x03")
            screen.expect("stopping; Ctrl-C leaves")
            screen.type("\x03")
            screen.expect("switchboard chat --thread long")
            assert screen.process.wait(DEADLINE) == 130
        with on_its_terminal(server.environment, "chat", "--thread", "long") as screen:
            screen.expect("you: ")
            screen.type("more\n")
            until(lambda: len(told(server.environment, "messages", "list")["messages"]) == 2)
            screen.type("/quit\n")
            screen.expect("switchboard chat --thread long")
            assert screen.process.wait(DEADLINE) == 0


def test_chat_on_a_terminal(home: Path, tmp_path: Path) -> None:
    env = environment(home / "data") | {"XDG_STATE_HOME": str(tmp_path), "TERM": "xterm"}
    with running(env, "up") as server:
        with terminal(server.environment, "chat", "--thread", "pty") as screen:
            screen.expect("you: ")
            screen.type("the plumber comes on friday\n")
            screen.expect("System1/memo")
            screen.expect("you: ")
            screen.type("\x1b[A\n")  # the line before, once more: another message
            screen.expect("System1/memo")
            screen.expect("you: ")
            screen.type("/help\n")
            screen.expect("switchboard chat --thread pty")
            screen.expect("you: ")
            screen.type("\x04")
            assert screen.process.wait(DEADLINE) == 0
        with terminal(server.environment, "chat") as screen:
            screen.expect("you: ")
            screen.type("/quit\n")
            assert screen.process.wait(DEADLINE) == 0
        listed = told(server.environment, "messages", "list", "--channel", "cli", "--limit", "2")["messages"]
        assert [m["text"] for m in listed] == ["the plumber comes on friday"] * 2
        assert {m["thread"] for m in listed} == {"pty"}
        history = tmp_path / "switchboard/chat_history"
        assert "plumber" in history.read_text()
        assert stat.S_IMODE(history.stat().st_mode) == 0o600


MANY_TEAM = {
    "team": {"name": "root"},
    "systems": [butler("memo"), {"type": "intelligence"}],
    "routing_rules": [{"name": "chat", "channel": "cli", "targets": [{"system_id": "System1/memo"}]}],
}


def test_rules_and_dead_letters_on_a_terminal(place: Path) -> None:
    """What asks, asks; what takes its time shows how far it is; and nothing is done after a no."""
    env = environment(place / "data", TEAMS_DIR=str(write_teams(place / "teams", MANY_TEAM))) | {"TERM": "xterm"}
    with running(env, "up") as server:
        here = server.environment
        for text in ("one", "two"):
            told(here, "send", text, "--channel", "api")
        [chat] = told(here, "rules", "list")["rules"]
        with terminal(here, "rules", "disable", chat["rule_id"]) as screen:
            screen.expect("Reason for the change?")
            screen.type("no more chat\n")
            screen.expect("active")
            screen.expect("would now be routed differently")
            assert screen.process.wait(DEADLINE) == 0
        assert told(here, "rules", "show", chat["rule_id"])["history"][0]["reason"] == "no more chat"

        changed = ("--rule", chat["rule_id"], "--set", "channel=api", "--set", "active=true")
        with terminal(here, "rules", "backtest", *changed) as screen:
            screen.expect("deciding again")
            screen.expect("2 of 2 messages would be routed differently")
            assert screen.process.wait(DEADLINE) == 0

        close = ("dlq", "handle", "--all", "--channel", "api")
        for answer, left in (("n", 2), ("y", 0)):
            with terminal(here, *close) as screen:
                screen.expect("How was it resolved?")
                screen.type("seen\n")
                screen.expect("Close 2 dead letters?")
                screen.type(f"{answer}\n")
                assert screen.process.wait(DEADLINE) == (1 if left else 0)
            assert len(told(here, "dlq", "list", "--state", "pending")["dead_letters"]) == left
        with terminal(here, *close, "--resolution", "seen") as screen:
            screen.expect("closed: 0 of 0 dead letters")
            assert screen.process.wait(DEADLINE) == 0


@pytest.mark.parametrize("columns", [80, 100])
def test_an_explanation_fits_on_a_terminal(home: Path, columns: int) -> None:
    env = environment(home / "data") | {"TERM": "dumb", "COLUMNS": str(columns)}
    with running(env, "up") as server:
        sent = told(server.environment, "send", "a long story " * 20, "--wait", "30")["request_id"]
        said = switchboard(server.environment, "explain", sent).stdout
        listed = switchboard(server.environment, "rules", "list").stdout
        rules = told(server.environment, "rules", "list")["rules"]
    assert [line for line in (said + listed).splitlines() if len(line) > columns] == []
    assert [rule for rule in rules if rule["rule_id"] not in listed] == []


def test_no_colour_but_on_a_terminal_that_wants_it(home: Path) -> None:
    env = environment(home / "data") | {"TERM": "xterm"}
    plain = env | {"NO_COLOR": "1"}
    for environ, coloured in ((env, True), (plain, False)):
        with terminal(environ, "doctor") as screen:
            screen.expect(" warning")
            assert ("\x1b[32m" in screen.screen) is coloured
    assert "\x1b" not in switchboard(env, "doctor").stdout


def test_backup_and_restore_of_the_embedded_database(place: Path, tmp_path: Path) -> None:
    env = environment(place / "data")
    with running(env, "up") as server:
        sent = told(server.environment, "send", "keep this", "--wait", "30")["request_id"]
    assert told(env, "db", "backup", tmp_path / "b")["size_bytes"] > 10_000
    other = environment(place / "other")
    assert told(other, "doctor", code=1)["healthy"] is False
    assert not (place / "other").exists()
    assert told(other, "db", "restore", tmp_path / "b")["migrated"] == []
    with running(other, "up") as server:
        assert told(server.environment, "messages", "show", sent)["text"] == "keep this"


def test_secrets_appear_nowhere(place: Path) -> None:
    """A password in the URL and the operator's token: in no log, no output, no command line."""
    env = environment(place / "data", LOG_LEVEL="debug")
    wrong = env | {"SWITCHBOARD_DATABASE_URL": "postgresql://user:canary-password@127.0.0.1:9/x"}
    for command in (("up",), ("doctor",), ("db", "migrate"), ("db", "backup", str(place / "b"))):
        done = switchboard(wrong, *command)
        assert done.returncode == 1
        assert "canary-password" not in done.stdout + done.stderr, command
    process = ForkedCommand(
        [EXECUTABLE, "up", "--json"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    reached = env | {"SWITCHBOARD_URL": said["url"]}
    secret = Path(said["token_file"]).read_text().strip()
    outputs = [switchboard(reached, *c.split()) for c in ("doctor", "tokens list", "messages list", "send x --wait 10")]
    process.terminate()
    out, err = process.communicate(timeout=DEADLINE)
    everything = out + err + "".join(done.stdout + done.stderr for done in outputs)
    assert "worker ready" in err
    assert secret not in everything
