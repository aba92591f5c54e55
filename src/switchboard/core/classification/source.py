"""Where a message came from, by the arguments of a tool: the older interface to the pipeline, without request context.

Called by `pipeline.py` if `process` gets no `request_context`. In: a tool's name and its arguments; out: source
metadata. Next: `core/classification/history.py` and `prompt.py`. Not used with a request context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Identity = Literal["user", "bot", "unknown"]


@dataclass(frozen=True, slots=True)
class SourceMetadata:
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
        every = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in every.items() if value is not None}


def identity_of(tool_name: str | None) -> Identity:
    """`user` for tools whose name starts with `user_`, `bot` for `bot_`, else `unknown`."""
    if tool_name is None:
        return "unknown"
    if tool_name.startswith("user_"):
        return "user"
    return "bot" if tool_name.startswith("bot_") else "unknown"


def source_metadata(tool_args: Mapping[str, object], tool_name: str | None = None) -> SourceMetadata:
    """The source according to `tool_args`, by the names of the seed or of `route.v1`.

    Never raises: anything but text and numbers counts as unknown.
    """
    return SourceMetadata(
        source_identity=_word(tool_args, "source_identity") or identity_of(tool_name),
        source_channel=_word(tool_args, "source_channel"),
        source_endpoint_identity=_word(tool_args, "source_endpoint_identity"),
        sender_identity=_word(tool_args, "sender_identity") or _word(tool_args, "source_sender_identity"),
        external_event_id=_word(tool_args, "external_event_id"),
        external_thread_id=_word(tool_args, "external_thread_id") or _word(tool_args, "source_thread_identity"),
        idempotency_key=_word(tool_args, "idempotency_key"),
        tool_name=tool_name,
    )


def _word(tool_args: Mapping[str, object], name: str) -> str | None:
    value = tool_args.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64:
        value = str(value)  # ids of chats and updates come as numbers
    if not isinstance(value, str):
        return None
    text = value.replace("\x00", "").strip()
    return text or None
