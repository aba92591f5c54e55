"""The embedded database of one major version of PostgreSQL, moved to another as the manual says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from switchboard.embedded.binaries import find_programs
from tests.places import place
from tests.processes import environment, running, switchboard, told

__all__ = ["place"]
INSTALLED: Final[Sequence[Path]] = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


async def test_the_data_move_to_another_major_version(place: Path) -> None:
    ours = (await find_programs(None, None)).major
    older = [one for one in INSTALLED if (one / "initdb").exists() and 13 < int(one.parent.name) < ours]
    if not older:
        pytest.skip("no older PostgreSQL is in /usr/lib/postgresql (package postgresql)")
    new = environment(place / "data", LOG_LEVEL="error")
    old = {**new, "SWITCHBOARD_POSTGRES_BINARIES": str(older[-1])}
    with running(old, "up") as server:
        kept = told(server.environment, "send", "before the move", "--wait", "30")["request_id"]
    told(old, "db", "backup", place / "house.dump")
    refused = switchboard(new, "up", "--json")
    assert refused.returncode != 0
    assert "docs/upgrading.md" in refused.stdout
    with running(old, "up") as server:  # the refusal has changed nothing
        assert told(server.environment, "messages", "show", kept)["state"] == "answered"
    (place / "data/postgres").rename(place / "data/postgres.before")
    told(new, "db", "restore", place / "house.dump")
    with running(new, "up") as server:
        shown = told(server.environment, "messages", "show", kept)
        assert shown["state"] == "answered"
        assert told(server.environment, "doctor")["healthy"]
    told(new, "db", "backup", place / "newer.dump")
    backwards = {**old, "SWITCHBOARD_DATA_DIR": str(place / "backwards")}
    said = told(backwards, "db", "restore", place / "newer.dump", code=1)["error"]["message"]
    assert "written by a newer PostgreSQL" in said
    (place / "data/postgres").rename(place / "data/postgres.after")
    (place / "data/postgres.before").rename(place / "data/postgres")
    with running(old, "up") as server:  # the way back
        assert told(server.environment, "messages", "show", kept)["state"] == "answered"
