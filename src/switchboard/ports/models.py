"""The port of models for engines: which ones an installation has, and a way to ask them.

`app/classification/models.py` implements it over the dispatcher of `llm/`; the engine `model` asks. Next:
`domain/llm.py`, the form of a request and of a report.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol
from uuid import UUID

from msgspec import Struct

from switchboard.domain.llm import ModelDelta, Report, Request

NO_CONTEXT = 8192
"""The context size in tokens that is assumed where none is known."""


class Habits(Struct, frozen=True):
    """What the settings say of a model. `schemas`: its server takes a JSON Schema of the answer; `thinks`: it thinks
    before it answers, and so needs more tokens.
    """

    schemas: bool = True
    thinks: bool = False


USUAL: Final = Habits()


class Asking(Struct, frozen=True):
    """Whom to ask. `models` in this order; `shorter` gives the request within a number of tokens, or as short as it
    can be; `on_delta` is told the reply while it is written. `on_share_of`: the message whose sender's
    share of the day it counts towards; None: nobody's. `ready` is awaited before each request leaves, beside what is
    prepared meanwhile; what it raises is raised. `taken` says whether anything was done for the request already: then
    no other model is asked. What it costs is recorded for `asker`, the purpose, and `butler`.
    """

    models: Sequence[str]
    asker: str = "turn"
    shorter: Callable[[Request, int], Request] | None = None
    on_delta: Callable[[ModelDelta], None] | None = None
    on_share_of: UUID | None = None
    ready: Callable[[], Awaitable[None]] | None = None
    taken: Callable[[], Awaitable[bool]] | None = None
    butler: str = ""


class Models(Protocol):
    """The models of the settings."""

    @property
    def names(self) -> Sequence[str]:
        """Those with an API, in the order of the settings."""
        ...

    @property
    def runners(self) -> Sequence[str]:
        """The command lines that do whole turns, asked with a `Request` that has `carrying`."""
        ...

    async def context(self, name: str, unknown: int = NO_CONTEXT) -> int:
        """How many tokens question and answer may have together: as the settings say, else as its server says, else
        what is assumed where nobody says.
        """
        ...

    def flaw(self, name: str) -> str | None:
        """What is missing on this machine to ask a model, with the fix; None: nothing, as far as is known."""
        ...

    def habits(self, name: str) -> Habits:
        """The settings of a model; the defaults for one that does not exist."""
        ...

    async def ask(self, request: Request, asking: Asking) -> Report:
        """Ask one after the other until one has answered; if none has, the report says why. Raises `Unavailable`."""
        ...
