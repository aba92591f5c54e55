"""Which tools of modules a model is offered: those that fit, and those that it asks for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.mcp_tools import MOST_SCHEMAS
from switchboard.core.turns.frozen import Frozen, FrozenTool
from switchboard.core.turns.offering import (
    MODULE_TOOLS,
    MOST_MODULE_SCHEMAS,
    MOST_MODULE_TOOLS,
    answer_asking,
    fit_modules,
    fit_servers,
    offered_tools,
)

LENGTHS = st.lists(st.integers(1, 1500), max_size=20)


def weigh(tools: Sequence[FrozenTool]) -> int:
    told = ([tool.name, tool.description, tool.parameters] for tool in tools)
    return sum(len(json.dumps(one, separators=(",", ":"))) for one in told)


def some_tools(module: str, lengths: Sequence[int]) -> tuple[FrozenTool, ...]:
    return tuple(
        FrozenTool(f"{module}_t{n}", "x" * length, {"type": "object"}, "idempotent", module=module)
        for n, length in enumerate(lengths)
    )


def frozen(now: Sequence[FrozenTool], later: Sequence[FrozenTool]) -> Frozen:
    fit = {*fit_modules(now)}
    kept = tuple(tool for tool in now if tool.name in fit)
    return Frozen(datetime.now(UTC), "UTC", "", "", ("m",), kept, later=tuple(later))


@given(LENGTHS, LENGTHS, LENGTHS)
def test_no_request_has_more_than_fits_and_what_is_asked_for_comes_first(
    now: list[int], diary: list[int], notes: list[int]
) -> None:
    start = frozen(some_tools("mail", now), (*some_tools("diary", diary), *some_tools("notes", notes)))
    for asked in ((), ("diary",), ("diary", "notes")):
        offered = [tool for tool in offered_tools(start, asked) if tool.name != MODULE_TOOLS]
        assert len(offered) <= MOST_MODULE_TOOLS
        assert weigh(offered) <= MOST_MODULE_SCHEMAS
        wanted = [tool for tool in start.later if tool.module in asked]
        assert not wanted or len(wanted[0].description) > 6000 or wanted[0] in offered


@given(LENGTHS, st.lists(st.integers(1, 8000), max_size=6))
def test_modules_and_servers_share_one_limit(modules: list[int], servers: list[int]) -> None:
    mine = some_tools("mail", modules)
    fit = {*fit_modules(mine)}
    kept = [tool for tool in mine if tool.name in fit]
    theirs = some_tools("git_", servers)
    left = {*fit_servers(theirs, kept)}
    assert weigh([*kept, *(tool for tool in theirs if tool.name in left)]) <= MOST_SCHEMAS


def test_a_model_is_told_only_of_modules_that_it_has() -> None:
    later = some_tools("diary", [3])
    assert answer_asking(later, {"module": "diary"}) == "from now on you can call:\n- diary_t0: xxx"
    assert answer_asking(later, {"module": "mail"}) is None
    assert [tool.name for tool in offered_tools(frozen((), later), ())] == [MODULE_TOOLS]
    assert offered_tools(frozen(later, ()), ()) == later
