"""A terminal in which the executable runs: what is on its screen, and what somebody types."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from tests.forked import ForkedCommand
from tests.processes import (
    DEADLINE,
    EXECUTABLE,
)


@contextmanager
def terminal(
    env: Mapping[str, str], *arguments: str, program: str = EXECUTABLE, controlled: bool = False
) -> Iterator[Terminal]:
    """A command on a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    start = ForkedCommand if program == EXECUTABLE else subprocess.Popen
    process = start(
        [program, *arguments],
        env=dict(env),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=controlled,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def on_its_terminal(env: Mapping[str, str], *arguments: str) -> AbstractContextManager[Terminal]:
    """A command on a terminal that it controls, so that Ctrl-C is a signal for it."""
    return terminal(env, *arguments, controlled=True)


class Terminal:
    """What is typed and what appears."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self.process = process
        self.screen = ""
        self._at = 0

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def expect(self, text: str) -> None:
        """Read until `text` appears, after what was expected before."""
        assert self._appears(text, DEADLINE), f"{text!r} did not appear; the screen shows {self.screen!r}"
        self._at = self.screen.index(text, self._at) + len(text)

    @property
    def left(self) -> str:
        """What is left on the screen: lines may have been erased, to be drawn again."""
        lines = [""]
        for piece in re.split("(\n|\x1b\\[1A\x1b\\[2K|\x1b\\[2K)", self.screen):
            match piece:
                case "\n":
                    lines.append("")
                case "\x1b[2K":
                    lines[-1] = ""
                case "\x1b[1A\x1b[2K":
                    lines[-2:] = [""]
                case _:
                    lines[-1] += piece
        return "\n".join(lines)

    def interrupt(self, text: str) -> None:
        """Press Ctrl-C at a prompt until `text` appears: Python does not see one that comes just before it waits."""
        self.type("\x03")
        if not self._appears(text, DEADLINE / 4):
            self.type("\x03")
        self.expect(text)

    def _appears(self, text: str, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while text not in self.screen[self._at :]:
            readable, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                return False
            self.screen += os.read(self._descriptor, 4096).decode(errors="replace")
        return True
