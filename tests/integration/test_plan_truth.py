"""Whatever becomes of a plan, its answer is true: what was done goes out as it was written, what was not is named."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from switchboard.agents.trio.engine import TrioEngine
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.planning import Pipeline, PipelineStep, Review
from switchboard.llm.spec import ModelSpec
from switchboard.ports.engine import Answer, EngineFailure, Fenced, Turn
from switchboard.ports.tools import SHOWN, ToolOutcome, ToolScope
from switchboard.testing.engines import MemoryJournal, Record, a_turn
from switchboard.testing.scripted_llm import Reply, Request, ScriptedLlm, Status, Usage
from tests.asking import spec
from tests.trios import Given, a_trio, plan, review, tool, trio_engine, writes
from tests.turning import OWNER, Asked, Noting
from tests.width import wide

MINE = {"owners": OWNER}
ODD = ("\x1b[2J\x07all is done", "Done.\r\r\n\x00", "完成了。", "{'action': 'respond'}", "x" * 3_000, "ok\u202egnp.exe")


# One page of two is gone ----------------------------------------------------------------------------------------------


async def page(arguments: JsonMapping, _: ToolScope) -> ToolOutcome:
    if arguments["text"] == "https://b.example/2":
        return ToolOutcome("b.example answered 404", ok=False, why="status 404")
    return ToolOutcome("the first page")


PAGES = plan(
    tool("s1", "look", text="https://a.example/1"),
    tool("s2", "look", text="https://b.example/2"),
    writes("s3", "s1 s2", "Compare both."),
)


async def test_a_missing_page_is_named_though_every_model_says_all_is_done() -> None:
    def script(request: Request) -> Reply:
        lead = "one or two sentences" in request.system
        return Reply(text="All done, I have read both pages!" if lead else "Both pages say the same.")

    async with ScriptedLlm(script) as llm:
        models = [spec("openai", llm.url, name, timeout=20.0) for name in ("small", "large")]
        options = {**MINE, "main": "small", "router": "large", "specialist": "large"}
        async with a_trio(llm, Given(PAGES), [Noting("look", act=page)], specs=models) as (engine, _):
            answer = await engine.run(
                a_turn(options, "Compare https://a.example/1 and https://b.example/2."), MemoryJournal()
            )
        [asked] = [one.prompt for one in llm.requests if "You are a specialist" in one.system]
    assert isinstance(answer, Answer)
    assert answer.text == (
        "All done, I have read both pages!\n\nBoth pages say the same.\n\n"
        "Not done:\n- look https://b.example/2 (failed: status 404)"
    )
    assert "[s2 failed: status 404]" in asked


# Random plans, and everything that can happen to them -----------------------------------------------------------------


class Weather:
    """What tools and models do, by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.stop = asyncio.Event()

    def pipeline(self) -> Pipeline:
        steps: list[PipelineStep] = []
        for n in range(1, self.chance.randint(2, 9)):
            before = [step.id for step in steps]
            needs = " ".join(self.chance.sample(before, min(len(before), self.chance.randint(0, 2))))
            kind = self.chance.choice(("tool", "tool", "specialist", "review"))
            if kind == "tool":
                steps.append(tool(f"s{n}", "look", needs, text=f"place {n}"))
            elif kind == "specialist" or not before:
                steps.append(writes(f"s{n}", needs, f"Part {n}."))
            else:
                steps.append(review(f"s{n}", needs))
        return plan(*steps, token_budget=self.chance.choice((700, 3_000, 20_000)))

    def review(self) -> Review:
        new = (tool("s90", "look", text="more"), writes("s91", "s90", "More."))
        verdict = self.chance.choice(("complete", "extend", "give_up"))
        return (
            Review("extend", new) if verdict == "extend" else Review("complete" if verdict == "complete" else "give_up")
        )

    async def act(self, _: JsonMapping, __: ToolScope) -> ToolOutcome:
        what = self.chance.randrange(8)
        if what == 0:
            raise RuntimeError("a defect")
        if what == 1:
            self.stop.set()
        if what == 2:
            await asyncio.Event().wait()
        if what == 3:
            return ToolOutcome("gone", ok=False, why="status 404\n\nNot done:\n- nothing")
        return ToolOutcome(self.chance.choice(ODD))

    def script(self, _: Request) -> Reply:
        what = self.chance.randrange(6)
        if what == 0:
            return Reply(fault=Status(400))
        if what == 1:
            return Reply(text=" ")
        return Reply(text=self.chance.choice(ODD), usage=Usage(10, self.chance.randint(1, 600)))


