"""What the server says to a connector, read out of its JSON. Pure.

`api.py` reads it so; the other modules of the kernel act by it. Whatever may be tried again is `Unreachable`, with the
seconds to wait; that another process holds the account now is `Overtaken`. Next: `api.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct, field

from switchboard.domain.errors import ConfigurationError, SwitchboardError
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.ledger import ReplyFile

_AGAIN: Final = frozenset({"overloaded", "sender_over_rate", "unavailable"})
_BUG: Final = "internal_error"


class Unreachable(SwitchboardError):
    """The server did not answer, or cannot take it now."""

    code = "unreachable"
    status = 503

    def __init__(self, message: str, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds
        """How long the server asked to wait."""


class TokenRefused(ConfigurationError):
    """The server does not know the token of the account: it was revoked, or has expired."""


class Overtaken(SwitchboardError):
    """The lease of the account, or of a reply, is somebody else's by now."""

    code = "conflict"
    status = 409


class Taken(Struct, frozen=True):
    """The message is stored; `duplicate`: it was before."""

    duplicate: bool


class Declined(Struct, frozen=True):
    """The message will never be taken as it is."""

    code: str
    message: str


class NotNow(Struct, frozen=True):
    """This message was not taken; `counts`: others may be while it never is, as the server has a fault."""

    reason: str
    seconds: float | None = None
    counts: bool = False


class FilesWanted(Struct, frozen=True):
    """Whether the files of a message are to be fetched: `reason` says why not. One may have `most_bytes`."""

    most_bytes: int
    reason: str | None


class UploadedFile(Struct, frozen=True):
    """A file that the server has: the name of its blob, and what it is."""

    blob: str
    size_bytes: int
    media_type: str


IntakeAnswer = Taken | Declined | NotNow


class Lease(Struct, frozen=True):
    """This process serves the account; `cursor` is where the one before it had come to.

    `replays`: how many events in quarantine are to be submitted again. `moved`: by the thread that a conversation has
    on the platform now, the one under which it is submitted. `answering`: by conversation, the address of the message
    that a butler is working on. `since`: when the account was leased for the first time. `recent`: the last replies,
    with the seconds since they were made and sent.
    """

    number: int
    cursor: str | None
    replays: int = 0
    moved: Mapping[str, str] = field(default_factory=dict)
    answering: Mapping[str, JsonObject] = field(default_factory=dict)
    recent: Sequence[JsonMapping] = ()
    since: datetime | None = None


class QuarantinedEvent(Struct, frozen=True):
    """An event in quarantine, as the platform gave it."""

    quarantine_id: str
    event_id: str
    raw: bytes


class ReplyToSend(Struct, frozen=True):
    """A reply to send; `parts` are those that an earlier attempt recorded, by their index.

    `unreachable`: nothing can be sent there, as is known since the message came that it answers.
    """

    outbox_id: str
    lease: int
    conversation: str
    recipient: str
    reply_to: str
    text: str
    address: JsonObject
    parts: Mapping[int, JsonMapping]
    files: Sequence[ReplyFile] = ()
    unreachable: bool = False


def lease_of(got: JsonMapping) -> Lease:
    """The answer to who asks for the account."""
    since = got.get("since")
    return Lease(
        int(got["lease"]),
        got.get("cursor"),
        int(got.get("replays", 0)),
        got.get("moved") or {},
        {one["conversation"]: one["address"] for one in got.get("answering") or ()},
        got.get("recent") or (),
        None if since is None else datetime.fromisoformat(since),
    )


def verdict_of(result: JsonMapping) -> IntakeAnswer:
    """What became of one message."""
    error = result.get("error")
    if error is None:
        return Taken(bool(result["duplicate"]))
    code, message = str(error["code"]), str(error["message"])
    if code in _AGAIN:
        seconds = (error.get("details") or {}).get("retry_after_s")
        return NotNow(message, float(seconds) if seconds is not None else None)
    return NotNow(message, counts=True) if code == _BUG else Declined(code, message)


def reply_of(some: JsonMapping) -> ReplyToSend:
    """One of those that are to be sent."""
    return ReplyToSend(
        outbox_id=some["outbox_id"],
        lease=some["lease"],
        conversation=some["conversation"],
        recipient=some["recipient"],
        reply_to=some["reply_to"],
        text=some["text"],
        address=some.get("address") or {},
        parts={int(part["part"]): part for part in some.get("parts") or ()},
        files=msgspec.convert(some.get("files") or (), tuple[ReplyFile, ...]),
        unreachable=some.get("unreachable", False),
    )


def refusal_of(status: int, content: bytes, retry_after: str | None) -> SwitchboardError:
    """What a status that is no success means."""
    try:
        told = json.loads(content)["error"]
        code, message = str(told["code"]), str(told["message"])
    except (ValueError, KeyError, TypeError):
        code, message = "", f"the switchboard answered {status}"
    if status == 429 or status >= 500 or status == 408:
        away = Unreachable(message, _seconds(retry_after))
        away.status, away.code = status, code or away.code
        return away
    if status == 409:
        return Overtaken(message)
    if status in {401, 403}:
        kind = TokenRefused if status == 401 else ConfigurationError
        return kind(f"the switchboard does not accept the token of this account: {message}")
    error = SwitchboardError(message, code=code or None)
    error.status = status
    return error


def _seconds(text: str | None) -> float | None:
    try:
        return min(max(float(text), 0.05), 60.0) if text is not None else None
    except ValueError:
        return None
