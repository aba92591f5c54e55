"""How each command line is run for one session: its words, its environment and the files that it reads. Pure.

`cli.py` calls `command_for` and writes the files into a scratch directory. Every program gets a home that did not exist
before, our MCP server with the one tool and nothing else of its own tools that can be switched off, and none of our
environment. Tokens and keys are in files and variables, never among the words, which everybody on the machine can see.

What the words mean was tried with claude-code 2.1.330, codex 0.169.0, gemini-cli 0.61.0 and opencode 1.18.33.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from switchboard.agents.sessions.port import CliKind, SessionTask
from switchboard.agents.sessions.spec import ModelSpec
from switchboard.core.pipeline.prompt import ROUTE_TOOL
from switchboard.core.pipeline.verdict import SERVER

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
_GEMINI_POLICY: Final = f"""\
[[rule]]
mcpName = "{SERVER}"
toolName = "{ROUTE_TOOL}"
decision = "allow"
priority = 900

[[rule]]
toolName = "*"
decision = "deny"
priority = 800
"""
"""Its own tools, a shell among them, cannot be switched off; so none of them may be called."""
_STARTUP_S: Final = 5
_TOOL_S: Final = 20


@dataclass(frozen=True, slots=True)
class Command:
    """`words` after the program; `env` beside PATH, HOME and the like; `files` by their path in the scratch place."""

    words: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    files: Mapping[str, str] = field(repr=False)
    given: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Way:
    """What a command is made for: the model, its key, and a scratch directory that holds `home` and `work`."""

    spec: ModelSpec
    key: str | None = field(repr=False)
    place: Path


def command_for(kind: CliKind, task: SessionTask, way: Way) -> Command:
    """The command of one session."""
    return _COMMANDS[kind](task, way)


def _headers(task: SessionTask) -> dict[str, str]:
    return {"Authorization": f"Bearer {task.token}", "X-Session-Id": task.request_id}


def _present(env: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in env.items() if value is not None}


def _claude(task: SessionTask, way: Way) -> Command:
    server = {"type": "http", "url": task.mcp_url, "headers": _headers(task)}
    words = ["-p", "--bare", "--model", way.spec.model, "--output-format", "stream-json", "--verbose"]
    words += ["--mcp-config", str(way.place / "mcp.json"), "--strict-mcp-config", "--tools", ""]
    words += ["--allowedTools", f"mcp__{SERVER}__{ROUTE_TOOL}", "--permission-mode", "dontAsk"]
    words += ["--no-session-persistence", "--max-turns", "4", "--system-prompt", task.prompt.instructions]
    quiet = ("TELEMETRY", "ERROR_REPORTING", "AUTOUPDATER")
    env = _present({"ANTHROPIC_BASE_URL": way.spec.base_url, "ANTHROPIC_API_KEY": way.key or "none"})
    env |= {f"DISABLE_{name}": "1" for name in quiet} | {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    env |= {"CLAUDE_CODE_MAX_RETRIES": "1", "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(task.max_tokens), "IS_SANDBOX": "1"}
    return Command(tuple(words), env, {"mcp.json": json.dumps({"mcpServers": {SERVER: server}})}, task.prompt.question)


def _codex(task: SessionTask, way: Way) -> Command:
    base_url = way.spec.base_url or "https://api.openai.com/v1"
    provider = f'name="switchboard",base_url={json.dumps(base_url)},env_key="MODEL_KEY",wire_api="responses"'
    session = f'http_headers={{"X-Session-Id"={json.dumps(task.request_id)}}}'
    server = f'url={json.dumps(task.mcp_url)},bearer_token_env_var="SESSION_TOKEN",{session}'
    server += f',enabled_tools=["{ROUTE_TOOL}"],default_tools_approval_mode="approve",required=true'
    settings = {
        "model": json.dumps(way.spec.model),
        "model_provider": '"switchboard"',
        "approval_policy": '"never"',
        "sandbox_mode": '"read-only"',
        "check_for_update_on_startup": "false",
        "analytics.enabled": "false",
        "history.persistence": '"none"',
        "model_providers.switchboard": f"{{{provider},request_max_retries=1,stream_max_retries=1}}",
        f"mcp_servers.{SERVER}": f"{{{server},startup_timeout_sec={_STARTUP_S},tool_timeout_sec={_TOOL_S}}}",
    }
    words = ["exec", "--json", "--skip-git-repo-check", "--ephemeral", "--color", "never", "--ignore-user-config"]
    words += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    words += [word for feature in _CODEX_OFF for word in ("--disable", feature)]
    env = {"CODEX_HOME": str(way.place / "codex"), "MODEL_KEY": way.key or "none", "SESSION_TOKEN": task.token or ""}
    return Command((*words, "-"), env, {"codex/.keep": ""}, task.prompt.text)


def _gemini(task: SessionTask, way: Way) -> Command:
    server = {"httpUrl": task.mcp_url, "headers": _headers(task), "trust": True, "includeTools": [ROUTE_TOOL]}
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "general": {"maxAttempts": 2, "enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "mcp": {"allowed": [SERVER]},
        "mcpServers": {SERVER: server | {"timeout": _TOOL_S * 1000}},
    }
    words = ["-m", way.spec.model, "-o", "stream-json", "--approval-mode", "default"]
    words += ["--allowed-mcp-server-names", SERVER, "-e", "none"]
    files = {"home/.gemini/settings.json": json.dumps(settings), "home/.gemini/policies/only.toml": _GEMINI_POLICY}
    env = _present({"GOOGLE_GEMINI_BASE_URL": way.spec.base_url}) | {"GEMINI_API_KEY": way.key or "none"}
    env |= {"GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    env |= {"GEMINI_TELEMETRY_ENABLED": "false", "NO_UPDATE_NOTIFIER": "1"}
    return Command(tuple(words), env, files, task.prompt.text)


def _opencode(task: SessionTask, way: Way) -> Command:
    name = f"{SERVER}/{way.spec.model}"
    model = {"name": way.spec.model, "tool_call": True, "limit": {"context": 128_000, "output": task.max_tokens}}
    base_url = way.spec.base_url or "https://api.openai.com/v1"
    provider = {"npm": "@ai-sdk/openai-compatible", "name": SERVER, "models": {way.spec.model: model}}
    server = {"type": "remote", "url": task.mcp_url, "headers": _headers(task), "enabled": True, "oauth": False}
    tool = f"{SERVER}_{ROUTE_TOOL}"
    settings: dict[str, Any] = {
        "autoupdate": False,
        "share": "disabled",
        "model": name,
        "small_model": name,
        "enabled_providers": [SERVER],
        "provider": {SERVER: provider | {"options": {"baseURL": base_url, "apiKey": way.key or "none"}}},
        "mcp": {SERVER: server},
        "tools": {"*": False, tool: True},
        "permission": {"*": "deny", tool: "allow"},
    }
    words = ("run", "--pure", "--format", "json", "-m", name, "--title", "t")
    env = {f"OPENCODE_DISABLE_{name}": "1" for name in _OPENCODE_OFF}
    env |= {"OPENCODE_CONFIG": str(way.place / "opencode.json")}
    return Command(words, env, {"opencode.json": json.dumps(settings)}, task.prompt.text)


_COMMANDS: Final[Mapping[CliKind, Callable[[SessionTask, Way], Command]]] = {
    "claude-code": _claude,
    "codex": _codex,
    "gemini-cli": _gemini,
    "opencode": _opencode,
}
