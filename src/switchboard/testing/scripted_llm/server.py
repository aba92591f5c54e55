"""A scripted LLM on loopback: as a context manager for tests, and for `__main__.py` as a process.

In: a script (see `script.py`); out: a URL that speaks four dialects, and a record of all that was asked. It listens on
127.0.0.1 and asks nobody. Next: `endpoints.py`.
"""

from __future__ import annotations

import asyncio

from switchboard.testing.loopback import Loopback
from switchboard.testing.scripted_llm.endpoints import LocalServer, Manners, Sleep, Strictness, application
from switchboard.testing.scripted_llm.record import Exchange, Record
from switchboard.testing.scripted_llm.request import Request
from switchboard.testing.scripted_llm.script import Player, Scripted


class ScriptedLlm(Loopback):
    """`async with ScriptedLlm(script) as llm:`; point a client at `llm.url` (OpenAI's: at `f"{llm.url}/v1"`).

    `script` is a `Script`, a list of replies, or a function from a request to a reply. `sleep` makes the pauses of
    `Slow`. `strict`: what a strict provider rejects is rejected (see `strict.py`); with "local" what a choosy local
    server rejects, and it has one slot (see `local.py`). `context`: of a longer request the head is lost, in silence,
    beyond so many tokens; a choosy server rejects it, and has 4,096 if nothing is said. `server`: the local server that
    it is taken for, which tells its `context` where this one does.
    """

    def __init__(
        self,
        script: Scripted,
        *,
        port: int = 0,
        sleep: Sleep = asyncio.sleep,
        strict: Strictness = False,
        context: int | None = None,
        server: LocalServer | None = None,
    ) -> None:
        self._player = Player(script)
        self._record = Record()
        app = application(self._record, self._player, Manners(sleep, strict, context, server))
        super().__init__(app, port=port)

    async def __aexit__(self, *raised: object) -> None:
        self._record.ended.set()
        await super().__aexit__(*raised)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Every request with its reply and its end, in the order in which they came."""
        return tuple(self._record.exchanges[n] for n in sorted(self._record.exchanges))

    @property
    def requests(self) -> tuple[Request, ...]:
        """Every request to the model."""
        return tuple(exchange.request for exchange in self.exchanges)

    @property
    def strays(self) -> tuple[str, ...]:
        """What else was asked for: paths that are not there, bodies that are not understood."""
        return tuple(self._record.strays)

    @property
    def most_at_once(self) -> int:
        """The most requests that were here at the same time, answered or waiting for a slot."""
        return self._record.most_at_once

    @property
    def left(self) -> int:
        """How many replies of the list have not been asked for."""
        return self._player.left

    def release(self, gate: str) -> None:
        """Release the replies that wait at this gate, and those that will reach it."""
        self._record.gates[gate].opened.set()

    async def waiting(self, gate: str) -> None:
        """Return when a reply has come to this gate."""
        await self._record.gates[gate].reached.wait()

    async def settled(self) -> None:
        """Return when no request is being answered."""
        await self._record.settled()
