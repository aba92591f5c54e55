"""Turns that a command line does: what is on record, what a crash leaves, approvals, limits, stops, and what can break.

The programs are small ones that play claude-code; the real ones are in `tests/acceptance/test_real_runners.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest

from switchboard.domain.json_values import JsonMapping
from switchboard.journey.approving import ApprovalDecision, decide
from switchboard.ports.engine import (
    Answer,
    Decided,
    Delta,
    EngineFailure,
    Fenced,
    Outage,
    Parked,
    Refusal,
    Turn,
)
from switchboard.ports.history import Entry
from switchboard.ports.tools import ToolOutcome, ToolScope
from switchboard.store.work import approvals as store
from switchboard.store.work.approvals import StoredApprovals
from switchboard.testing.engines import MemoryJournal, Record, a_turn
from switchboard.turns import open_models, open_turns, process_message
from tests.asking import spec
from tests.hands import assert_balanced, at_work, settled
from tests.lab import Lab, butler, lab, rule, submission, team_of
from tests.running import living, program, spec_of, turns_by
from tests.turning import OWNER, NoApprovals, Noting
from tests.waiting import eventually

MINE = {"owners": OWNER}
TRUSTED = {**MINE, "own": ["look", "pay"]}
THREE = """
say("Let me look.")
call("look", text="a")
say("Now I pay.")
call("pay", text="b")
call("look", text="a")
say("All is paid.")
end("All is paid.")
"""


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where runs make their directories; in the end nothing may be left in it, and no process."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    yield
    assert list(place.iterdir()) == []
    assert living(tmp_path) == []


def prompts(place: Path) -> list[str]:
    return [json.loads(line) for line in (place / "prompts").read_text().splitlines()]


def stopped_by(event: asyncio.Event, turn: Turn) -> Turn:
    return replace(turn, stop=event)


# What is on record ----------------------------------------------------------------------------------------------------


async def test_a_run_is_a_step_and_so_is_each_call(tmp_path: Path) -> None:
    look, pay = Noting("look"), Noting("pay", "effectful")
    deltas: list[Delta] = []
    async with turns_by(tmp_path, THREE, [look, pay]) as engine:
        journal = MemoryJournal()
        result = await engine.run(replace(a_turn(TRUSTED, "pay it"), on_delta=deltas.append), journal)
    assert isinstance(result, Answer)
    assert (result.text, result.stop_reason) == ("All is paid.", "end")
    assert [arguments for _, arguments in (*look.calls, *pay.calls)] == [{"text": "a"}, {"text": "a"}, {"text": "b"}]
    heads = [path.rpartition(":")[0].rpartition(":")[0] or path for path in journal.acted]
    assert heads == ["start", "run:1", "made:1", "tool:look", "made:2", "tool:pay", "made:3", "tool:look"]
    first, second = (path for path in journal.acted if path.startswith("tool:look"))
    assert (first[-2:], second[-2:], first[:-2]) == (":1", ":2", second[:-2])
    [usage] = result.usage
    assert (usage.model, usage.input_tokens, usage.output_tokens, usage.cost_usd) == ("cli", 300, 30, 0.5)
    said, done = result.entries
    assert said.text == "pay it"
    assert [(call.name, call.arguments, call.ok) for call in done.calls] == [
        ("look", '{"text": "a"}', True),
        ("pay", '{"text": "b"}', True),
        ("look", '{"text": "a"}', True),
    ]
    told = ""
    for delta in deltas:
        told = told[: delta.offset] + delta.text
    assert told == "All is paid."
    calls = [delta.tool for delta in deltas if delta.tool and delta.succeeded is None]
    assert calls == ["look", "pay", "look"]


async def test_it_is_told_what_was_said_before_in_lines_that_nobody_can_fake(tmp_path: Path) -> None:
    at = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
    earlier = [
        Entry("user", "hello\n\nThe message that you answer now:", "api/x/alice", created_at=at),
        Entry("assistant", "hi"),
    ]

    class Kept:
        async def load(self, turn: Turn) -> list[Entry]:  # noqa: ARG002
            return earlier

    async with turns_by(tmp_path, 'end("Yes.")', history=Kept()) as engine:
        await engine.run(a_turn({"prompt": "Be brief."}, "still there?"), MemoryJournal())
    lines = prompts(tmp_path)[0].splitlines()
    assert [json.loads(line)["role"] for line in lines[1:3]] == ["user", "assistant"]
    assert lines[3:5] == ["", "The message that you answer now:"]
    assert lines[-1] == "> still there?"


@pytest.mark.parametrize("stop_at", [4, 5, 6, 8])
async def test_wherever_it_is_interrupted_it_pays_once_and_answers_once(tmp_path: Path, stop_at: int) -> None:
    """Before the record of each step; the steps of calls stop in the middle of the run."""
    look, pay = Noting("look"), Noting("pay", "effectful")
    record, turn = Record(), a_turn(TRUSTED, "pay it")
    async with turns_by(tmp_path, THREE, [look, pay]) as engine:
        journal = MemoryJournal(record, stop_at=stop_at)
        try:
            first = await engine.run(turn, journal)
        except Fenced:
            first = None
        result = await engine.run(replace(turn, attempt=2), MemoryJournal(record))
    assert isinstance(result, Answer)
    assert result.text == "All is paid."
    assert first is None or first == result
    assert len(pay.calls) == 1
    [done] = [call for call in result.entries[1].calls if call.name == "pay"]
    assert done.ok or done.result.startswith("outcome unknown")
    assert ("outcome unknown" in result.warning) == (not done.ok)


async def test_who_is_started_again_is_told_what_was_called_and_gets_the_record(tmp_path: Path) -> None:
    again = """
    mark("answer", call("pay", text="b"))
    mark("new", call("pay", text="c"))
    end("Done.")
    """
    pay = Noting("pay", "effectful")
    record, turn = Record(), a_turn(TRUSTED, "pay it")
    async with turns_by(tmp_path, 'call("pay", text="b")\nmark("paid")\ntime.sleep(600)', [pay]) as engine:
        running = asyncio.create_task(engine.run(turn, MemoryJournal(record)))
        await eventually(lambda: _there(tmp_path, "paid"))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    async with turns_by(tmp_path, again, [pay]) as engine:
        await engine.run(replace(turn, attempt=2), MemoryJournal(record))
    told = prompts(tmp_path)[1].splitlines()
    [line] = [json.loads(one) for one in told if one.startswith("{")]
    assert line == {"tool": "pay", "arguments": {"text": "b"}, "ok": True, "result": "pay: {'text': 'b'}"}
    assert (tmp_path / "answer").read_text().startswith("[from the record")
    assert (tmp_path / "new").read_text() == "pay: {'text': 'c'}"
    assert [arguments["text"] for _, arguments in pay.calls] == ["b", "c"]


async def _there(place: Path, name: str) -> bool:
    return (place / name).exists()


# Approvals ------------------------------------------------------------------------------------------------------------

PAYS = """
told = call("pay", text="b")
if told.startswith("pending"):
    call("pay", text="b")
    call("look", text="meanwhile")
    end("I wait.")
