"""The port of tools: what a model may call in a turn, what one call may touch, and what it returns.

`tools/` implements it; `agents/turns` calls the tools that a turn is granted. Next: `engine.py`, the port of their
callers.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Protocol, runtime_checkable
from uuid import UUID

from msgspec import Struct

from switchboard.domain.envelope import Attachment, Passage
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.routing import Member
from switchboard.ports.effects import Effect
from switchboard.ports.facts import OwnWords, PersonalMemory, Reader

Risk = Literal["low", "medium", "high"]
"""`high`: nobody, not even an owner, may use it unless the settings grant it by name, and each call needs approval."""

Audience = Literal["owners", "others", "groups", "household"]
"""Whom a turn is for: an owner of the butler alone, another person alone, or a conversation of several people.

`household`: a call outside a turn by the butler's token, which stands for no person.
"""

Cause = Literal["message", "reminder", "call"]
"""Why there is a turn: somebody wrote a message, or a task is due, of which its butler reminds itself, or a
tool is called outside a turn."""

AfterForeign = Literal["outside", "all", "never"]
"""Which calls a person is asked about once others' words were read; see `core/planning/guard.py`."""

Reach = Literal["inside", "harmless", "outside", "query"]
"""Where the calls of a tool may have effects.

`inside`: only in the butler's workspace, in a sandbox without a network, or in the answer. `outside`: anywhere.
`harmless`: likewise, but the settings say that its risk is low. `query`: nothing is changed, but each call sends what
the model has written to somebody outside.
"""

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
    """Calls run in order although repeating one is harmless, because one may read what another changes."""
    most: int = SHOWN
    """Characters of its results that a model sees."""
    reach: Reach = "outside"


Keep = Callable[[str, AsyncIterable[bytes], int], Awaitable[Attachment]]
"""Stores a file, given its name, its bytes and their number; see `Files.keep`. Raises `Unavailable`."""

QUOTA: Final = 2 * 1024**3
"""Bytes on disk that a workspace may use, unless its butler has an option `workspace_quota`."""


class Kept(Struct, frozen=True):
    """Which process held something of a conversation before, and which holds it now, by worker number."""

    before: int | None
    now: int


Keeps = Callable[[float], Awaitable[Kept | None]]
"""Announces that this process holds something of the conversation from now on, for the given number of seconds.

During that time, the next turns of the conversation are offered to this process first. None: another process has taken
over this turn. Raises `Unavailable`.
"""


class ToolScope(Struct, frozen=True):
    """What one call may touch. It comes from the request context, never from arguments."""

    workspace: Path
    """The directory of the files; it is created if missing."""
    urls: frozenset[str]
    """URLs in the person's own messages, in the form that `tools/urls.py` returns."""
    hosts: frozenset[str]
    """Hosts that the settings allow: `docs.python.org`, or with another port, `docs.example:8443`."""
    key: UUID
    """The idempotency key of the step: the same whenever this call is repeated."""
    turn: UUID
    """The message that the turn answers: its long results are kept together."""
    private_hosts: frozenset[str] = frozenset()
    """Hosts that may have private addresses, written like `hosts`; this alone permits no URL."""
    quota: int = QUOTA
    """Bytes on disk that the workspace may use."""
    results: Path | None = None
    """Where long results are kept for the readers of this turn only; None: nowhere."""
    approved: bool = False
    """Whether a person has approved this call with exactly these arguments."""
    prepared: PreparedCall | None = None
    """What the call was to do when it was prepared, which is what was approved; None: it was not prepared."""
    keep: Keep | None = None
    """Stores a file for the answer of this turn; None: the answer cannot have files."""
    conversation: str = ""
    """This butler's conversation to which the turn belongs: what a tool keeps between calls is kept for it."""
    readers: str = ""
    """Those who read this turn: another audience of the conversation learns nothing of what a tool keeps for them."""
    keeps: Keeps | None = None
    """For a tool that keeps something in this process; None: there are no other processes."""
    message: tuple[Passage, ...] = ()
    """The message that the turn answers."""
    memory: PersonalMemory | None = None
    """What the person has said, and what is known from them; None: nothing is remembered."""
    reader: Reader | None = None
    """For whom the turn reads; None: for nobody in particular, so that nothing personal is told."""
    by_owner: bool = False
    """Whether an owner of the butler has asked, alone or in a group."""
    zone: str = "UTC"
    """The time zone of the butler, by its IANA name."""
    tainted: bool = False
    """Whether the turn has read text that its person did not write."""
    grant: Any = None
    """For the tool of a module: what the butler's option `modules` says of it, as the Struct `grants` of its manifest.
    """
    cause: Cause = "message"
    """Why there is a turn: somebody wrote, or a task is due."""
    own_text: bool = True
    """Whether the text of the message is the person's; if not, because a model has written what is due, the turn makes
    and changes no tasks."""

    def objection_to(self, found: PreparedCall) -> str:
        """Why a call must not do what it would do by now; empty: it may.

        A tool that waits, such as for a lock, asks this at the last moment before it acts. What was approved is done
        exactly so; what nobody has approved is done if nobody has to.
        """
        if not self.approved:
            return f"by now it needs an approval ({found.approval})" if found.approval else ""
        before = self.prepared or PreparedCall(found.effect, found.risk)
        if found.digest == before.digest:
            return ""
        known = before.shown.splitlines()
        news = [line for line in found.shown.splitlines() if line not in known]
        told = f"; now it would be: {'; '.join(news)}" if news else ""
        return f"what it is about has changed since it was approved{told}"


