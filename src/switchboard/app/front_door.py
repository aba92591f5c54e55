"""The front door of what is due: firings become messages by an accept leg of the worker's own.

The kernel of the modules hands `WorkerFrontDoor` to modules that need it. A firing has an operator's right: no rate and
no gate for strangers applies, because the module asks for an `obstacle` just before. In: firings; out: messages, stored
with their decisions. Next: `core/envelope/due.py`, `journey/accept.py`.
"""

from __future__ import annotations

import sys
from typing import Final

import msgspec
from msgspec.structs import replace

from switchboard.app.runtime import Runtime
from switchboard.core.envelope.due import contact_of_task, envelope_of_firing, kept_facts
from switchboard.core.envelope.identity import EMBEDDED
from switchboard.core.envelope.read import read_envelope
from switchboard.core.envelope.stored import with_texts
from switchboard.core.originals import Original, whole_envelope
from switchboard.core.people.strangers import Contact, contact_of
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import IdempotencyMismatch, Overloaded, Unavailable
from switchboard.domain.message import RequestId
from switchboard.domain.routing import SystemId, spoken_name
from switchboard.journey.accept import AcceptLeg, Submission
from switchboard.journey.decide import DecideLeg
from switchboard.ports.front_door import Firing, Origin, SubmittedFiring
from switchboard.ports.tools import ToolScope
from switchboard.store.clock import DatabaseClock
from switchboard.store.memory.history import facts_of
from switchboard.store.messages.inbox import StoredMessage, get_message, get_raw
from switchboard.store.people.standing import standing_of

_NO_REPLIES: Final = frozenset({"call", "notice"})
"""Channels whose messages are answered once, and where nothing can be said later."""


class WorkerFrontDoor:
    """The front door in a worker, over its rules and its people."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._clock = DatabaseClock()
        decide = DecideLeg(runtime.rule_book, runtime.channels, runtime.people_book)
        # What is due has been admitted as a task; how many come at once is limited by the module.
        limits = replace(runtime.settings.accept, backlog=sys.maxsize)
        self._accept = AcceptLeg(
            runtime.database, decide, runtime.notifier, limits, runtime.channels, self._clock, strangers=None
        )

    async def origin(self, scope: ToolScope) -> Origin | None:
        """As in the port."""
        database = self._runtime.database
        stored, kept = await get_message(database, scope.turn), await get_raw(database, scope.turn)
        system_id = SystemId(scope.conversation.rpartition(" ")[0])
        if stored is None or not system_id or _answers_once(stored):
            return None
        envelope = msgspec.convert(with_texts(stored.envelope), Envelope)
        whole = whole_envelope(Original(*kept, stored.envelope)) if kept else None
        facts = await facts_of(database, scope.turn)
        return Origin(
            channel=stored.channel,
            provider=envelope.source.provider,
            endpoint=stored.endpoint,
            conversation=stored.conversation,
            system_id=system_id,
            sender=stored.sender,
            display_name=envelope.sender.display_name,
            chat_type=envelope.sender.chat_type,
            participants=envelope.sender.participants,
            thread=stored.thread,
            contact=self._find_contact(whole or envelope),
            reply_address=envelope.event.reply_address,
            facts=kept_facts(facts),
        )

    async def obstacle(self, origin: Origin) -> str:
        """As in the port."""
        butler = spoken_name(origin.system_id)
        if self._runtime.rule_book.rules.index.butler(origin.system_id) is None:
            return f"{butler} is gone, or switched off"
        account = origin.channel, origin.endpoint
        contact = None if origin.contact is None else _contact_at(account, origin.contact)
        standing = await standing_of(self._runtime.database, account, contact)
        if standing.gone:
            return f"the account {origin.channel}/{origin.endpoint} is out of service"
        if standing.contact == "denied":
            return "an operator has denied the person or the group that made the task"
        self._runtime.policies.look()
        if standing.contact != "approved" and self._runtime.policies.get(account, "open") != "open":
            return "the person or the group that made the task is not let in any more"
        return ""

    async def submit(self, firing: Firing) -> SubmittedFiring:
        """As in the port."""
        await self._clock.measure(self._runtime.database)
        await self._runtime.people_book.refresh()
        raw = msgspec.json.encode(envelope_of_firing(firing, self._clock.now()))
        submission = Submission(read_envelope(raw), raw, due=True)
        if self._runtime.rule_book.rules.index.butler(firing.origin.system_id) is None:
            raise Unavailable(f"{spoken_name(firing.origin.system_id)} is gone, or switched off; nothing was stored")
        try:
            accepted = await self._accept.accept(submission)
        except IdempotencyMismatch as known:  # the text says how late it is, which differs
            return SubmittedFiring(RequestId(known.first), duplicate=True)
        except Overloaded as error:
            raise Unavailable(error.message) from error
        return SubmittedFiring(accepted.request_id, accepted.duplicate)

    def _find_contact(self, envelope: Envelope) -> tuple[str, str] | None:
        if envelope.control.is_ours:
            return contact_of_task(envelope)
        found = contact_of(envelope, self._runtime.channels[envelope.source.channel])
        return found.scope, found.identity


def _contact_at(account: tuple[str, str], kept: tuple[str, str]) -> Contact:
    names = ("channel", "endpoint", "scope", "identity")
    return msgspec.convert(dict(zip(names, (*account, *kept), strict=True)), Contact)


def _answers_once(stored: StoredMessage) -> bool:
    return stored.channel in _NO_REPLIES or stored.endpoint.startswith(EMBEDDED)
