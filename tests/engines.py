"""What the tests of the engines share: a turn without a database, a server that a webhook can be, and a register."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from switchboard.domain.routing import Member, SystemId
from switchboard.ports.engine import Engine, EngineFailure, TurnResult
from switchboard.testing.engines import MemoryJournal, a_turn

# A turn without a database ----------------------------------------------------------------------------------------


async def run(engine: Engine, options: Mapping[str, Any], **more: Any) -> TurnResult:
    return await engine.run(a_turn(options, **more), MemoryJournal())


async def failure(engine: Engine, options: Mapping[str, Any], **more: Any) -> EngineFailure:
    with pytest.raises(EngineFailure) as caught:
        await run(engine, options, **more)
    return caught.value


# What is on the other side ------------------------------------------------------------------------------------------


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Hook:
    """A real server on a free port that answers every POST with `handler`, and remembers what came."""

    port: int = 0
    handler: Handler | None = None
    bodies: list[bytes] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def says(self, status: int = 200, body: str = "", media_type: str = "application/json", **headers: str) -> None:
        async def handler(_: web.Request) -> web.StreamResponse:
            # Not content_type=: an answer may well have none.
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return web.Response(status=status, body=body.encode(), headers={"Content-Type": media_type, **named})

        self.handler = handler

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.read())
        self.headers.append(request.headers)
        assert self.handler is not None
        return await self.handler(request)


@asynccontextmanager
async def a_hook() -> AsyncIterator[Hook]:
    hook = Hook()
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/hook", hook.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        [address] = runner.addresses
        hook.port = address[1]
        yield hook
    finally:
        await runner.cleanup()


class Book:
    """A register that a test can write into; by default the file's URL counts."""

    def __init__(self) -> None:
        self.endpoint: str | None = None
        self.answered: list[SystemId] = []

    async def endpoint_of(self, member: Member) -> str | None:
        url = member.options.get("url")
        return self.endpoint or (url if isinstance(url, str) else None)

    async def seen(self, system_id: SystemId) -> None:
        self.answered.append(system_id)
