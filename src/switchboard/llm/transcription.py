"""Asking a server what is said in a recording: `POST /audio/transcriptions`, as OpenAI and many others offer it.

`app/models/transcriber.py` opens a `TranscriptionApi`, `journey/hearing.py` calls it through its port. A recording goes
in, at most one request leaves (two where a server does not know the form with segments), and the cost is booked on the
day. Next: `web.py`, what a status means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

import httpx2

from switchboard.core.policy.budget import Amount, BudgetRefusal, Cap
from switchboard.core.text.lenient import items, json_value, mapping, sanitize_error, string
from switchboard.core.voice.settings import AUTO, TranscriptionSettings
from switchboard.core.voice.transcripts import MOST_REASON
from switchboard.domain.llm import AWAY, Bill, ModelFailure
from switchboard.llm.openai_api import address_below
from switchboard.llm.spending import Spending
from switchboard.llm.web import broken_failure, status_failure
from switchboard.ports.transcription import HeardText, SpokenRecording, TranscriptionFailed

ASKER: Final = "transcribe"
"""What a model was asked for, in the account of models."""
_PATH: Final = b"/audio/transcriptions"
_TYPES: Final = {
    "ogg": "audio/ogg",
    "m4a": "audio/mp4",
    "mp4": "video/mp4",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "webm": "audio/webm",
    "flac": "audio/flac",
}
_PASSING: Final = frozenset({408, 425, 429})
"""What a server that refuses a request may take a little later; all other refusals are final."""
_ONLY_JSON: Final = "gpt-4o"
"""Models whose names begin like this do not say which parts of a recording they are sure of."""
_NO_SPEECH: Final = 0.6
_UNSURE: Final = -0.7
_REPETITIVE: Final = 2.4
"""Beyond these a model has written something where nobody spoke: "Thank you for watching", or the same word for ever.
In silence, Whisper base hears "You", at 0.72 and -0.77."""


class TranscriptionApi:
    """A `Transcriber` that asks the server of the settings, over a client that it closes."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        settings: TranscriptionSettings,
        key: Mapping[str, str],
        spending: Spending,
        cap: Cap,
    ) -> None:
        """`settings` have a `url`; `key`: the header with it. `cap`: what models may cost in a day, this included."""
        self._http = http
        self._settings = settings
        self._spending = spending
        self._cap = cap
        self._url = address_below(httpx2.URL(settings.url or ""), _PATH)
        self._headers = {"Accept": "application/json", "User-Agent": "switchboard", **key}
        self._form = "json" if settings.model.startswith(_ONLY_JSON) else "verbose_json"

    async def aclose(self) -> None:
        """Close the client."""
        await self._http.aclose()

    async def transcribe(self, recording: SpokenRecording) -> HeardText:
        """As in the port."""
        wanted = Amount(micros=self._settings.micros(recording.seconds or self._settings.max_seconds))
        reserved = await self._spending.reserve(wanted, self._cap)
        if isinstance(reserved, BudgetRefusal):
            raise TranscriptionFailed("the budget of the day is used up")
        bill: Bill | None = None
        try:
            said = await self._ask_in_time(recording)
            seconds = said.seconds or recording.seconds or self._settings.max_seconds
            bill = Bill(ASKER, self._settings.model, micros=self._settings.micros(seconds))
        except ModelFailure as failure:
            bill = Bill(ASKER, self._settings.model, failed=True)
            raise _failure_for_reader(failure) from failure
        finally:
            await self._spending.settle(reserved, bill)
        return said

    async def _ask_in_time(self, recording: SpokenRecording) -> HeardText:
        try:
            async with asyncio.timeout(self._settings.timeout):
                return await self._ask(recording)
        except TimeoutError:
            raise ModelFailure("timeout", f"no answer within {self._settings.timeout:g} s") from None

    async def _ask(self, recording: SpokenRecording) -> HeardText:
        try:
            return await self._ask_for(recording, self._form)
        except ModelFailure as failure:
            if self._form == "json" or "response_format" not in failure.message:
                raise
            self._form = "json"
            return await self._ask_for(recording, self._form)

    async def _ask_for(self, recording: SpokenRecording, form: str) -> HeardText:
        settings = self._settings
        fields = {"model": settings.model, "response_format": form, "temperature": "0"}
        if recording.language != AUTO:
            fields["language"] = recording.language
        if settings.prompt:
            fields["prompt"] = settings.prompt
        file = (recording.name, recording.data, _TYPES[recording.name.rpartition(".")[2]])
        try:
            response = await self._http.post(self._url, data=fields, files={"file": file}, headers=self._headers)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise broken_failure(error) from error
        if not response.is_success:
            said = response.content.decode(errors="replace")
            failure = status_failure(response.status_code, response.headers, said)
            failure.retryable &= response.status_code >= 500 or response.status_code in _PASSING
            raise failure
        return read_transcript(response.content.decode(errors="replace"))


def read_transcript(body: str) -> HeardText:
    """The transcript in an answer, without what its model wrote where nobody spoke. Raises ModelFailure."""
    answer = mapping(json_value(body))
    if "text" not in answer:
        raise ModelFailure("garbage", "the answer is no transcript")
    segments = answer.get("segments")
    text = "".join(_spoken_texts(segments)) if isinstance(segments, list) else string(answer.get("text"))
    return HeardText(text.strip(), string(answer.get("language")), _number_in(answer.get("duration")))


def _spoken_texts(segments: object) -> Iterator[str]:
    for one in items(segments):
        silent = (_number_in(one.get("no_speech_prob")) or 0.0) > _NO_SPEECH
        unsure = (_number_in(one.get("avg_logprob")) or 0.0) < _UNSURE
        repetitive = (_number_in(one.get("compression_ratio")) or 0.0) > _REPETITIVE
        if not (silent and unsure) and not repetitive:
            yield string(one.get("text"))


def _number_in(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _failure_for_reader(failure: ModelFailure) -> TranscriptionFailed:
    """What butlers are told: nothing of our keys, and not the words of a server that answers with a page."""
    if failure.kind == "auth":
        return TranscriptionFailed("the server refuses our key")
    away = failure.retryable and failure.kind in AWAY | {"garbage"}
    return TranscriptionFailed(sanitize_error(f"the server failed: {failure.message}")[:MOST_REASON], away=away)
