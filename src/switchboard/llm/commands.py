"""Builds the commands of command-line programs: arguments, environment and input files. Pure.

`cli.py` calls `command_for`, and `run_command_for` for a whole turn, and writes the files into a scratch directory.
Every program gets a new home directory (but for a login), our MCP server with the tools of the request, none of its own
tools that can be disabled, no settings, and none of our environment. Tokens and keys are in files and variables, never
in arguments, which everybody on the machine can see.

The arguments were tested with claude-code 2.1.330, codex 0.169.0, gemini-cli 0.61.0 and opencode 1.18.33.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from switchboard.domain.json_values import JsonObject
from switchboard.domain.llm import Request, ToolServer
from switchboard.llm.port import CliKind
from switchboard.llm.spec import ModelSpec

PROGRAMS: Final[Mapping[CliKind, str]] = {
    "claude-code": "claude",
    "codex": "codex",
    "gemini-cli": "gemini",
    "opencode": "opencode",
}
_CODEX_OFF: Final = (
    *("plugins", "apps", "shell_tool", "unified_exec", "multi_agent", "goals", "view_image", "hooks"),
    *("image_generation", "browser_use", "computer_use", "unbounded_connection_retries"),
)
_OPENCODE_OFF: Final = ("MODELS_FETCH", "AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD", "SHARE")
_GEMINI_ALLOWED: Final = """\
[[rule]]
mcpName = "{server}"
toolName = "{tool}"
decision = "allow"
priority = 900

