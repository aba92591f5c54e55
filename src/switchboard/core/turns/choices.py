"""Buttons below what people are asked: their labels, and the tokens that a press brings back. Pure.

`journey/choices.py` puts them below replies that tell of requests; `journey/accept.py` recognises a press by its token,
and `journey/approving.py` carries it out like a typed command. A token is no secret and gives no right: it names the
request, the choice, and who was asked. Next: `asking.py` for the same in words.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.core.routing.facts import facts
from switchboard.core.text.visible import visible
from switchboard.core.turns.asking import ChatCommand, Verb, fits_chat, options_of, short
from switchboard.domain.envelope import Envelope
from switchboard.domain.ledger import MAX_CHOICES, ReplyChoice
from switchboard.domain.shown import ShownApproval
from switchboard.ports.channel import Channel

_TOKEN: Final = re.compile(r"choice:([A-Za-z0-9_-]{22})\.([arn1-8])\.([A-Za-z0-9_-]{16})")
_VERBS: Final[Mapping[str, Verb]] = {"a": "approve", "r": "refuse"}
_STANDING: Final = "n"
"""The choice of a button that only says how a request stands."""
_MARK_BYTES: Final = 12
_MAX_LABEL: Final = 60
_MAX_WHAT, _MAX_NAME = 30, 26
_ENDS: Final = {"approved": "Approved", "refused": "Refused", "answered": "Answered"}


class Press(Struct, frozen=True):
    """What a token says: `choice` is `a` (approve), `r` (refuse), the number of an option, or `n` (nothing)."""

    approval_id: UUID
    choice: str
    recipient: str
    """The mark of who was asked: see `mark_of`."""

    @property
    def command(self) -> ChatCommand | None:
        """The command that says the same; None: nothing is decided."""
        if self.choice == _STANDING:
            return None
        verb = _VERBS.get(self.choice, "answer")
        return ChatCommand(verb, self.approval_id.hex, self.choice if verb == "answer" else "")


def mark_of(person: str) -> str:
    """The 16 characters by which a token names a person, of the key that `core/people/readers.py` makes of them."""
    return _encode_base64(sha256(person.encode()).digest()[:_MARK_BYTES])


def press_in(envelope: Envelope) -> Press | None:
    """The press of one of our buttons; None for any other event."""
    return press_of(envelope.payload.normalized_text) if envelope.event.kind == "button" else None


def press_of(token: str) -> Press | None:
    """What a token says; None for any other text."""
    found = _TOKEN.fullmatch(token)
    if found is None:
        return None
    return Press(UUID(bytes=urlsafe_b64decode(f"{found[1]}==")), found[2], found[3])


def is_press(envelope: Envelope, channel: Channel) -> bool:
    """Whether a person, who is certain, has pressed one of our buttons, so that it may decide something."""
    return (
        envelope.control.ingestion_tier not in ("history", "held")
        and press_in(envelope) is not None
        and channel.automatic(envelope) is None
        and channel.authentic(facts(envelope, channel))
    )


def choices_of(asked: Sequence[ShownApproval], recipient: str, name: str) -> tuple[ReplyChoice, ...]:
    """The buttons below a message about these requests: what can be chosen, or how it was decided.

    `recipient`: the mark of who may choose; `name`: what this person is called. Requests for whose choices there is no
    room have none.
    """
    found: list[ReplyChoice] = []
    for one in asked:
        labels = _labels(one, name)
        if labels and len(found) + len(labels) <= MAX_CHOICES:
            about = f" ({short(one)})" if len(asked) > 1 else ""
            found += [ReplyChoice(_label(label, about), _token(one, choice, recipient)) for choice, label in labels]
    return tuple(found)


def _labels(one: ShownApproval, name: str) -> list[tuple[str, str]]:
    """What can be chosen, and the label for it."""
    if one.state != "pending":
        return [(_STANDING, standing(one, name))]
    if one.kind == "question":
        return [(str(n), f"{n}. {option}") for n, option in enumerate(options_of(one), 1)]
    return [("a", "Approve"), ("r", "Refuse")] if fits_chat(one) else []


def standing(one: ShownApproval, name: str) -> str:
    """How a request stands; `name`: what the person is called who reads that."""
    if one.state == "pending":
        return "Nothing is decided yet"
    if one.state not in _ENDS:
        return "The time is over" if one.state == "expired" else "It no longer waits"
    by = name if one.decided_by == f"{one.channel}:{one.sender}" and name else one.decided_by or ""
    what = f"{_ENDS[one.state]}: {one.answer}" if one.state == "answered" else _ENDS[one.state]
    return f"{one_line(what, _MAX_WHAT)} by {one_line(by, _MAX_NAME)}"


def _label(text: str, about: str) -> str:
    return one_line(text, _MAX_LABEL - len(about)) + about


def one_line(text: str, most: int = _MAX_LABEL) -> str:
    """At most that many characters of a text in one line, without invisible ones."""
    line = " ".join(visible(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _token(one: ShownApproval, choice: str, recipient: str) -> str:
    return f"choice:{_encode_base64(one.approval_id.bytes)}.{choice}.{recipient}"


def _encode_base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")