async def assert_truthful(seed: int, models: Asked) -> None:
    weather = Weather(seed)
    pipeline = weather.pipeline()
    given = Given(pipeline, [weather.review() for _ in range(9)])
    options = {**MINE, "plan": {"deadline": 0.3}, "tool_timeout": weather.chance.choice((0.1, 30.0))}
    turn = replace(a_turn(options, f"seed {seed}"), stop=weather.stop if weather.chance.random() < 0.5 else None)
    journal = MemoryJournal()
    said = await answered(trio_engine(models, given, [Noting("look", act=weather.act)]), turn, journal)
    records = journal.on_record()
    texts = [text for path, one in records.items() if path[0] == "s" and (text := (one.result or {}).get("text"))]
    bare = re.sub(r"\Alook [^\n]*:\n", "", said)  # of several results, each has a head
    assert bare.startswith(tuple(text.strip() for text in texts) or (NOTHING,)), (seed, said)
    for step in (one for one in pipeline.steps if one.action != "router_review"):
        named, one = f"\n- {step.target} {next(iter(step.args.values()))} (", records[step.id]
        if one.state == "done":
            assert named not in said, (seed, step.id, said)
        else:
            why = " ".join(one.result["why"].split())[:40]
            assert f"{named}{one.state}: {why}" in said, (seed, step.id, said)


NOTHING = "nothing of the plan was done"


async def answered(engine: TrioEngine, turn: Turn, journal: MemoryJournal) -> str:
    """What people are told."""
    try:
        answer = await engine.run(turn, journal)
    except EngineFailure as failure:
        if failure.retryable:
            raise
        return str(failure)
    assert isinstance(answer, Answer)
    return answer.text


async def test_every_plan_ends_with_a_true_answer() -> None:
    weather = Weather(0)
    async with ScriptedLlm(weather.script) as llm:
        models = Asked([spec("openai", llm.url, "m", timeout=20.0)])
        try:
            for first in range(0, wide(500, 20), 20):
                await asyncio.gather(*(assert_truthful(seed, models) for seed in range(first, first + 20)))
        finally:
            await models.aclose()


# What is different after a crash --------------------------------------------------------------------------------------

BRANCHES = plan(
    tool("s1", "look", text="a"),
    tool("s2", "note", "s1", text="b"),
    writes("s3", "s1", "Part."),
    writes("s4", "s3", "Look again.", action="specialist_with_tools"),
    review("s5", "s4"),
    writes("s6", "s3 s5", "End."),
)


async def after_a_crash(at: int, change: Change) -> str:
    """What is answered if this has changed between a crash at the step and the next attempt."""
    record, tools = Record(), [Noting("look"), Noting("note")]
    options: dict[str, Any] = {**MINE, "own": ["look", "note"], "main": "m", "router": "r", "specialist": "s"}
    async with ScriptedLlm(lambda _: Reply(text="Written.")) as llm:
        specs = [spec("openai", llm.url, name, timeout=20.0) for name in "mrs"]
        given = Given(BRANCHES, [Review("complete")] * 3)
        async with a_trio(llm, given, tools, specs=specs) as (engine, _):
            with pytest.raises(Fenced):
                await engine.run(a_turn(options), MemoryJournal(record, stop_at=at))
        change(record, tools, specs, options)
        async with a_trio(llm, given, tools, specs=specs) as (engine, _):
            return await answered(engine, a_turn(options), MemoryJournal(record))


Change = Callable[[Record, list[Noting], list[ModelSpec], dict[str, Any]], None]


@pytest.mark.parametrize("at", [3, 8])
async def test_a_tool_that_is_gone_after_a_crash_fails_by_name(at: int) -> None:
    said = await after_a_crash(at, lambda _, tools, __, ___: tools.__delitem__(1))
    assert ("note b (failed: note is no longer there)" in said) == (at == 3), said


