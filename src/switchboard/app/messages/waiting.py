"""Messages that wait for their next attempt, which a person lets be tried now, and those that a person stops.

HTTP and the page call it with the caller's `Principal`, who is authorised before. In: the id of a message; out: how
many lanes go on. Next: `store/sql/functions/try_now.sql`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from switchboard.app.access import OPERATOR, Action, Principal
from switchboard.app.messages.views import Views
from switchboard.app.runtime import Runtime
from switchboard.domain.errors import NotFound
from switchboard.journey.stopping import announce
from switchboard.lanes.notifier import WORK
from switchboard.store.messages import inbox
from switchboard.store.people import audit
from switchboard.store.work import lanes
from switchboard.store.work.stopping import stop_message

TRY_NOW: Final = Action("try_now", OPERATOR)


@dataclass(frozen=True, slots=True)
class Stopping:
    """How many turns of the message were told to end; 0: all had ended."""

    request_id: UUID
    stopped: int


@dataclass(frozen=True, slots=True)
class TriedNow:
    """How many lanes, each with a turn, a notice or a reply of the message, do not wait any longer; 0: none waited."""

    request_id: UUID
    lanes: int


async def try_now(runtime: Runtime, caller: Principal, request_id: UUID, reason: str | None = None) -> TriedNow:
    """Do not wait for the next attempt, nor until somebody resumes the lane. Raises NotFound."""
    if await inbox.get_message(runtime.database, request_id) is None:
        raise NotFound(f"there is no message {request_id}")
    async with runtime.database.transaction() as one:
        tried = await lanes.try_message_now(one, request_id)
        if tried:
            detail = {"request_id": str(request_id), "reason": reason}
            await audit.append(one, caller.name, "message:tried", detail)
    if tried:
        runtime.notifier.notify(WORK)
    return TriedNow(request_id, tried)


async def stop_turns(
    views: Views, runtime: Runtime, caller: Principal, request_id: UUID, reason: str | None = None
) -> Stopping:
    """End the turns of a message, keeping what they have written; who did and why is in the audit. Raises NotFound."""
    await views.own(caller, request_id)
    async with runtime.database.transaction() as one:
        stopped = await stop_message(one, request_id)
        if stopped:
            detail = {"request_id": str(request_id), "reason": reason}
            await audit.append(one, caller.name, "message:stopped", detail)
    await announce(runtime.database, runtime.notifier, stopped)
    return Stopping(request_id, len(stopped))
