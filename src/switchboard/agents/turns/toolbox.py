"""The tools of a turn with a model: which exist, who may use them, and what they may reach.

`equipment.py` imports it when the first turn needs it: the web client takes half a second to import. Next:
`tools/registry.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from switchboard.agents.turns.options import TurnOptions
from switchboard.core.calls import is_by_operator, is_call
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.mcp_tools import server_of
from switchboard.core.passages.folding import folds
from switchboard.core.people.owners import is_certain_owner
from switchboard.core.people.readers import directory_of, person_of, reader_of
from switchboard.core.turns.asking import ASK_USER
from switchboard.core.turns.entries import own_words_of
from switchboard.core.turns.frozen import FrozenTool
from switchboard.core.turns.offering import fit_modules, fit_servers
from switchboard.ports.engine import Readers, Turn
from switchboard.ports.facts import Reader
from switchboard.ports.history import Entry
from switchboard.ports.tools import Audience, OfModule, Tool
from switchboard.tools.grants import Grants, granted_tools, withheld_tools
from switchboard.tools.memory import OF_MEMORY, OF_TURNS
from switchboard.tools.original import MESSAGE_ORIGINAL
from switchboard.tools.registry import build_tools, usable
from switchboard.tools.urls import hosts_of, urls_in, written_urls

__all__ = [
    "OF_MEMORY",
    "Granted",
    "build_tools",
    "granted_to",
    "granted_to_owners",
    "hosts_of",
    "urls_in",
    "urls_of",
    "written_urls",
]


class Granted(Struct, frozen=True):
    """What the sender may have the butler use, who reads the answer, and whether an owner asks; fields of `Frozen`.

    `on_request`: what models are offered if they ask for it. `private`: whether only the sender reads the answer.
    """

    tools: tuple[FrozenTool, ...]
    on_request: tuple[FrozenTool, ...]
    withheld: tuple[str, ...]
    readers: str
    by_owner: bool
    private: bool
    for_whom: Reader


def _audience(turn: Turn, reader: Reader, *, owns: bool) -> Audience:
    """A call for nobody in particular is the household's; an operator may do with a butler what its owners may."""
    if is_call(turn.envelope) and not reader.authentic:
        return "owners" if is_by_operator(turn.envelope) else "household"
    if not reader.private:
        return "groups"
    return "owners" if owns else "others"


def _divide_tools(tools: Sequence[FrozenTool], core: Collection[str]) -> tuple[list[FrozenTool], list[FrozenTool]]:
    """The tools that fit, and those of modules that a model can ask for: what is not `core`, and what does not fit."""
    modules = [tool for tool in tools if tool.module and tool.name in core]
    fit = {*fit_modules(modules)}
    now = [tool for tool in modules if tool.name in fit]
    fit |= {*fit_servers((tool for tool in tools if server_of(tool.name)), now)}
    offered = [tool for tool in tools if tool.name in fit or not (tool.module or server_of(tool.name))]
    return offered, [tool for tool in tools if tool.module and tool.name not in fit]


def _core_names(tools: Iterable[Tool]) -> set[str]:
    return {tool.spec.name for tool in tools if isinstance(tool, OfModule) and tool.core}


async def granted_to(turn: Turn, options: TurnOptions, tools: Mapping[str, Tool], readers: Readers | None) -> Granted:
    """The grants for a message's sender. Raises `Unavailable`."""
    reader = await readers.of(turn) if readers else reader_of(turn, {}, CHANNELS[turn.envelope.source.channel])
    there, grants = _useful(await _offered_tools(options, tools), turn, reader), _grants(options)
    owns = is_certain_owner(turn.member, options.owners, turn.envelope, reader)
    audience = _audience(turn, reader, owns=owns)
    allowed = granted_tools(there, grants, audience)
    now, later = _divide_tools([_freeze_tool(tool, options) for tool in allowed], _core_names(allowed))
    return Granted(
        tuple(now),
        tuple(later),
        tuple(tool.spec.name for tool in withheld_tools(there, grants, audience)),
        directory_of(reader, turn.request_id),
        owns,
        reader.private,
        reader,
    )


async def granted_to_owners(options: TurnOptions, tools: Mapping[str, Tool]) -> tuple[FrozenTool, ...]:
    """The tools that owners are offered in a private conversation with the butler. Raises `Unavailable`."""
    allowed = granted_tools(await _offered_tools(options, tools), _grants(options), "owners")
    offered, _ = _divide_tools([_freeze_tool(tool, options) for tool in allowed], _core_names(allowed))
    return tuple(offered)


def _useful(offered: Sequence[Tool], turn: Turn, reader: Reader) -> Sequence[Tool]:
    """The tools without those that have nothing to do here.

    Nothing is remembered of a sender who is not certain, and where all of a message is in the prompt, no tool shows it.
    A call outside a turn has no conversation: nothing is said in it, and nobody can answer there.
    """
    useless = {name for name in OF_MEMORY if not (reader.authentic and reader.person)}
    useless |= {ASK_USER, *OF_TURNS} if is_call(turn.envelope) else set()
    useless |= set() if folds(turn.envelope.source.channel) else {MESSAGE_ORIGINAL.name}
    return [tool for tool in offered if tool.spec.name not in useless]


async def _offered_tools(options: TurnOptions, tools: Mapping[str, Tool]) -> Sequence[Tool]:
    wanted = tools if options.tools is None else options.tools
    return await usable(tools[name] for name in wanted if name in tools)


def _grants(options: TurnOptions) -> Grants:
    return Grants(**{audience: frozenset(names) for audience, names in options.grants.items()})


def _freeze_tool(tool: Tool, options: TurnOptions) -> FrozenTool:
    spec = tool.spec
    why = "the settings require approval of each call" if spec.name in options.approve else ""
    why = "a tool of high risk" if spec.risk == "high" else why
    module = tool.module_name if isinstance(tool, OfModule) else ""
    said = spec.name, spec.description, spec.parameters, spec.effect, spec.ordered
    return FrozenTool(*said, why, spec.reach, module, spec.risk)


def urls_of(turn: Turn, history: Sequence[Entry]) -> tuple[str, ...]:
    """The URLs that the person wrote, now or before; not those that they quoted or that others in a group wrote."""
    person = person_of(turn.envelope)
    said = (entry.own_words for entry in history if entry.role == "user" and entry.author == person)
    return tuple(sorted({url for text in (own_words_of(turn.envelope), *said) for url in urls_in(text)}))
