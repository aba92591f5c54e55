"""The result of an ended plan: the text to send, and what was not done. Decided by code, never by a model.

`agents/trio/run.py` calls it when a plan has ended. In: a `Plan`; out: the text of the answer, and what is appended
to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from switchboard.core.planning.machine import NO_TOKENS, HaltReason, Plan
from switchboard.core.planning.plainly import plain_result, without_marks
from switchboard.core.planning.views import fair_shares
from switchboard.core.text.cut import cut
from switchboard.core.text.lenient import sanitize_error, string
from switchboard.core.text.visible import visible
from switchboard.domain.planning import SPECIALISTS, PipelineStep
from switchboard.ports.engine import StopReason

_MOST: Final = 120
_NO_RESULT: Final = "done, without a result"
_HALTED: Final[dict[HaltReason, str]] = {
    "cancelled": "I was stopped before I was done.",
    "deadline": "My time for this was up before I was done.",
    "attempts": "I was interrupted too often to get this done.",
    "gave_up": "I could not find out more.",
}
_REASONS: Final[dict[HaltReason, StopReason]] = {
    "cancelled": "aborted",
    "deadline": "limit:time",
    "attempts": "error",
    "gave_up": "end",
}


def final_step(plan: Plan) -> PipelineStep | None:
    """The step whose text is sent; None: no step is done, and there is nothing to say.

    Among the steps that are done: the last specialist whose text no other specialist used; otherwise the last step.
    """
    done = [step for step in plan.steps if step.action != "router_review" and plan.state(step.id) == "done"]
    used = {need for step in done if step.action in SPECIALISTS for need in step.needs}
    written = [step for step in done if step.action in SPECIALISTS and step.id not in used]
    return next(reversed(written or done), None)


def final_text(plan: Plan, texts: Mapping[str, str]) -> str:
    """The text that is sent for an ended plan, in words for people; "": no step is done. `texts`: by step.

    If no specialist has written, all that tools have returned is shown, each as long as its step allows.
    """
    final = final_step(plan)
    if final is None:
        return ""
    if final.action in SPECIALISTS:
        named = {step.id: _describe_step(step) for step in plan.steps}
        return without_marks(texts.get(final.id, ""), named) or f"{_describe_step(final)}: {_NO_RESULT}"
    done = [step for step in plan.steps if step.action == "tool" and plan.state(step.id) == "done"]
    told = [(step, plain_result(step.target, texts.get(step.id, "")).strip()) for step in done]
    room = fair_shares([min(len(text), step.max_chars) for step, text in told], plan.limits.specialist_chars)
    shown = [(step, cut(text, most)) for (step, text), most in zip(told, room, strict=True)]
    if len(shown) == 1:
        return shown[0][1] or f"{_describe_step(final)}: {_NO_RESULT}"
    return "\n\n".join(f"{_describe_step(step)}:\n{text or _NO_RESULT}" for step, text in shown)


def stop_reason(plan: Plan) -> StopReason:
    """Why the plan ended, in the terms of turns."""
    if plan.halted is not None:
        return _REASONS[plan.halted]
    return "limit:tokens" if any(end.why == NO_TOKENS for end in plan.ends.values()) else "end"


def not_done(plan: Plan) -> str:
    """What was not done and why, one line each; empty if all was done. Reviews do not count: nobody waits for them."""
    missing = [
        f"- {_describe_step(step)} ({plan.state(step.id)}{_why(plan, step)})"
        for step in plan.steps
        if step.action != "router_review" and plan.state(step.id) != "done"
    ]
    if not missing:
        return ""
    said = "" if plan.halted is None else f"{_HALTED[plan.halted]} "
    return "\n".join((f"{said}Not done:", *missing))


def _describe_step(step: PipelineStep) -> str:
    """A step in words for people; its first argument says what it is about."""
    about = next((text for value in step.args.values() if (text := string(value))), "")
    about = " ".join(visible(about).split())
    return f"{step.target} {about if len(about) <= _MOST else about[:_MOST] + '…'}".strip()


def _why(plan: Plan, step: PipelineStep) -> str:
    end = plan.ends.get(step.id)
    return f": {sanitize_error(end.why)[:_MOST]}" if end is not None and end.why else ""
