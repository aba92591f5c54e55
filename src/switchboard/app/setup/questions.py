"""What is asked about a new installation, besides the model: the same at a terminal and on a page.

`cli/init` and the page Welcome ask. In: what was typed; out: the answer, or an InvalidInput that names the question.
Next: `places.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from switchboard.app.setup.places import workspace_at
from switchboard.domain.errors import InvalidInput

_NAME: Final = re.compile(r"[^\W_][\w.-]{0,63}")


class SetupQuestion(Struct, frozen=True):
    """A question, and the usual answer. `check` takes the directory of the installation and what was typed.

    It returns the answer, or raises InvalidInput whose field is the `name` of the question.
    """

    name: str
    words: str
    usual: str
    check: Callable[[Path, str], str]


def _check_butler(_: Path, typed: str) -> str:
    """A name that can be typed in commands and used for a directory."""
    if _NAME.fullmatch(typed):
        return typed
    right = re.sub(r"[^\w.-]+", "-", typed.lower()).strip("-._")[:64] or "butler"
    raise InvalidInput(
        f"{typed!r} is not a valid name: use letters, digits, '-', '_' and '.' only, such as {right}", field="butler"
    )


def _check_workspace(directory: Path, typed: str) -> str:
    return str(workspace_at(directory, typed))


BUTLER: Final = SetupQuestion("butler", "What should the butler be called?", "butler", _check_butler)
WORKSPACE: Final = SetupQuestion("workspace", "Which directory may it read and write?", "files", _check_workspace)
