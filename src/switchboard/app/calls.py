"""Calls of tools outside turns: submitted as messages of the channel `call`, and their results.

HTTP and MCP call `CallService` with the caller's `Principal`. In: a butler, a tool and its arguments; out: a
`ShownCall`. Whom a call is for comes from the token, or from an operator, which is audited. A worker makes the call,
with the butler's grants. Next: `core/calls.py`, `agents/turns/call_engine.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from msgspec import structs

from switchboard.agents.turns.options import tool_options_of
from switchboard.app.access import AGENT, Access, Action, Principal
from switchboard.app.people.service import PeopleService
from switchboard.app.runtime import Runtime
from switchboard.core.calls import CALL, CALL_CHANNEL, NOBODY, WantedCall, call_message, called_in
from switchboard.core.people.owners import owns
from switchboard.core.routing.decide import decide
from switchboard.core.routing.facts import facts
from switchboard.core.uuid7 import uuid7_time
from switchboard.domain.calls import ShownCall
from switchboard.domain.errors import Forbidden, IdempotencyMismatch, InvalidInput, NotFound, Overloaded, TooLarge
from switchboard.domain.message import Message, RequestId
from switchboard.domain.routing import Member, Owner, SystemId
from switchboard.lanes.notifier import WORK, settled_topic
from switchboard.modules.kernel.described import described_tools
from switchboard.modules.kernel.grants import grants_of
from switchboard.ports.engine import EngineFailure
from switchboard.ports.module import ModuleTool
from switchboard.ports.tools import Audience
from switchboard.store.ids import new_uuid7
from switchboard.store.messages import inbox, outbox
from switchboard.store.messages.inbox import Arrival, StoredMessage
from switchboard.store.people import audit
from switchboard.store.work import approvals, ledger
from switchboard.store.work.calls import count_open
from switchboard.tasks import wait_at_most
from switchboard.tools.grants import Grants, granted_tools

MODULES: Final = Action("modules", AGENT)

WAIT_S: Final = 50.0
"""Seconds that a caller waits for the result: programs give up on a call after a minute."""
MAX_ARGUMENTS: Final = 64_000
"""Characters of the arguments of a call, as JSON."""
MAX_OPEN: Final = 100
"""Calls of one caller that have not ended."""
_LOOK_EVERY_S: Final = 0.25
"""Poll interval, as a notification of another process may be lost."""


class CallService:
    """Roles are checked by the interface, whose butler and whose call it is here."""

    def __init__(self, runtime: Runtime, access: Access) -> None:
        self._runtime = runtime
        self._database = runtime.database
        self._access = access

    async def call(
        self, caller: Principal, asked: WantedCall, gone: asyncio.Event, wait_s: float = WAIT_S
    ) -> ShownCall:
        """Make a call and wait for its result, but not for people: what waits for them is returned as `pending`.

        Raises InvalidInput, TooLarge, NotFound, Forbidden, Overloaded, IdempotencyMismatch, Unavailable.
        """
        call_id = await self._submit_call(await self._complete_call(caller, asked))
        return await self._wait(caller, call_id, gone, wait_s)

    async def get(self, caller: Principal, call_id: UUID, gone: asyncio.Event, wait_s: float = 0.0) -> ShownCall:
        """A call of this caller; operators see all. Raises NotFound."""
        return await self._wait(caller, call_id, gone, wait_s)

    async def offered_tools(self, caller: Principal) -> Sequence[ModuleTool]:
        """The tools of modules that the butler of a token may call for it, as manifests describe them."""
        member = self._runtime.rule_book.rules.members.get(SystemId(caller.system_id or ""))
        if member is None or not member.active or member.number != 1 or not grants_of(member):
            return ()
        try:
            options = tool_options_of(member)
        except EngineFailure:  # doctor says what is wrong
            return ()
        there = await asyncio.to_thread(described_tools, member)  # which imports manifests
        wanted = [tool for tool in there if options.tools is None or tool.spec.name in options.tools]
        grants = Grants(**{audience: frozenset(names) for audience, names in options.grants.items()})
        return granted_tools(wanted, grants, _audience_of(caller, member))

    async def _complete_call(self, caller: Principal, asked: WantedCall) -> WantedCall:
        """The call, for whom this caller may make it."""
        wanted = structs.replace(
            asked,
            caller=caller.name,
            system_id=await self._find_butler(caller, asked),
            person=asked.person or caller.person,
            by_operator=caller.role == "operator",
        )
        if asked.person is not None:
            await self._stand_in(caller, wanted)
        return wanted

    async def _find_butler(self, caller: Principal, asked: WantedCall) -> SystemId:
        system_id = asked.system_id or caller.system_id
        if not system_id:
            raise InvalidInput("name the butler whose tool is to be called", code="missing_field", field="system_id")
        await self._access.check_system(caller, MODULES, system_id)
        member = self._runtime.rule_book.rules.members.get(SystemId(system_id))
        if member is None or not member.active or member.number != 1:
            if caller.role == "agent":
                raise await self._access.hide(caller, MODULES, f"active butler {system_id}")
            raise NotFound(f"there is no active butler {system_id!r}; see `switchboard agents list`")
        return member.system_id

    async def _stand_in(self, caller: Principal, wanted: WantedCall) -> None:
        """Let an operator make a call as somebody else, which is audited."""
        if not wanted.by_operator:
            await self._access.record_refusal(caller, MODULES, {"person": wanted.person})
            raise Forbidden(
                "only operators make calls as somebody else; this token says whom it is for", field="person"
            )
        await PeopleService(self._runtime).link_calls(caller, wanted.person or "")
        detail = {"system_id": wanted.system_id, "tool": wanted.tool, "person": wanted.person}
        await audit.append(self._database, caller.name, "modules:called", detail)

    async def _submit_call(self, wanted: WantedCall) -> RequestId:
        """Store the message of the call; returns its id, or that of the first with the same key."""
        request_id = RequestId(new_uuid7())
        message = call_message(wanted, request_id, uuid7_time(request_id))
        self._check_size(message)
        await self._check_open_calls(wanted.system_id, message)
        people = self._runtime.people_book.people
        known = facts(message.envelope, CALL_CHANNEL, None, people.find_sender)
        decision = decide(self._runtime.rule_book.rules.index, known, wanted.system_id)
        [accepted] = await inbox.accept(self._database, [Arrival(message, decision, wanted.system_id)])
        if accepted.differs:
            raise IdempotencyMismatch(accepted.request_id)
        self._runtime.notifier.notify(WORK)
        return accepted.request_id

    async def _check_open_calls(self, system_id: SystemId, message: Message) -> None:
        """Raises Overloaded, but not for a call that is there already, of which the caller wants the result."""
        if await count_open(self._database, system_id, message.conversation) < MAX_OPEN:
            return
        if await inbox.first_of_event(
            self._database, CALL, message.envelope.source.endpoint_identity, message.dedupe_key
        ):
            return
        raise Overloaded(f"{MAX_OPEN} calls of this caller have not ended; nothing was called", retry_after=5.0)

    def _check_size(self, message: Message) -> None:
        size = len(message.envelope.payload.normalized_text)
        if size > MAX_ARGUMENTS:
            raise TooLarge(f"the call has {size} characters; at most {MAX_ARGUMENTS} are taken")

    async def _wait(self, caller: Principal, call_id: UUID, gone: asyncio.Event, wait_s: float) -> ShownCall:
        message = await self._find_own(caller, call_id)
        ring = asyncio.Event()
        deadline = asyncio.get_running_loop().time() + wait_s
        with self._runtime.notifier.subscribe(settled_topic(call_id), ring.set):
            while True:
                ring.clear()
                found = await self._show_call(message)
                left = deadline - asyncio.get_running_loop().time()
                if found.state != "pending" or found.approval_id is not None or left <= 0 or gone.is_set():
                    return found
                await wait_at_most(min(left, _LOOK_EVERY_S), ring, gone)

    async def _find_own(self, caller: Principal, call_id: UUID) -> StoredMessage:
        """The message of a call that the caller may see: their token's, for the person whom it is for."""
        message = await inbox.get_message(self._database, call_id)
        if message is None or message.channel != CALL:
            raise NotFound(f"there is no call {call_id}")
        mine = (caller.name, caller.person or NOBODY)
        butlers = {name for name in message.went_to if name != caller.system_id}
        if caller.role != "operator" and ((message.endpoint, message.sender) != mine or butlers):
            raise await self._access.hide(caller, MODULES, f"call {call_id}")
        return message

    async def _show_call(self, message: StoredMessage) -> ShownCall:
        call_id = message.request_id
        tool, _ = called_in(message.envelope["payload"]["normalized_text"])
        shown = ShownCall(call_id, message.envelope["control"]["pinned_target"], tool)
        state, replies = await outbox.replies_of(self._database, call_id)
        if state == "in_flight":
            waiting = [one for one in await approvals.of_message(self._database, call_id) if one.state == "pending"]
            return replace(shown, approval_id=waiting[0].approval_id if waiting else None)
        last = next(reversed(await ledger.attempts_of(self._database, call_id)), None)
        if not replies:
            why = None if last is None else last.error
            return replace(shown, state="failed", text=why or f"the call has ended: {state}")
        ok = last is not None and last.stop_reason is None
        reply = replies[-1]
        return replace(shown, state="done" if ok else "failed", text=reply.text, files=tuple(reply.files))


def _audience_of(caller: Principal, member: Member) -> Audience:
    """Whom calls of this token are for, as the worker sees it."""
    if caller.person is None:
        return "household"
    return "owners" if owns(Owner(CALL, caller.name, caller.person), member) else "others"
