"""The layout of what grows: keys that tell nothing, partitions by month, one event per endpoint whatever its thread."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args
from uuid import UUID

import asyncpg
import pytest

from switchboard.app.ops.doctor import check_database
from switchboard.app.ops.maintenance import maintenance_tasks
from switchboard.app.settings import DeadLetterSettings, Settings
from switchboard.domain.errors import SwitchboardError, Unavailable
from switchboard.journey.accept import Submission
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.keys import Keys, Kind
from switchboard.store.messages import inbox
from switchboard.store.messages.inbox import Acceptance
from switchboard.store.migrate import migrate
from switchboard.store.partitions import make_partitions, missing_partitions
from tests.hands import assert_balanced, at_work
from tests.lab import Lab, lab, submission
from tests.waiting import eventually

OCTOBER, DECEMBER = datetime(2031, 10, 31, 23, 59, 59, tzinfo=UTC), datetime(2031, 12, 1, tzinfo=UTC)
PARTITIONED = {"audit", "classification", "decision", "message_inbox", "message_raw", "route_call", "step"}


async def hashed(database: Database, kind: str, content: str) -> UUID:
    """By Python's own HMAC, with the secret that the padded keys were made of."""
    inner = await database.value("select inner_key from installation")
    secret = bytes(byte ^ 0x36 for byte in inner)
    assert len(secret.rstrip(b"\0")) > 24
    return UUID(bytes=hmac.digest(secret, f"{kind}\n{content}".encode(), "sha256")[:16])


async def test_keys_are_hashes_that_need_the_secret_of_the_installation(database_url: str) -> None:
    async with lab(database_url) as parts:
        await parts.accept.accept(submission("x", channel="telegram", sender="bob", key="k"))
        [row] = await parts.database.rows("select c.*, d.key from dedupe d cross join conversation c")
        assert row["conversation"] == await hashed(parts.database, "conversation", "telegram/bot%3Ahouse/bob")
        assert row["conversation"] == await parts.database.value("select conversation_key($1)", row["name"])
        assert row["key"] == await hashed(parts.database, "event", "8,9:telegrambot:houseidem:k")
        assert row["name"] == "telegram/bot%3Ahouse/bob"
        [lane] = await parts.database.rows(
            "select key, lane_name(key) as name, lane_key(kind, system_id, conversation) from lane"
        )
        assert (lane["key"], lane["name"]) == (lane["lane_key"], "turn:System1/echo:telegram/bot%3Ahouse/bob")


async def test_two_installations_give_one_conversation_two_keys(database_url: str) -> None:
    database = await Database.connect(database_url)
    try:
        keys = []
        for _ in range(2):
            await database.run("drop schema if exists switchboard cascade")
            await migrate(database)
            keys.append(await database.value("select conversation_key('telegram/bot/1')"))
        assert len(set(keys)) == 2
    finally:
        await database.close()


async def test_no_two_events_have_one_key_however_their_names_are_cut(database_url: str) -> None:
    async with lab(database_url) as parts:
        first = await parts.accept.accept(submission("x", endpoint="bot", key="a\x1fidem:b"))
        second = await parts.accept.accept(submission("x", endpoint="bot\x1fidem:a", key="b"))
        assert (first.duplicate, second.duplicate) == (False, False)


async def test_another_database_stores_nothing_by_the_keys_of_the_one_before(database_url: str) -> None:
    """It was restored, or created again, while a server and a worker ran: the secret is another one."""
    one = submission("x", key="k")
    async with lab(database_url) as parts, at_work(parts.worker()):
        await parts.accept.accept(one)
        await eventually(lambda: is_dropped(parts))
        async with lab(database_url) as elsewhere:
            first = await elsewhere.accept.accept(one)
        outcomes = [await accepted_or_not(parts, one) for _ in range(2)]
        assert isinstance(outcomes[1], Acceptance)
        # "Come again", unless the worker has noticed before us.
        assert isinstance(outcomes[0], Unavailable) or outcomes[0] == outcomes[1]
        assert (outcomes[1].duplicate, outcomes[1].request_id) == (True, first.request_id)
        assert await parts.count("select count(*) from conversation") == 1
        await eventually(lambda: parts.replies_to(first.request_id))
        await assert_balanced(parts)


async def is_dropped(parts: Lab) -> bool:
    """False where that met what the worker does in a deadlock."""
    with suppress(Unavailable):
        await parts.database.run("drop schema switchboard cascade")
        return True
    return False


async def accepted_or_not(parts: Lab, one: Submission) -> Acceptance | SwitchboardError:
    [outcome] = await parts.accept.accept_all([one])
    return outcome


async def test_an_event_is_one_message_of_its_endpoint_whatever_its_thread(database_url: str) -> None:
    async with lab(database_url) as parts:
        first = await parts.accept.accept(submission("x", event="e", thread="a"))
        again = await parts.accept.accept(submission("x", event="e", thread="b"))
        assert (again.duplicate, again.request_id) == (True, first.request_id)
        elsewhere = await parts.accept.accept(submission("x", event="e", thread="a", endpoint="bot:other"))
        assert not elsewhere.duplicate


async def test_a_duplicate_writes_so_its_answer_waits_for_a_synchronous_standby(database_url: str) -> None:
    async with lab(database_url) as parts:
        await parts.accept.accept(submission("x", key="k"))
        assert not await locked(parts)
        await parts.accept.accept(submission("x", key="k"))
        assert await locked(parts), "the row of the key was locked, which is a record in the log"


async def locked(parts: Lab) -> bool:
    return bool(await parts.database.value("select xmax::text <> '0' from dedupe"))


