"""Every engine of ours passes the checks that `switchboard.testing.engines` publishes."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
from aiohttp import web

from switchboard.agents.command import CommandEngine
from switchboard.agents.http import HttpEngine
from switchboard.agents.mcp import McpEngine
from switchboard.agents.memo import MemoEngine
from switchboard.ports.engine import Answer, TurnResult
from switchboard.store.database import Database
from switchboard.store.models.memos import StoredMemos
from switchboard.testing import engines
from switchboard.testing.echo import Echo
from switchboard.testing.engines import CHECKS, EngineCheck, Subject
from switchboard.testing.scripted_llm import Reply, Request, ScriptedLlm
from tests.asking import spec
from tests.engines import Book, a_hook
from tests.remotes import TOKEN, a_remote
from tests.trios import Given, a_trio, plan, tool, writes
from tests.turning import OWNER, Noting, a_model_engine

_SECRET: Final = "canary-secret"

_PROGRAM: Final = """
import json, os, sys
text = json.load(sys.stdin)["envelope"]["payload"]["normalized_text"]
with open(sys.argv[1], "a") as keys:
    keys.write(os.environ["SWITCHBOARD_IDEMPOTENCY_KEY"] + "\\n")
json.dump({"reply": text}, sys.stdout, ensure_ascii=False)
"""


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", _SECRET)
    monkeypatch.setenv("REMOTE_TOKEN", TOKEN)


def _says(text: str, result: TurnResult) -> bool:
    return isinstance(result, Answer) and text in result.text


@asynccontextmanager
async def echo(_: Path, __: str) -> AsyncIterator[Subject]:
    wrong = {"steps": "many"}
    yield Subject(Echo(), {"steps": 3}, slow={"steps": 3, "delay": 30}, failing=wrong, wrong=wrong, fits=_says)


@asynccontextmanager
async def memo(_: Path, url: str) -> AsyncIterator[Subject]:
    database = await Database.connect(url)
    try:
        yield Subject(MemoEngine(StoredMemos(database)), fits=_says)
    finally:
        await database.close()


@asynccontextmanager
async def command(directory: Path, _: str) -> AsyncIterator[Subject]:
    keys = directory / "keys"
    keys.touch()
    python = (sys.executable, "-I", "-S", "-c")
    yield Subject(
        CommandEngine(grace=0.3),
        {"command": [*python, _PROGRAM, str(keys)], "output": "json"},
        slow={"command": [*python, "import time; time.sleep(60)"]},
        failing={"command": [*python, "raise SystemExit(1)"]},
        declining={"command": [*python, "raise SystemExit(65)"]},
        wrong={"command": [], "timeout": 0},
        keys=lambda: [UUID(key) for key in keys.read_text().split()],
        fits=_says,
    )


@asynccontextmanager
async def http(_: Path, __: str) -> AsyncIterator[Subject]:
    async with a_hook() as hook:

        async def reply(request: web.Request) -> web.StreamResponse:
            text = json.loads(await request.read())["envelope"]["payload"]["normalized_text"]
            return web.json_response({"refuse": "not mine"} if request.query else {"reply": text})

        hook.handler = reply
        options = {"url": hook.url, "secret_env": "HOOK_SECRET", "allow_private": True}
        yield Subject(
            HttpEngine(),
            options,
            failing={**options, "url": "http://127.0.0.1:1/"},
            declining={**options, "url": f"{hook.url}?refuse=1"},
            wrong={**options, "secret_env": "NO_SUCH_SECRET"},
            keys=lambda: [UUID(headers["Idempotency-Key"]) for headers in hook.headers],
            fits=_says,
        )


@asynccontextmanager
async def mcp(directory: Path, _: str) -> AsyncIterator[Subject]:
    with a_remote(directory) as remote:
        yield Subject(
            McpEngine(Book()),
            remote.options(),
            failing=remote.options(tool="no.such.tool"),
            wrong=remote.options(url="ftp://elsewhere"),
            keys=lambda: [UUID(call["key"]) for call in remote.calls],
            fits=lambda text, result: isinstance(result, Answer) and result.text == f"heard: {text}",
        )


@asynccontextmanager
async def model(_: Path, __: str) -> AsyncIterator[Subject]:
    def brain(request: Request) -> Reply:
        return Reply(text=request.prompt, finish="filter" if "refuse" in request.system else None)

    async with ScriptedLlm(brain) as llm:
        specs = [spec("openai", llm.url, "m"), spec("openai", "http://127.0.0.1:1", "away")]
        async with a_model_engine(llm, specs=specs) as (engine, _models):
            yield Subject(
                engine,
                {"models": ["m"]},
                failing={"models": ["away"]},
                declining={"models": ["m"], "prompt": "refuse"},
                wrong={"models": ["unknown"], "zone": "nowhere"},
                fits=_says,
            )


@asynccontextmanager
async def trio(_: Path, __: str) -> AsyncIterator[Subject]:
    """One step after the other, and two at once; of the texts that it is given the specialist says nothing."""
    steps = plan(tool("s1", "look"), tool("s2", "look", text="b"), writes("s3", "s1 s2"))
    async with ScriptedLlm(lambda request: Reply(text=request.prompt.rpartition("\n")[2])) as llm:
        specs = [spec("openai", llm.url, "m"), spec("openai", "http://127.0.0.1:1", "away")]
        async with a_trio(llm, Given(steps), [Noting("look")], specs=specs) as (engine, _models):
            yield Subject(
                engine,
                {"main": "m", "owners": OWNER, "own": ["look"]},
                failing={"main": "away", "specialist": "away", "owners": OWNER},
                wrong={"main": "unknown", "zone": "nowhere"},
            )


Opens = Callable[[Path, str], AbstractAsyncContextManager[Subject]]

_NOT_TO_BE_HAD: Final = {
    echo: {engines.declines},
    mcp: {engines.declines},
    trio: {engines.declines},
    memo: {engines.declines, engines.fails_with_an_engine_failure, engines.names_wrong_options},
}
"""What cannot be asked for by options: `echo` and `memo` take everything, and the remote butler of the tests refuses by
the text of a message, which is tried in test_engine_mcp.py."""


@pytest.mark.parametrize(
    ("opens", "check"),
    [
        (opens, check)
        for opens in (echo, memo, command, http, mcp, model, trio)
        for check in CHECKS
        if check not in _NOT_TO_BE_HAD.get(opens, set())
    ],
    ids=lambda part: part.__name__,
)
async def test_an_engine_of_ours(opens: Opens, check: EngineCheck, tmp_path: Path, database_url: str) -> None:
    async with opens(tmp_path, database_url) as subject:
        await check(subject)
