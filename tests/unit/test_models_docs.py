"""The set-ups of docs/models.md are settings that a worker starts with, and each asks whom it says it asks."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, get_args

import pytest
from anthropic import AsyncAnthropic
from httpx2 import AsyncClient

from switchboard.app.models.classifier import mcp_url
from switchboard.app.settings import Settings, load_settings
from switchboard.domain.llm import NotAsked, Outcome
from switchboard.llm import anthropic_api, openai_api
from switchboard.llm.api import Open
from switchboard.llm.build import Sessions
from switchboard.llm.cli import CliSession, program_of
from switchboard.llm.commands import Way, command_for
from switchboard.llm.port import ApiKind, Kind
from switchboard.llm.running import RunnerSession
from switchboard.llm.spec import CLI_KINDS, ModelSpec
from tests.asking import request
from tests.documents import HOME, Block, blocks, codes, rows

PAGE: Final = HOME / "docs" / "models.md"
ASKED: Final[dict[str, tuple[Kind, str, bool]]] = {
    "ollama": ("openai", "http://127.0.0.1:11434/v1", False),
    "lm-studio": ("openai", "http://127.0.0.1:1234/v1", False),
    "llama-cpp": ("openai", "http://127.0.0.1:8080/v1", False),
    "openai": ("openai", "https://api.openai.com/v1", True),
    "anthropic": ("anthropic", "https://api.anthropic.com", True),
    "claude-code": ("claude-code", "", True),
    "codex": ("codex", "https://api.openai.com/v1", True),
    "gemini-cli": ("gemini-cli", "", True),
    "opencode": ("opencode", "https://models.example/v1", True),
}
"""Per set-up: its kind, where it asks (empty: where the program asks by itself), whether with a key."""


def test_every_setting_of_a_model_and_every_result_of_its_test_has_a_row() -> None:
    settings, results = ({name for row in rows(PAGE, of) for name in codes(row[0])} for of in ("setting", "result"))
    assert settings == set(ModelSpec.__struct_fields__)
    possible = {"ok", "settings", "context_cut", *get_args(Outcome)} - {"answered", *get_args(NotAsked)} | {"budget"}
    assert possible <= results


def _read(block: Block, home: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """As a worker would, with all keys there."""
    key = home / "key"
    key.write_text("sk-canary\n", encoding="utf-8")
    file = home / "switchboard.toml"
    file.write_text(re.sub(r"/run/secrets/\w+", str(key), block.text), encoding="utf-8")
    settings = load_settings(file)
    for model in settings.models:
        if model.api_key_env is not None:
            monkeypatch.setenv(model.api_key_env, "sk-canary")
    _install(settings, home, monkeypatch)
    return settings


def _install(settings: Settings, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of the names that are asked for: without them nothing starts. Nobody runs them here."""
    for model in settings.models:
        if model.kind in CLI_KINDS:
            program = home / program_of(model)
            program.write_text("#!/bin/sh\n", encoding="utf-8")
            program.chmod(0o755)
    monkeypatch.setenv("PATH", str(home), prepend=os.pathsep)


def _set_ups() -> dict[str, Block]:
    """By the name of their model; the first block is the example of two."""
    return {
        re.findall(r'name = "(.+)"', block.text)[0]: block for block in blocks(PAGE)[1:] if block.language == "toml"
    }


def test_there_is_a_set_up_for_each() -> None:
    assert _set_ups().keys() == ASKED.keys()


def _opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """The addresses and keys with which clients are made."""
    opened: list[tuple[str, str | None]] = []
    open_sdk, opener = anthropic_api.open_sdk, openai_api.opener

    def note_sdk(http: AsyncClient, at: str, key: str | None) -> AsyncAnthropic:
        opened.append((at, key))
        return open_sdk(http, at, key)

    def note_opener(http: AsyncClient, kind: ApiKind, at: str, key: str | None) -> Open:
        opened.append((at, key))
        return opener(http, kind, at, key)

    monkeypatch.setattr(anthropic_api, "open_sdk", note_sdk)
    monkeypatch.setattr(openai_api, "opener", note_opener)
    return opened


@pytest.mark.parametrize("name", ASKED)
async def test_a_set_up_asks_whom_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, url, keyed = ASKED[name]
    settings = _read(_set_ups()[name], tmp_path, monkeypatch)
    assert settings.classify.models == (name,)
    opened = _opened(monkeypatch)
    sessions = Sessions(settings.models)
    [(spec, session)] = sessions.models
    assert (spec.name, session.kind) == (name, kind)
    session = session.asked if isinstance(session, RunnerSession) else session
    if isinstance(session, CliSession):
        asked = request(token="t", mcp_url=mcp_url(settings))
        assert asked.server is not None
        command = command_for(session.kind, asked, asked.server, Way(spec, session.api_key, tmp_path))
        told = " ".join((*command.words, *command.env.values(), *command.files.values()))
        assert (url in told, "sk-canary" in told, spec.model in told) == (True, keyed, True)
        assert "http://127.0.0.1:8470/mcp" in told
    else:
        [(at, key)] = opened
        assert (at, key) == (url, "sk-canary" if keyed else None)
        assert (spec.profile == "local") is not keyed
    await sessions.aclose()


async def test_the_example_of_two_is_asked_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = _read(blocks(PAGE)[0], tmp_path, monkeypatch)
    sessions = Sessions(settings.models)
    await sessions.aclose()
    assert [spec.name for spec, _ in sessions.models] == ["own", "spare"]
    assert settings.classify.models == ("own", "spare")
