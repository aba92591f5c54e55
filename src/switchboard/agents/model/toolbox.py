"""The tools of a turn with a model: which there are, who may use them, and where they may reach.

`engine.py` imports it when the first turn needs it: what fetches pages takes half a second to import. Next:
`tools/registry.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from switchboard.agents.model.options import ModelOptions
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.readers import person_of, reader_of
from switchboard.core.turns.frozen import FrozenTool
from switchboard.ports.engine import Readers, Turn
from switchboard.ports.history import Entry
from switchboard.ports.tools import Audience, Tool
from switchboard.tools.registry import Grants, build_tools, granted
from switchboard.tools.urls import hosts_of, urls_in

__all__ = ["build_tools", "granted_to", "hosts_of", "urls_of"]


async def granted_to(
    turn: Turn, options: ModelOptions, tools: Mapping[str, Tool], readers: Readers | None
) -> tuple[FrozenTool, ...]:
    """What the sender may make the butler use, where the answer goes."""
    names = tools if options.tools is None else options.tools
    grants = Grants(**{audience: frozenset(names) for audience, names in options.grants.items()})
    allowed = granted([tools[name] for name in names], grants, await _audience(turn, options, readers))
    return tuple(map(_frozen, allowed))


async def _audience(turn: Turn, options: ModelOptions, readers: Readers | None) -> Audience:
    source = turn.envelope.source
    reader = await readers.of(turn) if readers else reader_of(turn, {}, CHANNELS[source.channel])
    if not reader.private:
        return "groups"
    owns = f"{source.channel}:{turn.envelope.sender.identity}" in options.owners
    return "owners" if owns and reader.authentic else "others"


def _frozen(tool: Tool) -> FrozenTool:
    spec = tool.spec
    return FrozenTool(spec.name, spec.description, spec.parameters, spec.effect, spec.ordered)


def urls_of(turn: Turn, history: Sequence[Entry]) -> tuple[str, ...]:
    """What the person has written themselves, now and before; what others wrote in a group does not count."""
    person = person_of(turn.envelope)
    texts = [turn.text, *(entry.text for entry in history if entry.role == "user" and entry.author == person)]
    return tuple(sorted({url for text in texts for url in urls_in(text)}))
