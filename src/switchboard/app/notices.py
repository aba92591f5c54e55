"""Tells operators in chats (setting `notify`) what needs them: dead letters, strangers, decisions, failed accounts.

`app/ops/periodic.py` gives workers the tasks: one of them calls `OperatorNotices.tell` every few seconds. Doctor calls
`check_notify`, and with `--notify` `send_test_notices`. In: what nobody was told of yet; out: notices, which are
messages of the house. An event is marked in the transaction that stores its notice, at most one a minute for each kind
and address, so that what comes meanwhile is counted in the next. Next: `journey/turn.py`, where the notice becomes a
reply.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

import msgspec
import structlog

from switchboard.app.runtime import Runtime
from switchboard.app.sign_ins import note_sign_ins
from switchboard.core.envelope.identity import chat_conversation, event_key
from switchboard.core.notices import (
    NOTICE,
    TEST,
    ChatAddress,
    NoticeKind,
    Unnoticed,
    address_in,
    addresses_for,
    notice_envelope,
    notice_text,
)
from switchboard.core.routing.decide import decide
from switchboard.core.routing.facts import facts
from switchboard.core.routing.index import RoutingIndex
from switchboard.core.uuid7 import uuid7_time
from switchboard.domain.json_values import JsonObject
from switchboard.domain.message import Message, RequestId
from switchboard.domain.routing import SWITCHBOARD
from switchboard.journey.rulebook import RuleBook
from switchboard.lanes.faults import point
from switchboard.lanes.notifier import WORK, Notifier
from switchboard.ports.channel import Channel
from switchboard.ports.checks import CheckResult, error, ok, warning
from switchboard.ports.maintenance import MaintenanceTask
from switchboard.store import notices as store
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.messages import inbox
from switchboard.store.messages.inbox import Arrival
from switchboard.store.notices import LOG, ChatStanding

log = structlog.get_logger(__name__)

_AT_ONCE: Final = 10_000
_CHANNEL: Final = Channel(name=NOTICE)


def notice_tasks(runtime: Runtime) -> tuple[MaintenanceTask, ...]:
    """Operators are told nothing in chats if no address is named."""
    addresses, book = runtime.settings.notify, runtime.rule_book
    if not addresses:
        return ()
    notices = OperatorNotices(runtime.database, runtime.notifier, lambda: book.rules.index, addresses)
    return (
        MaintenanceTask("notify", 2.0, notices.tell),
        MaintenanceTask("note_sign_ins", 30.0, lambda: note_sign_ins(runtime.database, runtime.settings), local=True),
    )


class OperatorNotices:
    """Notices to the first of the `addresses` that can be told; `index`: the rules in force."""

    def __init__(
        self, database: Database, notifier: Notifier, index: Callable[[], RoutingIndex], addresses: Sequence[str]
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._index = index
        self._addresses = tuple(map(address_in, addresses))

    async def tell(self) -> int:
        """Make the notices that are due; returns how many."""
        events = await store.unnoticed(self._database, _AT_ONCE)
        usable = await self._usable_addresses() if events else {}
        groups = defaultdict[tuple[NoticeKind, ChatAddress | None], list[Unnoticed]](list)
        for event in events:
            to = next((one for one in addresses_for(self._addresses, event) if one in usable), None)
            groups[event.kind, to].append(event)
        told = 0
        for (kind, to), some in groups.items():
            told += await (self._log_events(kind, some) if to is None else self._send(kind, some, to, usable[to]))
        return told

    async def test(self, address: str) -> RequestId | str:
        """Send a notice to this address now; returns its id, or why there is none."""
        to = address_in(address)
        found = await store.standing(self._database, to)
        why = lacking(found)
        if why is not None:
            return why
        request_id = await self._store_notice(self._database, to, TEST, found.reply_address or {})
        self._notifier.notify(WORK)
        return request_id

    async def _usable_addresses(self) -> dict[ChatAddress, JsonObject]:
        """The addresses that can be told, and how they are reached."""
        found = {to: await store.standing(self._database, to) for to in self._addresses}
        return {to: one.reply_address or {} for to, one in found.items() if lacking(one) is None}

    async def _send(self, kind: NoticeKind, events: Sequence[Unnoticed], to: ChatAddress, reply: JsonObject) -> bool:
        async with self._database.transaction() as one:
            count = await store.take(one, kind, to.name, [event.key for event in events])
            if count:
                point("notice_taken")
                text = notice_text(kind, count, [event.detail for event in events])
                await self._store_notice(one, to, text, reply)
        if count:
            point("notice_made")
        return count > 0

    async def _log_events(self, kind: NoticeKind, events: Sequence[Unnoticed]) -> bool:
        count = await store.take(self._database, kind, LOG, [event.key for event in events])
        if count:
            log.warning("operators were not told, as no address of notify can be", kind=kind, count=count)
        return False

    async def _store_notice(self, database: Database, to: ChatAddress, text: str, reply: JsonObject) -> RequestId:
        request_id = RequestId(new_uuid7())
        at = uuid7_time(request_id)
        envelope = notice_envelope(to, text, reply, request_id, at)
        message = Message(
            request_id=request_id,
            conversation=chat_conversation(NOTICE, to.account, to.name),
            dedupe_key=event_key(str(request_id)),
            envelope=envelope,
            raw=msgspec.json.encode(envelope),
            media_type="application/json",
            received_at=at,
            thread=to.name,
        )
        decision = decide(self._index(), facts(envelope, _CHANNEL), SWITCHBOARD)
        await inbox.accept(database, [Arrival(message, decision, SWITCHBOARD)])
        return request_id


async def unusable(database: Database, addresses: Sequence[str]) -> dict[str, str]:
    """The addresses that nobody can be told at, and why."""
    found = {name: lacking(await store.standing(database, address_in(name))) for name in addresses}
    return {name: why for name, why in found.items() if why is not None}


def lacking(found: ChatStanding) -> str | None:
    """Why nobody can be told there; None: somebody can."""
    if not found.approved:
        return "it is not approved: let it in with `switchboard pairing`"
    if found.reply_address is None:
        return "nothing was written there yet: write a message to the account from there"
    return "a notice could not be sent there: see `switchboard dlq list`" if found.stuck else None


async def check_notify(database: Database, addresses: Sequence[str]) -> list[CheckResult]:
    """Where operators are told, and where nobody can be."""
    found = await unusable(database, addresses)
    if good := [name for name in addresses if name not in found]:
        return [ok("notify", f"operators are told at {good[0]}"), *map(_address_finding, found.items())]
    return [*map(_address_finding, found.items())]


def _address_finding(found: tuple[str, str]) -> CheckResult:
    address, why = found
    return warning("notify", f"nobody is told at {address}: {why}", "switchboard doctor --notify sends a notice")


async def send_test_notices(database: Database, addresses: Sequence[str]) -> list[CheckResult]:
    """Send a notice to each address; a worker and the connector of the account deliver it."""
    if not addresses:
        remedy = 'name a chat in switchboard.toml: notify = ["telegram/bot:123456/41"], see docs/operations.md'
        return [error("notice", "there is no address of operators", remedy)]
    notifier = Notifier(database)
    book = await RuleBook.open(database, notifier)
    notices = OperatorNotices(database, notifier, lambda: book.rules.index, addresses)
    return [_sent_finding(address, await notices.test(address)) for address in addresses]


def _sent_finding(address: str, made: UUID | str) -> CheckResult:
    if isinstance(made, str):
        return error("notice", f"none was sent to {address}", made)
    return ok("notice", f"one is on its way to {address}; switchboard explain {made}")
