"""`switchboard models` and `messages correct` against a real server, with models of a scripted provider."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from msgspec.structs import replace

from switchboard.app.models.model_tests import ModelTestPlace, _find_remedy
from switchboard.app.ops.doctor import check_machine
from switchboard.app.settings import Settings
from switchboard.cli.models.views import print_models
from switchboard.domain.llm import ModelAttempt, Report, Usage
from switchboard.domain.shown import ClassificationRow
from switchboard.journey.ask import _add_usage, _last_billed
from switchboard.llm.checks import check_models
from switchboard.llm.spec import ModelSpec
from switchboard.ports.checks import CheckResult
from tests.commands import Cli, ask, envelope, served
from tests.postgres import Postgres
from tests.processes import Server, butler, scripted_llm, write_teams
from tests.running import program

TEAM = {
    "team": {"name": "root"},
    "purpose": "Everything",
    "classify": True,
    "systems": [
        butler("memo"),
        butler("loud", ["echo", "HERE"]),
        {"name": "System1/clerk", "engine": "model", "active": False, "config": {"models": ["spare"]}},
        {"name": "System1/writer", "engine": "model", "config": {"models": ["pen"]}},
        {"type": "intelligence"},
    ],
    "routing_rules": [
        {"name": "chat", "channel": "telegram", "targets": [{"system_id": "System1/memo"}]},
        {"name": "letters", "channel": "slack", "targets": [{"system_id": "System1/writer"}]},
    ],
}
SCRIPT: dict[str, Any] = {
    "rules": [
        {"when": {"model": model}, "replies": [reply], "again": True}
        for model, reply in (
            ("good", {"calls": [{"name": "route_to_butler", "arguments": {"butler": "System1/weather"}}]}),
            ("odd", {"calls": [{"name": "route_to_butler", "arguments": {"butler": "System1/bakery"}}]}),
            ("silent", {"text": "I would rather not."}),
            ("locked", {"fault": {"kind": "status", "status": 401}}),
            ("gone", {"fault": {"kind": "status", "status": 404}}),
            ("broken", {"fault": {"kind": "garbage"}}),
            ("caller", {"calls": [{"name": "look_up_number", "arguments": {"person": "Ada"}}]}),
            ("pen", {"text": "Dear Ann", "usage": {"input_tokens": 70, "output_tokens": 7}}),
            ("router", {"calls": [{"name": "route_to_butler", "arguments": {"butler": "System1/memo"}}]}),
        )
    ]
}


@dataclass(frozen=True)
class Provider:
    """A scripted provider in a process of its own."""

    url: str

    def model(self, name: str, kind: str = "openai", **more: Any) -> dict[str, Any]:
        url = self.url if kind == "anthropic" else f"{self.url}/v1"
        return {"name": name, "kind": kind, "model": name, "base_url": url, **more}


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with scripted_llm(SCRIPT, tmp_path_factory.mktemp("script")) as url:
        yield Provider(url)


@pytest.fixture(scope="module")
def server(postgres: Postgres, provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`switchboard up` on a database of its own, with one model that routes."""
    models = [provider.model("router", price_in=1.0), *map(provider.model, ("spare", "pen"))]
    asking = {"MODELS": json.dumps(models), "CLASSIFY__MODELS": '["router"]', "SPENDING__TOKENS_PER_DAY": "1000000"}
    with served(postgres, tmp_path_factory.mktemp("models"), TEAM, **asking) as started:
        yield started


