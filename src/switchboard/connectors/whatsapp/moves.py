"""Where people are now who have told that they changed their number: answers go after them. Pure; kept by `memory.py`.

A number that was left is given to somebody else after some months, who is another person, in another conversation.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from switchboard.connectors.whatsapp.people import ChangedIdentity
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.raw import integer, word


class NumberMove(Struct, frozen=True, array_like=True):
    """Since `at`, in seconds since 1970, who had one of the names before is reached by the others."""

    before: tuple[str, ...]
    to: str | None
    recipient: str | None
    at: int


def move_of(changed: ChangedIdentity, sent_s: int) -> NumberMove:
    """What a change of the ids that was told then means for addresses."""
    return NumberMove(changed.names, changed.new.phone, changed.new.user_id, sent_s)


def moved_address(address: JsonObject, moves: Sequence[NumberMove]) -> JsonObject:
    """Where the person of an address is now. A move from before the message that it is of was somebody else's."""
    since = int(integer(address.get("at")) or 0) - 1
    while (move := _next_move(address, moves, since)) is not None:
        ways = {"to": move.to, "recipient": move.recipient}
        address = {name: value for name, value in {**address, **ways}.items() if value is not None}
        since = move.at
    return address


def name_of_phone(phone: str, sent_s: float, moves: Sequence[NumberMove]) -> str:
    """The identity of who wrote then and is known by the phone alone: the phone, unless others have left it before."""
    left = max((move.at for move in moves if phone in move.before and move.at < sent_s), default=None)
    return phone if left is None else f"{phone}:{left}"


def _next_move(address: JsonMapping, moves: Sequence[NumberMove], since: float) -> NumberMove | None:
    """The first move of one of the address's names after a time."""
    names = {word(address.get("to")), word(address.get("recipient"))}
    later = (move for move in moves if move.at > since and not names.isdisjoint(move.before))
    return min(later, key=_time_of, default=None)


def _time_of(move: NumberMove) -> int:
    return move.at
