"""Keyed hashes: keys in the database that reveal nothing without the secret of the installation.

`Database.keys` loads them for `store/messages/inbox.py`: a message needs three, which would cost four times as much in
PostgreSQL. Elsewhere `conversation_key` in `sql/functions/keys.sql` computes the same. Next: `store/messages/inbox.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal, get_args
from uuid import UUID

if TYPE_CHECKING:
    from hashlib import _Hash

_REMEMBERED: Final = 8192
Kind = Literal["conversation", "event", "body", "person", "fact", "contact", "code", "link", "file", "mail"]


class Keys:
    """HMAC-SHA-256 of (kind, text), its first 128 bits as 32 hexadecimal digits.

    `inner` and `outer` are the padded secret combined with 0x36 and 0x5c (RFC 2104), as `installation` holds them.
    """

    def __init__(self, inner: bytes, outer: bytes) -> None:
        self._inner = {kind: sha256(b"%b%b\n" % (inner, kind.encode())) for kind in get_args(Kind)}
        self._outer = sha256(outer)
        # The same conversations recur, with the same butlers.
        self.conversation = lru_cache(maxsize=_REMEMBERED)(self._conversation)
        self.turn_lane = lru_cache(maxsize=_REMEMBERED)(self._turn_lane)
        self._events_of = lru_cache(maxsize=_REMEMBERED)(self._start_of_events)
        self._seen: set[str] = set()

    def have_seen(self, lanes: Iterable[str]) -> bool:
        """Whether all existed when `saw` was called; one may have been removed since."""
        return self._seen.issuperset(lanes)

    def saw(self, lanes: Iterable[str]) -> None:
        """Remember existing lanes, for a while."""
        if len(self._seen) > _REMEMBERED:
            self._seen.clear()
        self._seen.update(lanes)

    def of(self, kind: Kind, content: bytes) -> str:
        """The hash of a text of this kind; equal texts of different kinds have different hashes."""
        return self._finish_hash(self._inner[kind], content)

    def event(self, channel: str, endpoint: str, key: str) -> str:
        """The hash of an event's own key, which is unique within its channel and endpoint."""
        return self._finish_hash(self._events_of(channel, endpoint), key.encode())

    def fact(self, system_id: str, author: str, text: str) -> str:
        """The hash of a learned fact: the same for the same words of one author, whatever their spacing and case."""
        words = " ".join(text.casefold().split()).strip(".!")
        return self.of("fact", f"{len(system_id)},{len(author)}:{system_id}{author}{words}".encode())

    def _start_of_events(self, channel: str, endpoint: str) -> _Hash:
        start = self._inner["event"].copy()
        start.update(f"{len(channel)},{len(endpoint)}:{channel}{endpoint}".encode())
        return start

    def _finish_hash(self, start: _Hash, rest: bytes) -> str:
        inner, outer = start.copy(), self._outer.copy()
        inner.update(rest)
        outer.update(inner.digest())
        return outer.hexdigest()[:32]

    def _conversation(self, name: str) -> str:
        return self.of("conversation", name.encode())

    def _turn_lane(self, system_id: str, name: str) -> str:
        """The lane in which a butler answers a conversation, as `lane_key` computes it."""
        return sha256(f"turn:{system_id}:{UUID(self.conversation(name))}".encode()).hexdigest()[:32]
