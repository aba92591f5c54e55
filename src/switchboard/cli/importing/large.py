"""A mail that is too large for one request: uploads its attachments first, then submits the rest as an envelope.

Called by `commands.py`. In: the mail as it was received; out: the server's answer. If there is no room for a file, only
that file is lost. Next: `transport/mail_reading.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from switchboard.cli.client import Client
from switchboard.cli.output import Json
from switchboard.core.files.blobs import NOT_LET_IN, PREFIX, UNKNOWN, bare_type
from switchboard.domain.envelope import Attachment, Envelope
from switchboard.domain.errors import Overloaded, TooLarge
from switchboard.transport.mail_reading import MailReader, mail_name


async def submit_by_parts(client: Client, reader: MailReader, mail: bytes, endpoint: str) -> Json | None:
    """Submit a mail in parts; returns the server's answer, None without attachments.

    Raises InvalidInput, TooLarge, Unavailable.
    """
    read = await reader.read(mail, endpoint=endpoint, provider="file", now=datetime.now(UTC))
    envelope = read.envelope
    if not envelope.payload.attachments:
        return None
    name = mail_name(mail)
    asked = await client.post("/v1/ingest/files", msgspec.json.encode(envelope))
    attachments = [
        await _keep_attachment(client, await reader.file(mail, n, name), one, asked["most_bytes"])
        if asked["wanted"]
        else _leave_out(one, asked["reason"])
        for n, one in enumerate(envelope.payload.attachments)
    ]
    return await client.post("/v1/ingest", msgspec.json.encode(_with_attachments(envelope, attachments)))


def _with_attachments(envelope: Envelope, attachments: list[Attachment]) -> Envelope:
    return replace(envelope, payload=replace(envelope.payload, attachments=tuple(attachments)))


def _leave_out(attachment: Attachment, reason: str) -> Attachment:
    return replace(attachment, unavailable=NOT_LET_IN) if reason == "stranger" else attachment


async def _keep_attachment(client: Client, data: bytes | None, attachment: Attachment, most_bytes: int) -> Attachment:
    if data is None:
        return replace(attachment, unavailable="it could not be read out of the mail")
    if len(data) > most_bytes:
        return replace(attachment, unavailable=f"it has {len(data)} bytes, and at most {most_bytes} are taken")
    try:
        stored = await client.post("/v1/blobs", data, media_type=bare_type(attachment.media_type) or UNKNOWN)
    except (TooLarge, Overloaded) as error:  # for files, 429 is a quota
        return replace(attachment, unavailable=error.message[:400])
    return replace(
        attachment,
        media_type=stored["media_type"],
        size_bytes=stored["size_bytes"],
        storage_ref=f"{PREFIX}{stored['blob']}",
    )
