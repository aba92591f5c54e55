"""Engine `model`: a model answers and calls tools; after a crash, finished steps do not run again.

`journey/turn.py` calls `ModelEngine.run`. The loop is that of `core/turns/loop.py`; each request and each call is a
step of the journal (`start`, `request:2`, `tool:2:call_7`). Next: `agents/turns/equipment.py`, and
`agents/turns/talk.py`, which carries out one turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from switchboard.agents.delivery import read_options
from switchboard.agents.model.options import ModelOptions
from switchboard.agents.turns.by_program import ProgramTalk
from switchboard.agents.turns.equipment import Equipment, TurnTerms, prompt_of, wrong
from switchboard.agents.turns.talk import Talk
from switchboard.core.turns.around import READ_ALREADY, as_read
from switchboard.core.turns.entries import OURS
from switchboard.core.turns.frozen import read_frozen
from switchboard.domain.routing import Member
from switchboard.ports.engine import Engine, EngineContext, EngineFailure, Journal, NoReply, Turn, TurnResult
from switchboard.ports.models import Models
from switchboard.ports.tools import Tool

_SLACK_S: Final = 120.0
"""Time that a turn may take beyond its limit, for its last request and work in progress."""


def engine(context: EngineContext) -> Engine:
    """The entry point `model` of `switchboard.engines`."""
    return ModelEngine(context)


class ModelEngine:
    """Turns with a model. `tools` are all existing tools; None: ours."""

    def __init__(self, context: EngineContext, tools: Sequence[Tool] | None = None) -> None:
        self._equipment = Equipment(context, tools)

    stoppable: Final = True
    remembers: Final = True

    def check(self, member: Member) -> None:
        """Raises `EngineFailure` that names each wrong option, a missing key included."""
        options, models = self._read_member_options(member)
        self._equipment.check(member, options)
        if flaws := [f"{name}: {flaw}" for name in self.models_of(member) if (flaw := models.flaw(name))]:
            raise wrong(member, f"models: {'; '.join(flaws)}")

    def patience(self, member: Member) -> float:
        """Seconds after which an attempt is aborted from outside."""
        return read_options(ModelOptions, member).limits.seconds + _SLACK_S

    def models_of(self, member: Member) -> Sequence[str]:
        """The names of the member's models, in the order of asking. Raises `EngineFailure` for wrong options."""
        options, models = self._read_member_options(member)
        return options.models or tuple(models.names or models.runners)

    def prompt_of(self, member: Member) -> str:
        """The prompt that the operator wrote; this may read a file. Raises `EngineFailure`."""
        return prompt_of(member, read_options(ModelOptions, member))

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        """Do the turn. Raises `EngineFailure`; `Outage` while no model can be reached."""
        options, _ = self._read_member_options(turn.member)
        if turn.dead_letter is not None:
            return NoReply("a butler with a model does nothing about dead letters yet")

        tools = await self._equipment.tools_of(turn.member)

        async def start(_: object) -> object:
            models, prompt = tuple(await self.models_for(turn)), await self.prompt_for(turn)
            own = (*OURS, *options.own)
            terms = TurnTerms(models, prompt, options.limits.limits, options.max_tokens, own)
            return (await self._equipment.freeze_turn(turn, options, terms, tools)).record()

        frozen = read_frozen(await journal.step("start", start))
        if frozen.around.is_read:
            return NoReply(READ_ALREADY)
        turn = as_read(turn, frozen.around)
        talk = ProgramTalk if frozen.program else Talk
        return await talk(turn, journal, frozen, self._equipment.around(turn, options, frozen, tools)).run()

    def _read_member_options(self, member: Member) -> tuple[ModelOptions, Models]:
        options = read_options(ModelOptions, member)
        models = self._equipment.models(member, options.models, runners=True)
        self._equipment.check_tools(member, options)
        return options, models

    async def prompt_for(self, turn: Turn) -> str:
        """The prompt for a butler's work in a turn. Raises `EngineFailure`."""
        options = read_options(ModelOptions, turn.member)
        return (
            options.prompt if options.prompt_file is None else await asyncio.to_thread(prompt_of, turn.member, options)
        )

    async def models_for(self, turn: Turn) -> Sequence[str]:
        """The names of the models to ask in a turn, in order. Raises `EngineFailure`."""
        names, wanted = self.models_of(turn.member), turn.envelope.control.model
        if wanted is None:
            return names
        if wanted not in names:
            problem = f"{turn.member.system_id} has no model {wanted}; it has: {', '.join(names)}"
            raise EngineFailure(problem, error_class="validation", retryable=False)
        return (wanted,)

    def kept_for(self, member: Member, readers: str) -> Path | None:
        """The directory where only the readers of a turn find long results and images; None if nothing is kept."""
        return self._equipment.kept_for(member, readers)
