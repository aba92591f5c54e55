"""A planner that asks nobody: templates for what people ask most, and no reviews.

`engine.py` uses it. Next: `core/planning/templates.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from switchboard.agents.trio.port import Planned, Question, Reviewed
from switchboard.core.planning.ladder import Settled
from switchboard.core.planning.machine import Plan
from switchboard.domain.planning import Review


class TemplatePlanner:
    """`Planner` by templates."""

    async def plan(self, question: Question) -> Planned:
        """The template that fits best."""
        return Planned(Settled(question.templates.best, "template", 0))

    async def review(self, question: Question, plan: Plan, texts: Mapping[str, str]) -> Reviewed:  # noqa: ARG002
        """There is nothing to add."""
        return Reviewed(Review("complete"))
