"""What a butler and the people of a conversation have said so far, as values of the port of engines.

An engine returns its entries with its result; they are saved together with the reply, and `EngineContext.history`
returns them in later turns. Next: `engine.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from msgspec import Struct

MAX_CALL: Final = 1000
"""Characters that are kept of a call's arguments, and of its result."""


class EntryCall(Struct, frozen=True):
    """A call of a tool and its result: without these, models learn to claim what they did not do."""

    id: str
    name: str
    arguments: str
    """JSON; it is cut when saved, so this may be only its beginning."""
    result: str
    ok: bool = True


class Entry(Struct, frozen=True):
    """One message of either side."""

    role: Literal["user", "assistant"]
    text: str
    author: str = ""
    """Who wrote it, as `core/readers.py` names people; empty: the butler itself, or a summary of earlier entries."""
    calls: tuple[EntryCall, ...] = ()
    position: int = 0
    """1, 2, … for each butler and conversation, assigned when it is saved."""
    created_at: datetime | None = None
