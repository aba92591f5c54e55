"""The recordings of real command lines (tests/fixtures/cli) are whole, scrubbed, and show what their README says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

HOME: Final = Path(__file__).parents[1] / "fixtures" / "cli"
CLIS: Final = ("claude-code", "codex", "gemini-cli", "opencode")
CASES: Final = {
    *("ok", "two_calls", "no_call", "tool_error", "mcp_down", "bad_token", "denied", "api_error", "garbage"),
}
OF_A_MACHINE: Final = re.compile(
    r"/(?:home|root|tmp|work|Users|private|nix)/|127\.0\.0\.1:(?!1\b)\d+|20(?!26-01-01)\d\d-\d\d-\d\d"
)

every_cli = pytest.mark.parametrize("cli", CLIS)


def _index(cli: str) -> dict[str, Any]:
    index: dict[str, Any] = json.loads((HOME / cli / "cases.json").read_text(encoding="utf-8"))
    return index


@every_cli
def test_every_case_is_recorded_and_printed_json_lines(cli: str) -> None:
    assert _index(cli)["cases"].keys() == CASES == {file.stem for file in (HOME / cli).glob("*.jsonl")}
    for case in CASES:
        lines = (HOME / cli / f"{case}.jsonl").read_text(encoding="utf-8").splitlines()
        assert all(isinstance(json.loads(line), dict) for line in lines)
        assert lines or _index(cli)["cases"][case]["exit"] != 0


@every_cli
def test_only_calls_that_were_taken_are_recorded_by_the_server(cli: str) -> None:
    taken = {name: [call["butler"] for call in case["recorded"]] for name, case in _index(cli)["cases"].items()}
    assert sorted(taken.pop("two_calls")) == ["finance", "health"]
    assert taken.pop("ok") == ["health"]
    assert set(map(tuple, taken.values())) == {()}


@every_cli
def test_a_recording_tells_nothing_of_the_machine_it_was_made_on(cli: str) -> None:
    for file in (HOME / cli).iterdir():
        assert OF_A_MACHINE.findall(file.read_text(encoding="utf-8")) == [], file.name


@every_cli
def test_the_readme_names_the_version_that_was_recorded_and_how_it_ended(cli: str) -> None:
    readme = (HOME / "README.md").read_text(encoding="utf-8")
    [version] = re.findall(r"\d+\.\d+\.\d+", _index(cli)["version"])
    assert f"| {cli} | {version} |" in readme
    exits = [str(_index(cli)["cases"][case]["exit"]) for case in _table(readme)]
    told = [cells[CLIS.index(cli)] for cells in _table(readme).values()]
    assert told == exits


def _table(readme: str) -> dict[str, list[str]]:
    """The exit codes by case, in the order of the command lines."""
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in readme.splitlines() if "|" in line]
    return {row[0]: row[2:6] for row in rows if row[0] in CASES}
