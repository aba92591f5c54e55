"""Plans that need no router: for the most common requests, and for when a router fails. Pure.

`agents/trio/run.py` passes them to `ladder.py`. In: the message, with the URLs and tools of its `Menu`; out:
`Pipeline`s that are valid for that menu. A person's words become a specialist's task and nothing else: they
reach no shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from msgspec import Struct

from switchboard.core.planning.check import step_faults, steps_faults
from switchboard.core.planning.ladder import Templates
from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.menu import SPECIALIST_TASKS, Menu
from switchboard.core.text.cut import cut
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.planning import Pipeline, PipelineStep

FETCH: Final = "web_fetch"
MOST_TASK: Final = 4_000
"""Maximum characters of a message that a task repeats."""
_RESEARCH: Final = re.compile(
    r"\b(research|report|compar(?:e|ison)|summar(?:y|i[sz]e)|analy(?:[sz]e|sis)|investigat|overview|review"
    r"|recherch|bericht|vergleich|zusammenfass|analys|überblick|gegenüberstell)",
    re.IGNORECASE,
)
_BUILD: Final = re.compile(
    r"\b(build|compil|run the tests?|fix(?: the)? (?:bug|code|tests?|build)|refactor|implement"
    r"|bau(?:e|en)\b|kompilier|die tests? laufen|behebe?|refaktor|implementier)",
    re.IGNORECASE,
)
_ANSWER: Final = "Answer the message from the page that was fetched."
_ANSWERS: Final = "Answer the message from all pages that were fetched; say which page says what."
_REPORT: Final = "Write a report that answers the message, from all pages that were fetched; say where they differ."
_QUESTION: Final = "Answer the message."
_EDIT: Final = "Make the change that the message asks for, in the files of the workspace."
_SUMMARY: Final = "Say what was changed, and whether it was built and tested, from the results."


class Builds(Struct, frozen=True):
    """How the code in the workspace is built and tested: calls of a tool with constant arguments, from the settings."""

    tool: str
    build: JsonMapping
    test: JsonMapping


def templates(text: str, menu: Menu, limits: PlanLimits, builds: Builds | None = None) -> Templates:
    """The templates for a message."""
    found = _matching(text, menu, limits, builds)
    # A tool may not be granted to the sender, or may require other arguments.
    usable = (_plan(steps, limits) for steps in found if not steps_faults(steps, menu, limits.steps))
    return Templates(_plan((_write("s1", text, _QUESTION),), limits), next(usable, None))


def left_out(menu: Menu, limits: PlanLimits) -> tuple[str, ...]:
    """URLs of the message for which a template that fetches has no step, to be reported to the person."""
    fetched = {step.args["url"] for step in _fetches(menu, limits)}
    return tuple(url for url in menu.urls if url not in fetched) if fetched else ()


def wants_build(text: str) -> bool:
    """Whether a person's own words ask for code to be changed or built."""
    return _BUILD.search(text) is not None


def _matching(text: str, menu: Menu, limits: PlanLimits, builds: Builds | None) -> Iterator[tuple[PipelineStep, ...]]:
    if builds is not None and not menu.urls and _BUILD.search(text):
        yield _build_cycle(text, builds)
    if fetches := _fetches(menu, limits):
        task = _REPORT if _RESEARCH.search(text) else _ANSWER if len(menu.urls) == 1 else _ANSWERS
        last = _write(f"s{len(fetches) + 1}", text, task)
        yield (*fetches, replace(last, needs=tuple(step.id for step in fetches)))


def _fetches(menu: Menu, limits: PlanLimits) -> list[PipelineStep]:
    """A step for each URL of the message that can be fetched, as far as there is room: one that cannot spoils none."""
    steps = (PipelineStep("s0", "tool", FETCH, {"url": url}) for url in menu.urls)
    good = islice((step for step in steps if not any(step_faults(step, menu))), limits.steps - 1)
    return [replace(step, id=f"s{n}") for n, step in enumerate(good, 1)]


def _build_cycle(text: str, builds: Builds) -> tuple[PipelineStep, ...]:
    """One after the other: without a change there is no build, and without a build no test."""
    edit = replace(_write("s1", text, _EDIT), action="specialist_with_tools")
    build = PipelineStep("s2", "tool", builds.tool, builds.build, ("s1",))
    test = PipelineStep("s3", "tool", builds.tool, builds.test, ("s2",))
    return (edit, build, test, replace(_write("s4", text, _SUMMARY), needs=("s1", "s2", "s3")))


def _write(step_id: str, text: str, task: str) -> PipelineStep:
    said = cut(text.strip(), MOST_TASK)
    args = {"task": f"{task}\n\nThe message:\n{said}"}
    return PipelineStep(step_id, "specialist", SPECIALIST_TASKS[0], args)


def _plan(steps: tuple[PipelineStep, ...], limits: PlanLimits) -> Pipeline:
    return Pipeline(limits.with_max_chars(steps), max_rounds=1, token_budget=limits.template_budget)
