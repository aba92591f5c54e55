"""A check of the sandbox. Called by `app/ops/doctor.py`. Next: `run.py`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from switchboard.ports.checks import CheckResult, ok, warning
from switchboard.ports.sandbox import SandboxRules
from switchboard.sandbox.run import Sandbox

_MARKS: Final = (Path("/.dockerenv"), Path("/run/.containerenv"))
_LESS: Final = "without it no model is offered execute_command and bash"
_NAMESPACES: Final = "--security-opt seccomp=unconfined"
_PROC: Final = "--security-opt systempaths=unconfined (Docker) or --security-opt unmask=ALL (Podman)"
_MOUNTS: Final = "--security-opt apparmor=unconfined or, under SELinux, --security-opt label=disable"
_FLAGS: Final = (("namespace", _NAMESPACES), ("proc", _PROC), ("Permission denied", _MOUNTS))
"""What bubblewrap says of what a container may not do, and what permits it."""


async def check_sandbox(rules: SandboxRules) -> CheckResult:
    """Whether butlers' commands can run here, found out by running one, and what enforces their limits."""
    sandbox = Sandbox(rules)
    if lacking := await sandbox.lacking():
        return warning("sandbox", f"off: {lacking}", remedy_of(lacking, contained=_is_contained()))
    return ok("sandbox", f"bubblewrap; {sandbox.limits}")


def remedy_of(lacking: str, *, contained: bool) -> str:
    """What to do about it; in a container, the option with which it must be started."""
    flag = next((flag for said, flag in _FLAGS if said in lacking), None) if contained else None
    if flag is None:
        return f"{_LESS}; see docs/tools.md#commands"
    return f"start the container with {flag}; {_LESS}; see docs/container.md#commands-of-butlers"


def _is_contained() -> bool:
    """Our image sets `container`, as Podman does; Docker leaves a file."""
    return "container" in os.environ or any(mark.exists() for mark in _MARKS)
