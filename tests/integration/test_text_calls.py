"""Turns with models that write their calls as text, or whose servers have habits: no person sees any of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from switchboard.agents.model.engine import ModelEngine
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.turns.loop import AS_TEXT, CUT_OFF, EMPTY
from switchboard.journey.approving import ApprovalDecision, decide
from switchboard.ports.engine import Answer, Delta
from switchboard.store.memory.history import StoredHistory, StoredReaders
from switchboard.store.work import approvals as store
from switchboard.store.work import ledger
from switchboard.store.work.approvals import StoredApprovals
from switchboard.testing.engines import MemoryJournal, a_turn
from switchboard.testing.scripted_llm import Call, CallsAsText, Habit, Habits, Reply, ScriptedLlm, TextForm
from tests.asking import spec
from tests.hands import assert_balanced, at_work, settled
from tests.lab import butler, lab, rule, submission, team_of
from tests.turning import OWNER, Noting, a_model_engine
from tests.waiting import eventually

MINE: Final = {"owners": OWNER}
LOOK: Final = Call("look", {"text": "here"})
READ: Final[tuple[TextForm, ...]] = ("json", "fenced", "tool_call", "mistral", "function", "parameters", "pythonic")
MARKUP: Final = ("tool_call", "TOOL_CALLS", "function", "<|", "|>", '"arguments"', "look(", "think>")


def written(form: TextForm, text: str = "") -> Reply:
    """The call as text."""
    return Reply(text, calls=(LOOK,), fault=CallsAsText(form))


@asynccontextmanager
async def a_local_engine(llm: ScriptedLlm, *tools: Noting, **more: Any) -> AsyncIterator[ModelEngine]:
    specs = [spec("openai", llm.url, "m", profile="local", timeout=20.0, **more)]
    async with a_model_engine(llm, tools, specs=specs) as (engine, _):
        yield engine


async def answered(engine: ModelEngine) -> tuple[Answer, Sequence[str]]:
    """The result of a turn, and every text that its reader has seen at some time."""
    told: list[Delta] = []
    result = await engine.run(replace(a_turn(MINE), on_delta=told.append), MemoryJournal())
    assert isinstance(result, Answer)
    so_far, seen = "", list[str]()
    for delta in told:
        so_far = so_far[: delta.offset] + delta.text
        seen.append(so_far)
    assert so_far == result.text
    return result, seen


@pytest.mark.parametrize("form", READ)
async def test_what_a_local_model_calls_in_its_text_is_called(form: TextForm) -> None:
    look = Noting("look")
    thinking = Reply("<think>I look.</think>\n", calls=(LOOK,), fault=CallsAsText(form))
    async with ScriptedLlm([thinking, Reply("Seen.<|im_end|>")]) as llm, a_local_engine(llm, look) as engine:
        result, seen = await answered(engine)
    assert [arguments for _, arguments in look.calls] == [{"text": "here"}]
    assert (result.text, set(seen)) == ("Seen.", {"", "Seen."})
    assert "look: {'text': 'here'}" in llm.requests[1].results[0].text
    assert [call.name for call in result.entries[1].calls] == ["look"]


@pytest.mark.parametrize("form", sorted({*get_args(TextForm)} - {"parameters"}))  # there, anything is a text
@pytest.mark.parametrize("local", [True, False])
async def test_what_may_not_be_called_goes_back_once(form: TextForm, *, local: bool) -> None:
    look = Noting("look")
    wrong = Reply(calls=(Call("look", {"text": 7}),), fault=CallsAsText(form))
    async with (
        ScriptedLlm([wrong, Reply(calls=(LOOK,)), Reply("Seen.")]) as llm,
        a_local_engine(llm, look) if local else a_hosted_engine(llm, look) as engine,
    ):
        result, seen = await answered(engine)
    read = local and form != "channel"
    told = llm.requests[1].messages[-1].text
    assert ("text must be string, not 7" in told) if read else (told == AS_TEXT)
    assert [arguments for _, arguments in look.calls] == [{"text": "here"}]
    assert (result.text, set(seen)) == ("Seen.", {"", "Seen."})


@asynccontextmanager
async def a_hosted_engine(llm: ScriptedLlm, *tools: Noting) -> AsyncIterator[ModelEngine]:
    async with a_model_engine(llm, tools) as (engine, _):
        yield engine


@pytest.mark.parametrize(("said", "told"), [("I look.\n", "I look."), ("", EMPTY)])
async def test_of_a_model_that_insists_only_what_else_it_says_is_sent(said: str, told: str) -> None:
    look = Noting("look")
    async with ScriptedLlm([written("tool_call", said)] * 2) as llm, a_hosted_engine(llm, look) as engine:
        result, seen = await answered(engine)
    assert (result.text, look.calls) == (told, [])
    assert not [text for text in seen if any(mark in text for mark in MARKUP)]


async def test_json_that_was_asked_for_is_sent_as_it_is() -> None:
    text = 'This calls it:\n```json\n{"name": "look", "arguments": {"text": "here"}}\n```\nShall I?'
    look = Noting("look")
    async with ScriptedLlm([Reply(text)]) as llm, a_local_engine(llm, look) as engine:
        result, seen = await answered(engine)
    assert (result.text, look.calls) == (text, [])
    assert len(seen) > 3, "it is told as it comes"


@pytest.mark.parametrize("local", [True, False])
async def test_a_call_that_was_cut_off_behind_text_is_told(*, local: bool) -> None:
    cut = Reply("I write it now.\n", calls=(LOOK,), finish="length", fault=CallsAsText("tool_call") if local else None)
    async with (
        ScriptedLlm([cut, Reply("Here is less.")]) as llm,
        a_local_engine(llm, Noting("look")) if local else a_hosted_engine(llm, Noting("look")) as engine,
    ):
        result, _ = await answered(engine)
    assert llm.requests[1].messages[-1].text == CUT_OFF
    assert result.text == "Here is less."


async def test_who_gets_no_words_after_work_is_told_what_was_done() -> None:
    replies = [Reply(calls=(LOOK,)), Reply(), Reply()]
    async with ScriptedLlm(replies) as llm, a_hosted_engine(llm, Noting("look")) as engine:
        result, _ = await answered(engine)
    assert result.text == "The model wrote no answer. This was done:\n- look (text: here)"


async def test_a_turn_with_a_server_of_many_habits_is_like_any_other() -> None:
    habits: tuple[Habit, ...] = ("no_done", "keep_alive", "no_blank_line", "no_type", "name_again", "name_prefixed")
    look = Noting("look")
    replies = [
        Reply("I look.", calls=(LOOK, LOOK), thinking="Hm.", fault=Habits(habits)),
        Reply("<think>Hm.</think>Seen.", fault=Habits(habits)),
    ]
    async with ScriptedLlm(replies, strict="local") as llm, a_local_engine(llm, look) as engine:
        result, seen = await answered(engine)
    assert len(look.calls) == 2
    assert result.text == "Seen."
    assert not [text for text in seen if any(mark in text for mark in MARKUP)]


async def test_a_call_as_text_needs_the_same_approval_and_is_marked(database_url: str, tmp_path: Path) -> None:
    pay, look = Noting("pay", "effectful"), Noting("look")
    team = team_of(butler("clerk", "model", owners=OWNER, approve=["pay"]))
    calls = (Call("pay", {"text": "7"}), LOOK)
    replies = [Reply(calls=calls, fault=CallsAsText("tool_call")), Reply(calls=(LOOK,)), Reply("Paid.")]
    async with lab(database_url, [team], [rule("System1/clerk")]) as parts, ScriptedLlm(replies) as llm:
        readers = StoredReaders(parts.database, CHANNELS)
        context: dict[str, Any] = {
            "readers": readers,
            "history": StoredHistory(parts.database, readers),
            "approvals": StoredApprovals(parts.database),
            "workspaces": tmp_path,
            "specs": [spec("openai", llm.url, "m", profile="local", timeout=20.0)],
        }
        async with (
            a_model_engine(llm, [pay, look], **context) as (engine, _),
            at_work(parts.worker({"model": engine})),
        ):
            accepted = await parts.accept.accept(submission("pay 7", channel="api", sender="x"))

            async def asked() -> bool:
                return await settled(parts) and len(await store.list_approvals(parts.database, "pending", None, 9)) == 1

            await eventually(asked)
            assert pay.calls == look.calls == []
            [one] = await store.list_approvals(parts.database, "pending", None, 9)
            await decide(parts.database, parts.notifier, one, ApprovalDecision("approved", "operator"))
            await eventually(lambda: settled(parts))
            assert (await parts.replies_to(accepted.request_id))[-1] == "Paid."
            steps = await ledger.steps_of(parts.database, accepted.request_id)
            marked = sorted((step.path[:7], step.tool, step.as_text) for step in steps if step.tool)
            assert marked == [("tool:1:", "look", True), ("tool:1:", "pay", True), ("tool:2:", "look", False)]
            await assert_balanced(parts)
    assert [len(tool.calls) for tool in (pay, look)] == [1, 2]