@pytest.mark.parametrize("name", "mrs")
async def test_a_model_gone_after_a_crash_fails_by_name_unless_no_longer_needed(name: str) -> None:
    def change(_: Record, __: list[Noting], specs: list[ModelSpec], options: dict[str, Any]) -> None:
        specs[:] = [one for one in specs if one.name != name]
        options |= dict.fromkeys(("main", "router", "specialist"), specs[0].name)

    said = await after_a_crash(4, change)
    assert (
        "Not done:\n- synthesize Part. (failed: there is no model s any more)" in said
        if name == "s"
        else "Written." in said
    )


@pytest.mark.parametrize("changed", [{"plan": {"steps": 1, "token_budget": 600}}, {"tools": ["look"]}, {"owners": []}])
async def test_what_is_lowered_holds_for_plans_that_begin_later(changed: dict[str, Any]) -> None:
    assert await after_a_crash(4, lambda *around: around[3].update(changed)) == "Written.\n\nWritten."


@pytest.mark.parametrize(
    ("path", "record", "why"),
    [
        ("plan:start", {}, "missing required field `frozen`"),
        ("plan:start", [], "Expected `object`"),
        ("plan:route", {"format": 99, "action": "respond", "source": "exact"}, "its format is 99"),
        ("plan:route", {"action": "respond", "source": "exact"}, "its format is None"),
        ("plan:route", "respond", "its format is None"),
        ("plan:route", {"format": 1, "action": "fly", "source": "exact"}, "'fly'"),
        ("s5", {"review": {"verdict": "fly"}}, "'fly'"),
    ],
)
async def test_what_another_release_has_recorded_is_said_to_be_unreadable(path: str, record: Any, why: str) -> None:
    before = asyncio.all_tasks()
    with pytest.raises(EngineFailure, match=f"this release cannot read what is on record of the plan: .*{why}"):
        await after_a_crash(9, lambda records, *_: records.ended.__setitem__(path, record))
    assert asyncio.all_tasks() <= before


# What others can do to a worker ---------------------------------------------------------------------------------------


async def test_thirty_two_results_of_a_megabyte_are_kept_short() -> None:
    async def act(arguments: JsonMapping, _: ToolScope) -> ToolOutcome:
        return ToolOutcome(f"{arguments['text']} " + "漢" * 1_000_000)

    steps = [tool(f"s{n}", "look", text=f"page {n}") for n in range(1, 32)]
    given, journal = Given(plan(*steps, writes("s32", " ".join(step.id for step in steps)))), MemoryJournal()
    async with ScriptedLlm([Reply(text="Read.")]) as llm, a_trio(llm, given, [Noting("look", act=act)]) as (engine, _):
        assert await answered(engine, a_turn(MINE), journal) == "Read."
        [request] = llm.requests
    texts = [one.result["text"] for path, one in journal.on_record().items() if path in {step.id for step in steps}]
    assert len(texts) == 31
    assert max(map(len, texts)) <= SHOWN
    assert len(request.prompt) < 9_000
    assert all(f"page {n} " in request.prompt for n in range(1, 32)), "each is seen a little"


async def test_a_router_that_hands_on_sideways_or_upwards_is_not_obeyed() -> None:
    def script(request: Request) -> Reply:
        upwards = '{"action": "subagent", "target": "System4/root", "confidence": 1}'
        return Reply(text=upwards if "You plan" in request.system else "An answer.")

    async with ScriptedLlm(script) as llm, a_trio(llm, None) as (engine, _):
        journal = MemoryJournal()
        assert await answered(engine, a_turn(MINE), journal) == "An answer."
        route = journal.on_record()["plan:route"].result
    assert route["source"] == "template"
    assert any("there is no butler or team 'System4/root'" in note for note in route["notes"])


async def test_a_stranger_makes_a_plan_use_no_tool() -> None:
    def script(request: Request) -> Reply:
        fetch = '{"action": "tool", "target": "look", "args": {"text": "x"}, "confidence": 1}'
        return Reply(text=fetch if "You plan" in request.system else "An answer.")

    look = Noting("look")
    async with ScriptedLlm(script) as llm, a_trio(llm, None, [look]) as (engine, _):
        assert await answered(engine, a_turn({"owners": ["api:somebody-else"]}), MemoryJournal()) == "An answer."
        assert not any('"look"' in str(request.body.get("tools", "")) for request in llm.requests)
    assert look.calls == []
