"""The mails that Google's calendar sends to those who are invited, counted by what makes a mail the same. Pure.

`calendar.py` tells what was written. In: an event before and after a write; out: `SentMail`s.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, Literal

from msgspec import Struct

from switchboard.domain.json_values import JsonMapping
from switchboard.testing.google.dates import instant_of

MailMethod = Literal["REQUEST", "CANCEL", "REPLY"]
TOLD: Final = ("summary", "location", "description", "start", "end", "recurrence", "status")
"""What those who are invited are told of when it changes."""


class SentMail(Struct, frozen=True):
    """`event` is its iCalUID, `date` which date of a series, if only one is meant."""

    event: str
    date: str
    sequence: int
    method: MailMethod
    to: str


def mails_of(old: JsonMapping | None, new: JsonMapping, now: datetime) -> Iterator[SentMail]:
    """What a write sends, if its client wants mails sent. Nobody is told of what is over."""
    if instant_of(new["end"]) < now and "recurrence" not in new:
        return
    if not new["organizer"].get("self"):
        yield from _answers_in(old or {}, new)
        return
    before, after = _guests_of(old or {}), _guests_of(new)
    if new["status"] == "cancelled":
        yield from (_mail_of(new, "CANCEL", one) for one in before)
        return
    changed = old is None or any(old.get(name) != new.get(name) for name in TOLD)
    yield from (_mail_of(new, "REQUEST", one) for one in after if changed or one not in before)
    yield from (_mail_of(new, "CANCEL", one) for one in before if one not in after)


def _guests_of(event: JsonMapping) -> tuple[str, ...]:
    found = (one["email"].lower() for one in event.get("attendees", ()) if not one.get("self"))
    return tuple(dict.fromkeys(found))


def _answers_in(old: JsonMapping, new: JsonMapping) -> Iterator[SentMail]:
    """The organizer is told the answer of this calendar's user."""
    before, after = _own_answer(old), _own_answer(new)
    if after != before:
        yield _mail_of(new, "REPLY", str(new["organizer"]["email"]))


def _own_answer(event: JsonMapping) -> str:
    if event.get("status") == "cancelled":
        return "declined"
    return next((one["responseStatus"] for one in event.get("attendees", ()) if one.get("self")), "")


def _mail_of(event: JsonMapping, method: MailMethod, to: str) -> SentMail:
    time = event.get("originalStartTime", {})
    return SentMail(event["iCalUID"], str(time.get("dateTime") or time.get("date", "")), event["sequence"], method, to)
