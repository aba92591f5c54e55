"""What writes down recordings: the port of `journey/hearing.py`, which `llm/transcription.py` implements.

A recording goes in; its words come out, or a failure that says whether another try makes sense.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class SpokenRecording(Struct, frozen=True):
    """The bytes of a recording, under a name whose suffix says what they are; seconds, None if unknown."""

    name: str
    data: bytes
    language: str
    seconds: int | None = None


class HeardText(Struct, frozen=True):
    """What was said; empty: nothing. `language` and `seconds` as the server has found them, if it says so."""

    text: str
    language: str = ""
    seconds: float | None = None


class TranscriptionFailed(Exception):
    """Why there is no transcript, in words that butlers may read.

    `away`: the server cannot be used at the moment, whatever it is sent; then another try makes sense.
    """

    def __init__(self, reason: str, *, away: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.away = away


class Transcriber(Protocol):
    """A server that transcribes, within the budget of the day."""

    async def transcribe(self, recording: SpokenRecording) -> HeardText:
        """Ask it once. Raises `TranscriptionFailed`, `Unavailable`."""
        ...
