"""Fetches the files of a message from the platform and uploads them piece by piece, before the message names them.

`receiving.py` and `replaying.py` call `Filer.store_files` with an envelope about to be submitted; out: the same
envelope, with each attachment stored or marked with the reason why not. A file never prevents its message from
arriving. Next: `api.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from switchboard.connectors.kernel.answers import Declined, FilesWanted, Unreachable, UploadedFile
from switchboard.connectors.kernel.api import Api, sayable
from switchboard.connectors.kernel.health import Health
from switchboard.connectors.kernel.intake import Handling
from switchboard.connectors.kernel.patience import Patience
from switchboard.core.files.blobs import HEAD_BYTES, NOT_LET_IN, PREFIX, UNKNOWN, bare_type, sniff
from switchboard.domain.envelope import Attachment, Envelope
from switchboard.lanes.faults import point
from switchboard.ports.connector import Capabilities, FileIn, Session
from switchboard.tasks import cancel_tasks, refuse_exit

TRIES: Final = 3
WITHIN_S: Final = 60.0
"""Seconds for one file; then its message goes without it."""
_AGAIN_S: Final = 2.0
"""Seconds before the second try; four times as long before the third."""
_AT_ONCE: Final = 4
_MOST_REASON: Final = 400
_AT_HAND_S: Final = 3600.0
_MOST_AT_HAND: Final = 500
_UNSEEN: Final = ("known", "history")


class _Never(Exception):
    """This file cannot be fetched; the text says why."""


class _Failed(Exception):
    """This attempt to fetch failed."""


class FileLimits(Struct, frozen=True):
    """Limits for fetching: maximum bytes per file, and patterns of media types such as `image/*`; empty: all types."""

    most_bytes: int
    types: Sequence[str] = ()

    def objection(self, media_type: str, size_bytes: int) -> str | None:
        """Why a file of this type and size is not fetched; None if it is."""
        if size_bytes > self.most_bytes:
            return f"it has {size_bytes} bytes, and at most {self.most_bytes} are taken"
        kind = bare_type(media_type) or UNKNOWN
        if self.types and not any(fnmatchcase(kind, pattern) for pattern in self.types):
            return f"files of the type {kind} are not taken"
        return None


@dataclass(slots=True)
class Filer:
    """Fetches the files of an account for one session. `clock` returns monotonic seconds."""

    session: Session
    api: Api
    limits: FileLimits
    health: Health
    clock: Callable[[], float]
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    _known: dict[bytes, tuple[float, UploadedFile]] = field(default_factory=dict)

    def has_files(self, envelope: Envelope, files: Sequence[FileIn]) -> bool:
        """Whether there are files to fetch. Messages kept only as history need none."""
        return bool(files) and self.limits.most_bytes > 0 and not envelope.kept_as_history

    async def store_files(self, envelope: Envelope, files: Sequence[FileIn]) -> Envelope:
        """The envelope with its files stored, where possible. Raises Overtaken, ConfigurationError.

        Waits for an unavailable switchboard, since the message could not be submitted either.
        """
        wanted = await self._ask_files_wanted(envelope)
        if wanted is None or wanted.reason in _UNSEEN:
            return envelope
        given = envelope.payload.attachments
        named = {file.attachment: file for file in files if 0 <= file.attachment < len(given)}
        fetching = {
            at: asyncio.create_task(refuse_exit(self._filed_one, file, given[at], envelope, wanted))
            for at, file in named.items()
        }
        try:
            done = {at: await task for at, task in fetching.items()}
        finally:
            await cancel_tasks(*fetching.values())
        attachments = tuple(done.get(at, one) for at, one in enumerate(given))
        return replace(envelope, payload=replace(envelope.payload, attachments=attachments))

    async def _filed_one(
        self, file: FileIn, attachment: Attachment, envelope: Envelope, wanted: FilesWanted
    ) -> Attachment:
        limits = FileLimits(min(self.limits.most_bytes, wanted.most_bytes), self.limits.types)
        stranger = NOT_LET_IN if wanted.reason == "stranger" else None
        stored = stranger or limits.objection(attachment.media_type, attachment.size_bytes) or self._at_hand(file)
        if stored is None:
            async with self._turns:
                stored = await self._fetch_file(file, attachment, envelope, limits)
        if isinstance(stored, str):
            self.health.counters["files_unavailable"] += 1
            return replace(attachment, unavailable=" ".join(sayable(stored).split())[:_MOST_REASON])
        self._keep(file, stored)
        media_type, size = stored.media_type, stored.size_bytes
        return replace(attachment, media_type=media_type, size_bytes=size, storage_ref=f"{PREFIX}{stored.blob}")

    async def _fetch_file(
        self, file: FileIn, attachment: Attachment, envelope: Envelope, limits: FileLimits
    ) -> UploadedFile | str:
        """The stored file, or why there is none."""
        left, why = WITHIN_S, ""
        for number in range(1, TRIES + 1):
            began = self.clock()
            try:
                async with asyncio.timeout(left):
                    return await self._upload_file(file, attachment, limits)
            except TimeoutError:
                return f"it was not there within {WITHIN_S:.0f} s"
            except _Never as error:
                return str(error)
            except _Failed as error:
                why = str(error)
            except Unreachable as error:
                why = error.message
                await self._ask_files_wanted(envelope)  # this waits until the switchboard is available
            left -= self.clock() - began
            if number < TRIES:
                await asyncio.sleep(_AGAIN_S * 4 ** (number - 1))
        return f"it could not be fetched: {why}"

    async def _upload_file(self, file: FileIn, attachment: Attachment, limits: FileLimits) -> UploadedFile:
        claimed = bare_type(attachment.media_type) or UNKNOWN
        async with aclosing(_check_stream(self.session, file, claimed, limits)) as pieces:
            answer = await self.api.upload(pieces, claimed)
        if isinstance(answer, Declined):
            raise _Never(answer.message)
        self.health.counters["files"] += 1
        point("connector_uploaded")
        return answer

    async def _ask_files_wanted(self, envelope: Envelope) -> FilesWanted | None:
        return await Patience(self.health).insist(lambda: self.api.ask_files_wanted(envelope))

    def _at_hand(self, file: FileIn) -> UploadedFile | None:
        """The file fetched for an earlier event, such as the message being edited."""
        kept = self._known.get(_name(file))
        return kept[1] if kept is not None and self.clock() - kept[0] < _AT_HAND_S else None

    def _keep(self, file: FileIn, stored: UploadedFile) -> None:
        if not file.raw:
            self._known.setdefault(_name(file), (self.clock(), stored))
        if len(self._known) > _MOST_AT_HAND:
            del self._known[next(iter(self._known))]


def limits_of(capabilities: Capabilities, handling: Handling) -> FileLimits:
    """The combined limits of a channel and an account."""
    most = capabilities.max_file_in
    return FileLimits(most if handling.file_bytes is None else min(most, handling.file_bytes), handling.file_types)


def _name(file: FileIn) -> bytes:
    return msgspec.json.encode(file.handle, order="sorted")


async def _check_stream(
    session: Session, file: FileIn, claimed: str, limits: FileLimits
) -> AsyncGenerator[bytes, None]:
    """Pass the bytes on once the first ones have revealed the type of the file. Raises _Never, _Failed."""
    size, head, begun = 0, b"", False
    async with aclosing(_stream_file(session, file)) as pieces:
        async for piece in pieces:
            size += len(piece)
            if size > limits.most_bytes:
                raise _Never(f"it has more than {limits.most_bytes} bytes, the most that are taken")
            if begun:
                yield piece
                continue
            head += piece
            if len(head) >= HEAD_BYTES:
                begun = True
                yield _check_head(head, claimed, limits)
    if not begun:
        yield _check_head(head, claimed, limits)


def _check_head(head: bytes, claimed: str, limits: FileLimits) -> bytes:
    why = limits.objection(sniff(head, claimed).media_type, 0)
    if why is not None:
        raise _Never(why)
    return head


async def _stream_file(session: Session, file: FileIn) -> AsyncGenerator[bytes, None]:
    """The bytes that the session returns. Raises _Never, _Failed."""
    source = None
    try:
        source = session.fetch(file)
        async for piece in source:
            yield piece
    except FileNotFoundError as error:
        raise _Never("it is not there any more") from error
    except ValueError as error:
        raise _Never(str(error) or "the platform does not give it") from error
    except Exception as error:
        raise _Failed(f"{type(error).__name__} {error}".strip()) from error
    finally:
        if isinstance(source, AsyncGenerator):
            await source.aclose()
