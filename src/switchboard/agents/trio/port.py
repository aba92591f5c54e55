"""The protocol between executor and planner: what to do with a message, and whether results answer it.

`planner.py` implements it with the router's model; tests supply plans of their own. One call is one step of the
journal, so a planner needs no memory: after a crash, answered calls are not repeated. Next: `core/planning/ladder.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from switchboard.core.planning.ladder import SettledDecision, Templates
from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.machine import Plan
from switchboard.core.planning.menu import Menu
from switchboard.domain.llm import Report
from switchboard.domain.planning import Review
from switchboard.ports.engine import ModelUsage


class PlanQuestion(Struct, frozen=True):
    """The input of a planner about a message.

    `menu`: what plans, or in a review new steps, may use. `models`: the names of the router's models, in the order of
    asking. `tokens`: maximum to generate in all requests of this call; `seconds`: how long the plan may still work.
    `key`, `on_share_of`, `butler`, `again` and `name` go into `Request` and `Asking`.
    """

    text: str
    menu: Menu
    limits: PlanLimits
    templates: Templates
    models: tuple[str, ...]
    tokens: int
    seconds: float
    key: str = ""
    on_share_of: UUID | None = None
    butler: str = ""
    again: Callable[[Report, float], Awaitable[bool]] | None = None
    name: str = ""


class Planned(Struct, frozen=True):
    """The decision. `usage`: that of the router's models, one entry per model; a rejected answer counts, and one whose
    provider reported no usage counts as everything that it might have generated.

    `notes` are for the operator: tools that the router was not told of, and input that was cut.
    """

    settled: SettledDecision
    usage: tuple[ModelUsage, ...] = ()
    notes: tuple[str, ...] = ()


class Reviewed(Struct, frozen=True):
    """The router's verdict on results; the other fields as in `Planned`."""

    review: Review
    usage: tuple[ModelUsage, ...] = ()
    notes: tuple[str, ...] = ()


class Planner(Protocol):
    """Raises `ModelFailure` if no model could be asked, or none answered, which the executor handles."""

    async def plan(self, question: PlanQuestion) -> Planned:
        """A decision that is valid for the menu: the router's, or a template."""
        ...

    async def review(self, question: PlanQuestion, plan: Plan, texts: Mapping[str, str]) -> Reviewed:
        """A review of a plan whose specialists have written `texts`, by the id of their step."""
        ...
