"""A long run as a command: what it is asked for, where it works, and what stays of it.

The `main` of each `*_run.py` calls this. Next: `run.py`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tests.guard import stand_guard

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Plan = TypeVar("_Plan", bound="DataclassInstance")


def asked_for(plan: type[_Plan], about: str | None) -> _Plan:
    """The plan of the command line, an option for each field. From now on nothing that is started here outlives us."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for one in fields(plan):
        option = f"--{one.name.replace('_', '-')}"
        if isinstance(one.default, bool):
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option, type=type(one.default), default=one.default)
    asked = plan(**vars(parser.parse_args()))
    stand_guard()
    return asked


def a_directory() -> Path:
    """Not for us alone: as root the database runs as a plain user, who must get through."""
    directory = Path(tempfile.mkdtemp(prefix="switchboard-chaos-"))
    directory.chmod(0o711)
    return directory


def exit_code(directory: Path, *, well: bool) -> int:
    """Of a run that was in this directory, which is kept if it did not end well."""
    if well:
        shutil.rmtree(directory, ignore_errors=True)
        return 0
    print(f"the evidence is in {directory}", file=sys.stderr)
    return 1


def all_met(ways: set[str]) -> bool:
    """Whether none of these ways to fail is left, which are those that were not met."""
    if ways:
        print(f"ways to fail that were not met: {', '.join(sorted(ways))}", file=sys.stderr)
    return not ways
