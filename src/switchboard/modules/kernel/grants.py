"""Which modules a butler has, and what it may do with them: its option `modules`.

    "modules": {"calendar": {"tools": ["calendar_query"]}, "contacts": {}}

A list of names grants these modules with all their tools. Called for members of turns and calls, and by
`app/ops/modules.py` to check options. In: a member; out: grants, or what is wrong with them. Next: `opened.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field
from pydantic import ValidationError

from switchboard.core.models_of import table_model
from switchboard.core.text.problems import after, path_of, wrong
from switchboard.core.text.words import offer
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.routing import Member
from switchboard.modules.kernel.manifests import Unusable, find_manifest
from switchboard.ports.module import ModuleManifest, ModuleTool

OPTION: Final = "modules"
TOOLS: Final = "tools"
"""In the table of a module: the names of its tools that the butler may use; left out: all."""


class NoGrants(Struct, frozen=True):
    """Of a module whose butlers have nothing to set but its tools."""


class ModuleGrant(Struct, frozen=True):
    """What a butler has of a module. `tools`: their names, None: all; `rest`: the other entries of its table."""

    tools: tuple[str, ...] | None = None
    rest: JsonMapping = field(default_factory=dict)

    def has(self, tool: ModuleTool) -> bool:
        """Whether the butler may use a tool of the module."""
        return self.tools is None or tool.spec.name in self.tools


def grants_of(member: Member) -> Mapping[str, ModuleGrant]:
    """The modules of a butler, by name, in their order. What is not understood grants nothing."""
    option = member.options.get(OPTION)
    if isinstance(option, Mapping):
        return {name: _grant_of(table) for name, table in option.items() if isinstance(table, Mapping)}
    names = option if isinstance(option, Sequence) and not isinstance(option, str) else ()
    return {name: ModuleGrant() for name in names if isinstance(name, str)}


def modules_in_use(members: Iterable[Member]) -> frozenset[str]:
    """The names of the modules that active members have."""
    return frozenset(
        name for member in members if member.active and OPTION in member.options for name in grants_of(member)
    )


def read_grant(manifest: ModuleManifest, grant: ModuleGrant) -> Any:
    """The Struct `grants` of the manifest, as the butler's table says. Raises pydantic's `ValidationError`."""
    return table_model(manifest.grants or NoGrants).model_validate(dict(grant.rest))


def grant_problems(member: Member) -> Iterator[str]:
    """What is wrong with the option `modules` of a butler, a sentence each."""
    for name, grant in grants_of(member).items():
        manifest = find_manifest(name)
        if isinstance(manifest, Unusable):  # what is there, and cannot be loaded, fails alone
            yield from [f"{OPTION}: {manifest.why}"] if manifest.unknown else []
            continue
        known = [tool.spec.name for tool in manifest.tools]
        for tool in grant.tools or ():
            if tool not in known:
                yield f"{OPTION}: {name}: there is no tool {tool!r}{offer(tool, known)}"
        try:
            read_grant(manifest, grant)
        except ValidationError as error:
            yield from (f"{OPTION}: {name}: {_describe_problem(manifest, one)}" for one in error.errors())


def _grant_of(table: JsonMapping) -> ModuleGrant:
    tools = table.get(TOOLS)
    rest = {name: value for name, value in table.items() if name != TOOLS}
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        return ModuleGrant(None if TOOLS not in table else (), rest)
    return ModuleGrant(tuple(map(str, tools)), rest)


def _describe_problem(manifest: ModuleManifest, problem: Any) -> str:
    """What is wrong in the table of a module, and what may be meant."""
    place = path_of(problem["loc"])
    if problem["type"] != "extra_forbidden":
        return after(place, wrong(problem))
    known = [TOOLS, *(manifest.grants or NoGrants).__struct_fields__]
    return f"{place}: it is not known here{offer(place, known)}"
