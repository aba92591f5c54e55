"""The settings of one MCP server: `[[mcp_servers]]`.

Made by `app/settings.py`, read by `mcp_server.py`. It does not import the SDK.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec import Struct

from switchboard.domain.errors import ConfigurationError
from switchboard.domain.routing import Member
from switchboard.ports.effects import Effect
from switchboard.ports.tools import Risk
from switchboard.transport.kept import LongProgram
from switchboard.transport.programs import account_of, environment_for

ALL: Final = "*"
_SHORTEST_SECRET: Final = 4


class DeclaredTool(Struct, frozen=True):
    """The operator's settings of a tool, which override its server's. `name`: a new name; `off`: never offer it."""

    effect: Effect = "effectful"
    risk: Risk = "medium"
    name: str | None = None
    off: bool = False


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One server. Its program gets `env`, those of our variables that `pass_env` names, and the content of
    `secret_files`.

    `butlers` and `teams` may use it (`*`: all). In seconds: `start_timeout` to start it, `timeout` for a call, `idle`
    until it is ended if nobody calls it.
    """

    name: str
    command: tuple[str, ...]
    butlers: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    pass_env: tuple[str, ...] = ()
    secret_files: Mapping[str, Path] = field(default_factory=dict)
    cwd: Path | None = None
    user: str | None = None
    tools: Mapping[str, DeclaredTool] = field(default_factory=dict)
    start_timeout: float = 20.0
    timeout: float = 60.0
    idle: float = 600.0

    def serves(self, member: Member) -> bool:
        """Whether a butler may use it."""
        return bool({ALL, member.system_id} & {*self.butlers} or {ALL, member.team_id} & {*self.teams})

    @property
    def renamed(self) -> dict[str, str]:
        """The operator's names of tools."""
        return {tool: said.name for tool, said in self.tools.items() if said.name is not None}

    def program(self) -> LongProgram:
        """The program to run, with its secrets. Raises ConfigurationError for missing ones."""
        try:
            account = account_of(self.user) if self.user else None
        except ValueError as error:
            raise ConfigurationError(f"user: {error}") from error
        env = {**environment_for(account), **self.env, **self.secrets()}
        return LongProgram(self.command, env, self.cwd, account)

    def secrets(self) -> dict[str, str]:
        """The secret variables. Raises ConfigurationError for missing ones."""
        missing = [name for name in self.pass_env if name not in os.environ]
        if missing:
            raise ConfigurationError(
                f"pass_env: the variable {missing[0]} is not set in the environment of this process"
            )
        read = {name: _content(file) for name, file in self.secret_files.items()}
        return {name: os.environ[name] for name in self.pass_env} | read

    def redact_output(self, text: str) -> str:
        """Output of the program without the secrets that it was given."""
        try:
            values = [*self.secrets().values(), *self.env.values()]
        except ConfigurationError:
            return ""
        for value in sorted(values, key=len, reverse=True):
            if len(value) >= _SHORTEST_SECRET:
                text = text.replace(value, "***")
        return text


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"secret_files: {file} cannot be read: {error}") from error
