"""What a turn begins with, frozen as the step `start`, so that later changes do not affect the turn. Pure.

`agents/turns/equipment.py` makes it once; engines read it back in every attempt. Next: `render.py`, which renders it
for a model.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import Struct

from switchboard.core.turns.images import FrozenImage
from switchboard.core.turns.limits import LoopLimits
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.llm import OfferedTool
from switchboard.ports.engine import Effect
from switchboard.ports.facts import Reader
from switchboard.ports.history import Entry
from switchboard.ports.surroundings import Surrounding
from switchboard.ports.tools import AfterForeign, Reach, Risk


class FrozenTool(Struct, frozen=True):
    """A tool as it was offered when the turn began."""

    name: str
    description: str
    parameters: JsonMapping
    effect: Effect = "effectful"
    ordered: bool = False
    approval: str = ""
    """Why a person must approve each call; empty: no approval is needed."""
    reach: Reach = "outside"
    module: str = ""
    """The module that it is of; empty: of none."""
    risk: Risk | None = None
    """None: of a turn that began under a release before 0.2."""

    @property
    def offered(self) -> OfferedTool:
        """As the model sees it."""
        return OfferedTool(self.name, self.description, self.parameters)


class Frozen(Struct, frozen=True):
    """One JSON value. `now` is when the message was received; `window` is the context of the first model in tokens.

    `opening` is the last user message as it is sent. The history is kept as it was, because it moves on meanwhile.
    """

    now: datetime
    zone: str
    system: str
    opening: str
    models: tuple[str, ...]
    tools: tuple[FrozenTool, ...] = ()
    limits: LoopLimits = LoopLimits()
    history: tuple[Entry, ...] = ()
    urls: tuple[str, ...] = ()
    """URLs that the person has written, in the form used by `tools/urls.py`."""
    hosts: tuple[str, ...] = ()
    """Hosts from which pages may be fetched without asking."""
    asks: bool = False
    """Whether people can be asked while the turn waits."""
    withheld: tuple[str, ...] = ()
    """Tools that would be offered if their risk were not high."""
    by_owner: bool = False
    """Whether an owner of the butler wrote the message, alone or in a group: limits per sender do not apply to them."""
    readers: str = ""
    """Who reads the turn, as the name of a directory."""
    images: tuple[FrozenImage, ...] = ()
    """The images of the message that were available; they are shown in this turn only."""
    program: bool = False
    """Whether a command line does the turn; then all `models` are command lines."""
    window: int = 8192
    max_tokens: int = 4096
    own: tuple[str, ...] | None = None
    """Tools whose results contain nothing from outside: once a result of another tool, or others' words, were read,
    calls that change something need an approval. None: nobody has noted which these are."""
    outside: bool = False
    """Whether something from outside was read before this began."""
    told: bool | None = None
    """Whether the message, or what is shown with it, has others' words; None: a start of an older release."""
    said: Entry | None = None
    """The message as the history keeps it; None: a start of an older release."""
    approvable: bool = True
    """Whether somebody may approve calls where the turn answers, or operators are asked to; not in a group."""
    around: Surrounding = Surrounding()
    """What stood around the message, without the record."""
    after_foreign: AfterForeign = "all"
    """Which calls people are asked about once others' words were read; starts of older releases have nothing here."""
    reader: Reader | None = None
    """For whom the turn reads; None: a start of an older release, of which tools learn nothing."""
    lacking: tuple[str, ...] = ()
    """What the butler had to do without, a clause each with the reason, for operators."""
    later: tuple[FrozenTool, ...] = ()
    """Tools of modules that are offered once the model asks for them; see `offering.py`."""
    facts: tuple[UUID, ...] = ()
    """The facts that the model is told in `opening`."""

    @property
    def callable_tools(self) -> tuple[FrozenTool, ...]:
        """The tools that may be called, offered or not."""
        return (*self.tools, *self.later)

    def record(self) -> object:
        """The form that the journal keeps."""
        return msgspec.to_builtins(self)


def read_frozen(record: object) -> Frozen:
    """Parse the journal's record. Raises `msgspec.ValidationError` for anything else."""
    return msgspec.convert(record, Frozen)
