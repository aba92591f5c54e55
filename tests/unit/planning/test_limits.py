"""The limits of plans are those that the page on plans names, and the options those of its tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from switchboard.agents.trio.options import PlanOptions, TrioOptions
from switchboard.agents.trio.planner import UNKNOWN_CONTEXT
from switchboard.core.planning.check import MOST_ARGS
from switchboard.core.planning.form import MOST_STEPS, MOST_TOOLS
from switchboard.core.planning.ladder import UNSURE
from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.prompts import LEAD_WORDS, PLAN_TOKENS, THINKING_TOKENS
from switchboard.domain.planning import SPECIALIST_CHARS, TOOL_CHARS

PAGE = (Path(__file__).parents[3] / "docs" / "plans.md").read_text(encoding="utf-8")
LIMITS = PlanLimits()
FIXED = {
    "steps of one form that the router fills in": MOST_STEPS,
    "tools that it is told of": MOST_TOOLS,
    "characters of the result of a tool that others see": TOOL_CHARS,
    "characters of all input of a specialist": SPECIALIST_CHARS,
    "characters of the arguments of a step": MOST_ARGS,
    "tokens reserved for a specialist": LIMITS.reserve["specialist"],
    "tokens reserved for a specialist with tools": LIMITS.reserve["specialist_with_tools"],
    "tokens reserved for a review": LIMITS.reserve["router_review"],
    "tokens kept for the end of a plan": LIMITS.kept,
    "tokens below which nothing is asked": LIMITS.least,
    "tokens of the answer of a router": PLAN_TOKENS,
    "tokens of the answer of a router that thinks": THINKING_TOKENS,
    "tokens of context that a router has, where nobody says": UNKNOWN_CONTEXT,
    "confidence below which a template goes first": UNSURE,
    "words of a lead": LEAD_WORDS,
}


def table(head: str) -> Mapping[str, float]:
    """The second column of a table by the first."""
    [rows] = re.findall(rf"^\| {head} \|.*\n\|---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    cells = ([cell.strip() for cell in row.split("|")] for row in rows.splitlines())
    return {cell[1].strip("`"): float(cell[2]) for cell in cells}


@pytest.mark.parametrize(("head", "limits"), [("limit", FIXED), ("`plan`", PlanOptions().model_dump())])
def test_the_page_names_every_limit_with_its_value(head: str, limits: Mapping[str, float]) -> None:
    assert table(head) == limits


def test_a_call_of_a_tool_has_half_a_minute_as_the_page_says() -> None:
    assert f"| `tool_timeout` | {TrioOptions().tool_timeout:g} | seconds for one call of a tool |" in PAGE
    assert PlanOptions().limits == LIMITS
