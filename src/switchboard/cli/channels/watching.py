"""Watches the accounts of `channels.d`, which may change while `switchboard up` runs.

`serving.py` calls it. In: a directory. One supervised process or task per account runs, and is restarted when the
account's file or a file of its secrets changes. An invalid file changes nothing, and the log says why. Next:
`app/supervisor.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from switchboard.app.ownership import read_ours
from switchboard.app.settings import TOO_MANY_INSIDE
from switchboard.connectors.kernel.accounts import pause_file, read_account, read_declarations
from switchboard.domain.errors import ConfigurationError
from switchboard.tasks import wait_at_most

LOOK_S: Final = 1.0
"""Seconds between two looks at the directory."""

log = structlog.get_logger(__name__)

Start = Callable[[str, asyncio.Event], Coroutine[object, object, None]]
"""Serves the account of this name until the event is set."""
_Seen = tuple[tuple[Path, int, int, int], ...]
"""Identifies a version of files: path, inode, size and time of the last change."""


async def supervise_accounts(directory: Path, start: Start, stop: asyncio.Event, most: int | None = None) -> None:
    """Serve every account that is valid and not paused, until `stop`; `most`: of them only so many at a time.

    Those that run go on; otherwise the first by name are served.
    """
    accounts: dict[str, _Served] = {}
    while not stop.is_set():
        _look_for_changes(directory, accounts, start, most)
        await wait_at_most(LOOK_S, stop)
    for one in accounts.values():
        one.end()
    await asyncio.gather(*(one.wait_for_end() for one in accounts.values()))


class _Served:
    """One account; a process is started after its predecessor has ended."""

    def __init__(self, name: str, start: Start) -> None:
        self._name, self._start = name, start
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._files: tuple[Path, ...] = ()
        self._seen: _Seen = ()
        self._refused = False

    def look(self, file: Path, *, full: bool) -> None:
        """Serve it as the file says, unless that is already the case; `full`: no further account may run."""
        seen = _versions_of((file, *self._files))
        if seen == self._seen and not self._has_broken() and (full or not self._refused):
            return
        try:
            files = read_declarations(file, read_ours).secret_files
            connects = read_account(file, read_ours).manifest.connects
        except ConfigurationError as error:
            self._seen, self._refused = seen, False
            kept = "it runs on as it was" if self.runs() else "it is not connected"
            log.warning("account not valid", account=self._name, why=error.message, so=kept)
            return
        self._files, self._seen = files, _versions_of((file, *files))
        self._refused = connects and full and not self.runs()
        if self._refused:
            log.error("account not connected", account=self._name, why=TOO_MANY_INSIDE)
            return
        self.end()
        if not connects:
            return
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._serve_account(self._task, self._stop))

    def end(self) -> None:
        """Tell its process to end."""
        self._stop.set()

    def disconnect_account(self) -> None:
        """Its file no longer exists, or it is paused."""
        if self.runs():
            log.info("account disconnected", account=self._name)
        self.end()
        self._files, self._seen = (), ()

    def runs(self) -> bool:
        """Whether it is served, or will be when its predecessor has ended."""
        return self._task is not None and not self._stop.is_set()

    def has_not_ended(self) -> bool:
        """Whether anything of it still runs, although it may have been told to end."""
        return self._task is not None and not self._task.done()

    async def wait_for_end(self) -> None:
        """Wait for the end of its process."""
        if self._task is not None:
            await self._task

    def _has_broken(self) -> bool:
        """Its supervisor ended on its own, as when memory ran out."""
        return self._task is not None and self._task.done() and not self._stop.is_set()

    async def _serve_account(self, before: asyncio.Task[None] | None, stop: asyncio.Event) -> None:
        if before is not None:
            await asyncio.wait([before])
        if not stop.is_set():
            await self._start(self._name, stop)


def is_there(file: Path) -> bool:
    """Whether the file contains an account that is not paused."""
    return file.exists() and not pause_file(file).exists()


def _look_for_changes(directory: Path, accounts: dict[str, _Served], start: Start, most: int | None) -> None:
    there = {file.stem: file for file in sorted(directory.glob("*.toml")) if is_there(file)}
    for name in accounts.keys() - there.keys():
        accounts[name].disconnect_account()
    for name, file in there.items():
        one = accounts.setdefault(name, _Served(name, start))
        full = most is not None and sum(other.has_not_ended() for other in accounts.values()) >= most
        try:
            one.look(file, full=full)
        except Exception as error:  # whatever a plug-in or a file does: the server and other accounts go on
            log.exception("account not looked at", account=name, why=str(error))


def _versions_of(files: tuple[Path, ...]) -> _Seen:
    found = []
    for file in files:
        with suppress(OSError, ValueError):
            status = file.stat()
            found.append((file, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)
