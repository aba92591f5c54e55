"""Checks of work: processes, maintenance, and what waits for a person.

Called by `app/ops/checks.py`. Next: `store/work/processes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from switchboard.ports.checks import MOST, CheckResult, error, ok, warning
from switchboard.store.database import Database
from switchboard.store.messages import dead_letters, outbox
from switchboard.store.people import erased_files
from switchboard.store.work import approvals, lanes, maintenance, processes
from switchboard.store.work.processes import RunningProcess

_SOON: Final = timedelta(hours=1)
_UNSENT: Final[Mapping[str, str]] = {
    "uncertain": "may not have been sent",
    "failed": "could not be sent",
    "dead": "could not be sent, after many attempts",
}


async def check_processes(database: Database) -> list[CheckResult]:
    registered = await processes.list_processes(database)
    workers, servers = [[one for one in registered if one.role == role] for role in ("worker", "server")]
    lost = "none is alive: messages are accepted, but not answered"
    return [
        _live_finding(workers, error("workers", lost, "switchboard up, or switchboard work")),
        _live_finding(servers, warning("servers", "none is registered", "switchboard up, or switchboard serve")),
    ]


def _live_finding(registered: Sequence[RunningProcess], none: CheckResult) -> CheckResult:
    """The number of live processes, and their releases: during an upgrade there are several."""
    alive = [process for process in registered if process.alive]
    releases = ", ".join(sorted({process.version for process in alive}))
    return ok(none.name, f"{len(alive)} alive ({releases})") if alive else none


async def check_maintenance(database: Database) -> list[CheckResult]:
    """Workers' tasks whose last run failed; each runs again when it is due."""
    remedy = "look in the log of the workers for `maintenance failed`"
    return [
        warning("maintenance", f"{one.name} failed at {one.at:%Y-%m-%d %H:%M} UTC: {one.error}", remedy)
        for one in await maintenance.failed(database)
    ]


async def check_erased_files(database: Database) -> list[CheckResult]:
    """Disks of workers that still have files of persons who were erased long ago."""
    return [
        warning(
            "erased files",
            f"files of erased persons are still on a disk of {one.host}, last seen {one.seen_at:%Y-%m-%d %H:%M} UTC",
            one.problem or "start its worker, which removes them at once",
        )
        for one in await erased_files.list_pending(database, _SOON)
    ]


async def check_waiting(database: Database) -> list[CheckResult]:
    """Work that waits for a person: not a fault of the installation, but it should be visible."""
    found = [
        warning("paused lane", lane, f"switchboard lanes resume '{lane}'")
        for lane in await lanes.paused_lanes(database, MOST)
    ]
    for state, count in (await outbox.count_unsent(database)).items():
        remedy = f"switchboard outbox list --state {state}, then resend what should be sent again"
        found.append(warning(f"{state} replies", f"{replies_of(count)} {_UNSENT[state]}", remedy))
    if asked := (await approvals.count(database)).approvals:
        found.append(warning("approvals", f"{asked} to be decided", "switchboard approvals list"))
    if pending := await dead_letters.count_pending(database):
        found.append(warning("dead letters", f"{pending} to be handled", "switchboard dlq list"))
    return found


def replies_of(number: int) -> str:
    return f"{number} reply" if number == 1 else f"{number} replies"
