"""Files of messages over HTTP: received and sent in pieces, never whole in memory.

The route calls `BlobService` with the caller's `Principal`. Next: `core/files/blobs.py`, `store/messages/spool.py`,
`store/messages/blobs.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.app.access import AGENT, CONNECTOR, Access, Action, Principal, owns_endpoint
from switchboard.app.settings import Settings
from switchboard.core.files.blobs import StoredBlob, blob_of
from switchboard.domain.errors import BlobQuota, NotFound
from switchboard.domain.ledger import OutboxRow
from switchboard.store.database import Database
from switchboard.store.messages import blobs as store
from switchboard.store.messages import outbox
from switchboard.store.messages.blobs import BlobUsage, PieceStore
from switchboard.store.messages.files import Maker, all_may_take, blob_of_link, enter_made, maker_of_link
from switchboard.store.messages.spool import Limit, Spooled, enter, spool_file

RAW: Final = Action("raw", CONNECTOR | AGENT)
OUTBOX: Final = Action("outbox", CONNECTOR)  # fetching replies and reporting on them; `replies` is to see all
UPLOAD_BLOBS: Final = Action("blobs", CONNECTOR)

_ARRIVING: Final = 32
"""Most uploads at a time; the others wait."""
_ARRIVING_OF_ONE: Final = 4
"""Most at a time of one endpoint or butler, so that those who are slow do not delay others."""
_STORING: Final = 2
"""Most that write to the database at a time."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A stored blob: name it as `blob:` and this SHA-256. `contradicted`: a claimed media type that the bytes deny."""

    blob: str
    size_bytes: int
    media_type: str
    contradicted: str | None


class Download(Struct, frozen=True):
    """A blob to be read."""

    size_bytes: int
    media_type: str
    pieces: AsyncIterator[bytes]


