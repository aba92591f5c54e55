"""The name under which this program is installed, and whether another distribution is in its way.

Called by `__main__.py` before anything else is imported; whatever lacks an extra asks `install_command`. On PyPI the
name `switchboard` belongs to others, whose package is called as ours: installed into one environment, each overwrites
files of the other, `__init__.py` among them. So this imports nothing of ours, which may be theirs by then, and nothing
that takes time, since every process does.
"""

from __future__ import annotations

import os
import sys
from typing import Final

DISTRIBUTION: Final = "switchboard-server"
"""The name in package indexes, as in `pyproject.toml`; the package and the command are `switchboard`."""
OUR_VARIABLES: Final = "SWITCHBOARD_"
"""How variables of the environment begin that are settings of ours, or secrets."""
_THEIRS: Final = "switchboard"


def damage(version: object) -> str | None:
    """Why this program cannot start, and the remedy, if files of its package are another distribution's or missing.

    `version`: that of the package as imported, None if its `__init__.py` is not ours. Looks at the names in one
    directory, and reads only what the other distribution has recorded.
    """
    pip, package = f"{sys.prefix}/bin/pip", os.path.dirname(os.path.abspath(__file__))
    again = f"{pip} install --force-reinstall --no-deps {DISTRIBUTION}"
    if other := _find_other(os.path.dirname(package)):
        return (
            f"{other} has files in the package of {DISTRIBUTION}, {package}: one has overwritten the other. Install "
            f"{DISTRIBUTION} into an environment of its own, or: {pip} uninstall -y {_THEIRS} && {again}"
        )
    return None if version else f"files of {DISTRIBUTION} are missing in {package}: {again}"


def install_command(extra: str) -> str:
    """How to install an extra here: from the checkout that this program runs from, otherwise from the package index."""
    pip, checkout = f"{_relative_path(sys.prefix)}/bin/pip", os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    if not os.path.isfile(f"{checkout}/pyproject.toml"):
        return f"{pip} install '{DISTRIBUTION}[{extra}]'"
    return f"{pip} install -e '{_relative_path(checkout)}[{extra}]'"


def _relative_path(path: str) -> str:
    """The path relative to here, if it is here or below."""
    near = os.path.relpath(path)
    return path if near.startswith("..") else near


def _find_other(place: str) -> str | None:
    """The name and version of the other distribution, if it has files in our package."""
    for name in os.listdir(place):
        if not (name.lower().startswith(f"{_THEIRS}-") and name.endswith(".dist-info")):
            continue
        # An editable installation, as ours was under this name, has recorded none.
        record = f"{place}/{name}/RECORD"
        if os.path.isfile(record):
            with open(record, encoding="utf-8", errors="replace") as file:
                if any(line.lstrip('"').startswith("switchboard/") for line in file):
                    return name.removesuffix(".dist-info").replace("-", " ", 1)
    return None
