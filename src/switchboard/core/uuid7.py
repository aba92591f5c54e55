"""Identifiers that sort by time: UUID version 7 of RFC 9562, section 5.7.

Called by `store/ids.py`, which has clock and randomness. In: the previous identifier, a clock reading and random
bits; out: the next identifier, always greater than the previous one. Next: `journey/accept.py` makes it a request_id.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RANDOM_BITS: Final = 74
_RANDOM_MASK: Final = (1 << _RANDOM_BITS) - 1
_RAND_B_BITS: Final = 62
_STEP_MASK: Final = (1 << 32) - 1
_COUNT_MAX: Final = (1 << (48 + _RANDOM_BITS)) - 1
_VERSION: Final = 7 << 76
_VARIANT: Final = 0b10 << 62

MAX_MS: Final = (1 << 48) - 1
"""The last millisecond that fits: a day in the year 10889."""


def next_uuid7s(previous: UUID | None, now_ms: int, dice: Iterable[int]) -> list[bytes]:
    """The identifiers that follow `previous` at `now_ms`, milliseconds since 1970 (clamped to what 48 bits hold).

    16 bytes for each of `dice`, of which the lowest 74 bits are used. When the clock has moved on, all 74 bits are
    fresh. When it stands still or runs backward, the previous value is increased by a random step (RFC 9562 6.2, method
    2): ids stay in order and still cannot be guessed. An overflow carries into the timestamp. Raises OverflowError
    after the last UUIDv7.
    """
    count = -1 if previous is None else _count(previous)
    earliest = min(max(now_ms, 0), MAX_MS) << _RANDOM_BITS
    following: list[bytes] = []
    for bits in dice:
        count = earliest | bits & _RANDOM_MASK if count < earliest else count + 1 + (bits & _STEP_MASK)
        if count > _COUNT_MAX:
            raise OverflowError("no UUIDv7 follows this one: its timestamp is at the end of time")
        following.append(_pack(count))
    return following


def first_uuid7(since: datetime) -> UUID:
    """A lower bound of all UUIDv7 made at `since` or later; not an id itself, as its other bits are 0."""
    milliseconds = (since - _EPOCH) // timedelta(milliseconds=1)
    return UUID(int=min(max(milliseconds, 0), MAX_MS) << 80)


def uuid7_ms(uuid: UUID) -> int:
    """When a UUIDv7 was made, in milliseconds since 1970; ahead of the true time after a carry."""
    return uuid.int >> 80


def uuid7_time(uuid: UUID) -> datetime:
    """The same as a time."""
    return _EPOCH + timedelta(milliseconds=uuid7_ms(uuid))


def _pack(count: int) -> bytes:
    """A UUID from its 122 free bits: they are one number whose order is the order of the identifiers."""
    timestamp, random = count >> _RANDOM_BITS, count & _RANDOM_MASK
    rand_a, rand_b = random >> _RAND_B_BITS, random & ((1 << _RAND_B_BITS) - 1)
    return (timestamp << 80 | _VERSION | rand_a << 64 | _VARIANT | rand_b).to_bytes(16, "big")


def _count(uuid: UUID) -> int:
    rand_a, rand_b = uuid.int >> 64 & 0xFFF, uuid.int & ((1 << _RAND_B_BITS) - 1)
    return uuid7_ms(uuid) << _RANDOM_BITS | rand_a << _RAND_B_BITS | rand_b
