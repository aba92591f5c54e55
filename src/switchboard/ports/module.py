"""The port of modules: what a butler can look up and do.

A module is found by an entry point of the group `switchboard.modules`, which names its `ModuleManifest`; that imports
no library of the module's field. `modules/kernel` opens modules in workers, and binds their tools, which reach turns,
plans, MCP and the command line from this one definition. Next: `tools.py`, whose specs and outcomes these are, and
`module_store.py`, where a module keeps its own tables; `typed_calls.py`, what `typed_tool` makes of a function.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, Required, TypedDict, Unpack

from msgspec import Struct

from switchboard.domain.json_values import JsonMapping
from switchboard.ports.effects import Effect
from switchboard.ports.module_store import ModuleStore
from switchboard.ports.tools import PreparedCall, PrepareTool, Reach, Risk, ToolOutcome, ToolScope, ToolSpec

__all__ = [
    "Chore",
    "Module",
    "ModuleContext",
    "ModuleManifest",
    "ModuleTool",
    "PrepareTool",
    "PreparedCall",
    "RunTool",
    "ToolTraits",
    "typed_tool",
]


RunTool = Callable[[Any, JsonMapping, ToolScope], Awaitable[ToolOutcome]]
"""Carries out a call of the opened module, which is the first argument. Errors of the caller are outcomes."""


class ModuleTool(Struct, frozen=True):
    """A tool of a module, described before the module is open. `typed_tool` makes one from a typed function.

    Models are offered the `core` tools; the others when they ask for those of the module.
    """

    spec: ToolSpec
    run: RunTool
    prepare: PrepareTool | None = None
    core: bool = True
    needs: tuple[str, ...] = ()
    """Those of the manifest's `needs` without which it is left out."""


class ToolTraits(TypedDict, total=False):
    """What the signature of a function does not say; the fields of `ToolSpec`."""

    effect: Required[Effect]
    risk: Risk
    ordered: bool
    reach: Reach


def typed_tool(
    function: Callable[..., Awaitable[object]],
    *,
    prepare: Callable[..., Awaitable[PreparedCall | ToolOutcome]] | None = None,
    core: bool = True,
    needs: tuple[str, ...] = (),
    **traits: Unpack[ToolTraits],
) -> ModuleTool:
    """A tool with the name, the docstring and the arguments of an async function, and these traits: `effect="…"`, ….

    Its first parameter is the opened module; one that is annotated `ToolScope` gets the scope; all others are the
    arguments, with their annotations and defaults. `Annotated[date, "The first day"]` describes an argument, a
    `msgspec.Meta` limits it. What it returns is told to the model: text, a `ToolOutcome`, or a value as JSON.

    `prepare` has the same parameters, or some of them. Raises `ValueError` for a function without a docstring, or with
    parameters that cannot be arguments.
    """
    from switchboard.ports.typed_calls import TypedCall

    call = TypedCall(function)
    spec = ToolSpec(call.name, call.description, call.parameters, **traits)
    return ModuleTool(spec, call.run, None if prepare is None else call.preparing(prepare), core, needs)


class Chore(Struct, frozen=True):
    """Something that one of all workers does every `every` seconds, such as a sync; for one account of the module.

    It runs at most 10 minutes. Every transaction of the store that it is given fails if another worker has taken it
    over. Missed runs are made up for by one; after a failure it is tried again later and later, up to an hour.
    """

    name: str
    every: float
    run: Callable[[ModuleStore], Awaitable[None]]
    account: str = ""


class Module(Protocol):
    """A module that is open in this worker."""

    @property
    def chores(self) -> Sequence[Chore]:
        """What is done from time to time."""
        ...

    async def aclose(self) -> None:
        """Release what `open` has opened. No tool is called afterwards."""
        ...


class ModuleContext(Struct, frozen=True):
    """What a module may use; `settings` is its table `[modules.NAME]`, as the Struct that its manifest names."""

    settings: Any
    stores: Callable[[str], ModuleStore]
    """Its own tables, for an account; the empty name is that of a module without accounts. It has `sql`, or raises."""
    secrets: Mapping[str, str]
    needs: Mapping[str, Any]
    """What other modules and the kernel offer, by the names in the manifest's `needs`; absent if nobody does."""


class PersonalQueries(Struct, frozen=True):
    """The queries by which everything that a module keeps of a person is handed out and erased, for each account.

    `$2` of each is the person's keys, a `text[]`: see `Reader.person`; and the person itself, as in `person:ann`.
    `export` returns a row for each thing that is kept; what is bytes in it is handed out as text. Those of `erase` run
    in one transaction, one after the other, and find nothing when they run again.
    """

    export: str
    erase: tuple[str, ...]


class ModuleManifest(Struct, frozen=True):
    """The description of a module that is not open yet. Raises `ValueError` for tools that are not named after it."""

    name: str
    tools: tuple[ModuleTool, ...]
    opens: str
    """Where to import the function that opens it, `package.module:function`: from a context, it returns a `Module`.

    It may be an async function; if not, it is called in a thread.
    """
    settings: type[Struct] | None = None
    """The table `[modules.NAME]`; None: there is nothing to set."""
    grants: type[Struct] | None = None
    """What a butler's option `modules` may say of it, besides `tools`; None: nothing."""
    sql: str | tuple[str, ...] = ""
    """The package whose directories `migrations` and `queries` have its own SQL; empty: it keeps nothing.

    Several: those before the last are shared with other modules, each of which has the tables for itself. Migrations of
    a package come after all those of the ones before it.
    """
    personal: PersonalQueries | None = None
    """What is done when a person's data are exported or erased; None: it keeps nothing of persons."""
    needs: tuple[str, ...] = ()
    """Names of protocols that others offer, such as `people.Resolver`."""
    offers: tuple[str, ...] = ()
    """Names of protocols that the opened module has."""
    secrets: tuple[str, ...] = ()
    logs_in: Mapping[str, str] = {}
    """By kinds of accounts, such as `caldav`, where to import the async function that logs one in from a context.

    Each is `package.module:function`. It asks the person at the terminal (`switchboard modules login KIND`) by the
    `LoginDesk` in the context's `needs`; see `login_desk.py`. Without kinds there is nothing to log in.
    """

    def __post_init__(self) -> None:
        names = [tool.spec.name for tool in self.tools]
        if wrong := [name for name in names if not name.startswith(f"{self.name}_")]:
            raise ValueError(f"the names of tools of the module {self.name!r} begin with {self.name}_: not {wrong}")

    @property
    def sql_packages(self) -> tuple[str, ...]:
        """The packages with its SQL, in the order of their migrations."""
        return (self.sql,) if isinstance(self.sql, str) and self.sql else tuple(self.sql)
