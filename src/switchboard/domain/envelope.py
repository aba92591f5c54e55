"""The wire form of a message: `ingest.v1`. The one place that lists its fields, their types and their limits.

Every interface and connector builds one; `journey/accept.py` takes it. A Struct checks values that are decoded into
it, but not those passed to its constructor. Input therefore goes through `core/envelope/`, which also refuses unknown
fields, strips strings and removes NUL (PostgreSQL cannot store it). Next: `domain/message.py`, what an envelope becomes
once it is accepted.
"""

from __future__ import annotations

from datetime import datetime
from itertools import repeat
from typing import Annotated, Final, Literal, TypeVar

from msgspec import Meta, Struct, field

from switchboard.domain.json_values import JsonObject

SCHEMA_VERSION: Final = "ingest.v1"

MAX_TEXT: Final = 262_144
"""Maximum characters in `normalized_text`."""
MAX_PASSAGES: Final = 200
"""Maximum number of passages of a message."""
MAX_DEPTH: Final = 32
"""Maximum nesting of `payload.raw`, `control.trace_context` and `event.reply_address`."""
MAX_ADDRESS: Final = 4096
"""Maximum bytes of `event.reply_address` as compact JSON."""

PolicyTier = Literal["high_priority", "interactive", "default", "passive"]
IngestionTier = Literal["full", "metadata", "history", "held"]
EventKind = Literal["message", "edit", "delete", "reaction", "button", "membership", "bounce", "calendar"]
ChatType = Literal["private", "group", "supergroup", "channel"]
PassageKind = Literal["own", "between", "quoted", "forwarded", "transcript"]
"""Whose words a passage of a message is: `own` was written here by the sender; `quoted` is by others; `forwarded` is a
whole message by somebody else; `between` stands unmarked below or between others' words, and is probably the sender's.
`transcript` is what a machine heard the sender say: only the server makes it, for those who read the message.
"""

