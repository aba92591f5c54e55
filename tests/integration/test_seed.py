"""Teams from files enter the database once, whole, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from switchboard.app.ops.doctor import check_database, check_machine
from switchboard.app.rules.seed import read_seed, seed_teams
from switchboard.app.settings import Settings
from switchboard.app.wiring import make_worker, open_runtime
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.strangers import Contact
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.routing import RuleSet
from switchboard.store.database import Database
from switchboard.store.people import audit, strangers
from switchboard.store.rules.teams import load_with_rules_of, rule_set_version, team_ids
from switchboard.store.rules.versions import get_version
from tests.hands import a_hand
from tests.processes import butler, write_teams


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await Database.connect(database_url, size=2)
    yield opened
    await opened.close()


def root(**more: Any) -> dict[str, Any]:
    rule = {"name": "all", "channel": "*", "targets": [{"system_id": "System1/memo"}]}
    return {"team": {"name": "root"}, "systems": [butler("memo")], "routing_rules": [rule], **more}


def home(**more: Any) -> dict[str, Any]:
    return {"team": {"name": "home", "parent": "root"}, "systems": [butler("cook")], **more}


def names(rules: RuleSet) -> set[tuple[str, str, str]]:
    return {(rule.team_id, rule.name, rule.created_by) for rule in rules.rules}


async def stored_rules(database: Database) -> RuleSet:
    return await load_with_rules_of(database, await team_ids(database))


async def test_a_new_installation_has_a_team_that_answers(database: Database) -> None:
    assert await seed_teams(database, read_seed(None))
    assert not await seed_teams(database, read_seed(None))
    rules = await stored_rules(database)
    assert (rules.version, [team.team_id for team in rules.teams]) == (1, ["root"])
    assert names(rules) == {("root", "Everything to memo", "default")}


@pytest.mark.parametrize("name", ["root", "house"])
async def test_the_built_in_team_yields_to_the_first_files_unless_it_was_changed(
    database: Database, tmp_path: Path, name: str
) -> None:
    files = root(team={"name": name}, systems=[butler("clerk")])
    files["routing_rules"][0]["targets"] = [{"system_id": "System1/clerk"}]
    write_teams(tmp_path, files)
    for touch in ("", "update rule set version = 2", "insert into member values ('System1/x', 'root', 1, 'memo')"):
        await database.run("delete from rule; delete from member; delete from team; truncate rule_set cascade")
        assert await seed_teams(database, read_seed(None))
        if touch:
            await database.run(touch)
            continue
        with capture_logs() as logs:
            assert await seed_teams(database, read_seed(tmp_path))
        assert [entry["log_level"] for entry in logs] == ["info"]
        rules = await stored_rules(database)
        assert [(team.team_id, [one.name for one in team.members]) for team in rules.teams] == [(name, ["clerk"])]
        assert names(rules) == {(name, "all", f"file:{name}.json")}
        assert rules.version == 2, "one version, so that it can be undone as one"
        newest = await get_version(database, 2)
        assert newest is not None
        assert (newest.author, newest.reason) == ("file", f"first run: seeded from {tmp_path}")
        assert not await seed_teams(database, read_seed(tmp_path)), "once"
    if name == "root":
        await seed_teams(database, read_seed(tmp_path))
        assert names(await stored_rules(database)) == {("root", "Everything to memo", "default")}


@pytest.mark.parametrize("butlers", [["memo"], ["clerk"]])
async def test_owners_by_a_code_stay_when_the_built_in_team_makes_room(
    database: Database, tmp_path: Path, butlers: list[str]
) -> None:
    await seed_teams(database, read_seed(None))
    ann = Contact("telegram", "bot:house", "person", "ann")
    contact_id, _ = await strangers.add(database, ann, "boss")
    for kept in ("System1/memo", "System4/root"):
        await database.run("insert into contact_owner values ($1, $2, '2026-01-01')", contact_id, kept)
    files = root(systems=[butler(name) for name in butlers])
    files["routing_rules"][0]["targets"] = [{"system_id": f"System1/{butlers[0]}"}]
    write_teams(tmp_path, files)
    with capture_logs() as logs:
        assert await seed_teams(database, read_seed(tmp_path))
    [team] = (await stored_rules(database)).teams
    owned = {one.system_id: {owner.identity for owner in one.owners} for one in team.members}
    assert owned == {f"System1/{name}": {"ann"} if name == "memo" else set() for name in butlers}
    gone = ["System4/root"] if butlers == ["memo"] else ["System1/memo", "System4/root"]
    assert [entry["butler"] for entry in logs if entry["log_level"] == "warning"] == gone
    entries = await audit.list_entries(database, action="owner_removed")
    assert sorted(str(one.detail["owner_of"]) for one in entries) == gone
    since = await database.rows("select distinct since::date::text as day from contact_owner")
    assert [row["day"] for row in since] == (["2026-01-01"] if butlers == ["memo"] else [])


async def test_teams_of_files_children_named_first(database: Database, tmp_path: Path) -> None:
    write_teams(tmp_path, root(), home())
    (tmp_path / "home.json").rename(tmp_path / "a.json")
    await seed_teams(database, read_seed(tmp_path))
    rules = await stored_rules(database)
    assert {(team.team_id, team.parent_id) for team in rules.teams} == {("root", None), ("home", "root")}
    assert names(rules) == {("root", "all", "file:root.json")}


async def test_a_known_team_keeps_its_rules_and_gets_its_members(database: Database, tmp_path: Path) -> None:
    write_teams(tmp_path, root())
    await seed_teams(database, read_seed(tmp_path))
    await seed_teams(database, read_seed(tmp_path))
    assert await rule_set_version(database) == 1
    new_rule = {"name": "another", "channel": "email", "targets": [{"system_id": "System1/clerk"}]}
    write_teams(tmp_path, root(systems=[butler("memo"), butler("clerk")], routing_rules=[new_rule]))
    await seed_teams(database, read_seed(tmp_path))
    rules = await stored_rules(database)
    assert rules.version == 2
    assert {member.name for member in rules.teams[0].members} == {"memo", "clerk"}
    assert names(rules) == {("root", "all", "file:root.json")}


@pytest.mark.parametrize(
    ("teams", "told"),
    [
        ([home()], "no parent"),
        ([root(), {"team": {"name": "x", "parent": "rooot"}}], "x.json: there is no team 'rooot'; did you mean root"),
        ([root(), {"team": {"name": "other"}}], "only one team may have no parent"),
        (
            [root(routing_rules=[{"name": "r", "channel": "telegramm", "targets": [{"system_id": "System1/memo"}]}])],
            "root.json: routing_rules[0].channel (r): there is no channel 'telegramm'; did you mean telegram",
        ),
        (
            [root(), home(routing_rules=[{"name": "r", "channel": "*", "targets": [{"system_id": "System1/memo"}]}])],
            "home.json: routing_rules[0].targets[0].system_id (r): System1/memo is in team root",
        ),
    ],
)
async def test_what_makes_no_sense_is_refused_before_anything_is_written(
    database: Database, tmp_path: Path, teams: list[dict[str, Any]], told: str
) -> None:
    write_teams(tmp_path, *teams)
    with pytest.raises(ConfigurationError) as caught:
        await seed_teams(database, read_seed(tmp_path))
    assert told in caught.value.message
    assert await rule_set_version(database) == 0


async def test_a_butler_that_retires_does_not_stop_the_start(database: Database, tmp_path: Path) -> None:
    write_teams(tmp_path, root())
    await seed_teams(database, read_seed(tmp_path))
    write_teams(tmp_path, root(systems=[{**butler("memo"), "active": False}]))
    assert await seed_teams(database, read_seed(tmp_path))
    assert not (await stored_rules(database)).teams[0].members[0].active


async def test_channels_of_plug_ins_may_be_named(database: Database, tmp_path: Path) -> None:
    rule = {"name": "r", "channel": "pager", "targets": [{"system_id": "System1/memo"}]}
    write_teams(tmp_path, root(routing_rules=[rule]))
    await seed_teams(database, read_seed(tmp_path, CHANNELS.adding([], {"pager": ["pager"]})))
    assert await rule_set_version(database) == 1


async def test_teams_written_in_the_settings(database: Database, tmp_path: Path) -> None:
    write_teams(tmp_path, root())
    assert await seed_teams(database, read_seed(tmp_path, written=[home()]))
    rules = await stored_rules(database)
    assert {(team.team_id, team.parent_id) for team in rules.teams} == {("root", None), ("home", "root")}


async def test_an_engine_that_is_not_installed_stops_the_start(database: Database, tmp_path: Path) -> None:
    write_teams(tmp_path, root(systems=[butler("memo") | {"engine": "meno"}]))
    with pytest.raises(ConfigurationError, match=r"no engine 'meno'; installed are command, echo, http, mcp, memo"):
        await seed_teams(database, read_seed(tmp_path))


async def test_wrong_options_of_an_engine_stop_the_start_of_a_worker(database_url: str, tmp_path: Path) -> None:
    write_teams(tmp_path, root(systems=[butler("memo"), butler("clerk") | {"engine": "command", "config": {}}]))
    settings = Settings(database_url=SecretStr(database_url), teams_dir=tmp_path)
    wrong = "the options of System1/clerk are wrong: command is required"
    with pytest.raises(ConfigurationError, match=wrong):
        await _open_for_work(settings)
    assert await _version(database_url) == 0
    async with open_runtime(settings) as runtime:
        with pytest.raises(ConfigurationError, match=wrong):
            make_worker(runtime)


HOOK = {"url": "https://hook.example/", "secret_env": "NO_SUCH_SECRET"}


async def test_a_missing_secret_is_told_with_its_butler_and_its_file(database_url: str, tmp_path: Path) -> None:
    hook = butler("hook") | {"engine": "http", "config": HOOK}
    write_teams(tmp_path, root(systems=[butler("memo"), hook]))
    settings = Settings(database_url=SecretStr(database_url), teams_dir=tmp_path)
    told = r"root\.json: System1/hook: the environment variable NO_SUCH_SECRET holds no secret"
    with pytest.raises(ConfigurationError, match=told):
        await _open_for_work(settings)
    async with open_runtime(settings) as runtime:
        with pytest.raises(ConfigurationError, match=r"^System1/hook: the environment variable NO_SUCH_SECRET"):
            make_worker(runtime)


async def test_doctor_sees_what_would_keep_a_worker_from_starting(database_url: str, tmp_path: Path) -> None:
    """Wrong options, secrets, programs, webhooks; no more than a hint once a worker runs, for it has all of it."""
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    systems = [
        butler("memo"),
        butler("hook") | {"engine": "http", "config": HOOK},
        butler("gone") | {"engine": "command", "config": {"command": ["no-such-program"]}},
        butler("lost") | {"engine": "command", "config": {"command": ["./tool"], "cwd": "nowhere"}},
        butler("wrong") | {"engine": "command", "config": {"comand": ["./tool"]}},
        butler("tool") | {"engine": "command", "config": {"command": ["./tool"]}},
        butler("sh") | {"engine": "command", "config": {"command": ["sh"]}},
        butler("away") | {"engine": "http", "config": HOOK, "active": False},
    ]
    write_teams(tmp_path, root(systems=systems))
    shop = [{"endpoint": "shop", "url": "https://shop.example/", "secret_env": "NO_SUCH_SECRET"}]
    given = {"database_url": database_url, "teams_dir": tmp_path, "data_dir": tmp_path, "callbacks": shop}
    settings = Settings.model_validate(given)
    assert {one.name: one.status for one in check_machine(settings)}["team files"] == "ok"
    async with open_runtime(settings) as runtime:
        found = [one for one in await check_database(settings) if one.name in {"butlers", "webhooks"}]
        assert {one.status for one in found} == {"error"}
        [webhook, *butlers] = [one.detail for one in found]
        assert webhook.startswith("callback of the api endpoint 'shop': the environment variable NO_SUCH_SECRET")
        file = tmp_path / "root.json"
        expected = {
            f"{file}: System1/hook: the environment variable NO_SUCH_SECRET",
            f"{file}: the options of System1/wrong are wrong:",
            f"{file}: System1/gone: the program no-such-program does not exist",
            f"{file}: System1/lost: the directory {tmp_path / 'nowhere'} does not exist",
        }
        assert len(butlers) == len(expected)
        assert {start for start in expected for told in butlers if told.startswith(start)} == expected
        async with a_hand(runtime.database):
            found = [one for one in await check_database(settings) if one.name in {"butlers", "webhooks"}]
            assert [one.status for one in found] == ["warning"] * 5


async def test_doctor_names_owners_who_can_be_nobody(database_url: str, tmp_path: Path) -> None:
    owners = ["telegram:5488", "smms:5488", "5488", "telegram:", "person:ann"]
    write_teams(tmp_path, root(systems=[butler("memo") | {"config": {"owners": owners}}]))
    settings = Settings.model_validate({"database_url": database_url, "teams_dir": tmp_path, "data_dir": tmp_path})
    async with open_runtime(settings):
        found = [one.detail for one in await check_database(settings) if one.name == "owners"]
    form = "write a channel and a sender, such as telegram:5488, or a person, such as person:ann"
    assert found == [
        "System1/memo: 'smms:5488' is nobody: there is no channel 'smms'; did you mean sms?",
        f"System1/memo: '5488' is nobody: {form}",
        f"System1/memo: 'telegram:' is nobody: {form}",
        "System1/memo: 'person:ann' is nobody: there is no person 'ann'; known here: none",
    ]


def test_doctor_reads_team_files_as_the_start_does(tmp_path: Path) -> None:
    write_teams(tmp_path, root(), home(team={"name": "home", "parent": "rot"}))
    settings = Settings(teams_dir=tmp_path, data_dir=tmp_path)
    found = [one for one in check_machine(settings) if one.name == "team files"]
    assert {one.status for one in found} == {"error"}
    assert "home.json" in found[0].detail
    gone = Settings(teams_dir=tmp_path / "nowhere", data_dir=tmp_path)
    assert "is not a directory" in {one.name: one.detail for one in check_machine(gone)}["team files"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"callbacks": [{"endpoint": "shop", "url": "https://shop.example/", "secret_env": "NO_SUCH_SECRET"}]},
            "callback of the api endpoint 'shop': the environment variable NO_SUCH_SECRET holds no secret",
        ),
        (
            {
                "models": [{"name": "good", "kind": "anthropic", "model": "m", "api_key_env": "NO_SUCH_KEY"}],
                "classify": {"models": ["good"]},
            },
            "models: good: the environment variable NO_SUCH_KEY holds no secret",
        ),
        ({"teams_dir": "nowhere"}, "teams_dir: nowhere is not a directory"),
    ],
)
async def test_a_refused_start_writes_nothing(tmp_path: Path, given: dict[str, Any], told: str) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path / "data", **given})
    with pytest.raises(ConfigurationError, match=told):
        await _open_for_work(settings)
    assert not (tmp_path / "data").exists()


async def _open_for_work(settings: Settings) -> None:
    async with open_runtime(settings, for_worker=True):
        raise AssertionError("the start was not refused")


async def _version(url: str) -> int:
    database = await Database.connect(url, size=1)
    try:
        return await rule_set_version(database)
    finally:
        await database.close()


async def test_rules_of_a_file_unlike_those_in_force_are_told_with_the_remedy(
    database: Database, tmp_path: Path
) -> None:
    write_teams(tmp_path, root())
    await seed_teams(database, read_seed(tmp_path))
    write_teams(tmp_path, root(routing_rules=[]))
    with capture_logs() as logs:
        await seed_teams(database, read_seed(tmp_path))
    assert [(line["team"], line["file"]) for line in logs] == [("root", str(tmp_path / "root.json"))]
    assert "switchboard rules update" in logs[0]["remedy"]
