"""Files on their way to a program or a service: in a directory of the turn, or as links.

`command.py`, `http.py` and `mcp.py` call it with a turn; it lists what came with the message and is stored. Next:
`ports/engine.py`, the port `Files`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from switchboard.core.blobs import safe_name, stored_blob
from switchboard.domain.envelope import Attachment
from switchboard.domain.json_values import JsonObject
from switchboard.ports.engine import Files, Turn
from switchboard.transport.programs import Account

PREFIX: Final = "switchboard-turn-"


async def linked(files: Files | None, turn: Turn) -> Sequence[JsonObject]:
    """`files` of `delivery.v1` for a service: each with a `url` that opens it for an hour."""
    stored = _stored(turn) if files is not None else ()
    return [{**_told(n, one), "url": await files.link(one)} for n, one in stored if files is not None]


@asynccontextmanager
async def turn_directory(
    files: Files | None, turn: Turn, account: Account | None
) -> AsyncIterator[Sequence[JsonObject]]:
    """`files` of `delivery.v1` for a program: each with the `path` of a copy, which is removed with the turn."""
    stored = _stored(turn)
    if files is None or not stored:
        yield ()
        return
    root = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=PREFIX))
    try:
        paths = [await _copied(files, one, root / f"{n}-{safe_name(one)}", account) for n, one in stored]
        _give(root, account)
        yield [{**_told(n, one), "path": path} for (n, one), path in zip(stored, paths, strict=True)]
    finally:
        await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)


def _stored(turn: Turn) -> Sequence[tuple[int, Attachment]]:
    attachments = enumerate(turn.envelope.payload.attachments)
    return [(n, one) for n, one in attachments if stored_blob(one) is not None]


def _told(n: int, one: Attachment) -> JsonObject:
    known = {"attachment": n, "filename": one.filename, "media_type": one.media_type, "size_bytes": one.size_bytes}
    return {name: value for name, value in known.items() if value is not None}


async def _copied(files: Files, one: Attachment, path: Path, account: Account | None) -> str:
    with await asyncio.to_thread(path.open, "xb") as file:
        async for piece in files.read(one):
            await asyncio.to_thread(file.write, piece)
    _give(path, account)
    return str(path)


def _give(path: Path, account: Account | None) -> None:
    """The program must be able to read it, whoever it runs as."""
    if account is not None:
        os.chown(path, account.uid, account.gid)
