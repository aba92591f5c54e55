"""Messages in and out of the inbox: the accept transaction, and what the interfaces show of a message.

`journey/accept.py` submits messages with their decisions; the interfaces read. Next: `store/work/lanes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import accumulate
from secrets import token_hex
from typing import Final
from uuid import UUID
from zlib import decompress

import asyncpg
from isal import isal_zlib
from msgspec import Struct

from switchboard.core.envelope.content import compared_content
from switchboard.core.envelope.identity import event_key
from switchboard.core.envelope.stored import stored_json
from switchboard.core.policy.tiers import tier_of
from switchboard.core.text.storable import storable_text
from switchboard.core.uuid7 import first_uuid7
from switchboard.domain.errors import Unavailable
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.ledger import MessageOrigin
from switchboard.domain.message import Conversation, Message, Named, RequestId
from switchboard.domain.routing import Decision, SystemId
from switchboard.domain.shown import MessageState
from switchboard.store.database import Database, Row, arrays, query, row_as, to_json
from switchboard.store.ids import new_uuid7
from switchboard.store.keys import Keys

_SEPARATOR: Final = f"\x1e{token_hex(8)}\x1e"
"""Between the texts of a column. Keys and names may hold the control character, but nobody can guess the digits."""
_LARGE: Final = 4096
"""Bytes above which better compression is worth three times the time."""
_LANE_GONE: Final = -1
"""In place of a message's number, if a lane that we had seen is not there any more."""


class Acceptance(Struct, frozen=True, gc=False):
    """The answer to the sender: the id of the message, or of the first one if this is a duplicate.

    `decision` is the decision about a new message; None for a duplicate, and while it `waits`: to be classified, or
    behind such a message of its conversation. A duplicate `differs` if the first one has another text, sender, thread
    or attachments. A new message has the `same_id` if its id belongs to another one. It is `held` if its sender has not
    been approved, or has just been, by this message.
    """

    request_id: RequestId
    duplicate: bool
    decision: Decision | None = None
    waits: bool = False
    differs: bool = False
    held: bool = False
    same_id: bool = False


class ToClassify(Struct, frozen=True):
    """Takes the place of a decision that needs a model: what is needed to decide later."""

    facts: Mapping[str, str]


class Arrival(Struct, frozen=True, gc=False):
    """A message, its decision, and the butler that it was pinned to (in case it must be decided later)."""

    message: Message
    decided: Decision | ToClassify
    pinned: SystemId | None = None


class Prepared(Struct, frozen=True, gc=False):
    """An arrival with its row and bytes, prepared while an earlier batch is being written.

    `content`: identifies equal submissions of an event; the database keeps its keyed hash.
    """

    arrival: Arrival
    row: tuple[str, ...]
    content: bytes
    raw: bytes


@dataclass(frozen=True, slots=True)
class StoredMessage(MessageOrigin):
    """A message as the interfaces show it. `went_to`: the butlers that it was delivered to, in order.

    `is_code`: it was a code for pairing, and went nowhere.
    """

    envelope: JsonMapping
    media_type: str
    received_at: datetime
    state: MessageState
    went_to: Sequence[str]
    is_code: bool


def pack_raw(raw: bytes) -> bytes:
    """The bytes of a message as stored: a zlib stream, compressed fast, as other messages wait meanwhile."""
    return isal_zlib.compress(raw, 0 if len(raw) < _LARGE else 1)


def unpack_raw(stored: bytes) -> bytes:
    """The original bytes; empty if they are no longer kept."""
    return decompress(stored) if stored else b""


def prepare(arrival: Arrival) -> Prepared:
    """Do ahead of time what `accept` would otherwise do first."""
    message, decided, raw = arrival.message, arrival.decided, pack_raw(arrival.message.raw)
    source, decision = message.envelope.source, decided if isinstance(decided, Decision) else None
    row = (
        message.request_id.hex,
        source.channel,
        source.endpoint_identity,
        message.envelope.sender.identity,
        message.thread or "",
        stored_json(message.envelope).decode(),
        message.media_type,
        to_json(message.received_at)[1:-1],
        str(tier_of(message.envelope, message.received_at)),
        str(decision.version) if decision else "",
        str(len(decision.chosen) + len(decision.unrouted)) if decision else "",
        to_json(decision.trail) if decision else "",
        to_json(decided.facts),
        arrival.pinned or "",
        "f" if decision else "t",
        str(len(raw)),
    )
    return Prepared(arrival, row, compared_content(message), raw)


