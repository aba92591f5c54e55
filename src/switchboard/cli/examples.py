"""`switchboard examples`: where the example teams, messages, connectors and programs are. Called by `main.py`.

They are files of the package, so that the tour and the demo work from a wheel as from a checkout.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from switchboard.cli.output import show


def examples() -> Path:
    """The directory of the examples; it may be read-only."""
    return Path(str(files("switchboard"))) / "examples"


def print_examples() -> None:
    """Print the directory of the examples: teams, messages, rules, connectors and programs to start from."""
    show({"directory": str(examples())}, lambda found: sys.stdout.write(f"{found['directory']}\n"))
