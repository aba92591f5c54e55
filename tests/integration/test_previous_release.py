"""Servers of the previous release go on working on this schema: its statements are prepared as they were there."""

from __future__ import annotations

import pytest

from switchboard.store.database import Database
from switchboard.store.migrate import migrate
from tests.statements import differences, recording

RESUME = "create function resume_lane({}) returns {} language sql as 'select {}'"


async def test_every_statement_of_the_previous_release_means_what_it_meant(database_url: str) -> None:
    database = await Database.connect(database_url, size=1)
    try:
        await migrate(database)
        recorded = recording()
        assert len(recorded["statements"]) > 100
        assert await differences(database, recorded) == {}, "see CONTRIBUTING.md, Changing the schema"
    finally:
        await database.close()


@pytest.mark.parametrize(
    ("change", "broken", "why"),
    [
        (RESUME.format("_name text, _by text", "boolean", "true"), "lanes.resume", "resume_lane"),
        (RESUME.format("_name uuid", "boolean", "true"), "lanes.resume", "uuid"),
        (RESUME.format("_name text", "integer", "1"), "lanes.resume", "int4"),
        (None, "lanes.resume", "does not exist"),
    ],
)
async def test_a_signature_that_changes_is_found(database_url: str, change: str | None, broken: str, why: str) -> None:
    database = await Database.connect(database_url, size=1)
    try:
        await migrate(database)
        await database.run("drop function resume_lane")
        if change is not None:
            await database.run(change)
        found = await differences(database, recording())
        assert found.keys() == {broken}
        assert why in found[broken]
    finally:
        await database.close()


async def test_a_column_that_is_gone_or_of_another_type_is_found(database_url: str) -> None:
    database = await Database.connect(database_url, size=1)
    try:
        await migrate(database)
        await database.run("alter table schedule drop column last_error, alter column name type varchar")
        found = await differences(database, recording())
        assert {"schedule.done", "schedule.due"} <= found.keys()
        assert "last_error" in found["schedule.done"]
        assert "varchar" in found["schedule.due"]
    finally:
        await database.close()
