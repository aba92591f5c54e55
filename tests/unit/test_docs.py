"""The documents are held against the product: what they name exists, and what exists they name."""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any, cast, get_args
from unittest.mock import Mock
from uuid import UUID

import pytest
from msgspec import Struct
from msgspec.structs import asdict

from switchboard import DISTRIBUTION
from switchboard.app.settings import Settings, load_settings
from switchboard.cli.main import COMMANDS, command_line
from switchboard.cli.reading import read_object
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.envelope.read import parse_envelope
from switchboard.core.routing.check import check_rule
from switchboard.core.routing.teamfile import TeamFile, parse_team_file
from switchboard.domain.routing import DeadLetterCategory, Rule, RuleDraft, Team
from switchboard.lanes.faults import Point
from switchboard.server.mcp.tools import Tools
from switchboard.server.paths import LINKS, PUBLIC, SCHEMAS
from switchboard.testing.engines import CHECKS, EngineCheck
from switchboard.transport.signed_post import sign
from tests import decisions
from tests.documents import DOCUMENTS, HOME, all_blocks, anchors, blocks, calls, codes, command_lines, links, rows
from tests.unit.test_openapi import openapi

__all__ = ["openapi"]

API, README, OPERATIONS = HOME / "docs/api.md", HOME / "README.md", HOME / "docs/operations.md"
TEAMS, BUTLERS, JOURNEY = HOME / "docs/teams.md", HOME / "docs/butlers.md", HOME / "docs/journey.md"
CONFIGURATION = HOME / "docs/configuration.md"
NOW = datetime(2026, 2, 1, tzinfo=UTC)


# Commands -----------------------------------------------------------------------------------------------------------


@cache
def _command(name: str) -> Any:
    """The command of the real command line, in full."""
    return cast(Any, command_line([name])).commands[name]


def _problems(arguments: list[str]) -> Iterator[str]:
    """What `--help` does not know of these arguments."""
    command: Any = (root := command_line([]))
    for word in takewhile(lambda word: word != "--", arguments):
        if word.startswith("-") and word != "-":
            name = word.partition("=")[0]
            there = [p for p in command.params if not getattr(p, "hidden", False)]
            shown = {option for p in there for option in (*p.opts, *p.secondary_opts)}
            if name not in shown | {"--help", "-h"}:
                yield f"{command.name} has no {name}"
        elif hasattr(command, "commands"):
            if word not in command.commands and not word.isupper():
                yield f"there is no command {word}"
                return
            command = _command(word) if command is root else command.commands[word]


def test_every_command_and_option_of_the_documents_exists() -> None:
    wrong = [
        (document.name, line, problem)
        for document, line in command_lines()
        for arguments in calls(line, "switchboard")
        for problem in _problems(_without_alternatives(arguments))
    ]
    assert not wrong


def _without_alternatives(arguments: list[str]) -> list[str]:
    """Up to a redirection."""
    ends = [n for n, word in enumerate(arguments) if word.startswith((">", "<"))]
    return arguments[: ends[0]] if ends else arguments


def test_the_check_of_commands_finds_what_is_wrong() -> None:
    [arguments] = calls("X=1 switchboard dlq lost --teem x | head", "switchboard")
    assert list(_problems(arguments)) == ["there is no command lost"]
    assert list(_problems(["send", "x", "--teem"])) == ["send has no --teem"]
    assert list(_problems(["work", "--while-stdin"])) == ["work has no --while-stdin"]


def test_every_command_is_in_the_documents() -> None:
    named = {arguments[0] for _, line in command_lines() for arguments in calls(line, "switchboard") if arguments}
    assert {entry.name for entry in COMMANDS} - named - {"version"} == set()


def test_every_make_target_of_the_documents_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):.*##", (HOME / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        word
        for _, line in command_lines()
        for arguments in calls(line, "make")
        for word in arguments
        if "=" not in word
    }
    assert named - targets == set()
    assert {"demo", "test", "up", "check", "chaos", "bench"} <= named