class BlobService:
    """Uploads for endpoints, and downloads for callers who may read a message with the blob."""

    def __init__(self, database: Database, access: Access, settings: Settings) -> None:
        self._database = database
        self._access = access
        self._limits = settings.blobs
        self._limit = Limit(settings.blobs.file_bytes, "blobs.file_bytes")
        self._reply_limit = Limit(settings.turn.reply_file_bytes, "turn.reply_file_bytes")
        self._directory = settings.data_dir
        self._arriving = asyncio.Semaphore(_ARRIVING)
        self._arriving_of: dict[tuple[str, str], asyncio.Semaphore] = {}
        self._storing = asyncio.Semaphore(_STORING)

    async def upload(
        self, caller: Principal, body: AsyncIterable[bytes], claimed: str, announced: int | None = None
    ) -> Uploaded:
        """Store a file; the same bytes are stored once, which is not observable.

        Raises TooLarge, BlobQuota, Unavailable.
        """
        self._limit.check(announced or 0)
        await self._check_quota(caller, announced or 0)
        async with self._place(_owner(caller)), spool_file(body, claimed, self._limit, self._directory) as given:
            return await self._store(caller, given)

    @asynccontextmanager
    async def _place(self, owner: tuple[str, str]) -> AsyncIterator[None]:
        """One of the few concurrent uploads of this owner, and of all."""
        own = self._arriving_of.setdefault(owner, asyncio.Semaphore(_ARRIVING_OF_ONE))
        async with own, self._arriving:
            yield

    async def room(self, caller: Principal) -> int:
        """The maximum size in bytes of this caller's next file."""
        used = await store.blob_usage(self._database, *_owner(caller))
        rooms = [self._limits.file_bytes]
        rooms += [most - taken for most, taken, _ in self._quotas(caller, used)]
        return max(0, min(rooms))

    async def _store(self, caller: Principal, given: Spooled) -> Uploaded:
        """Store it in one transaction: interrupted uploads leave nothing, and others of the same bytes wait."""
        async with self._storing, self._database.transaction() as one:
            await self._check_quota(caller, given.size_bytes, one)
            channel, endpoint = _owner(caller)
            kind = await enter(one, given, partial(store.note_upload, channel=channel, endpoint=endpoint))
        return Uploaded(given.blob.hex(), given.size_bytes, kind, given.sniffed.contradicted)

    async def upload_by_link(self, token: str, body: AsyncIterable[bytes], claimed: str) -> Uploaded:
        """Store a file for the answer of the turn that the link was made for.

        Raises NotFound, also when its hour or its turn is over; TooLarge, BlobQuota, Unavailable.
        """
        making = await maker_of_link(self._database, token)
        if making is None or await store.is_answered(self._database, *making):
            raise NotFound("there is no such link, or it has expired")
        place = self._place(("", making.system_id))
        async with place, spool_file(body, claimed, self._reply_limit, self._directory) as given:
            return await self._store_made(making, given)

    async def _store_made(self, making: Maker, given: Spooled) -> Uploaded:
        async with self._storing, self._database.transaction() as one:
            kind = await enter_made(one, given, making, self._limits.total_bytes)
        return Uploaded(given.blob.hex(), given.size_bytes, kind, given.sniffed.contradicted)

    async def download_of_reply(self, caller: Principal, outbox_id: UUID, n: int) -> tuple[Download, str]:
        """The file of a reply at this place, from 0, and its name.

        Raises NotFound, including for replies of other endpoints.
        """
        reply = await own_reply(self._database, self._access, caller, outbox_id)
        if not 0 <= n < len(reply.files):
            raise NotFound(f"reply {outbox_id} has {len(reply.files)} files, counted from 0")
        file = reply.files[n]
        pieces = PieceStore(self._database).read(bytes.fromhex(file.sha256))
        return Download(file.size_bytes, file.media_type, pieces), file.filename

    async def download(self, caller: Principal, name: str) -> Download:
        """The blob of this name. Raises NotFound, also if it belongs to no message or upload of the caller."""
        blob = blob_of(name)
        found = None if blob is None else await self._find(caller, blob)
        if blob is None or found is None:
            raise await self._hide(caller, name)
        return Download(found.size_bytes, found.media_type, PieceStore(self._database).read(blob))

    async def open_link(self, token: str) -> Download:
        """The blob for which a butler was given a link. Raises NotFound, also when its hour is over."""
        blob = await blob_of_link(self._database, token)
        found = None if blob is None else await store.find_bytes(self._database, blob)
        if blob is None or found is None:
            raise NotFound("there is no such file, or the link to it has expired")
        return Download(found.size_bytes, found.media_type, PieceStore(self._database).read(blob))

    async def _hide(self, caller: Principal, name: str) -> NotFound:
        what = f"blob {name[:64]}"
        if caller.role == "operator":
            return NotFound(f"there is no {what}")
        return await self._access.hide(caller, RAW, what)

    async def _find(self, caller: Principal, blob: bytes) -> StoredBlob | None:
        if caller.role == "operator":
            return await store.find(self._database, blob)
        if caller.role == "agent":
            return await store.find_of_system(self._database, blob, caller.system_id or "")
        return await store.find_of_endpoint(self._database, blob, *_owner(caller))

    async def _check_quota(self, caller: Principal, size: int, database: Database | None = None) -> None:
        used = await store.blob_usage(database or self._database, *_owner(caller))
        for most, taken, why in self._quotas(caller, used):
            if most < taken + size:
                raise BlobQuota(why)

    def _quotas(self, caller: Principal, used: BlobUsage) -> list[tuple[int, int, str]]:
        """The limits in bytes, the present usage, and the rule; without limits that do not apply."""
        day, endpoint, total = (
            self._limits.endpoint_bytes_per_day,
            self._limits.endpoint_bytes,
            self._limits.total_bytes,
        )
        quotas = [(total, used.total, all_may_take(total))]
        if caller.role != "operator":
            quotas = [
                (day, used.today, f"this endpoint may upload {day} bytes a day"),
                (endpoint, used.endpoint, f"the files of this endpoint may take {endpoint} bytes"),
                *quotas,
            ]
        return [one for one in quotas if one[0]]


def _owner(caller: Principal) -> tuple[str, str]:
    return caller.channel or "", caller.endpoint or ""


async def own_reply(database: Database, access: Access, caller: Principal, outbox_id: UUID) -> OutboxRow:
    """The reply, if it belongs to an endpoint of the caller. Raises NotFound."""
    reply = await outbox.get_reply(database, outbox_id)
    if not owns_endpoint(caller, reply.channel, reply.endpoint):
        raise await access.hide(caller, OUTBOX, f"reply {outbox_id}")
    return reply
