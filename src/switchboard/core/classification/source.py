"""What a program that embeds the pipeline says about a message: the arguments of a tool, or a request context.

Called by `pipeline.py`. In: one of these, and the tool's name; out: source metadata, the envelope that a connector
would have submitted, and what only a request context has. Next: `history.py` and `prompt.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from switchboard.core.channels.registry import OURS_ALONE
from switchboard.core.envelope.strict import strict_envelope
from switchboard.core.text.lenient import string
from switchboard.core.text.storable import to_storable_json
from switchboard.domain.classification import Candidate
from switchboard.domain.envelope import SCHEMA_VERSION, Envelope
from switchboard.domain.errors import InvalidInput
from switchboard.domain.message import RequestId
from switchboard.ports.channel import CHAT_TYPES
from switchboard.ports.raw import number

ToolIdentity = Literal["user", "bot", "unknown"]


class SourceArguments(Struct, frozen=True):
    """The seven arguments of the seed data, None if missing. `source_identity` defaults to the tool's name."""

    source_identity: str
    source_channel: str | None = None
    source_endpoint_identity: str | None = None
    sender_identity: str | None = None
    external_event_id: str | None = None
    external_thread_id: str | None = None
    idempotency_key: str | None = None
    tool_name: str | None = None

    def known(self) -> dict[str, str]:
        """The known values, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def identity_of(tool_name: str | None) -> ToolIdentity:
    """`user` for tools whose name starts with `user_`, `bot` for `bot_`, else `unknown`."""
    if tool_name is None:
        return "unknown"
    if tool_name.startswith("user_"):
        return "user"
    return "bot" if tool_name.startswith("bot_") else "unknown"


def source_metadata(tool_args: Mapping[str, object], tool_name: str | None = None) -> SourceArguments:
    """The source according to `tool_args`, by the names of the seed or of `route.v1`.

    Never raises: anything but text and numbers counts as unknown.
    """
    return SourceArguments(
        source_identity=_word_in(tool_args, "source_identity") or identity_of(tool_name),
        source_channel=_word_in(tool_args, "source_channel"),
        source_endpoint_identity=_word_in(tool_args, "source_endpoint_identity"),
        sender_identity=_word_in(tool_args, "sender_identity") or _word_in(tool_args, "source_sender_identity"),
        external_event_id=_word_in(tool_args, "external_event_id"),
        external_thread_id=_word_in(tool_args, "external_thread_id") or _word_in(tool_args, "source_thread_identity"),
        idempotency_key=_word_in(tool_args, "idempotency_key"),
        tool_name=tool_name,
    )


class IntakeContext(Struct, frozen=True):
    """When and as what a message is accepted, and by which program, which stands for an endpoint that is not given."""

    request_id: UUID
    at: datetime
    program: str


def envelope_of(text: str, source: SourceArguments, known: Mapping[str, object], seen: IntakeContext) -> Envelope:
    """The message as a connector would have submitted it. `known`: also `sender_name`, `chat_type`, `attachments`.

    Without a channel it came over the API; without a sender it is in a conversation of its own, as strangers must not
    share one. Raises InvalidInput for a text or a source that no message can have.
    """
    if source.source_channel in OURS_ALONE:
        message = f"nobody submits to {source.source_channel!r}, the channel of {OURS_ALONE[source.source_channel]}"
        raise InvalidInput(message, code="unknown_channel", field="source_channel")
    chat_type, key = known.get("chat_type"), str(seen.request_id)
    given = {
        "schema_version": SCHEMA_VERSION,
        "source": {
            "channel": source.source_channel or "api",
            "provider": "internal",
            "endpoint_identity": source.source_endpoint_identity or seen.program,
        },
        "event": {
            "external_event_id": source.external_event_id or key,
            "external_thread_id": source.external_thread_id or (None if source.sender_identity else key),
            "observed_at": seen.at,
        },
        "sender": {
            "identity": source.sender_identity or "unknown",
            "display_name": string(known.get("sender_name"))[:512] or None,
            "chat_type": chat_type if chat_type in CHAT_TYPES else None,
        },
        "payload": {"normalized_text": text, "attachments": known.get("attachments", ())},
        "control": {"idempotency_key": source.idempotency_key},
    }
    return strict_envelope(to_storable_json(given).encode())


def given_request_id(context: Mapping[str, object]) -> RequestId:
    """The request_id of a context made by Switchboard. Raises InvalidInput for any other."""
    try:
        request_id = UUID(str(context["request_id"]))
    except (KeyError, ValueError):
        raise InvalidInput(
            "a request context has a request_id, which is a UUIDv7", field="request_context.request_id"
        ) from None
    if source_metadata(context).source_channel is None:
        raise InvalidInput(
            "a request context names its source as route.v1 does: source_channel, source_endpoint_identity, "
            "source_sender_identity",
            field="request_context.source_channel",
        )
    return RequestId(request_id)


def given_candidates(context: Mapping[str, object]) -> tuple[Candidate, ...] | None:
    """The candidates of a request context; None if it names none. Raises InvalidInput."""
    given = context.get("candidates")
    if given is None:
        return None
    try:
        return msgspec.convert(given, tuple[Candidate, ...], from_attributes=True)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"candidates: {error}", field="request_context.candidates") from None


def _word_in(tool_args: Mapping[str, object], name: str) -> str | None:
    value = tool_args.get(name)
    text = number(value) or value  # ids of chats and updates come as numbers
    return text.replace("\x00", "").strip() or None if isinstance(text, str) else None
