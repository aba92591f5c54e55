"""How the installation is, in one sentence, and what waits for people.

HTTP, the page and the command line call `StatusService`. Cheap enough to be asked again and again: `switchboard doctor`
looks closer. In: the runtime; out: a `Status`. Next: `store/work/status.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from switchboard.app.access import OPERATOR, Action
from switchboard.app.runtime import Runtime
from switchboard.core.text.words import or_list
from switchboard.store import books
from switchboard.store.books import KeptBooks
from switchboard.store.connectors import heartbeats
from switchboard.store.work import processes
from switchboard.store.work import status as store
from switchboard.store.work.status import NeedKind, WaitingNeed

__all__ = ["NEEDS", "STATUS", "NeedKind", "Status", "StatusService", "WaitingNeed"]

STATUS: Final = Action("status", OPERATOR)
_ACCOUNTS: Final = 200
_NAMED: Final = 3
NEEDS: Final[frozenset[NeedKind]] = frozenset(get_args(NeedKind))
MOST_WAITING: Final = 99
"""More than that is told as `more than`."""

Health = Literal["good", "warning", "bad"]


@dataclass(frozen=True, slots=True)
class Status:
    """`sentence` says how it is; `hours` are messages of the last 24 hours, the present one last.

    `needs` has every kind, also those of which nothing waits; a `number` of 1,001 means more than 1,000.
    """

    health: Health
    sentence: str
    needs: Sequence[WaitingNeed]
    workers: int
    hours: Sequence[int]


class StatusService:
    """Looks at what others have noted."""

    def __init__(self, runtime: Runtime) -> None:
        self._database = runtime.database

    async def status(self) -> Status:
        """As of now."""
        workers = await processes.count_alive(self._database, "worker")
        kept = await books.kept_books(self._database)
        health, sentence = judge_health(workers, kept, await self._find_disconnected())
        needs = await store.list_needs(self._database)
        return Status(health, sentence, needs, workers, await store.count_by_hour(self._database))

    async def count_waiting(self, kinds: Collection[NeedKind]) -> int:
        """How much of these kinds waits for people; 100 means more than 99."""
        if not kinds:
            return 0
        needs = await store.list_needs(self._database, MOST_WAITING)
        return min(sum(one.number for one in needs if one.kind in kinds), MOST_WAITING + 1)

    async def _find_disconnected(self) -> list[str]:
        """The accounts that nobody serves, or whose connector has failed."""
        connectors = await heartbeats.list_connectors(self._database, limit=_ACCOUNTS)
        good = {
            (one.channel, one.endpoint)
            for one in connectors
            if one.liveness == "online" and one.state in {"starting", "healthy", "degraded"} and one.serving
        }
        known = dict.fromkeys((one.channel, one.endpoint) for one in connectors if one.state != "stopped")
        return ["/".join(account) for account in known if account not in good]


def judge_health(workers: int, kept: KeptBooks, disconnected: Sequence[str]) -> tuple[Health, str]:
    """The worst of what there is to say, as one sentence."""
    if not workers:
        return "bad", "No worker is running: messages are accepted, but nobody answers them."
    if not kept.books.balanced:
        return "bad", "The books do not balance: some message is unaccounted for. Doctor says which."
    if disconnected:
        named = or_list(disconnected[:_NAMED]).replace(" or ", " and ")
        more = f", and {len(disconnected) - _NAMED} more," if len(disconnected) > _NAMED else ""
        return "warning", f"Not connected: {named}{more}. Messages there arrive once it is again."
    if kept.stale and kept.at is not None:
        return "warning", "No worker has balanced the books for some minutes: they are busy, or hang."
    running = "One worker is" if workers == 1 else f"{workers} workers are"
    counted = "" if kept.at is None else ", and every message is accounted for"
    return "good", f"All is well. {running} running{counted}."
