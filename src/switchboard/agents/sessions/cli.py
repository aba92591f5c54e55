"""A session with a command line: claude-code, codex, gemini-cli or opencode, with our MCP server and its one tool.

`build.py` makes it; `dispatch.py` calls `run`. The command comes from `commands.py`, `programs.py` runs it, and
`core/pipeline/clis.py` reads what it wrote. Exit codes are not believed: what counts is what stands in the output.

Before anything is paid for, our MCP server is asked under the session's token whether it offers the tool: a program
without it goes on as if nothing had happened, and two of the four do not even tell.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx2

from switchboard.agents.programs import Ended, Program, run_program
from switchboard.agents.sessions.commands import PROGRAMS, Command, Way, command_for
from switchboard.agents.sessions.port import CliKind, FailureKind, SessionFailure, SessionTask, with_usage
from switchboard.agents.sessions.scratch import scratch
from switchboard.agents.sessions.spec import ModelSpec
from switchboard.agents.sessions.web import broken_failure
from switchboard.core.pipeline.clis import parse_transcript
from switchboard.core.pipeline.prompt import ROUTE_TOOL
from switchboard.core.pipeline.transcript import ToolCall, Transcript, block_text, items, json_value, mapping
from switchboard.core.pipeline.verdict import is_ours

_PROTOCOL: Final = "2025-11-25"
_PROXIES: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})
_DENIED: Final = re.compile(
    r"permission (?:to use|denied)|requires approval|rejected permission|denied by policy|tool_not_registered"
    r"|^Tool \S+ not found|not allowed",
    re.IGNORECASE,
)
_NO_SERVER: Final = re.compile(r"MCP server \S+: |required MCP servers failed|MCP issues detected", re.IGNORECASE)
_BAD_ENDS: Final = frozenset({"turn.failed", "error", "error_max_turns", "error_during_execution"})
_CAUSES: Final[tuple[tuple[FailureKind, re.Pattern[str]], ...]] = (
    ("context_too_long", re.compile(r"prompt is too long|context (?:window|length)|too many tokens", re.IGNORECASE)),
    ("auth", re.compile(r"\b40[13]\b|invalid.{0,10}api.?key|authentication|unauthorized", re.IGNORECASE)),
    ("rate_limited", re.compile(r"\b429\b|rate.?limit|quota|RESOURCE_EXHAUSTED", re.IGNORECASE)),
    ("garbage", re.compile(r"JSON|could not parse|unterminated|stream closed before", re.IGNORECASE)),
    ("refused", re.compile(r"usage policy|content.?filter|safety", re.IGNORECASE)),
)


@dataclass(frozen=True, slots=True)
class CliSession:
    """One model by one command line. `guard` goes before the program's name; `http` asks our MCP server."""

    spec: ModelSpec
    kind: CliKind
    key: str | None
    http: httpx2.AsyncClient
    guard: Sequence[str] = ()
    grace: float = 3.0

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def model(self) -> str:
        return self.spec.model

    async def run(self, task: SessionTask) -> Transcript:
        """Run the program once. Raises SessionFailure, with all that was said until then."""
        began = asyncio.get_running_loop().time()
        await self._offered(task)
        async with scratch() as place:
            command = command_for(self.kind, task, Way(self.spec, self.key, place))
            _lay_out(place, command)
            left = max(0.0, task.deadline - (asyncio.get_running_loop().time() - began))
            ended = await self._execute(place, command, left, urlsplit(task.mcp_url or "").hostname)
        return judged(self.kind, task, ended)

    async def _execute(self, place: Path, command: Command, left: float, mcp_host: str | None) -> Ended:
        program = program_of(self.spec)
        path = shutil.which(program)
        if path is None:
            raise SessionFailure("defect", f"{program} is not installed, or not on PATH")
        env = {**_environment(place), **passed_on(self.spec.pass_env, mcp_host), **command.env}
        argv = (*self.guard, path, *command.words)
        try:
            return await run_program(
                Program(argv, env, place / "work", command.given.encode("utf-8", "replace"), left), self.grace
            )
        except OSError as error:  # not executable, too long a word; or no memory, no processes
            raise SessionFailure("defect", f"{program} could not be started: {error}") from error

    async def _offered(self, task: SessionTask) -> None:
        """Raises SessionFailure unless our MCP server offers the tool under the session's token."""
        if task.mcp_url is None or task.token is None:
            raise SessionFailure("defect", f"{self.kind} needs an MCP server and a token of its own")
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": _PROTOCOL}
        headers |= {"Authorization": f"Bearer {task.token}", "X-Session-Id": task.request_id}
        try:
            async with asyncio.timeout(min(task.deadline, 10.0)):
                response = await self.http.post(task.mcp_url, json=body, headers=headers)
        except TimeoutError as error:
            raise SessionFailure("unavailable", "our MCP server does not answer", alive=True) from error
        except httpx2.HTTPError as error:
            why = broken_failure(error).message
            raise SessionFailure("unavailable", f"our MCP server is not reached: {why}", alive=True) from error
        if not _lists_the_tool(response):
            why = f"status {response.status_code}" if response.status_code != 200 else f"no {ROUTE_TOOL}"
            raise SessionFailure("unavailable", f"our MCP server does not offer the tool: {why}", alive=True)


