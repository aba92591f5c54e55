"""Files that came with a message: as a line of a table, and written to a file of one's own.

Called by `commands.py` and `explain.py`. Strangers named these files: a name is made harmless, and nothing is
overwritten. Next: `cli/client.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Final
from uuid import UUID

import msgspec
import typer
from rich.text import Text

from switchboard.cli.client import Client
from switchboard.cli.ids import RequestId, ask_about
from switchboard.cli.output import AsJson, Json, clean, one_line, show
from switchboard.core.blobs import safe_name, stored_blob
from switchboard.domain.envelope import Attachment
from switchboard.domain.errors import InvalidInput, NotFound

_STDOUT: Final = Path("-")


def attachment_line(attachment: Json) -> Text:
    """An attachment in a line: its name, what it is, and where its bytes are."""
    kind, size = one_line(attachment["media_type"], 60), f"{attachment['size_bytes']:,} bytes"
    line = Text(one_line(attachment.get("filename") or "(no name)", 100)).append(f"  {kind}, {size}", style="dim")
    if attachment.get("storage_ref"):
        return line.append(f"  {one_line(attachment['storage_ref'])}", style="dim")
    return line.append(f"  {one_line(attachment.get('unavailable') or 'not stored here', 300)}", style="yellow")


def get_file(
    request_id: RequestId,
    number: Annotated[int, typer.Argument(min=1, help="Which file, as `messages show` counts them.")] = 1,
    *,
    to: Annotated[
        Path | None, typer.Option(help="Where to write it (- is stdout); by default its name, in this directory.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a file that came with a message. A file that is there already is not overwritten."""

    async def fetch(client: Client, found: UUID) -> Json:
        message = await client.get(f"/v1/messages/{found}")
        attachment = _attachment(message["envelope"]["payload"]["attachments"], number)
        blob = stored_blob(attachment)
        if blob is None:
            why = attachment.unavailable or "its bytes are not stored here"
            raise NotFound(f"file {number} of this message cannot be had: {clean(why)}")
        place = to or Path(safe_name(attachment))
        with _opened(place) as file:
            await client.download(f"/v1/blobs/{blob.hex()}", file.write)
        return {"file": str(place), "size_bytes": attachment.size_bytes, "media_type": attachment.media_type}

    written = ask_about("message", request_id, fetch)
    if to != _STDOUT:
        show(written, f"wrote {clean(written['file'])}", as_json=as_json)


def _attachment(attachments: Sequence[Json], number: int) -> Attachment:
    if number > len(attachments):
        raise NotFound(f"this message has {len(attachments)} files, and no file {number}")
    return msgspec.convert(attachments[number - 1], Attachment)


@contextmanager
def _opened(place: Path) -> Iterator[IO[bytes]]:
    """For writing; what could not be written whole is removed again. Raises InvalidInput."""
    if place == _STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        file = place.open("xb")
    except OSError as error:
        raise InvalidInput(f"{place} cannot be written: {error.strerror}; name another file with --to") from error
    try:
        with file:
            yield file
    except BaseException:
        place.unlink(missing_ok=True)
        raise
