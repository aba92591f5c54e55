"""State for resuming streams: the place in the message that each event leads to.

`connection.py` opens one for each streamed answer, and numbers its events here. The text itself is not kept:
`app/messages/stream.py` continues from a place. Next: `connection.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_urlsafe
from typing import Final
from uuid import UUID

from switchboard.app.messages.chat import Speaker

KEEP_S: Final = 300.0
"""Seconds for which a stream is kept after its last event."""
_OF_ONE: Final = 100
_OF_ALL: Final = 2000
_PLACES: Final = 128
"""How many events back a client can continue: some seconds of a fast model."""


@dataclass(slots=True)
class ChatStream:
    """The events of one answer. `reader`: the present sender; `ended`: the last one was sent."""

    speaker: Speaker
    request_id: UUID
    used_at: float
    stream: str = field(default_factory=lambda: token_urlsafe(16))
    reader: asyncio.Task[None] | None = None
    ended: bool = False
    _seq: int = 0
    _places: deque[tuple[int, str | None]] = field(default_factory=lambda: deque([(0, None)], _PLACES))

    @property
    def place(self) -> str | None:
        """Where to continue; None: at the beginning."""
        return self._places[-1][1]

    def number(self, place: str) -> int:
        """The number of the next event. `place`: where to continue after it, "" if that is not possible."""
        self._seq += 1
        if place:
            self._places.append((self._seq, place))
        return self._seq

    def go_back(self, seq: int) -> bool:
        """Continue after the event with this number; False if its place is no longer known.

        Events between the place and this one are repeated under new numbers, which is harmless as deltas have offsets.
        """
        if seq > self._seq or self._places[0][0] > seq:
            return False
        self.ended = self.ended and seq == self._seq
        while self._places[-1][0] > seq:
            self._places.pop()
        self._seq = seq
        return True


class ChatStreams:
    """All streams of this process. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._streams: dict[str, ChatStream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, speaker: Speaker, request_id: UUID) -> ChatStream:
        """A new one; the least recently used one makes room, first among this speaker's."""
        self._forget_idle()
        own = [one for one in self._streams.values() if one.speaker == speaker]
        if len(own) >= _OF_ONE:
            del self._streams[own[0].stream]
        elif len(self._streams) >= _OF_ALL:
            del self._streams[next(iter(self._streams))]
        opened = ChatStream(speaker, request_id, self._clock())
        self._streams[opened.stream] = opened
        return opened

    def find(self, speaker: Speaker, stream: str) -> ChatStream | None:
        """The stream of this speaker with this id."""
        self._forget_idle()
        found = self._streams.get(stream)
        return found if found is not None and found.speaker == speaker else None

    def touch(self, stream: ChatStream) -> None:
        """Mark it as just used."""
        stream.used_at = self._clock()
        if self._streams.pop(stream.stream, None) is not None:
            self._streams[stream.stream] = stream

    def _forget_idle(self) -> None:
        """Forget streams that nobody has used for long, which come first."""
        before = self._clock() - KEEP_S
        while self._streams and (first := next(iter(self._streams.values()))).used_at < before:
            del self._streams[first.stream]
