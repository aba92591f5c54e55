"""The engine of calls outside turns: it calls one tool of a butler, as a model of the butler would.

`journey/turn.py` runs it instead of the butler's own engine for messages of the channel `call`, which name the tool and
its arguments. Grants, approval, journal and limits are those of a call in a turn, since it is the same code; no model
is asked. Next: `talk.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from switchboard.agents.turns.equipment import Equipment
from switchboard.agents.turns.options import TurnOptions, tool_options_of
from switchboard.agents.turns.talk import Talk
from switchboard.core.calls import called_in
from switchboard.core.turns.frozen import read_frozen
from switchboard.core.turns.loop import PlannedCall
from switchboard.domain.llm import ToolCall
from switchboard.domain.routing import Member
from switchboard.ports.engine import Answer, EngineContext, Journal, Turn, TurnResult
from switchboard.ports.tools import Tool

_SLACK_S: Final = 60.0
"""Time that a call may take beyond the limit of its tool, to be prepared and recorded."""
_PATH: Final = "tool:1:call"


class CallEngine:
    """Calls of tools. `tools` are all existing tools; None: ours. No butler has this engine: it is no entry point."""

    def __init__(self, context: EngineContext, tools: Sequence[Tool] | None = None) -> None:
        self._equipment = Equipment(context, tools)

    stoppable: Final = True

    def patience(self, member: Member) -> float:
        """Seconds after which an attempt is aborted from outside."""
        return tool_options_of(member).tool_timeout + _SLACK_S

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        """Make the call. Raises `EngineFailure` for wrong options of the butler."""
        called, _ = called_in(turn.text)
        options = tool_options_of(turn.member)
        tools = await self._equipment.tools_of(turn.member)

        async def start(_: object) -> object:
            # What is called comes first, so that there is room for it among what is frozen.
            first = {name: tools[name] for name in sorted(tools, key=lambda name: name != called)}
            wanted = options if options.tools is None else _with_first(options, called)
            return (await self._equipment.freeze_call(turn, wanted, first)).record()

        frozen = read_frozen(await journal.step("start", start))
        return await _CallTalk(turn, journal, frozen, self._equipment.around(turn, options, frozen, tools)).run()


def _with_first(options: TurnOptions, called: str) -> TurnOptions:
    names = sorted(options.tools or (), key=lambda name: name != called)
    return options.model_copy(update={"tools": tuple(names)})


class _CallTalk(Talk):
    """A talk in which no model speaks: one call, whose result is the answer."""

    async def _through(self) -> TurnResult:
        tool, arguments = called_in(self._turn.text)
        call = PlannedCall(_PATH, ToolCall(tool, arguments, id="call"))
        self._decisions = await self._await_decisions([call], 1)
        record = await self._call(call)
        self._attach(record)
        self._open.clear()
        return Answer(
            record["text"],
            stop_reason="end" if record["ok"] else "error",
            warning="; ".join((*self._frozen.lacking, *self._unknown)),
            attachments=tuple(self._files.values()),
        )
