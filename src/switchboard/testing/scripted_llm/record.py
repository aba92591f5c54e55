"""The record: every request with its reply and its ending, and the gates at which replies wait.

`endpoints.py` writes it while it answers; `server.py` shows it to tests.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from switchboard.testing.scripted_llm.request import Request
from switchboard.testing.scripted_llm.script import Reply

Ending = Literal["answered", "failed", "cut", "left", "unscripted"]
"""Answered completely; failed with a deliberate error; cut by us; the client left; the script had no reply."""


class Exchange(Struct, frozen=True):
    """A request, its reply, and how it ended; `ending` is None while it is being answered."""

    request: Request
    reply: Reply | None = None
    ending: Ending | None = None


@dataclass(slots=True)
class Gate:
    """A gate at which replies wait until it is released; then it stays open."""

    opened: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)


class Record:
    """Grows while the server runs."""

    def __init__(self) -> None:
        self.exchanges: dict[int, Exchange] = {}
        self.strays: list[str] = []
        self.ended = asyncio.Event()
        self.most_at_once = 0
        self._at_once = 0
        self.gates: defaultdict[str, Gate] = defaultdict(Gate)
        self._changed = asyncio.Condition()

    def next_number(self) -> int:
        """The number of the next request."""
        return len(self.exchanges) + 1

    async def note(self, exchange: Exchange) -> None:
        """Store an exchange, replacing its earlier version."""
        self._at_once += (exchange.request.number not in self.exchanges) - (exchange.ending is not None)
        self.most_at_once = max(self.most_at_once, self._at_once)
        self.exchanges[exchange.request.number] = exchange
        async with self._changed:
            self._changed.notify_all()

    async def settled(self) -> None:
        """Return when no request is being answered."""
        async with self._changed:
            await self._changed.wait_for(lambda: all(one.ending for one in self.exchanges.values()))
