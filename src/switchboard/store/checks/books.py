"""Checks of the books: everything accepted became something, and nothing is missing.

Called by `app/ops/checks.py`. Next: `store/books.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from switchboard.domain.ledger import Balance
from switchboard.ports.checks import MOST, CheckResult, count_of, error, ok, warning
from switchboard.store.books import Books, DayBooks, audit_books, check_books, kept_books
from switchboard.store.database import Database
from switchboard.store.work import lanes

Told = Callable[[str], None]
"""Hears a line about each day whose books were checked."""
_PAUSED: Final = 200
"""Paused lanes whose problems in the books are left to the check of what waits."""


async def check_recent_books(database: Database) -> list[CheckResult]:
    """The last 24 hours, everything open, and one past day in rotation."""
    checkup = await check_books(database)
    found = await _books_findings(database, checkup.recent, "in 24 hours")
    if checkup.past is not None:
        found += await _books_findings(database, checkup.past.books, f"on {checkup.past.day}")
    remedy = "switchboard doctor --full, to see what contradicts itself"
    return found + [error(f"books of {day}", "they do not balance", remedy) for day in checkup.unbalanced]


async def check_all_books(database: Database, told: Told) -> list[CheckResult]:
    books = await audit_books(database, told=lambda checked: told(_day_line(checked)))
    return await _books_findings(database, books, "in all")


def _day_line(checked: DayBooks) -> str:
    books = checked.books
    wrong = [*(["they do not balance"] if not books.balanced else []), *books.problems]
    return f"books of {checked.day}: {count_of(books.messages.accepted, 'message')}, {wrong[0] if wrong else 'good'}"


async def check_balancing(database: Database) -> list[CheckResult]:
    kept = await kept_books(database)
    if not kept.stale:
        return []
    since = "never" if kept.at is None else f"last at {kept.at:%Y-%m-%d %H:%M:%S %Z}"
    return [warning("balance", f"no worker balances the books: {since}", "see whether a worker is running")]


async def _books_findings(database: Database, books: Books, when: str) -> list[CheckResult]:
    # `check_waiting` reports paused lanes: they wait for a person, and nothing is wrong with the books.
    paused = await lanes.paused_lanes(database, _PAUSED)
    problems = [p for p in books.problems if not ("paused" in p and any(key in p for key in paused))]
    found = [_balance_finding("messages", books.messages, when), _balance_finding("targets", books.targets, when)]
    remedy = "keep a backup (switchboard db backup), then report this with the output of `switchboard explain ID`"
    return found + [error("books", problem, remedy) for problem in problems[:MOST]]


def _balance_finding(what: str, balance: Balance, when: str) -> CheckResult:
    b = balance
    names: tuple[str, ...] = ("in_flight", "answered", "declined", "dead", "cancelled", "held")
    names += ("history",) if b.history else ()
    became = " + ".join(f"{getattr(b, name)} {name.replace('_', ' ')}" for name in names)
    if b.difference == 0:
        return ok(f"books: {what}", f"{b.accepted} accepted = {became}, {when}")
    remedy = "restore an earlier backup, or report this: nothing must ever be missing"
    return error(f"books: {what}", f"{b.accepted} accepted {when}, but {became}: {b.difference:+d}", remedy)
