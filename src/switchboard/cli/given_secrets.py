"""Secrets that options of a command name, as files or variables: what is typed into a command others may see.

`channels/adding.py` and `login_terminal.py` call it. In: a path or a name; out: the secret.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer


def secret_in_file(path: str, option: str = "--secret-file") -> str:
    """The secret in a file, or with `-` from stdin. Raises BadParameter of this option."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}", param_hint=option) from error
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{path} is not UTF-8 (byte {error.start})", param_hint=option) from error
    if not text.strip():
        raise typer.BadParameter(f"{path} is empty", param_hint=option)
    return text.strip()


def secret_in_variable(name: str, option: str = "--secret-env") -> str:
    """The secret in an environment variable. Raises BadParameter of this option."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise typer.BadParameter(f"the environment variable {name} is not set", param_hint=option)
    return value
