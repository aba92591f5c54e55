"""The gateway: sessions with their events, and the sockets that they are sent over.

Called by `server.py`. An event has a number in each session that gets it; a session outlives its socket for some
minutes, and gives everything after a number again.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect

from switchboard.domain.json_values import JsonMapping, JsonObject

GUILDS, GUILD_MESSAGES, GUILD_REACTIONS = 1 << 0, 1 << 9, 1 << 10
DIRECT_MESSAGES, DIRECT_REACTIONS, MESSAGE_CONTENT = 1 << 12, 1 << 13, 1 << 15
PRIVILEGED_OTHERS: Final = 1 << 1 | 1 << 8
"""Members and presences, which this bot was not given."""
ALL_INTENTS: Final = (1 << 26) - 1
RESUME_S: Final = 180.0
"""For how long a session waits for its client. Discord says: a few minutes."""
IDENTIFIES: Final = 1000
IDENTIFY_S: Final = 5.0
"""In which there may be one sign-in (`max_concurrency`)."""
DAY_S: Final = 86_400.0
SESSION_ENDS: Final = frozenset({1000, 1001, 4004, 4007, 4009, 4013, 4014})
"""With these closes, of either side, the session is over."""


@dataclass(slots=True, eq=False)
class Session:
    """What a client has signed in to. `left_at`: when its socket was lost; None while there is one."""

    id: str
    intents: int
    events: list[JsonObject] = field(default_factory=list)
    number: int = 0
    """Of the last event."""
    left_at: float | None = None

    def add(self, name: str, data: JsonMapping) -> None:
        """An event for the client."""
        self.number += 1
        self.events.append({"op": 0, "t": name, "s": self.number, "d": data})

    def after(self, number: int) -> list[JsonObject]:
        """The events after this number."""
        return [one for one in self.events if one["s"] > number]


@dataclass(slots=True, eq=False)
class Link:
    """A socket of the client. `is_deaf`: it gets no events, though heartbeats are acknowledged; `acks`: whether."""

    web: WebSocket
    compressor: zlib._Compress | None
    heard_at: float
    session: Session | None = None
    given: int = 0
    """The number of the last event that was sent."""
    is_deaf: bool = False
    acks: bool = True
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def send(self, payload: JsonMapping) -> None:
        """One frame, compressed if the client has asked for it."""
        async with self._turn:
            text = json.dumps(payload)
            if self.compressor is None:
                await self.web.send_text(text)
                return
            data = self.compressor.compress(text.encode()) + self.compressor.flush(zlib.Z_SYNC_FLUSH)
            await self.web.send_bytes(data)

    async def give_events(self) -> bool:
        """Send the events that it has not got; whether there were any."""
        if self.session is None or self.is_deaf:
            return False
        due = self.session.after(self.given)
        with suppress(WebSocketDisconnect):  # it was broken just now; whoever reads it will notice
            for event in due:
                self.given = event["s"]
                await self.send(event)
        return bool(due)


class Sessions:
    """All sessions of the bot. `identified` are the times of its sign-ins."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._found: dict[str, Session] = {}
        self._made = 0
        self.identified: list[float] = []

    @property
    def left(self) -> int:
        """How many sign-ins are left of this day's."""
        begin = self._clock() - DAY_S
        return IDENTIFIES - sum(at > begin for at in self.identified)

    @property
    def reset_after(self) -> float:
        """In how many seconds all sign-ins will be there again."""
        begin = self._clock() - DAY_S
        return max((at - begin for at in self.identified if at > begin), default=0.0)

    def is_too_soon(self) -> bool:
        """Whether the last sign-in was just now."""
        return bool(self.identified) and self._clock() - self.identified[-1] < IDENTIFY_S

    def begin(self, intents: int) -> Session:
        """A new session; it is one sign-in."""
        self._made += 1
        self.identified.append(self._clock())
        made = Session(f"session-{self._made}", intents)
        self._found[made.id] = made
        return made

    def find(self, session_id: str) -> Session | None:
        """A session that can be resumed."""
        found = self._found.get(session_id)
        if found is None or (found.left_at is not None and self._clock() - found.left_at > RESUME_S):
            return None
        return found

    def leave(self, session: Session, code: int) -> None:
        """Its socket is closed; with some codes, that is its end."""
        session.left_at = self._clock()
        if code in SESSION_ENDS:
            self._found.pop(session.id, None)

    def clear(self) -> None:
        """No session can be resumed any more."""
        self._found.clear()

    def add(self, name: str, intent: int, show: Callable[[bool], JsonMapping]) -> None:
        """An event, for all sessions with this intent; `show` is told whether the session may read contents."""
        for session in self._found.values():
            if session.intents & intent:
                session.add(name, show(bool(session.intents & MESSAGE_CONTENT)))


def as_ready(session: Session, url: str, user: JsonObject, flags: int, guilds: Iterable[str]) -> JsonObject:
    """READY: what a client must know to resume."""
    about: JsonObject = {"v": 10, "user": user, "guilds": [], "shard": [0, 1]}
    about["guilds"] += ({"id": one, "unavailable": True} for one in guilds)
    application = {"id": user["id"], "flags": flags}
    return about | {"session_id": session.id, "resume_gateway_url": url, "application": application}
