"""pymap, an IMAP server in Python, as a module that can be forked: `python -m tests.pymap_server ARGUMENTS`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pymap.main import main as pymap


def main(arguments: Sequence[str]) -> None:
    """Serve until it is told to end."""
    sys.argv = ["pymap", *arguments]
    pymap()


if __name__ == "__main__":
    main(sys.argv[1:])