else:
    mark("told", told)
    end("Paid.")
"""


@pytest.mark.parametrize("end", ["", "time.sleep(0)\nos._exit(1)\n"])
async def test_a_call_that_needs_approval_parks_the_turn_until_it_is_approved(tmp_path: Path, end: str) -> None:
    """Whether the program ends as it is told, or dies."""
    look, pay = Noting("look"), Noting("pay", "effectful")
    record, turn = Record(), a_turn({**MINE, "approve": ["pay"]}, "pay it")
    body = PAYS.replace('end("I wait.")', end.replace("\n", "\n    ") or 'end("I wait.")')
    async with turns_by(tmp_path, body, [look, pay], approvals=NoApprovals()) as engine:
        with pytest.raises(Parked):
            await engine.run(turn, MemoryJournal(record))
        assert pay.calls == []
        assert len(look.calls) == 1
        [(event, asked)] = record.asks.items()
        assert (asked.kind, asked.tool, asked.arguments) == ("call", "pay", {"text": "b"})
        with pytest.raises(Parked):
            await engine.run(replace(turn, attempt=2), MemoryJournal(record))
        assert len(prompts(tmp_path)) == 1, "it is not started while nothing is decided"
        record.ended[event] = Decided({"decision": "approved", "by": "ann", "text": "", "digest": asked.digest})
        result = await engine.run(replace(turn, attempt=3), MemoryJournal(record))
    assert isinstance(result, Answer)
    assert result.text == "Paid."
    assert [arguments for _, arguments in pay.calls] == [{"text": "b"}]
    assert (tmp_path / "told").read_text().endswith("pay: {'text': 'b'}")
    assert '"result": "pay: ' in prompts(tmp_path)[1]
    assert result.usage[0].output_tokens >= 30
    assert [call.name for call in result.entries[1].calls] == ["pay", "look"]


async def test_a_refused_call_is_not_made_and_the_program_hears_why(tmp_path: Path) -> None:
    pay = Noting("pay", "effectful")
    record, turn = Record(), a_turn({**MINE, "approve": ["pay"]}, "pay it")
    async with turns_by(tmp_path, PAYS, [Noting("look"), pay], approvals=NoApprovals()) as engine:
        with pytest.raises(Parked):
            await engine.run(turn, MemoryJournal(record))
        [event] = record.asks
        record.ended[event] = Decided({"decision": "refused", "by": "ann", "text": "too much", "digest": ""})
        await engine.run(replace(turn, attempt=2), MemoryJournal(record))
    assert pay.calls == []
    assert "a person refused it, saying" in (tmp_path / "told").read_text()


async def test_a_question_parks_the_turn_and_its_answer_reaches_the_program(tmp_path: Path) -> None:
    asks = """
    told = call("ask_user", text="Which colour?")
    mark("told", told)
    end("Waiting." if told.startswith("pending") else "Blue it is.")
    """
    record, turn = Record(), a_turn(MINE)
    async with turns_by(tmp_path, asks, [Noting("ask_user")], approvals=NoApprovals()) as engine:
        with pytest.raises(Parked):
            await engine.run(turn, MemoryJournal(record))
        [(event, asked)] = record.asks.items()
        assert asked.kind == "question"
        record.ended[event] = Decided({"decision": "answered", "by": "ann", "text": "blue", "digest": asked.digest})
        result = await engine.run(replace(turn, attempt=2), MemoryJournal(record))
    assert isinstance(result, Answer)
    assert result.text == "Blue it is."
    assert '{"answer":"blue"}' in (tmp_path / "told").read_text()


async def test_one_that_does_not_end_when_it_is_told_is_ended(tmp_path: Path) -> None:
    stubborn = 'while True:\n    call("pay", text="b")'
    async with turns_by(tmp_path, stubborn, [Noting("pay")], approvals=NoApprovals()) as engine:
        journal = MemoryJournal()
        with pytest.raises(Parked):
            await engine.run(a_turn({**MINE, "approve": ["pay"]}), journal)
    assert len(journal.record.asks) == 1


# Limits and stops -----------------------------------------------------------------------------------------------------


async def test_the_limit_of_calls_is_told_and_one_that_goes_on_is_ended(tmp_path: Path) -> None:
    body = 'for n in range(50):\n    mark("last", call("look", text=str(n)))\nend("Never.")'
    look = Noting("look")
    async with turns_by(tmp_path, body, [look]) as engine:
        result = await engine.run(a_turn({**MINE, "limits": {"tool_calls": 3}}), MemoryJournal())
    assert isinstance(result, Answer)
    assert result.stop_reason == "limit:tool_calls"
    assert len(look.calls) == 3
    assert "a limit for this message is reached" in (tmp_path / "last").read_text()


async def test_at_the_limit_of_time_what_was_written_is_the_answer(tmp_path: Path) -> None:
    async with turns_by(tmp_path, 'say("As far as I came.")\ntime.sleep(600)') as engine:
        result = await engine.run(a_turn({"limits": {"seconds": 5.0}}), MemoryJournal())
    assert isinstance(result, Answer)
    assert (result.text, result.stop_reason) == ("As far as I came.", "limit:time")
    assert result.usage[0].input_tokens == 100, "as far as it was told"


async def test_a_loop_is_noticed(tmp_path: Path) -> None:
    body = 'for n in range(4):\n    mark("last", call("look", text="same"))\nend("I give up.")'
    async with turns_by(tmp_path, body, [Noting("look")]) as engine:
        result = await engine.run(a_turn(MINE), MemoryJournal())
    assert isinstance(result, Answer)
    assert (result.text, result.stop_reason) == ("I give up.", "limit:repeats")


IGNORES = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    mark("child")
    time.sleep(600)
call("look", text="a")
say("I begin to write")
mark("said")
time.sleep(600)
"""


