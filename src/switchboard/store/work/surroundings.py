"""What stands around the message of a turn, read once when the turn begins.

`app/ops/engines.py` gives `StoredSurroundings` to engines. Who may see what is decided by the readers of the turn and
by `visible_entries` in `sql/functions/entries.sql`. Next: `core/turns/around.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.channels.registry import Channels
from switchboard.core.envelope.stored import stored_envelope
from switchboard.core.mail.headers import is_mailbox, mailbox_of
from switchboard.core.originals import Original, whole_envelope
from switchboard.core.passages.own import passages_of
from switchboard.core.passages.promotion import promote_passages
from switchboard.core.passages.showing import shortened_text
from switchboard.core.turns.around import (
    ConversationEvent,
    answered_ids,
    corrections,
    edit_of,
    edited_text,
    heard_texts,
    ids_of,
    may_repeat,
    part_ids_of,
)
from switchboard.core.turns.around import correction as corrected
from switchboard.domain.envelope import Envelope, Passage
from switchboard.ports.channel import GROUPS, MAX_REPLIED, Channel, Replied
from switchboard.ports.engine import Turn
from switchboard.ports.facts import Reader
from switchboard.ports.surroundings import MAX_HEARD, EditedText, RecordedText, SpokenText, Surrounding
from switchboard.store.database import Database, Row, query
from switchboard.store.memory.history import StoredReaders
from switchboard.store.messages.inbox import get_raw


class _OnRecord(Struct, frozen=True):
    """`replied`: the text with the id that the platform names."""

    texts: tuple[RecordedText, ...] = ()
    replied: SpokenText | None = None


class StoredSurroundings(Struct, frozen=True):
    """`Surroundings` in PostgreSQL."""

    database: Database
    channels: Channels
    readers: StoredReaders

    async def of(self, turn: Turn) -> Surrounding:
        """As in the port."""
        channel = self.channels[turn.envelope.source.channel]
        if turn.dead_letter is not None or channel.replies == "interface":
            return Surrounding()
        reader = await self.readers.of(turn)
        whole, changes, said = await asyncio.gather(
            self._whole(turn, channel), self._changes(turn), self._events_overheard(turn, reader)
        )
        replied = None if whole is None else channel.replied(whole)
        record = _OnRecord() if whole is None else await self._record(turn, reader, whole, replied)
        edited, edited_part = _text_after_edit(turn, changes)
        return Surrounding(
            replied=_text_replied_to(replied, record.replied),
            heard=heard_texts(said, changes),
            edited=edited,
            edited_part=edited_part,
            passages=_promote_passages(turn.envelope, record.texts),
            corrections=await self._corrections(turn, reader, changes),
            is_edit=turn.envelope.edits,
            is_read=turn.envelope.edits and await self._was_read(turn),
            record=record.texts,
        )

    async def _whole(self, turn: Turn, channel: Channel) -> Envelope | None:
        """The message with its `payload.raw`; None if nothing that stands around it can be found there."""
        if not (channel.tells_replied or may_repeat(turn.envelope)):
            return None
        kept = await get_raw(self.database, turn.request_id)
        return whole_envelope(Original(*kept, turn.envelope)) if kept else None

    async def _changes(self, turn: Turn) -> Sequence[ConversationEvent]:
        place = turn.member.system_id, turn.conversation, turn.request_id
        rows = await self.database.rows(query("surroundings.changes"), *place)
        return [replace(one, taken=row["taken"]) for row in rows for one in _events(row)]

    async def _events_overheard(self, turn: Turn, reader: Reader) -> Sequence[ConversationEvent]:
        if reader.private or not reader.authentic or turn.envelope.sender.chat_type not in GROUPS:
            return ()
        place, source = (turn.member.system_id, turn.conversation, turn.request_id), turn.envelope.source
        limits = source.channel, source.endpoint_identity, sorted(GROUPS), MAX_HEARD
        rows = await self.database.rows(query("surroundings.heard"), *place, *limits)
        return [one for row in rows for one in _events(row)]

    async def _corrections(
        self, turn: Turn, reader: Reader, changes: Sequence[ConversationEvent]
    ) -> tuple[SpokenText, ...]:
        if all(one.taken for one in changes):
            return ()
        place, who = (turn.member.system_id, turn.conversation), (reader.person, reader.private, reader.authentic)
        rows = await self.database.rows(query("surroundings.read"), *place, *who)
        return corrections([replace(one, edit=row["edit"]) for row in rows for one in _events(row)], changes)

    async def _was_read(self, turn: Turn) -> bool:
        place = turn.member.system_id, turn.conversation, turn.request_id
        return bool(await self.database.value(query("surroundings.was_read"), *place, turn.envelope.event.refers_to))

    async def _record(self, turn: Turn, reader: Reader, whole: Envelope, replied: Replied | None) -> _OnRecord:
        """What a quotation may repeat; and the message replied to, if it is ours or the platform has no text."""
        wanted = replied.refers_to if replied is not None and (replied.ours or not replied.text) else None
        channel, repeats = self.channels[whole.source.channel], may_repeat(turn.envelope)
        ids = answered_ids(whole, channel) if repeats else ()
        answered = wanted or (channel.replied_to(whole) if repeats else None)
        if wanted is None and not ids:
            return _OnRecord()
        place, who = (turn.member.system_id, turn.conversation), (reader.person, reader.private, reader.authentic)
        named = [form for one in (*ids, wanted) if one for form in (one, f"<{one}>")]
        rows = await self.database.rows(query("surroundings.record"), *place, *who, named, answered)
        found = next((row for row in rows if row["is_replied"]), None) if wanted is not None else None
        texts = tuple(RecordedText(row["text"], row["answered"] and row["is_replied"]) for row in rows)
        return _OnRecord(texts, None if found is None else _on_record(found, wanted))


def _events(row: Row) -> Iterator[ConversationEvent]:
    """The event; none if this release cannot read it, which must not end the turn of another message."""
    with suppress(msgspec.ValidationError):
        yield ConversationEvent(row["request_id"], stored_envelope(row["envelope"]), row["received_at"])


def _text_after_edit(turn: Turn, changes: Sequence[ConversationEvent]) -> tuple[EditedText | None, SpokenText | None]:
    """The new text of the message; or, if it was joined or split, what was edited, which is told beside its text."""
    message = ConversationEvent(turn.request_id, turn.envelope, turn.received_at)
    later = [one for one in changes if one.request_id > turn.request_id]
    edit = edit_of(message, later, ids_of(turn.envelope) | part_ids_of(turn.envelope))
    if edit is None:
        return None, None
    if turn.whole_text is not None or turn.envelope.event.also:
        return None, corrected(message, edit)
    return edited_text(edit), None


def _promote_passages(envelope: Envelope, record: Sequence[RecordedText]) -> tuple[Passage, ...]:
    passages, mailbox = passages_of(envelope), mailbox_of(envelope.source.endpoint_identity)
    found = promote_passages(
        passages, [one.text for one in record if one.answered], lambda one: is_mailbox(one, mailbox)
    )
    return () if found == passages else found


def _text_replied_to(said: Replied | None, recorded: SpokenText | None) -> SpokenText | None:
    """The message that is replied to, as the platform repeats it, otherwise as it is on record."""
    if said is None or not said.text:
        return recorded
    return SpokenText(
        text=said.text,
        author=said.author or "",
        sent_at=said.sent_at,
        refers_to=said.refers_to,
        ours=said.ours,
        told=not said.ours or recorded is None or recorded.told,
    )


def _on_record(row: Row, platform_id: str | None) -> SpokenText:
    author, told = row["author"], row["told"]
    text = shortened_text(row["text"], MAX_REPLIED)
    return SpokenText(text=text, author=author or "", refers_to=platform_id, ours=author is None, told=told)
