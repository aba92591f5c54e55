"""Finds what is wrong with an installation, and how to fix it.

Called by `switchboard doctor`, which asks the server itself. In: settings; out: findings, in the order in which to fix
them. Works on the database as it is, even without a server, and changes nothing except the record of which days of the
books were checked when. Next: `checks.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import asyncpg

from switchboard.app.database import existing_database
from switchboard.app.notices import send_test_notices
from switchboard.app.ops.checks import findings_of_machine, findings_of_server, installation_checks
from switchboard.app.settings import Settings
from switchboard.domain.errors import SwitchboardError
from switchboard.ports.checks import Check, CheckResult, error
from switchboard.store.checks.books import Told, check_all_books, check_recent_books
from switchboard.store.database import Database


def check_machine(settings: Settings) -> list[CheckResult]:
    """Checks without the database: Python, settings, models, data directory, token file."""
    return list(findings_of_machine(settings))


async def check_database(settings: Settings, told: Told | None = None, *, notify: bool = False) -> list[CheckResult]:
    """Checks of the database; the first finding is whether it is reachable.

    `notify`: also send a notice to each address of operators.

    With `told`, the books of every day are checked, and it is called after each day.
    """
    try:
        async with existing_database(settings) as database:
            found = [one async for one in _examine_database(database, settings, books_check(database, told))]
            return found + (await send_test_notices(database, settings.notify) if notify else [])
    except (SwitchboardError, OSError, asyncpg.PostgresError) as failure:
        return [error("database", str(failure), "start it, or correct database_url or data_dir")]


def books_check(database: Database, told: Told | None) -> Check:
    """The books of the last day and one past day, which is noted; with `told`, those of every day."""
    return partial(check_recent_books, database) if told is None else partial(check_all_books, database, told)


async def look_at_database(database: Database, settings: Settings) -> list[CheckResult]:
    """The same for a database that is open, without reading through the books: that writes nothing at all."""
    return [one async for one in _examine_database(database, settings)]


async def _examine_database(database: Database, settings: Settings, *books: Check) -> AsyncIterator[CheckResult]:
    found = await findings_of_server(database, settings)
    for finding in found:
        yield finding
    if found[-1].status != "ok":  # which is about the schema
        return
    for check in installation_checks(database, settings, *books):
        for finding in await check():
            yield finding
