"""Checks of PostgreSQL itself: what a crash may lose, clocks, the schema, partitions.

Called by `app/ops/doctor.py`, which stops where these fail. Next: `checkup.py`.
"""

from __future__ import annotations

from typing import Final

from switchboard.ports.checks import MOST, CheckResult, error, ok
from switchboard.store import partitions
from switchboard.store.checkup import schema_facts, server_facts
from switchboard.store.clock import DatabaseClock
from switchboard.store.database import Database
from switchboard.store.migrate import migrations

MAX_SKEW: Final = 2.0
"""Seconds that this machine's clock and the database's may differ."""


async def check_server(database: Database) -> list[CheckResult]:
    facts = await server_facts(database)
    found = [ok("database", f"PostgreSQL {facts.version}")]
    off = [name for name in ("fsync", "synchronous_commit", "full_page_writes") if getattr(facts, name) == "off"]
    if off:
        remedy = "; ".join(f"alter system set {name} = on" for name in off) + "; then reload PostgreSQL"
        found.append(error("durability", f"{', '.join(off)} off: a crash may lose what was acknowledged", remedy))
    else:
        found.append(ok("durability", "a crash loses nothing: fsync, synchronous_commit and full_page_writes are on"))
    skew = (await DatabaseClock().measure(database)).total_seconds()
    if abs(skew) > MAX_SKEW:
        found.append(error("clock", f"the database's clock differs by {skew:+.1f} s", "synchronise both with NTP"))
    else:
        found.append(ok("clock", f"{abs(skew):.3f} s between the database and this machine"))
    return found


async def check_schema(database: Database) -> CheckResult:
    at, newest = (await schema_facts(database)).migration, migrations()[-1].number
    if at == newest:
        return ok("schema", f"version {at} of the tables, as this release needs")
    if at > newest:
        return error(
            "schema", f"version {at} of the tables: this release knows only {newest}", "install the newer release"
        )
    return error("schema", f"version {at} of the tables: this release needs {newest}", "switchboard db migrate")


async def check_partitions(database: Database) -> list[CheckResult]:
    """Without the partition of its month, a message is refused: fewer than one month ahead is an alarm."""
    missing = await partitions.missing_partitions(database)
    if not missing:
        return [ok("partitions", "tables are there for messages of at least one more month")]
    some = ", ".join(missing[:MOST])
    return [
        error(
            "partitions",
            f"not made yet: {some}; messages of these months would be refused",
            "switchboard db migrate makes them; then look in the log of the worker why it did not",
        )
    ]
