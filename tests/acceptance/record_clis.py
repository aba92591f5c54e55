"""Record what real LLM command lines print: claude-code, codex, gemini-cli and opencode, against a scripted model.

Run by hand, never by pytest: `unshare -n sh -c 'ip link set lo up && python -m tests.acceptance.record_clis'` with the
programs on PATH (without `unshare` it works as well, and they may try to reach the network). In: nothing; out: the
files of tests/fixtures/cli, which parsers are tested against. Its README says which versions they are of.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import AnyHttpUrl

from switchboard.server.listener import bind
from switchboard.testing.scripted_llm import Call, Garbage, Reply, Rule, Script, ScriptedLlm, Status, When
from tests.routing_server import TOKEN, AnnouncedServer, Tokens

HOME: Final = Path(__file__).parents[1] / "fixtures" / "cli"
SYSTEM: Final = "You are the switchboard. Route the message."
PROMPT: Final = 'Route this message: {"text": "I have a headache"}'
DEADLINE: Final = 150.0
BUTLERS: Final = ("health", "finance")


# The other ends ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ends:
    """What a command line is pointed at."""

    llm: str
    mcp: str
    place: Path
    token: str


@asynccontextmanager
async def mcp_server(recorded: list[dict[str, str]]) -> AsyncIterator[str]:
    """An MCP server with the one tool; what was called under the token is in `recorded`."""
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    url = AnyHttpUrl(f"http://127.0.0.1:{port}")
    auth = AuthSettings(issuer_url=url, resource_server_url=None)
    server = MCPServer("switchboard", version="1", log_level="WARNING", auth=auth, token_verifier=Tokens())

    @server.tool()
    async def route_to_butler(butler: str, prompt: str = "") -> dict[str, str]:
        """Give the message, or a segment of it, to one butler: health or finance."""
        if get_access_token() is None or butler not in BUTLERS:
            raise ToolError(f"there is no butler {butler!r}; choose one of {', '.join(BUTLERS)}")
        recorded.append({"butler": butler, "prompt": prompt})
        return {"status": "accepted", "butler": butler}

    app = server.streamable_http_app(stateless_http=True, json_response=True)
    serving = AnnouncedServer(uvicorn.Config(app, log_config=None, access_log=False))
    task = asyncio.create_task(serving.serve(sockets=[listener]))
    await serving.up.wait()
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        serving.should_exit = True
        await task


# The command lines ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cli:
    """How one program is run. `tool` is the name of our tool as its model sees it."""

    name: str
    program: str
    tool: str
    prepare: Callable[[Ends, bool], tuple[list[str], dict[str, str]]]


def _claude(ends: Ends, allowed: bool) -> tuple[list[str], dict[str, str]]:
    server = {"type": "http", "url": ends.mcp, "headers": {"Authorization": f"Bearer {ends.token}"}}
    config = ends.place / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"switchboard": server}}), encoding="utf-8")
    arguments = ["-p", "--bare", "--model", "scripted-model", "--output-format", "stream-json", "--verbose"]
    arguments += ["--mcp-config", str(config), "--strict-mcp-config", "--tools", ""]
    arguments += ["--allowedTools", "mcp__switchboard__route_to_butler"] if allowed else []
    arguments += ["--permission-mode", "dontAsk", "--no-session-persistence", "--max-turns", "4"]
    quiet = ("NONESSENTIAL_TRAFFIC", "TELEMETRY", "ERROR_REPORTING", "AUTOUPDATER")
    env = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"} | {f"DISABLE_{name}": "1" for name in quiet[1:]}
    env |= {"ANTHROPIC_BASE_URL": ends.llm, "ANTHROPIC_API_KEY": "dummy", "CLAUDE_CODE_MAX_RETRIES": "1"}
    return [*arguments, "--system-prompt", SYSTEM], env | {"IS_SANDBOX": "1"}


_CODEX_OFF: Final = (
    *("plugins", "apps", "shell_tool", "unified_exec", "multi_agent", "goals", "view_image", "hooks"),
    *("image_generation", "browser_use", "computer_use", "unbounded_connection_retries"),
)


def _codex(ends: Ends, allowed: bool) -> tuple[list[str], dict[str, str]]:
    home = ends.place / "codex"
    home.mkdir()
    provider = f'name="scripted",base_url="{ends.llm}/v1",env_key="SCRIPTED_KEY",wire_api="responses"'
    approval = 'default_tools_approval_mode="approve",' if allowed else ""
    server = f'url="{ends.mcp}",bearer_token_env_var="SB_TOKEN",enabled_tools=["route_to_butler"],{approval}'
    settings = {
        "model": '"scripted-model"',
        "model_provider": '"scripted"',
        "approval_policy": '"never"',
        "sandbox_mode": '"read-only"',
        "check_for_update_on_startup": "false",
        "analytics.enabled": "false",
        "history.persistence": '"none"',
        "model_providers.scripted": f"{{{provider},request_max_retries=1,stream_max_retries=1}}",
        "mcp_servers.switchboard": f"{{{server}required=true,startup_timeout_sec=5,tool_timeout_sec=20}}",
    }
    arguments = ["exec", "--json", "--skip-git-repo-check", "--ephemeral", "--color", "never", "--ignore-user-config"]
    arguments += [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
    arguments += [word for feature in _CODEX_OFF for word in ("--disable", feature)]
    return [*arguments, "-"], {"CODEX_HOME": str(home), "SCRIPTED_KEY": "dummy", "SB_TOKEN": ends.token}


def _gemini(ends: Ends, allowed: bool) -> tuple[list[str], dict[str, str]]:
    server = {"httpUrl": ends.mcp, "headers": {"Authorization": f"Bearer {ends.token}"}, "trust": allowed}
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "general": {"maxAttempts": 2, "enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "mcp": {"allowed": ["switchboard"]},
        "mcpServers": {"switchboard": server | {"includeTools": ["route_to_butler"], "timeout": 20000}},
    }
    home = ends.place / "home" / ".gemini"
    home.mkdir(parents=True, exist_ok=True)
    (home / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    if not allowed:
        policies = home / "policies"
        policies.mkdir()
        rule = '[[rule]]\nmcpName = "switchboard"\ntoolName = "route_to_butler"\ndecision = "deny"\npriority = 900\n'
        (policies / "denied.toml").write_text(rule, encoding="utf-8")
    mode = "yolo" if allowed else "default"
    arguments = ["-m", "gemini-2.5-flash", "-o", "stream-json", "--approval-mode", mode]
    arguments += ["--allowed-mcp-server-names", "switchboard", "-e", "none"]
    env = {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": ends.llm, "GEMINI_CLI_NO_RELAUNCH": "true"}
    env |= {"GEMINI_TELEMETRY_ENABLED": "false", "NO_UPDATE_NOTIFIER": "1", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    return arguments, env


def _opencode(ends: Ends, allowed: bool) -> tuple[list[str], dict[str, str]]:
    model = {"name": "m1", "tool_call": True, "limit": {"context": 32000, "output": 4000}}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "scripted", "models": {"m1": model}}
    server = {"type": "remote", "url": ends.mcp, "headers": {"Authorization": f"Bearer {ends.token}"}}
    offered = {"*": False, "switchboard_route_to_butler": True} if allowed else {}
    permission = {"*": "deny", "switchboard_route_to_butler": "allow" if allowed else "ask"}
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": "scripted/m1",
        "small_model": "scripted/m1",
        "enabled_providers": ["scripted"],
        "provider": {"scripted": provider | {"options": {"baseURL": f"{ends.llm}/v1", "apiKey": "dummy"}}},
        "mcp": {"switchboard": server | {"enabled": True, "oauth": False}},
        "tools": offered,
        "permission": permission,
    }
    config = ends.place / "opencode.json"
    config.write_text(json.dumps(settings), encoding="utf-8")
    off = ("MODELS_FETCH", "AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD", "SHARE")
    env = {f"OPENCODE_DISABLE_{name}": "1" for name in off} | {"OPENCODE_CONFIG": str(config)}
    return ["run", "--pure", "--format", "json", "-m", "scripted/m1", "--title", "t"], env


CLIS: Final = (
    Cli("claude-code", "claude", "mcp__switchboard__route_to_butler", _claude),
    Cli("codex", "codex", "mcp__switchboard::route_to_butler", _codex),
    Cli("gemini-cli", "gemini", "mcp_switchboard_route_to_butler", _gemini),
    Cli("opencode", "opencode", "switchboard_route_to_butler", _opencode),
)


# The situations ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """One situation. `replies` are given while no result of a tool is in the request; then `then`."""

    name: str
    replies: Callable[[Cli], Reply]
    then: str = "Routed to health."
    mcp: bool = True
    allowed: bool = True
    token: str = TOKEN


def _calls(*butlers: str) -> Callable[[Cli], Reply]:
    """Each with a segment; whatever is offered, the tool is called by its full name."""

    def reply(cli: Cli) -> Reply:
        calls = (Call(cli.tool, {"butler": butler, "prompt": f"for {butler}"}, exact=True) for butler in butlers)
        return Reply(text="Let me route this.", calls=tuple(calls))

    return reply


CASES: Final = (
    Case("ok", _calls("health")),
    Case("two_calls", _calls("health", "finance"), then="Routed to health and finance."),
    Case("no_call", lambda _: Reply(text="Routed to health.")),
    Case("tool_error", _calls("nobody"), then="There is no such butler."),
    Case("mcp_down", lambda _: Reply(text="I have no tool to route with."), mcp=False),
    Case("bad_token", lambda _: Reply(text="I have no tool to route with."), token="wrong"),
    Case("denied", _calls("health"), allowed=False, then="I was not allowed to."),
    Case("api_error", lambda _: Reply(fault=Status(500))),
    Case("garbage", lambda _: Reply(fault=Garbage())),
)


def script(cli: Cli, case: Case) -> Script:
    """What the model does in this case, however often it is asked."""
    first = Rule(When(results=False), (case.replies(cli),), again=True)
    return Script(rules=(first, Rule(When(results=True), (Reply(text=case.then),), again=True)))


# Running and keeping -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Printed:
    """What came of it. `command` is how it was run; `recorded` is what the MCP server was really told."""

    command: str
    exit: int | None
    stdout: str
    stderr: str
    recorded: Sequence[Mapping[str, str]]
    requests: int


async def run(cli: Cli, case: Case) -> Printed:
    """One session of the program, in a directory of its own, with nothing in its environment but what it needs."""
    recorded: list[dict[str, str]] = []
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clis-", ignore_cleanup_errors=True)))
        llm = await stack.enter_async_context(ScriptedLlm(script(cli, case)))
        mcp = await stack.enter_async_context(mcp_server(recorded)) if case.mcp else "http://127.0.0.1:9/mcp"
        arguments, env = cli.prepare(Ends(llm.url, mcp, place, case.token), case.allowed)
        for directory in ("home", "work"):
            (place / directory).mkdir(exist_ok=True)
        command = shlex.join([*(f"{name}={value}" for name, value in sorted(env.items())), cli.program, *arguments])
        env |= {"PATH": os.environ["PATH"], "HOME": str(place / "home"), "TMPDIR": str(place)}
        env |= {"TERM": "dumb", "LANG": "C.UTF-8"}
        code, stdout, stderr = await _spawn([cli.program, *arguments], env, place / "work")
        command, stdout, stderr = (scrub(text, place) for text in (command, stdout, stderr))
        return Printed(command, code, stdout, stderr, recorded, len(llm.requests))


async def _spawn(command: list[str], env: Mapping[str, str], cwd: Path) -> tuple[int | None, str, str]:
    """The exit code (None: it had to be killed), and what it printed. The prompt comes on stdin."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, env=dict(env), cwd=cwd, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
    talking = asyncio.create_task(process.communicate(PROMPT.encode()))
    await asyncio.wait((talking,), timeout=DEADLINE)
    late = not talking.done()
    if late:
        os.killpg(process.pid, signal.SIGKILL)
    stdout, stderr = await talking
    return None if late else process.returncode, stdout.decode(), stderr.decode()


