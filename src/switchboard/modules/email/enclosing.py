"""The files that go with a mail: those of the butler's workspace, and those that came with messages and mails.

`composing.py` looks at them before anybody is asked, and stores them once the mail is approved. In: paths that a model
wrote; out: names, sizes and hashes, then attachments. Next: `tools/workspace.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from msgspec import Struct

from switchboard.core.files.blobs import HEAD_BYTES, PREFIX, sniff
from switchboard.core.files.reply_files import reply_name, size_text
from switchboard.core.mail.writing import File
from switchboard.core.text.visible import visible_start
from switchboard.domain.envelope import Attachment
from switchboard.modules.email.callers import EmailRefusal
from switchboard.ports.mail_desk import MAX_MAIL_FILES
from switchboard.ports.tools import ToolScope
from switchboard.tools.workspace import ToolRefusal, meaning, opened_file, parts_of, pieces_of, read_at, root_of

MOST_FILES: Final = 20


class Enclosure(Struct, frozen=True):
    """A file as it is now. `sha256`: of its bytes, in hexadecimal."""

    path: str
    name: str
    size_bytes: int
    sha256: str

    @property
    def shown(self) -> str:
        """For whoever approves it."""
        return f"{visible_start(self.name, 100)} ({size_text(self.size_bytes)})"


async def find_files(scope: ToolScope, paths: Sequence[str]) -> tuple[Enclosure, ...]:
    """Raises EmailRefusal for a file that is not there, and if they are too large together."""
    found = tuple([await asyncio.to_thread(_find_file, scope, path) for path in dict.fromkeys(paths)])
    if (size := sum(one.size_bytes for one in found)) > MAX_MAIL_FILES:
        raise EmailRefusal(
            f"the files have {size_text(size)}, and a mail takes at most {size_text(MAX_MAIL_FILES)}: send fewer"
        )
    return found


def _find_file(scope: ToolScope, path: str) -> Enclosure:
    data = _read_file(scope, path)
    return Enclosure(path, reply_name(path), len(data), sha256(data).hexdigest())


def _read_file(scope: ToolScope, path: str) -> bytes:
    """The whole file, which is not too large for a mail."""
    shown = visible_start(path, 200)
    try:
        parts = parts_of(path)
        if not parts:
            raise EmailRefusal("name a file of the workspace, such as plan.pdf")
        with opened_file(root_of(scope, parts), parts) as opened:
            if os.fstat(opened).st_size > MAX_MAIL_FILES:
                raise EmailRefusal(f"{shown} is larger than {size_text(MAX_MAIL_FILES)}, the most that a mail takes")
            data = bytearray()
            while piece := read_at(opened, len(data)):
                data += piece
            return bytes(data)
    except ToolRefusal as refused:
        raise EmailRefusal(f"{shown}: {refused}") from refused
    except OSError as error:
        raise EmailRefusal(f"{shown}: {meaning(error)}") from error


async def store_files(scope: ToolScope, files: Sequence[Enclosure]) -> tuple[Attachment, ...]:
    """Store them for the mail. Raises EmailRefusal if one has changed since it was looked at, and Unavailable."""
    if files and scope.keep is None:
        raise EmailRefusal("files cannot be sent from here")
    return tuple([await _store_file(scope, one) for one in files])


async def _store_file(scope: ToolScope, file: Enclosure) -> Attachment:
    parts = parts_of(file.path)
    try:
        with opened_file(root_of(scope, parts), parts) as opened:
            size = os.fstat(opened).st_size
            kept = None if scope.keep is None else await scope.keep(file.name, pieces_of(opened), size)
    except (ToolRefusal, OSError) as error:
        raise EmailRefusal(f"{file.name} cannot be read any more") from error
    if kept is None or kept.unavailable:
        raise EmailRefusal(f"{file.name} is not sent: {kept.unavailable if kept else 'files cannot be sent from here'}")
    if kept.storage_ref != f"{PREFIX}{file.sha256}":
        raise EmailRefusal(f"{file.name} was changed a moment ago; call this again")
    return kept


async def read_files(scope: ToolScope, files: Sequence[Enclosure]) -> tuple[File, ...]:
    """Their bytes, for a draft. Raises EmailRefusal."""
    read = [(one, await asyncio.to_thread(_read_file, scope, one.path)) for one in files]
    return tuple(File(one.name, sniff(data[:HEAD_BYTES], "").media_type, data) for one, data in read)