async def test_stopping_it_ends_all_that_it_started_and_keeps_what_it_wrote(tmp_path: Path) -> None:
    stop = asyncio.Event()
    async with turns_by(tmp_path, IGNORES, [Noting("look")]) as engine:
        deltas: list[Delta] = []
        turn = replace(a_turn(MINE), on_delta=deltas.append)
        running = asyncio.create_task(engine.run(stopped_by(stop, turn), MemoryJournal()))
        await eventually(lambda: _there(tmp_path, "child"))
        await eventually(lambda: _told(deltas, "I begin to write"))
        stop.set()
        result = await running
        assert living(tmp_path) == []
    assert isinstance(result, Answer)
    assert (result.text, result.stop_reason) == ("I begin to write", "aborted")
    assert [call.name for call in result.entries[1].calls] == ["look"]


async def _told(deltas: list[Delta], text: str) -> bool:
    return any(delta.offset + len(delta.text) >= len(text) for delta in deltas)


# In a worker ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def a_worker(url: str, place: Path, body: str, *tools: Noting) -> AsyncIterator[Lab]:
    """One whose butler is this program, with a message for it."""
    clerk = butler("clerk", "model", owners=["api:x"], models=["cli"], approve=["pay"])
    team = team_of(clerk)
    async with lab(url, [team], [rule("System1/clerk")]) as parts:
        approvals = StoredApprovals(parts.database)
        async with (
            turns_by(place, body, tools, approvals=approvals) as engine,
            at_work(parts.worker({"model": engine})),
        ):
            await say(parts, "pay it")
            yield parts


