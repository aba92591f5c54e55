"""Engine `trio`: a router plans, tools and a specialist do the steps, a small model presents the result.

`journey/turn.py` calls `TrioEngine.run`. The start of a turn, the decision, every step and the lead are steps of the
journal (`plan:start`, `plan:route`, `s1`, `s3/request:2`, `plan:lead`); nothing of a plan is stored anywhere else.
Next: `executor.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from switchboard.agents.delivery import read_options
from switchboard.agents.trio.options import TrioOptions
from switchboard.agents.trio.planner import UNKNOWN_CONTEXT, ModelPlanner
from switchboard.agents.trio.port import Planner, PlanQuestion
from switchboard.agents.trio.run import PlannedTurn
from switchboard.agents.turns.equipment import Equipment, TurnTerms, prompt_of, wrong
from switchboard.core.passages.own import own_text, read_passages
from switchboard.core.planning.menu import Menu
from switchboard.core.planning.places import paths_in
from switchboard.core.planning.records import START
from switchboard.core.planning.start import Roles, Start, cast, read_start
from switchboard.core.planning.templates import templates
from switchboard.core.turns.around import READ_ALREADY, as_read
from switchboard.core.turns.asking import ASK_USER
from switchboard.core.turns.entries import OURS, entry_of, own_words_of
from switchboard.core.turns.images import inbox_name
from switchboard.core.turns.limits import LoopLimits
from switchboard.domain.routing import Member
from switchboard.ports.engine import Engine, EngineContext, EngineFailure, Journal, NoReply, Turn, TurnResult
from switchboard.ports.models import Models
from switchboard.ports.tools import Tool

_SLACK_S: Final = 120.0
"""Time that a turn may take beyond that of its plan, for the lead and work in progress."""
_TYPED: Final = "cli"
"""The channel of a text that an operator types."""
_ANSWER: Final = 4096
"""Maximum tokens of an answer without a plan."""


def engine(context: EngineContext) -> Engine:
    """The entry point `trio` of `switchboard.engines`."""
    return TrioEngine(context)


class TrioEngine:
    """Turns with plans. `tools` are all existing tools; None: ours. `planner` None: ours."""

    def __init__(
        self, context: EngineContext, tools: Sequence[Tool] | None = None, *, planner: Planner | None = None
    ) -> None:
        self._context = context
        self._equipment = Equipment(context, tools)
        self._planner = planner

    stoppable: Final = True
    remembers: Final = True

    def check(self, member: Member) -> None:
        """Raises `EngineFailure` that names each wrong option, a missing key included."""
        options, roles, models = self._options(member)
        self._equipment.check(member, options)
        if flaws := [f"{name}: {flaw}" for name in roles.names if (flaw := models.flaw(name))]:
            raise wrong(member, f"main, router or specialist: {'; '.join(flaws)}")

    def patience(self, member: Member) -> float:
        """Seconds after which an attempt is aborted from outside."""
        return read_options(TrioOptions, member).plan.deadline + _SLACK_S

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        """Do the turn. Raises `EngineFailure`; `Outage` while no model can be reached; `Parked`."""
        options, roles, models = self._options(turn.member)
        if turn.dead_letter is not None:
            return NoReply("a butler that plans does nothing about dead letters yet")

        tools = await self._equipment.tools_of(turn.member)

        async def begin(_: object) -> object:
            return (await self._start(turn, options, roles, tools)).record()

        try:
            start = read_start(await journal.step(START, begin))
            if start.frozen.around.is_read:
                return NoReply(READ_ALREADY)
            turn = as_read(turn, start.frozen.around)
            around, planner = self._equipment.around(turn, options, start.frozen, tools), self._planner_of(models)
            return await PlannedTurn(turn, journal, start, around, planner, options.plan.attempts).run()
        except msgspec.ValidationError as error:  # a worker of another release began it, and may still be running
            raise EngineFailure(f"this release cannot read what is on record of the plan: {error}") from error

    async def question(self, member: Member, text: str, below: Mapping[str, str]) -> PlanQuestion:
        """The question for the router if an owner of the butler writes this as the first message.

        `below`: as in a turn.

        Raises `EngineFailure`.
        """
        from switchboard.agents.turns.toolbox import granted_to_owners, written_urls

        options, roles, _ = self._options(member)
        tools = await granted_to_owners(options, await self._equipment.tools_of(member))
        own, limits = own_text(read_passages(text, _TYPED)), options.plan.limits
        builds = None if options.builds is None else options.builds.builds
        menu = Menu(
            tuple(tool for tool in tools if tool.name != ASK_USER),
            subagents=below,
            urls=written_urls(own),
            paths=paths_in(own),
            more_paths=options.paths,
            own=frozenset((*OURS, *options.own)),
            after_foreign=options.after_foreign,
        )
        return PlanQuestion(
            *(text, menu, limits, templates(text, menu, limits, builds), (roles.router,)),
            *(options.plan.token_budget, options.plan.deadline),
            butler=member.system_id,
        )

    def _planner_of(self, models: Models) -> Planner:
        """One planner for all turns, as it remembers what it has learned about models."""
        if self._planner is None:
            self._planner = ModelPlanner(models)
        return self._planner

    def _options(self, member: Member) -> tuple[TrioOptions, Roles, Models]:
        options = read_options(TrioOptions, member)
        named = {"main": options.main, "router": options.router, "specialist": options.specialist}
        given = {**self._context.roles, **{role: name for role, name in named.items() if name is not None}}
        models = self._equipment.models(member, tuple(given.values()), "main, router or specialist")
        self._equipment.check_tools(member, options)
        return options, cast(given, models.names[0]), models

    async def _start(self, turn: Turn, options: TrioOptions, roles: Roles, tools: Mapping[str, Tool]) -> Start:
        from switchboard.agents.turns.toolbox import written_urls

        own = (*OURS, *options.own)
        terms = TurnTerms((roles.main,), prompt_of(turn.member, options), LoopLimits(), _ANSWER, own)
        frozen = await self._equipment.freeze_turn(turn, options, terms, tools)
        turn = as_read(turn, frozen.around)
        models, plan = self._equipment.models(turn.member, ()), options.plan
        said, written = frozen.said or entry_of(turn, frozen.history), own_words_of(turn.envelope)
        before = "\n".join(one.own_words for one in frozen.history if one.role == "user")
        attached = [name for one in turn.envelope.payload.attachments if (name := inbox_name(one))]
        return Start(
            frozen=frozen,
            text=said.text,
            roles=roles,
            windows={name: await models.context(name, UNKNOWN_CONTEXT) for name in roles.names},
            limits=plan.limits.thinking if models.habits(roles.router).thinks else plan.limits,
            max_rounds=plan.max_rounds,
            token_budget=plan.token_budget,
            deadline=self._equipment.clock() + timedelta(seconds=plan.deadline),
            urls=written_urls(written),
            more_urls=tuple(url for url in frozen.urls if url in written_urls(before)),
            paths=tuple(dict.fromkeys((*attached, *paths_in(written)))),
            more_paths=(*options.paths, *paths_in(before)),
            own=own,
            subagents=turn.below(),
            builds=None if options.builds is None else options.builds.builds,
            tries=plan.tries,
            calls=plan.calls,
        )