class ToolOutcome(Struct, frozen=True):
    """What a model is told. Not `ok`: it failed, and `text` is a sentence that says why and what would be correct.

    `why` is the reason in a few words, if `text` is long; `passing`: the same call may succeed a little later.
    """

    text: str
    ok: bool = True
    attachments: tuple[Attachment, ...] = ()
    """Files that go with the answer, as returned by `keep`."""
    why: str = ""
    passing: bool = False
    urls: tuple[str, ...] = ()
    """Pages that it has found, in the form that `tools/urls.py` returns: they may be fetched in this turn, if nothing
    foreign was read before the call."""
    remembered: tuple[OwnWords, ...] = ()
    """Words of the person that become facts when the turn ends."""
    unfinished: bool = False
    """The call was cancelled, and `text` is what there was until then."""


class PreparedCall(Struct, frozen=True):
    """What a call with these arguments would do, found out before anybody is asked and before anything is done.

    `effect` and `risk` are at least those of the tool's spec. `why`: why a person must approve, in a few words; empty:
    by the risk alone. `shown`: what a person who approves must see, with everything that was looked up. `digest`: of
    what is approved; if it differs when the call is carried out, the person is asked again. `begun`: an earlier attempt
    with this key (`ToolScope.key`) had all approvals and was interrupted, so that the call only has to finish it.
    """

    effect: Effect
    risk: Risk
    why: str = ""
    shown: str = ""
    digest: str = ""
    begun: bool = False

    @property
    def approval(self) -> str:
        """Why a person must approve the call, whatever its tool; empty: nobody has to."""
        return self.why or ("a call of high risk" if self.risk == "high" else "")


class Tool(Protocol):
    """What a model may call."""

    @property
    def spec(self) -> ToolSpec: ...

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """Carry out the call. Bad arguments and all other failures are outcomes, never exceptions.

        If cancelled, it leaves nothing running; it may then return what it has, `unfinished`.
        """
        ...


class ToolWithName(Tool, Protocol):
    """A tool with its name, as programs list them."""

    @property
    def name(self) -> str: ...


class NamedTool:
    """Gives a tool the name that its spec has."""

    __slots__ = ()

    @property
    def name(self: Tool) -> str:
        """The name by which a model calls it."""
        return self.spec.name


@runtime_checkable
class NeedsMachine(Protocol):
    """A tool that needs something on the machine, and is not offered to models if that is missing."""

    async def lacking(self) -> str:
        """What is missing, in a sentence; empty: nothing."""
        ...


@runtime_checkable
class KeepsRunning(Protocol):
    """A tool that may keep something running between calls."""

    async def close(self) -> None:
        """End whatever is running. The tool is not called afterwards."""
        ...


class Toolset(Protocol):
    """Tools that an installation has besides ours, such as those of MCP servers."""

    def may_have(self, member: Member, name: str) -> bool:
        """Whether the settings allow a butler a tool of this name."""
        ...

    async def of(self, member: Member) -> Sequence[Tool]:
        """The tools of a butler at present, always in the same order. Raises `Unavailable`."""
        ...


@runtime_checkable
class OfModule(Protocol):
    """A tool of a module. Models are offered the `core` ones, the others when they ask for them."""

    @property
    def module_name(self) -> str: ...

    @property
    def core(self) -> bool: ...


@runtime_checkable
class TellsLacking(Protocol):
    """A toolset that knows which of a butler's tools are absent at present."""

    def lacking(self, member: Member) -> Mapping[str, str]:
        """What is absent, such as a module, by its name, and why: for operators."""
        ...


@runtime_checkable
class AsksFirst(Protocol):
    """A tool some of whose calls need a person's approval."""

    def asks_first(self, arguments: JsonMapping, scope: ToolScope) -> str | None:
        """Why a person must approve this call, in a few words; None: nobody has to.

        The result depends on nothing but the arguments and the scope.
        """
        ...


PrepareTool = Callable[[Any, JsonMapping, ToolScope], Awaitable[PreparedCall | ToolOutcome]]
"""As `Prepares.prepare`, of the opened module, which is the first argument."""


@runtime_checkable
class Prepares(Protocol):
    """A tool whose effect and risk depend on its arguments, and perhaps on what has to be looked up."""

    async def prepare(self, arguments: JsonMapping, scope: ToolScope) -> PreparedCall | ToolOutcome:
        """What the call would do; changes nothing. An outcome, if it cannot be made: the model is told that instead."""
        ...
