"""The limits of a plan, and how its time is counted. Pure.

`machine.py` starts nothing beyond `PlanLimits`; a `Clock` says when the time of a plan is up. Next: `machine.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct, field, structs

from switchboard.domain.planning import SPECIALIST_CHARS, SPECIALISTS, TOOL_CHARS, PipelineAction, PipelineStep

LEAST_CHARS: Final = 200
"""The fewest characters with which a result is of use to others."""


def _default_reserve() -> Mapping[PipelineAction, int]:
    return {"specialist": 1_500, "specialist_with_tools": 4_000, "router_review": 800}


class PlanLimits(Struct, frozen=True):
    """The most that one plan may use.

    `steps` over all rounds, `at_once` in parallel. `tool_chars` and `specialist_chars`: the `max_chars` of steps that
    models and templates plan, unless a model asks for less. `reserve`: the tokens that a step with a model may
    generate, by action; actions that are missing use none. `kept` tokens are for the end of the plan, and a step with
    fewer than `least` is not worth starting. The router may answer with `router_tokens`, or `thinking_tokens` if it
    thinks; a plan from a template has `template_budget`. A decision with a confidence below `unsure_below` gives way
    to a template that matches.
    """

    steps: int = 32
    at_once: int = 8
    tool_chars: int = TOOL_CHARS
    specialist_chars: int = SPECIALIST_CHARS
    reserve: Mapping[PipelineAction, int] = field(default_factory=_default_reserve)
    kept: int = 400
    least: int = 200
    router_tokens: int = 800
    thinking_tokens: int = 2_500
    template_budget: int = 4_000
    unsure_below: float = 0.5

    @property
    def smallest_budget(self) -> int:
        """The smallest budget of tokens with which a step with a model can run."""
        return self.kept + self.least

    @property
    def thinking(self) -> PlanLimits:
        """The same for a router that thinks: its reviews need room for that as well."""
        review = max(self.reserve.get("router_review", 0), self.thinking_tokens)
        return structs.replace(self, reserve={**self.reserve, "router_review": review})

    def with_max_chars(
        self, steps: Sequence[PipelineStep], wanted: Mapping[str, int] | None = None
    ) -> tuple[PipelineStep, ...]:
        """The steps with their `max_chars`: what a router `wanted`, by step, but not more than the limits allow."""
        most, given = dict.fromkeys(SPECIALISTS, self.specialist_chars), wanted or {}
        limits = {step.id: most.get(step.action, self.tool_chars) for step in steps}
        sizes = {name: min(max(given.get(name, limit), LEAST_CHARS), limit) for name, limit in limits.items()}
        return tuple(replace(step, max_chars=sizes[step.id]) for step in steps)


class Clock(Struct, frozen=True):
    """The time of a plan. Waiting for people does not count, but moves the deadline."""

    deadline: datetime
    waited: timedelta = timedelta(0)
    waiting_since: datetime | None = None

    def wait(self, now: datetime) -> Clock:
        """From now on nothing runs, and the plan waits for people."""
        return self if self.waiting_since is not None else structs.replace(self, waiting_since=now)

    def go_on(self, now: datetime) -> Clock:
        """Something runs again."""
        return structs.replace(self, waited=self.waited + self._waiting(now), waiting_since=None)

    def remaining_time(self, now: datetime) -> timedelta:
        """How long the plan may still work; never negative."""
        return max(self.deadline + self.waited + self._waiting(now) - now, timedelta(0))

    def _waiting(self, now: datetime) -> timedelta:
        """How long it has waited this time; zero if the clock of another machine is behind."""
        return timedelta(0) if self.waiting_since is None else max(now - self.waiting_since, timedelta(0))
