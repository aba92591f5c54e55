"""The files of messages as engines read them, and links to them that need no other token.

`app/ops/engines.py` gives `StoredFiles` to the engines; `app/messages/blobs.py` checks links. Next: `blobs.py`.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import AsyncIterator
from typing import Final

from switchboard.core.blobs import stored_blob
from switchboard.domain.envelope import Attachment
from switchboard.store.blobs import PieceStore
from switchboard.store.database import Database

LINKS: Final = "/v1/files/"
"""The path of a link, without its token."""
LINK_S: Final = 3600.0
"""Seconds for which a link is good."""


class StoredFiles:
    """See the port. `base_url`: where those who are handed links reach the server."""

    def __init__(self, database: Database, base_url: str) -> None:
        self._database = database
        self._base_url = base_url.rstrip("/")

    async def read(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """See the port."""
        blob = stored_blob(attachment)
        if blob is not None:
            async for piece in PieceStore(self._database).read(blob):
                yield piece

    async def link(self, attachment: Attachment) -> str | None:
        """See the port."""
        blob = stored_blob(attachment)
        if blob is None:
            return None
        said = f"{blob.hex()}.{int(time.time() + LINK_S)}"
        return f"{self._base_url}{LINKS}{said}.{await _signature(self._database, said)}"


async def blob_of_link(database: Database, token: str) -> bytes | None:
    """The blob that the token of a link opens; None: it was not made here, or is over."""
    said, _, signature = token.rpartition(".")
    expected = await _signature(database, said)
    if not hmac.compare_digest(signature.encode(), expected.encode()):
        return None
    blob, _, until = said.partition(".")
    return bytes.fromhex(blob) if time.time() < int(until) else None


async def _signature(database: Database, said: str) -> str:
    return (await database.keys()).of("file", said.encode())
