"""Programs that ask a butler themselves, on an installation whose workers have other models: whose turns are whose.

The workers are real `switchboard work` processes, and the programs are processes, too, which can be killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, TypedDict

import pytest

from switchboard.testing.scripted_llm import Reply, Request, ScriptedLlm
from tests.hands import assert_balanced
from tests.lab import Lab, butler, lab, submission, team_of
from tests.processes import environment, running
from tests.waiting import eventually

pytestmark = pytest.mark.slow

TEAM: Final = team_of(butler("clerk", "model", prompt="The installation speaks."))
SESSIONS: Final = 20
CALLS: Final = 100
PROGRAM: Final = """
import asyncio, json, sys, asyncpg
from switchboard.turns import ModelSpec, open_models, open_turns, process_message

class Own:
    def __init__(self, agent, name):
        self.butler, self.name = agent, name
    async def prompt(self):
        return f"The program {self.name} speaks."
    async def get_model(self, override=None):
        return [self.name]
    async def run(self, ctx, message):
        return await self.butler.run(ctx, message)

class App:
    def __init__(self, turns, name):
        self.turns, self.name = turns, name
        self.memory, self.terminal = turns.memory, turns.terminal
    def agent(self):
        return Own(self.turns.agent(), self.name)

async def ask(app, session, text):
    told = []
    answer = await process_message(app, session, "telegram", text, request_id=f"id of {text}",
        user_context=f"known for {text}", on_delta=told.append)
    said = {"text": text, "answer": answer.content, "model": answer.model, "taken_over": answer.taken_over}
    print(json.dumps({**said, "told": "".join(delta.text for delta in told)}), flush=True)

async def main(url, model, name, *asked):
    spec = ModelSpec(name, "openai", name, base_url=model, timeout=300.0, concurrency=8)
    async with asyncpg.create_pool(url, min_size=1, max_size=6) as pool, open_models([spec]) as models:
        async with open_turns(pool, "System1/clerk", models) as context:
            print("open", flush=True)
            await asyncio.gather(*[ask(App(context, name), *one.split(":")) for one in asked])

