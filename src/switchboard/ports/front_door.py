"""The port of the front door: how something that is due becomes a message of its butler to itself.

A module keeps an `Origin` with what it will submit later, and submits it as a `Firing`; the kernel hands it a
`FrontDoor` as the need `front_door`. A worker implements it over its accept leg, so that a firing is stored,
decided, explained and answered like every other message. Next: `module.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

from msgspec import Struct

from switchboard.domain.envelope import ChatType, Passage
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import SystemId
from switchboard.ports.tools import ToolScope

FRONT_DOOR: Final = "front_door"
"""The name in the `needs` of a manifest."""


class Origin(Struct, frozen=True, kw_only=True):
    """What a task keeps of the message that made it: where it came from, who wrote it, where its answer went.

    It can be written as JSON. Its firings are answered in the same conversation, with the rights that its sender has
    when they are due.
    """

    channel: str
    provider: str
    endpoint: str
    conversation: Conversation
    system_id: SystemId
    """The butler that answered it, and gets its firings."""
    sender: str
    display_name: str | None = None
    chat_type: ChatType | None = None
    participants: Mapping[str, str] | None = None
    thread: str | None = None
    """Where it was written, unless to us alone: replies go there."""
    contact: tuple[str, str] | None = None
    """Who must be let in where not everybody may write: a `person` or a `group`, and its name."""
    reply_address: JsonMapping | None = None
    facts: Mapping[str, str] = {}
    """What rules and walls knew of it, without what was about its text; a firing has no others."""


class Firing(Struct, frozen=True, kw_only=True):
    """A task that is due. The same `task_id`, `revision` and `due` are the same firing, however often it is submitted.

    `own`: the text stands word for word in what the person wrote (`stands_in_own_words`). Otherwise a model wrote it.
    `tainted`: the turn that made the task had read what its person did not write.
    """

    origin: Origin
    task_id: str
    revision: int
    due: datetime
    """With a time zone; kept to the second."""
    made_at: datetime
    """When the task was made, with a time zone."""
    text: str
    say: bool = False
    """Switchboard itself says the text, and no model is asked; otherwise it is a turn of the butler."""
    own: bool = False
    tainted: bool = True
    answer: bool = False
    """Somebody has answered a mail that the butler sent at `made_at`; the text has what they wrote."""

    @property
    def key(self) -> str:
        """The idempotency key."""
        return f"task:{self.task_id}:{self.revision}:{self.due.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


class SubmittedFiring(Struct, frozen=True):
    """The message that a firing has become. `duplicate`: it already was one, from an earlier call."""

    request_id: RequestId
    duplicate: bool


class FrontDoor(Protocol):
    """Takes what is due. A caller commits its own row first, calls `obstacle` and `submit`, then completes the row."""

    async def origin(self, scope: ToolScope) -> Origin | None:
        """What a task that is made in a turn keeps. Raises `Unavailable`.

        None: its message is gone, or is answered where nothing can be sent later. For a turn of a reminder, it is that
        of its task.
        """
        ...

    async def obstacle(self, origin: Origin) -> str:
        """Why a firing cannot be submitted now, in a sentence; empty: nothing stands in its way. Raises `Unavailable`.

        The person is not let in, or the butler or the account is gone or switched off.
        """
        ...

    async def submit(self, firing: Firing) -> SubmittedFiring:
        """Accept a firing: when this returns, it is stored with its decision. Raises `Unavailable`.

        After a crash, the call is repeated, and finds the first. Raises `InvalidInput` for a text that no message may
        have.
        """
        ...


def stands_in_own_words(text: str, message: Sequence[Passage]) -> bool:
    """Whether a text stands word for word in what the sender of a message wrote (`ToolScope.message`).

    Blanks and line ends do not count.
    """
    wanted = " ".join(text.split())
    return bool(wanted) and any(one.kind == "own" and wanted in " ".join(one.text.split()) for one in message)
