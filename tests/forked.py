"""Processes that are forked from one that has imported everything: real ones to be killed, without a second of imports.

Fixture `forks` (session): `start` runs `main(arguments)` of a module in a process of its own. In: the module, its
arguments, its whole environment; out: a `Forked`, of which the caller makes sure that it has ended.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

import pytest

from switchboard.lanes import faults

_PRELOADED: Final = [__name__, "tests.chaos.node", "tests.acceptance.model_node", "switchboard.cli.main"]
_STUCK_S: Final = 45.0
"""Seconds after which a process tells where it is, in `errors`."""


class Forked:
    """A process that was started; what it wrote to standard error is in `errors`."""

    def __init__(self, process: ForkServerProcess, errors: Path) -> None:
        self._process = process
        self.errors = errors

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    async def wait(self, within: float = 150.0) -> int:
        """Its exit code. Raises TimeoutError after `within` seconds."""
        await asyncio.to_thread(self._process.join, within)
        if self._process.exitcode is None:
            raise TimeoutError(f"still running after {within} s; its errors: {self.errors.read_text()[-2000:]}")
        return self._process.exitcode


@dataclass(frozen=True, slots=True)
class Forks:
    """Starts processes."""

    def start(
        self, module: str, *arguments: str, env: Mapping[str, str], errors: Path, cwd: Path | None = None
    ) -> Forked:
        """Run `main(arguments)` of `module` in a new process."""
        place = Path.cwd() if cwd is None else cwd
        process = get_context("forkserver").Process(
            target=_live, args=(module, arguments, dict(env), str(errors), str(place))
        )
        process.start()
        return Forked(process, errors)


@pytest.fixture(scope="session")
def forks() -> Forks:
    """What has imported everything is started once, by the first test that wants it, and ends with the run."""
    return forked()


def forked() -> Forks:
    """The same outside of pytest."""
    forkserver.set_forkserver_preload(_PRELOADED)
    forkserver.ensure_running()
    return Forks()


def _live(module: str, arguments: Sequence[str], env: Mapping[str, str], errors: str, cwd: str) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    with Path(os.devnull).open("wb") as nothing, Path(errors).open("ab") as told:
        sys.stdout.flush()
        os.dup2(nothing.fileno(), 1)
        os.dup2(told.fileno(), 2)
    faulthandler.dump_traceback_later(_STUCK_S, file=sys.stderr)
    faults.arm(env.get("SWITCHBOARD_CRASH_AT", ""))
    import_module(module).main(arguments)