_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OPENCODE_ID: Final = re.compile(r"\b(ses|prt|msg|call|evt)_[0-9a-zA-Z]{20,}\b")
_SCRUBS: Final = (
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:1"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"), "2026-01-01T00:00:00.000Z"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d+Z"), "2026-01-01T00-00-00-000Z"),
    (re.compile(r"\n    at [^\n]*"), ""),
    (re.compile(r"\x1b\[[\d;]*m"), ""),
    (re.compile(r'"(\w*duration\w*|\w+_ms)": ?[\d.]+'), r'"\1":1'),
    (re.compile(r"(?<![\d.])1[789]\d{11}(?!\d)"), "1767225600000"),
    (re.compile(r'"((?:\w+_)?version)": ?"[\d.]+"'), r'"\1":"0"'),
    (re.compile(r"(?<=\d )\d+ms\b|(?<=\b)\d+(?:\.\d+)?ms\b"), "1ms"),
)


def scrub(text: str, place: Path) -> str:
    """Without what differs from run to run and from machine to machine. The same id stays the same."""
    text = re.sub(rf"(?:/private)?{re.escape(str(place))}", "/scratch", text)
    for home in {Path(shutil.which(cli.program) or "/-").resolve() for cli in CLIS}:
        root = str(home).partition("/node_modules/")[0]
        text = text.replace(root, "/programs") if root != str(home) else text
    for pattern, plain in _SCRUBS:
        text = pattern.sub(plain, text)
    for number, found in enumerate(dict.fromkeys(_UUID.findall(text)), 1):
        text = text.replace(found, f"00000000-0000-4000-8000-{number:012}")
    ids = dict.fromkeys(match[0] for match in _OPENCODE_ID.finditer(text))
    for number, found in enumerate(ids, 1):
        text = text.replace(found, f"{found.partition('_')[0]}_{number:020}")
    return text


