"""`switchboard demo`: everything at once, on real input.

Called by `cli/main.py`. With --json, progress goes to stderr, because stdout is for machines. Next: `demonstration.py`,
which does it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from switchboard.cli.demo.demonstration import run_demo
from switchboard.cli.output import errors, exit_unless_ok, out, print_json, wants_json


def demo(
    directory: Annotated[
        Path | None, typer.Argument(help="Where to keep the data; by default a temporary directory.")
    ] = None,
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the directory afterwards.")] = False,
    scripted: Annotated[
        bool, typer.Option("--scripted", help="Use a scripted model even if models are configured.")
    ] = False,
) -> None:
    """Show everything in a minute: real input, a model, a killed worker, balanced books.

    If `models` are configured, they are asked, otherwise a scripted model on this machine.
    """
    code = run_demo(directory, keep=keep, console=errors() if wants_json() else out(), scripted=scripted)
    if wants_json():
        print_json({"exit_code": code})
    exit_unless_ok(code)
