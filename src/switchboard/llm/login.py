"""Our user's login for a command-line program: where the program finds it, and whether there is one.

`build.py` asks before a model is opened, `doctor` through it. Login files are never read, only checked for existence.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from switchboard.llm.port import CliKind

_DIRECTORIES: Final[Mapping[CliKind, tuple[str, str, str]]] = {
    "claude-code": ("CLAUDE_CONFIG_DIR", ".claude", ".credentials.json"),
    "codex": ("CODEX_HOME", ".codex", "auth.json"),
}
"""The variable that names the directory, which one it is without it, and the file of the login."""
_LOG_IN: Final[Mapping[CliKind, str]] = {"claude-code": "claude auth login", "codex": "codex login"}


def login_of(kind: CliKind, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables by which the program finds the login."""
    variable, usual, _ = _DIRECTORIES[kind]
    found = {name: environ[name] for name in ("USER", "LOGNAME", variable) if environ.get(name)}
    found |= {"HOME": str(_home(environ))}
    # If it is not set, claude-code keeps one of its files next to the directory instead of inside.
    return found if kind == "claude-code" else {variable: str(_home(environ) / usual), **found}


def not_logged_in(kind: CliKind, environ: Mapping[str, str]) -> str | None:
    """Why there is no login, as far as visible; None if there is one."""
    variable, usual, name = _DIRECTORIES[kind]
    file = Path(environ.get(variable) or _home(environ) / usual) / name
    if file.exists() or (sys.platform == "darwin" and kind == "claude-code"):  # there it is in the keychain
        return None
    return f"not logged in: there is no {file}; as the user that runs the workers: {_LOG_IN[kind]}"


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home())
