"""`switchboard.turns`: a program with a pool asks a butler and has the answer in the same call."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import asyncpg
import pytest
from msgspec.structs import replace
from pydantic import SecretStr
from structlog.testing import capture_logs

from switchboard import turns
from switchboard.app.messages.explain import explain
from switchboard.app.settings import Settings
from switchboard.app.wiring import open_runtime
from switchboard.domain.errors import ConfigurationError, IdempotencyMismatch, InvalidInput, NotFound, Unavailable
from switchboard.domain.ledger import Item, LaneKey
from switchboard.domain.message import RequestId
from switchboard.domain.routing import Member, Team
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.ports.engine import Delta
from switchboard.ports.sandbox import SandboxRules
from switchboard.sandbox.run import Sandbox
from switchboard.store.database import Database
from switchboard.store.memory import told
from switchboard.store.rules import teams
from switchboard.store.work import embedded_turns
from switchboard.store.work.processes import count_alive
from switchboard.tasks import cancel_tasks
from switchboard.testing import scripted_llm
from switchboard.testing.scripted_llm import Hang, Reply, Request, ScriptedLlm, Status, Usage
from switchboard.turns import (
    Agent,
    CompactedSession,
    Image,
    Memory,
    MessageContext,
    ModelSpec,
    NewMessage,
    ProcessedMessage,
    ProviderError,
    Terminal,
    TurnContext,
    build_tools,
    compact_session_if_needed,
    open_pool,
    open_turns,
    process_message,
    process_message_non_streaming,
    stream_message,
    tool_definitions,
)
from switchboard.turns.engine import Calls, EngineCall
from tests.asking import spec
from tests.hands import assert_balanced
from tests.lab import Lab, butler, lab, team_of
from tests.logs import logs_by_default
from tests.mcp_servers import begun, running
from tests.turning import Asked
from tests.waiting import eventually

DOCS: Final = Path(__file__).parents[2] / "docs"
TEAM = team_of(butler("clerk", "model"))


@asynccontextmanager
async def a_host(
    url: str, llm: ScriptedLlm, team: Team = TEAM, *, vision: bool = False, **given: Any
) -> AsyncIterator[tuple[Lab, TurnContext]]:
    """An installation, and a program with a pool of its own; `given` to `open_turns`."""
    models = Asked([spec("openai", llm.url, name, timeout=20.0, vision=vision) for name in ("m", "n")])
    async with lab(url, [team], []) as parts:
        pool = await asyncpg.create_pool(url, min_size=1, max_size=6)
        try:
            async with open_turns(pool, "System1/clerk", models, **given) as context:
                yield parts, context
        finally:
            await pool.close()
            await models.aclose()


def says(request: Request) -> Reply:
    return Reply(text=f"{request.model}: {request.prompt}", usage=Usage(10, 2))


def last(request: Request) -> str:
    return request.prompt.splitlines()[-1].removeprefix("> ")


async def test_a_message_is_answered_in_the_same_call(database_url: str) -> None:
    told: list[Delta] = []
    async with (
        ScriptedLlm(lambda request: Reply(text=f"heard {last(request)}", usage=Usage(10, 2))) as llm,
        a_host(database_url, llm) as (parts, context),
    ):
        answer = await process_message(context, "s1", "discord", "hello", on_delta=told.append)
        assert answer == ProcessedMessage("heard hello", "m", 10, 2, "end")
        assert "".join(delta.text for delta in told) == "heard hello"
        assert await parts.count("select count(*) from outbox where state <> 'sent'") == 0
        await assert_balanced(parts)


async def test_a_program_whose_callback_raises_is_answered_all_the_same(database_url: str) -> None:
    told: list[Delta] = []

    def tell(delta: Delta) -> None:
        told.append(delta)
        raise RuntimeError("the window is closed")

    async with (
        ScriptedLlm(lambda request: Reply(text=f"heard {last(request)} " * 20)) as llm,
        a_host(database_url, llm) as (_, context),
    ):
        for n in range(1, 7):
            answer = await process_message(context, "s1", "discord", "hello", on_delta=tell)
            assert (answer.content, answer.model) == (("heard hello " * 20).strip(), "m")
            assert (len(told), len(llm.requests)) == (n, n)


async def test_a_program_that_has_not_set_logs_up_shows_no_variables(
    database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def tell(delta: Delta) -> None:
        secret = f"secret {delta.offset + 7}"
        raise RuntimeError(f"not shown: {len(secret)}")

    logs_by_default()
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (_, context):
        await process_message(context, "s1", "discord", "hello", on_delta=tell)
    said = capsys.readouterr()
    assert "RuntimeError: not shown: 8" in said.out
    assert "secret 7" not in said.out + said.err


async def test_the_caller_says_what_is_known_and_which_model(database_url: str) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (parts, context):
        answer = await process_message_non_streaming(
            context, "s1", "api", "hello", user_context="Allergic to nuts.", model_override="n"
        )
        assert answer.model == "n"
        assert answer.content.startswith(f"{llm.requests[0].model}: Allergic to nuts.\n\n[")
        assert (
            await parts.count("select count(*) from message_inbox where envelope #>> '{control,model}' = 'n'") == 1
        ), "a worker that takes the turn over asks the same"
        with pytest.raises(InvalidInput):
            await process_message(context, "s1", "api", "hello", model_override="unknown")
        with pytest.raises(InvalidInput, match="at most 1000"):
            await process_message(context, "s1", "api", "hello", user_context="known " * 1001)


async def test_a_caller_chooses_among_the_models_of_the_butler(database_url: str) -> None:
    team = team_of(butler("clerk", "model", models=["m"]))
    async with ScriptedLlm(says) as llm, a_host(database_url, llm, team) as (parts, context):
        with pytest.raises(InvalidInput, match="System1/clerk has no model n; it has: m"):
            await process_message(context, "s1", "api", "hello", model_override="n")
        assert await parts.count("select count(*) from message_inbox") == 0
        assert (await process_message(context, "s1", "api", "hello", model_override="m")).model == "m"


async def test_the_same_request_is_answered_once(database_url: str) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (_, context):
        first = await process_message(context, "s1", "api", "hello", request_id="r1")
        assert await process_message(context, "s1", "api", "hello", request_id="r1") == first
        assert len(llm.requests) == 1


@pytest.mark.parametrize("request_id", ["r1 ", " r1", "r1\n", "r\x001"])
async def test_a_request_id_with_outer_blanks_or_control_characters_is_refused(
    database_url: str, request_id: str
) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (parts, context):
        with pytest.raises(InvalidInput, match="request id"):
            await process_message(context, "s1", "api", "hello", request_id=request_id)
        assert await stored(parts, 0)


async def test_a_request_belongs_to_its_session_and_its_words(database_url: str) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (parts, context):
        for session in ("s1", "s2"):
            answer = await process_message(context, session, "api", f"hello of {session}", request_id="r1")
            assert answer.content.endswith(f"hello of {session}")
        with pytest.raises(IdempotencyMismatch):
            await process_message(context, "s1", "api", "another question", request_id="r1")
        assert await stored(parts, 2)


@pytest.mark.parametrize(
    ("name", "engine", "active", "failure"),
    [
        ("other", "model", True, NotFound),
        ("clerk", "model", False, NotFound),
        ("clerk", "echo", True, ConfigurationError),
    ],
)
async def test_a_butler_that_cannot_answer_gets_no_message(
    database_url: str, name: str, engine: str, active: bool, failure: type[Exception]
) -> None:
    member = replace(butler(name, engine), active=active)
    async with ScriptedLlm(says) as llm:
        with pytest.raises(failure):
            async with a_host(database_url, llm, team_of(member)):
                pass


async def test_a_session_stops_what_it_asked_for(database_url: str) -> None:
    asked, text = asyncio.Event(), "Once upon a time there was a king who had three daughters. "
    with_fault = Reply(text=text, fault=Hang(at="middle"))
    async with ScriptedLlm([with_fault]) as llm, a_host(database_url, llm) as (parts, context):
        running = asyncio.create_task(process_message(context, "s1", "api", "hello", on_delta=lambda _: asked.set()))
        async with asyncio.timeout(20):
            await asked.wait()
            told = await process_message(context, "s1", "api", "/stop")
            answer = await running
        assert (told.content, told.model) == ("Stopped.", "")
        assert answer.stop_reason == "aborted"
        assert text.startswith(answer.content)
        await assert_balanced(parts)


async def test_calls_of_a_session_wait_for_each_other_and_remember(database_url: str) -> None:
    running: list[int] = []

    def brain(request: Request) -> Reply:
        running.append(len(request.messages))
        return Reply(text=f"heard {last(request)}")

    async with ScriptedLlm(brain) as llm, a_host(database_url, llm) as (_, context):
        calls = [process_message(context, "s1", "api", f"m{n}") for n in range(4)]
        answers = await asyncio.gather(*calls)
        assert sorted(answer.content for answer in answers) == [f"heard m{n}" for n in range(4)]
        asked = [len([said for said in request.messages if said.role == "user"]) for request in llm.requests]
        assert asked == [1, 2, 3, 4], "each turn knows those before it"


@dataclass(frozen=True)
class Concise:
    """An agent that is told more, and asks one model."""

    agent: Agent

    async def prompt(self) -> str:
        return f"{await self.agent.prompt()} Be concise."

    async def get_model(self, override: str | None = None) -> Sequence[str]:
        return await self.agent.get_model(override or "n")

    async def run(self, ctx: MessageContext, message: NewMessage) -> ProcessedMessage:
        return await self.agent.run(ctx, message)


@dataclass
class Program:
    """A program that hands on what it got of `open_turns`, but for its agent."""

    turns: TurnContext
    made: Callable[[Agent], Agent] = Concise

    def agent(self) -> Agent:
        return self.made(self.turns.agent())

    def memory(self) -> Memory:
        return self.turns.memory()

    def terminal(self) -> Terminal:
        return self.turns.terminal()


async def test_a_turn_works_with_what_the_context_says(database_url: str) -> None:
    team = team_of(butler("clerk", "model", prompt="You file letters."))
    async with ScriptedLlm(says) as llm, a_host(database_url, llm, team) as (_, context):
        assert await context.agent().prompt() == "You file letters."
        assert await context.agent().get_model() == ("m", "n")
        answer = await process_message(Program(context), "s1", "api", "hello")
        assert answer.model == "n"
        assert llm.requests[0].system.endswith("You file letters. Be concise.")
        assert (await process_message(context, "s1", "api", "hello")).model == "m"
        assert not llm.requests[1].system.endswith("Be concise.")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"prompt_file": "missing.md"}, "cannot be read"),
        ({"promt": "Be brief."}, "promt"),
        ({"models": ["unknown"]}, "unknown"),
        ({"tools": ["no_such_tool"]}, "no_such_tool"),
    ],
)
async def test_a_wrong_option_is_said_before_anything_is_stored(
    database_url: str, tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    wrong: dict[str, Any] = {
        name: str(tmp_path / one) if name == "prompt_file" else one for name, one in options.items()
    }
    team = team_of(butler("clerk", "model", **wrong))
    async with ScriptedLlm(says) as llm, a_host(database_url, llm, team) as (parts, context):
        with pytest.raises(ConfigurationError, match=problem):
            await process_message(context, "s1", "api", "hello")
        assert await stored(parts, 0)


async def test_a_context_that_names_no_model_is_told_before_anything_is_stored(database_url: str) -> None:
    class Wrong(Concise):
        async def get_model(self, override: str | None = None) -> Sequence[str]:
            return ["o" if override is None else override]

    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (parts, context):
        with pytest.raises(ConfigurationError, match=r"\['o'\]; there are: m, n"):
            await process_message(Program(context, Wrong), "s1", "api", "hello")
        assert await stored(parts, 0)


@pytest.mark.parametrize("failure", [ZeroDivisionError("a defect"), InvalidInput("this butler is on holiday")])
async def test_a_context_that_fails_fails_its_turn_alone(database_url: str, failure: Exception) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (parts, context):

        class Failing(Concise):
            async def prompt(self) -> str:
                raise failure

        with pytest.raises(ProviderError, match=str(failure)):
            await process_message(Program(context, Failing), "s1", "api", "hello", request_id="r1")
        assert await parts.count("select count(*) from message_inbox") == 1
        await parts.database.run("update lane set ready_at = clock_timestamp() where state = 'ready'")
        answer = await process_message(context, "s1", "api", "and now?")
        assert answer.content.endswith("and now?")


async def test_the_memory_of_a_session_is_what_was_said_and_learned_in_it(database_url: str) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (_, context):
        memory = context.memory()
        await memory.save_message("s1", "discord", "user", "I live in Kiel.")
        await memory.save_message("s1", "discord", "assistant", "Noted.")
        assert await memory.learn("s1", "discord", "I live in Kiel")
        assert not await memory.learn("s1", "discord", "I live in Kiel")
        assert await memory.learn(
            "s1", "discord", "He keeps geese", subject="Bo\n- 2026-01-01, me about self: I owe Bo 9"
        )
        with pytest.raises(InvalidInput, match="subject"):
            await memory.learn("s1", "discord", "He keeps owls", subject="Bo" * 99)
        await process_message(context, "s1", "discord", "hello")
        asked = llm.requests[-1]
        assert [said.role for said in asked.messages] == ["system", "user", "assistant", "user"]
        assert "discord/embedded%3ASystem1%2Fclerk/s1 about self: I live in Kiel" in asked.prompt
        assert "about Bo - 2026-01-01, me about self: I owe Bo 9: He keeps geese" in asked.prompt
        kept = await memory.get_history("s1")
        assert [entry.text for entry in kept[:3]] == ["I live in Kiel.", "Noted.", "hello"]
        assert [entry.text for entry in await memory.get_history("s1", 1)] == [kept[-1].text]
        assert await memory.get_history("s1", channel_name="discord") == kept
        assert await memory.get_history("s1", channel_name="api") == []


async def test_where_learning_is_switched_off_a_program_learns_nothing(database_url: str) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (parts, context):
        memory = context.memory()
        await process_message(context, "s1", "discord", "hello")
        [begun] = await parts.database.rows("select request_id from message_inbox")
        await told.switch_learning(parts.database, [(begun["request_id"], False)])
        await memory.save_message("s1", "discord", "user", "I live in Kiel.")
        assert not await memory.learn("s1", "discord", "I live in Kiel")
        assert await parts.count("select count(*) from entry where learn and text = 'I live in Kiel.'") == 0
        assert await memory.learn("s2", "discord", "I live in Kiel"), "another conversation"


async def test_what_a_program_saves_is_sound_and_explained(database_url: str, tmp_path: Path) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (parts, context):
        memory = context.memory()
        asked = await memory.save_message("s1", "discord", "user", "I live in Kiel.")
        said = await memory.save_message("s1", "discord", "assistant", "Noted.")
        await process_message(context, "s1", "discord", "hello")
        await assert_balanced(parts)
        async with open_runtime(Settings(database_url=SecretStr(database_url), data_dir=tmp_path)) as runtime:
            for saved_id, text, by in ((asked, "I live in Kiel.", "the person"), (said, "Noted.", "the butler")):
                explained = await explain(runtime, saved_id)
                message = explained.message
                assert (message.state, message.text, message.channel) == ("history", text, "discord")
                note = f"a program saved it outside of turns in the history of System1/clerk, as said by {by}"
                assert explained.notes == (note,)
            with pytest.raises(NotFound):
                await explain(runtime, uuid4())


async def test_sessions_do_not_hear_each_other(database_url: str) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (_, context):
        await context.memory().save_message("s1", "api", "user", "my code word is heron")
        await context.memory().learn("s1", "api", "I keep herons")
        for session, channel in (("s2", "api"), ("s1", "discord")):
            await process_message(context, session, channel, "what do you know?")
            assert "heron" not in str(llm.requests[-1].body)
        assert await context.memory().get_history("s2", channel_name="telegram") == []


@pytest.mark.parametrize(
    "text", ["", "...", "x" * 301, "Do I live in Kiel?", "Always answer in French", "My password is hunter2"]
)
async def test_what_is_no_fact_is_not_learned(database_url: str, text: str) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (_, context):
        with pytest.raises(InvalidInput):
            await context.memory().learn("s1", "api", text)


async def test_who_is_not_sure_is_not_remembered(database_url: str) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (_, context):
        with pytest.raises(InvalidInput, match="email"):
            await context.memory().save_message("s1", "email", "user", "hello")
        with pytest.raises(InvalidInput, match="no channel"):
            await context.memory().get_history("s1", channel_name="carrier pigeon")
        with pytest.raises(InvalidInput):
            await context.memory().save_message("s1", "api", "user", " ")


async def test_nothing_is_run_without_a_sandbox(database_url: str) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (_, context):
        with pytest.raises(ConfigurationError, match="cannot run commands"):
            await context.terminal().exec("ls")


async def test_a_caller_that_goes_leaves_its_session_free(database_url: str) -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (_, context):

        class Slow(Concise):
            async def prompt(self) -> str:
                begun.set()
                await gone.wait()
                return ""

        call = asyncio.create_task(process_message(Program(context, Slow), "s1", "api", "hello", request_id="r1"))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await process_message(context, "s1", "api", "hello", request_id="r1")).content.endswith("hello")


async def test_a_caller_that_goes_while_it_claims_leaves_its_session_free(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed, gone, claim_lane = asyncio.Event(), asyncio.Event(), embedded_turns.claim_lane

    async def slowly(database: Database, worker: int, lane: LaneKey) -> Item | None:
        item = await claim_lane(database, worker, lane)
        claimed.set()
        await gone.wait()
        return item

    monkeypatch.setattr(embedded_turns, "claim_lane", slowly)
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (parts, context):
        call = asyncio.create_task(process_message(context, "s1", "api", "hello", request_id="r1"))
        await claimed.wait()
        call.cancel()
        gone.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await parts.count("select count(*) from lane where state = 'ready' and attempts = 0") == 1
        async with asyncio.timeout(30):
            assert (await process_message(context, "s1", "api", "hello", request_id="r1")).content.endswith("hello")


async def test_a_call_that_ends_leaves_the_others_of_its_request(database_url: str) -> None:
    calls, request_id = Calls(), RequestId(uuid4())
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (_, context):
        first, second = (EngineCall(context, NewMessage("s1", "api", "hello", request_id="r1")) for _ in range(2))
        with calls.waiting(request_id, first):
            with calls.waiting(request_id, second):
                assert calls.of(request_id) is first
            assert calls.of(request_id) is first
        assert calls.of(request_id) is None


def compacts(request: Request) -> bool:
    return "earlier_summary" in request.prompt


def talks_and_compacts(request: Request) -> Reply:
    said = {"summary": "They counted.", "facts": []}
    return Reply(text=json.dumps(said) if compacts(request) else f"heard {last(request)}")


async def test_a_long_session_is_compacted_after_its_turn(database_url: str) -> None:
    async with (
        ScriptedLlm(talks_and_compacts) as llm,
        a_host(database_url, llm, compact_model="n") as (parts, context),
    ):
        for n in range(20):
            await process_message(context, "s1", "api", f"m{n}")
        await context.agent().finish_compacting(within=60.0)
        assert await parts.count("select count(*) from summary where text = 'They counted.'") == 1
        few = CompactedSession(0, ("20 entries have no summary yet; compaction starts at 40",))
        assert await compact_session_if_needed(context, "s1") == few
        assert await compact_session_if_needed(context, "s2") == CompactedSession(0, ("the session has no history",))
        assert sum(map(compacts, llm.requests)) == 1
        await process_message(context, "s1", "api", "and?")
        assert "They counted." in str(llm.requests[-1].messages)


async def test_a_compaction_that_fails_changes_nothing_and_is_tried_again(database_url: str) -> None:
    sick: Sequence[bool] = [True]

    def brain(request: Request) -> Reply:
        return Reply(fault=Status(503)) if compacts(request) and sick[0] else talks_and_compacts(request)

    async with ScriptedLlm(brain) as llm, a_host(database_url, llm, compact_model="n") as (parts, context):
        for n in range(20):
            await process_message(context, "s1", "discord", f"m{n}")
        await context.agent().finish_compacting(within=60.0)
        assert await parts.count("select count(*) from summary") == 0
        busy = CompactedSession(0, ("another process is at it, or its try has just failed",))
        assert await compact_session_if_needed(context, "s1") == busy
        await parts.database.run("update compaction set tries = 3")
        failed = CompactedSession(0, ("3 tries have failed; the next turn starts another one",))
        assert await compact_session_if_needed(context, "s1") == failed

        async def tried() -> CompactedSession:
            await parts.database.run("update compaction set ready_at = clock_timestamp(), tries = 0")
            return await compact_session_if_needed(context, "s1")

        assert "503" in str((await tried()).reasons)
        sick = [False]

        async def compacted() -> bool:  # the model's pause may not be over
            return await tried() == CompactedSession(1)

        await eventually(compacted, within=60)
        assert await parts.count("select count(*) from summary") == 1


async def answered_at_last(parts: Lab, context: TurnContext, text: str, request_id: str) -> None:
    """A message as often as it takes, behind those before it."""

    async def answered() -> bool:
        await parts.database.run("update lane set ready_at = clock_timestamp() where state = 'ready'")
        try:
            await process_message(context, "s1", "api", text, request_id=request_id)
        except (ProviderError, Unavailable):
            return False
        return True

    await eventually(answered, within=60)


async def test_an_answer_is_streamed_and_the_result_comes_last(database_url: str) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (_, context):
        for again in range(2):
            text, result = "", None
            async for piece in stream_message(context, "s1", "api", "hello", request_id="r1"):
                assert result is None, "the result comes last"
                if isinstance(piece, Delta):
                    text = text[: piece.offset] + piece.text
                else:
                    result = piece
            assert result is not None, again
            assert text == result.content
        assert len(llm.requests) == 1


async def test_a_stream_that_is_closed_leaves_its_turn_to_the_next_call(database_url: str) -> None:
    slow = Reply(text="one two three", gate="slow")
    async with ScriptedLlm(lambda _: slow) as llm, a_host(database_url, llm) as (_, context):
        async with aclosing(stream_message(context, "s1", "api", "hello", request_id="r1")) as stream:
            reading = asyncio.create_task(anext(stream))
            await llm.waiting("slow")
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        llm.release("slow")
        assert (await process_message(context, "s1", "api", "hello", request_id="r1")).content == "one two three"


async def test_a_program_that_ends_leaves_its_turns_to_the_workers(database_url: str) -> None:
    """And none before: the caller has gone, but may ask again."""

    async def pools(parts: Lab) -> list[str]:
        rows = await parts.database.rows("select pool from lane where kind = 'turn' and program is null")
        return [row["pool"] for row in rows]

    async with ScriptedLlm(waits_once) as llm, lab(database_url, [TEAM], []) as parts:
        async with a_host(database_url, llm) as (_, context):
            call = asyncio.create_task(process_message(context, "s1", "api", "first", request_id="r1"))
            await llm.waiting("first")
            await cancel_tasks(call)
            assert await pools(parts) == []
        assert await pools(parts) == ["work"]


async def test_a_stream_raises_what_the_call_raises(database_url: str) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (_, context):
        with pytest.raises(InvalidInput):
            [piece async for piece in stream_message(context, "s1", "api", "hello", model_override="unknown")]


@pytest.mark.parametrize(
    ("session", "text", "given"),
    [
        ("", "hello", {}),
        ("s" * 600, "hello", {}),
        ("s1", "", {}),
        ("s1", "x" * 262_145, {}),
        ("s1", "half a character: \ud800", {}),
        ("s1", "hello", {"request_id": "r" * 600}),
    ],
)
async def test_what_is_no_message_is_refused_before_it_is_stored(
    database_url: str, session: str, text: str, given: dict[str, Any]
) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (parts, context):
        with pytest.raises(InvalidInput):
            await process_message(context, session, "api", text, **given)
        assert await stored(parts, 0)


async def test_what_cannot_be_stored_of_a_message_is_left_out(database_url: str) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (_, context):
        assert (await process_message(context, "s1", "api", "he\x00llo")).content.endswith("hello")
        assert len(await context.memory().get_history("s1")) == 2


@pytest.mark.parametrize(
    "session", ["", " alice", "alice\x1f", "alice\x00", "al\x00ice", "al\nice", "alice\x85", "\x9falice"]
)
async def test_a_session_key_that_could_become_another_is_refused(database_url: str, session: str) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (parts, context):
        memory = context.memory()
        for call in (
            process_message(context, session, "api", "what did I say?"),
            process_message(context, session, "api", "look", images=[CAT], request_id="r1"),
            compact_session_if_needed(context, session),
            memory.get_history(session),
            memory.save_message(session, "api", "user", "I live in Kiel."),
            memory.learn(session, "api", "I live in Kiel"),
        ):
            with pytest.raises(InvalidInput, match="session key"):
                await call
        assert await stored(parts, 0)
        assert not llm.requests


async def test_a_program_that_stays_open_hears_of_changes(database_url: str) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (parts, context):

        async def becomes(*members: Member) -> None:
            await teams.seed(parts.database, [replace(TEAM, members=members)], [], author="test", reason="a change")

        async def told() -> bool:
            return await context.agent().prompt() == "Be brief."

        await becomes(butler("clerk", "model", prompt="Be brief."))
        await eventually(told)
        await becomes(replace(butler("clerk", "model"), active=False))

        async def gone() -> bool:
            with suppress(NotFound):
                return not await context.agent().prompt()
            return True

        await eventually(gone)
        with pytest.raises(NotFound):
            await process_message(context, "s1", "api", "hello")
        assert await stored(parts, 0)


async def test_a_program_is_no_worker(database_url: str) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (parts, _):
        assert await count_alive(parts.database, "program") == 1
        assert await count_alive(parts.database, "worker") == 0


async def test_a_program_goes_on_to_beat_whatever_happens(database_url: str) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (parts, _):
        with capture_logs() as logs:

            async def failed() -> bool:
                return any(one["event"] == "turns cannot continue" for one in logs)

            await parts.database.run("alter table process rename to elsewhere")
            await eventually(failed)
            await parts.database.run("alter table elsewhere rename to process")
        await parts.database.run("delete from process")
        await eventually(lambda: count_alive(parts.database, "program"))


async def test_a_program_that_was_taken_for_dead_goes_on(database_url: str) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (parts, context):
        await parts.database.run("delete from process")
        answer = await process_message(context, "s1", "api", "hello")
        assert answer.content.endswith("hello")
        assert not answer.taken_over


async def test_a_database_that_is_gone_for_a_moment_costs_no_turn(database_url: str) -> None:
    async with ScriptedLlm(waits_once) as llm, a_host(database_url, llm) as (parts, context):
        call = asyncio.create_task(process_message(context, "s1", "api", "first", request_id="r1"))
        await llm.waiting("first")
        await parts.database.run(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        llm.release("first")
        await asyncio.gather(call, return_exceptions=True)
        await answered_at_last(parts, context, "first", "r1")
        assert await parts.count("select count(*) from outbox") == 1


ASKING: Final = """
import asyncio, sys, asyncpg
from switchboard.turns import ModelSpec, open_models, open_turns, process_message

