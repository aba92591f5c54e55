"""The scripted platform as one that pushes: over a socket, again and again until an event is answered.

What was not answered within a while is only in its history, from which a session catches up when it begins. Next:
`pushing.py`, the laws.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from switchboard.connectors.kernel.posted import batches_while
from switchboard.ports.connector import (
    DEAF_S,
    Account,
    Batch,
    Inbound,
    PostedEvents,
    Session,
    SignInRefused,
    Unreadable,
)
from switchboard.testing.connectors.platform import ScriptedPlatform, ScriptedSession


@dataclass(slots=True, eq=False)
class ScriptedSocket:
    """A connection. What is `pushed` over it stays there until it is read; a `cut` one delivers nothing more."""

    pushed: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    deaf: bool = False
    cut: bool = False

    async def frame(self) -> bytes:
        """The next event. Raises OSError once the socket is cut."""
        raw = await self.pushed.get()
        if self.cut:
            raise OSError("the socket is cut")
        return raw


@dataclass(slots=True)
class ScriptedPushPlatform(ScriptedPlatform):
    """The platform, which is also its own driver."""

    poll_s: float = 20.0
    window_s: float = 300.0
    """For how long an event that is not answered is pushed over each new socket."""
    answered: list[bytes] = field(default_factory=list)
    """The events that the account has answered, which are pushed no more."""
    socket: ScriptedSocket | None = None
    """The newest one, over which events are pushed."""
    sign_ins_left: int | None = None
    """How many more sockets may be opened today."""
    pushes: dict[bytes, float] = field(default_factory=dict)
    """When each event was first to be pushed."""
    closed_until: float = 0.0
    """When sockets can be opened again."""
    session: Callable[[ScriptedPushPlatform], Session] = field(default_factory=lambda: PushSession)
    """Opens the account."""

    def add(self, thread: str, text: str, **more: Any) -> Inbound:
        """Add an event, and push it."""
        event = ScriptedPlatform.add(self, thread, text, **more)
        self._push_event(event)
        return event

    def break_one(self, event_id: str) -> None:
        """Add an event that cannot be parsed, and push it."""
        ScriptedPlatform.break_one(self, event_id)
        self._push_event(self.events[-1])

    def acknowledged(self) -> int:
        """How many events the account has answered."""
        return len(set(self.answered))

    def pushes_again(self) -> None:
        """Push the last event once more, as if its answer had got lost."""
        if self.socket is not None:
            self.socket.pushed.put_nowait(self.events[-1].raw)

    def drops_socket(self) -> None:
        """Cut the connection."""
        if self.socket is not None:
            self.socket.cut = True
            self.socket.pushed.put_nowait(b"")
            self.socket = None

    def goes_deaf(self) -> None:
        """The present socket delivers nothing more, and stays open."""
        if self.socket is not None:
            self.socket.deaf = True

    def cuts(self, seconds: float) -> None:
        """Cut the connection, and let none be opened for so long."""
        self.closed_until = asyncio.get_running_loop().time() + seconds
        self.drops_socket()

    def leaves_sign_ins(self, left: int) -> None:
        """So many sockets may still be opened today."""
        self.sign_ins_left = left

    def overdrawn(self) -> bool:
        """Whether all of them were opened."""
        return self.sign_ins_left is not None and self.sign_ins_left <= 0

    def open_socket(self) -> ScriptedSocket:
        """A new socket, over which what was not answered comes again. Raises OSError."""
        self.asks()
        now = asyncio.get_running_loop().time()
        if now < self.closed_until:
            raise OSError("nobody answers")
        if self.sign_ins_left is not None:
            self.sign_ins_left -= 1
        self.socket = ScriptedSocket()
        for event in self.events:
            self.pushes.setdefault(event.raw, now)  # also one that is the same in other bytes
            if event.raw not in self.answered and now - self.pushes[event.raw] <= self.window_s:
                self.socket.pushed.put_nowait(event.raw)
        return self.socket

    def _push_event(self, event: Inbound | Unreadable) -> None:
        self.pushes[event.raw] = asyncio.get_running_loop().time()
        if self.socket is not None and not self.socket.deaf:
            self.socket.pushed.put_nowait(event.raw)

    async def _open_session(self, account: Account) -> Session:
        await ScriptedPlatform._open_session(self, account)
        return self.session(self)


class PushSession(ScriptedSession):
    """Answers each event when it is kept, and catches up from the history when it begins."""

    deaf_s: float | None = DEAF_S
    reserve = 2
    """Sign-ins of a day that it leaves unused, as the platform punishes one too many."""

    def __init__(self, platform: ScriptedPushPlatform) -> None:
        super().__init__(platform)
        self.pushing = platform
        self._posted: PostedEvents | None = None
        self._after = self.seen = 0

    def receive_posted(self, cursor: str | None, posted: PostedEvents) -> AsyncIterator[Batch]:
        """What was missed, and then what is pushed."""
        self._posted = posted
        self._after, self.seen = self._read_cursor(cursor)
        return batches_while(lambda: self.listen(posted), self._missed_and_pushed(posted))

    async def listen(self, posted: PostedEvents) -> None:
        """Have everything kept, and answer it, until the socket is cut or may be deaf."""
        left = self.pushing.sign_ins_left
        if left is not None and left <= self.reserve:
            raise SignInRefused("signed in too often today")
        socket = self.pushing.open_socket()
        while True:
            try:
                async with asyncio.timeout(self.deaf_s):
                    raw = await socket.frame()
            except TimeoutError:
                raise OSError("nothing came over the socket for half an hour") from None
            await self.take(raw, posted)

    async def take(self, raw: bytes, posted: PostedEvents) -> None:
        """Have an event kept, and then answer it."""
        await posted.keep(raw, raw.hex())
        self.pushing.answered.append(raw)

    async def _missed_and_pushed(self, posted: PostedEvents) -> AsyncGenerator[Batch, None]:
        while missed := self.pushing.events[self.seen : self.seen + 50]:
            self.seen += len(missed)
            yield Batch(tuple(missed), self._cursor_now())
        while True:
            kept = await posted.posted(self._after, self.pushing.poll_s)
            events = [await self.read(raw) for _, raw in kept]
            if kept:
                self._after = kept[-1][0]
                self.seen = max(self.seen, *(self._number_of(one) for one in events))
            late = self.pushing.take_reports()
            yield Batch(tuple(events), self._cursor_now() if kept else None, late=late)

    async def read(self, raw: bytes) -> Inbound | Unreadable:
        """The event with these bytes."""
        return next((one for one in self.pushing.events if one.raw == raw), Unreadable("gone", raw, "no event"))

    async def confirm(self, cursor: str) -> None:
        """What is settled is kept no longer."""
        after, _ = self._read_cursor(cursor)
        if self._posted is not None:
            await self._posted.settle_posted(after)

    async def latest(self) -> str | None:
        """After all that there is."""
        return f"0@{await super().latest()}"

    def _number_of(self, event: Inbound | Unreadable) -> int:
        return self.pushing.events.index(event) + 1 if event in self.pushing.events else 0

    def _cursor_now(self) -> str:
        return f"{self._after}@{self._cursor_at(self.seen)}"

    def _read_cursor(self, cursor: str | None) -> tuple[int, int]:
        after, _, seen = (cursor or "0@").partition("@")
        return int(after), self._index_of(seen or None)