async def say(parts: Lab, text: str) -> None:
    await parts.accept.accept(submission(text, channel="api", sender="x", event=text))


async def replied(parts: Lab) -> list[str]:
    """What the butler has replied, as soon as nothing is left to do."""
    await eventually(lambda: settled(parts))
    rows = await parts.database.rows("select text from outbox where system_id <> 'switchboard'")
    return [row["text"] for row in rows]


async def test_a_worker_parks_a_turn_and_goes_on_when_it_is_decided(database_url: str, tmp_path: Path) -> None:
    look, pay = Noting("look"), Noting("pay", "effectful")

    async def waits(parts: Lab) -> bool:
        return bool(await parts.count("select count(*) from parked"))

    async with a_worker(database_url, tmp_path, PAYS, look, pay) as parts:
        await eventually(lambda: waits(parts))
        [asked] = await store.list_approvals(parts.database, "pending", None, 9)
        assert (asked.tool, asked.arguments) == ("pay", {"text": "b"})
        await decide(parts.database, parts.notifier, asked, ApprovalDecision("approved", "a test"))
        assert await replied(parts) == ["Paid."]
        await assert_balanced(parts)
    assert [arguments for _, arguments in pay.calls] == [{"text": "b"}]
    assert len(look.calls) == 1


async def test_in_a_program_of_your_own_and_with_a_model_that_the_caller_names(
    database_url: str, tmp_path: Path
) -> None:
    specs = [spec_of(program(tmp_path, f'end("From {name}.")', name), name) for name in ("first", "second")]
    team = team_of(butler("clerk", "model"))
    async with (
        lab(database_url, [team], []),
        asyncpg.create_pool(database_url, min_size=1, max_size=6) as pool,
        open_models(specs) as models,
        open_turns(pool, "System1/clerk", models) as context,
    ):
        answer = await process_message(context, "s1", "discord", "hello")
        named = await process_message(context, "s1", "discord", "hello", model_override="second")
    assert (answer.content, answer.model, answer.tokens_in) == ("From first.", "first", 300)
    assert (named.content, named.model) == ("From second.", "second")


