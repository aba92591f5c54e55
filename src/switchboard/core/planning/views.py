"""What each model sees of a plan: the router, ids, status and sizes; a specialist, the results that it needs. Pure.

`prompts.py` puts views into requests. In: a `Plan` and texts of results; out: text within its limit. Results are data:
each is enclosed in two lines that do not occur in it. Next: `prompts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from switchboard.core.planning.machine import Plan
from switchboard.core.text.cut import cut
from switchboard.core.text.visible import visible
from switchboard.domain.planning import MAX_CHARS, SPECIALISTS, PipelineStep

_MOST_WHY: Final = 200
_LEAST: Final = 40
"""With fewer characters than these for a result, it is only named."""


def router_view(plan: Plan) -> str:
    """A line for each step: its number, what it does, its state and the size of its result, but no content."""
    return "\n".join(_line(plan, n, step) for n, step in enumerate(plan.steps, 1))


def _line(plan: Plan, n: int, step: PipelineStep) -> str:
    state = plan.state(step.id)
    size = f", {plan.ends[step.id].size} characters" if state == "done" else ""
    needs = f", after {', '.join(step.needs)}" if step.needs else ""
    return f"{n}. {step.id}: {step.action} {step.target}{needs}: {state}{size}"


def specialist_view(plan: Plan, step: PipelineStep, texts: Mapping[str, str], most: int) -> str:
    """The results of the steps that `step` needs, in at most `most` characters; failures are mentioned briefly.

    A tool's result has at most its `max_chars`. If there is not enough room, it is shared fairly: short results are
    complete, and the others are cut to the same length.
    """
    named = {one.id: one for one in plan.steps}
    return _render_results(plan, [named[need] for need in step.needs], texts, most)


def review_view(plan: Plan, texts: Mapping[str, str], most: int) -> str:
    """The texts of all specialists that are done, in at most `most` characters; for the review, too, they are data."""
    done = [step for step in plan.steps if step.action in SPECIALISTS and plan.state(step.id) == "done"]
    return _render_results(plan, done, texts, most)


def _render_results(plan: Plan, steps: Sequence[PipelineStep], texts: Mapping[str, str], most: int) -> str:
    notes = [_note(plan, step) for step in steps if plan.state(step.id) != "done"]
    done = [step for step in steps if plan.state(step.id) == "done"]
    whole = [texts.get(step.id, "") for step in done]
    rule = rule_for([*whole, *notes])
    # The reason why a step failed may also come from outside.
    noted = ["\n".join((f"{rule} not done", *notes, f"{rule} end"))] if notes else []
    frames = [(f"{rule} {step.id}: {step.target}\n", f"\n{rule} end of {step.id}") for step in done]
    # Includes the blank lines between them.
    taken = len("\n\n".join((*map("".join, frames), *noted)))
    sizes = [min(len(text), _most(step)) for step, text in zip(done, whole, strict=True)]
    room = fair_shares(sizes, max(most - taken, 0))
    parts = [
        f"{begin}{cut(text, share)}{end}" if share >= min(_LEAST, len(text)) else f"[{step.id} left out: no space]"
        for step, text, share, (begin, end) in zip(done, whole, room, frames, strict=True)
    ]
    return cut("\n\n".join((*parts, *noted)), most)


def _note(plan: Plan, step: PipelineStep) -> str:
    """A note such as `[s2 failed: 404]`; the reason may come from outside, so it is one short line."""
    end = plan.ends.get(step.id)
    why = f": {' '.join(visible(end.why).split())[:_MOST_WHY]}" if end is not None and end.why else ""
    return f"[{step.id} {plan.state(step.id)}{why}]"


def _most(step: PipelineStep) -> int:
    """How many characters of its result others may see."""
    return step.max_chars if step.action == "tool" else MAX_CHARS


def rule_for(texts: Sequence[str]) -> str:
    """A line of characters that occurs in none of the texts, so that none of them can end its own block."""
    rule = "====="
    while any(rule in text for text in texts):
        rule += "="
    return rule


def fair_shares(sizes: Sequence[int], most: int) -> list[int]:
    """The share of each, `most` in all: none is larger than that of another that is cut."""
    shares = [0] * len(sizes)
    left, open_ones = most, sorted(range(len(sizes)), key=lambda n: sizes[n])
    for done, n in enumerate(open_ones):
        shares[n] = min(sizes[n], left // (len(sizes) - done))
        left -= shares[n]
    return shares