@pytest.fixture
def cli(server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli(capsys, monkeypatch, server.environment)


def classified(text: str, channel: str = "sms") -> str:
    """A message that the model has routed to memo, or a rule elsewhere; its id."""
    found = ask(lambda c: c.post("/v1/ingest", envelope(str(uuid4()), channel=channel, text=text)))
    ask(lambda c: c.get(f"/v1/messages/{found['request_id']}/replies", {"wait_s": 30}))
    return str(found["request_id"])


# Models tried --------------------------------------------------------------------------------------------------------


def tried(cli: Cli, monkeypatch: pytest.MonkeyPatch, *models: dict[str, Any], code: int = 1) -> dict[str, Any]:
    """What `models test` says of these, by name."""
    monkeypatch.setenv("SWITCHBOARD_MODELS", json.dumps(models))
    monkeypatch.setenv("SWITCHBOARD_CLASSIFY__MODELS", "[]")
    said = cli.json("models", "test", code=code)["models"]
    assert [one["name"] for one in said] == [model["name"] for model in models]
    return {one["name"]: one for one in said}


def test_models_that_answer(cli: Cli, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = ("openai", "openai-responses", "anthropic")
    models = [provider.model("good", kind) | {"name": kind} for kind in kinds]
    before = cli.json("models", "list")["tokens"]
    said = tried(cli, monkeypatch, *models, code=0)
    for kind in kinds:
        one = said[kind]
        assert (one["ok"], one["outcome"], one["detail"]) == (True, "answered", "chose System1/weather")
        assert one["tokens_in"] > 0
        assert (one["schemas"], one["thinks"], one["remedy"]) == (True, False, "")
    spent = sum(one["tokens_in"] + one["tokens_out"] for one in said.values())
    assert cli.json("models", "list")["tokens"] == before + spent, "what it costs goes to the account of the day"
    text = cli.says("models", "test", "anthropic")
    assert "ok" in text
    assert "openai" not in text


def test_a_model_is_asked_what_it_is_used_for(
    cli: Cli, provider: Provider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clerk = {"name": "System1/clerk", "engine": "model", "config": {"models": ["caller", "silent", "runner"]}}
    teams = write_teams(tmp_path / "teams", {"team": {"name": "root"}, "systems": [clerk], "routing_rules": []})
    monkeypatch.setenv("SWITCHBOARD_TEAMS_DIR", str(teams))
    runner = program(tmp_path, 'call("look_up_number", person="Ada")\nend("4711")')
    models = [*map(provider.model, ("caller", "silent", "good")), provider.model("runner", "claude-code")]
    models[-1]["program"] = str(runner)
    said = tried(cli, monkeypatch, *models)
    assert {name: (one["ok"], one["detail"]) for name, one in said.items()} == {
        "caller": (True, "calls tools"),
        "silent": (False, "it did not call the tool"),
        "good": (True, "chose System1/weather"),
        "runner": (True, "calls tools"),
    }
    monkeypatch.setenv("SWITCHBOARD_CLASSIFY__MODELS", '["caller"]')
    [both] = cli.json("models", "test", "caller", code=1)["models"]
    assert not both["ok"], "it does not choose"


def test_a_model_of_a_butler_in_no_team_file_is_asked_to_call_a_tool(
    cli: Cli, provider: Provider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere = write_teams(tmp_path / "teams", {"team": {"name": "root"}, "systems": [], "routing_rules": []})
    monkeypatch.setenv("SWITCHBOARD_TEAMS_DIR", str(elsewhere))
    said = tried(cli, monkeypatch, provider.model("caller") | {"name": "pen"}, code=0)
    assert said["pen"]["detail"] == "calls tools", "System1/writer is in the database"


def test_models_that_fail_and_what_to_do(cli: Cli, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = provider.model("nowhere") | {"base_url": "http://127.0.0.1:9/v1"}
    said = tried(
        *(cli, monkeypatch, nowhere, provider.model("silent"), provider.model("locked", api_key_env="A_KEY")),
        *(provider.model("gone"), provider.model("broken"), provider.model("odd"), {**nowhere, "name": "keyless"}),
        provider.model("silent", profile="local") | {"name": "quiet"},
        {"name": "no url", "kind": "openai", "model": "m"},
        {"name": "no program", "kind": "codex", "model": "m", "base_url": "http://127.0.0.1:9", "program": "not-there"},
    )
    assert {name: one["outcome"] for name, one in said.items()} == {
        "nowhere": "unavailable",
        "silent": "unfit",
        "quiet": "unfit",
        "locked": "settings",
        "gone": "defect",
        "broken": "garbage",
        "odd": "answered",
        "keyless": "unavailable",
        "no url": "settings",
        "no program": "settings",
    }
    assert said["odd"]["detail"] == "chose System1/bakery, where System1/weather was meant"
    assert "variable A_KEY holds no secret" in said["locked"]["detail"]
    assert "is http://127.0.0.1:9/v1 running" in said["nowhere"]["remedy"]
    assert said["silent"]["remedy"].startswith("use another model")
    assert said["nowhere"]["detail"] == "connection refused"
    assert [name for name in ("silent", "quiet") if 'profile = "local"' in said[name]["remedy"]] == ["silent"]
    assert "model and base_url" in said["gone"]["remedy"]
    assert "a key is needed" in said["no url"]["detail"]
    assert "not-there is not installed" in said["no program"]["detail"]
    monkeypatch.setenv("A_KEY", "wrong")
    refused = tried(cli, monkeypatch, provider.model("locked", api_key_env="A_KEY"))["locked"]
    assert (refused["outcome"], "rejects the key in A_KEY" in refused["remedy"]) == ("auth", True)
    shown = cli.says("models", "test", code=1)
    assert "→" in shown
    assert "auth" in shown
    assert cli.run("models", "test", "unknown")[0] == 5


CALLER = """\
import json, sys, urllib.request
server = json.load(open(sys.argv[sys.argv.index("--mcp-config") + 1]))["mcpServers"]["switchboard"]
def ask(method, **params):
    headers = {**server["headers"], "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    return json.load(urllib.request.urlopen(urllib.request.Request(server["url"], body, headers)))["result"]
[tool] = ask("tools/list")["tools"]
given = {"butler": tool["inputSchema"]["properties"]["butler"]["enum"][0]}
result = ask("tools/call", name=tool["name"], arguments=given)
use = {"type": "tool_use", "id": "t", "name": "mcp__switchboard__route_to_butler", "input": given}
back = {"type": "tool_result", "tool_use_id": "t", "content": result["content"][0]["text"]}
for line in (
    {"type": "assistant", "message": {"role": "assistant", "content": [use]}},
    {"type": "user", "message": {"role": "user", "content": [back]}},
    {"type": "result", "subtype": "success", "is_error": False, "usage": {"input_tokens": 700, "output_tokens": 30}},
):
    print(json.dumps(line))
"""


@pytest.fixture
def command_line(tmp_path: Path) -> dict[str, Any]:
    """A model behind a program that calls our tool at the real server, with the first name of its list."""
    program = tmp_path / "caller"
    program.write_text(f"#!{sys.executable} -S\n{CALLER}")
    program.chmod(0o755)
    return {
        "name": "cli",
        "kind": "claude-code",
        "model": "m",
        "base_url": "http://127.0.0.1:9",
        "program": str(program),
    }


def test_a_command_line_is_tried_at_the_endpoints_of_the_running_server(
    cli: Cli, command_line: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tried(cli, monkeypatch, command_line, code=0)["cli"]
    assert (said["ok"], said["detail"], said["tokens_in"]) == (True, "chose System1/weather", 700)


def test_what_nobody_told_the_price_of_is_not_free(capsys: pytest.CaptureFixture[str]) -> None:
    row = ClassificationRow(uuid4(), "x", "root", ())
    tried = (ModelAttempt("a", "timeout", "late", Usage(10)), ModelAttempt("b", "cooldown", "paused for 26 s"))
    assert [_add_usage(row, one).cost_usd for one in tried] == [None, None]
    assert _last_billed(row, Report(None, tried)).cost_usd is None
    limits = {"tokens_per_message": 1, "sender_per_minute": 30, "sender_tokens_per_day": 0}
    refused = {"refused": 0, "senders_refused": 7}
    print_models({"models": [], "day": "d", "tokens": 5, "cost_usd": 0, "caps": [], **limits, **refused})
    shown = capsys.readouterr().out
    assert shown.startswith("no models are configured, so no message is classified; see docs/models.md\n")
    assert "5 tokens, cost unknown" in shown
    assert "7 calls prevented today by limits per sender" in shown
    assert "one sender" not in shown, "it is a limit of classification"


def test_what_to_do_about_a_provider_that_a_command_line_does_not_reach() -> None:
    """Our own server was up: it is not the cause."""
    model = ModelSpec(name="cli", kind="claude-code", model="m", base_url="http://127.0.0.1:9")
    place = ModelTestPlace("http://127.0.0.1:8470/mcp", None)
    for message, named in (
        ("claude-code broke off", "base_url"),
        ("Switchboard's MCP server cannot be reached", "classify.mcp_url"),
    ):
        attempt = ModelAttempt("cli", "unavailable", message)
        assert named in _find_remedy(model, attempt, place)


def test_what_is_set_is_not_advised() -> None:
    place = ModelTestPlace("http://127.0.0.1:8470/mcp", None)
    local = ModelSpec(name="own", kind="openai", model="m", base_url="http://127.0.0.1:9", max_tokens=99)
    for outcome in ("garbage", "unfit"):
        attempt = ModelAttempt("own", outcome, "it said nothing")
        assert 'set profile = "local"' in _find_remedy(local, attempt, place)
        assert "profile" not in _find_remedy(replace(local, profile="local"), attempt, place)
        assert "profile" not in _find_remedy(ModelSpec(name="a", kind="anthropic", model="m"), attempt, place)
    keyed = replace(local, api_key_env="KEY")
    assert "set api_key_env" in _find_remedy(local, ModelAttempt("own", "auth", "401"), place)
    assert "refuses the request" in _find_remedy(keyed, ModelAttempt("own", "unavailable", "status 403: no"), place)
    assert _find_remedy(keyed, ModelAttempt("own", "auth", "401"), place).endswith("rejects the key in KEY: renew it")


def test_without_a_server_a_command_line_cannot_be_tried_and_says_so(
    cli: Cli, command_line: dict[str, Any], provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBOARD_URL", "http://127.0.0.1:9")
    said = tried(cli, monkeypatch, command_line)["cli"]
    assert (said["outcome"], "Switchboard's MCP server cannot be reached" in said["detail"]) == ("unavailable", True)
    assert "http://127.0.0.1:9/mcp" in said["remedy"]
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", "postgresql://127.0.0.1:9/none")
    both = tried(cli, monkeypatch, command_line, provider.model("good"))
    assert (both["cli"]["ok"], both["cli"]["remedy"]) == (False, "start it: switchboard up")
    assert both["good"]["ok"], "an API needs neither"


# What the server says ------------------------------------------------------------------------------------------------


def _model_findings(said: Mapping[str, object]) -> list[CheckResult]:
    settings = Settings.model_validate(said)
    return check_models(settings.models, settings.classify.models)


def test_doctor_says_which_models_classify(provider: Provider) -> None:
    models = tuple(map(provider.model, ("one", "two")))
    [found] = _model_findings({"models": models})
    assert found.detail == "2 models; none classifies messages"
    [found] = _model_findings({"models": models, "classify": {"models": ["two", "one"]}})
    assert found.detail == "2 models; in order of preference: two, one"


def test_list_log_usage_and_correction(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    request_id = classified("where is my cat")
    listed = cli.says("models", "list")
    assert "router" in listed
    used = {one["name"]: (one["order"], one["butlers"]) for one in cli.json("models", "list")["models"]}
    assert used == {"router": (1, []), "spare": (None, []), "pen": (None, ["System1/writer"])}
    assert "not used" in listed
    assert "tokens_per_day" in listed
    assert cli.json("models", "show", "router") in cli.json("models", "list")["models"]
    shown = cli.says("models", "show", "router")
    assert [word for word in ("router", "ready", "tokens in", "attempts today") if word not in shown] == []
    assert "order" in listed
    assert "the classification of a message may take" in listed
    assert "one sender: 30 sessions a minute" in listed
    found = cli.json("models", "list")
    print_models(found | {"models": [one | {"order": None} for one in found["models"]]})
    for_turns = capsys.readouterr().out
    assert [word for word in ("order", "classification", "one sender", "newcomer") if word in for_turns] == []
    assert "tokens_per_day" in for_turns
    code, _, err = cli.run("models", "show", "rooter")
    assert (code, "did you mean router?" in err) == (5, True)
    log = cli.says("models", "log", "--butler", "System1/memo")
    assert request_id[-8:] in log
    assert "where is my cat" in log
    rows = cli.json("models", "usage", "--by", "message")["rows"]
    assert request_id in {one["key"] for one in rows}
    assert "System1/memo" in cli.says("models", "usage", "--by", "butler", "--from", "2026-01-01")
    assert "none" in cli.says("models", "usage", "--to", "2026-01-01")
    assert "root" in cli.says("models", "usage", "--by", "team")
    assert cli.json("models", "log", "--failed")["classifications"] == []
    assert cli.run("models", "log", "--team", "nowhere")[0] == 5
    said = cli.says("messages", "correct", request_id, "--to", "System1/loud", "--reason", "loud can")
    assert f"{request_id} is corrected to System1/loud, and delivered to System1/loud (decision 2)" in said
    assert "was already corrected" in cli.says("messages", "correct", request_id, "--to", "loud")
    assert cli.json("messages", "correct", request_id, "--to", "root", "--only-note")["corrected_to"] == "root"
    cli.says("messages", "correct", request_id, "--to", "System1/loud", "--reason", "loud can")
    explained = cli.says("explain", request_id)
    assert "asked for team root" in explained
    assert "corrected by operator-1" in explained
    assert "“loud can”" in explained
    assert "of System1/memo, System1/loud" in explained or "of System1/loud, System1/memo" in explained
    assert "corrected to System1/loud" in cli.says("messages", "show", request_id)
    cases = yaml.safe_load(cli.says("models", "log", "--corrected", "--as-cases"))
    assert [(case["name"], case["expect"]) for case in cases["cases"]] == [(f"{request_id}: loud can", "System1/loud")]
    assert cli.run("models", "log", "--as-cases")[0] == 2
    assert cli.run("messages", "correct", str(uuid4()), "--to", "System1/loud")[0] == 5
    assert cli.run("messages", "correct", request_id, "--to", "System1/nobody")[0] == 5


def test_corrections_as_a_file_of_route_tests(cli: Cli, tmp_path: Path) -> None:
    request_id = classified("again")
    cli.says("messages", "correct", request_id, "--to", "System1/loud", "--only-note")
    file = tmp_path / "cases.yaml"
    file.write_text(cli.says("models", "log", "--corrected", "--as-cases", "--limit", "1"))
    assert "System1/loud" in cli.says("rules", "test", file, code=1)


# Doctor --------------------------------------------------------------------------------------------------------------


def test_doctor_names_what_a_model_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOOD_KEY", "k")
    monkeypatch.delenv("NO_KEY", raising=False)
    models = [
        {"name": "whole", "kind": "openai", "model": "m", "api_key_env": "GOOD_KEY"},
        {"name": "keyless", "kind": "anthropic", "model": "m", "api_key_env": "NO_KEY"},
        {"name": "file", "kind": "anthropic", "model": "m", "api_key_file": str(tmp_path / "none")},
        {"name": "program", "kind": "codex", "model": "m", "base_url": "http://127.0.0.1:9", "program": "not-there"},
        {"name": "idle", "kind": "openai", "model": "m"},
        {"name": "runner", "kind": "claude-code", "model": "m", "program": "/bin/sh", "login": True},
    ]
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    given = {"data_dir": tmp_path, "models": models}
    asked = {"models": ["whole", "keyless", "file", "program"]}
    found = {one.name: one for one in check_machine(Settings.model_validate({**given, "classify": asked}))}
    assert found["models"].detail == "1 model; in order of preference: whole, keyless, file, program"
    assert {name: one.status for name, one in found.items() if name.startswith("model ")} == {
        "model keyless": "warning",
        "model file": "warning",
        "model program": "warning",
        "model idle": "warning",
        "model runner": "warning",
    }
    assert "not logged in" in found["model runner"].detail
    assert "NO_KEY" in found["model keyless"].detail
    assert "not on PATH" in found["model program"].detail
    none = {one.name for one in check_machine(Settings(data_dir=tmp_path))}
    assert not [name for name in none if "model" in name]


# The account ---------------------------------------------------------------------------------------------------------


def test_spending_tells_for_what_for_whom_and_what_is_left(cli: Cli) -> None:
    classified("What does it cost?")
    found = cli.json("spending")
    booked = {one["key"]: one["attempts"] for one in found["by_purpose"]}
    assert booked["classification"] >= 1
    assert sum(booked.values()) == found["total"]["attempts"]
    assert "System1/memo" in {one["key"] for one in found["by_butler"]}
    [cap] = [one for one in found["caps"] if one["name"] == "tokens_per_day"]
    assert (cap["cap"], cap["left"] < cap["cap"]) == (1_000_000, True)
    said = cli.says("spending")
    for part in ("purpose", "butler", "classification", "System1/memo", "left of 1,000,000"):
        assert part in said
    later = cli.json("spending", "--from", "2999-01-01")
    assert (later["by_purpose"], later["by_butler"], later["total"]["attempts"]) == ([], [], 0)


def test_explain_tells_what_each_step_has_cost(cli: Cli) -> None:
    said = cli.says("explain", classified("Write to Ann", "slack"))
    assert re.search(r"step request:1 .*\(70\+7 tokens\)", said), said
    assert {one["key"]: one["tokens_in"] for one in cli.json("spending")["by_butler"]}["System1/writer"] == 70
