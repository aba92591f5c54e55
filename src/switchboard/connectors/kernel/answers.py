"""The server's answers to a connector, parsed from JSON. Pure.

`api.py` parses with it; the other modules of the kernel act on the results. Everything worth another try is
`Unreachable`, with the seconds to wait; if another process now holds the account, it is `Overtaken`. Next: `api.py`.
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
from switchboard.domain.ledger import ReplyChoice, ReplyFile

_AGAIN: Final = frozenset({"overloaded", "sender_over_rate", "unavailable"})
_BUG: Final = "internal_error"


class Unreachable(SwitchboardError):
    """The server did not answer, or cannot accept the request now."""

    code = "unreachable"
    status = 503

    def __init__(self, message: str, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds
        """How long the server asked to wait."""


class TokenRefused(ConfigurationError):
    """The server does not know the token of the account: it was revoked, or has expired."""


class Overtaken(SwitchboardError):
    """Another process now holds the lease of the account, or of a reply."""

    code = "conflict"
    status = 409


class Taken(Struct, frozen=True):
    """The message is stored; `duplicate`: it already was."""

    duplicate: bool


class Declined(Struct, frozen=True):
    """The message will never be accepted in this form."""

    code: str
    message: str


class NotNow(Struct, frozen=True):
    """This message was not accepted now; `counts`: the fault may lie with this message, so count the attempt."""

    reason: str
    seconds: float | None = None
    counts: bool = False


class FilesWanted(Struct, frozen=True):
    """Whether to fetch the files of a message; `reason` says why not. Each may have up to `most_bytes`."""

    most_bytes: int
    reason: str | None


class UploadedFile(Struct, frozen=True):
    """A file stored at the server: the name of its blob, and its type."""

    blob: str
    size_bytes: int
    media_type: str


IntakeAnswer = Taken | Declined | NotNow


class Lease(Struct, frozen=True):
    """This process serves the account; `cursor` is where its predecessor stopped.

    `replays`: number of events in quarantine to submit again. `moved`: maps the present thread of a conversation on the
    platform to the thread under which it is submitted. `answering`: by conversation, the address of the message that a
    butler is working on. `since`: when the account was first leased. `recent`: the last replies, with the seconds since
    they were created and sent. `heard`: how many messages of a group butlers hear; None: the server does not know it.
    `accepts`: the fields of messages that servers of earlier releases refuse.
    """

    number: int
    cursor: str | None
    replays: int = 0
    moved: Mapping[str, str] = field(default_factory=dict)
    answering: Mapping[str, JsonObject] = field(default_factory=dict)
    recent: Sequence[JsonMapping] = ()
    since: datetime | None = None
    heard: int | None = None
    accepts: Sequence[str] = ()


class QuarantinedEvent(Struct, frozen=True):
    """An event in quarantine, as received from the platform."""

    quarantine_id: str
    event_id: str
    raw: bytes


class ReplyToSend(Struct, frozen=True):
    """A reply to send; `parts` are those recorded by an earlier attempt, by index.

    `unreachable`: nothing can be sent there; known since the message that it answers arrived.
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
    choices: tuple[ReplyChoice, ...] | None = None


class WrittenText(Struct, frozen=True):
    """What a butler has written so far of an answer to a direct chat; `number` stays the same while it writes."""

    conversation: str
    number: int
    text: str
    address: JsonObject


def lease_of(got: JsonMapping) -> Lease:
    """Parse the answer to a request for the account's lease."""
    since = got.get("since")
    return Lease(
        int(got["lease"]),
        got.get("cursor"),
        int(got.get("replays", 0)),
        got.get("moved") or {},
        {one["conversation"]: one["address"] for one in got.get("answering") or ()},
        got.get("recent") or (),
        None if since is None else datetime.fromisoformat(since),
        got.get("heard"),
        tuple(got.get("accepts") or ()),
    )


def verdict_of(result: JsonMapping) -> IntakeAnswer:
    """Parse the result for one message."""
    error = result.get("error")
    if error is None:
        return Taken(bool(result["duplicate"]))
    code, message = str(error["code"]), str(error["message"])
    if code in _AGAIN:
        seconds = (error.get("details") or {}).get("retry_after_s")
        return NotNow(message, float(seconds) if seconds is not None else None)
    return NotNow(message, counts=True) if code == _BUG else Declined(code, message)


def reply_of(some: JsonMapping) -> ReplyToSend:
    """Parse one reply to send."""
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
        choices=msgspec.convert(some.get("choices"), tuple[ReplyChoice, ...] | None),
    )


def refusal_of(status: int, content: bytes, retry_after: str | None) -> SwitchboardError:
    """The meaning of a status that is not a success."""
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
