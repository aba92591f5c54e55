"""A wrong setting stops the start, and says where it stands and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from switchboard.app.settings import Settings, load_settings
from switchboard.app.settings_file import NAMES
from switchboard.app.whereabouts import find_whereabouts
from switchboard.core.policy.budget import Cap, SenderCaps, SpendingSettings
from switchboard.domain.errors import ConfigurationError
from switchboard.ports.embedder import EmbeddingModel


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("host = ''", "line 1: host must not be empty"),
        ("port = 'x'", "line 1: port must be a whole number"),
        ("\n[turn]\ntimeout = 'x'", "line 3: turn.timeout must be a number"),
        ("teams_dir = 5", "line 1: teams_dir must be a string, not 5"),
        ("prot = 1", "line 1: prot: unknown setting"),
        (
            '[[models]]\nname = "m"\nkind = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\nport = 1',
            "line 6: models.0.port is below [[models]], so it counts as part of that table; move the line above",
        ),
        ("port =\n", "line 1"),
        ("port = 1\nturn.attempts = 'x'", "line 2: turn.attempts must be a whole number"),
        ("turn = {attempts = 'x'}", "line 1: turn.attempts must be a whole number"),
        ("turn.timeout = 0\n[classify]\ntimeout = 9", "line 1: turn.timeout must be greater than 0"),
        (
            '[[models]]\nname = "a"\nkind = "codex"\nmodel = "x"\npass_env = ["HOME"]',
            "line 5: models.0.pass_env.0 must be 'HTTP_PROXY'",
        ),
        (
            "\n[endpoints]\nx = { strangers = 'pair' }",
            "line 3: endpoints.x must be CHANNEL/ENDPOINT, such as telegram/bot:house, not 'x'",
        ),
        (
            "\n[schedules.'A B']\nzone = 'UTC'\nwindows = ['x']",
            "line 2: schedules.A B must be a name of up to 64 lower-case letters",
        ),
        ("[liveness]\nstale_after = 900", "line 1: liveness: quarantine_after must not be less"),
    ],
)
def test_what_is_wrong_in_the_file(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "switchboard.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file)
    assert str(file) in caught.value.message
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SWITCHBOARD_PORT", "x", "must be a whole number"),
        ("SWITCHBOARD_TURN__TIMEOUT", "0", "greater than 0"),
        ("SWITCHBOARD_CHANNELS", "doorbell", "must be JSON"),
        ("SWITCHBOARD_CONFIG", "1", "unknown setting"),
        ("SWITCHBOARD_PROT", "1", "unknown setting; did you mean SWITCHBOARD_PORT?"),
        ("switchboard_port", "1", "unknown setting; did you mean SWITCHBOARD_PORT?"),
    ],
)
def test_what_is_wrong_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert variable in caught.value.message
    assert said in caught.value.message


def test_an_empty_variable_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    unset = load_settings()
    for name, field in Settings.model_fields.items():
        inner = getattr(field.annotation, "model_fields", {})
        for variable in (name, *(f"{name}__{one}" for one in inner)):
            monkeypatch.setenv(f"SWITCHBOARD_{variable.upper()}", "")
    assert load_settings() == unset


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SWITCHBOARD_PORT", "x", "environment variable SWITCHBOARD_PORT: port "),
        ("SWITCHBOARD_TURN", '{"attempts": "x"}', "environment variable SWITCHBOARD_TURN: turn.attempts "),
        ("SWITCHBOARD_TURN", '{"timeout": "x"}', "environment variable SWITCHBOARD_TURN: turn.timeout "),
    ],
)
def test_a_wrong_variable_is_not_blamed_on_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    file = tmp_path / "switchboard.toml"
    file.write_text("port = 1\n[turn]\nattempts = 2\n")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file)
    assert caught.value.message.startswith(said)


def test_a_wrong_line_is_not_blamed_on_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "switchboard.toml"
    file.write_text("port = 1\n[turn]\nattempts = 'x'\n")
    monkeypatch.setenv("SWITCHBOARD_TURN", '{"timeout": 3}')
    with pytest.raises(ConfigurationError, match=r"line 3: turn\.attempts"):
        load_settings(file)


def test_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "switchboard.toml"
    file.write_text("port = 1\nteams_dir = 'teams'")
    monkeypatch.setenv("SWITCHBOARD_PORT", "2")
    settings = load_settings(file)
    assert (settings.port, settings.teams_dir) == (2, tmp_path / "teams")


def test_the_names_of_all_settings_are_known_without_them() -> None:
    assert Settings.model_fields.keys() == NAMES


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("", {}),
        ('host = "::1"\nport = 9\ndata_dir = "here"\n[turn]\nattempts = 2', {}),
        (
            'host = "::1"\nport = "9"\ndata_dir = "/there"',
            {"HOST": "h", "PORT": "0", "DATA_DIR": "d", "TEAMS_DIR": "t"},
        ),
        ("port = 9.0", {"HOST": "", "PORT": "", "DATA_DIR": ""}),
    ],
)
def test_commands_that_ask_the_server_find_it_where_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, variables: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "switchboard.toml").write_text(text)
    for name, value in variables.items():
        monkeypatch.setenv(f"SWITCHBOARD_{name}", value)
    assert find_whereabouts() == load_settings().whereabouts


@pytest.mark.parametrize(
    ("text", "variables", "said"),
    [
        ("\nport = 'x'", {}, "switchboard.toml, line 2: port must be a whole number, not 'x'"),
        ("", {"PORT": "65536"}, "environment variable SWITCHBOARD_PORT: port must be at most 65535, not '65536'"),
        ("host = ''", {}, "switchboard.toml, line 1: host must not be empty"),
        ("host = 1", {}, "switchboard.toml, line 1: host must be a string, not 1"),
        ("data_dir = []", {}, "switchboard.toml, line 1: data_dir must be a string, not a list"),
        ("\nprot = 1", {}, "switchboard.toml, line 2: prot: unknown setting; did you mean port?"),
        ("\n'prot' = 1", {}, "switchboard.toml, line 2: prot: unknown setting; did you mean port?"),
        ("\nprot.a = 1", {}, "switchboard.toml, line 2: prot: unknown setting; did you mean port?"),
        ("\n[prot.a]\nb = 1", {}, "switchboard.toml, line 2: prot: unknown setting; did you mean port?"),
        ('"pro\\u0074" = 1', {}, "switchboard.toml: prot: unknown setting; did you mean port?"),
        ("", {"ULR": "x"}, "environment variable SWITCHBOARD_ULR: unknown setting; did you mean SWITCHBOARD_URL?"),
        ("port =", {}, "switchboard.toml: not TOML: "),
        ("port = " + "1" * 5000, {}, "switchboard.toml: not TOML: "),
        ("teams = " + "[" * 5000, {}, "switchboard.toml: not TOML: "),
        ("", {"PORT": "1" * 5000}, "environment variable SWITCHBOARD_PORT: port must be "),
    ],
)
def test_what_is_wrong_with_the_place_of_the_server_is_said_by_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, variables: dict[str, str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "switchboard.toml").write_text(text)
    for name, value in variables.items():
        monkeypatch.setenv(f"SWITCHBOARD_{name}", value)
    for find in (find_whereabouts, load_settings):
        with pytest.raises(ConfigurationError) as caught:
            find()
        assert caught.value.message.startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[models]\nname = "a"\n', "line 1: models must be a list of tables, each under [[models]]"),
        ('[classify]\nmodels = "a"\n', 'line 2: classify.models must be a list: ["…"]'),
        (
            '[[models]]\nname = "a"\nkind = "openai"\nmodel = "m"\nbase_ulr = "x"\n',
            "line 5: models.0.base_ulr: unknown setting; did you mean base_url?",
        ),
        (
            '[[models]]\nname = "a"\nkind = "openai"\nmodel = "m"\napi_key = "x"\n',
            "did you mean api_key_env?",
        ),
    ],
)
def test_what_is_wrong_with_models_is_said_in_words_of_the_file(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "switchboard.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file)
    assert said in caught.value.message


FAR = """[[embedders]]
name = "far"
base_url = "https://far.example/v1"
model = "m"
dimensions = 8
languages = ["en"]
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[memory]\nembedder = "far"\n', "memory.embedder: there is no embedder far; there are: local, none"),
        (FAR + '[memory]\nembedder = "fra"\n', "no embedder fra; there are: local, none, far"),
        (2 * FAR, "embedders: two are named far"),
        (FAR.replace('"far"', '"none"'), "embedders.0: the name none has another meaning"),
        (FAR.replace("dimensions = 8\n", ""), "line 1: embedders.0.dimensions is required"),
        (FAR.replace("= 8", "= 4001"), "line 5: embedders.0.dimensions must be at most 4000"),
        (FAR.replace('["en"]', "[]"), "line 6: embedders.0.languages must not be empty"),
        (
            FAR.replace("https://", "https://me:canary@"),
            "line 1: embedders.0: base_url must begin with http:// or https://",
        ),
        (
            FAR.replace("https://far.example", "far"),
            "line 1: embedders.0: base_url must begin with http:// or https://",
        ),
        (FAR + "local = true\n", "embedders.0: local is for servers on machines of your own"),
        (FAR + 'api_key = "canary"\n', "line 7: embedders.0.api_key: unknown setting; did you mean api_key_env?"),
        ('[memory]\nlanguages = ["en", "tlh"]\n', "line 2: memory.languages.1 must be 'da', 'de', 'en'"),
    ],
)
def test_what_is_wrong_with_embedders_is_said(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "switchboard.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file)
    assert said in caught.value.message
    assert "canary" not in caught.value.message


@pytest.mark.parametrize(
    "host",
    ["localhost:8080", "127.0.0.1", "[::1]:1", "192.168.1.7", "100.64.0.9", "ollama:11434", "gpu.local", "g.ts.net"],
)
def test_a_server_on_a_machine_of_ones_own_is_called_local(tmp_path: Path, host: str) -> None:
    file = tmp_path / "switchboard.toml"
    file.write_text(FAR.replace("https://far.example", f"http://{host}") + "local = true\n")
    assert load_settings(file).embedders[0].as_model.local


def test_what_changes_vectors_is_in_the_revision(tmp_path: Path) -> None:
    def model_of(more: str) -> EmbeddingModel:
        file = tmp_path / "switchboard.toml"
        file.write_text(FAR + more)
        return load_settings(file).embedders[0].as_model

    same = [model_of(""), model_of("timeout = 3.0\n"), model_of('api_key_env = "KEY"\n')]
    others = [
        model_of('query_prefix = "query: "\n'),
        model_of('passage_prefix = "query: "\n'),
        model_of('revision = "2"'),
    ]
    assert same.count(same[0]) == 3
    assert len({one.revision for one in (same[0], *others)}) == 4


SERVER = '[[mcp_servers]]\nname = "time"\ncommand = ["time"]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SERVER, 'say who may use it: butlers = ["System1/clerk"]'),
        (SERVER + 'teams = ["*"]\npass_env = ["SWITCHBOARD_DATABASE_URL"]\n', "SWITCHBOARD_DATABASE_URL is ours"),
        (2 * (SERVER + 'teams = ["*"]\n'), "mcp_servers: two are named time"),
        (
            SERVER.replace("time", "a__b", 1) + 'teams = ["*"]\n',
            "line 2: mcp_servers.0.name must be a name of up to 30 lower-case letters",
        ),
        (SERVER + 'teams = ["*"]\ntools.now.effect = "harmless"\n', "must be 'idempotent', 'queryable' or"),
        (SERVER + 'teams = ["*"]\nenv = { TZ = ["canary"] }\n', "mcp_servers.0.env.TZ must be a string, not a list"),
        (SERVER + 'teams = ["*"]\nenv = "PIN=canary"\n', "mcp_servers.0.env must be a table"),
        (SERVER + 'teams = ["*"]\nenv = { PIN = 6226279 }\n', "mcp_servers.0.env.PIN must be a string"),
    ],
)
def test_what_is_wrong_with_mcp_servers_is_said(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "switchboard.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file)
    assert said in caught.value.message
    assert "canary" not in caught.value.message
    assert "6226279" not in caught.value.message


def test_nobody_is_shown_the_environment_of_a_server(tmp_path: Path) -> None:
    file = tmp_path / "switchboard.toml"
    file.write_text(SERVER + 'teams = ["*"]\nenv = { KEY = "canary" }\n')
    settings = load_settings(file)
    assert settings.servers[0].program().env["KEY"] == "canary"
    assert "canary" not in f"{settings!r}{settings.servers!r}{settings.servers[0].program()!r}"


def test_a_fresh_installation_limits_what_models_may_use() -> None:
    settings = Settings()
    assert settings.spending.cap == Cap(20_000_000)
    assert settings.classify.sender_caps == SenderCaps(30, 1_000_000, 2_000_000)
    assert SpendingSettings(tokens_per_day=0).cap == Cap()


def test_a_worker_takes_no_more_questions_than_its_models_allow_at_a_time() -> None:
    models = [{"name": name, "kind": "openai", "model": "m", "concurrency": 3} for name in ("a", "b", "unused")]
    one = Settings.model_validate({"models": models, "classify": {"models": ["a"]}})
    two = Settings.model_validate(
        {"models": models, "classify": {"models": ["a", "b"]}, "worker": {"pools": {"route": 5}}}
    )
    assert [one.places["route"], two.places["route"], Settings().places["route"]] == [3, 5, 16]
    near = {"kind": "openai", "model": "m", "profile": "local", "base_url": "http://127.0.0.1:1/v1"}
    local = [{"name": name, **near} for name in ("a", "b")]
    shared = Settings.model_validate({"models": local, "classify": {"models": ["a", "b"]}})
    assert shared.places["route"] == 1, "the models of one local server share its slot"
