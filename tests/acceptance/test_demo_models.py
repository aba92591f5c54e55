"""The demo with models of one's own: those of the `switchboard.toml` where it is started, and nothing else of it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from switchboard.app.settings import Settings, load_settings
from switchboard.cli.demo.demonstration import Show, _read_output, _why_not, environment_of
from switchboard.cli.demo.library import Pages
from switchboard.cli.demo.model import demo_model
from switchboard.cli.examples import examples
from switchboard.domain.errors import ConfigurationError
from switchboard.testing.scripted_llm import Call, Reply, Request, ScriptedLlm
from tests.processes import DEADLINE, EXECUTABLE, environment, switchboard, that_know

SPARE: dict[str, Any] = {"name": "spare", "kind": "anthropic", "model": "m", "api_key_env": "K"}
OWN: dict[str, Any] = {"name": "own", "kind": "claude-code", "model": "m", "api_key_file": "key", "program": "./claude"}


@pytest.mark.slow
async def test_the_models_of_the_settings_are_asked_and_their_database_untouched(place: Path) -> None:
    def brain(request: Request) -> Reply:
        assert request.dialect == "openai-chat"
        if "write_file" in request.tools:
            return Reply(text="I cannot write today.")
        return Reply(calls=(Call("route_to_butler", {"butler": "diary"}),))

    async with ScriptedLlm(brain) as llm:
        (place / "switchboard.toml").write_text(
            'database_url = "postgresql://somebody@127.0.0.1:9/real"\n'
            f'models = [{{name = "own", kind = "openai", model = "m", base_url = "{llm.url}/v1"}}]\n'
            '[classify]\nmodels = ["own"]\n',
            encoding="utf-8",
        )
        done = await asyncio.to_thread(
            subprocess.run,
            [EXECUTABLE, "demo"],
            env={key: value for key, value in environment(place).items() if not key.startswith("SWITCHBOARD_")},
            cwd=place,
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "decided by your model: own; the messages are fictitious" in done.stdout
    assert "team root classified by own" in done.stdout
    assert {"tomatoes", "flat still free"} <= {
        words for words in ("tomatoes", "flat still free") if any(words in request.prompt for request in llm.requests)
    }, "what is typed, and the message from a group that no rule knows"


@pytest.mark.slow
def test_with_the_scripted_model_all_is_shown_and_nothing_is_left_running(place: Path) -> None:
    """Also where another is configured, which would not answer."""
    models = [{"name": "own", "kind": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"}]
    own = {"MODELS": json.dumps(models), "CLASSIFY__MODELS": '["own"]'}
    done = switchboard(environment(place / "data", **own), "demo", place / "demo", "--scripted")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is decided by a scripted model on this machine" in done.stdout
    tools = done.stdout.partition("A turn of a model that called tools, explained:")[2]
    assert "“Put milk and bread on my shopping list, please.”" in tools
    assert re.search(r"step tool:\S+  write_file  ", tools)
    second = "execute_command" if shutil.which("bwrap") else "list_files"
    assert re.search(rf"step tool:\S+  {second}  ", tools)
    assert re.search(r"approval write_file  approved  .*\n.*\n.*by operator-1", tools)
    assert re.search(
        r'waits for an approval: write_file  {"path":"shopping.txt","content":"milk\\nbread\\n"}', done.stdout
    )
    assert re.search(r"approvals approve [0-9a-f]{8} → approved", done.stdout)
    assert "→ Milk and bread are on your list." in done.stdout
    assert "a plan of several steps: 2 of 2 pages were fetched at the same time" in done.stdout
    assert "→ Recursive language models split a long context into parts" in done.stdout
    planned = done.stdout.partition("A plan of several steps, explained:")[2]
    for step in ("s1 web_fetch  done", "s2 web_fetch  done", "s3 synthesize after s1, s2  done"):
        assert step in planned
    typed = done.stdout.partition("A message that a model decided, explained:")[2]
    told = (
        "“What will leave our account this month?”",
        "team root classified by scripted",
        "→ finance",
        "→ System1/acc",
    )
    places = [typed.find(words) for words in told]
    assert -1 not in places
    assert places == sorted(places)
    assert "classification_failed" in typed, "what the model finds nobody for is kept"
    assert "they balance: nothing lost, nothing doubled" in typed
    assert that_know(place) == []


@pytest.mark.slow
def test_a_part_that_does_not_start_ends_the_demo_at_once_in_its_own_words(place: Path) -> None:
    """A program that is not installed, as an SDK that is not: the worker refuses to start."""
    models = [{"name": "own", "kind": "claude-code", "model": "m", "base_url": "http://127.0.0.1:9", "program": "nope"}]
    own = {"MODELS": json.dumps(models), "CLASSIFY__MODELS": '["own"]'}
    done = switchboard(environment(place / "data", **own), "demo")
    assert done.returncode == 1
    assert "models: own: nope is not installed, or not on PATH" in done.stderr
    assert "is ready" not in done.stdout
    assert "too long" not in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_part_of_the_demo_has_said_before_it_ended_is_shown(tmp_path: Path) -> None:
    (tmp_path / "demo.log").write_text("much\nModuleNotFoundError: no such thing\n")
    for said, shown in ((b'{"error": {"message": "no key"}}', "no key"), (b"", "ModuleNotFoundError: no such")):
        with pytest.raises(ConfigurationError, match=shown):
            _read_output(said, tmp_path)


def test_the_screen_of_the_demo_has_no_empty_table_and_a_whole_first_line() -> None:
    console = Console(width=80, force_terminal=True, file=StringIO(), color_system=None)
    show = Show(console)
    show.tell("what no rule decides is decided by a scripted model on this machine, and " + "x" * 20)
    with console.capture() as captured:
        console.print(show)
    assert "none" not in captured.get()
    assert "x" * 20 in captured.get()
    assert "…" not in captured.get()


@pytest.mark.parametrize(
    ("attempts", "why"), [([], None), ([{"error": "no key"}], "no key"), ([{"error": None}], "no butler was chosen")]
)
def test_why_a_model_decided_nothing_is_told(attempts: list[dict[str, Any]], why: str | None) -> None:
    assert _why_not([{"classifications": attempts}]) == why


def test_an_example_says_which_variables_it_needs() -> None:
    program = examples() / "remote" / "tides.py"
    env = {key: value for key, value in os.environ.items() if key not in ("TIDES_TOKEN", "SWITCHBOARD_TOKEN")}
    done = subprocess.run([sys.executable, str(program)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "TIDES_TOKEN" in done.stderr
    assert "Traceback" not in done.stderr


PAGES = Pages("127.0.0.1:9")


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings in which two models are asked."""
    monkeypatch.chdir(tmp_path)
    classify = {"models": ["own", "spare"], "timeout": 99.0, "mcp_url": "http://elsewhere/mcp"}
    return Settings.model_validate({"models": [SPARE, OWN], "classify": classify, "spending": {"cost_per_day": 1.0}})