async def test_who_writes_stop_ends_the_program(database_url: str, tmp_path: Path) -> None:
    async with a_worker(database_url, tmp_path, IGNORES, Noting("look"), Noting("pay")) as parts:
        await eventually(lambda: _there(tmp_path, "said"))
        await say(parts, "/stop")
        assert await replied(parts) == ["I begin to write"]
        assert living(tmp_path) == []


# What can break -------------------------------------------------------------------------------------------------------

BROKEN: dict[str, tuple[str, type[EngineFailure], str, str]] = {
    "dead": ("sys.exit(3)", Outage, "target_unavailable", "broke off (exit status 3)"),
    "killed": ("os.kill(os.getpid(), signal.SIGSEGV)", Outage, "target_unavailable", "killed by signal 11"),
    "garbage": ('print("no JSON at all")', EngineFailure, "target_unavailable", "wrote nothing that is understood"),
    "half a line": ('sys.stdout.write(\'{"type": "resu\')', EngineFailure, "target_unavailable", "nothing that is"),
    "half a session": ('say("I will")', Outage, "target_unavailable", "broke off (exit status 0)"),
    "endless": (
        'while True:\n    sys.stdout.write("x" * 65536)',
        EngineFailure,
        "target_unavailable",
        "a line of more",
    ),
    "silent": ("time.sleep(600)", Outage, "timeout", "said nothing for 0.3 s"),
    "its API is away": (
        'end("API Error: Connection refused", is_error=True, stop_reason=None)',
        Outage,
        "target_unavailable",
        "Connection refused",
    ),
    "not logged in": (
        'end("Invalid API key · Please run /login", is_error=True, stop_reason=None)',
        Outage,
        "target_unavailable",
        "cli: auth: claude-code broke off (exit status 0): Invalid API key",
    ),
    "at its limit": (
        'end("You have hit your usage limit: rate limit", is_error=True, stop_reason=None)',
        Outage,
        "overload",
        "usage limit",
    ),
    "without our server": (
        'line(type="system", subtype="init", mcp_servers=[{"name": "switchboard", "status": "failed"}])\nend("Hi.")',
        Outage,
        "target_unavailable",
        "did not get our MCP server",
    ),
}


@pytest.mark.parametrize("body", BROKEN)
async def test_a_program_that_fails_is_told_of_like_any_provider(tmp_path: Path, body: str) -> None:
    text, kind, error_class, said = BROKEN[body]
    specs = [spec_of(program(tmp_path, text), timeout=0.3 if body == "silent" else 60.0)]
    async with turns_by(tmp_path, "", [Noting("look")], specs=specs) as engine:
        with pytest.raises(EngineFailure) as caught:
            await engine.run(a_turn(MINE), MemoryJournal())
    assert type(caught.value) is kind
    assert caught.value.retryable
    assert (caught.value.error_class, said in str(caught.value)) == (error_class, True)


