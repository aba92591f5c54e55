"""How an event is treated before the server sees it: skipped, kept as history, or submitted.

Pure; `receiving.py` calls it with the time. Next: `receiving.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec import Struct, structs
from msgspec.structs import replace as with_fields
from pydantic import AwareDatetime, BaseModel, Field

from switchboard.core.mail.compared import text_for_marks
from switchboard.domain.envelope import Envelope, IngestionTier
from switchboard.ports.connector import Inbound, OnUncertain, Unreadable
from switchboard.ports.surroundings import MAX_HEARD

SkipReason = Literal["own", "bot", "edit"]


class Handling(BaseModel, extra="forbid", frozen=True):
    """How an account treats arriving events, and what to do where its platform cannot tell the outcome of a part."""

    start: Literal["now", "7d", "all"] = "now"
    """Whether what the account holds at its first start is left alone, kept as history (of seven days, where there is
    as much), or answered."""
    history_until: AwareDatetime | None = None
    """What was sent before is kept as history. With `start` "7d" it is by default the first start."""
    groups: Literal["addressed", "all"] = "addressed"
    """Which messages of groups are answered; the others are kept as history."""
    bots: Literal["ignore", "answer"] = "ignore"
    on_edit: Literal["ignore", "note", "again"] = "note"
    """What becomes of an edit. A message that no turn has read yet is read as edited, unless edits are ignored. Of one
    that was, later turns are told; or it is submitted as a message that is answered again."""
    heard: int = Field(default=0, ge=0, le=MAX_HEARD)
    """How many messages of a group its butlers hear that were said since their last turn, and not to them."""
    stale_direct_s: float = Field(default=6 * 3600.0, gt=0)
    """Older messages are stale. In the file of an account it is by default what is usual for the platform."""
    stale_group_s: float = Field(default=900.0, gt=0)
    on_stale: Literal["hold", "history", "answer"] = "hold"
    """Stale messages are held, and routed only if an operator releases them; or kept as history; or answered."""
    on_uncertain: OnUncertain | None = None
    """None: as is usual for the platform."""
    file_bytes: int | None = Field(default=None, ge=0)
    """Maximum bytes of a file that is fetched; None: as many as the platform gives; 0: no file is fetched."""
    file_types: tuple[str, ...] = ()
    """Media types that are fetched, such as `image/*`; empty: all."""


class LeftOut(Struct, frozen=True):
    """The event is not a message for us."""

    why: SkipReason


def prepare_envelope(event: Inbound, handling: Handling, now: datetime) -> Envelope | LeftOut:
    """The envelope to submit, or why there is none; `now` is timezone-aware."""
    if event.own:
        return LeftOut("own")
    if event.by_bot and handling.bots == "ignore":
        return LeftOut("bot")
    if event.envelope.event.kind == "edit" and handling.on_edit != "note":
        if handling.on_edit == "ignore":
            return LeftOut("edit")
        event = structs.replace(event, envelope=_as_message(event.envelope))
    return _in_tier(event.envelope, _tier(event, handling, now))


def conversation_of(envelope: Envelope) -> str:
    """The scope within which the order of events is kept: their thread, otherwise their sender."""
    thread = envelope.event.external_thread_id
    return f"sender {envelope.sender.identity}" if thread is None else f"thread {thread}"


def mark_of(event: Inbound | Unreadable) -> str | bytes:
    """The identity of an event while it waits. Strangers choose mail ids, so an id alone must not hide another mail."""
    if isinstance(event, Unreadable):
        return event.event_id
    envelope = event.envelope
    said = (envelope.event.external_event_id, envelope.sender.identity, text_for_marks(envelope.payload))
    return sha256(msgspec.json.encode(said)).digest()


def at_home(event: Inbound, moved: Mapping[str, str]) -> Inbound:
    """The event in the thread that identifies its conversation. Replies still go to the place of the message."""
    envelope = event.envelope
    home = moved.get(envelope.event.external_thread_id or "")
    if home is None:
        return event
    return structs.replace(
        event, envelope=with_fields(envelope, event=with_fields(envelope.event, external_thread_id=home))
    )


def _as_message(envelope: Envelope) -> Envelope:
    return with_fields(envelope, event=with_fields(envelope.event, kind="message"))


def _in_tier(envelope: Envelope, tier: IngestionTier) -> Envelope:
    return with_fields(envelope, control=with_fields(envelope.control, ingestion_tier=tier))


def _tier(event: Inbound, handling: Handling, now: datetime) -> IngestionTier:
    """The tier of the channel, unless the message must cost neither a turn nor a model call."""
    envelope, given = event.envelope, event.envelope.control.ingestion_tier
    if envelope.kept_as_history:
        return given
    if not event.direct and not envelope.control.addressed and handling.groups == "addressed":
        return "history"
    sent_at = envelope.event.sent_at or envelope.event.observed_at
    if handling.history_until is not None and sent_at < handling.history_until:
        return "history"
    if handling.on_stale == "answer" or not _is_stale(event, handling, now):
        return given
    return "held" if handling.on_stale == "hold" else "history"


def _is_stale(event: Inbound, handling: Handling, now: datetime) -> bool:
    sent_at = event.envelope.event.sent_at
    most = handling.stale_direct_s if event.direct else handling.stale_group_s
    return sent_at is not None and (now - sent_at).total_seconds() > most
