"""The settings of one MCP server: `[[mcp_servers]]`.

Read by `app/settings.py`, used by `mcp_server.py`. It does not import the SDK.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, field

from switchboard.distribution import OUR_VARIABLES
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.numbers import Positive
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
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,60}$")] | None = None
    off: bool = False


class ServerSpec(Struct, frozen=True):
    """One server. Its program gets `env`, those of our variables that `pass_env` names, and the content of
    `secret_files`.

    `butlers` and `teams` may use it (`*`: all). In seconds: `start_timeout` to start it, `timeout` for a call, `idle`
    until it is ended if nobody calls it.
    """

    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,29}$")]
    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    butlers: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    secret_files: Mapping[str, Path] = field(default_factory=dict)
    cwd: Path | None = None
    user: str | None = None
    tools: Mapping[str, DeclaredTool] = field(default_factory=dict)
    start_timeout: Positive = 20.0
    timeout: Positive = 60.0
    idle: Positive = 600.0

    def __repr__(self) -> str:
        """Without `env`, which may hold secrets."""
        return f"ServerSpec({self.name!r}, {self.command!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The same where rich prints it."""
        return [("name", self.name), ("command", self.command)]

    def check(self) -> None:
        """Raises ValueError if it is for nobody, or would get a secret of ours."""
        if not self.butlers and not self.teams:
            raise ValueError('say who may use it: butlers = ["System1/clerk"], teams = ["house"], or ["*"] for all')
        if ours := [name for name in self.pass_env if name.startswith(OUR_VARIABLES)]:
            raise ValueError(f"pass_env: {ours[0]} is ours, and no program gets it")

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
