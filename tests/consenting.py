"""The command `switchboard` while somebody signs in with it: on pipes, or at a terminal that is a pty."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import sys
import termios
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.oauth import final_address

_PAGE: Final = re.compile(rb"http://127\.0\.0\.1:\d+/authorize\?\S+")
_QUIET: Final = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}


async def consent(command: Sequence[str], place: Path, *answers: str, **env: str) -> tuple[int, str]:
    """Its exit code and all that it has said; the page is opened elsewhere, and its final address pasted.

    With answers it runs at a terminal, and they are entered one after the other, each at a question.
    """
    argv = (sys.executable, "-m", "switchboard", *command)
    surroundings = {**os.environ, **_QUIET, **env}
    if answers:
        return await _at_terminal(argv, place, answers, surroundings)
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=place, env=surroundings, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    assert process.stderr is not None
    assert process.stdin is not None
    assert process.stdout is not None
    said = b""
    while not (page := _PAGE.search(said)) and (piece := await process.stderr.readline()):
        said += piece
    if page:
        process.stdin.write((await final_address(page[0].decode())).encode() + b"\n")
    out, err = await process.communicate()
    return process.returncode or 0, (out + said + err).decode()


async def _at_terminal(
    argv: Sequence[str], place: Path, answers: Sequence[str], env: dict[str, str]
) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    mode = termios.tcgetattr(theirs)
    mode[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, mode)
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=place, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    said, answered, left = b"", 0, list(answers)
    while piece := await asyncio.to_thread(_piece_of, ours):
        said += piece
        if (page := _PAGE.search(said, answered)) and b"\n" in said[page.end() :]:
            answered = page.end()
            os.write(ours, (await final_address(page[0].decode())).encode() + b"\n")
        elif left and said.rstrip(b" ").endswith(b":") and len(said) > answered:
            answered = len(said)
            os.write(ours, f"{left.pop(0)}\n".encode())
    os.close(ours)
    return await process.wait(), said.decode()


def _piece_of(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # it is closed
        return b""
