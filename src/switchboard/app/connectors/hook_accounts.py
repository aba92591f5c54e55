"""The accounts that accept webhooks, by the present files in `channels_dir`.

`hooks.py` asks for every webhook. Next: `connectors/kernel/accounts.py`, which reads a file.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from switchboard.app.access import Principal
from switchboard.app.ownership import read_ours
from switchboard.connectors.kernel.accounts import Configured, pause_file, read_account
from switchboard.domain.errors import ConfigurationError, NotFound, Unavailable
from switchboard.ports.connector import Hook

log = structlog.get_logger(__name__)

_FRESH_S: Final = 2.0
"""Seconds after which the files of an account are read again."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")


class HookAccount(Struct, frozen=True):
    """An account that accepts webhooks, as its files were until `fresh_until` (monotonic s)."""

    configured: Configured
    hook: Hook
    fresh_until: float

    @property
    def name(self) -> str:
        """The name in its path."""
        return self.configured.account.name

    @property
    def caller(self) -> Principal:
        """The submitter of its messages: a connector bound to it."""
        return Principal("connector", f"hook {self.name}", self.configured.manifest.channel, self.hook.endpoint)


class HookAccounts:
    """The accounts of a directory; if a file becomes invalid, the account stays as it was."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._clock = clock
        self._known: dict[str, HookAccount] = {}
        self._unusable: dict[str, float] = {}

    def find(self, name: str) -> HookAccount:
        """The account. Raises NotFound; Unavailable if it is paused, or its file has never been valid."""
        known = self._known.get(name)
        if known is not None and self._clock() < known.fresh_until:
            return known
        file = self._directory / f"{name}.toml"
        if not _NAME.fullmatch(name) or not file.exists():
            self._known.pop(name, None)
            raise _missing(name)
        if pause_file(file).exists():
            raise Unavailable(f"the account {name} is paused")
        if known is None and self._clock() < self._unusable.get(name, 0.0):
            raise _unusable(name)
        self._known[name] = found = self._read(file, known)
        return found

    def _read(self, file: Path, before: HookAccount | None) -> HookAccount:
        until = self._clock() + _FRESH_S
        try:
            account = read_account(file, read_ours)
        except ConfigurationError as error:
            log.warning("the file of an account cannot be used", account=file.stem, why=error.message)
            if before is None:
                self._unusable[file.stem] = until
                raise _unusable(file.stem) from error
            return replace(before, fresh_until=until)
        hook = account.manifest.hook(account.account) if account.manifest.hook else None
        if hook is None:
            raise _missing(file.stem)
        return HookAccount(account, hook, until)


def _unusable(name: str) -> Unavailable:
    return Unavailable(f"the account {name} cannot be used; the log says why")


def _missing(name: str) -> NotFound:
    return NotFound(f"there is no account {name[:64]!r} that takes webhooks")
