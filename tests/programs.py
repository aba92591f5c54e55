"""Where the real command lines are that tests run: those that `make clis` has installed here, else those on PATH.

In: a kind; out: its program, or why it is not there. Nothing is installed by a test.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.llm.commands import PROGRAMS
from switchboard.llm.port import CliKind

_INSTALLED: Final = Path(__file__).parent / "clis" / "node_modules" / ".bin"


def search_path() -> str:
    """The PATH on which real programs are looked for."""
    return os.pathsep.join((str(_INSTALLED), os.environ.get("PATH", os.defpath)))


def real_program(kind: CliKind) -> str | None:
    """Its path, or None."""
    return shutil.which(PROGRAMS[kind], path=search_path())


def real_kinds(kinds: Sequence[CliKind]) -> list[Any]:
    """The kinds as parameters of a test; those whose program is not there are skipped, and the skip says why."""
    return [
        pytest.param(kind, marks=pytest.mark.skipif(real_program(kind) is None, reason=_why(kind))) for kind in kinds
    ]


def _why(kind: CliKind) -> str:
    return f"{kind} is not installed: no {PROGRAMS[kind]} on PATH; `make clis` installs all four with npm"
