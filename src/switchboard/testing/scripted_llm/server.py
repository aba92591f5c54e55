"""A scripted LLM on loopback: as a context manager for tests, and for `__main__.py` as a process.

In: a script (see `script.py`); out: a URL that speaks four dialects, and a record of all requests. It listens on
127.0.0.1 and contacts nobody. Next: `endpoints.py`.
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
    `Slow`. `strict`: reject what a strict provider rejects (see `strict.py`), or with "local" what a choosy local
    server rejects, which has one slot (see `local.py`). `context` in tokens: the head of a longer request is silently
    lost; a choosy local server rejects the request, and has a default of 4,096. `server`: the local server to imitate,
    which determines where `context` is reported.
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
        """Every request with its reply and its ending, in order of arrival."""
        return tuple(self._record.exchanges[n] for n in sorted(self._record.exchanges))

    @property
    def requests(self) -> tuple[Request, ...]:
        """Every request to the model."""
        return tuple(exchange.request for exchange in self.exchanges)

    @property
    def strays(self) -> tuple[str, ...]:
        """All other requests: unknown paths, and bodies that could not be understood."""
        return tuple(self._record.strays)

    @property
    def most_at_once(self) -> int:
        """The maximum of simultaneous requests, being answered or waiting for a slot."""
        return self._record.most_at_once

    @property
    def left(self) -> int:
        """How many replies of the list have not been used yet."""
        return self._player.left

    def release(self, gate: str) -> None:
        """Release the replies that wait at this gate, now and later."""
        self._record.gates[gate].opened.set()

    async def waiting(self, gate: str) -> None:
        """Return when a reply has reached this gate."""
        await self._record.gates[gate].reached.wait()

    async def settled(self) -> None:
        """Return when no request is being answered."""
        await self._record.settled()
