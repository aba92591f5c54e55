"""What a message says to a person whose program cannot read it: weekday, local time with zone, place, organizer. Pure.

`recipients.py` calls it. In: an `EventPart`; out: a subject and a text. Next: `composing.py`, the part for programs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from switchboard.core.text.visible import visible
from switchboard.modules.calendar.describing import clip_text, describe_when
from switchboard.modules.calendar.editing.fields import PartStat
from switchboard.modules.calendar.editing.series import EventPart
from switchboard.modules.calendar.mailing.composing import MailMethod

_TITLE: Final = 100
_NOTES: Final = 4000
_ANSWERED: Final[dict[PartStat, tuple[str, str]]] = {
    "ACCEPTED": ("Accepted", "accepts this invitation."),
    "DECLINED": ("Declined", "declines this invitation."),
    "TENTATIVE": ("Tentative", "may come, and does not know yet."),
}


class MailWords(Struct, frozen=True):
    """The subject and the text of a mail."""

    subject: str
    text: str


def words_of(part: EventPart, method: MailMethod, *, is_new: bool = True) -> MailWords:
    """Of an invitation, or of a cancellation."""
    organizer = organizer_of(part)
    if method == "CANCEL":
        return _make_words("Cancelled", f"{organizer} has cancelled this:", part, ("You need not do anything.",))
    head = f"{organizer} invites you:" if is_new else f"{organizer} has changed this; it is now:"
    return _make_words("Invitation" if is_new else "Changed", head, part, _notes_of(part))


def words_of_answer(part: EventPart, answer: PartStat, who: str, comment: str) -> MailWords:
    """Of an answer to an invitation."""
    mark, sentence = _ANSWERED[answer]
    return _make_words(mark, f"{who} {sentence}", part, (f"| {line}" for line in comment.splitlines()))


def organizer_of(part: EventPart) -> str:
    """Who invites, by name and address."""
    found = part.first("ORGANIZER")
    name = clip_text(found[1].parameter("CN"), _TITLE) if found is not None else ""
    return f"{name} <{part.organizer}>" if name and name.lower() != part.organizer else part.organizer


def _make_words(mark: str, head: str, part: EventPart, below: Iterable[str]) -> MailWords:
    title = clip_text(part.text("SUMMARY"), _TITLE) or "(no title)"
    when = clip_text(describe_when(part))
    repeats = " and further dates" if part.first("RRULE") or part.first("RDATE") else ""
    place = clip_text(part.text("LOCATION"), 500)
    lines = [head, "", title, f"When: {when}{repeats}", *([f"Place: {place}"] if place else [])]
    lines.append(f"Organizer: {organizer_of(part)}")
    rest = [*below]
    return MailWords(clip_text(f"{mark}: {title} ({when})"), "\n".join([*lines, *(["", *rest] if rest else [])]))


def _notes_of(part: EventPart) -> tuple[str, ...]:
    return tuple(visible(part.text("DESCRIPTION"))[:_NOTES].splitlines())
