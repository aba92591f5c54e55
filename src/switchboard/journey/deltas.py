"""Carries the text of running turns to the readers of the stream.

`turn.py` enters `publishing` for a turn of an engine that can stream. All pieces of a worker's turns within 50 ms leave
as one insert and one NOTIFY; without pieces there is neither. Pieces may be lost, unlike replies, so nothing waits for
them. Next: `store/work/deltas.py`; it is read by `app/messages/stream.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Final

import structlog
from msgspec.structs import replace

from switchboard.domain.errors import Unavailable
from switchboard.domain.ledger import Item
from switchboard.lanes.notifier import Notifier, delta_topic
from switchboard.ports.engine import Delta
from switchboard.store.database import Database
from switchboard.store.work import deltas as store
from switchboard.store.work.deltas import Writer
from switchboard.store.work.lanes import Work
from switchboard.tasks import cancel_tasks

log = structlog.get_logger(__name__)

_EVERY_S: Final = 0.05
_AGAIN_S: Final = 0.5
"""Pause while the database is unavailable."""
_CLOSE_S: Final = 2.0
_Told = dict[Writer, list[Delta]]


class Deltas:
    """The pieces of all turns of a worker."""

    def __init__(self, database: Database, notifier: Notifier) -> None:
        self._database = database
        self._notifier = notifier
        self._numbers = count(1)
        self._running: dict[Writer, bool] = {}
        """Whether something of it may be stored."""
        self._told: _Told = {}
        self._ended: list[Writer] = []
        self._writing: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def publishing(self, item: Item, work: Work) -> Iterator[Callable[[Delta], None]]:
        """Yield the function that an attempt calls with each piece; in the end, remove the pieces."""
        writer = Writer(work.request_id, work.system_id, item.epoch)
        self._running[writer] = work.resumed
        try:
            yield partial(self._hear, writer)
        finally:
            self._told.pop(writer, None)
            if self._running.pop(writer):
                self._ended.append(writer)
                self._start()

    async def aclose(self) -> None:
        """Store the remaining pieces, as far as that is quickly possible."""
        if self._writing is not None:
            await asyncio.wait((self._writing,), timeout=_CLOSE_S)
            await cancel_tasks(self._writing)

    def _hear(self, writer: Writer, delta: Delta) -> None:
        told = self._told.setdefault(writer, [])
        if told and _goes_on(told[-1], delta):
            told[-1] = replace(told[-1], text=told[-1].text + delta.text)
        else:
            told.append(delta)
        self._start()

    def _start(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        """Write the first piece at once: somebody may be waiting for it."""
        while self._told or self._ended:
            told, ended = self._told, self._ended
            self._told, self._ended = {}, []
            try:
                await self._store(told, ended)
            except Unavailable:
                self._keep(told)
                self._ended = ended + self._ended
                await asyncio.sleep(_AGAIN_S)
            except Exception:
                log.exception("pieces of replies could not be stored")  # they are lost; later ones need not be
                self._ended = ended + self._ended
                await asyncio.sleep(_AGAIN_S)
            await asyncio.sleep(_EVERY_S)

    async def _store(self, told: _Told, ended: list[Writer]) -> None:
        self._running |= dict.fromkeys(self._running.keys() & told.keys(), True)
        if told:
            pieces = [(writer, next(self._numbers), one) for writer, many in told.items() for one in many]
            await store.write(self._database, pieces)
        for writer in told:
            self._notifier.notify(delta_topic(writer.request_id))
        if ended:
            await store.remove(self._database, ended)

    def _keep(self, told: _Told) -> None:
        """Keep pieces for the next write. A piece written twice does no harm."""
        for writer in told.keys() & self._running.keys():
            self._told[writer] = told[writer] + self._told.get(writer, [])


def _goes_on(last: Delta, delta: Delta) -> bool:
    text_only = not (last.tool or delta.tool or last.status or delta.status)
    return text_only and last.step == delta.step and delta.offset == last.offset + len(last.text)
