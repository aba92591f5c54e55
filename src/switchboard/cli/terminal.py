"""Prepares stdin, stdout and stderr, which may be closed, full, or a terminal that cannot show every character.

Called by `main.py` before and after the command, so that no command has to think of it. Next: `output.py`.
"""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Final

_UNWRITABLE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF})


def set_up_terminal() -> None:
    """Escape unshowable characters; treat closed streams as empty, and a width of 0 (some consoles) as none."""
    nothing = Path(os.devnull)
    sys.stdin = sys.stdin or nothing.open(encoding="utf-8")
    sys.stdout = sys.stdout or nothing.open("w", encoding="utf-8")
    sys.stderr = sys.stderr or nothing.open("w", encoding="utf-8")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if not os.environ.get("COLUMNS", "1").strip("0"):
        del os.environ["COLUMNS"]


def silence_stdout(error: OSError) -> str:
    """Why printed output could not be written; nothing more is written there. Raises any other error."""
    if error.filename is not None or error.errno not in _UNWRITABLE:
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return f"what is printed cannot be written: {error.strerror}"
