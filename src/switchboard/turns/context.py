"""The context that a program passes to `process_message`: an agent, its memory and its terminal.

`open_turns` makes such a context for an installation. A program can also pass an object of its own with the same three
methods, which return the parts of that context, or wrappers around them; the turn works with what they return. Next:
`agent.py`, `memory.py` and `terminal.py`, which implement them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol
from uuid import UUID

from msgspec import Struct

from switchboard.core.turns.window import WINDOW
from switchboard.domain.errors import SwitchboardError
from switchboard.domain.ledger import ReplyFile
from switchboard.domain.llm import Image
from switchboard.ports.engine import Delta
from switchboard.ports.history import Entry


class ProviderError(SwitchboardError):
    """The turn could not be done. The message is kept; the same `request_id` tries again."""

    code = "provider_error"


class ProcessedMessage(Struct, frozen=True):
    """The answer, the model that wrote it, its cost in tokens, why it ended, and its files.

    `taken_over`: another process ended the turn, after the program that had asked for it was gone, with the prompt and
    the models of the installation and without `user_context`, unless the turn had begun before.
    """

    content: str
    model: str
    tokens_in: int
    tokens_out: int
    stop_reason: str
    files: tuple[ReplyFile, ...] = ()
    taken_over: bool = False


class CompactedSession(Struct, frozen=True):
    """What a compaction did: how many conversations of the session it condensed, one for each channel.

    `reasons`: why the others were not, or none was.
    """

    compacted: int
    reasons: tuple[str, ...] = ()


class NewMessage(Struct, frozen=True):
    """The arguments of one call of `process_message`. A session belongs to its channel."""

    session_key: str
    channel_name: str
    content: str
    user_context: str = ""
    model_override: str | None = None
    request_id: str | None = None
    images: Sequence[Image] = ()
    on_delta: Callable[[Delta], None] | None = None


class Agent(Protocol):
    """The answering side."""

    async def prompt(self) -> str:
        """The instructions for the model, which follow its name and team. Called once per turn."""
        ...

    async def get_model(self, override: str | None = None) -> Sequence[str]:
        """The models to ask, in this order; only `override` if it is one of them. Raises InvalidInput."""
        ...

    async def run(self, ctx: MessageContext, message: NewMessage) -> ProcessedMessage:
        """Store a message, run its lane up to this message with the parts of `ctx`, and return the answer.

        Raises ConfigurationError if the butler or the context cannot answer, and the errors of storing a message,
        before it is stored; `ProviderError` afterwards.
        """
        ...


class Memory(Protocol):
    """The history and the facts of the agent's sessions, each of which belongs to one person."""

    async def get_history(
        self, session_key: str, limit: int = WINDOW, *, channel_name: str | None = None
    ) -> Sequence[Entry]:
        """The latest messages, at most `limit`, oldest first, after the summary of earlier ones.

        `channel_name` None: on all channels. Called once per turn. Raises `Unavailable`.
        """
        ...

    async def save_message(
        self, session_key: str, channel_name: str, role: Literal["user", "assistant"], content: str
    ) -> UUID:
        """Store a message from outside of turns in the history, and return its id; a turn stores its own messages.

        Raises InvalidInput.
        """
        ...

    async def learn(self, session_key: str, channel_name: str, text: str, *, subject: str = "self") -> bool:
        """Store a fact that the person stated, for their own private sessions.

        False if it is known, was forgotten, or nothing is learned here since somebody has written `/memory off`.
        Raises InvalidInput for text that is not a fact: over 300 characters, questions, instructions, secrets.
        """
        ...

    async def compact(self, session_key: str) -> CompactedSession:
        """See `compact_session_if_needed`."""
        ...


class Terminal(Protocol):
    """Runs commands."""

    async def exec(self, command: str) -> str:
        """Run a command and return its output. Raises ConfigurationError if there is no sandbox for it."""
        ...


class MessageContext(Protocol):
    """What `process_message` needs from the calling program."""

    def agent(self) -> Agent: ...

    def memory(self) -> Memory: ...

    def terminal(self) -> Terminal: ...
