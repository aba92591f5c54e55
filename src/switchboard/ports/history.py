"""What a butler and the people of a conversation have said so far, as values of the port of engines.

An engine returns its entries with its result, they are saved together with the reply, and `EngineContext.history` gives
them back to later turns. Next: `engine.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from msgspec import Struct

MAX_CALL: Final = 1000
"""Characters of the arguments, and of the result, of a call that are kept."""


class EntryCall(Struct, frozen=True):
    """A call of a tool, with its result: without them models learn to claim what they did not do."""

    id: str
    name: str
    arguments: str
    """JSON; cut when it is saved, so perhaps only its beginning."""
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
    """1, 2, … for each butler and conversation, given when it is saved."""
    created_at: datetime | None = None