def program_of(spec: ModelSpec) -> str:
    """The program of a model that is asked by a command line, as it is looked for on PATH."""
    return spec.program or next((name for kind, name in PROGRAMS.items() if kind == spec.kind), spec.kind)


def _lists_the_tool(response: httpx2.Response) -> bool:
    """Whether an answer to tools/list, as JSON or as one event, names it."""
    text = response.text.rpartition("data: ")[2]
    tools = mapping(mapping(json_value(text)).get("result")).get("tools")
    return response.status_code == 200 and any(tool.get("name") == ROUTE_TOOL for tool in items(tools))


def _lay_out(place: Path, command: Command) -> None:
    for directory in ("home", "work"):
        (place / directory).mkdir()
    for name, text in command.files.items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")


def _environment(place: Path) -> dict[str, str]:
    """From scratch: what is secret in our own environment is none of the program's business."""
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": path, "HOME": str(place / "home"), "TMPDIR": str(place), "TERM": "dumb", "LANG": "C.UTF-8"}


def passed_on(names: Sequence[str], mcp_host: str | None) -> dict[str, str]:
    """Those of our variables that the settings let through. No proxy stands between a program and our MCP server."""
    given = {name: os.environ[name] for name in names if os.environ.get(name)}
    if mcp_host is not None and any(name.upper() in _PROXIES for name in given):
        direct = ",".join(filter(None, (given.get("NO_PROXY") or given.get("no_proxy"), mcp_host)))
        given |= {"NO_PROXY": direct, "no_proxy": direct}
    return given


def judged(kind: CliKind, task: SessionTask, ended: Ended) -> Transcript:
    """What a program wrote, or the SessionFailure that it amounts to.

    A call with a good result counts whatever came after it. Without one it is looked for why: it was killed, our tool
    was not to be had or not allowed, or the model could not be asked. A model that simply did not call is no failure.
    """
    transcript = parse_transcript(kind, ended.text)
    transcript = replace(transcript, usage=with_usage(transcript, transcript.usage, task))
    if any(is_ours(call) and call.ok for call in transcript.calls):
        return transcript
    failure = _failure(kind, transcript, ended)
    if failure is None:
        return transcript
    failure.transcript = transcript
    raise failure


def _failure(kind: CliKind, transcript: Transcript, ended: Ended) -> SessionFailure | None:
    if ended.late:
        return SessionFailure("timeout", f"{kind} was not done in time, and was killed")
    if ended.too_much:
        return SessionFailure("garbage", f"{kind} wrote more than it may, and was killed")
    told = "\n".join((*transcript.errors, ended.errors))
    if not transcript.calls and _NO_SERVER.search(told):
        return SessionFailure("unavailable", f"{kind} did not get our MCP server: {_short(told)}", alive=True)
    if any(map(_denied, transcript.calls)):
        return SessionFailure("defect", f"{kind} did not allow the call of {ROUTE_TOOL}")
    if _broke_off(kind, transcript):
        return _cause(kind, transcript, ended)
    return None


def _denied(call: ToolCall) -> bool:
    said = call.result if isinstance(call.result, str) else block_text(call.result)
    return is_ours(call) and call.ok is False and _DENIED.search(said[:300]) is not None


def _broke_off(kind: CliKind, transcript: Transcript) -> bool:
    """Whether the output shows that it failed. Codex also notes as errors what is no more than a warning."""
    return transcript.ended is None or transcript.ended in _BAD_ENDS or (kind != "codex" and transcript.errors != ())


def _cause(kind: CliKind, transcript: Transcript, ended: Ended) -> SessionFailure:
    told = transcript.errors[-1] if transcript.errors else ended.errors
    if not transcript.errors and not transcript.calls and not transcript.text and ended.text.strip():
        return SessionFailure("garbage", f"{kind} wrote nothing that is understood: {_short(ended.text)}")
    found: FailureKind = next((known for known, words in _CAUSES if words.search(told)), "unavailable")
    how = f"exit status {ended.status}" if ended.status >= 0 else f"killed by signal {-ended.status}"
    return SessionFailure(found, f"{kind} broke off ({how}): {_short(told)}")


def _short(text: str) -> str:
    return " ".join(text.split())[:300]