async def accept(
    database: Database,
    given: Sequence[Arrival | Prepared],
    *,
    queued: bool = False,
    wake: Callable[[], None] = lambda: None,
    program: int | None = None,
) -> list[Acceptance]:
    """Store what is new of `given` in one transaction, with its decisions, deliveries and dead letters.

    `queued`: messages may wait to be classified. A message whose conversation has waiting messages queues behind them;
    its decision is dropped and made again when its turn comes. The same holds without `queued`, as a process may not
    yet know what others do; but if no message waits, that costs one look and creates no lane.

    Further events that a new message stands for (`event.also`) count as submitted with it.

    `wake` is called if a lane without work now has some; workers know of work that was waiting before.

    `program`: the process of a program that asks for the turns itself, so that workers leave them alone while it lives.

    Returns one answer per message, in order, after the commit. Raises `Unavailable` when the outcome is unknown or
    nothing was stored; submitting the same messages again is safe.
    """
    prepared = [one if isinstance(one, Prepared) else prepare(one) for one in given]
    if any(one.arrival.message.envelope.event.also for one in prepared):
        async with database.transaction() as one:
            answers = await _accept(one, prepared, lambda: None, queued=queued, program=program)
            await _reserve(one, prepared, answers)
        wake()
        return answers
    return await _accept(database, prepared, wake, queued=queued, program=program)


async def _reserve(transaction: Database, prepared: Sequence[Prepared], answers: Sequence[Acceptance]) -> None:
    """Make later submissions of the message's further events duplicates of it."""
    keys = await transaction.keys()
    rows = []
    for one, answer in zip(prepared, answers, strict=True):
        source, body = one.arrival.message.envelope.source, keys.of("body", one.content)
        for event_id in () if answer.duplicate else one.arrival.message.envelope.event.also:
            key = keys.event(source.channel, source.endpoint_identity, event_key(event_id))
            rows.append((key, body, answer.request_id))
    await transaction.run(query("inbox.reserve"), *arrays(rows, 3))


async def _accept(
    database: Database, prepared: Sequence[Prepared], wake: Callable[[], None], *, queued: bool, program: int | None
) -> list[Acceptance]:
    batch = [one.arrival for one in prepared]
    keys = await database.keys()
    deliveries, unrouted = list(_delivery_rows(batch, keys)), _unrouted_columns(batch)
    lanes = {lane for _, lane, _, _ in deliveries}
    delivered = len({ord_ for ord_, *_ in deliveries}) == len(batch) and not unrouted[0]
    known = delivered and not queued and keys.have_seen(lanes)
    store = partial(_store, database, prepared, deliveries, unrouted, queued=queued, program=program)
    rows = await store(known=known)
    if known and rows and rows[0]["ord"] == _LANE_GONE:
        rows = await store(known=False)
    if not known:
        keys.saw(lanes)
    told = {ord_: (first, waits, differs) for ord_, first, waits, differs in rows}
    if told.pop(0, None):
        wake()
    return [_acceptance(arrival, told.get(n)) for n, arrival in enumerate(batch, 1)]


async def _store(  # noqa: PLR0913 - the arguments of one statement
    database: Database,
    prepared: Sequence[Prepared],
    deliveries: Sequence[tuple[str, ...]],
    unrouted: Sequence[list[object]],
    *,
    queued: bool,
    known: bool,
    program: int | None,
) -> Sequence[Row]:
    """Store. `known`: all lanes exist, so the conversations do too, and need no names."""
    raws, keys = [one.raw for one in prepared], await database.keys()
    names, *joined, asks, sizes = _joined(((*keys_of(one, keys), *one.row) for one in prepared), 20)
    starts = _SEPARATOR.join(map(str, accumulate(map(len, raws[:-1]), initial=1)))
    try:
        return await database.rows(
            query("inbox.accept" if program is None else "inbox.accept_for_program"),
            _SEPARATOR,
            "" if known else names,
            *joined,
            asks if queued else None,
            sizes,
            starts,
            b"".join(raws),
            *_joined(deliveries, 4),
            *unrouted,
            *(() if program is None else (program,)),
        )
    except asyncpg.CheckViolationError as error:
        if error.constraint_name:
            raise
        raise Unavailable(f"there are no tables for messages of this month yet: {error}") from error


