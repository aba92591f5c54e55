"""Several events that are one message: the photos of an album, a text that was split, a forward and its comment.

Pure; `receiving.py` calls it with the time. Whether events belong together follows from what the platform says of them,
so that a backlog and a redelivery are joined as the events themselves were; only how long to wait is a matter of our
clock. Next: `intake.py`, which treats the message like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from msgspec import structs
from msgspec.structs import replace as with_fields

from switchboard.core.passages.own import has_others_words, joined, passages_of
from switchboard.core.passages.signs import bare, is_marked
from switchboard.domain.envelope import MAX_PASSAGES, MAX_TEXT, Envelope, Event, Passage, Payload
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import FileIn, Inbound

MAX_EVENTS: Final = 20
"""Maximum number of events in one message."""
_MAX_FILES: Final = 100
_APART_S: Final = 2.0
"""Maximum seconds between two pieces, by the platform's clock, which may count whole seconds."""
_ALBUM_S: Final = (1.0, 3.0)
_PIECES_S: Final = (1.5, 5.0)
"""How long to wait for the next event after the last one, and after the first one."""


def awaits_more(event: Inbound) -> bool:
    """Whether the next event may belong to the same message, so that it is worth waiting."""
    return event.album is not None or _is_unfinished(event)


def due_after(event: Inbound, first: float, now: float) -> float:
    """When to submit a message whose first event came at `first`, and its last one, `event`, at `now`."""
    if not awaits_more(event):
        return now
    quiet, most = _PIECES_S if _is_unfinished(event) else _ALBUM_S
    return min(now + quiet, first + most)


def belongs_to(events: Sequence[Inbound], event: Inbound) -> bool:
    """Whether an event is part of the message that these events make up, and has room in it."""
    return _continues(events[-1], event) and _has_room(events, event)


def merge_events(events: Sequence[Inbound]) -> Inbound:
    """Merge events into one message with the words and files of all; its id is that of the first event.

    The platform's ids of the other messages are `also` in its reply address, as `message` is that of the first.
    """
    first, *others = events
    if not others:
        return first
    envelope = first.envelope
    control = with_fields(envelope.control, addressed=any(event.envelope.control.addressed for event in events))
    whole = with_fields(envelope, payload=_payload(events), control=control, event=_event(envelope.event, others))
    return structs.replace(first, envelope=whole, files=tuple(_renumber_files(events)))


def _is_unfinished(event: Inbound) -> bool:
    return event.piece is not None and (event.piece.forwarded or event.piece.cut is not None)


def _continues(before: Inbound, event: Inbound) -> bool:
    one, next_ = before.piece, event.piece
    if event.album is not None and event.album == before.album:
        return True
    if one is None or next_ is None or not (_is_unfinished(before) or next_.forwarded):
        return False
    is_next = next_.number == one.number + 1 and event.envelope.sender.identity == before.envelope.sender.identity
    return is_next and _are_close(before.envelope.event, event.envelope.event)


def _are_close(one: Event, next_: Event) -> bool:
    if one.sent_at is None or next_.sent_at is None:
        return False
    return 0 <= (next_.sent_at - one.sent_at).total_seconds() <= _APART_S


def _has_room(events: Sequence[Inbound], event: Inbound) -> bool:
    payloads = [one.envelope.payload for one in (*events, event)]
    return (
        len(payloads) <= MAX_EVENTS
        and sum(len(one.normalized_text) + 2 for one in payloads) <= MAX_TEXT
        and sum(max(len(one.passages), 1) for one in payloads) <= MAX_PASSAGES
        and sum(len(one.attachments) for one in payloads) <= _MAX_FILES
    )


def _event(first: Event, others: Sequence[Inbound]) -> Event:
    numbers = [other.piece.number for other in others if other.piece is not None]
    address: JsonObject | None = first.reply_address
    if address is not None and numbers:
        address = {**address, "also": numbers}
    also = tuple(other.envelope.event.external_event_id for other in others)
    return with_fields(first, also=also, reply_address=address)


def _payload(events: Sequence[Inbound]) -> Payload:
    payloads = [event.envelope.payload for event in events]
    passages = _passages(events)
    return with_fields(
        payloads[0],
        normalized_text=joined(passages),
        passages=passages if has_others_words(passages) else (),
        attachments=tuple(chain.from_iterable(one.attachments for one in payloads)),
    )


def _passages(events: Sequence[Inbound]) -> tuple[Passage, ...]:
    """Those of all events; a text that was split goes on within its passage."""
    read = passages_of if any(event.envelope.payload.passages for event in events) else _as_own
    found, cut = list[Passage](), None
    for event in events:
        here = read(event.envelope)
        if cut is not None and found and here and not event.files:
            here = (*_rejoin_passages(found.pop(), cut, here[0]), *here[1:])
        found += here
        cut = None if event.piece is None else event.piece.cut
    return tuple(found)


def _as_own(envelope: Envelope) -> tuple[Passage, ...]:
    """The text as it stands: nobody has read its passages yet."""
    text = envelope.payload.normalized_text
    return (Passage(kind="own", text=text),) if text else ()


def _rejoin_passages(one: Passage, cut: str, next_: Passage) -> Iterator[Passage]:
    """Two passages between which a text was split.

    A text is also split within lines. So what follows a quoted line is quoted up to the end of its line: perhaps it is
    the rest of it.
    """
    glue = " " if cut and _ends_marked(one) and not is_marked(bare(next_.text)) else cut
    if (one.kind, one.author) == (next_.kind, next_.author) and one.kind != "quoted":
        yield with_fields(one, text=f"{one.text}{glue}{next_.text}")
        return
    if (one.kind, next_.kind) != ("quoted", "own"):
        yield from (one, next_)
        return
    line = next_.text.splitlines(keepends=True)[0]
    yield with_fields(one, text=f"{one.text}{glue}{line.rstrip()}")
    if rest := next_.text[len(line) :].strip():
        yield with_fields(next_, text=rest)


def _ends_marked(one: Passage) -> bool:
    """Whether its last line begins with the mark of a quotation."""
    return is_marked(bare(one.text.splitlines()[-1]))


def _renumber_files(events: Sequence[Inbound]) -> list[FileIn]:
    files, before = list[FileIn](), 0
    for event in events:
        files += [replace(file, attachment=file.attachment + before) for file in event.files]
        before += len(event.envelope.payload.attachments)
    return files
