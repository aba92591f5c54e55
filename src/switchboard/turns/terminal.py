"""The terminal of a context. `hosting.py` makes it."""

from __future__ import annotations

from typing import NoReturn

from switchboard.domain.errors import ConfigurationError


class NoTerminal:
    """`Terminal` where there is no sandbox: nothing is run outside of one."""

    async def exec(self, command: str) -> NoReturn:  # noqa: ARG002
        """Always raises ConfigurationError."""
        raise ConfigurationError("commands are not available: this release has no sandbox to run them in")