asyncio.run(main(*sys.argv[1:]))
"""


class Said(TypedDict):
    """What the program prints of an answer."""

    text: str
    answer: str
    model: str
    taken_over: bool
    told: str


@contextmanager
def working(url: str, place: Path, llm: ScriptedLlm, workers: int = 2) -> Iterator[None]:
    """Workers with a model of their own, `w`."""
    lines = [f'database_url = "{url}"', "[[models]]", 'name = "w"', 'kind = "openai"', 'model = "w"']
    lines += [f'base_url = "{llm.url}/v1"', "concurrency = 8"]
    (place / "switchboard.toml").write_text("\n".join(lines))
    with ExitStack() as stack:
        for _ in range(workers):
            stack.enter_context(running(environment(place / "data"), "work", cwd=place))
        yield


@asynccontextmanager
async def a_program(url: str, llm: ScriptedLlm, name: str, asked: Sequence[str]) -> AsyncIterator[Process]:
    """A program with the model `name`, which asks `session:text` each, all at once."""
    command = [sys.executable, "-W", "error", "-c", PROGRAM, url, f"{llm.url}/v1", name, *asked]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"open\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def said_by(process: Process) -> dict[str, Said]:
    """All that it prints until its end, by the text asked."""
    out, _ = await process.communicate()
    answers: list[Said] = [json.loads(line) for line in out.splitlines()]
    return {one["text"]: one for one in answers}


def last(request: Request) -> str:
    return request.prompt.splitlines()[-1].removeprefix("> ")


def echo(request: Request) -> Reply:
    """Says what it was asked and by whom; waits where the text says so, when it is first asked."""
    known = [line for line in request.prompt.splitlines() if line.startswith("known for")]
    by = request.system.rstrip().rpartition("\n")[2]
    text = f"{request.model} | {by} | {' '.join(known)} | {last(request)}"
    return Reply(text=text, gate="slow" if last(request) == "slow" and request.model != "w" else "")


def own(name: str, text: str) -> Said:
    answer = f"{name} | The program {name} speaks. | known for {text} | {text}"
    return {"text": text, "answer": answer, "model": name, "taken_over": False, "told": answer}


async def assert_nothing_waits(parts: Lab) -> None:
    assert await parts.count("select count(*) from outbox where state <> 'sent'") == 0
    assert await parts.count("select count(*) from lane where state <> 'idle' or program is not null") == 0
    assert await parts.count("select count(*) from lane where pool not in ('work', 'mailbox') and kind = 'turn'") == 0
    await assert_balanced(parts)


async def test_every_turn_of_two_programs_is_their_own_beside_workers(database_url: str, tmp_path: Path) -> None:
    """Half of the sessions are of both programs at once."""
    asked: Mapping[str, Sequence[str]] = {
        "p": [f"s{n % SESSIONS}:p {n}" for n in range(CALLS)],
        "q": [f"s{n % SESSIONS + SESSIONS // 2}:q {n}" for n in range(CALLS)],
    }
    async with ScriptedLlm(echo) as llm, lab(database_url, [TEAM], []) as parts:
        with working(database_url, tmp_path, llm):
            async with (
                a_program(database_url, llm, "p", asked["p"]) as one,
                a_program(database_url, llm, "q", asked["q"]) as other,
            ):
                found = await asyncio.gather(said_by(one), said_by(other))
        for name, said in zip("pq", found, strict=True):
            texts = [each.partition(":")[2] for each in asked[name]]
            assert said == {text: own(name, text) for text in texts}
        assert {request.model for request in llm.requests} == {"p", "q"}
        await assert_nothing_waits(parts)


async def test_workers_take_over_from_a_program_that_was_killed(database_url: str, tmp_path: Path) -> None:
    """One turn was running, and one waited behind it; the program that asks again is told."""
    asked = ["s1:slow", "s1:behind"]
    async with ScriptedLlm(echo) as llm, lab(database_url, [TEAM], []) as parts:
        with working(database_url, tmp_path, llm, workers=1):
            async with a_program(database_url, llm, "p", asked) as one:
                await llm.waiting("slow")
                await eventually(lambda: _stored(parts, 2))
                one.kill()
            await eventually(lambda: _answered(parts, 2), within=60)
            async with a_program(database_url, llm, "p", asked) as again:
                said = await said_by(again)
        llm.release("slow")
        assert {text: one["taken_over"] for text, one in said.items()} == {"slow": True, "behind": True}
        assert said["slow"]["answer"] == "w | The program p speaks. | known for slow | slow", "as it had begun"
        assert said["behind"]["answer"] == "w | The installation speaks. |  | behind"
        await assert_nothing_waits(parts)


async def test_once_a_program_has_its_answers_workers_take_messages_of_others(
    database_url: str, tmp_path: Path
) -> None:
    async with ScriptedLlm(echo) as llm, lab(database_url, [TEAM], []) as parts:
        with working(database_url, tmp_path, llm, workers=1):
            async with a_program(database_url, llm, "p", ["s1:slow", "s1:behind"]) as one:
                await llm.waiting("slow")
                await eventually(lambda: _stored(parts, 2))
                foreign = submission(
                    "from elsewhere",
                    channel="telegram",
                    endpoint="embedded:System1/clerk",
                    sender="s1",
                    thread="s1",
                    pinned="System1/clerk",
                )
                await parts.accept.accept(foreign)
                llm.release("slow")
                said = await said_by(one)
            await eventually(lambda: _answered(parts, 3), within=60)
        assert said == {text: own("p", text) for text in ("slow", "behind")}
        assert [request.model for request in llm.requests] == ["p", "p", "w"]
        await assert_nothing_waits(parts)


async def _stored(parts: Lab, messages: int) -> bool:
    return await parts.count("select count(*) from message_inbox") == messages


async def _answered(parts: Lab, turns: int) -> bool:
    return await parts.count("select count(*) from delivery where state = 'answered'") == turns