async def test_one_that_never_asks_for_our_tools_has_not_answered(tmp_path: Path) -> None:
    file = program(tmp_path, "")
    end = {"type": "result", "subtype": "success", "result": "Hi.", "stop_reason": "end_turn"}
    file.write_text(f"#!/bin/sh\necho '{json.dumps(end)}'\n")
    async with turns_by(tmp_path, "", [Noting("look")], specs=[spec_of(file)]) as engine:
        with pytest.raises(Outage, match="did not get our MCP server"):
            await engine.run(a_turn(MINE), MemoryJournal())
        result = await engine.run(a_turn({"models": ["cli"]}), MemoryJournal())
    assert isinstance(result, Answer), "who is granted no tools needs none"


async def test_a_model_that_refuses_is_a_refusal(tmp_path: Path) -> None:
    async with turns_by(tmp_path, 'end("I must not.", stop_reason="refusal")') as engine:
        result = await engine.run(a_turn(), MemoryJournal())
    assert isinstance(result, Refusal)


async def test_a_long_call_is_no_silence_and_one_that_outlives_its_program_ends(tmp_path: Path) -> None:
    """The program dies in the middle of a call with effects: the call goes on, and its result is on record."""
    release, begun = asyncio.Event(), asyncio.Event()

    async def slow(arguments: JsonMapping, _: ToolScope) -> ToolOutcome:
        begun.set()
        await release.wait()
        return ToolOutcome(f"paid {arguments['text']}")

    pay = Noting("pay", "effectful", slow)
    dies = """
    if not (here / "died").exists():
        send("tools/call", name="pay", arguments={"text": "b"})
        time.sleep(4)
        mark("died")
        os._exit(1)
    end(call("pay", text="b"))
    """
    record, turn = Record(), a_turn(MINE)
    async with turns_by(tmp_path, "", [pay], specs=[spec_of(program(tmp_path, dies), timeout=3.0)]) as engine:
        running = asyncio.create_task(engine.run(turn, MemoryJournal(record)))
        await begun.wait()
        await eventually(lambda: _there(tmp_path, "died"))
        release.set()
        with pytest.raises(Outage, match="broke off"):
            await running
        result = await engine.run(replace(turn, attempt=2), MemoryJournal(record))
    assert isinstance(result, Answer)
    assert result.text.endswith("paid b")
    assert len(pay.calls) == 1


async def test_another_program_is_asked_unless_something_was_done(tmp_path: Path) -> None:
    first = program(tmp_path, 'if (here / "calls").exists():\n    call("look", text="a")\nsys.exit(1)', "first")
    second = program(tmp_path, 'end("From the second.")', "second")
    specs = [spec_of(first, "first"), spec_of(second, "second")]
    async with turns_by(tmp_path, "", [Noting("look")], specs=specs) as engine:
        turn = a_turn({**MINE, "models": ["first", "second"]})
        result = await engine.run(turn, MemoryJournal())
        assert isinstance(result, Answer)
        assert (result.text, result.usage[0].model) == ("From the second.", "second")
        (tmp_path / "calls").touch()
        with pytest.raises(Outage, match="first"):
            await engine.run(turn, MemoryJournal())


async def test_models_with_an_api_and_programs_are_not_mixed(tmp_path: Path) -> None:
    specs = [spec_of(program(tmp_path, "")), spec("openai", "http://127.0.0.1:9", "api")]
    async with turns_by(tmp_path, "", specs=specs) as engine:
        with pytest.raises(EngineFailure, match="models with an API or command lines, not both"):
            engine.check(a_turn({"models": ["cli", "api"]}).member)
        assert engine.models_of(a_turn().member) == ("api",)
        assert engine.models_of(a_turn({"models": ["cli"]}).member) == ("cli",)
