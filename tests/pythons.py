"""`make pythons`: the quick suite on every Python that is supported and can be had here.

In: interpreters on the PATH, those of pyenv, and those that uv finds or downloads; out: `.pythons/VERSION`, and a line
for each version. One that cannot be had is told, and fails nothing, unless it is named on the command line.
Next: `make quick`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Final

from tests.documents import HOME

_UV: Final = HOME / ".venv" / "bin" / "uv"
_PREFIX: Final = "Programming Language :: Python :: "
_TRIED: Final = ("3.14",)
"""Versions that no classifier names yet."""


def supported() -> list[str]:
    """The versions that `pyproject.toml` names."""
    project = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [one.removeprefix(_PREFIX) for one in project["classifiers"] if one.startswith(f"{_PREFIX}3.")]


def interpreter(version: str) -> str | None:
    """A Python of this version that runs, None if there is none."""
    return next((python for python in _candidates(version) if _said(python, "--version").startswith("Python 3")), None)


def _candidates(version: str) -> Iterator[str]:
    yield f"python{version}"
    yield from map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")))
    _said(str(_UV), "python", "install", "--quiet", version)
    yield from _said(str(_UV), "python", "find", version).split()


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def main(asked: list[str]) -> int:
    """Run them one after the other; the exit code."""
    told, code = [], 0
    for version in asked or [*supported(), *_TRIED]:
        began, python = monotonic(), interpreter(version)
        if python is None:
            told.append(f"{version}  cannot be had here")
            code = code or int(bool(asked))
            continue
        place = f".pythons/{version}"
        make = ("/usr/bin/env", "make", "--no-print-directory", "quick", f"PYTHON={python}", f"BIN={place}/bin")
        failed = subprocess.run([*make, f"STAMP={place}/.ready"], cwd=HOME, env=os.environ, check=False).returncode
        code = code or failed
        told.append(f"{version}  {'failed' if failed else 'passed'}, {monotonic() - began:.0f} s")
    sys.stdout.write("\n".join(told) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
