"""Measures how long messages that no rule decides take if the model answers at once, beside a bare client of the model.

Called by `switchboard bench classify`, and by a test that asserts everything but the times. The model is our scripted
one, in a process of its own. For each kind, messages and the bare client take turns, so that other load of the machine
affects both. Measured from before the POST to the start of the butler's turn, which is after delivery.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from time import perf_counter, time
from typing import Any, Final
from uuid import UUID

import aiohttp
import anthropic
import openai
from msgspec import Struct, field

from switchboard.bench import lab
from switchboard.core.classification.prompt import AskedMessage, route_tool, routing_prompt
from switchboard.domain.classification import Candidate
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.llm import ChatMessage, Request, ToolServer
from switchboard.llm.commands import PROGRAMS, CliCommand, Way, command_for
from switchboard.llm.outputs import read_output
from switchboard.llm.port import ApiKind, CliKind, Kind
from switchboard.llm.spec import API_KINDS, ModelSpec
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.models import classification
from switchboard.store.models.classification import NewSession
from switchboard.transport.programs import Program, run_program

CLIS: Final[tuple[CliKind, ...]] = ("claude-code", "codex")
_BUTLER: Final = Candidate("System1/echo", "Whatever reaches the house")
_TEAM: Final = {
    "team": {"name": "root"},
    "classify": True,
    "systems": [{"name": _BUTLER.name, "engine": "echo", "description": _BUTLER.description}],
}
_CALL: Final = {"calls": [{"name": "route_to_butler", "arguments": {"butler": _BUTLER.name}}]}
_SCRIPT: Final = {
    "rules": [
        {"when": {"results": True}, "replies": [{"text": "Done."}], "again": True},
        {"when": {"tool": "route_to_butler"}, "replies": [_CALL], "again": True},
    ],
    "otherwise": {"text": _BUTLER.name},
}
_WARMING: Final = 3
_DEADLINE: Final = 60.0
_STARTED: Final = """
select extract(epoch from min(t.started_at))::float8 from delivery d join attempt t using (lane, seq)
where d.request_id = $1 and t.outcome = 'answered'
"""


class ClassifyWorkload(Struct, frozen=True):
    """The number of messages per API kind and per command line; the paths of programs that are not on PATH."""

    messages: int = 200
    runs: int = 10
    programs: Mapping[CliKind, str] = field(default_factory=lambda: PROGRAMS)


class ClassifyResult(Struct, frozen=True):
    """Milliseconds for one kind. If `missing` gives a reason, nothing was measured."""

    kind: Kind
    routed_ms: tuple[float, ...] = ()
    """From the POST of a message to the start of the butler's turn."""
    bare_ms: tuple[float, ...] = ()
    """The SDK with the same request; or the program with the same question, but without a tool."""
    called_ms: tuple[float, ...] = ()
    """For a program: the same with our tool, which it calls on our MCP server."""
    missing: str = ""


class _Place(Struct, frozen=True):
    """Shared by all measurements: the directory, the database and the URL of the scripted model."""

    directory: Path
    database: Database
    llm: str
    http: aiohttp.ClientSession

    def spec(self, kind: Kind, program: str | None = None) -> ModelSpec:
        """The scripted model as a model of this kind."""
        versioned = kind in {"openai", "openai-responses", "codex"}
        return ModelSpec("scripted", kind, "scripted-1", self.llm + "/v1" * versioned, program=program)

    @asynccontextmanager
    async def up(self, spec: ModelSpec) -> AsyncIterator[lab.ReadyProcess]:
        """A switchboard that asks this model."""
        known = {name: getattr(spec, name) for name in ("name", "kind", "model", "base_url", "program")}
        more = {
            "SWITCHBOARD_MODELS": json.dumps([known]),
            "SWITCHBOARD_CLASSIFY__MODELS": json.dumps([spec.name]),
            "SWITCHBOARD_CLASSIFY__SENDER_PER_MINUTE": "0",
        }
        async with lab.switchboard(self.directory, "up", more=more) as running:
            yield running

    async def time_routing(self, up: lab.ReadyProcess) -> float:
        """Post a message; returns the milliseconds until its butler begins."""
        [message] = lab.messages(1, 1, token_urlsafe(8))
        message["event"]["external_thread_id"] = message["event"]["external_event_id"]
        began = time()
        async with self.http.post(f"{up.url}/v1/ingest", json=message, headers=up.headers) as response:
            response.raise_for_status()
            request_id = UUID((await response.json())["request_id"])
        return (await self._wait_for_start(request_id) - began) * 1000

    async def _wait_for_start(self, request_id: UUID) -> float:
        ends = perf_counter() + _DEADLINE
        while perf_counter() < ends:
            if (started := await self.database.value(_STARTED, request_id)) is not None:
                return float(started)
            await asyncio.sleep(0.02)  # polling all the time would disturb the measurement
        raise ConfigurationError(f"nobody got message {request_id} within {_DEADLINE:g} s")


