"""The port of tools: what a model may call in a turn, what one call may touch, what comes back.

`tools/` implements it; `agents/loop` calls the tools that a turn is granted. Next:
`engine.py`, the port of those who call them.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol, runtime_checkable
from uuid import UUID

from msgspec import Struct

from switchboard.domain.envelope import Attachment
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.routing import Member
from switchboard.ports.effects import Effect

Risk = Literal["low", "medium", "high"]
"""`high`: nobody may use it, owners included, unless the settings grant it by name; and each call is approved first."""

Audience = Literal["owners", "others", "groups"]
"""Who a turn is for: an owner of the butler alone, another person alone, or a conversation of several."""


SHOWN: Final = 16_000
"""Characters of a result that a model sees, unless its tool says otherwise."""


class ToolSpec(Struct, frozen=True):
    """What a model sees of a tool, and what the loop needs to know about it."""

    name: str
    description: str
    parameters: JsonMapping
    """The JSON Schema of its arguments, an object."""
    effect: Effect
    risk: Risk = "low"
    ordered: bool = False
    """Calls take place in their order, though repeating one is harmless: what it changes, another may read."""
    most: int = SHOWN
    """Characters of its results that a model sees."""


Keep = Callable[[str, AsyncIterable[bytes], int], Awaitable[Attachment]]
"""Of a file its name, its bytes, and how many there are; see `Files.keep`. Raises `Unavailable`."""

QUOTA: Final = 2 * 1024**3
"""Bytes on disk that a workspace may take, unless its butler has an option `workspace_quota`."""


class Kept(Struct, frozen=True):
    """Which process had something of a conversation before, and which has it now, by the numbers of workers."""

    before: int | None
    now: int


Keeps = Callable[[float], Awaitable[Kept | None]]
"""Says that something of the conversation lives in this process from now on, for so many seconds.

So long the next turns of the conversation are offered to this process before all others. None: another process has
taken over this turn. Raises `Unavailable`.
"""


class ToolScope(Struct, frozen=True):
    """What one call may touch. It comes from the request context, never from arguments."""

    workspace: Path
    """The directory that files are in; made if it is not there."""
    urls: frozenset[str]
    """URLs of the person's own messages, in the form that `tools/urls.py` gives them."""
    hosts: frozenset[str]
    """Hosts that the settings allow: `docs.python.org`, or with another port `docs.example:8443`."""
    key: UUID
    """The idempotency key of the step: the same each time that the same call is made."""
    turn: UUID
    """The message that the turn answers: its long results are kept together."""
    private_hosts: frozenset[str] = frozenset()
    """Hosts that may be at private addresses, written like `hosts`; this alone permits no URL."""
    quota: int = QUOTA
    """Bytes on disk that the workspace may take."""
    results: Path | None = None
    """Where long results are kept for the readers of this turn only; None: nowhere."""
    approved: bool = False
    """A person has approved this call with exactly its arguments."""
    keep: Keep | None = None
    """Stores a file for the answer of this turn; None: it cannot have any."""
    conversation: str = ""
    """The one that the turn is part of, of this butler: what a tool keeps from one call to the next is kept for it."""
    keeps: Keeps | None = None
    """For a tool that keeps something there; None: there are no other processes."""


class ToolOutcome(Struct, frozen=True):
    """What a model is told. Not `ok`: it failed, and `text` is a sentence on why and what would be right.

    `why` is the reason in a few words, where `text` is long; `passing`: the same call may do better a little later.
    """

    text: str
    ok: bool = True
    attachments: tuple[Attachment, ...] = ()
    """Files that go with the answer, as `keep` has returned them."""
    why: str = ""
    passing: bool = False


class Tool(Protocol):
    """What a model may call."""

    @property
    def spec(self) -> ToolSpec: ...

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """Do it. Bad arguments, and whatever it meets, are outcomes, never exceptions.

        Cancelled, it leaves nothing running.
        """
        ...


@runtime_checkable
class NeedsMachine(Protocol):
    """A tool that needs something on the machine; if that is missing, it is not offered to models."""

    async def lacking(self) -> str:
        """What is missing, in a sentence; empty: nothing."""
        ...


@runtime_checkable
class KeepsRunning(Protocol):
    """A tool of which something may run between two calls."""

    async def close(self) -> None:
        """End that. Nothing is called any more."""
        ...


class Toolset(Protocol):
    """Tools that an installation has beside ours, such as those of MCP servers."""

    def may_have(self, member: Member, name: str) -> bool:
        """Whether a butler may have a tool of this name, as far as the settings say."""
        ...

    async def of(self, member: Member) -> Sequence[Tool]:
        """Those of a butler at the moment, always in the same order. Raises `Unavailable`."""
        ...


@runtime_checkable
class AsksFirst(Protocol):
    """A tool of which some calls are made only if a person approves them."""

    def asks_first(self, arguments: JsonMapping, scope: ToolScope) -> str | None:
        """Why a person must approve this call, in a few words; None: nobody has to.

        The same for the same arguments and scope, without a look at anything else.
        """
        ...