Name = Annotated[str, Meta(min_length=1, max_length=64)]
Identity = Annotated[str, Meta(min_length=1, max_length=512)]
SenderId = Annotated[str, Meta(min_length=1, max_length=512, extra={"as_it_is": True})]
"""Not stripped: two ids that differ in a blank may be two people."""
DisplayName = Annotated[str, Meta(max_length=512)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Timestamp = Annotated[datetime, Meta(tz=True)]
Raw = JsonObject | str | None
Trace = JsonObject
Address = Annotated[JsonObject, Meta(description="Opaque; at most 4096 bytes.")]
Cause = Annotated[Literal["reminder", "call"] | None, Meta(extra={"ours": True})]
"""Why there is a message that nobody wrote: a task is due, of which its butler reminds itself."""

_T = TypeVar("_T")


def _written_default(value: _T) -> _T:
    """A default that is written to the JSON all the same; plain defaults are left out, and so is None."""
    default: _T = field(default_factory=repeat(value).__next__)  # like a lambda, but runs no Python code
    return default


# Decoded JSON has no cycles, so the garbage collector need not track it.
class _Wire(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    pass


class Source(_Wire, frozen=True, kw_only=True):
    """Where the message entered: the channel, its provider, and which account received it."""

    channel: Name
    provider: Name
    endpoint_identity: Identity


class Event(_Wire, frozen=True, kw_only=True):
    """The platform's own id of this event; `observed_at` is when the connector saw it, `sent_at` the platform's time.

    `kind`: everything but a `message` is kept as history and needs no text; `refers_to` is the platform's id of the
    message that it is about. A `message` with `refers_to` is the new text of that one, to be answered again.
    `reply_address` is returned to the connector with every reply, and goes nowhere else. `also`: ids of further events
    that this one stands for, such as the other photos of an album; they count as submitted.
    """

    external_event_id: Identity
    external_thread_id: Identity | None = None
    observed_at: Timestamp
    sent_at: Timestamp | None = None
    kind: EventKind = "message"
    refers_to: Identity | None = None
    reply_address: Address | None = None
    also: Annotated[tuple[Identity, ...], Meta(max_length=20)] = ()


class Sender(_Wire, frozen=True, kw_only=True):
    """Who wrote it. `participants` maps sender ids to names if several people wrote one message."""

    identity: SenderId
    display_name: DisplayName | None = None
    chat_type: ChatType | None = None
    participants: Annotated[dict[Identity, Identity], Meta(max_length=1000)] | None = None


class Attachment(_Wire, frozen=True, kw_only=True):
    """The metadata of an attachment. Its bytes stay with the platform or where `storage_ref` points.

    `unavailable`: why the bytes are missing, if a connector failed to fetch them. `voice`: it was recorded to be heard
    as the message, as voice and video messages are. `seconds`: how long a recording is, if the platform says so.
    """

    media_type: Identity
    filename: Identity | None = None
    size_bytes: Annotated[int, Meta(ge=0, le=2**53)]
    storage_ref: Identity | None = None
    source_attachment_id: Identity | None = None
    unavailable: Identity | None = None
    voice: bool | None = None
    seconds: Annotated[int, Meta(ge=0, le=2**31)] | None = None


class Passage(_Wire, frozen=True, kw_only=True):
    """A piece of a message, and whose words it is. `author`: who wrote it, according to the message itself.

    `refers_to` is the platform's id of the message that it repeats.
    """

    kind: PassageKind
    text: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
    author: DisplayName | None = None
    sent_at: Timestamp | None = None
    refers_to: Identity | None = None


class Payload(_Wire, frozen=True, kw_only=True):
    """`raw` is the platform's own object, kept untouched; `normalized_text` is what rules, models and butlers read.

    `passages`: whose words the parts of the text are, in reading order, if they are not all the sender's. Joined by
    blank lines they are the text, which can then be left out.
    """

    raw: Raw = None
    normalized_text: Text
    passages: Annotated[tuple[Passage, ...], Meta(max_length=MAX_PASSAGES)] = ()
    attachments: Annotated[tuple[Attachment, ...], Meta(max_length=100)] = _written_default(())


class DueTask(_Wire, frozen=True, kw_only=True):
    """The task that is due, in a message with the cause `reminder`; see `ports/front_door.py`."""

    task_id: Identity
    revision: Annotated[int, Meta(ge=0, le=2**53)]
    due: Timestamp
    made_at: Timestamp
    say: bool = False
    own: bool = False
    tainted: bool = True
    answer: bool = False


Task = Annotated[DueTask | None, Meta(extra={"ours": True})]
AnsweredMailId = Annotated[Identity | None, Meta(extra={"ours": True})]
"""The mail of a butler, by its message, which this one answers: it is told where the butler was asked to write it."""


class Control(_Wire, frozen=True, kw_only=True):
    """What the sender asks of Switchboard.

    `ingestion_tier`: `metadata` has no `raw`; `history` is stored, but neither routed nor answered; `held`
    arrived too late to be answered, and is routed only if an operator releases it.
    `idempotency_key` identifies the event instead of its own id, as the header Idempotency-Key does.
    `model`: which of its models the butler asks; only operators may set it.
    """

    idempotency_key: Identity | None = None
    trace_context: Trace | None = None
    policy_tier: PolicyTier = _written_default("default")
    ingestion_tier: IngestionTier = _written_default("full")
    addressed: bool = _written_default(False)
    pinned_target: Identity | None = None
    model: Identity | None = None
    # Set by Switchboard alone, for what is due, calls of tools and answers to mails; refused everywhere else.
    cause: Cause = None
    task: Task = None
    answers_mail: AnsweredMailId = None

    @property
    def is_ours(self) -> bool:
        """Whether Switchboard itself submits the message, as nobody has written it."""
        return self.cause is not None or self.task is not None


class Envelope(_Wire, frozen=True, kw_only=True):
    """One inbound event as a connector submits it (`ingest.v1`)."""

    schema_version: Literal["ingest.v1"]
    source: Source
    event: Event
    sender: Sender
    payload: Payload
    control: Control = _written_default(Control())

    @property
    def edits(self) -> bool:
        """Whether it is the new text of the earlier message `event.refers_to`: kept as history, or answered again."""
        return self.event.kind in ("edit", "message") and self.event.refers_to is not None

    @property
    def kept_as_history(self) -> bool:
        """Whether it is only stored: no rule sees it, and it is answered by nobody."""
        return self.event.kind != "message" or self.control.ingestion_tier == "history"
