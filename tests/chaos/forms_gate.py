"""A socket before PostgreSQL's: it counts what a server sends there, and can kill the server before a message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg

from switchboard.embedded.postmaster import EmbeddedServer

_SNAPSHOT = "select pg_current_snapshot()::text"


class PostgresGate:
    """What passes. `kill` is called before the message number `deadly`, which PostgreSQL never gets then."""

    def __init__(self, upstream: Path, snapshots: asyncpg.Connection) -> None:
        self._upstream = upstream
        self._snapshots = snapshots
        self._asking = asyncio.Lock()
        self._watching = False
        self._last = ""
        self._passed = 0
        self._deadly = 0
        self._kill: Callable[[], None] = lambda: None
        self.changes: list[int] = []
        """The messages before which something had changed in the database since the one before."""

    def arm(self, deadly: int, kill: Callable[[], None]) -> None:
        """Count from now on, and kill before this message."""
        self._passed, self._deadly, self._kill = 0, deadly, kill

    async def watch(self) -> None:
        """Count from now on, and note the messages that follow a change."""
        self._passed, self._deadly, self.changes = 0, 0, []
        self._last, self._watching = await self._snapshot(), True

    async def stop_watching(self) -> None:
        """The end of what is watched may have changed something, too."""
        await self._look()
        self._watching = False

    async def _snapshot(self) -> str:
        async with self._asking:
            return str(await self._snapshots.fetchval(_SNAPSHOT))

    async def _look(self) -> None:
        now = await self._snapshot()
        if now != self._last:
            self._last = now
            self.changes.append(self._passed)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        there, to_there = await asyncio.open_unix_connection(str(self._upstream))
        back = asyncio.create_task(_pass_on(there, writer))
        try:
            with suppress(ConnectionError):
                while message := await reader.read(1 << 20):
                    self._passed += 1
                    if self._watching:
                        await self._look()
                    if self._passed == self._deadly:
                        self._kill()
                        return
                    to_there.write(message)
                    await to_there.drain()
        finally:
            to_there.close()
            writer.close()
            back.cancel()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while answer := await reader.read(1 << 20):
            writer.write(answer)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def open_gate(server: EmbeddedServer, directory: Path) -> AsyncIterator[PostgresGate]:
    """Listens in a directory as PostgreSQL does in its own."""
    name = f".s.PGSQL.{server.port}"
    snapshots = await asyncpg.connect(server.url)
    gate = PostgresGate(server.socket_dir / name, snapshots)
    try:
        async with await asyncio.start_unix_server(gate.serve, str(directory / name)):
            yield gate
    finally:
        await snapshots.close()
