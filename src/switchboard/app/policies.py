"""Who may write to which endpoint, from the settings and the account files in `channels.d`, which may change.

The server asks before it gives an account to a connector, and every second. In: files; out: policies by channel and
endpoint. Next: `journey/strangers.py`, which applies them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import structlog

from switchboard.app.ownership import read_ours
from switchboard.app.settings import Settings
from switchboard.connectors.kernel.accounts import read_declarations
from switchboard.core.people.strangers import Policy
from switchboard.domain.errors import ConfigurationError

_LOOK_S: Final = 1.0

log = structlog.get_logger(__name__)


class Policies(Mapping[tuple[str, str], Policy]):
    """Policies by channel and endpoint; account files take precedence over the settings.

    A file that is invalid or gone changes nothing: its endpoint stays as restricted as it was.
    """

    def __init__(self, settings: Settings) -> None:
        self._directory = settings.channels_dir
        self._seen: dict[Path, tuple[int, int] | None] = {}
        self._found: dict[tuple[str, str], Policy] = dict(settings.policies)
        self.look()

    def __getitem__(self, account: tuple[str, str]) -> Policy:
        return self._found[account]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def look(self) -> None:
        """Read changed files."""
        for file in self._directory.glob("*.toml"):
            seen = _version_of(file)
            if self._seen.get(file, ()) == seen:
                continue
            self._seen[file] = seen
            try:
                self._take(file)
            except ConfigurationError as error:
                log.warning("account not valid", account=file.stem, why=str(error))

    async def follow(self) -> None:
        """Check every second. Runs until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.look()

    def _take(self, file: Path) -> None:
        found = read_declarations(file, read_ours)
        if found.endpoint is not None and found.strangers is not None:
            channel, _, endpoint = found.endpoint.partition("/")
            self._found[channel, endpoint] = found.strangers


def _version_of(file: Path) -> tuple[int, int] | None:
    """Identifies a version of a file; None if it cannot be read."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
