"""A check of the sandbox. Called by `app/ops/checks.py`. Next: `run.py`."""

from __future__ import annotations

from switchboard.ports.checks import CheckResult, ok, warning
from switchboard.ports.sandbox import SandboxRules
from switchboard.sandbox.run import Sandbox


async def check_sandbox(rules: SandboxRules) -> CheckResult:
    """Whether butlers' commands can run here, found out by running one, and what enforces their limits."""
    sandbox = Sandbox(rules)
    if lacking := await sandbox.lacking():
        remedy = "without it no model is offered execute_command and bash; see docs/tools.md#commands"
        return warning("sandbox", f"off: {lacking}", remedy)
    return ok("sandbox", f"bubblewrap; {sandbox.limits}")
