"""The files of messages and answers that engines read and create, and links that need no other token.

`app/ops/engines.py` gives `StoredFiles` to the engines; `app/messages/blobs.py` checks links. Next: `spool.py`.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import AsyncIterable, AsyncIterator
from functools import partial
from mimetypes import guess_type
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from switchboard.core.files.blobs import PREFIX, UNKNOWN, stored_blob
from switchboard.core.files.reply_files import reply_name, size_text
from switchboard.domain.envelope import Attachment
from switchboard.domain.errors import BlobQuota, TooLarge
from switchboard.ports.engine import Turn
from switchboard.store.database import Database
from switchboard.store.messages.blobs import PieceStore, blob_usage, count_made, note_made
from switchboard.store.messages.spool import Limit, Spooled, enter, spool_file

LINKS: Final = "/v1/files/"
"""The path of a link, without its token."""
LINK_S: Final = 3600.0
"""Seconds for which a link is good."""
MOST_MADE: Final = 100
"""Files that a butler may store for its answer to one message, all attempts together."""
REPLY_FILE_BYTES: Final = 52_428_800
"""Of a file that a butler answers with, unless the settings say otherwise."""


class Maker(NamedTuple):
    """The butler and the message for whose answer a file is created."""

    request_id: UUID
    system_id: str


class StoredFiles:
    """See the port. `base_url`: the server's address for recipients of links.

    `largest`: bytes of a file of an answer; `total`: of all files, 0 for no limit. They pass through `directory`.
    """

    def __init__(
        self,
        database: Database,
        base_url: str,
        *,
        directory: Path | None = None,
        largest: int = REPLY_FILE_BYTES,
        total: int = 0,
    ) -> None:
        self._database = database
        self._base_url = base_url.rstrip("/")
        self._directory = directory
        self._limit = Limit(largest, "turn.reply_file_bytes")
        self._total = total

    async def read(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """See the port."""
        blob = stored_blob(attachment)
        if blob is not None:
            async for piece in PieceStore(self._database).read(blob):
                yield piece

    async def link(self, attachment: Attachment) -> str | None:
        """See the port."""
        blob = stored_blob(attachment)
        return None if blob is None else await self._link(blob.hex())

    async def upload_link(self, turn: Turn) -> str:
        """See the port."""
        return await self._link(f"{turn.request_id.hex}-{turn.member.system_id.encode().hex()}")

    async def _link(self, opens: str) -> str:
        said = f"{opens}.{int(time.time() + LINK_S)}"
        return f"{self._base_url}{LINKS}{said}.{await _signature(self._database, said)}"

    async def keep(
        self, turn: Turn, filename: str, pieces: AsyncIterable[bytes], *, media_type: str = "", size_bytes: int = 0
    ) -> Attachment:
        """See the port."""
        name = reply_name(filename)
        claimed = media_type or guess_type(name)[0] or ""
        try:
            self._limit.check(size_bytes)
            async with spool_file(pieces, claimed, self._limit, self._directory) as given:
                return await self._keep_file(turn, name, given)
        except TooLarge:
            most = f"too large: a file of a reply may have {size_text(self._limit.size_bytes)}"
            return _without(name, size_bytes, most)
        except BlobQuota:
            return _without(name, size_bytes, "there is no room to keep it")

    async def _keep_file(self, turn: Turn, name: str, given: Spooled) -> Attachment:
        async with self._database.transaction() as one:
            media_type = await enter_made(one, given, Maker(turn.request_id, turn.member.system_id), self._total)
        return Attachment(
            media_type=media_type,
            filename=name,
            size_bytes=given.size_bytes,
            storage_ref=f"{PREFIX}{given.blob.hex()}",
        )


async def enter_made(transaction: Database, given: Spooled, maker: Maker, total: int) -> str:
    """Store a file for an answer; returns its media type. `total`: see `check_room`. Raises BlobQuota."""
    await check_room(transaction, given.size_bytes, total)
    if await count_made(transaction, *maker) >= MOST_MADE:
        raise BlobQuota(f"a butler may store {MOST_MADE} files for its answer to one message")
    return await enter(transaction, given, partial(note_made, request_id=maker.request_id, system_id=maker.system_id))


async def check_room(database: Database, size_bytes: int, total: int) -> None:
    """Raise BlobQuota unless this many more bytes fit into the shared `total`."""
    if 0 < total < (await blob_usage(database, "", "")).total + size_bytes:
        raise BlobQuota(all_may_take(total))


def all_may_take(total: int) -> str:
    """The limit in words."""
    return f"all files together may take {total} bytes"


async def blob_of_link(database: Database, token: str) -> bytes | None:
    """The blob that a link's token opens; None if it was not issued here, or has expired."""
    opens = await _opens(database, token)
    return None if opens is None or "-" in opens else bytes.fromhex(opens)


async def maker_of_link(database: Database, token: str) -> Maker | None:
    """The answer for which a link's token permits uploads; None as above."""
    request_id, dash, system_id = (await _opens(database, token) or "").partition("-")
    return Maker(UUID(request_id), bytes.fromhex(system_id).decode()) if dash else None


async def _opens(database: Database, token: str) -> str | None:
    said, _, signature = token.rpartition(".")
    expected = await _signature(database, said)
    if not hmac.compare_digest(signature.encode(), expected.encode()):
        return None
    opens, _, until = said.partition(".")
    return opens if time.time() < int(until) else None


async def _signature(database: Database, said: str) -> str:
    return (await database.keys()).of("file", said.encode())


def _without(name: str, size_bytes: int, why: str) -> Attachment:
    return Attachment(media_type=UNKNOWN, filename=name, size_bytes=size_bytes, unavailable=why)
