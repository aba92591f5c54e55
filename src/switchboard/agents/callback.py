"""Replies of `api` endpoints, posted to clients that want them pushed.

`app/wiring.py` makes the callbacks from the settings; `journey/reply.py` calls `send` with a reply from the outbox,
which returns a receipt and never raises. Next: `store/messages/outbox.py`, where the receipt is settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from switchboard.core.files.blobs import PREFIX
from switchboard.core.text.storable import storable_text
from switchboard.domain.envelope import Attachment
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import OutboxRow, ReplyFile
from switchboard.ports.channel import Receipt
from switchboard.ports.engine import Files
from switchboard.transport.signed_post import RETRYABLE, PostDestination, PostError, PostResult, destination, post
from switchboard.transport.webhook_spec import CallbackSpec

SCHEMA_VERSION: Final = "reply.v1"
_TIMEOUT_S: Final = 30.0


class _Acknowledged(msgspec.Struct, frozen=True):
    id: str | int | None = None


def callbacks_from(settings: Sequence[CallbackSpec], files: Files | None = None) -> dict[str, SignedCallback]:
    """The callbacks by `api` endpoint. Raises `ConfigurationError` with the endpoint and the fix."""
    callbacks: dict[str, SignedCallback] = {}
    for setting in settings:
        if setting.endpoint in callbacks:
            raise ConfigurationError(f"there are two callbacks for the api endpoint {setting.endpoint!r}; keep one")
        whose = f"callback of the api endpoint {setting.endpoint!r}"
        callbacks[setting.endpoint] = SignedCallback(destination(setting, whose, _TIMEOUT_S), files)
    return callbacks


class SignedCallback(Struct, frozen=True):
    """Posts `reply.v1`; the receiver recognises a repeat by its `Idempotency-Key`, the outbox id."""

    to: PostDestination
    files: Files | None = None

    async def send(self, reply: OutboxRow) -> Receipt:
        """Try once; a failure is reported in the receipt."""
        try:
            return _read_receipt(await post(self.to, reply_json(reply, await self._link_files(reply)), reply.outbox_id))
        except PostError as error:
            return Receipt(
                "failed" if error.kind == "forbidden" else "retryable", error=storable_text(str(error))[:500]
            )
        except Exception as error:  # the send lane must learn of a defect here, and continue
            return Receipt("retryable", error=storable_text(repr(error))[:500])

    async def _link_files(self, reply: OutboxRow) -> Sequence[JsonObject]:
        """Each file with a URL that serves its bytes for an hour."""
        if self.files is None:
            return ()
        return [{**msgspec.to_builtins(one), "url": await self.files.link(_attachment_of(one))} for one in reply.files]


def _attachment_of(file: ReplyFile) -> Attachment:
    return Attachment(media_type=file.media_type, size_bytes=file.size_bytes, storage_ref=PREFIX + file.sha256)


def reply_json(reply: OutboxRow, files: Sequence[JsonObject]) -> bytes:
    """`reply.v1`."""
    return msgspec.json.encode(
        {
            "schema_version": SCHEMA_VERSION,
            "outbox_id": reply.outbox_id,
            "request_id": reply.request_id,
            "conversation": reply.conversation,
            "thread": reply.thread,
            "reply_to": reply.reply_to,
            "system_id": reply.system_id,
            "text": reply.text,
            "files": files,
            "created_at": reply.created_at,
        }
    )


def _read_receipt(posted: PostResult) -> Receipt:
    if 200 <= posted.status < 300:
        return Receipt("sent", platform_message_id=_platform_id(posted.body))
    said = storable_text(posted.body[:1200].decode("utf-8", "replace")).strip()[:300]
    error = f"the callback answered {posted.status}: {said}"
    if posted.status in RETRYABLE or posted.status >= 500:
        return Receipt("retryable", error=error, delay=posted.retry_after or 0.0)
    return Receipt("failed", error=error)


def _platform_id(body: bytes) -> str | None:
    try:
        found = msgspec.json.decode(body, type=_Acknowledged).id
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # a receiver need not send a body
    return None if found is None else storable_text(str(found))[:200] or None
