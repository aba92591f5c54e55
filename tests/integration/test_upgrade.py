"""An upgrade and the way back: this release is the old one, and the new one has a migration more."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.store.migrate import known_schema
from tests.next_release import NEXT_RELEASE
from tests.places import place
from tests.processes import butler, running, switchboard, told, write_teams
from tests.processes import environment as environment_of

__all__ = ["place"]
TEAM: Final = {
    "team": {"name": "root"},
    "purpose": "Everything",
    "systems": [butler("memo"), {"type": "intelligence"}],
    "routing_rules": [{"name": "all", "channel": "*", "targets": [{"system_id": "System1/memo"}]}],
}
OLD: Final = known_schema()
NEW: Final = OLD + 1
BACKUP: Final = f"{OLD:04d}-{NEW:04d}.dump"


@dataclass(frozen=True)
class House:
    """An installation at the schema of the old release, and the program of the new one."""

    environment: Mapping[str, str]
    backups: Path

    def new_release(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return switchboard({**self.environment, **more}, *NEXT_RELEASE, *arguments, "--json")

    def done(self, *arguments: str) -> dict[str, Any]:
        ended = self.new_release(*arguments)
        assert ended.returncode == 0, ended.stderr
        said: dict[str, Any] = json.loads(ended.stdout)
        return said

    def refused(self, *arguments: str, **more: str) -> str:
        ended = self.new_release(*arguments, **more)
        assert ended.returncode not in (0, -signal.SIGKILL), ended.stdout
        return str(json.loads(ended.stdout)["error"]["message"])

    def send(self, text: str, *release: str) -> str:
        """A message, answered while this release runs."""
        with running(self.environment, *release, "up") as server:
            said = told(server.environment, "send", text)
            assert server.stop() == 0
        return str(said["request_id"])

    def files(self) -> set[str]:
        return {one.name for one in self.backups.glob("*")}

    def schema_is_old(self) -> bool:
        """The old release refuses a newer one."""
        return switchboard(self.environment, "db", "migrate").returncode == 0


@pytest.fixture
def house(database_url: str, tmp_path: Path) -> House:
    teams = write_teams(tmp_path / "teams", TEAM)
    ours = {"DATABASE_URL": database_url, "TEAMS_DIR": str(teams), "LOG_LEVEL": "error"}
    found = environment_of(tmp_path / "data", **ours)
    return House(found, tmp_path / "data" / "backups")


def test_a_backup_precedes_a_migration_and_three_are_kept(house: House) -> None:
    house.backups.mkdir(parents=True)
    for name in ("0001-0002.dump", "0002-0003.dump", "0003-0004.dump", "mine.dump"):
        (house.backups / name).touch()
    assert house.done("db", "migrate") == {"applied": [f"{NEW:04d}_following"]}
    assert house.files() == {"0002-0003.dump", "0003-0004.dump", BACKUP, "mine.dump"}
    made = house.backups / BACKUP
    assert made.stat().st_mode & 0o777 == 0o600
    before = made.stat()
    assert house.done("db", "migrate") == {"applied": []}
    assert made.stat() == before


def test_a_new_database_needs_no_backup(house: House, empty_database_url: str) -> None:
    ended = house.new_release("db", "migrate", SWITCHBOARD_DATABASE_URL=empty_database_url)
    assert (ended.returncode, house.files()) == (0, set())


@pytest.mark.parametrize("command", [("db", "migrate"), ("up",), ("serve",), ("work",)])
def test_without_a_backup_nothing_starts_and_nothing_changes(
    house: House, tmp_path: Path, command: tuple[str, ...]
) -> None:
    old = tmp_path / "old"
    old.mkdir()
    for name in ("pg_dump", "pg_restore", "psql"):
        (old / name).write_text("#!/bin/sh\necho 'pg_dump (PostgreSQL) 9.6.1'\n")
        (old / name).chmod(0o755)
    more = {"SWITCHBOARD_POSTGRES_BINARIES": str(old), "PATH": f"{old}:/usr/bin:/bin"}
    said = house.refused(*command, **more)
    assert "nothing was changed" in said
    assert "newer are needed; found: 9 in" in said
    assert "--no-backup" in said
    assert house.schema_is_old()
    if command == ("db", "migrate"):
        house.backups.rmdir()
        house.backups.touch()
        assert "--no-backup" in house.refused(*command)
        assert house.schema_is_old()
        assert house.new_release(*command, "--no-backup", **more).returncode == 0
        assert not house.schema_is_old()


def test_a_backup_that_is_killed_changes_nothing(house: House) -> None:
    for point in ("migration_dumped", "migration_backed_up"):
        ended = house.new_release("db", "migrate", SWITCHBOARD_CRASH_AT=point)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert house.schema_is_old()
    house.done("db", "migrate")
    assert house.files() == {BACKUP}


def test_the_old_release_goes_on_after_a_rollback_that_was_killed_anywhere(house: House) -> None:
    kept = house.send("before")
    lost = house.send("after", *NEXT_RELEASE)
    assert not house.schema_is_old()
    for lose in ("0", "2"):
        said = house.refused("db", "rollback", "--lose", lose)
        assert lost in said
        assert kept not in said
        assert "replies sent: " in said
        assert "--lose 1 " in said
    with running(house.environment, *NEXT_RELEASE, "up"):
        assert "processes are connected" in house.refused("db", "rollback", "--lose", "1")
    for point in ("rollback_begun", "rollback_unpacked", "rollback_kept"):
        ended = house.new_release("db", "rollback", "--lose", "1", SWITCHBOARD_CRASH_AT=point)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert not house.schema_is_old()
    ended = house.new_release("db", "rollback", "--lose", "1", SWITCHBOARD_CRASH_AT="rollback_done")
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert house.schema_is_old()
    assert house.done("db", "rollback", "--lose", "1") == {"schema": OLD, "newer": None, "lost": []}
    newer = max(house.files() - {BACKUP})
    assert newer.startswith(f"{NEW:04d}-{OLD:04d}-")
    house.send("again")
    restored = house.new_release("db", "restore", str(house.backups / newer), "--force")
    assert restored.returncode == 0, restored.stderr
    with running(house.environment, *NEXT_RELEASE, "up") as server:
        assert told(server.environment, "messages", "show", lost)["request_id"] == lost


def test_an_old_backup_loses_nothing_unnoticed(house: House) -> None:
    """One that was left by an upgrade that failed, before one without a backup."""
    ended = house.new_release("db", "migrate", SWITCHBOARD_CRASH_AT="migration_backed_up")
    assert ended.returncode == -signal.SIGKILL
    since = house.send("accepted by the old release")
    house.done("db", "migrate", "--no-backup")
    assert since in house.refused("db", "rollback")
    done = house.done("db", "rollback", "--lose", "1")
    assert [one["request_id"] for one in done["lost"]] == [since]
    house.done("db", "migrate")
    assert house.done("db", "rollback")["lost"] == []
    house.done("db", "migrate", "--no-backup")
    (house.backups / BACKUP).unlink()
    assert "no backup made before" in house.refused("db", "rollback")


def test_an_upgrade_is_tried_before_it_is_made(house: House) -> None:
    found = house.done("upgrade", "--check")
    assert (found["schema"], found["newest"], found["migrations"]) == (OLD, NEW, [f"{NEW:04d}_following"])
    assert (found["good"], found["backup_obstacle"], found["trial"]["kind"]) == (True, None, "undone")
    with running(house.environment, "up"):
        assert house.done("upgrade", "--check")["trial"]["kind"] == "none"
    assert house.schema_is_old()
    assert house.files() == set()
    failing = house.new_release("upgrade", "--check", NEXT_RELEASE_SQL="alter table nowhere add column x text")
    assert (failing.returncode, json.loads(failing.stdout)["good"]) == (1, False)
    house.done("upgrade")
    assert switchboard(house.environment, "upgrade", "--check").returncode == 1, "as for a start of the old release"
    assert house.done("upgrade", "--check") | {"data_bytes": 0, "free_bytes": 0} == {
        "good": True,
        "schema": NEW,
        "newest": NEW,
        "migrations": [],
        "replaces_functions": False,
        "data_bytes": 0,
        "free_bytes": 0,
        "backup_obstacle": None,
        "trial": None,
        "running": [],
    }


def test_a_running_house_is_tried_in_a_copy(house: House, place: Path) -> None:
    env = {**house.environment, "SWITCHBOARD_DATA_DIR": str(place / "data")}
    del env["SWITCHBOARD_DATABASE_URL"]
    own = House(env, place / "data/backups")
    with running(env, "up") as server:
        kept = told(server.environment, "send", "before")["request_id"]
        killed = own.new_release("upgrade", "--check", SWITCHBOARD_CRASH_AT="trial_begun")
        assert (killed.returncode, (place / "data/.upgrade/postgres").exists()) == (-signal.SIGKILL, True)
        found = own.done("upgrade", "--check")
        assert (found["good"], found["trial"]["kind"], found["trial"]["problem"]) == (True, "copy", "")
        assert found["running"]
        assert not (place / "data/.upgrade").exists()
        assert told(server.environment, "messages", "show", kept)["request_id"] == kept
    assert own.schema_is_old()


def test_what_was_withdrawn_since_the_backup_stays_withdrawn(house: House) -> None:
    with running(house.environment, "up") as server:
        told(server.environment, "tokens", "create", "lent", "--role", "metrics")
        told(server.environment, "pairing", "allow", "telegram/bot:123456", "41")
    with running(house.environment, *NEXT_RELEASE, "up") as server:
        told(server.environment, "tokens", "revoke", "lent")
        [contact] = told(server.environment, "pairing", "list")["contacts"]
        told(server.environment, "pairing", "revoke", contact["contact_id"])
    assert house.done("db", "rollback")["schema"] == OLD
    with running(house.environment, "up") as server:
        tokens = told(server.environment, "tokens", "list")["tokens"]
        assert [one["name"] for one in tokens if one["revoked_at"]] == ["lent"]
        assert [one["state"] for one in told(server.environment, "pairing", "list")["contacts"]] != ["approved"]
