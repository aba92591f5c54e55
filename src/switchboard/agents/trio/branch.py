"""The journal of one branch of a turn: all its paths begin with the same prefix.

A specialist with tools has one, so that its requests and calls (`s3/request:1`) belong to its step. In: the journal of
the turn; out: a journal for `agents/turns/talk.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from uuid import UUID

from msgspec import Struct

from switchboard.ports.engine import Act, Ask, Decided, Effect, Journal, OnRecord


class Branch(Struct, frozen=True):
    """`Journal` below a path."""

    journal: Journal
    path: str

    def _at(self, path: str) -> str:
        return f"{self.path}/{path}"

    def check(self) -> None:
        """As in the port."""
        self.journal.check()

    async def flush(self) -> None:
        """As in the port, for the whole turn."""
        await self.journal.flush()

    async def step(
        self, path: str, act: Act, *, effect: Effect = "idempotent", ask: Act | None = None, reserve: int = 0
    ) -> Any:
        """As in the port."""
        return await self.journal.step(self._at(path), act, effect=effect, ask=ask, reserve=reserve)

    async def end(self, path: str, state: Literal["failed", "skipped", "cancelled"], why: Any = None) -> None:
        """As in the port."""
        await self.journal.end(self._at(path), state, why)

    def key_of(self, path: str) -> UUID:
        """As in the port."""
        return self.journal.key_of(self._at(path))

    def on_record(self) -> Mapping[str, OnRecord]:
        """As in the port, of this branch."""
        first = self._at("")
        records = self.journal.on_record()
        return {path.removeprefix(first): one for path, one in records.items() if path.startswith(first)}

    async def expect(self, path: str, *, within: float | None = None, ask: Ask | None = None) -> UUID:
        """As in the port."""
        return await self.journal.expect(self._at(path), within=within, ask=ask)

    async def wait(self, path: str, *, within: float | None = None) -> Decided:
        """As in the port."""
        return await self.journal.wait(self._at(path), within=within)
