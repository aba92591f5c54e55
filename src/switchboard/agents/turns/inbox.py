"""Copies the files of a message into `inbox/`, where the model sees images and its tools read files.

An engine calls it once, when a turn begins. In: attachments and the directory of the readers; out: files. Next:
`tools/inbox.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import structlog

from switchboard.core.files.blobs import HEAD_BYTES, sniff
from switchboard.core.turns.images import MOST_FILE_BYTES, inbox_name, is_image_name
from switchboard.domain.envelope import Attachment
from switchboard.ports.engine import Files
from switchboard.tools.inbox import keep_file
from switchboard.tools.workspace import ToolRefusal

log = structlog.get_logger(__name__)


async def bring(files: Files | None, attachments: Iterable[Attachment], kept: Path | None) -> None:
    """Copy the stored files. One that cannot be written is missing later, which does not end the turn."""
    if files is None or kept is None:
        return
    for one in attachments:
        if (name := inbox_name(one)) is not None:
            await _bring(files, one, kept, name)


async def _bring(files: Files, one: Attachment, kept: Path, name: str) -> None:
    data = b""
    async for piece in files.read(one):
        data += piece
        if len(data) > MOST_FILE_BYTES:
            return
    if is_image_name(name) and sniff(data[:HEAD_BYTES], "").media_type != one.media_type:
        return  # a provider refuses the whole request if an image is not really one
    try:
        await asyncio.to_thread(keep_file, kept, name, data)
    except (ToolRefusal, OSError) as error:
        log.warning("a file of a message could not be kept", file=name, error=str(error))
