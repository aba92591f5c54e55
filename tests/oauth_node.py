"""A process that asks a token file for an access token, when it is told to, and may be killed at a point on the way.

`tests/integration/test_oauth.py` starts it: `python -m tests.oauth_node FILE POINT`. It prints `ready`, waits for a
line, and prints the token.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Final

from switchboard.transport.oauth import token_file, tokens
from switchboard.transport.oauth.tokens import TokenFile

POINTS: Final = ("answered", "drafted", "replaced")
"""The answer is here, and nothing of it on the disk; a draft of the file is there; the file is replaced."""


def write_and_die(file: Path, kept: token_file.KeptTokens) -> None:
    token_file.write_tokens(file, kept)
    die()


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(file: Path, point: str) -> None:
    if point == "answered":
        vars(tokens)["write_tokens"] = die
    elif point == "drafted":
        type.__setattr__(Path, "replace", die)
    elif point == "replaced":
        vars(tokens)["write_tokens"] = write_and_die
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    sys.stdout.write(asyncio.run(TokenFile(file).access_token()) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
