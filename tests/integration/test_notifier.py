"""Notifications between processes: each is heard once, also by the process that has sent it."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

from switchboard.lanes.notifier import CHANNEL, Notifier
from switchboard.store.database import Database
from tests.hands import at_work
from tests.lab import lab
from tests.waiting import SOON, eventually


async def test_a_notification_is_heard_once_in_each_process(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        heard = Counter[str]()
        notifiers = dict[str, Notifier]()
        listening = list[asyncio.Task[None]]()
        for name in ("one", "other"):
            database = await Database.connect(database_url)
            stack.push_async_callback(database.close)
            notifier = notifiers[name] = Notifier(database)
            listening.append(asyncio.create_task(notifier.listen()))
            for topic in ("first", "last"):

                def count(key: str = f"{name} {topic}") -> None:
                    heard[key] += 1

                stack.enter_context(notifier.subscribe(topic, count))
        async with asyncio.timeout(SOON):
            await eventually(lambda: _listen(database, 2))
        notifiers["one"].notify("first")
        await eventually(lambda: _is(heard["other first"], 1))
        notifiers["other"].notify("last")
        await eventually(lambda: _is(heard["one last"], 1))  # what came before it, the first has heard
        assert heard == {"one first": 1, "other first": 1, "other last": 1, "one last": 1}
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)


async def _listen(database: Database, processes: int) -> bool:
    sql = "select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen%'"
    return int(await database.value(sql)) == processes


async def test_a_process_listens_once_whether_it_has_a_worker_or_not(database_url: str) -> None:
    async with lab(database_url) as parts:
        listening = asyncio.create_task(parts.notifier.listen())
        await eventually(lambda: _listen(parts.database, 1))
        async with at_work(parts.worker()):
            await eventually(lambda: _has_one_connection_beside_the_pool(parts.database))
        await eventually(lambda: _listen(parts.database, 1))
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def _has_one_connection_beside_the_pool(database: Database) -> bool:
    sql = """select count(*) from pg_stat_activity
             where datname = current_database() and application_name = 'switchboard worker'"""
    return int(await database.value(sql)) == 1


async def _is(one: int, other: int) -> bool:
    return one == other


async def test_a_notification_of_the_release_before_is_heard(database_url: str) -> None:
    """Its payload has topics alone."""
    database = await Database.connect(database_url)
    try:
        notifier, heard = Notifier(database), Counter[str]()
        with (
            notifier.subscribe("work", lambda: heard.update(["work"])),
            notifier.subscribe("rules", lambda: heard.update(["rules"])),
        ):
            notifier.handle_notification("rules\nwork")
            notifier.handle_notification("work")
            notifier.handle_notification("@another\nrules")
        assert heard == {"work": 2, "rules": 2}
    finally:
        await database.close()


async def test_many_topics_are_sent_in_parts_that_postgresql_takes(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        sending, hearing = [await Database.connect(database_url) for _ in range(2)]
        for database in (sending, hearing):
            stack.push_async_callback(database.close)
        notifier, heard = Notifier(hearing), Counter[str]()
        connection = await hearing.dedicated_connection()
        stack.push_async_callback(connection.close)
        await hearing.listen(connection, CHANNEL, notifier.handle_notification)
        topics = [f"settled:{'x' * 90}{n}" for n in range(300)]
        for topic in topics:
            stack.enter_context(notifier.subscribe(topic, lambda topic=topic: heard.update([topic])))  # type: ignore[misc]
        teller = Notifier(sending)
        for topic in topics:
            teller.notify(topic)
        await eventually(lambda: _is(len(heard), len(topics)))
        assert set(heard.values()) == {1}
