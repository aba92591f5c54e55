"""The executable as its users run it: its help, its usage, how it starts, what it says and what it keeps to itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from switchboard.cli.main import COMMANDS, main
from tests.forked import ForkedCommand
from tests.processes import (
    DEADLINE,
    EXECUTABLE,
    butler,
    environment,
    running,
    switchboard,
    told,
    write_teams,
)
from tests.terminals import terminal
from tests.width import pairs

pytestmark = pytest.mark.slow


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


_FULL: Final = "error: what is printed cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("words", "streams"),
    pairs(["version", "version --json", "--version", "--help"], [">/dev/full", ">&-", "2>&-", "<&- >&- 2>&-"]),
)
def test_stdout_may_be_full_and_streams_may_be_closed(tmp_path: Path, words: str, streams: str) -> None:
    code, said = (1, _FULL) if streams == ">/dev/full" else (0, "")
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