def test_the_readme_begins_with_install_and_checkout_in_three_lines_each() -> None:
    installed, checkout, *_ = (re.findall(r"^\$ (.*?)(?: +#.*)?$", one.text, re.MULTILINE) for one in blocks(README))
    place = "~/switchboard"
    pip, demo = f"{place}/bin/pip install {DISTRIBUTION}", f"{place}/bin/switchboard demo"
    assert installed == [f"python3 -m venv {place}", pip, demo]
    assert checkout == ["make demo", "make test", "make up"]
    assert README.read_text(encoding="utf-8").index("pip install") < 500


# Links, snippets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(HOME)))
def test_every_link_leads_somewhere(document: Path) -> None:
    inside = [link.partition("#") for link in links(document) if not re.match(r"[a-z]+:", link)]
    gone = [path + mark + anchor for path, mark, anchor in inside if not _is_there(document, path, anchor)]
    assert not gone


def _is_there(document: Path, path: str, anchor: str) -> bool:
    target = (document.parent / path) if path else document
    return target.exists() and (not anchor or anchor in anchors(target))


def test_the_readme_is_short() -> None:
    assert README.stat().st_size <= 9_000


def test_every_page_is_in_an_index() -> None:
    indexed = {(d.parent / link).resolve() for d in DOCUMENTS if d.name == "README.md" for link in links(d)}
    assert [d for d in DOCUMENTS if "docs" in d.parts and d.name != "README.md" and d not in indexed] == []


@pytest.mark.parametrize("block", all_blocks("json"), ids=lambda b: f"{b.document.name}: {b.text[:30]!r}")
def test_json_of_the_documents_is_what_it_claims_to_be(block: Any) -> None:
    document = json.loads(block.text)
    if "team" in document:
        _check_team(document)
    elif document.get("schema_version") == "ingest.v1":
        parse_envelope(block.text.encode(), now=NOW)
    else:
        assert document.keys() & {"error", "request_id", "replies", "schema_version", "reason"}


@pytest.mark.parametrize("block", all_blocks("yaml"), ids=lambda b: f"{b.document.name}: {b.text[:30]!r}")
def test_yaml_of_the_documents_stands_in_the_examples(block: Any, tmp_path: Path) -> None:
    file = tmp_path / "block.yaml"
    file.write_text(block.text, encoding="utf-8")
    shown = read_object(file)
    assert any(_within(shown, read_object(example)) for example in HOME.glob("src/switchboard/examples/**/*.yaml"))


