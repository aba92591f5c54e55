"""Conformance of modules: what every module must do, as checks that a test of a module runs.

    CALLS = {"canteen_dishes": {"day": "2026-03-02"}}
    SUBJECT = ModuleSubject("canteen_module:MANIFEST", {"dishes": "dishes.json"}, CALLS)

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_my_module(check: ModuleCheck) -> None:
        await check(SUBJECT)

A check raises `AssertionError` that says what went wrong. Neither a database nor a network is used. Next:
`ports/module.py`, the contract that is checked here.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from uuid import uuid4

import msgspec
from msgspec import Struct

from switchboard.core.mcp_tools import unusable
from switchboard.core.turns.frozen import FrozenTool
from switchboard.core.turns.offering import fit_modules
from switchboard.domain.json_values import JsonMapping
from switchboard.modules.kernel.bound import MOST_RESULT, BoundTool, ModuleCaller, bind_tool
from switchboard.modules.kernel.opened import no_stores
from switchboard.modules.kernel.opening import close_module, open_module
from switchboard.modules.kernel.tables import read_table
from switchboard.ports.mcp import ListedTool
from switchboard.ports.module import ModuleContext, ModuleManifest
from switchboard.ports.module_store import ModuleStore
from switchboard.ports.people_seen import SeenPerson
from switchboard.ports.recent_writers import RecentWriter
from switchboard.ports.tools import PreparedCall, Prepares, ToolOutcome, ToolScope
from switchboard.tools.calls import call_tool

_EFFECTS: Final = ("idempotent", "queryable", "effectful")
_RISKS: Final = ("low", "medium", "high")
_WRONG: Final[tuple[object, ...]] = ("", "\x00", "\u202e🦜" * 1000, -1, 10**30, True, None, [], {"a": {}}, "9999-99-99")
"""Values that hardly any argument can have."""
_IMPORTS: Final = """
import sys, switchboard.ports.module, switchboard.ports.typed_calls
before = {name.partition(".")[0] for name in sys.modules} | sys.stdlib_module_names
__import__(sys.argv[1])
print(*sorted({name.partition(".")[0] for name in sys.modules} - before - {sys.argv[1].partition(".")[0]}))
"""


class ModuleSubject(Struct, frozen=True):
    """A module, and what the checks must know about it.

    `manifest`: where it is, `package.module:NAME`. `settings`: its table, and `grants` those of a butler. `calls`:
    arguments with which a tool succeeds, by its name. `stores`, `secrets`, `needs`: what it gets when it is opened.
    """

    manifest: str
    settings: JsonMapping = msgspec.field(default_factory=dict)
    calls: Mapping[str, JsonMapping] = msgspec.field(default_factory=dict)
    grants: object = None
    stores: Callable[[str], ModuleStore] | None = None
    secrets: Mapping[str, str] = msgspec.field(default_factory=dict)
    needs: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def load(self) -> ModuleManifest:
        """The manifest."""
        place, _, name = self.manifest.partition(":")
        found: ModuleManifest = getattr(import_module(place), name)
        return found


class FixedPeople:
    """`PeopleSeen` for tests: whoever calls is this person."""

    def __init__(self, seen: SeenPerson) -> None:
        self.seen = seen

    async def seen_in(self, scope: ToolScope) -> SeenPerson:  # noqa: ARG002
        """As in the port."""
        return self.seen


class FixedWriters:
    """`RecentWriters` for tests: these have written lately."""

    def __init__(self, writers: Sequence[RecentWriter]) -> None:
        self.writers = writers

    async def find_writers(self, scope: ToolScope, limit: int) -> Sequence[RecentWriter]:  # noqa: ARG002
        """As in the port."""
        return self.writers[:limit]


ModuleCheck = Callable[[ModuleSubject], Awaitable[None]]


# The checks -----------------------------------------------------------------------------------------------------------


async def describes_its_tools(subject: ModuleSubject) -> None:
    """Its tools are named after it, their schemas are what providers take, and the core ones fit into a request."""
    manifest = subject.load()
    specs = [tool.spec for tool in manifest.tools]
    assert specs, "it has no tools"
    assert all(spec.name.startswith(f"{manifest.name}_") and "__" not in spec.name for spec in specs), "names"
    listed = [ListedTool(spec.name, spec.description, spec.parameters) for spec in specs]
    assert not (wrong := unusable(manifest.name, listed, {})), f"providers refuse {wrong}"
    core = [tool.spec for tool in manifest.tools if tool.core]
    frozen = [FrozenTool(spec.name, spec.description, spec.parameters) for spec in core]
    assert len([*fit_modules(frozen)]) == len(core), "its core tools alone do not fit into a request"
    assert {*subject.calls} <= {spec.name for spec in specs}, "the subject names tools that it does not have"


async def is_described_without_its_libraries(subject: ModuleSubject) -> None:
    """Whoever lists its tools imports nothing of its field, since that is done where it is never opened."""
    place = subject.manifest.partition(":")[0]
    command = (sys.executable, "-c", _IMPORTS, place)
    path = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": ""}
    done = await asyncio.to_thread(subprocess.run, command, env=path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stdout.strip(), f"its manifest imports {done.stdout.strip()}"


async def opens_and_closes(subject: ModuleSubject) -> None:
    """It can be opened again after it was closed, and its chores are named."""
    for _ in range(2):
        async with opened_tools(subject) as (_, chores):
            assert len({*chores}) == len(chores), "two chores have one name"


async def says_what_is_wrong(subject: ModuleSubject) -> None:
    """Whatever the arguments are, a call ends with an outcome that says something."""
    async with opened_tools(subject) as (tools, _):
        for tool in tools.values():
            for arguments in _wrong_arguments(tool, subject):
                outcome = await _call_wrongly(tool, arguments)
                assert outcome.text.strip() or outcome.ok, f"{tool.spec.name} says nothing of {arguments!r:.200}"
                assert "defect of the tool" not in outcome.text, f"{tool.spec.name} {arguments!r:.200}: {outcome.text}"


async def repeats_what_may_be_repeated(subject: ModuleSubject) -> None:
    """A call of the subject succeeds, and again with the same key, unless its effect is doubled by that."""
    async with opened_tools(subject) as (tools, _):
        for name, arguments in subject.calls.items():
            scope, tool = _make_scope(Path()), tools[name]
            first = await call_tool(tool, arguments, scope)
            assert first.ok, f"{name}: {first.text}"
            assert len(first.text) <= MOST_RESULT, f"{name} returns {len(first.text)} characters"
            if tool.spec.effect != "effectful":
                again = await call_tool(tool, arguments, scope)
                assert (again.ok, again.text) == (True, first.text), f"{name} again: {again.text}"


async def prepares_without_effect(subject: ModuleSubject) -> None:
    """What a call would do is the same when asked twice, and at least what its tool always does."""
    async with opened_tools(subject) as (tools, _):
        for name, arguments in subject.calls.items():
            tool: object = tools[name]
            if not isinstance(tool, Prepares):
                continue
            spec, found = tools[name].spec, [await tool.prepare(arguments, _make_scope(Path())) for _ in range(2)]
            assert found[0] == found[1], f"{name} is prepared in two ways: {found}"
            assert isinstance(found[0], PreparedCall), f"{name}: {found[0]}"
            assert _EFFECTS.index(found[0].effect) >= _EFFECTS.index(spec.effect), f"{name} has less effect"
            assert _RISKS.index(found[0].risk) >= _RISKS.index(spec.risk), f"{name} has less risk"


CHECKS: Final[tuple[ModuleCheck, ...]] = (
    describes_its_tools,
    is_described_without_its_libraries,
    opens_and_closes,
    says_what_is_wrong,
    repeats_what_may_be_repeated,
    prepares_without_effect,
)


# What they use --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def opened_tools(subject: ModuleSubject) -> AsyncIterator[tuple[Mapping[str, BoundTool], list[str]]]:
    """The tools of the opened module, by name, and the names of its chores."""
    manifest = subject.load()
    settings = read_table(manifest, {manifest.name: subject.settings})
    stores = subject.stores or no_stores(manifest)
    context = ModuleContext(settings, stores, subject.secrets, subject.needs)
    module = await open_module(manifest, context, _just_run)
    caller = ModuleCaller(module, subject.grants, _just_run)
    try:
        yield (
            {tool.spec.name: bind_tool(tool, caller, manifest.name) for tool in manifest.tools},
            [f"{chore.name} {chore.account}" for chore in module.chores],
        )
    finally:
        await close_module(module)


async def _just_run(work: Awaitable[Any]) -> Any:
    return await work


async def _call_wrongly(tool: BoundTool, arguments: JsonMapping) -> ToolOutcome:
    """A call as a turn makes it, but that also what the schema refuses reaches the tool."""
    with TemporaryDirectory() as place:
        checked = await call_tool(tool, arguments, _make_scope(Path(place)))
        try:
            return checked if checked.ok else await tool.call(arguments, _make_scope(Path(place)))
        except Exception as error:
            raise AssertionError(f"{tool.spec.name} raises {error!r} for {arguments!r:.200}") from error


def _wrong_arguments(tool: BoundTool, subject: ModuleSubject) -> Iterator[JsonMapping]:
    """Nothing, something else, and each argument of the subject's call replaced by what it hardly can be."""
    good = subject.calls.get(tool.spec.name, {})
    yield {}
    yield {"no_such_argument": 1}
    for name in tool.spec.parameters.get("properties", {}):
        for value in _WRONG:
            yield json.loads(json.dumps({**good, name: value}))


def _make_scope(place: Path) -> ToolScope:
    return ToolScope(place, frozenset(), frozenset(), uuid4(), uuid4())
