"""Models of the settings become sessions, and what is wrong with them is said at the start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from switchboard.app.settings import load_settings
from switchboard.core.policy.budget import Price
from switchboard.domain.errors import ConfigurationError
from switchboard.llm.build import Sessions, flaw
from switchboard.llm.port import CliKind
from switchboard.llm.spec import ModelSpec


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (ModelSpec("m", "anthropic", "x"), "models: m: a key is needed"),
        (ModelSpec("m", "openai", "x", api_key_env="TWO_LINES"), "TWO_LINES holds no key: a key is one line"),
        (
            ModelSpec("m", "anthropic", "x", api_key_env="NO_SUCH_KEY"),
            "NO_SUCH_KEY holds no secret: .* the provider gave you",
        ),
        (
            ModelSpec("m", "anthropic", "x", api_key_file=Path("no/key")),
            "the file no/key is missing: put .* the provider gave you",
        ),
        (ModelSpec("m", "anthropic", "x", api_key_env="A", api_key_file=Path("b")), "either api_key_env or api_key_f"),
        (ModelSpec("m", "anthropic", "x", "http://h", profile="local"), "profile `local` is for kind `openai`"),
        (ModelSpec("m", "openai", "x", "nonsense"), "the URL"),
        (ModelSpec("m", "openai", "x", "http://h", program="claude"), "program is for command lines"),
        (
            ModelSpec("m", "codex", "x", "http://h", program="/no/such"),
            "m: /no/such is not installed.* leave this model out of classify.models",
        ),
        (ModelSpec("m", "anthropic", "x", login=True), "login is for claude-code and codex; all others need a key"),
        (
            ModelSpec("m", "codex", "x", login=True, api_key_env="A", program="/bin/sh"),
            "either login or a key, not both",
        ),
    ],
)
def test_wrong_models_are_refused_at_the_start(model: ModelSpec, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWO_LINES", "first\nsecond")
    with pytest.raises(ConfigurationError, match=said):
        Sessions([model])


@pytest.mark.parametrize(
    ("kind", "file", "command"),
    [("claude-code", ".claude/.credentials.json", "claude auth login"), ("codex", ".codex/auth.json", "codex login")],
)
def test_who_is_not_logged_in_is_told_how_to(
    kind: CliKind, file: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    model = ModelSpec("m", kind, "x", login=True, program="/bin/sh")
    assert (flaw(model) or "").endswith(f"there is no {tmp_path}/{file}; as the user that runs the workers: {command}")
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).touch()
    assert flaw(model) is None


def test_a_missing_sdk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    monkeypatch.delitem(sys.modules, "switchboard.llm.anthropic_api", raising=False)
    with pytest.raises(ConfigurationError, match="m: kind anthropic needs the package anthropic"):
        Sessions([ModelSpec("m", "anthropic", "x", "http://h")])


TOML = """
[[models]]
name = "near"
kind = "openai"
model = "qwen3"
base_url = "http://127.0.0.1:1234/v1"
profile = "local"

[[models]]
name = "far"
kind = "claude-code"
model = "m"
api_key_file = "/run/key"
price_in = 3.0

[classify]
models = ["far", "near"]

[spending]
cost_per_day = 2.5
"""


def test_settings_name_the_models(tmp_path: Path) -> None:
    file = tmp_path / "switchboard.toml"
    file.write_text(TOML, encoding="utf-8")
    settings = load_settings(file)
    near, far = settings.models
    assert near == ModelSpec("near", "openai", "qwen3", "http://127.0.0.1:1234/v1", profile="local")
    assert (far.kind, far.api_key_file, far.price) == ("claude-code", Path("/run/key"), Price(3_000_000, 0))
    assert (settings.classify.models, settings.spending.cost_per_day) == (("far", "near"), 2.5)
    assert load_settings(None).classify.models == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('name = "far"', 'name = "near"'), "two are named near"),
        (('["far", "near"]', '["far", "nobody"]'), "there is no model nobody; there are: near, far"),
        (('["far", "near"]', '["far", "far"]'), "list each model only once"),
        (('"claude-code"', '"claude"'), "line 11: models.1.kind must be"),
        (("3.0", "-1"), "price_in must be at least 0"),
        (("price_in", "price"), "line 14: models.1.price: unknown setting"),
        (('model = "m"', ""), "line 9: models.1.model is required"),
    ],
)
def test_inconsistent_settings_stop_the_start(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    file = tmp_path / "switchboard.toml"
    file.write_text(TOML.replace(*change), encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file)
    assert said in caught.value.message
    assert str(file) in caught.value.message