"""
_GEMINI_DENIED: Final = """\
[[rule]]
toolName = "*"
decision = "deny"
priority = 800
"""
"""Its own tools, a shell among them, cannot be switched off; so none of them may be called."""
RELAYED: Final = "switchboard"
"""The name of the MCP server in a turn."""
_MCP_FILE: Final = "mcp.json"
_SYSTEM_FILE: Final = "system.txt"
_STARTUP_S: Final = 5
_TOOL_S: Final = 20


@dataclass(frozen=True, slots=True)
class CliCommand:
    """`words`: its arguments; `env`: besides PATH, HOME and the like; `files` by path in the scratch directory.

    `links`: files elsewhere, by path in that directory.
    """

    words: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    files: Mapping[str, str] = field(repr=False)
    given: str = field(repr=False)
    links: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Way:
    """What a command is built from: the model, its key, and a scratch directory that holds `home` and `work`.

    `login`: the variables by which the program finds the login of our user; None if it has a key instead.
    """

    spec: ModelSpec
    key: str | None = field(repr=False)
    place: Path
    login: Mapping[str, str] | None = None


def command_for(kind: CliKind, request: Request, server: ToolServer, way: Way) -> CliCommand:
    """The command of one session, with the tools of the request at this server."""
    return _COMMANDS[kind](request, server, way)


def run_command_for(kind: CliKind, request: Request, relay: Sequence[str], way: Way) -> CliCommand:
    """The command of a whole turn; `relay` is the command of the MCP server with the tools. Only of `RUNNERS`."""
    return _claude_run(request, relay, way) if kind == "claude-code" else _codex_run(request, relay, way)


def headers_of(request: Request, server: ToolServer) -> dict[str, str]:
    """The headers of a request to the tool server."""
    return {"Authorization": f"Bearer {server.token}", "X-Session-Id": request.key}


def _names(request: Request) -> list[str]:
    return [tool.name for tool in request.tools]


def _present(env: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in env.items() if value is not None}


def _claude(request: Request, server: ToolServer, way: Way) -> CliCommand:
    at = {"type": "http", "url": server.url, "headers": headers_of(request, server)}
    words = (*_claude_words(request, server.name, way), "--max-turns", "4", "--system-prompt", request.system)
    files = {_MCP_FILE: json.dumps({"mcpServers": {server.name: at}})}
    return CliCommand(words, _claude_env(request, way), files, request.said)


def _claude_run(request: Request, relay: Sequence[str], way: Way) -> CliCommand:
    servers = {RELAYED: {"type": "stdio", "command": relay[0], "args": relay[1:]}} if request.tools else {}
    words = [*_claude_words(request, RELAYED, way), "--include-partial-messages", "--max-turns", str(request.rounds)]
    words += ["--system-prompt-file", str(way.place / _SYSTEM_FILE)]
    env = _claude_env(request, way) | {"MCP_TOOL_TIMEOUT": str(round(request.deadline * 1000)), "MCP_TIMEOUT": "60000"}
    files = {_MCP_FILE: json.dumps({"mcpServers": servers}), _SYSTEM_FILE: request.system}
    return CliCommand(tuple(words), env, files, request.said)


def _claude_words(request: Request, server: str, way: Way) -> tuple[str, ...]:
    alone = ("--bare",) if way.login is None else ("--setting-sources", "", "--disable-slash-commands")
    allowed = ",".join(f"mcp__{server}__{name}" for name in _names(request))
    words = ["-p", *alone, "--model", way.spec.model, "--output-format", "stream-json", "--verbose"]
    words += ["--mcp-config", str(way.place / _MCP_FILE), "--strict-mcp-config", "--tools", ""]
    words += ["--allowedTools", allowed] if allowed else []
    return (*words, "--permission-mode", "dontAsk", "--no-session-persistence")


def _claude_env(request: Request, way: Way) -> dict[str, str]:
    quiet = ("TELEMETRY", "ERROR_REPORTING", "AUTOUPDATER")
    env = _present({"ANTHROPIC_BASE_URL": way.spec.base_url})
    env |= {"ANTHROPIC_API_KEY": way.key or "none"} if way.login is None else way.login
    env |= {f"DISABLE_{name}": "1" for name in quiet} | {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    env |= {"ENABLE_TOOL_SEARCH": "false", "XDG_CACHE_HOME": str(way.place / "cache")}
    env |= {"CLAUDE_CODE_MAX_RETRIES": "1", "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(request.max_tokens), "IS_SANDBOX": "1"}
    return env


def _codex(request: Request, server: ToolServer, way: Way) -> CliCommand:
    session = f'http_headers={{"X-Session-Id"={json.dumps(request.key)}}}'
    at = f'url={json.dumps(server.url)},bearer_token_env_var="SESSION_TOKEN",{session},{_codex_server(request)}'
    at += f",startup_timeout_sec={_STARTUP_S},tool_timeout_sec={_TOOL_S}"
    words = _codex_words(way, {f"mcp_servers.{server.name}": f"{{{at}}}"})
    env = _codex_env(way) | {"SESSION_TOKEN": server.token}
    return CliCommand(words, env, {"codex/.keep": ""}, request.text, _codex_links(way))


def _codex_run(request: Request, relay: Sequence[str], way: Way) -> CliCommand:
    at = f"command={json.dumps(relay[0])},args={json.dumps(relay[1:])},{_codex_server(request)}"
    at += f",startup_timeout_sec=60,tool_timeout_sec={round(request.deadline)}"
    more = {"model_instructions_file": json.dumps(str(way.place / _SYSTEM_FILE))}
    more |= {f"mcp_servers.{RELAYED}": f"{{{at}}}"} if request.tools else {}
    files = {"codex/.keep": "", _SYSTEM_FILE: request.system}
    return CliCommand(_codex_words(way, more), _codex_env(way), files, request.said, _codex_links(way))


def _codex_server(request: Request) -> str:
    return f'enabled_tools={json.dumps(_names(request))},default_tools_approval_mode="approve",required=true'


def _codex_words(way: Way, more: Mapping[str, str]) -> tuple[str, ...]:
    settings = {
        "model": json.dumps(way.spec.model),
        "approval_policy": '"never"',
        "sandbox_mode": '"read-only"',
        "check_for_update_on_startup": "false",
        "analytics.enabled": "false",
        "history.persistence": '"none"',
        "web_search": '"disabled"',
        "project_doc_max_bytes": "0",
        "skills.include_instructions": "false",
        "include_environment_context": "false",
        "include_permissions_instructions": "false",
        "include_collaboration_mode_instructions": "false",
        **_codex_provider(way),
        **more,
    }
    words = ["exec", "--json", "--skip-git-repo-check", "--ephemeral", "--color", "never", "--ignore-user-config"]
    words += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    words += [word for feature in _CODEX_OFF for word in ("--disable", feature)]
    return (*words, "-")


def _codex_provider(way: Way) -> dict[str, str]:
    if way.login is not None and way.spec.base_url is None:
        return {}  # the one to which the login belongs
    base_url = way.spec.base_url or "https://api.openai.com/v1"
    who = 'env_key="MODEL_KEY"' if way.login is None else "requires_openai_auth=true"
    provider = f'name="switchboard",base_url={json.dumps(base_url)},{who},wire_api="responses"'
    return {
        "model_provider": '"switchboard"',
        "model_providers.switchboard": f"{{{provider},request_max_retries=1,stream_max_retries=1}}",
    }


def _codex_env(way: Way) -> dict[str, str]:
    key = {"MODEL_KEY": way.key or "none"} if way.login is None else way.login
    return {**key, "CODEX_HOME": str(way.place / "codex")}


def _codex_links(way: Way) -> dict[str, str]:
    """Link only the login from the user's directory: the program would also read `AGENTS.md` and everything else.

    The lock is for processes that renew the login at the same time.
    """
    names = () if way.login is None else ("auth.json", "auth.lock")
    return {f"codex/{name}": f"{(way.login or {})['CODEX_HOME']}/{name}" for name in names}


def _gemini(request: Request, server: ToolServer, way: Way) -> CliCommand:
    names = _names(request)
    at = {"httpUrl": server.url, "headers": headers_of(request, server), "trust": True, "includeTools": names}
    allowed = (_GEMINI_ALLOWED.format(server=server.name, tool=name) for name in names)
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "general": {"maxAttempts": 2, "enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "mcp": {"allowed": [server.name]},
        "mcpServers": {server.name: at | {"timeout": _TOOL_S * 1000}},
    }
    words = ["-m", way.spec.model, "-o", "stream-json", "--approval-mode", "default"]
    words += ["--allowed-mcp-server-names", server.name, "-e", "none"]
    files = {"home/.gemini/settings.json": json.dumps(settings)}
    files |= {"home/.gemini/policies/only.toml": "".join((*allowed, _GEMINI_DENIED))}
    env = _present({"GOOGLE_GEMINI_BASE_URL": way.spec.base_url}) | {"GEMINI_API_KEY": way.key or "none"}
    env |= {"GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    env |= {"GEMINI_TELEMETRY_ENABLED": "false", "NO_UPDATE_NOTIFIER": "1"}
    return CliCommand(tuple(words), env, files, request.text)


def _opencode(request: Request, server: ToolServer, way: Way) -> CliCommand:
    name = f"switchboard/{way.spec.model}"
    model = {"name": way.spec.model, "tool_call": True, "limit": {"context": 128_000, "output": request.max_tokens}}
    base_url = way.spec.base_url or "https://api.openai.com/v1"
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "switchboard", "models": {way.spec.model: model}}
    at = {"type": "remote", "url": server.url, "headers": headers_of(request, server), "enabled": True, "oauth": False}
    tools = [f"{server.name}_{tool}" for tool in _names(request)]
    settings: JsonObject = {
        "autoupdate": False,
        "share": "disabled",
        "model": name,
        "small_model": name,
        "enabled_providers": ["switchboard"],
        "provider": {"switchboard": provider | {"options": {"baseURL": base_url, "apiKey": way.key or "none"}}},
        "mcp": {server.name: at},
        "tools": {"*": False, **dict.fromkeys(tools, True)},
        "permission": {"*": "deny", **dict.fromkeys(tools, "allow")},
    }
    words = ("run", "--pure", "--format", "json", "-m", name, "--title", "t")
    env = {f"OPENCODE_DISABLE_{name}": "1" for name in _OPENCODE_OFF}
    env |= {"OPENCODE_CONFIG": str(way.place / "opencode.json")}
    return CliCommand(words, env, {"opencode.json": json.dumps(settings)}, request.text)


_COMMANDS: Final[Mapping[CliKind, Callable[[Request, ToolServer, Way], CliCommand]]] = {
    "claude-code": _claude,
    "codex": _codex,
    "gemini-cli": _gemini,
    "opencode": _opencode,
}
