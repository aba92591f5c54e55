"""Values of the port of engines: what stands around the message of a turn, and is no part of it.

`EngineContext.surroundings` returns them when a turn begins; they are frozen with it, and go into no history and no
fact. Next: `engine.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.domain.envelope import Passage

MAX_HEARD: Final = 20
"""Maximum number of messages of a group that a turn hears."""


class SpokenText(Struct, frozen=True, kw_only=True):
    """Something that was said outside the message: somebody else's words, unless it is `ours`."""

    text: str
    author: str = ""
    """The name of who said it, which they chose themselves."""
    handle: str = ""
    """Who said it, as `core/people/readers.py` names people; empty: only the platform knows."""
    person: str = ""
    """The linked person who certainly said it, as `core/passages/names.py` calls them; empty: nobody known."""
    sent_at: datetime | None = None
    refers_to: str | None = None
    """The platform's id of it."""
    ours: bool = False
    """Whether it is a reply of a butler."""
    told: bool = True
    """Whether it may have others' words; False: a reply of ours before which none were read."""


class EditedText(Struct, frozen=True, kw_only=True):
    """The newest text of a message that its sender edited before a turn read it."""

    request_id: UUID
    """The edit."""
    refers_to: str
    """The platform's id of the message."""
    text: str
    passages: tuple[Passage, ...] = ()
    sent_at: datetime | None = None


class RecordedText(Struct, frozen=True):
    """A text that this reader may see. `answered`: the butler's reply that the message answers, not one before it."""

    text: str
    answered: bool = False


class Surrounding(Struct, frozen=True, kw_only=True):
    """What stands around a message."""

    replied: SpokenText | None = None
    """The message that it replies to, at most 1,000 characters of it."""
    heard: tuple[SpokenText, ...] = ()
    """What was said in its group since the butler's last turn there, oldest first."""
    edited: EditedText | None = None
    """The text to read instead of its own; None: it was not edited."""
    edited_part: SpokenText | None = None
    """What its sender edited of it, if that does not stand for the whole text of the turn."""
    passages: tuple[Passage, ...] = ()
    """Whose words the parts of it are, if that is known better than from the message alone."""
    corrections: tuple[SpokenText, ...] = ()
    """The new texts of messages that were edited after a turn had read them, oldest first."""
    is_edit: bool = False
    """Whether it is the new text of an earlier message, to be answered again."""
    is_read: bool = False
    """Whether the turn of that earlier message has read it already."""
    record: tuple[RecordedText, ...] = ()
    """What the quoted history of the message may repeat, oldest first; never frozen."""

    @property
    def has_others_words(self) -> bool:
        """Whether anything here that a model is shown, but for the message itself, may be others' words."""
        replied = self.replied is not None and self.replied.told
        return replied or bool(self.heard or self.corrections)
