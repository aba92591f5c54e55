"""Shows on the platform where a butler is working. `runner.py` runs a `Typist` alongside the `ReplySender`.

Each renewal of the lease reports where turns run, so messages cost no extra requests. The indicator expires on its own;
it is renewed in time, until a reply arrives or the turn ends. Next: `runner.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Session
from switchboard.tasks import refuse_exit, wait_at_most

_BEFORE: Final = 0.8
"""The part of the time after which it is shown again."""
REQUEST_S: Final = 5.0
_AT_ONCE: Final = 4
"""In how many conversations something is shown at a time: each takes a connection, which replies need more urgently."""


@dataclass(slots=True)
class TurnIndicator:
    """Shows something in a session while turns run, in a few conversations at a time."""

    session: Session
    clock: Callable[[], float]
    _ended: dict[str, float] = field(init=False, default_factory=dict)
    """When the last replies came: what was asked before that is out of date."""
    _changed: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _turns: asyncio.Semaphore = field(init=False, default_factory=lambda: asyncio.Semaphore(_AT_ONCE))


@dataclass(slots=True)
class Typist(TurnIndicator):
    """Shows it until cancelled. `typing_s`: seconds for which the platform shows it; 0 for platforms that cannot."""

    typing_s: float
    _shown: dict[str, JsonObject] = field(default_factory=dict)
    """By conversation, the address of the message that is being answered."""

    def take_answer(self, answering: Mapping[str, JsonObject], asked: float) -> None:
        """Take the server's answer to a request made at that time."""
        self._ended = {name: at for name, at in self._ended.items() if at >= asked}
        now = {name: address for name, address in answering.items() if name not in self._ended}
        if now.keys() - self._shown.keys():
            self._changed.set()
        self._shown = now

    def note_reply(self, conversation: str) -> None:
        """A reply arrived, which ends the indicator on the platform."""
        self._shown.pop(conversation, None)
        self._ended[conversation] = self.clock()

    async def run(self) -> None:
        """Run until cancelled. Raises nothing."""
        if self.typing_s <= 0:
            await asyncio.Event().wait()
        due = dict[str, float]()
        while True:
            now = self.clock()
            due = {name: due.get(name, now) for name in self._shown}
            await asyncio.gather(*(refuse_exit(self._show, self._shown[name]) for name, at in due.items() if at <= now))
            due = {name: now + _BEFORE * self.typing_s if at <= now else at for name, at in due.items()}
            self._changed.clear()
            await wait_at_most(max(min(due.values(), default=now + 60.0) - self.clock(), 0.0), self._changed)

    async def _show(self, address: JsonObject) -> None:
        """Show it; failures are harmless."""
        with suppress(Exception):
            async with self._turns, asyncio.timeout(min(self.typing_s, REQUEST_S)):
                await self.session.typing(address)
