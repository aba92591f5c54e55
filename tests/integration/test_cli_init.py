"""`switchboard init`: what it finds, what it writes, what it refuses; a model in a process of its own is asked."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from switchboard.app.setup.discovery import Offer, discover_models, models_at
from switchboard.app.setup.files import TEAM, Choice, files_of
from switchboard.app.setup.places import zone_of_machine
from switchboard.cli.main import main
from switchboard.connectors.kernel.accounts import connectable
from switchboard.core.routing.teamfile import parse_team_file
from switchboard.distribution import install_command
from switchboard.llm.spec import ModelTraits
from switchboard.testing.bot_api import TOKEN, BotApi
from switchboard.testing.scripted_llm import ScriptedLlm
from tests.processes import DEADLINE, environment, running, scripted_llm, switchboard
from tests.terminals import terminal

CALL = {"name": "look_up_number", "arguments": {"person": "Ada"}}
NOTE = {"name": "write_file", "arguments": {"path": "notes.txt", "content": "buy milk"}}
SCRIPT: dict[str, Any] = {
    "rules": [
        {"when": {"model": "good"}, "replies": [{"calls": [CALL]}], "again": True},
        {
            "when": {"model": "worker", "prompt": "Answer with one JSON object and nothing else"},
            "replies": [{"fault": {"kind": "status", "status": 400, "message": "failed to parse grammar"}}],
            "again": True,
        },
        {
            "when": {"model": "worker", "system": "You plan"},
            "replies": [{"thinking": "Ada, then.", "text": "{}"}],
            "again": True,
        },
        {"when": {"model": "worker", "tool": "look_up_number"}, "replies": [{"calls": [CALL]}], "again": True},
        {"when": {"model": "worker", "results": False}, "replies": [{"calls": [NOTE]}], "again": True},
        {"when": {"model": "worker", "results": True}, "replies": [{"text": "It is in notes.txt."}], "again": True},
        {"when": {"model": "silent"}, "replies": [{"text": "It is 7."}], "again": True},
        {"when": {"model": "formed", "tool": "look_up_number"}, "replies": [{"text": "{{Ada}}"}], "again": True},
        {
            "when": {"model": "formed", "system": "You answer with one JSON object"},
            "replies": [{"text": json.dumps({"calls": [CALL]})}],
            "again": True,
        },
        {"when": {"model": "formed"}, "replies": [{"text": "{}"}], "again": True},
    ]
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scripted provider in a process of its own."""
    with scripted_llm(SCRIPT, tmp_path_factory.mktemp("script")) as provider:
        yield f"{provider}/v1"


def init(place: Path, *arguments: str, code: int = 0, **env: str) -> tuple[str, str]:
    """What it says on stdout and stderr, in an empty environment but for `env`."""
    done = switchboard(environment(place / "data") | {"HOME": str(place)} | env, "init", *arguments, cwd=place)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