async def accept_split(database: Database, arrival: Arrival, wake: Callable[[], None]) -> Acceptance:
    """Store one message already decided, and perhaps split, by a model. Raises as `accept`."""
    async with database.transaction() as one:
        [accepted] = await accept(one, [arrival])
        if accepted.decision is not None and (columns := _split_columns(accepted.decision)):
            message = arrival.message
            await one.run(query("inbox.split"), message.request_id, message.received_at, *columns)
    wake()
    return accepted


def _split_columns(decision: Decision) -> list[object]:
    """The parts of butlers, of the teams of dead letters, and of all teams; empty if all get the whole."""
    parts = [(one.system_id, storable_text(one.segment)) for one in decision.chosen if one.segment is not None]
    lost = [(one.team_id, storable_text(one.segment)) for one in decision.unrouted if one.segment is not None]
    teams = {team_id: storable_text(text) for team_id, text in decision.parts.items()}
    if not (parts or lost):
        return []
    return [*arrays(parts, 2), *arrays(lost, 2), to_json(teams) if teams else None]


def keys_of(one: Prepared, keys: Keys) -> tuple[str, str, str, str]:
    """Name and key of its conversation, and the keys of its event and its content."""
    message, source = one.arrival.message, one.arrival.message.envelope.source
    event = keys.event(source.channel, source.endpoint_identity, message.dedupe_key)
    return message.conversation, keys.conversation(message.conversation), event, keys.of("body", one.content)


def _acceptance(arrival: Arrival, told: tuple[RequestId | None, bool, bool] | None) -> Acceptance:
    own = arrival.message.request_id
    first, waits, differs = told or (own, False, False)
    if first is None:
        raise LookupError(f"{own} is neither stored nor known")
    # One of our own ids means new, even if an earlier attempt to commit this batch succeeded without an answer.
    if first != own:
        return Acceptance(first, duplicate=True, differs=differs)
    if waits or isinstance(arrival.decided, ToClassify):
        return Acceptance(first, duplicate=False, waits=waits)
    return Acceptance(first, duplicate=False, decision=arrival.decided)


async def find_authors(database: Database, replies: Sequence[tuple[Conversation, str]]) -> list[SystemId | None]:
    """Find which butler wrote each (conversation, platform id) that is replied to; None: not one of our replies."""
    rows = await database.rows(query("inbox.authors"), [c for c, _ in replies], [storable_text(i) for _, i in replies])
    found = {row["ord"]: SystemId(row["system_id"]) for row in rows}
    return [found.get(ord_) for ord_ in range(1, len(replies) + 1)]


async def find_places(database: Database, named: Sequence[Named], *, keep: bool = True) -> list[Conversation]:
    """Find the conversation of each, in order; then its author and addressees are known there.

    Not `keep`: the same, but nobody becomes known.
    """
    keys = await database.keys()
    hashed = [[keys.conversation(one) for one in (n.home, n.apart, n.threads[-1])] for n in named]
    rows = await database.rows(
        query("inbox.place"),
        *arrays(map(tuple, hashed), 3),
        [_person(keys, one.author) for one in named],
        *arrays(((storable_text(one.channel), storable_text(one.endpoint)) for one in named), 2),
        *arrays(((n, keys.conversation(t)) for n, one in enumerate(named, 1) for t in one.threads), 2),
        *arrays(((n, storable_text(said)) for n, one in enumerate(named, 1) for said in one.answered), 2),
        *arrays(((n, _person(keys, a)) for n, one in enumerate(named, 1) for a in one.addressed), 2),
        keep,
    )
    found = {row["ord"]: row for row in rows}
    return [_conversation_of(one, found[n], hashed[n - 1][0]) for n, one in enumerate(named, 1)]


def _person(keys: Keys, name: str) -> str:
    return keys.of("person", name.encode("utf-8", "surrogatepass"))


def _conversation_of(named: Named, row: Row, home: str) -> Conversation:
    if row["conversation"].hex == home:
        return named.home
    # It has no name if the first message that was placed there has not been stored.
    return named.apart if row["name"] is None else Conversation(row["name"])


