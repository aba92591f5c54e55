"""Where a bot stands in the gateway and in the history, as JSON. Pure; called by `arriving.py`.

Snowflakes, the ids of Discord, begin with the time and are ordered over all channels, so that one watermark says what
was read.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec
from msgspec import Struct

_EPOCH_MS: Final = 1_420_070_400_000
MOST_CHATS: Final = 1000
MOST_PARENTS: Final = 100
MOST_OWED: Final = 500
MOST_UNREAD: Final = 20


class DiscordCursor(Struct, frozen=True, kw_only=True):
    """`w`: the newest message that was read; `s`, `u`, `q`: the session, where it is resumed, and its last event.

    `d`: direct chats, `p`: channels with threads that concern us, the latest ones first: Discord lists neither.
    `o`: servers, and `c`: channels, whose history is still to be read from after `a`.
    """

    w: int = 0
    s: str = ""
    u: str = ""
    q: int = 0
    d: tuple[str, ...] = ()
    p: tuple[str, ...] = ()
    o: tuple[str, ...] = ()
    c: tuple[str, ...] = ()
    a: int = 0

    @classmethod
    def read(cls, text: str | None) -> DiscordCursor:
        """Parse a cursor. An invalid one means the beginning: messages come again, and are recognised."""
        try:
            return msgspec.json.decode((text or "{}").encode("utf-8", "replace"), type=cls)
        except msgspec.MsgspecError:
            return cls()

    def __str__(self) -> str:
        """Without a session if more servers are awaited than there is room for: then it starts over."""
        whole = msgspec.to_builtins(self if len(self.o) <= MOST_OWED else _without_session(self))
        return json.dumps({name: value for name, value in whole.items() if value}, separators=(",", ":"))


def _without_session(cursor: DiscordCursor) -> DiscordCursor:
    """The same, from which nothing can be resumed."""
    return DiscordCursor(w=cursor.a, d=cursor.d, p=cursor.p)


def snowflake_at(seconds: float) -> int:
    """The first id of this time, in seconds since 1970."""
    return max(int(seconds * 1000) - _EPOCH_MS, 0) << 22


def seconds_of(snowflake: int) -> float:
    """The time in an id, in seconds since 1970."""
    return ((snowflake >> 22) + _EPOCH_MS) / 1000


def latest_first(name: str, names: tuple[str, ...], most: int) -> tuple[str, ...]:
    """The names with this one in front."""
    return names if names[:1] == (name,) else (name, *(one for one in names if one != name))[:most]
