"""From a router's answers to a decision: exact, stripped, repaired, one retry with the errors, a template. Pure.

`agents/trio/planner.py` asks the router and passes all answers so far to `settle`, which decides or says to ask once
more. In: `Reply`s of the model layer, never their reasoning; out: `Retry` or `SettledDecision`. Next: `read.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.planning.form import REVIEW, ROUTE_DECISION
from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.menu import Menu
from switchboard.core.planning.read import Faulty, read_decision, read_review
from switchboard.core.text.model_json import FoundObject, NoObject, read_object
from switchboard.domain.llm import Reply
from switchboard.domain.planning import Pipeline, PipelineStep, Review, RouteDecision

_TRIES: Final = 2
_MOST_FAULTS: Final = 10

PlanSource = Literal["exact", "stripped", "repaired", "template"]


class SettledDecision(Struct, frozen=True):
    """The decision. `tries`: how often the router was asked; `unsure`: the router said so, and that is passed on."""

    decision: RouteDecision | Pipeline
    source: PlanSource
    tries: int
    unsure: bool = False
    faults: tuple[str, ...] = ()
    """What was wrong with the last rejected answer."""


class Retry(Struct, frozen=True):
    """Ask once more, and say what was wrong."""

    faults: tuple[str, ...]

    @property
    def text(self) -> str:
        """The message to the model."""
        told = "\n".join(f"- {fault}" for fault in self.faults[:_MOST_FAULTS])
        return f"Your answer cannot be used:\n{told}\nAnswer again, with one JSON object and nothing else."


class Templates(Struct, frozen=True):
    """`matching`: the template that fits the message, if there is one; `plain`: the one that always fits."""

    plain: Pipeline
    matching: Pipeline | None = None

    @property
    def best(self) -> Pipeline:
        """The template to use if there is no decision."""
        return self.matching or self.plain


def settle(answers: Sequence[Reply], menu: Menu, limits: PlanLimits, templates: Templates) -> SettledDecision | Retry:
    """What follows from the router's one or two answers so far; no answers: it cannot be asked."""
    tries, faults = len(answers), tuple[str, ...]()
    if not answers:
        return SettledDecision(templates.best, "template", 0)
    found = _object_in(answers[-1], ROUTE_DECISION)
    if isinstance(found, NoObject):
        faults = (found.why,)
    else:
        decision = read_decision(found.value, menu, limits)
        if isinstance(decision, RouteDecision):
            return _fall_back_if_unsure(
                SettledDecision(decision, found.rung, tries), decision.confidence, limits, templates
            )
        faults = decision.faults
    return Retry(faults) if tries < _TRIES else SettledDecision(templates.best, "template", tries, faults=faults)


def _fall_back_if_unsure(
    settled: SettledDecision, confidence: float, limits: PlanLimits, templates: Templates
) -> SettledDecision:
    """The decision, unless the router is unsure and there is a matching template."""
    unsure = confidence < limits.unsure_below
    if unsure and templates.matching is not None:
        why = f"the router was not sure of it ({confidence:.2f})"
        return SettledDecision(templates.matching, "template", settled.tries, faults=(why,))
    return replace(settled, unsure=unsure)


def settle_review(
    answers: Sequence[Reply], menu: Menu, limits: PlanLimits, before: Sequence[PipelineStep]
) -> Review | Retry:
    """The same for a review of a plan with the steps `before`; an unreadable review adds nothing."""
    if not answers:
        return Review("complete")
    found = _object_in(answers[-1], REVIEW)
    read = Faulty((found.why,)) if isinstance(found, NoObject) else read_review(found.value, menu, limits, before)
    if isinstance(read, Review):
        return read
    return Retry(read.faults) if len(answers) < _TRIES else Review("complete")


def _object_in(reply: Reply, tool: str) -> FoundObject | NoObject:
    """The filled-in form in an answer: an object in the text, read strictly; if there is none, the call.

    A list counts as that of several calls.
    """
    if "{" in reply.text or not reply.calls:
        return read_object(reply.text, list_of="calls")
    calls = [call for call in reply.calls if call.name == tool]
    if len(calls) != 1 or len(reply.calls) != 1:
        return NoObject(f"call {tool} once, and nothing else")
    if not calls[0].malformed:
        return FoundObject(calls[0].arguments, "exact")
    return read_object(calls[0].malformed)
