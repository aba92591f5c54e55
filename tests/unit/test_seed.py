"""Team files are read whole, checked whole, and refused with the place where the fault is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from switchboard.app.rules.seed import parents_first, read_seed, read_teams
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.routing import SystemId, Target
from tests.routing import ROOT, empty_team


def write(directory: Path, name: str, **content: Any) -> Path:
    file = directory / name
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def test_files_are_read_by_name(tmp_path: Path) -> None:
    write(tmp_path, "b.json", team={"name": "home", "parent": "root"})
    write(tmp_path, "a.json", team={"name": "root"}, systems=[{"name": "memo", "type": "operation"}])
    (tmp_path / "notes.txt").write_text("not a team")

    found = read_teams(tmp_path)

    assert [source.content.team.team_id for source in found] == ["root", "home"]
    assert found[0].content.team.members[0].system_id == "System1/memo"


SEED = """
{
  "routing_rules": [
    {
      "name": "Default DLQ",
      "channel": "*",
      "filters": {},
      "priority": 0,
      "active": true,
      "targets": [
        { "system_id": "System4/root" }
      ]
    }
  ]
}
"""
"""The file of the seed, to the letter."""


def test_the_seeds_own_file_loads_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "root_team.json").write_text(SEED)
    [source] = read_teams(tmp_path)
    assert (source.content.team.team_id, source.content.team.parent_id) == ("root", None)
    assert [(one.system_id, one.engine) for one in source.content.team.members] == [("System4/root", "memo")]
    assert [(rule.name, rule.targets) for rule in source.content.rules] == [
        ("Default DLQ", (Target(system_id=SystemId("System4/root")),))
    ]


def test_the_seeds_own_file_seeds_a_root_and_teams_below_it(tmp_path: Path) -> None:
    (tmp_path / "root_team.json").write_text(SEED)
    interview = {"name": "B", "channel": "telegram", "targets": [{"system_id": "System1/onboarding_interviewer"}]}
    write(tmp_path, "onboarding_team.json", routing_rules=[interview])
    seed = read_seed(tmp_path)
    assert seed is not None
    assert [(team.team_id, team.parent_id) for team in seed.teams] == [("root", None), ("onboarding", "root")]
    assert [member.system_id for member in seed.teams[1].members] == ["System1/onboarding_interviewer"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"team": {"name": "root"},\n "systems": [}', "root.json, line 2, column 14"),
        ('{"team": {"name": "root"}, "sistems": []}', "did you mean systems"),
        ('{"team": {"name": "root"}, "systems": [{"name": "x"}]}', "systems[0].type is missing"),
        ('{"team": {"name": "root"}, "team": {"name": "x"}}', "'team' occurs twice"),
        ("[" * 100_000, "root.json cannot be read"),
    ],
)
def test_what_cannot_be_understood_is_named_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "root.json").write_text(text)

    with pytest.raises(ConfigurationError) as caught:
        read_teams(tmp_path)

    assert told in caught.value.message
    assert str(tmp_path / "root.json") in caught.value.message


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "root.json").write_bytes(b'{"team": "\xff"}')
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_teams(tmp_path)


def test_a_directory_that_is_not_there_or_empty(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not a directory"):
        read_teams(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="contains no team files"):
        read_teams(tmp_path)


def test_a_wrong_teams_dir_is_named_where_it_was_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SWITCHBOARD_TEAMS_DIR", raising=False)
    (tmp_path / "switchboard.toml").write_text('port = 8470\nteams_dir = "nowhere"\n')
    with pytest.raises(ConfigurationError, match=r"^switchboard\.toml, line 2: teams_dir: nowhere is not a directory"):
        read_teams(Path("nowhere"))
    monkeypatch.setenv("SWITCHBOARD_TEAMS_DIR", "nowhere")
    with pytest.raises(ConfigurationError, match=r"^environment variable SWITCHBOARD_TEAMS_DIR: teams_dir: nowhere is"):
        read_teams(Path("nowhere"))


def test_parents_come_before_their_children() -> None:
    teams = [empty_team("leaf", "branch"), empty_team("branch"), empty_team("other"), empty_team(ROOT)]
    assert [team.team_id for team in parents_first(teams)] == ["root", "branch", "other", "leaf"]


def test_a_parent_that_nobody_knows() -> None:
    with pytest.raises(ConfigurationError, match="leaf"):
        parents_first([empty_team("leaf", "nowhere")])
