"""The port of histories: what a butler and the people of a conversation have said so far.

An engine returns its entries with its result, they are saved together with the reply, and `History` gives them back to
later turns. Next: `engine.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Protocol

from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId

MAX_CALL: Final = 1000
"""Characters of the arguments, and of the result, of a call that are kept."""


@dataclass(frozen=True, slots=True)
class EntryCall:
    """A call of a tool, with its result: without them models learn to claim what they did not do."""

    id: str
    name: str
    arguments: str
    """JSON; cut when it is saved, so perhaps only its beginning."""
    result: str
    ok: bool = True


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of either side."""

    role: Literal["user", "assistant"]
    text: str
    author: str = ""
    """Who wrote it, as `person_of` names people; empty: the butler itself, or a summary of earlier entries."""
    calls: tuple[EntryCall, ...] = ()
    position: int = 0
    """1, 2, … for each butler and conversation, given when it is saved."""
    created_at: datetime | None = None


class History(Protocol):
    """The entries of conversations; those of different butlers are separate."""

    async def load(self, system_id: SystemId, conversation: Conversation) -> Sequence[Entry]:
        """At most 40 entries, the oldest first; where they start moves by 20, so that prompts keep their beginning.

        What was compacted is left out, but for its latest summary, which comes first. Raises `Unavailable`.
        """
        ...