async def test_what_was_submitted_is_compared_by_a_keyed_hash_too(database_url: str) -> None:
    async with lab(database_url) as parts:
        for n, text in enumerate(("one", "one", "two")):
            await parts.accept.accept(submission(text, key=f"k{n}"))
        bodies = [row["body"] for row in await parts.database.rows("select body from dedupe order by request_id")]
        assert bodies[0] == bodies[1] != bodies[2]


def test_equal_texts_of_two_kinds_have_two_keys() -> None:
    keys = Keys(bytes(64), bytes(64))
    assert len({keys.of(kind, b"x") for kind in get_args(Kind)}) == len(get_args(Kind))


async def test_bytes_are_kept_apart_compressed_and_given_back_as_they_came(database_url: str) -> None:
    async with lab(database_url) as parts:
        given = submission("all work and no play makes jack a dull boy " * 100)
        accepted = await parts.accept.accept(given)
        assert await inbox.get_raw(parts.database, accepted.request_id) == (given.raw, given.media_type)
        assert await parts.count("select length(raw) from message_raw") < len(given.raw) / 5


async def test_what_grows_has_a_partition_for_every_month_until_three_ahead(database_url: str) -> None:
    async with lab(database_url) as parts:
        database = parts.database
        rows = await database.rows(
            "select inhparent::regclass::text as parent, count(*) as months from pg_inherits"
            " join pg_class on pg_class.oid = inhrelid where relkind = 'r' group by 1"
        )
        assert {row["parent"] for row in rows} == PARTITIONED
        assert all(row["months"] >= 4 for row in rows)
        assert not await parts.count("select count(*) from pg_class where pg_get_expr(relpartbound, oid) = 'DEFAULT'")
        assert await database.value("select make_partitions($1, $2)", OCTOBER, DECEMBER) == 3 * len(PARTITIONED)
        assert await database.value("select make_partitions($1, $2)", OCTOBER, DECEMBER) == 0
        for at, month in ((OCTOBER, "2031_10"), (DECEMBER, "2031_12")):
            one = UUID(int=(int(at.timestamp() * 1000) << 80) | (new_uuid7().int & ((1 << 80) - 1)))
            await database.run("insert into message_raw values ($1, '')", one)
            where = "select tableoid::regclass::text from message_raw where request_id = $1"
            assert await database.value(where, one) == f"message_raw_{month}"
        with pytest.raises(asyncpg.CheckViolationError, match="no partition"):
            await database.run("insert into message_raw values ($1, '')", UUID(int=1))


def named(*months: str) -> list[str]:
    return sorted(f"{table}_{month}" for table in PARTITIONED for month in months)


async def drop(database: Database, names: Iterable[str]) -> None:
    for name in names:
        await database.run(f"drop table {name}")


async def test_a_server_that_never_restarts_gets_its_partitions_from_maintenance(database_url: str) -> None:
    async with lab(database_url) as parts:
        database = parts.database
        assert await missing_partitions(database, OCTOBER) == named("2031_10", "2031_11")
        assert await make_partitions(database, OCTOBER) == 4 * len(PARTITIONED)
        assert await missing_partitions(database, datetime(2031, 12, 31, tzinfo=UTC)) == []
        assert await missing_partitions(database, datetime(2032, 1, 1, tzinfo=UTC)) == named("2032_02")
        assert await make_partitions(database, OCTOBER) == 0, "nothing is made twice"
        assert await make_partitions(database, DECEMBER) == 2 * len(PARTITIONED)


async def test_the_task_that_every_worker_has_makes_what_is_missing_now(database_url: str, tmp_path: Path) -> None:
    async with lab(database_url) as parts:
        database = parts.database
        ahead = await database.value("select to_char(now() at time zone 'UTC' + interval '1 month', 'YYYY_MM')")
        lost = named(ahead)
        await drop(database, lost)
        settings = Settings.model_validate({"database_url": database_url, "data_dir": tmp_path})
        [found] = [one for one in await check_database(settings) if one.name == "partitions"]
        assert (found.status, lost[0] in found.detail) == ("error", True)
        [task] = [
            one
            for one in maintenance_tasks(database, parts.notifier, DeadLetterSettings(), ())
            if "partitions" in one.name
        ]
        assert await task.run() == len(lost)
        [found] = [one for one in await check_database(settings) if one.name == "partitions"]
        assert found.status == "ok"


async def test_without_the_partition_of_its_month_a_message_is_to_come_again(database_url: str) -> None:
    async with lab(database_url) as parts:
        month = await parts.database.value("select to_char(now() at time zone 'UTC', 'YYYY_MM')")
        await drop(parts.database, named(month))
        assert isinstance(await accepted_or_not(parts, submission("x")), Unavailable)
        assert await make_partitions(parts.database) == len(PARTITIONED)
        assert isinstance(await accepted_or_not(parts, submission("x")), Acceptance)


async def test_partitions_that_several_make_at_once_are_made_once(database_url: str) -> None:
    async with lab(database_url) as parts:
        made = await asyncio.gather(*(make_partitions(parts.database, OCTOBER, lock_timeout="10s") for _ in range(4)))
        assert sorted(one or 0 for one in made) == [0, 0, 0, 4 * len(PARTITIONED)]


async def test_partitions_are_not_waited_for_and_made_at_the_next_run(database_url: str) -> None:
    """Behind a statement that waits for a table, everybody who uses this table waits."""
    async with lab(database_url) as parts:
        database = parts.database
        async with database.connection() as other, other.transaction():
            await other.execute("lock table message_raw in share update exclusive mode")
            assert await make_partitions(database, OCTOBER, lock_timeout="50ms") is None
            assert len(await missing_partitions(database, OCTOBER)) == 2 * len(PARTITIONED), "all or nothing"
        assert await make_partitions(database, OCTOBER) == 4 * len(PARTITIONED)
