"""`switchboard ARGUMENTS` that dies just before it changes the n-th file below `FORMS_PLACE`, for `forms_run.py`.

`FORMS_DIES_AT` is n; the number of changes so far is the length of the file `FORMS_CHANGES`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from switchboard.cli.main import main as run_switchboard

PLACE: Final = "FORMS_PLACE"
CHANGES: Final = "FORMS_CHANGES"
DIES_AT: Final = "FORMS_DIES_AT"
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGING: Final = {"os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir"}


def main(arguments: Sequence[str]) -> None:
    """The command, watched from its first line on."""
    sys.addaudithook(_hook(os.environ[PLACE], os.environ[CHANGES], int(os.environ.get(DIES_AT, "0"))))
    sys.argv = ["switchboard", *arguments]
    run_switchboard()


def _hook(place: str, changes: str, dies_at: int) -> Callable[[str, tuple[Any, ...]], None]:
    tally = os.open(changes, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    seen = 0

    def look(event: str, given: tuple[Any, ...]) -> None:
        nonlocal seen
        changing = event in _CHANGING or (event == "open" and isinstance(given[2], int) and given[2] & _WRITES)
        if changing and _is_below(place, given):
            seen += 1
            if seen == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            os.write(tally, b".")

    return look


def _is_below(place: str, given: tuple[Any, ...]) -> bool:
    paths = [os.fsdecode(one) for one in given if isinstance(one, (str, bytes, os.PathLike))]
    return any(Path.cwd().joinpath(one).is_relative_to(place) for one in paths)
