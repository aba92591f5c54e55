"""The port of models for engines: which models an installation has, and how to ask them.

`app/models/classifier.py` implements it over the dispatcher of `llm/`; the engine `model` asks. Next:
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
    """What the settings say about a model. `schemas`: its server accepts a JSON Schema for the answer; `thinks`: it
    thinks before it answers, and so needs more tokens.
    """

    schemas: bool = True
    thinks: bool = False


USUAL: Final = Habits()


class Asking(Struct, frozen=True):
    """Whom to ask, and how. `models` are asked in this order; `shorter` returns the request within a number of tokens,
    or as short as possible; `on_delta` is called with the reply as it is written. `on_share_of`: the message whose
    sender's daily share it counts towards; None: nobody's. `ready` is awaited before each request is sent, while that
    is being prepared; its exceptions are passed on. `taken` says whether the request has already had an effect: then no
    other model is asked. The cost is recorded for `asker`, the purpose, and `butler`.

    If all models are unavailable, `again` is given the attempts so far, waits for these seconds, and returns whether to
    ask all of them again; None: that is up to the caller. `name` tells the request from all others, and is the same
    whenever it is asked again. `refused`: how many requests of the turn were too long before.
    """

    models: Sequence[str]
    asker: str = "turn"
    shorter: Callable[[Request, int], Request] | None = None
    on_delta: Callable[[ModelDelta], None] | None = None
    on_share_of: UUID | None = None
    ready: Callable[[], Awaitable[None]] | None = None
    taken: Callable[[], Awaitable[bool]] | None = None
    butler: str = ""
    again: Callable[[Report, float], Awaitable[bool]] | None = None
    name: str = ""
    refused: int = 0


class Models(Protocol):
    """The configured models."""

    @property
    def names(self) -> Sequence[str]:
        """The names of those with an API, in the order of the settings."""
        ...

    @property
    def runners(self) -> Sequence[str]:
        """The command lines that do whole turns, asked with a `Request` that has `carrying`."""
        ...

    async def context(self, name: str, unknown: int = NO_CONTEXT) -> int:
        """The maximum tokens of question and answer together: as configured, else by its server, else `unknown`."""
        ...

    def flaw(self, name: str) -> str | None:
        """What this machine lacks for asking a model, with the fix; None: nothing, as far as known."""
        ...

    def habits(self, name: str) -> Habits:
        """The settings of a model; the defaults for one that does not exist."""
        ...

    async def ask(self, request: Request, asking: Asking) -> Report:
        """Ask one model after the other until one answers; if none does, the report says why. Raises `Unavailable`."""
        ...