async def are_known(database: Database, given: Sequence[tuple[Message, datetime | None]]) -> list[bool]:
    """Whether accepting each would store nothing because its event is known, and not from before the time given.

    Where different contents are accepted under one key, the content must be known too.
    """
    keys = await database.keys()
    events = [
        keys.event(m.envelope.source.channel, m.envelope.source.endpoint_identity, m.dedupe_key) for m, _ in given
    ]
    rows = await database.rows(query("inbox.known_events"), events)
    known = {row["key"].hex: (row["body"].hex, row["request_id"]) for row in rows}
    return [
        event in known and _is_same(keys, m, known[event], since)
        for event, (m, since) in zip(events, given, strict=True)
    ]


def _is_same(keys: Keys, message: Message, known: tuple[str, UUID], since: datetime | None) -> bool:
    body, first = known
    if since is not None and first < first_uuid7(since):
        return False
    keeps_both = message.content is not None or message.other == "event"
    return not keeps_both or body == keys.of("body", compared_content(message))


async def forget_events(transaction: Database, given: Sequence[tuple[Message, datetime]]) -> None:
    """Free the keys of messages whose first arrival was before the time given with each; call it before `accept`.

    Whoever accepts the same event meanwhile waits for the transaction, and then has a duplicate.
    """
    keys = await transaction.keys()
    rows = [
        (keys.event(m.envelope.source.channel, m.envelope.source.endpoint_identity, m.dedupe_key), first_uuid7(before))
        for m, before in given
    ]
    await transaction.run(query("inbox.forget_events"), *arrays(rows, 2))


async def first_of_event(database: Database, channel: str, endpoint: str, key: str) -> RequestId | None:
    """The first message with this dedupe key."""
    event = (await database.keys()).event(channel, endpoint, key)
    found = await database.value(query("inbox.first_of_event"), event)
    return None if found is None else RequestId(found)


async def have_written(database: Database, pairs: Sequence[tuple[Conversation, str]]) -> set[tuple[Conversation, str]]:
    """Those (conversation, butler) pairs in which the butler has replied in the conversation."""
    rows = await database.rows(query("inbox.have_written"), [c for c, _ in pairs], [s for _, s in pairs])
    return {pairs[row["ord"] - 1] for row in rows}


def _joined(rows: Iterable[tuple[str, ...]], width: int) -> list[str]:
    """The columns of `rows`, each as one text."""
    return [_SEPARATOR.join(column) for column in zip(*rows, strict=True)] or [""] * width


def _delivery_rows(batch: Sequence[Arrival], keys: Keys) -> Iterator[tuple[str, ...]]:
    for ord_, arrival in enumerate(batch, 1):
        if isinstance(arrival.decided, Decision):
            for chosen in arrival.decided.chosen:
                lane = keys.turn_lane(chosen.system_id, arrival.message.conversation)
                yield str(ord_), lane, chosen.system_id, chosen.team_id


def _unrouted_columns(batch: Sequence[Arrival]) -> list[list[object]]:
    rows = (
        (ord_, new_uuid7(), branch.team_id, branch.category, branch.reason, branch.handler)
        for ord_, arrival in enumerate(batch, 1)
        if isinstance(arrival.decided, Decision)
        for branch in arrival.decided.unrouted
    )
    return arrays(rows, 6)


async def get_message(database: Database, request_id: UUID) -> StoredMessage | None:
    """One message by its id."""
    return row_as(StoredMessage, await database.row(query("inbox.get"), request_id))


async def get_raw(database: Database, request_id: UUID) -> tuple[bytes, str] | None:
    """The original bytes, and their media type."""
    row = await database.row(query("inbox.raw"), request_id)
    return (unpack_raw(row["raw"]), row["media_type"]) if row else None


async def count_backlog(database: Database) -> int:
    """How much work waits for workers or is in progress: the measure for back-pressure."""
    return int(await database.value(query("inbox.backlog")))


async def crowded_endpoints(database: Database, most: float) -> list[tuple[str, str]]:
    """The (channel, endpoint) pairs with at least `most` items in the backlog."""
    return [(row["channel"], row["endpoint"]) for row in await database.rows(query("inbox.crowded"), most)]
