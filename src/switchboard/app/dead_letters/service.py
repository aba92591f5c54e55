"""Dead letters: shown, rerouted or closed, one by one or in bulk by a filter.

HTTP and MCP call `DeadLetterService` with the caller's `Principal`. A System4 sees and does this for its own team (and
those below without a System4), a System3 for its own and all below, an operator for all. Next: `reach.py`,
`reroute.py`, `store/messages/dead_letters.py`.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import fields
from typing import Final
from uuid import UUID

from msgspec.structs import asdict

from switchboard.app.access import Access, Principal
from switchboard.app.cursors import LongRows, uuid_cursor
from switchboard.app.dead_letters.reach import DEAD_LETTERS, HandlerReach
from switchboard.app.dead_letters.requests import (
    Bulk,
    BulkOutcome,
    DeadLetterDetail,
    Failure,
    Handled,
    Reroute,
    Rerouted,
    Simulated,
)
from switchboard.app.dead_letters.reroute import BeyondReach, Rerouter, author, describe_outcome
from switchboard.app.rules.service import RuleService
from switchboard.app.runtime import Runtime
from switchboard.core.envelope.stored import with_texts
from switchboard.core.routing.rulefile import target_json
from switchboard.domain.errors import Conflict, NotFound, SwitchboardError, Unavailable
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.routing import Target
from switchboard.domain.shown import MadeDelivery, ShownDeadLetter
from switchboard.store.database import Database
from switchboard.store.messages import dead_letters as store
from switchboard.store.messages.dead_letters import DeadLetterFilter, DeadLetterHandling
from switchboard.store.people import audit

_CHUNK: Final = 100


class DeadLetterService:
    """Serves System3s, System4s and operators. Roles are checked at the interface, teams by `HandlerReach`."""

    def __init__(self, runtime: Runtime, access: Access, rules: RuleService) -> None:
        self._database = runtime.database
        self._channels = runtime.channels
        self._access = access
        self._reach = HandlerReach(runtime, access)
        self._rerouter = Rerouter(runtime, self._reach, rules)

    def may_handle(self, caller: Principal) -> bool:
        """Whether there are dead letters that this caller may see: for an operator, a System4 or System3."""
        return caller.role == "operator" or bool(self._reach.own_teams(caller))

    async def list(
        self, caller: Principal, wanted: DeadLetterFilter, *, limit: int, cursor: str | None
    ) -> tuple[list[ShownDeadLetter], str | None]:
        """A page, newest first, and the cursor of the next. Raises Forbidden, InvalidInput."""
        wanted = await self._reach.within(caller, wanted)
        reader = self._reach.reader(caller)

        async def read(before: UUID | None, limit: int) -> Sequence[ShownDeadLetter]:
            return await store.list_dead_letters(self._database, wanted, reader, before=before, limit=limit)

        found = LongRows(read, lambda row: row.dead_letter_id, lambda row: len(row.text or ""))
        page, following = await found.page(cursor, limit)
        if wanted.channel is not None and not page:
            self._channels.known(wanted.channel, "channel")
        return page, following

    async def get(self, caller: Principal, dead_letter_id: UUID) -> DeadLetterDetail:
        """One dead letter, whole. Raises NotFound."""
        found = await store.get_dead_letter(self._database, dead_letter_id, self._reach.reader(caller))
        if found is None:
            raise NotFound(f"there is no dead letter {dead_letter_id}")
        shown, remains = found
        await self._reach.check_team(caller, dead_letter_id, shown.team_id)
        notices = await store.notices_of(self._database, shown.request_id)
        return DeadLetterDetail(
            **{one.name: getattr(shown, one.name) for one in fields(shown)},
            payload=with_texts(remains.payload, remains.seen),
            raw_base64=base64.b64encode(remains.raw if remains.seen is None else b"").decode(),
            notices=[notice for notice in notices if notice.dead_letter_id == dead_letter_id],
            rerouted_to=await self._rerouter.rerouted_to(shown.request_id, shown.rerouted_n),
        )

    async def facts(self, caller: Principal, dead_letter_id: UUID) -> Mapping[str, str]:
        """What a rule can ask of its message; nothing if that cannot be read any more. Raises NotFound."""
        case = await self._reach.case(caller, dead_letter_id)
        try:
            return await self._rerouter.facts_of_case(case) if case.kept else {}
        except Conflict:
            return {}

    async def reroute(self, caller: Principal, dead_letter_id: UUID, wanted: Reroute) -> Rerouted:
        """Reroute the message. If repeated, it reports what was done and does nothing.

        Raises NotFound; InvalidInput for a receiver that does not exist, Forbidden for one out of the caller's reach or
        a rule that the caller may not make; Conflict if nobody receives it, or if the letter was closed, rerouted
        elsewhere or used for another rule. The dead letter is then unchanged.
        """

        async def record(one: Database, made: Sequence[MadeDelivery]) -> None:
            to = [delivery.system_id for delivery in made]
            told: JsonObject = {"dead_letter_id": str(dead_letter_id), "to": to, "reason": wanted.reason}
            await audit.append(one, caller.name, "dead_letter:rerouted", told)

        try:
            return await self._rerouter.reroute(caller, dead_letter_id, wanted, record)
        except BeyondReach:
            await self._refuse(caller, wanted.to, {"dead_letter_id": str(dead_letter_id)})
            raise

    async def handle(self, caller: Principal, dead_letter_id: UUID, resolution: str) -> Handled:
        """Close a dead letter that needs no further action. Raises NotFound, and Conflict if it was rerouted."""

        async def record(one: Database) -> None:
            told: JsonObject = {"dead_letter_id": str(dead_letter_id), "reason": resolution}
            await audit.append(one, caller.name, "dead_letter:handled", told)

        return await self._handle_letter(caller, dead_letter_id, resolution, record)

    async def bulk(self, caller: Principal, wanted: Bulk) -> BulkOutcome:
        """Treat each dead letter on its own; failures stay pending and are reported. Safe to repeat.

        Raises Forbidden, and as `reroute` for a receiver that none of these dead letters may be sent to.
        """
        filtered = await self._reach.within(caller, wanted.wanted)
        try:
            self._rerouter.check_reach(caller, filtered.teams or (), wanted.to)
        except BeyondReach:
            await self._refuse(caller, wanted.to, {"teams": list(filtered.teams or ())})
            raise
        after = uuid_cursor(wanted.after)
        matched = await store.count_pending(self._database, filtered, after=after)
        if matched and not wanted.dry_run:  # first: whatever becomes of it, what it has done is on the record
            order = {**_order_form(wanted, filtered), "matched": matched}
            await audit.append(self._database, caller.name, "dead_letters:bulk_begun", order)
        failed: list[Failure] = []
        would: list[Simulated] = []
        seen = 0
        try:
            async for dead_letter_id in self._pending_letters(filtered, after, wanted.limit):
                outcome = await self._one_of_many(caller, dead_letter_id, wanted)
                failed += [outcome] if isinstance(outcome, Failure) else []
                would += [outcome] if isinstance(outcome, Simulated) else []
                seen, after = seen + 1, dead_letter_id
        finally:  # anything done before it broke off is also recorded
            if not wanted.dry_run:
                done = {"done": seen - len(failed), "failed": len(failed)}
                order = {**_order_form(wanted, filtered), **done}
                await audit.append(self._database, caller.name, "dead_letters:bulk", order)
        following = str(after) if matched > seen and after is not None else None
        return BulkOutcome(matched, seen - len(failed), failed, following, wanted.dry_run, would)

    async def _pending_letters(self, wanted: DeadLetterFilter, after: UUID | None, limit: int) -> AsyncIterator[UUID]:
        """The pending letters of a filter, oldest first, at most `limit`; read in pieces."""
        while limit > 0:
            size = min(_CHUNK, limit)
            chunk = await store.pending_ids(self._database, wanted, after=after, limit=size)
            for dead_letter_id in chunk:
                yield dead_letter_id
            if len(chunk) < size:
                return
            limit, after = limit - size, chunk[-1]

    async def _one_of_many(self, caller: Principal, dead_letter_id: UUID, wanted: Bulk) -> Failure | Simulated | None:
        """Do it for one dead letter; returns the failure, if any, or what a dry run would do."""
        try:
            if wanted.action == "handle":
                if not wanted.dry_run:
                    await self._handle_letter(caller, dead_letter_id, wanted.reason)
            elif wanted.dry_run:
                return await self._rerouter.would_reach(caller, dead_letter_id, wanted.to)
            else:
                await self._rerouter.reroute(caller, dead_letter_id, Reroute(wanted.reason, wanted.to))
        except Unavailable:
            raise  # the others would fail as well, and none of this is lost
        except SwitchboardError as error:
            return Failure(dead_letter_id, error.code, error.message)
        return None

    async def _handle_letter(
        self,
        caller: Principal,
        dead_letter_id: UUID,
        resolution: str,
        record: Callable[[Database], Awaitable[None]] | None = None,
    ) -> Handled:
        """Close one; `record` is called in the same transaction."""
        case = await self._reach.case(caller, dead_letter_id)
        async with self._database.transaction() as one:
            done = await store.handle(one, dead_letter_id, DeadLetterHandling(author(caller), resolution))
            if done and record is not None:
                await record(one)
        shown = await self._reach.shown(caller, case)
        if not done and shown.rerouted_n is not None:
            raise Conflict(describe_outcome(shown), code="already_rerouted")
        return Handled(shown, already=not done)

    async def _refuse(self, caller: Principal, to: Target | None, which: JsonMapping) -> None:
        """Record an attempt to send dead letters beyond the caller's reach."""
        named = None if to is None else to.system_id or to.team_id
        await self._access.record_refusal(caller, DEAD_LETTERS, {**which, "to": named})


def _order_form(wanted: Bulk, filtered: DeadLetterFilter) -> JsonObject:
    """For the audit: the order, and for which of the letters visible to the caller."""
    return {
        "action": wanted.action,
        "filter": {name: value for name, value in asdict(filtered).items() if value is not None},
        "to": None if wanted.to is None else target_json(wanted.to),
        "reason": wanted.reason,
    }
