"""A session with a command line: claude-code, codex, gemini-cli or opencode, and the request's tools at our server.

`build.py` makes it; `dispatch.py` calls `run`. The command comes from `commands.py`, `programs.py` runs it, and
`outputs.py` reads its output. Exit codes are not trusted: only the output counts.

Before any cost arises, our MCP server is asked under the session's token whether it offers the tool: a program without
it continues as if nothing had happened, and two of the four do not even report it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx2

from switchboard.core.replies import is_call_of
from switchboard.core.text.lenient import block_text, items, json_value, mapping, sanitize_error
from switchboard.domain.llm import FailureKind, ModelFailure, OnDelta, Reply, Request, ToolCall, ToolServer
from switchboard.llm.commands import PROGRAMS, CliCommand, Way, command_for, headers_of
from switchboard.llm.outputs import read_output
from switchboard.llm.port import CliKind, tell, with_usage
from switchboard.llm.spec import ModelSpec
from switchboard.llm.web import broken_failure
from switchboard.transport.programs import Program, ProgramExit, run_program
from switchboard.transport.scratch import scratch

_SHORTEST_SECRET: Final = 6
"""What is shorter also stands elsewhere in a message."""
_PROTOCOL: Final = "2025-11-25"
_PROXIES: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})
_DENIED: Final = re.compile(
    r"permission (?:to use|denied)|requires approval|rejected permission|denied by policy|tool_not_registered"
    r"|^Tool \S+ not found|not allowed",
    re.IGNORECASE,
)
NO_SERVER: Final = re.compile(r"MCP server \S+: |required MCP servers failed|MCP issues detected", re.IGNORECASE)
_BAD_ENDS: Final = frozenset({"turn.failed", "error", "error_max_turns", "error_during_execution"})
_CAUSES: Final[tuple[tuple[FailureKind, re.Pattern[str]], ...]] = (
    ("context_too_long", re.compile(r"prompt is too long|context (?:window|length)|too many tokens", re.IGNORECASE)),
    (
        "auth",
        re.compile(
            r"(?:status|error|code)\W{1,3}401\b|invalid.{0,10}api.?key|authentication|unauthorized|log(?:ged)? ?in\b",
            re.IGNORECASE,
        ),
    ),
    ("rate_limited", re.compile(r"\b429\b|rate.?limit|quota|RESOURCE_EXHAUSTED", re.IGNORECASE)),
    ("garbage", re.compile(r"JSON|could not parse|unterminated|stream closed before", re.IGNORECASE)),
    ("refused", re.compile(r"usage policy|content.?filter|safety", re.IGNORECASE)),
)


@dataclass(frozen=True, slots=True)
class CliSession:
    """One model through one command line. `guard` precedes the program's name; `http` asks our MCP server."""

    spec: ModelSpec
    kind: CliKind
    api_key: str | None = field(repr=False)
    http: httpx2.AsyncClient
    guard: Sequence[str] = ()
    grace: float = 3.0
    login: Mapping[str, str] | None = None
    """The variables by which the program finds the login of our user, if it has one instead of a key."""

    async def run(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Run the program once; the reply is reported when it is complete.

        Raises ModelFailure, with the output so far.
        """
        with self.redact_failures():
            return await self._run(request, on_delta)

    @contextlib.contextmanager
    def redact_failures(self) -> Iterator[None]:
        """A failure for use outside, without any of the secrets that the program was given."""
        try:
            yield
        except ModelFailure as failure:
            secrets = [self.api_key or "", *passed_on(self.spec.pass_env, None).values()]
            for secret in sorted(secrets, key=len, reverse=True):
                if len(secret) >= _SHORTEST_SECRET:
                    failure.message = failure.message.replace(secret, "***")
                    errors = tuple(error.replace(secret, "***") for error in failure.reply.errors)
                    failure.reply = replace(failure.reply, errors=errors)
            failure.args = (failure.message,)
            raise

    async def _run(self, request: Request, on_delta: OnDelta | None) -> Reply:
        began = asyncio.get_running_loop().time()
        server = await self._check_tool_server(request)
        async with scratch("session") as place:
            command = command_for(self.kind, request, server, Way(self.spec, self.api_key, place, self.login))
            lay_out(place, command)
            left = max(0.0, request.deadline - (asyncio.get_running_loop().time() - began))
            ended = await self._execute(place, command, left, urlsplit(server.url).hostname)
        reply = reply_of_exit(self.kind, request, ended)
        tell(reply, on_delta)
        return reply

    async def _execute(self, place: Path, command: CliCommand, left: float, mcp_host: str | None) -> ProgramExit:
        program = program_of(self.spec)
        path = shutil.which(program)
        if path is None:
            raise ModelFailure("defect", f"{program} is not installed, or not on PATH")
        env = {**environment(place), **passed_on(self.spec.pass_env, mcp_host), **command.env}
        argv = (*self.guard, path, *command.words)
        try:
            return await run_program(
                Program(argv, env, place / "work", command.given.encode("utf-8", "replace"), left), self.grace
            )
        except OSError as error:  # not executable, argument too long, or no memory or processes
            raise ModelFailure("defect", f"{program} could not be started: {error}") from error

    async def _check_tool_server(self, request: Request) -> ToolServer:
        """The MCP server for the request. Raises ModelFailure unless it offers the tools under the session's token."""
        server = request.server
        if server is None:
            raise ModelFailure("defect", f"{self.kind} needs an MCP server and a token of its own")
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": _PROTOCOL}
        try:
            async with asyncio.timeout(min(request.deadline, 10.0)):
                response = await self.http.post(server.url, json=body, headers=headers | headers_of(request, server))
        except TimeoutError as error:
            raise ModelFailure("unavailable", "Switchboard's MCP server does not answer", alive=True) from error
        except httpx2.HTTPError as error:
            why = broken_failure(error).message
            raise ModelFailure(
                "unavailable", f"Switchboard's MCP server cannot be reached: {why}", alive=True
            ) from error
        missing = {tool.name for tool in request.tools} - _listed_names(response)
        if missing or response.status_code != 200:
            why = (
                f"status {response.status_code}" if response.status_code != 200 else f"no {', '.join(sorted(missing))}"
            )
            raise ModelFailure("unavailable", f"Switchboard's MCP server does not offer the tool: {why}", alive=True)
        return server


def program_of(spec: ModelSpec) -> str:
    """The command-line program for a model, as looked up on PATH."""
    return spec.program or next((name for kind, name in PROGRAMS.items() if kind == spec.kind), spec.kind)


def _listed_names(response: httpx2.Response) -> set[object]:
    """The names in an answer to tools/list, sent as JSON or as one event."""
    text = response.text.rpartition("data: ")[2]
    return {tool.get("name") for tool in items(mapping(mapping(json_value(text)).get("result")).get("tools"))}


def lay_out(place: Path, command: CliCommand) -> None:
    """Write the files of a command into its scratch directory."""
    for directory in ("home", "work"):
        (place / directory).mkdir()
    for name, text in command.files.items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
    for name, target in command.links.items():
        (place / name).symlink_to(target)


def environment(place: Path) -> dict[str, str]:
    """Built from scratch: the program must not see the secrets in our own environment."""
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": path, "HOME": str(place / "home"), "TMPDIR": str(place), "TERM": "dumb", "LANG": "C.UTF-8"}


def passed_on(names: Sequence[str], mcp_host: str | None) -> dict[str, str]:
    """The variables of ours that the settings pass on. No proxy is used between a program and our MCP server."""
    given = {name: os.environ[name] for name in names if os.environ.get(name)}
    if mcp_host is not None and any(name.upper() in _PROXIES for name in given):
        direct = ",".join(filter(None, (given.get("NO_PROXY") or given.get("no_proxy"), mcp_host)))
        given |= {"NO_PROXY": direct, "no_proxy": direct}
    return given


def reply_of_exit(kind: CliKind, request: Request, ended: ProgramExit) -> Reply:
    """The reply in a program's output, or the corresponding ModelFailure.

    A call with a good result counts, whatever follows it. Without one, the cause is determined: the program was killed,
    our tool was missing or not allowed, or the model could not be asked. A model that simply made no call is not a
    failure.
    """
    reply = with_usage(read_output(kind, ended.text), request)
    if any(call.ok and _is_offered(call, request) for call in reply.calls):
        return reply
    failure = _failure(kind, request, reply, ended)
    if failure is None:
        return reply
    failure.reply = reply
    raise failure


def _is_offered(call: ToolCall, request: Request) -> bool:
    server = request.server
    return server is not None and any(is_call_of(call, tool.name, server.name) for tool in request.tools)


def _failure(kind: CliKind, request: Request, reply: Reply, ended: ProgramExit) -> ModelFailure | None:
    if ended.late:
        return ModelFailure("timeout", f"{kind} was not done in time, and was killed")
    if ended.too_much:
        return ModelFailure("garbage", f"{kind} wrote more than it may, and was killed")
    told = "\n".join((*reply.errors, ended.errors))
    if not reply.calls and NO_SERVER.search(told):
        return ModelFailure("unavailable", f"{kind} did not get our MCP server: {short(told)}", alive=True)
    denied = next((call for call in reply.calls if _is_offered(call, request) and _was_denied(call)), None)
    if denied is not None:
        return ModelFailure("defect", f"{kind} did not allow the call of {denied.name}")
    return cause(kind, reply, ended) if broke_off(kind, reply) else None


def _was_denied(call: ToolCall) -> bool:
    said = call.result if isinstance(call.result, str) else block_text(call.result)
    return call.ok is False and _DENIED.search(said[:300]) is not None


def broke_off(kind: CliKind, reply: Reply) -> bool:
    """Whether the output shows that it failed. Codex also reports mere warnings as errors."""
    return reply.stop_reason is None or reply.stop_reason in _BAD_ENDS or (kind != "codex" and reply.errors != ())


def cause(kind: CliKind, reply: Reply, ended: ProgramExit) -> ModelFailure:
    """Why a program failed."""
    told = reply.errors[-1] if reply.errors else ended.errors
    if not reply.errors and not reply.calls and not reply.text and ended.text.strip():
        return ModelFailure("garbage", f"{kind} wrote nothing that is understood: {short(ended.text)}")
    found: FailureKind = next((known for known, words in _CAUSES if words.search(told)), "unavailable")
    how = f"exit status {ended.status}" if ended.status >= 0 else f"killed by signal {-ended.status}"
    return ModelFailure(found, f"{kind} broke off ({how}): {short(told)}")


def short(text: str) -> str:
    """The beginning of a program's output, for a message."""
    return sanitize_error(text)[:300]
