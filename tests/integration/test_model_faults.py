"""Each way in which a model fails, singly and through all parts: rules, worker, session, classification, delivery.

The ways are those of the chaos run with models (`make chaos WHAT=model`). Each ends as a dead letter that says why, or,
with a second model, at the butler; a few are no failure to us at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.app.wiring import make_worker, open_runtime, open_switchboard
from switchboard.domain.shown import Logged
from switchboard.server.listener import bind
from switchboard.server.serve import run_server
from switchboard.store.messages.inbox import unpack_raw
from switchboard.store.models import classification
from switchboard.testing.scripted_llm import Reply, Request, ScriptedLlm
from tests.chaos import claude, model
from tests.hands import at_work
from tests.lab import submission
from tests.waiting import eventually

TEXT: Final = "0 b1 e0"
TEAM: Final = {
    "team": {"name": "root"},
    "purpose": "the house",
    "classify": True,
    "systems": [{"name": f"System1/{name}", "engine": "echo"} for name in ("b0", "b1", "b2")],
    "routing_rules": [],
}
API: Final = {
    "429": r"first: rate_limited: status 429",
    "500": r"first: unavailable: status 500",
    "disconnect": r"first: unavailable: ",
    "not listening": r"first: unavailable: connection refused",
    "hang": r"first: timeout: no answer within",
    "half": r"first: (unavailable|garbage): ",
    "cut_off": r"first: garbage: the answer was cut off",
    "garbage": r"first: garbage: ",
    "refused": r"first: refused: ",
    "no_call": r"ended \(end\) without a call of route_to_butler",
    "wrong_butler": r"no candidate 'ghost'",
    "unknown_tool": r"without a call of route_to_butler",
    "expensive": r"first: budget: .* of a message",
}
CLI: Final = {
    "mcp_down": r"first: unavailable: claude-code did not get our MCP server",
    "no server": r"first: unavailable: Switchboard's MCP server cannot be reached",
    "denied": r"first: defect: claude-code did not allow the call",
    "no_call": r"without a call of route_to_butler",
    "api_error": r"first: unavailable: claude-code broke off \(exit status 1\)",
    "garbage": r"first: garbage: ",
    "wrong_butler": r"no candidate 'ghost'",
    "lie": r"no record of",
    "hang": r"first: timeout: claude-code was not done in time",
    "crash": r"killed by signal 11",
}
NO_FAILURE: Final = [("api", "two_calls"), ("cli", "mute"), ("cli", "late")]
"""A call that came in counts once, however often it is made, and whatever becomes of the program that made it."""
RUN_OUT: Final = {"hang", "late"}
EVERY_WAY: Final = [*(("api", way) for way in API), *(("cli", way) for way in CLI)]


def test_every_way_of_the_chaos_run_is_shown_singly() -> None:
    shown = {*EVERY_WAY, *NO_FAILURE}
    assert {("api", way) for way in model.WAYS} <= shown
    assert {("cli", way) for way in claude.WAYS} <= shown


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to fail, of an API or of a command line."""

    kind: str
    way: str

    def brain(self, request: Request) -> Reply:
        """The first model fails in this way, the second does well."""
        calls = model.route(request.prompt)
        fails = request.model == "first" and self.way in model.WAYS
        return model.WAYS[self.way](calls) if fails else Reply(calls=calls)

    def models(self, llm: str, place: Path) -> list[dict[str, Any]]:
        """Those of the settings: the one that fails, and another that does not."""
        url = "http://127.0.0.1:9/v1" if self.way == "not listening" else f"{llm}/v1"
        # Short only where the time shall run out: a machine with much to do is not what is tried here.
        timeout = {"api": 0.7, "cli": 3.0}[self.kind] if self.way in RUN_OUT else 60.0
        first = {"name": "first", "model": "first", "kind": "openai", "base_url": url, "timeout": timeout}
        if self.kind == "cli":
            ways = [self.way] if self.way in claude.WAYS else ["no_call"]
            program = str(claude.install(place, rate=1.0, ways=ways))
            first |= {"kind": "claude-code", "program": program}
        return [first, {"name": "second", "model": "second", "kind": "openai", "base_url": f"{llm}/v1"}]


