"""What a program hands to `process_message`: an agent, its memory and its terminal.

`open_turns` makes such a context over an installation. A program with a state of its own has the same three methods,
and hands on those of that context, or its own around them: what they return is what the turn works with. Next:
`agent.py`, `memory.py` and `terminal.py`, which implement them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

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
    """The answer, the model that gave it, what it cost in tokens, why it ended, and the files that go with it."""

    content: str
    model: str
    tokens_in: int
    tokens_out: int
    stop_reason: str
    files: tuple[ReplyFile, ...] = ()


class NewMessage(Struct, frozen=True):
    """What one call of `process_message` brings. A session belongs to its channel."""

    session_key: str
    channel_name: str
    content: str
    user_context: str = ""
    model_override: str | None = None
    request_id: str | None = None
    images: Sequence[Image] = ()
    on_delta: Callable[[Delta], None] | None = None


class Agent(Protocol):
    """Who answers."""

    async def prompt(self) -> str:
        """What the model is told about its work, after its name and team. Asked once per turn."""
        ...

    async def get_model(self, override: str | None = None) -> Sequence[str]:
        """The models to ask, in this order; `override` alone if it is one of them. Raises InvalidInput."""
        ...

    async def run(self, ctx: MessageContext, message: NewMessage) -> ProcessedMessage:
        """Store a message, run its lane up to it with what `ctx` returns, and return the answer.

        Raises `ProviderError` once the message is stored, and before that what storing a message raises.
        """
        ...


class Memory(Protocol):
    """What was said and learned in the sessions of the agent, each of one person."""

    async def get_history(
        self, session_key: str, limit: int = WINDOW, *, channel_name: str | None = None
    ) -> Sequence[Entry]:
        """The latest messages, at most `limit`, the oldest first, the summary of those before them at their head.

        `channel_name` None: on all channels. Asked once per turn. Raises `Unavailable`.
        """
        ...

    async def save_message(
        self, session_key: str, channel_name: str, role: Literal["user", "assistant"], content: str
    ) -> None:
        """Keep what was said outside of turns; a turn keeps its own with its answer. Raises InvalidInput."""
        ...

    async def learn(self, session_key: str, channel_name: str, text: str, *, subject: str = "self") -> bool:
        """Keep a fact that the person stated, for their own private sessions. False: it is known, or was forgotten.

        Raises InvalidInput for what is not kept as a fact: more than 300 characters, questions, instructions, secrets.
        """
        ...

    async def compact(self, session_key: str) -> None:
        """See `compact_session_if_needed`."""
        ...


class Terminal(Protocol):
    """Where commands are run."""

    async def exec(self, command: str) -> str:
        """Run a command and return its output. Raises ConfigurationError where there is no sandbox for it."""
        ...


class MessageContext(Protocol):
    """What `process_message` needs of the program that calls it."""

    def agent(self) -> Agent: ...

    def memory(self) -> Memory: ...

    def terminal(self) -> Terminal: ...
