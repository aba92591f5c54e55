"""What a machine heard in recordings of messages: each asked for by one item at a time, and kept once.

`journey/hearing.py` begins and ends; `app/messages/explain.py` shows. Both writes are fenced: a worker that has lost
its item writes nothing. Next: `sql/functions/transcriptions.sql`.
"""

from __future__ import annotations

from datetime import date
from typing import Literal
from uuid import UUID

from msgspec import Struct

from switchboard.core.text.storable import storable_or_none, storable_text
from switchboard.domain.ledger import Item
from switchboard.domain.shown import ShownTranscription
from switchboard.store.database import Database, query, row_as, rows_as

TranscriptionState = Literal["open", "done", "failed"]


class RecordingPlace(Struct, frozen=True):
    """A recording of a message, for which an item held by a worker wants to know what it says."""

    worker: int
    item: Item
    request_id: UUID
    n: int

    @property
    def columns(self) -> tuple[object, ...]:
        """As the functions take them."""
        held = self.item
        return self.worker, held.lane, held.epoch, held.seq, self.request_id, self.n


class WantedTranscript(Struct, frozen=True):
    """What is to be transcribed, by whom, and how long it is at most. `blob` empty: the bytes are not stored."""

    blob: bytes
    model: str
    language: str
    host: str
    seconds: int


class DayOfSpeech(Struct, frozen=True):
    """A day, and how many seconds may be sent in it; 0: no limit."""

    day: date
    most_seconds: int


class KnownTranscript(Struct, frozen=True):
    """What is known. `asked`: the server is to be asked now; `is_full`: the day is used up.

    `waited_s`: since this was first wanted.
    """

    state: TranscriptionState
    tries: int
    text: str
    error: str | None
    waited_s: float
    asked: bool
    is_full: bool


class EndedTry(Struct, frozen=True):
    """How a try ended. `open`: there will be another. `seconds` as the server has counted them, if it has."""

    state: TranscriptionState
    text: str = ""
    spoken: str = ""
    error: str | None = None
    seconds: int | None = None


async def begin(
    database: Database, place: RecordingPlace, wanted: WantedTranscript, day: DayOfSpeech, *, may_ask: bool
) -> KnownTranscript | None:
    """What is known of a recording, and whether to ask; None: fenced."""
    values = (wanted.blob, wanted.model, wanted.language, wanted.host, wanted.seconds, may_ask)
    row = await database.row(query("transcriptions.begin"), *place.columns, *values, day.day, day.most_seconds)
    return row_as(KnownTranscript, row)


async def end(database: Database, place: RecordingPlace, ended: EndedTry) -> bool:
    """Write how a try ended; False: fenced."""
    texts = (storable_text(ended.text), storable_text(ended.spoken), storable_or_none(ended.error))
    return bool(await database.value(query("transcriptions.end"), *place.columns, ended.state, *texts, ended.seconds))


async def of_message(database: Database, request_id: UUID) -> list[ShownTranscription]:
    """What was heard in a message, or not, by the place of the attachment."""
    return rows_as(ShownTranscription, await database.rows(query("transcriptions.of_message"), request_id))
