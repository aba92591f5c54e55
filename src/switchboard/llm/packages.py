"""The packages that kinds of models need besides our own. Asked by `build.py` before it imports one, and by set-up."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from switchboard.distribution import install_command
from switchboard.llm.port import Kind

_PACKAGES: Final[Mapping[Kind, str]] = {"anthropic": "anthropic"}


def lacking(kind: Kind) -> str | None:
    """The package that models of this kind need and that is not installed, with the remedy; None: nothing."""
    package = _PACKAGES.get(kind)
    return None if package is None or find_spec(package) else describe_missing(kind, package)


def describe_missing(kind: Kind, package: str) -> str:
    """What to do about a package that is not installed."""
    return f"kind {kind} needs the package {package}: {install_command('models')}"
