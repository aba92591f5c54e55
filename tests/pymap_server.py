"""pymap, an IMAP server in Python, as a module that can be forked: `python -m tests.pymap_server ARGUMENTS`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pymap.config import IMAPConfig
from pymap.main import main as pymap
from pysasl.hashing import BuiltinHash


def main(arguments: Sequence[str]) -> None:
    """Serve until it is told to end. Its usual 500,000 rounds of hashing cost each login a quarter of a second."""
    setattr(IMAPConfig, "_get_hash_context", lambda *_: BuiltinHash(rounds=1))  # noqa: B010 - a method, says mypy
    sys.argv = ["pymap", *arguments]
    pymap()


if __name__ == "__main__":
    main(sys.argv[1:])