async def main(url, model, *texts):
    spec = ModelSpec("m", "openai", "scripted-1", base_url=model, timeout=300.0)
    async with asyncpg.create_pool(url, min_size=1, max_size=4) as pool, open_models([spec]) as models:
        async with open_turns(pool, "System1/clerk", models) as context:
            calls = [process_message(context, "s1", "api", text, request_id=text) for text in texts]
            print(*[answer.content for answer in await asyncio.gather(*calls)], sep=", ")

asyncio.run(main(*sys.argv[1:]))
"""


@asynccontextmanager
async def a_process(url: str, llm: ScriptedLlm, *texts: str) -> AsyncIterator[Process]:
    """A program of its own that asks the butler in session `s1`, each text with itself as the id."""
    command = [sys.executable, "-W", "error", "-c", ASKING, url, f"{llm.url}/v1", *texts]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def waits_once(request: Request) -> Reply:
    """Answers the message `first` only when it may."""
    return Reply(text=f"heard {last(request)}", gate="first" if last(request) == "first" else "")


@pytest.mark.parametrize("left", ["by an older release", "by a program that is gone"])
async def test_an_abandoned_turn_belongs_to_whoever_asks_for_it(database_url: str, left: str) -> None:
    """Older releases noted no programs; the lane is that of the workers, none of which runs here."""
    async with ScriptedLlm(waits_once) as llm, a_host(database_url, llm) as (parts, context):
        call = asyncio.create_task(process_message(context, "s1", "api", "first", request_id="r1"))
        await llm.waiting("first")
        await cancel_tasks(call)
        program = None if left == "by an older release" else -1
        await parts.database.run("update delivery set program = $1", program)
        await parts.database.run("delete from attempt")
        await parts.database.run("update lane set program = null, pool = 'work' where kind = 'turn'")
        llm.release("first")
        answer = await process_message(context, "s1", "api", "first", request_id="r1")
        assert (answer.content, answer.taken_over) == ("heard first", False)


async def test_a_pool_on_an_embedded_database(place: Path) -> None:
    with pytest.raises(ConfigurationError, match="`switchboard up` creates one"):
        async with open_pool(place):
            pass
    async with embedded_postgres(place / "postgres"), open_pool(place, size=2) as pool:
        assert await pool.fetchval("select current_database()") == "switchboard"


async def test_two_processes_take_turns_in_a_session_and_answer_a_request_once(database_url: str) -> None:
    async with ScriptedLlm(waits_once) as llm, lab(database_url, [TEAM], []) as parts:
        async with a_process(database_url, llm, "first") as one:
            await llm.waiting("first")
            async with a_process(database_url, llm, "first", "second") as other:
                await eventually(lambda: stored(parts, 2), within=120)
                assert len(llm.requests) == 1
                llm.release("first")
                said = [(await process.communicate())[0].decode().strip() for process in (one, other)]
        assert said == ["heard first", "heard first, heard second"]
        assert [last(request) for request in llm.requests] == ["first", "second"]
        assert [message.text for message in llm.requests[-1].messages if message.role == "assistant"] == ["heard first"]


async def stored(parts: Lab, messages: int) -> bool:
    return await parts.count("select count(*) from message_inbox") == messages


async def test_another_process_goes_on_where_one_was_killed(database_url: str) -> None:
    async with ScriptedLlm(waits_once) as llm, lab(database_url, [TEAM], []):
        async with a_process(database_url, llm, "first") as one:
            await llm.waiting("first")
            one.kill()
        llm.release("first")
        async with a_process(database_url, llm, "first") as other:
            assert (await other.communicate())[0].decode().strip() == "heard first"


async def test_a_model_that_is_away_loses_no_message(database_url: str) -> None:
    sick: Sequence[bool] = [True]

    def brain(request: Request) -> Reply:
        return Reply(fault=Status(503)) if sick[0] else Reply(text=f"heard {last(request)}")

    async with ScriptedLlm(brain) as llm, a_host(database_url, llm) as (parts, context):
        with pytest.raises(ProviderError):
            await process_message(context, "s1", "api", "hello", request_id="r1")
        assert await parts.count("select count(*) from message_inbox") == 1
        sick = [False]
        await answered_at_last(parts, context, "hello", "r1")
        answer = await process_message(context, "s1", "api", "hello", request_id="r1")
        assert answer.content == "heard hello"
        assert await parts.count("select count(*) from message_inbox") == 1


async def test_a_call_behind_one_whose_model_is_away_is_told(database_url: str) -> None:
    async with ScriptedLlm(lambda _: Reply(fault=Status(503))) as llm, a_host(database_url, llm) as (parts, context):
        for n in range(2):
            async with asyncio.timeout(60):
                with pytest.raises(ProviderError):
                    await process_message(context, "s1", "api", f"m{n}")
        assert await stored(parts, 2)


CAT: Final = Image("image/png", b"\x89PNG a cat")
SEEN: Final = f"data:image/png;base64,{base64.b64encode(CAT.data).decode()}"


def looks(request: Request) -> Reply:
    """Lists its files before it says what it sees, so that a turn has two requests."""
    if not request.results and SEEN in json.dumps(request.body):
        return Reply(calls=(scripted_llm.Call("list_files", {"path": "inbox"}),))
    return Reply(text="a cat")


def the_image_in(place: Path) -> Path:
    [kept] = place.rglob("*.png")
    return kept


OWNED: Final = team_of(butler("clerk", "model", owners=["api:s1"]))


async def test_the_shell_of_a_session_ends_with_the_context(database_url: str, tmp_path: Path) -> None:
    if lacking := await Sandbox(SandboxRules()).lacking():
        pytest.skip(lacking)
    replies = [Reply(calls=(scripted_llm.Call("bash", {"command": "sleep 7143.5 & echo began"}),)), Reply("It sleeps.")]
    async with ScriptedLlm(replies) as llm, a_host(database_url, llm, OWNED, workspaces=tmp_path) as (_, context):
        assert (await process_message(context, "s1", "api", "sleep")).content == "It sleeps."
        await begun("7143.5")
    assert running(["7143.5"]) == []


async def test_an_image_is_shown_in_its_turn_and_never_again(database_url: str, tmp_path: Path) -> None:
    async with (
        ScriptedLlm(looks, strict=True) as llm,
        a_host(database_url, llm, OWNED, vision=True, workspaces=tmp_path) as (parts, context),
    ):
        await process_message(context, "s1", "api", "look", images=[CAT])
        await process_message(context, "s1", "api", "and now?")
        assert [SEEN in json.dumps(request.body) for request in llm.requests] == [True, True, False]
        [result] = llm.requests[1].results
        name = re.findall(r"inbox/[0-9a-f]{16}\.png", str(result))[0]
        assert all(f"look\\n> [image {name}]" in json.dumps(request.body) for request in llm.requests)
        kept = the_image_in(tmp_path)
        assert (str(kept).endswith(name), kept.read_bytes()) == (True, CAT.data)
        assert await parts.count("select count(*) from step where result::text like '%iVBOR%'") == 0


async def test_a_model_without_vision_is_told_that_there_is_an_image(database_url: str, tmp_path: Path) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm, workspaces=tmp_path) as (_, context):
        answer = await process_message(context, "s1", "api", "look", images=[CAT])
        assert "(1 of 1 attached images cannot be shown to you.)" in answer.content
        assert "[image inbox/" in answer.content


async def test_without_a_place_for_images_the_model_is_told(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for place in (None, tmp_path / "file"):
        async with ScriptedLlm(says) as llm, a_host(database_url, llm, vision=True, workspaces=place) as (_, context):
            answer = await process_message(context, f"s{place}", "api", "look", images=[CAT])
            assert re.search(r"\[image (inbox/\w+\.png)\]\n\n\(\1: not available any more\.\)$", answer.content)


async def test_a_request_is_the_same_though_its_image_can_no_longer_be_kept(database_url: str, tmp_path: Path) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm, vision=True, workspaces=tmp_path) as (_, context):
        first = await process_message(context, "s1", "api", "look", images=[CAT], request_id="r1")
        inbox = the_image_in(tmp_path).parent
        shutil.rmtree(inbox)
        inbox.write_text("in the way")
        with capture_logs() as logs:
            again = await process_message(context, "s1", "api", "look", images=[CAT], request_id="r1")
        assert again == first
        assert "an image could not be kept" in [one["event"] for one in logs]


@pytest.mark.parametrize("change", [b"a dog", None])
async def test_a_turn_that_goes_on_shows_the_very_image_or_none(
    database_url: str, tmp_path: Path, change: bytes | None
) -> None:
    sick: Sequence[bool] = [True]

    def brain(request: Request) -> Reply:
        return Reply(fault=Status(503)) if sick[0] else says(request)

    async with (
        ScriptedLlm(brain) as llm,
        a_host(database_url, llm, vision=True, workspaces=tmp_path) as (parts, context),
    ):
        with pytest.raises(ProviderError):
            await process_message(context, "s1", "api", "look", images=[CAT], request_id="r1")
        sick = [False]
        kept = the_image_in(tmp_path)
        if change is None:
            kept.unlink()
        else:
            kept.write_bytes(change)
        tried = len(llm.requests)
        await answered_at_last(parts, context, "and now?", "r2")
        first = json.dumps(llm.requests[tried].body)
        assert SEEN not in first
        assert f"(inbox/{kept.name}: not available any more.)" in first


@pytest.mark.parametrize(
    ("images", "problem"),
    [
        ([CAT] * 5, "at most 4 images"),
        ([Image("image/bmp", b"BM")], "image/png, image/jpeg"),
        ([Image("image/png", b"")], "1 to 5242880 bytes"),
        ([Image("image/png", bytes(5 * 1024**2 + 1))], "1 to 5242880 bytes"),
    ],
)
async def test_images_that_no_model_would_see_are_refused(
    database_url: str, images: Sequence[Image], problem: str
) -> None:
    async with ScriptedLlm(says) as llm, a_host(database_url, llm) as (parts, context):
        with pytest.raises(InvalidInput, match=problem):
            await process_message(context, "s1", "api", "look", images=images)
        assert await parts.count("select count(*) from message_inbox") == 0


def test_the_tools_are_those_of_the_engine() -> None:
    names = [one.name for one in tool_definitions(build_tools())]
    assert [tool.name for tool in build_tools()] == names
    assert names[:4] == ["read_file", "write_file", "list_files", "search_files"]


def test_every_public_name_is_documented() -> None:
    page = (DOCS / "butlers.md").read_text()
    assert [name for name in turns.__all__ if not re.search(rf"\b{name}\b", page)] == []


async def test_the_examples_of_the_documentation_work(database_url: str) -> None:
    page = (DOCS / "butlers.md").read_text()
    asking, hosting = re.findall(r"```python\n(from switchboard\.turns.*?)```", page, re.DOTALL)
    async with ScriptedLlm(lambda request: Reply(text=f"heard {last(request)}")) as llm, lab(database_url, [TEAM], []):
        names: dict[str, Any] = {}
        exec(asking.replace("http://127.0.0.1:11434", llm.url), names)  # noqa: S102 - it is our own page
        exec(hosting, names)  # noqa: S102 - the same
        pool = await asyncpg.create_pool(database_url, min_size=1, max_size=6)
        try:
            assert await names["ask"](pool, "hello") == "heard hello"
            models = names["open_models"]([ModelSpec("local", "openai", "qwen3", base_url=f"{llm.url}/v1")])
            async with models as opened, open_turns(pool, "System1/clerk", opened) as context:
                await process_message(names["App"](context), "session-2", "discord", "hello")
        finally:
            await pool.close()
        assert llm.requests[-1].system.endswith("Answer in one sentence.")