def _within(part: object, whole: object) -> bool:
    """Whether `part` is what `whole` is, with things left out."""
    if isinstance(part, Mapping) and isinstance(whole, Mapping):
        return all(key in whole and _within(value, whole[key]) for key, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return all(any(_within(one, other) for other in whole) for one in part)
    return part == whole


def _check_team(document: Mapping[str, object]) -> None:
    file = parse_team_file(document)
    teams = {file.team.team_id: file.team}
    assert [problem for draft in file.rules for problem in check_rule(_stored(draft, file), teams)] == []


def _stored(draft: RuleDraft, file: TeamFile) -> Rule:
    return Rule(
        *(draft.name, draft.channel, draft.filters, draft.targets, draft.priority),
        rule_id=UUID(int=1),
        team_id=file.team.team_id,
        created_at=NOW,
    )


def test_the_team_file_of_the_manual_names_every_key() -> None:
    named = {word.rpartition(".")[2] for row in rows(TEAMS, "key") for cell in row[:1] for word in codes(cell)}
    keys = ("agent_id", "engine", "config", "description", "capabilities", "active", "filters", "priority", "targets")
    assert {"name", "parent", "purpose", "type", "channel", *keys} <= named
    assert isinstance(parse_team_file(json.loads(_team_block())).team, Team)


def _team_block() -> str:
    return next(block.text for block in blocks(TEAMS) if block.language == "json")


@pytest.mark.parametrize("block", all_blocks("python"), ids=lambda b: f"{b.document.name}: {b.text[:30]!r}")
def test_python_of_the_documents_parses(block: Any) -> None:
    ast.parse(block.text)


@pytest.mark.parametrize("block", all_blocks("toml"), ids=lambda b: f"{b.document.name}: {b.text[:30]!r}")
def test_toml_of_the_documents_parses_and_settings_are_settings(block: Any, tmp_path: Path) -> None:
    document = tomllib.loads(block.text)
    if "project" not in document:
        file = tmp_path / "switchboard.toml"
        file.write_text(block.text)
        assert load_settings(file).model_fields_set - {"data_dir"} == document.keys()


def test_the_signature_snippet_believes_what_we_sign_and_nothing_else() -> None:
    [snippet] = (block.text for block in blocks(BUTLERS) if "def is_ours" in block.text)
    space: dict[str, Any] = {}
    exec(snippet, space)  # noqa: S102 - a snippet of our own documents
    space["time"] = _Clock
    good = {"secret": b"s", "timestamp": "1000", "signature": sign(b"s", 1000, b"{}"), "body": b"{}"}
    assert space["is_ours"](**good)
    for change in ({"secret": b"t"}, {"body": b"{ }"}, {"timestamp": "1001"}, {"timestamp": "x"}):
        assert not space["is_ours"](**good | change)
    old = sign(b"s", 600, b"{}")
    assert not space["is_ours"](**good | {"timestamp": "600", "signature": old})


class _Clock:
    """In place of the module `time`."""

    @staticmethod
    def time() -> float:
        return 1000.0


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_engine_snippet_passes_the_test_snippet(check: EngineCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, test = (block for block in blocks(BUTLERS) if block.language == "python" and block.mark == "file")
    package = ModuleType("my_package.shout")
    exec(engine.text, vars(package))  # noqa: S102 - a snippet of our own documents
    monkeypatch.setitem(sys.modules, "my_package", ModuleType("my_package"))
    monkeypatch.setitem(sys.modules, "my_package.shout", package)
    space: dict[str, Any] = {}
    exec(test.text, space)  # noqa: S102 - a snippet of our own documents
    await space["test_shout"](check)


def test_the_architecture_names_every_package() -> None:
    named = {codes(row[0])[0] for row in rows(HOME / "ARCHITECTURE.md", "package")}
    source = HOME / "src/switchboard"
    real = {found.parent.name for found in source.glob("*/__init__.py")}
    assert named == real | {"distribution.py", "pipeline.py", "signals.py", "tasks.py", "trees.py"}


# Settings -----------------------------------------------------------------------------------------------------------


def _settings() -> Iterator[tuple[str, object]]:
    """Every setting by its dotted name, with its default."""
    for name, field in Settings.model_fields.items():
        yield from _flatten(name, field.get_default(call_default_factory=True))


def _flatten(name: str, default: object) -> Iterator[tuple[str, object]]:
    if not isinstance(default, Struct):
        yield name, default
        return
    for inner, one in asdict(default).items():
        yield from _flatten(f"{name}.{inner}", one)


def test_the_table_of_settings_is_the_settings() -> None:
    told = {codes(row[0])[0]: row for row in rows(CONFIGURATION, "key")}
    real = dict(_settings())
    assert told.keys() == real.keys()
    for name, (_, environment, default, meaning) in told.items():
        assert codes(environment) == [f"SWITCHBOARD_{name.upper().replace('.', '__')}"]
        assert _shown(real[name]) == (codes(default) or [default])[0] or name == "data_dir"
        assert meaning


def _shown(default: object) -> str:
    if isinstance(default, tuple) and default:
        return json.dumps(default)
    return str(default).lower() if default or default is False else "none"


def test_every_variable_of_the_documents_is_read() -> None:
    named = {word for d in DOCUMENTS for word in re.findall(r"\bSWITCHBOARD_[A-Z_]+", d.read_text(encoding="utf-8"))}
    settings = {f"SWITCHBOARD_{name.upper().replace('.', '__')}" for name, _ in _settings()}
    sources = "".join(file.read_text(encoding="utf-8") for file in HOME.glob("src/**/*.py"))
    assert {name for name in named - settings if f'"{name}"' not in sources} == set()


# API ----------------------------------------------------------------------------------------------------------------


def test_the_table_of_routes_is_the_openapi(openapi: Mapping[str, Any]) -> None:
    told = [(method, *codes(path)) for method, path, _, _ in rows(API, "method")]
    real = [(m.upper(), path) for path, methods in openapi["paths"].items() for m in methods]
    assert sorted(told) == sorted(real)


def test_what_the_table_calls_public_needs_no_token(openapi: Mapping[str, Any]) -> None:
    public = {codes(path)[0] for _, path, roles, _ in rows(API, "method") if roles == "public"}
    assert public == {path for path in openapi["paths"] if path in PUBLIC or path.startswith((LINKS, SCHEMAS))}


def test_every_path_of_the_documents_exists(openapi: Mapping[str, Any]) -> None:
    paths = {*openapi["paths"], "/docs", "/openapi.json", "/mcp", "/v1/ws"}
    patterns = [re.compile(re.sub(r"\\{\w+\\}", r"[^/]+", re.escape(path))) for path in paths]
    used = {path for d in DOCUMENTS for path in re.findall(r"(?<![\w/.])(/v1/[^\s\"'`?|)]*)", d.read_text())}
    used |= {
        path
        for _, line in command_lines()
        for path in re.findall(r"(?:\$URL|https?://127\.0\.0\.1:8470)(/[^\s\"'?]+)", line)
    }
    assert len(used) > 20
    assert [path for path in sorted(used) if not any(pattern.fullmatch(path) for pattern in patterns)] == []


def test_every_error_code_is_in_the_manual() -> None:
    told = {code for row in rows(API, "status") for code in codes(row[1])} - {"Retry-After"}
    sources = {file: file.read_text(encoding="utf-8") for file in HOME.glob("src/**/*.py")}
    inside = [t for f, t in sources.items() if not {"cli", "testing"} & set(f.relative_to(HOME).parts)]
    real = set(re.findall(r'\bcode ?= ?"(\w+)"', "".join(inside)))
    everything = "".join(sources.values())
    never_over_the_api = {"configuration", "unreachable", "provider_error", "invalid_team_file", "not_mbox"}
    assert real - told - never_over_the_api == set()
    assert {code for code in told if f'"{code}"' not in everything} == set()


async def test_the_table_of_tools_is_what_mcp_offers() -> None:
    context = cast(Any, Mock())
    context.request.state.principal.role = "operator"
    offered = (await Tools(Mock()).list(context, None)).tools
    told = {codes(name)[0]: set(codes(arguments)) for name, arguments, _ in rows(API, "tool")}
    assert told == {tool.name: set(tool.input_schema["properties"]) - {"schema_version"} for tool in offered}


# The rest -----------------------------------------------------------------------------------------------------------


def test_the_table_of_metrics_is_what_is_measured() -> None:
    told = {
        name.partition("{")[0].removesuffix("_total") for row in rows(OPERATIONS, "metric") for name in codes(row[0])
    }
    source = (HOME / "src/switchboard/app/metrics.py").read_text(encoding="utf-8")
    real = {f"switchboard_{name}" for name in re.findall(r'self\._make_(?:counter|gauge)\(\s*"(\w+)"', source)}
    assert told == real | {"switchboard_ingest_seconds"}


def test_the_table_of_filters_is_what_rules_may_use() -> None:
    told: dict[str, set[str]] = {}
    for channels, keys in rows(TEAMS, "channel"):
        for channel in codes(channels):
            told.setdefault(channel, set()).update(codes(keys))
    real = {one.name: set(one.keys) for one in CHANNELS.values()}
    assert told == {name: keys for name, keys in real.items() if keys}


def test_the_tables_of_categories_and_crash_points_are_complete() -> None:
    categories = {code for row in rows(TEAMS, "category") for code in codes(row[0])}
    assert categories == set(get_args(DeadLetterCategory))
    assert [codes(row[0])[0] for row in rows(JOURNEY, "point")] == list(get_args(Point))


def test_every_decision_has_its_three_parts_and_its_line() -> None:
    directory = HOME / "docs/decisions"
    pages = sorted(directory.glob("0*.md"))
    numbers = [page.name[:4] for page in pages]
    assert sorted(set(numbers)) == numbers
    assert decisions.INDEX.read_text(encoding="utf-8") == decisions.index(), "`make decisions` writes it anew"
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert all(f"**{part}" in text for part in ("Decided.", "Why.", "Costs."))


def test_every_dependency_is_accounted_for() -> None:
    project = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    text = (HOME / "docs/decisions/0007-dependencies.md").read_text(encoding="utf-8")
    names = {re.split(r"[^\w-]", line)[0] for line in wanted}
    assert {name for name in names if name not in text} == set()