def read(place: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings and the team that were written."""
    settings = tomllib.loads((place / "switchboard.toml").read_text())
    return settings, json.loads((place / "teams/root.json").read_text())


def test_a_model_that_calls_tools_is_written_down(tmp_path: Path, url: str) -> None:
    said, _ = init(tmp_path, "--yes", "--url", url, "--model", "good")
    settings, team = read(tmp_path)
    [model] = settings["models"]
    assert (model["model"], model["base_url"], model["profile"]) == ("good", url, "local")
    assert (model["schemas"], model["thinks"]) == (True, False)
    [butler, boss] = team["systems"]
    assert butler["engine"] == "model"
    assert butler["config"]["models"] == ["own"]
    assert (tmp_path / "teams" / butler["config"]["prompt_file"]).is_file()
    assert butler["config"]["workspace"] == "../files", "so that the directory can be moved"
    assert boss["type"] == "intelligence"
    assert "up" in said
    assert "chat" in said


def test_from_nothing_to_a_butler_that_writes_files(tmp_path: Path, url: str, database_url: str) -> None:
    _, told = init(tmp_path, "--yes", "--url", url, "--model", "worker", "--name", "jeeves")
    assert "takes no JSON Schema" in told
    assert "thinks before it answers" in told
    [model] = read(tmp_path)[0]["models"]
    assert (model["schemas"], model["thinks"]) == (False, True)
    env = environment(tmp_path / "data", DATABASE_URL=database_url, LOG_LEVEL="error")
    with running(env, "up", cwd=tmp_path) as server:
        answer = switchboard(server.environment, "chat", "--once", "Note that I must buy milk", cwd=tmp_path)
    assert answer.stdout == "System1/jeeves: It is in notes.txt.\n", answer.stderr
    assert (tmp_path / "files/notes.txt").read_text() == "buy milk"


def test_a_model_that_calls_no_tool_is_not(tmp_path: Path, url: str) -> None:
    _, errors = init(tmp_path, "--yes", "--url", url, "--model", "silent", code=1)
    assert "it did not call the tool" in errors
    assert "--no-test" in errors
    assert not (tmp_path / "switchboard.toml").exists()
    init(tmp_path, "--yes", "--url", url, "--model", "silent", "--no-test")
    assert read(tmp_path)[0]["models"][0]["model"] == "silent"


def test_a_model_that_calls_tools_as_json_is_set_up_for_that(tmp_path: Path, url: str) -> None:
    _, told = init(tmp_path, "--yes", "--url", url, "--model", "formed")
    assert "it answers, and calls tools, as JSON in its answers" in told
    assert "requests that run at once: 1, as two small requests have shown" in told
    [model] = read(tmp_path)[0]["models"]
    assert (model["calls"], "concurrency" in model, "timeout" in model) == ("schema", False, False)


def test_on_a_terminal_the_server_is_asked_if_a_person_wants_that(tmp_path: Path, url: str) -> None:
    env = environment(tmp_path / "data") | {"HOME": str(tmp_path), "TERM": "xterm"}
    given = ("--url", url, "--model", "good", "--name", "jeeves", "--workspace", "files", "--channel", "none")
    with terminal(env, "init", str(tmp_path / "house"), *given) as screen:
        screen.expect("One request runs at a time, unless the server can do more. Ask it? [Y/n]")
        screen.type("\n")
        screen.expect("requests that run at once: 1, as two small requests have shown")
        assert screen.process.wait(DEADLINE) == 0


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://[::1]:1/v1", True),
        ("http://192.168.1.7/v1", True),
        ("http://100.64.3.2/v1", True),
        ("http://gpu:8000/v1", True),
        ("http://gpu.lan/v1", True),
        ("https://8.8.8.8/v1", False),
        ("https://api.example.com/v1", False),
    ],
)
def test_what_is_a_local_server(tmp_path: Path, url: str, near: bool) -> None:
    _, told = init(tmp_path, "--yes", "--url", url, "--model", "m", "--key-env", "KEY", "--no-test", KEY="k")
    assert ("profile" in read(tmp_path)[0]["models"][0]) == near
    assert ("one request runs at a time" if near else "up to 4 requests run at once") in told


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "teams").mkdir()
    _, errors = init(tmp_path, "--yes", "--model", "none", code=1)
    assert "teams exists, and is not overwritten" in errors
    assert not (tmp_path / "switchboard.toml").exists()


def test_without_a_model_the_butler_keeps_notes(tmp_path: Path) -> None:
    said, _ = init(tmp_path, "inner", "--json", "--model", "none", "--name", "scribe")
    assert json.loads(said)["model"] is None
    settings, team = read(tmp_path / "inner")
    assert settings == {"teams_dir": "teams", "data_dir": "data", "channels_dir": "channels.d"}
    assert [(one["name"], one["engine"]) for one in team["systems"]] == [("scribe", "memo"), ("root", "memo")]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "pass --yes"),
        (("--yes", "--model", "gpt-9"), 5, "no model 'gpt-9' was found, nor any other; to use one, start a local"),
        (("--yes", "--url", "http://127.0.0.1:9/v1"), 5, "no server answers at http://127.0.0.1:9/v1; start it,"),
        (("--yes", "--url", "http://127.0.0.1:9/v1", "--model", "m"), 1, "m did not pass: connection refused; is"),
        (("--yes", "--url", "ftp://x/v1", "--model", "m"), 2, "--url: the URL must begin with http:// or https://"),
        (("--yes", "--url", "http://127.0.0.1:9/v1", "--model", "none"), 2, "no model is wanted; leave out --url"),
        (("--yes", "--model", "m", "--key-env", "NOPE"), 2, "--key-env: name the server with --url"),
        (
            ("--yes", "--url", "http://127.0.0.1:9/v1", "--model", "m", "--key-env", "NOPE"),
            2,
            "the environment variable NOPE is not set; set it to the key, or pass --no-test",
        ),
        (("--yes", "--model", "none", "--workspace", "x"), 2, "a butler without a model reads and writes no files"),
        (("--yes", "--model", "none", "--name", "System7/x"), 2, "such as system7-x"),
        (("--yes", "--model", "none", "--name", "Big Bot!"), 2, "'Big Bot!' is not a valid name: use letters, digits,"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    _, errors = init(tmp_path, *arguments, code=code)
    assert message in errors
    assert not (tmp_path / "switchboard.toml").exists()
    assert not (tmp_path / "teams").exists()


def test_a_model_without_its_package_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(("init", "--yes", "--no-test", "--model", "anthropic"))
    said = capsys.readouterr().err.replace("\n", " ")
    assert f"needs the package anthropic: {install_command('models')}. Nothing was written" in said
    assert list(tmp_path.iterdir()) == []


URL = ("--url", "http://127.0.0.1:9/v1", "--model", "m", "--no-test")


@pytest.mark.parametrize(
    ("workspace", "message"),
    [
        ("/", "/ belongs to the system or to several users; name a directory for the butler's files alone"),
        ("/etc", "/etc belongs to the system;"),
        ("/usr/share/x", "/usr/share/x belongs to the system;"),
        ("/srv", "/srv belongs to the system or to several users;"),
        ("~", "is your home directory, with your keys and passwords;"),
        ("link", "is your home directory"),
        (".", "contains the butler's own settings;"),
        ("data/files", "is where Switchboard keeps its own settings, secrets or database;"),
        ("teams", "is where Switchboard keeps its own settings, secrets or database;"),
        ("channels.d", "is where Switchboard keeps its own settings, secrets or database;"),
        ("./keys", "is where Switchboard keeps its own settings, secrets or database;"),
        ("file", "file is a file;"),
    ],
)
def test_a_workspace_is_for_the_files_of_the_butler(tmp_path: Path, workspace: str, message: str) -> None:
    place = tmp_path / "house"
    place.mkdir()
    (place / "file").touch()
    (place / "link").symlink_to(tmp_path)
    _, errors = init(tmp_path, "house", "--yes", *URL, "--workspace", workspace, code=2)
    assert message in errors.replace("\n", " ")
    assert not (place / "switchboard.toml").exists()
    init(tmp_path, "house", "--yes", *URL, "--workspace", "~/mine")
    assert read(place)[1]["systems"][0]["config"]["workspace"] == str(tmp_path / "mine")


def test_a_file_is_no_place_for_an_installation(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in ("file", "file/inner"):
        _, errors = init(tmp_path, place, "--yes", "--model", "none", code=1)
        assert "file is a file; name a directory" in errors


def test_what_to_type_next_can_be_copied(tmp_path: Path) -> None:
    said, _ = init(tmp_path, "my house", "--yes", "--model", "none")
    assert "  cd 'my house' && " in said


def test_as_root_it_says_where_the_database_cannot_be(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root runs the database as another user")
    place = tmp_path / "closed"
    place.mkdir(mode=0o700)
    _, errors = init(tmp_path, "closed", "--yes", "--model", "none", SWITCHBOARD_DATA_DIR="")
    assert "It will not start there yet: as root, PostgreSQL runs as the user" in errors
    _, errors = init(tmp_path, "other", "--yes", "--model", "none", SWITCHBOARD_DATABASE_URL="postgresql://x/y")
    assert errors == ""


def test_a_model_that_was_not_chosen_is_named(tmp_path: Path) -> None:
    _, errors = init(tmp_path, "--yes", "--no-test", OPENAI_API_KEY="x")
    assert errors.startswith("using gpt-5-mini, the key in OPENAI_API_KEY\n")


def test_three_questions_on_a_terminal(tmp_path: Path) -> None:
    env = environment(tmp_path / "data") | {"HOME": str(tmp_path), "TERM": "xterm", "ANTHROPIC_API_KEY": "secret"}
    with terminal(env, "init", str(tmp_path / "house"), "--no-test") as screen:
        screen.expect("claude-haiku-4-5")
        screen.expect("the key in ANTHROPIC_API_KEY")
        screen.expect("Number, URL or provider [1]")
        screen.type("7\n")
        screen.expect("a number from 0 to")
        screen.type("\n")
        screen.expect("What should the butler be called? [butler]")
        screen.type("1\n")
        screen.expect("1 is a number; a name, please")
        screen.type("Big Bot!\n")
        screen.expect("such as big-bot")
        screen.type("jeeves\n")
        screen.expect("Which directory may it read and write? [files]")
        screen.type("\n")
        known = ", ".join(sorted(connectable()))
        screen.expect(f"Connect a channel now? ({known}, none) [none]")
        screen.type("fax\n")
        screen.expect(f"one of {known}, none, please")
        screen.type("\n")
        screen.expect("Start it")
        assert screen.process.wait(DEADLINE) == 0
        assert "secret" not in screen.screen
    settings, team = read(tmp_path / "house")
    assert settings["models"][0]["api_key_env"] == "ANTHROPIC_API_KEY"
    assert team["systems"][0]["name"] == "jeeves"


@pytest.mark.parametrize("typed", ["sk-typed", "kept.key"])
def test_without_a_model_at_hand_a_url_and_a_key_are_asked_for(tmp_path: Path, url: str, typed: str) -> None:
    kept, house = tmp_path / "kept.key", tmp_path / "house"
    kept.touch(mode=0o600)
    kept.write_text("sk-kept\n")
    env = environment(tmp_path / "data") | {"HOME": str(tmp_path), "TERM": "xterm"}
    with terminal(env, "init", str(house), "--name", "jeeves", "--workspace", "files", "--channel", "none") as screen:
        screen.expect("Number, URL or provider")
        screen.type("example.org\n")
        screen.expect("a URL such as http://127.0.0.1:8000/v1, or one of anthropic, openai, openrouter")
        screen.type(f"{url}\n")
        screen.expect("Its key, if it wants one, or the path of a file that contains it; it is not shown")
        screen.expect("Key or file: ")
        if typed == kept.name:
            screen.type("~/nothing\n")
            screen.expect("nothing cannot be read: No such file or directory")
            screen.expect("Key or file: ")
            typed = "~/kept.key"
        screen.type(f"{typed}\n")
        screen.expect("asking scripted-1")
        screen.expect("Use it anyway? [y/N]")
        screen.type("y\n")
        screen.expect("one request runs at a time")
        assert screen.process.wait(DEADLINE) == 0
        assert "sk-" not in screen.screen
    [model] = read(house)[0]["models"]
    assert model["base_url"] == url
    if typed == "~/kept.key":
        assert model["api_key_file"] == str(kept)
        assert not (house / "keys").exists()
    else:
        assert model["api_key_file"] == "keys/own.key"
        assert (house / "keys/own.key").read_text() == f"{typed}\n"
        assert (house / "keys/own.key").stat().st_mode & 0o777 == 0o600


async def test_a_channel_is_connected_at_once_by_options_or_the_same_questions(tmp_path: Path) -> None:
    async with BotApi() as api:
        env = environment(tmp_path / "data") | {"HOME": str(tmp_path), "TERM": "xterm"}
        options = ("--channel", "telegram", "--set", f"api_url={api.url}")
        said = await asyncio.to_thread(
            lambda: init(tmp_path, "a", "--json", "--model", "none", *options, "--secret-env", "BOT", BOT=TOKEN)[0]
        )
        added = json.loads(said)["channel"]
        assert (added["endpoint"], added["files"]) == ("bot:123456", ["a/channels.d/telegram.toml"])
        await asyncio.to_thread(by_questions, env, tmp_path / "b", options)
    assert (tmp_path / "b/channels.d/telegram.token").read_text() == f"{TOKEN}\n"
    assert (tmp_path / "b/channels.d/telegram.token").stat().st_mode & 0o777 == 0o600


def by_questions(env: Mapping[str, str], place: Path, options: Sequence[str]) -> None:
    """A wrong token leaves the rest of the installation as it is; `channels add` goes on from there."""
    with terminal(env, "init", str(place), "--model", "none", "--name", "jeeves", *options) as screen:
        screen.expect("1. Open Telegram and write to @BotFather.")
        screen.expect("it is not shown while you type")
        screen.expect("token: ")
        screen.type("123456:WRONG\n")
        screen.expect("telegram is not connected: Telegram does not accept the token")
        screen.expect("channels add telegram")
        assert screen.process.wait(DEADLINE) == 0
    there = {**env, "SWITCHBOARD_CHANNELS_DIR": str(place / "channels.d")}
    with terminal(there, "channels", "add", *options[1:]) as screen:
        screen.expect("it is not shown while you type")
        screen.expect("token: ")
        screen.type(f"{TOKEN}\n")
        screen.expect("telegram: added as @house_bot")
        screen.expect("up")
        assert screen.process.wait(DEADLINE) == 0
    assert TOKEN not in screen.screen


async def test_servers_keys_and_logins_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin/claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/.credentials.json").touch()
    monkeypatch.setenv("PATH", str(program.parent))
    async with ScriptedLlm([]) as llm:
        servers = {"ollama": f"{llm.url}/v1", "lm-studio": "http://127.0.0.1:9/v1"}
        found = await discover_models({"OPENAI_KEY": "x", "ANTHROPIC_API_KEY": ""}, tmp_path, servers)
        there = await models_at(f"{llm.url}/v1")
    assert there
    assert [one.model for one in found.offers] == [*there, "gpt-5-mini"]
    assert {one.source for one in found.offers[:-1]} == {f"ollama at {llm.url}"}
    assert found.offers[-1].api_key_env == "OPENAI_KEY"
    assert found.programs == ("claude",)


def test_what_was_found_is_written_with_its_reason() -> None:
    offer = Offer("own", "openai", "m", "x", "http://x/v1")
    traits = ModelTraits(schemas=False, thinks=True, calls="schema", timeout=420, tokens_per_second=58.6)
    text = next(iter(files_of(Choice("butler", offer, "w", "cli:o", found=traits, concurrency=2)).values()))
    assert "timeout = 420  # seconds; it reads about 59 tokens a second" in text
    [model] = tomllib.loads(text)["models"]
    found = {name: value for name, value in asdict(traits).items() if name != "tokens_per_second"}
    assert {name: model[name] for name in found} == found
    assert model["concurrency"] == 2


def test_strange_names_stay_what_they_are() -> None:
    offer = Offer("own", "openai", 'a"b\\c\n[[models]] é 🦙', "x", "http://x/v1")
    files = files_of(Choice("butler", offer, '/srv/"q"', "cli:o'neil"))
    texts = {path.name: text for path, text in files.items()}
    assert tomllib.loads(texts["switchboard.toml"])["models"][0]["model"] == offer.model
    team = json.loads(texts["root.json"])
    assert team["systems"][0]["config"]["workspace"] == '/srv/"q"'
    assert team["systems"][0]["config"]["owners"] == ["cli:o'neil", "dashboard:operator-1"]
    assert parse_team_file(team, "root").team.team_id == "root"


@pytest.mark.parametrize(
    ("named", "linked", "zone"),
    [
        ("", "/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"),
        (":America/New_York", "/usr/share/zoneinfo/Europe/Berlin", "America/New_York"),
        ("CET-1CEST", "/usr/share/zoneinfo/Europe/Berlin", "UTC"),
        ("", "/usr/share/zoneinfo/Nowhere", "UTC"),
        ("", "/etc/localtime-as-bytes", "UTC"),
    ],
)
def test_a_butler_has_the_zone_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, linked: str, zone: str
) -> None:
    monkeypatch.setenv("TZ", named)
    (tmp_path / "localtime").symlink_to(linked)
    assert zone_of_machine(tmp_path / "localtime") == zone
    files = files_of(Choice("butler", Offer("own", "openai", "m", "x"), "w", "cli:o", zone))
    assert json.loads(files[TEAM])["systems"][0]["config"]["zone"] == zone
