"""Files of a message: shown as table lines, and saved.

Called by `commands.py` and `explain.py`. Next: `cli/saving.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from switchboard.cli.client import Client
from switchboard.cli.ids import RequestId, ask_about
from switchboard.cli.output import Json, clean, one_line, show
from switchboard.cli.saving import save_file
from switchboard.core.files.blobs import stored_blob
from switchboard.core.files.reply_files import reply_name
from switchboard.domain.envelope import Attachment


def attachment_line(attachment: Json) -> Text:
    """An attachment in a line: its name, its type, and where its bytes are."""
    kind, size = one_line(attachment["media_type"], 60), f"{attachment['size_bytes']:,} bytes"
    line = Text(one_line(attachment.get("filename") or "(no name)", 100)).append(f"  {kind}, {size}", style="dim")
    if attachment.get("storage_ref"):
        return line.append(f"  {one_line(attachment['storage_ref'])}", style="dim")
    return line.append(f"  {one_line(attachment.get('unavailable') or 'not stored here', 300)}", style="yellow")


def save(
    request_id: RequestId,
    *,
    to: Annotated[
        Path,
        typer.Option("--to", help="The directory; by default this one.", metavar="DIRECTORY", file_okay=False),
    ] = Path(),
) -> None:
    """Save the files of a message. One whose name is taken already gets a number before it; nothing is replaced."""
    answer = ask_about("message", request_id, lambda client, found: _save(client, str(found), to))
    lines = [*map(clean, answer["saved"]), *(f"not there: {clean(why)}" for why in answer["missing"])]
    show(answer, "\n".join(lines) or "the message has no files")


async def _save(client: Client, request_id: str, to: Path) -> Json:
    message = await client.get(f"/v1/messages/{request_id}")
    attachments = msgspec.convert(message["envelope"]["payload"]["attachments"], list[Attachment])
    files, missing = list[str](), list[str]()
    for one in attachments:
        name, blob = reply_name(one.filename), stored_blob(one)
        if blob is None:
            missing.append(f"{name}: {one.unavailable or 'its bytes are not stored here'}")
        else:
            files.append(str(await save_file(client.download(f"/v1/blobs/{blob.hex()}"), to, name)))
    return {"saved": files, "missing": missing}
