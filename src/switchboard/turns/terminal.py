"""The terminal of a context. `hosting.py` makes it."""

from __future__ import annotations

from typing import NoReturn

from switchboard.domain.errors import ConfigurationError


class NoTerminal:
    """A `Terminal` without a sandbox, which runs nothing."""

    async def exec(self, command: str) -> NoReturn:  # noqa: ARG002
        """Always raises ConfigurationError."""
        raise ConfigurationError(
            "programs cannot run commands in a sandbox yet; the tools execute_command and bash can"
        )
