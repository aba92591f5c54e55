"""What a butler and the people of a conversation have said so far, as values of the port of engines.

An engine returns its entries with its result; they are saved together with the reply, and `EngineContext.history`
returns them in later turns. Next: `engine.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from msgspec import Struct

from switchboard.domain.message import RequestId

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
    outside: bool | None = None
    """Whether the result may contain others' words, told from all of the arguments; None: nobody has noted it."""


class Entry(Struct, frozen=True):
    """One message of either side."""

    role: Literal["user", "assistant"]
    text: str
    author: str = ""
    """Who wrote it, as `core/people/readers.py` names people; empty: the butler itself, or a summary of old entries."""
    calls: tuple[EntryCall, ...] = ()
    position: int = 0
    """1, 2, … for each butler and conversation, assigned when it is saved."""
    created_at: datetime | None = None
    own: str | None = None
    """The author's own words in the text; None: all of them are."""
    name: str = ""
    """How the author was called then, as `core/passages/names.py` shows it. It decides nothing."""
    told: bool | None = None
    """Whether the text has others' words, or was written after others' words were read; None: nobody has noted it."""
    learn: bool = True
    """Whether facts may be learned from it, once it is saved."""

    @property
    def own_words(self) -> str:
        """What counts as said by the author."""
        return self.text if self.own is None else self.own


class WantedHistory(Struct, frozen=True):
    """What is looked for in what was said: any of these words, or the newest if there are none.

    `since` is included, `until` is not. `person`: a part of the name or handle of who wrote, or was answered;
    `channel`: its name; empty: any.
    """

    words: str = ""
    since: datetime | None = None
    until: datetime | None = None
    person: str = ""
    channel: str = ""
    limit: int = 10


class SaidEntry(Struct, frozen=True):
    """An entry that was found. `person`: its author or addressee, as `core/people/readers.py` names people."""

    request_id: RequestId
    role: Literal["user", "assistant"]
    person: str
    name: str
    text: str
    created_at: datetime
