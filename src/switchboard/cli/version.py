"""`switchboard version`. Called by `main.py`; prints, and knows nothing else."""

from __future__ import annotations

import platform

from switchboard import __version__
from switchboard.cli.output import AsJson, out, print_json


def version(*, as_json: AsJson = False) -> None:
    """Say which version this is, and on which Python it runs."""
    if as_json:
        print_json({"version": __version__, "python": platform.python_version()})
    else:
        out().print(f"switchboard {__version__} (Python {platform.python_version()})")