@asynccontextmanager
async def working(fault: Fault, database_url: str, place: Path, *names: str) -> AsyncIterator[Runtime]:
    """A worker and a server as they are wired in production, with the named models."""
    async with contextlib.AsyncExitStack() as stack:
        llm = await stack.enter_async_context(ScriptedLlm(fault.brain))
        listener = bind("127.0.0.1", 0)
        mcp = f"http://127.0.0.1:{9 if fault.way == 'no server' else listener.getsockname()[1]}/mcp"
        given = {
            "database_url": database_url,
            "data_dir": place,
            "teams": [TEAM],
            "worker": {"ttl": 60},  # a machine with much to do is not what is tried here
            "models": fault.models(llm.url, place),
            "classify": {
                "models": names,
                "attempts": 2 if fault.way == "expensive" else 1,
                "tokens_per_message": 100_000,
                "mcp_url": mcp,
            },
        }
        runtime = await stack.enter_async_context(open_runtime(Settings.model_validate(given)))
        switchboard = await stack.enter_async_context(open_switchboard(runtime))
        stop, open_ = asyncio.Event(), asyncio.Event()
        serving = asyncio.create_task(run_server(switchboard, listener, stop, lambda *_: open_.set()))
        await open_.wait()
        try:
            async with at_work(make_worker(runtime)):
                await switchboard.accept.accept(submission(TEXT, channel="api"))
                await eventually(lambda: _over(runtime))
                yield runtime
        finally:
            stop.set()
            await serving


async def _over(runtime: Runtime) -> bool:
    return not await runtime.database.value("select count(*) from lane where state <> 'idle'")


async def _log(runtime: Runtime) -> list[Logged]:
    request_id = await runtime.database.value("select request_id from message_inbox")
    return await classification.attempts(runtime.database, request_id)


async def _deliveries(runtime: Runtime) -> list[tuple[str, str]]:
    rows = await runtime.database.rows("select system_id, state from delivery")
    return [(row["system_id"], row["state"]) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "way"), EVERY_WAY)
async def test_with_no_other_model_it_ends_as_a_dead_letter_that_says_why(
    database_url: str, tmp_path: Path, kind: str, way: str
) -> None:
    fault = Fault(kind, way)
    async with working(fault, database_url, tmp_path, "first") as runtime:
        assert await _deliveries(runtime) == []
        [dead_letter] = await runtime.database.rows("select category, reason, payload, raw from dead_letter")
        assert dead_letter["category"] == "classification_failed"
        assert re.search({"api": API, "cli": CLI}[kind][way], dead_letter["reason"]), dead_letter["reason"]
        assert dead_letter["payload"]["payload"]["normalized_text"] == TEXT
        assert TEXT.encode() in unpack_raw(dead_letter["raw"])
        log = await _log(runtime)
        assert log
        assert all(row.error for row in log)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "way"), [one for one in EVERY_WAY if one != ("api", "expensive")])
async def test_with_another_model_it_ends_at_the_butler(database_url: str, tmp_path: Path, kind: str, way: str) -> None:
    async with working(Fault(kind, way), database_url, tmp_path, "first", "second") as runtime:
        assert await _deliveries(runtime) == [("System1/b1", "answered")]
        assert await runtime.database.value("select count(*) from dead_letter") == 0
        assert [(row.model, row.error is None) for row in await _log(runtime)] == [("first", False), ("second", True)]


@pytest.mark.parametrize(("kind", "way"), NO_FAILURE)
async def test_what_is_no_failure_to_us(database_url: str, tmp_path: Path, kind: str, way: str) -> None:
    async with working(Fault(kind, way), database_url, tmp_path, "first", "second") as runtime:
        assert await _deliveries(runtime) == [("System1/b1", "answered")]
        assert {row.model for row in await _log(runtime)} == {"first"}