def test_what_the_parts_of_the_demo_are_told_of_ones_own_models(
    asked: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run elsewhere, so that paths are whole; the budget stays, and patience is that of a demo."""
    model = demo_model(asked, examples(), tmp_path, PAGES, scripted=False)
    assert (model.script, model.certain) == (None, False)
    assert "own, then spare" in model.said
    for name, value in model.environment.items():
        monkeypatch.setenv(name, value)
    told = load_settings()
    [spare, own] = told.models
    assert (spare.api_key_env, own.api_key_file, own.program) == ("K", tmp_path / "key", str(tmp_path / "claude"))
    assert told.classify.models == ("own", "spare")
    assert (told.spending.cost_per_day, told.classify.timeout, told.classify.mcp_url) == (1.0, 15.0, None)


def test_of_other_settings_the_parts_know_only_which_postgresql_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", "postgresql://somebody@127.0.0.1:9/real")
    monkeypatch.chdir(tmp_path)
    told = environment_of(Settings.model_validate({"postgres_binaries": "bin", "host": "0.0.0.0"}), tmp_path)  # noqa: S104
    assert {name: value for name, value in told.items() if name.startswith("SWITCHBOARD_")} == {
        "SWITCHBOARD_DATA_DIR": str(tmp_path),
        "SWITCHBOARD_PORT": "0",
        "SWITCHBOARD_LOG_LEVEL": "warning",
        "SWITCHBOARD_POSTGRES_BINARIES": str(tmp_path / "bin"),
    }


def test_the_scripted_model_is_asked_for_or_stands_in(asked: Settings, tmp_path: Path) -> None:
    for name, settings, scripted in (("a", asked, True), ("b", Settings(), False)):
        home = tmp_path / name
        home.mkdir()
        model = demo_model(settings, examples(), home, PAGES, scripted=scripted)
        assert (model.script, model.certain) == (home / "script.json", True)
        assert "is decided by a scripted model on this machine" in model.said
        assert os.path.commonpath([model.teams, home]) == str(home)