def keep(cli: Cli, version: str, case: Case, printed: Printed) -> None:
    """Write `<case>.jsonl` (its stdout), and the rest into `cases.json`."""
    directory = HOME / cli.name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{case.name}.jsonl").write_text(printed.stdout, encoding="utf-8")
    index = directory / "cases.json"
    known = json.loads(index.read_text(encoding="utf-8")) if index.exists() else {"cases": {}}
    known["version"] = version
    known["cases"][case.name] = {
        "command": printed.command,
        "exit": printed.exit,
        "recorded": list(printed.recorded),
        "requests": printed.requests,
        "stderr": printed.stderr[-2000:],
    }
    index.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


async def main(arguments: Sequence[str]) -> int:
    """Record what is asked for (all by default) of what is on PATH."""
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.record_clis")
    parser.add_argument("--cli", choices=[cli.name for cli in CLIS], action="append")
    parser.add_argument("--case", choices=[case.name for case in CASES], action="append")
    chosen = parser.parse_args(arguments)
    for cli in (cli for cli in CLIS if not chosen.cli or cli.name in chosen.cli):
        if shutil.which(cli.program) is None:
            sys.stderr.write(f"{cli.program} is not on PATH\n")
            continue
        _, version, _ = await _spawn([cli.program, "--version"], dict(os.environ), HOME)
        sys.stderr.write(f"{cli.name} {version.strip()}\n")
        for case in (case for case in CASES if not chosen.case or case.name in chosen.case):
            printed = await run(cli, case)
            keep(cli, version.strip(), case, printed)
            sys.stderr.write(f"  {case.name}: exit {printed.exit}, recorded {list(printed.recorded)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
