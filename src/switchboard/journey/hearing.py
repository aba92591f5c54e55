"""Hearing: what the recordings of a message say, for whoever is about to read it.

The legs of `classify.py` and `turn.py` call `Hearing.listen` after the rules, which compare facts and never words, and
before anything reads the message. What was heard is kept by one fenced write, so that a crash, a second reader and the
same bytes in another message do not pay again. A server that is away holds up the conversation for a minute at most:
the item gives its place to others between two tries, and then the message goes on without a transcript. Next:
`core/voice/transcripts.py`, how it is read; `llm/transcription.py`, who is asked.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Final, Protocol
from uuid import UUID

from msgspec import Struct

from switchboard.core.files.blobs import stored_blob
from switchboard.core.policy.retry import backoff
from switchboard.core.voice.recordings import (
    MOST,
    FoundRecording,
    name_for_server,
    recordings_in,
    refused_type,
    seconds_of_ogg,
)
from switchboard.core.voice.settings import TranscriptionSettings
from switchboard.core.voice.transcripts import MOST_REASON, HeardRecording, clean_transcript
from switchboard.domain.envelope import Attachment, Envelope
from switchboard.domain.ledger import Item
from switchboard.lanes.faults import point
from switchboard.lanes.kinds import Claim
from switchboard.ports.engine import Fenced, Files
from switchboard.ports.transcription import HeardText, SpokenRecording, Transcriber, TranscriptionFailed
from switchboard.store.database import Database
from switchboard.store.work import transcriptions as store
from switchboard.store.work.transcriptions import (
    DayOfSpeech,
    EndedTry,
    KnownTranscript,
    RecordingPlace,
    WantedTranscript,
)

_LEAST_BYTES_PER_SECOND: Final = 1000
"""Of speech: a recording of which nobody says how long it is takes no more seconds than this makes of its bytes."""
_OFF: Final = "no transcription is set up"
_TOO_MANY: Final = f"only the first {MOST} recordings of a message are transcribed"
_GONE: Final = "its file is not stored"
_DAY_USED_UP: Final = "the recordings of this day have reached the limit"
_BUSY: Final = "the server had too much to do"


class HearingPolicy(Struct, frozen=True):
    """How long a message waits, in seconds: for `tries` of a server that is away, and for one that is only busy."""

    tries: int = 3
    within: float = 60.0
    pause: float = 2.0
    busy: float = 600.0


_USUAL: Final = HearingPolicy()


class NotHeardYet(Exception):
    """It is not known yet what a message says. Another attempt makes sense in `retry_in` seconds, without a place."""

    def __init__(self, reason: str, retry_in: float) -> None:
        super().__init__(reason)
        self.retry_in = retry_in


class Listens(Protocol):
    """What the legs need of `Hearing`."""

    async def listen(
        self, item: Item, claim: Claim, request_id: UUID, envelope: Envelope
    ) -> Sequence[HeardRecording]: ...


class _Wanted(Struct, frozen=True):
    """A recording, the item that wants to know what it says, and the language that is expected."""

    place: RecordingPlace
    attachment: Attachment
    language: str


class Hearing:
    """Listens to recordings, as many at once as the settings allow; without a transcriber it says there is none."""

    def __init__(
        self,
        database: Database,
        files: Files,
        settings: TranscriptionSettings,
        transcriber: Transcriber | None,
        policy: HearingPolicy = _USUAL,
    ) -> None:
        self._database = database
        self._files = files
        self._settings = settings
        self._transcriber = transcriber
        self._policy = policy
        self._free = settings.concurrency
        self._away = ""
        """Why the server could not be used when it was last asked; empty: it could."""

    async def listen(self, item: Item, claim: Claim, request_id: UUID, envelope: Envelope) -> Sequence[HeardRecording]:
        """What is heard in the recordings of a message: in voice and video messages, and in what the settings name.

        Raises `NotHeardYet`, `Fenced`, `Unavailable`.
        """
        if not envelope.payload.attachments:
            return ()
        heard = list[HeardRecording]()
        language = self._settings.language_of(envelope.source.channel, envelope.source.endpoint_identity)
        for found in recordings_in(envelope.payload.attachments):
            unfit = _TOO_MANY if len(heard) >= MOST else self._reason_against(found)
            if self._transcriber is None and found.attachment.voice:
                heard.append(HeardRecording(found.attachment, reason=_OFF))
            elif self._transcriber is not None and (found.attachment.voice or found.kind in self._settings.media):
                place = RecordingPlace(claim.worker, item, request_id, found.n)
                heard.append(
                    await self._hear_recording(self._transcriber, _Wanted(place, found.attachment, language), unfit)
                )
        return heard

    def _reason_against(self, found: FoundRecording) -> str | None:
        """Why a recording is not sent, as far as its metadata say so."""
        settings, one = self._settings, found.attachment
        if found.kind not in settings.media:
            return f"{found.kind} is not among the recordings that are transcribed here"
        if stored_blob(one) is None:
            return (one.unavailable or _GONE)[:MOST_REASON]
        if one.size_bytes > settings.max_bytes:
            return f"larger than {settings.max_bytes / 1_048_576:.3g} MB"
        return self._too_long(one.seconds)

    def _too_long(self, seconds: int | None) -> str | None:
        most = self._settings.max_seconds
        return f"longer than {most / 60:.3g} min" if seconds is not None and seconds > most else None

    async def _hear_recording(self, transcriber: Transcriber, wanted: _Wanted, unfit: str | None) -> HeardRecording:
        may_ask = unfit is None and self._free > 0
        self._free -= may_ask
        try:
            known = await self._begin_try(wanted, may_ask=may_ask)
            if known.state == "done":
                return HeardRecording(wanted.attachment, known.text)
            if known.state == "failed":
                return HeardRecording(wanted.attachment, reason=known.error or _GONE)
            if known.asked:
                return await self._ask(transcriber, wanted, known)
        finally:
            self._free += may_ask
        if unfit is None and not known.is_full:
            return await self._wait_on(wanted, known)
        return await self._give_up(wanted, unfit or _DAY_USED_UP)

    async def _begin_try(self, wanted: _Wanted, *, may_ask: bool) -> KnownTranscript:
        settings, one = self._settings, wanted.attachment
        seconds = min(one.seconds or -(-one.size_bytes // _LEAST_BYTES_PER_SECOND), settings.max_seconds)
        asked = WantedTranscript(stored_blob(one) or b"", settings.model, wanted.language, settings.host, seconds)
        day = DayOfSpeech(datetime.now(UTC).date(), settings.day_seconds)
        known = await store.begin(self._database, wanted.place, asked, day, may_ask=may_ask)
        if known is None:
            raise Fenced
        return known

    async def _ask(self, transcriber: Transcriber, wanted: _Wanted, known: KnownTranscript) -> HeardRecording:
        """Send the recording, and keep what comes back before anybody reads it."""
        began = monotonic()
        try:
            recording = await self._read_recording(wanted)
            said = await transcriber.transcribe(recording)
        except TranscriptionFailed as failure:
            self._away = failure.reason if failure.away else ""
            return await self._after_failure(wanted, known, failure, known.waited_s + monotonic() - began)
        self._away = ""
        text = clean_transcript(said.text)
        point("before_transcript")
        await self._end_try(wanted, EndedTry("done", text, said.language, seconds=_seconds_of(said, recording)))
        point("after_transcript")
        return HeardRecording(wanted.attachment, text)

    async def _read_recording(self, wanted: _Wanted) -> SpokenRecording:
        """The bytes as they are sent. Raises `TranscriptionFailed` for those that should not be."""
        data = b"".join([piece async for piece in self._files.read(wanted.attachment)])
        if not data:
            raise TranscriptionFailed(_GONE)
        name = name_for_server(data)
        if name is None:
            raise TranscriptionFailed(f"the server takes no {refused_type(data, wanted.attachment.media_type)}")
        lengths = [one for one in (wanted.attachment.seconds, seconds_of_ogg(data)) if one is not None]
        seconds = max(lengths, default=None)
        if too_long := self._too_long(seconds):
            raise TranscriptionFailed(too_long)
        return SpokenRecording(name, data, wanted.language, seconds)

    async def _after_failure(
        self, wanted: _Wanted, known: KnownTranscript, failure: TranscriptionFailed, waited: float
    ) -> HeardRecording:
        """Try again after a pause, without a place, as long as that may help."""
        policy = self._policy
        pause = backoff(known.tries, base=policy.pause, jitter=random.random())
        if not failure.away or known.tries >= policy.tries or waited + pause > policy.within:
            return await self._give_up(wanted, failure.reason)
        await self._end_try(wanted, EndedTry("open", error=failure.reason))
        raise NotHeardYet(failure.reason, pause)

    async def _wait_on(self, wanted: _Wanted, known: KnownTranscript) -> HeardRecording:
        """Give the place away until a request has ended, of this recording or of another one."""
        policy = self._policy
        if known.waited_s > (policy.within if self._away else policy.busy):
            return await self._give_up(wanted, self._away or known.error or _BUSY)
        raise NotHeardYet(_BUSY, policy.pause * (0.5 + random.random()))

    async def _give_up(self, wanted: _Wanted, reason: str) -> HeardRecording:
        await self._end_try(wanted, EndedTry("failed", error=reason[:MOST_REASON]))
        return HeardRecording(wanted.attachment, reason=reason[:MOST_REASON])

    async def _end_try(self, wanted: _Wanted, ended: EndedTry) -> None:
        if not await store.end(self._database, wanted.place, ended):
            raise Fenced


def _seconds_of(said: HeardText, recording: SpokenRecording) -> int | None:
    """How long the recording was, as the server has counted it, otherwise as it says itself."""
    return recording.seconds if said.seconds is None else -int(-said.seconds // 1)
