"""Passes files to a program or a service and back: in a directory of the turn, or by links.

`command.py`, `http.py` and `mcp.py` call it with a turn; it lists the stored files of the message, and collects those
for the answer. Next: `ports/engine.py`, the port `Files`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from switchboard.core.files.blobs import UNKNOWN, safe_name, stored_blob
from switchboard.core.files.reply_files import reply_name
from switchboard.domain.envelope import Attachment
from switchboard.domain.json_values import JsonObject
from switchboard.ports.engine import Files, Turn
from switchboard.tools.workspace import ToolRefusal, meaning, pieces_of, regular_file
from switchboard.transport.programs import ProgramUser
from switchboard.transport.scratch import scratch

_REPLY: Final = "reply"
_MOST_LEFT: Final = 1000
"""How many names are looked at; a reply has far fewer files."""


async def link_files(files: Files | None, turn: Turn) -> Sequence[JsonObject]:
    """`files` of `delivery.v1` for a service: each with a `url` that opens it for an hour."""
    stored = _stored_attachments(turn) if files is not None else ()
    return [{**_describe_file(n, one), "url": await files.link(one)} for n, one in stored if files is not None]


async def upload_url(files: Files | None, turn: Turn) -> str:
    """Where a service may send the files of its answer; empty for a notice, which has no answer."""
    return "" if files is None or turn.dead_letter is not None else await files.upload_link(turn)


class TurnDirectory(Struct, frozen=True):
    """`files` of `delivery.v1`, each with the `path` of a copy; files left in `reply` are sent with the answer."""

    files: Sequence[JsonObject]
    reply: Path
    root: Path
    """The directory that contains the copies and `reply`."""
    opened: int
    """The descriptor of `reply`: when the program has ended, its path may lead elsewhere."""


@asynccontextmanager
async def turn_directory(files: Files | None, turn: Turn, account: ProgramUser | None) -> AsyncIterator[TurnDirectory]:
    """The directory for a program, removed at the end of the turn."""
    stored = _stored_attachments(turn) if files is not None else ()
    async with scratch("turn") as root:
        paths = [await _copy_file(files, one, root / f"{n}-{safe_name(one)}", account) for n, one in stored if files]
        reply = root / _REPLY
        reply.mkdir(0o700)
        _give_to_account(reply, account)
        _give_to_account(root, account)
        told = [{**_describe_file(n, one), "path": path} for (n, one), path in zip(stored, paths, strict=True)]
        opened = os.open(reply, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield TurnDirectory(told, reply, root, opened)
        finally:
            os.close(opened)


async def left_in(directory: TurnDirectory, files: Files | None, turn: Turn) -> tuple[Attachment, ...]:
    """The files that a program left for its answer, by name; for anything else, a note that it is not sent."""
    if files is None:
        return ()
    with os.scandir(directory.opened) as found:
        names = sorted(one.name for one in islice(found, _MOST_LEFT) if not one.name.startswith("."))
    return tuple([await _keep_file(directory.opened, name, files, turn) for name in names])


async def _keep_file(at: int, name: str, files: Files, turn: Turn) -> Attachment:
    try:
        with regular_file(at, name) as opened:
            size = os.fstat(opened).st_size
            return await files.keep(turn, name, pieces_of(opened), size_bytes=size)
    except ToolRefusal as refused:
        why = f"not sent: {refused}"
    except OSError as error:
        why = f"not sent: it {meaning(error)}"
    return Attachment(media_type=UNKNOWN, filename=reply_name(name), size_bytes=0, unavailable=why)


def _stored_attachments(turn: Turn) -> Sequence[tuple[int, Attachment]]:
    attachments = enumerate(turn.envelope.payload.attachments)
    return [(n, one) for n, one in attachments if stored_blob(one) is not None]


def _describe_file(n: int, one: Attachment) -> JsonObject:
    known = {"attachment": n, "filename": one.filename, "media_type": one.media_type, "size_bytes": one.size_bytes}
    return {name: value for name, value in known.items() if value is not None}


async def _copy_file(files: Files, one: Attachment, path: Path, account: ProgramUser | None) -> str:
    with await asyncio.to_thread(path.open, "xb") as file:
        async for piece in files.read(one):
            await asyncio.to_thread(file.write, piece)
    _give_to_account(path, account)
    return str(path)


def _give_to_account(path: Path, account: ProgramUser | None) -> None:
    """Make the file readable for the program, whatever user it runs as."""
    if account is not None:
        os.chown(path, account.uid, account.gid)