async def measure(plan: ClassifyWorkload) -> list[ClassifyResult]:
    """Measure all kinds one after the other, on a separate database."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(lab.home(_TEAM))
        database = await stack.enter_async_context(lab.database(directory, 2))
        llm = await stack.enter_async_context(lab.scripted_model(directory, _SCRIPT))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        place = _Place(directory, database, llm, http)
        results = [await _by_api(place, kind, plan.messages) for kind in API_KINDS]
        return results + [await _by_cli(place, kind, plan) for kind in CLIS]


# A provider's API ----------------------------------------------------------------------------------------------------


async def _by_api(place: _Place, kind: ApiKind, messages: int) -> ClassifyResult:
    """Measure each message, and after it the official SDK with exactly the same request."""
    routed, bare = [], []
    async with place.up(place.spec(kind)) as up, sdk(kind, place.llm) as ask:
        for _ in range(_WARMING):
            await place.time_routing(up)
        body = await last_request(place.http, place.llm)
        for _ in range(_WARMING):
            await ask(body)
        for _ in range(messages):
            routed.append(await place.time_routing(up))
            began = perf_counter()
            await ask(body)
            bare.append((perf_counter() - began) * 1000)
    return ClassifyResult(kind, tuple(routed), tuple(bare))


BareAsk = Callable[[JsonMapping], Awaitable[Any]]


@asynccontextmanager
async def sdk(kind: ApiKind, llm: str) -> AsyncIterator[BareAsk]:
    """The official client of this kind, used as its manual says."""
    if kind == "anthropic":
        async with anthropic.AsyncAnthropic(base_url=llm, api_key="none", max_retries=0) as client:
            yield lambda body: client.messages.create(**body)
        return
    async with openai.AsyncOpenAI(base_url=f"{llm}/v1", api_key="none", max_retries=0) as sdk:
        create: Any = sdk.chat.completions.create if kind == "openai" else sdk.responses.create
        yield lambda body: create(**body)


async def last_request(http: aiohttp.ClientSession, llm: str) -> JsonObject:
    """The last request to the scripted model, as it was sent."""
    async with http.get(f"{llm}/scripted/requests") as response:
        body: JsonObject = (await response.json())["exchanges"][-1]["request"]["body"]
        return body


# A command line ------------------------------------------------------------------------------------------------------


async def _by_cli(place: _Place, kind: CliKind, plan: ClassifyWorkload) -> ClassifyResult:
    """Measure each message, and after it the same program without us: with no tool, and with ours."""
    program = plan.programs.get(kind, PROGRAMS[kind])
    path = shutil.which(program)
    if path is None:
        return ClassifyResult(kind, missing=f"not measured: no {program} on PATH")
    spec = place.spec(kind, path)
    routed, bare, called = [], [], []
    async with place.up(spec) as up:
        await place.time_routing(up)  # the first also starts our MCP server
        for _ in range(plan.runs):
            routed.append(await place.time_routing(up))
            bare.append(await _run(spec, await _request(place, up), offered=False))
            called.append(await _run(spec, await _request(place, up), offered=True))
    return ClassifyResult(kind, tuple(routed), tuple(bare), tuple(called))


async def _request(place: _Place, up: lab.ReadyProcess) -> Request:
    """The request of a session, with a token for the tool at our MCP server."""
    secret, request_id = classification.SESSION_PREFIX + token_urlsafe(32), new_uuid7()
    new = NewSession("bench", request_id, "root", (_BUTLER,), timedelta(minutes=10))
    await classification.open_session(place.database, new, sha256(secret.encode()).digest())
    [message] = lab.messages(1, 1, "bare")
    prompt = routing_prompt((_BUTLER,), AskedMessage(message["payload"]["normalized_text"], "api", "bench"))
    tool, server = route_tool((_BUTLER,)), ToolServer(f"{up.url}/mcp", secret)
    asked = (ChatMessage("user", prompt.question),)
    return Request(
        asked, prompt.instructions, (tool,), tool.name, deadline=_DEADLINE, key=str(request_id), server=server
    )


async def _run(spec: ModelSpec, request: Request, *, offered: bool) -> float:
    """Milliseconds of one run of the program, from its start to its end."""
    kind: Any = spec.kind
    with tempfile.TemporaryDirectory(prefix="switchboard-bench-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        assert request.server is not None  # noqa: S101 - `_request` sets one
        command = command_for(kind, request, request.server, Way(spec, None, place))
        command = command if offered else _without_tool(kind, command)
        for file, text in {"home/.keep": "", "work/.keep": "", **command.files}.items():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_text(text, encoding="utf-8")
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(place / "home"), "TMPDIR": str(place)}
        env |= {"TERM": "dumb", "LANG": "C.UTF-8", **command.env}
        words = (spec.program or PROGRAMS[kind], *command.words)
        began = perf_counter()
        ended = await run_program(Program(words, env, place / "work", command.given.encode(), _DEADLINE))
        took = (perf_counter() - began) * 1000
    calls = read_output(kind, ended.text).calls
    if ended.status or offered != any(call.ok for call in calls):
        raise ConfigurationError(f"{kind} failed: {ended.text[-500:]} {ended.errors[-500:]}")
    return took


def _without_tool(kind: CliKind, command: CliCommand) -> CliCommand:
    """The same command without our MCP server."""
    if kind == "claude-code":
        return replace(command, files={**command.files, "mcp.json": json.dumps({"mcpServers": {}})})
    words = list(command.words)
    at = next(n for n, word in enumerate(words) if word.startswith("mcp_servers."))
    return replace(command, words=(*words[: at - 1], *words[at + 1 :]))
