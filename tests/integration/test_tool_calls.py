"""Calls of tools end as outcomes, whatever the tool does; long results are kept in files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from switchboard.domain.json_values import JsonMapping
from switchboard.ports.tools import ToolOutcome, ToolScope, ToolSpec
from switchboard.testing.connectors import in_no_time
from switchboard.tools.calls import CallLimits, call_tool
from switchboard.tools.results import MOST, shorten
from switchboard.tools.workspace import MOST_WRITTEN
from tests.tools import KEY, TOOLS, TURN, called, outcome_of, results_of, scope_of

SPEC = ToolSpec("odd", "", {"type": "object", "properties": {"x": {"type": "string"}}}, "idempotent")


@dataclass
class Odd:
    """A tool that does what a test wants."""

    act: Callable[[], Awaitable[ToolOutcome]]
    spec: ToolSpec = SPEC
    stopped: bool = False

    async def call(self, _arguments: JsonMapping, _scope: ToolScope) -> ToolOutcome:
        try:
            return await self.act()
        except asyncio.CancelledError:
            self.stopped = True
            raise


async def hangs() -> ToolOutcome:
    await asyncio.Event().wait()
    raise AssertionError


async def raises() -> ToolOutcome:
    raise RuntimeError("with the password hunter2")


async def gives_up() -> ToolOutcome:
    raise asyncio.CancelledError


async def times_out() -> ToolOutcome:
    raise TimeoutError


async def returns_too_much() -> ToolOutcome:
    return ToolOutcome("0123456789" * 5_000_000)


async def returns_what_cannot_be_stored() -> ToolOutcome:
    return ToolOutcome("a\x00b\ud800c")


async def does_not_stop() -> ToolOutcome:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
            if asyncio.current_task() in STUBBORN:
                return ToolOutcome("at last")


STUBBORN = set[asyncio.Task[object] | None]()


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (hangs, "odd was stopped after 0.01 s: it had not ended"),
        (raises, "odd failed with RuntimeError; that is a defect of the tool"),
        (times_out, "odd failed with TimeoutError; that is a defect of the tool"),
        (gives_up, "odd was stopped: it had not ended"),
    ],
)
async def test_what_fails_is_an_outcome(act: Callable[[], Awaitable[ToolOutcome]], said: str, tmp_path: Path) -> None:
    passing = act is hangs  # what takes too long once may be quicker the next time
    outcome = await outcome_of(Odd(act), tmp_path, CallLimits(timeout=0.01))
    assert outcome == ToolOutcome(said, ok=False, passing=passing)


async def test_a_tool_that_is_late_is_stopped_and_its_effect_is_in_doubt(tmp_path: Path) -> None:
    tool = Odd(hangs, replace(SPEC, effect="effectful"))
    outcome = await outcome_of(tool, tmp_path, CallLimits(timeout=0.01))
    assert outcome.text.endswith("whether it had an effect is not known")
    assert tool.stopped


def test_calls_that_begin_later_are_stopped_later(tmp_path: Path) -> None:
    """One timer serves all of them; here only it makes time pass."""
    limits, ended = CallLimits(timeout=10), list[tuple[str, float, bool]]()

    async def call(name: str, begins: float, takes: float) -> None:
        async def act() -> ToolOutcome:
            await asyncio.sleep(takes)
            return ToolOutcome("done")

        await asyncio.sleep(begins)
        outcome = await outcome_of(Odd(act), tmp_path, limits)
        ended.append((name, asyncio.get_running_loop().time() - began[0], outcome.ok))

    async def all_of_them() -> None:
        began.append(asyncio.get_running_loop().time())
        calls = (("a", 0, 99), ("b", 3, 99), ("c", 4, 8), ("d", 5, 5.5), ("e", 5, 99), ("f", 40, 99))
        await asyncio.gather(*(call(*one) for one in calls))

    began = list[float]()
    in_no_time(all_of_them())
    expected = [("a", 10, False), ("d", 10.5, True), ("c", 12, True), ("b", 13, False), ("e", 15, False)]
    assert [(name, round(at, 2), ok) for name, at, ok in ended] == [*expected, ("f", 50, False)]


async def test_a_tool_that_does_not_stop_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchboard.tools.calls._GRACE_S", 0.01)
    before = asyncio.all_tasks()
    outcome = await outcome_of(Odd(does_not_stop), tmp_path, CallLimits(timeout=0.01))
    assert not outcome.ok
    left = asyncio.all_tasks() - before
    STUBBORN.update(left)
    await asyncio.wait(left)
    STUBBORN.clear()


async def test_a_call_that_is_cancelled_stops_its_tool(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def act() -> ToolOutcome:
        begun.set()
        return await hangs()

    tool = Odd(act)
    calling = asyncio.create_task(outcome_of(tool, tmp_path))
    await begun.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert tool.stopped


async def test_a_tool_is_not_called_with_arguments_that_do_not_fit(tmp_path: Path) -> None:
    outcome = await call_tool(Odd(raises), {"x": 1}, scope_of(tmp_path))
    assert outcome == ToolOutcome("odd was not called: x must be string, not 1", ok=False)


async def test_results_can_be_stored(tmp_path: Path) -> None:
    assert (await outcome_of(Odd(returns_what_cannot_be_stored), tmp_path)).text == "ab?c"


async def test_fifty_megabytes_are_cut(tmp_path: Path) -> None:
    outcome = await outcome_of(Odd(returns_too_much), tmp_path)
    assert len(outcome.text) <= MOST
    name = f"tool-results/{TURN}/odd-{KEY}.txt"
    assert f"the first {MOST_WRITTEN} bytes are in the file {name}" in outcome.text
    assert (results_of(tmp_path) / name).stat().st_size == MOST_WRITTEN
    assert (await called(tmp_path, "list_files")).text == "[no files]", "others read the workspace, too"
    assert (await called(tmp_path, "read_file", path=name)).ok


async def test_a_long_result_is_kept_in_a_file_that_can_be_read(tmp_path: Path) -> None:
    text = "; ".join(f"line {number}" for number in range(5000))
    shown = shorten(text, scope_of(tmp_path), "odd")
    head, mark, tail = shown.split("\n\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    name = f"tool-results/{TURN}/odd-{KEY}.txt"
    assert (
        mark == f"[… of {len(text)} characters, those in the middle are left out here; all of it is in the file {name}]"
    )
    assert len(shown) == MOST
    kept = results_of(tmp_path)
    assert (kept / name).read_text() == text
    assert shorten(text, scope_of(tmp_path), "odd") == shown
    assert [one.name for one in (kept / name).parent.iterdir()] == [f"odd-{KEY}.txt"]


async def test_a_long_result_that_cannot_be_kept_is_cut_all_the_same(tmp_path: Path) -> None:
    results_of(tmp_path).mkdir()
    (results_of(tmp_path) / "tool-results").symlink_to("/")
    for scope, why in [
        (scope_of(tmp_path), "links are not followed"),
        (scope_of(tmp_path / "new", quota=10), "may hold 10 bytes"),
        (replace(scope_of(tmp_path), results=None), "nothing is kept there"),
    ]:
        shown = shorten("x" * 50_000, scope, "odd")
        assert "they could not be kept" in shown
        assert why in shown


async def test_a_result_is_there_for_those_who_read_the_turn_and_for_nobody_else(tmp_path: Path) -> None:
    """Ann and Bob share the workspace of a butler, not what its tools have told them."""
    ann, bob = (replace(scope_of(tmp_path), results=tmp_path.with_name(name)) for name in ("ann", "bob"))
    shorten("word " * 5000 + "\nheron", ann, "odd")
    name = f"tool-results/{TURN}/odd-{KEY}.txt"

    async def told(tool: str, scope: ToolScope, **arguments: object) -> str:
        return (await call_tool(TOOLS[tool], arguments, scope)).text

    assert "heron" in await told("search_files", ann, text="heron", path="tool-results")
    assert name in await told("list_files", ann, path="tool-results", recursive=True)
    assert await told("read_file", ann, path=name) != await told("read_file", bob, path=name)
    for path in ("tool-results", "./tool-results/", "", "."):
        assert f"odd-{KEY}" not in await told("list_files", bob, path=path, recursive=True)
        assert ":2:heron" not in await told("search_files", bob, text="heron", path=path)
    assert not (await call_tool(TOOLS["read_file"], {"path": name}, bob)).ok
    assert "choose another directory" in await told("write_file", bob, path=name, content="forged")
