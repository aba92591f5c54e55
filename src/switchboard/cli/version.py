"""`switchboard version`. Called by `main.py`."""

from __future__ import annotations

import platform

from switchboard import __version__
from switchboard.cli.output import show


def version() -> None:
    """Show the version, and that of Python."""
    python = platform.python_version()
    found = {"version": __version__, "python": python}
    show(found, f"switchboard {__version__} (Python {python})")
