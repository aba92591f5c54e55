"""Checks of this machine: Python, package, settings, data directory, the operator's token, sandbox, pooler.

Called by `app/ops/checks.py`. In: settings; out: findings. Next: `app/ownership.py`.
"""

from __future__ import annotations

import os
import stat
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

from switchboard import DISTRIBUTION, __version__
from switchboard.app.database import connect_pooled
from switchboard.app.ops.engines import sandbox_rules
from switchboard.app.ownership import require_ours
from switchboard.app.settings import Settings
from switchboard.app.settings_file import FILE_NAME
from switchboard.app.whereabouts import OPERATOR_FILE
from switchboard.domain.errors import ConfigurationError, SwitchboardError
from switchboard.ports.checks import CheckResult, error, ok, warning
from switchboard.sandbox.checks import check_sandbox

_OLDEST_PYTHON: Final = (3, 11)


def check_python() -> CheckResult:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= _OLDEST_PYTHON:
        return ok("python", version)
    return error("python", f"{version} is too old", "install Python 3.11 or newer")


def check_package() -> CheckResult:
    """Another distribution with a package of our name: whichever was installed last has overwritten the other."""
    owners = {one.name.lower().replace("_", "-") for one in distributions() if _has_files_of_ours(one)}
    if not (others := sorted(owners - {DISTRIBUTION})):
        return ok("package", f"{DISTRIBUTION} {__version__}")
    said = f"files of {', '.join(others)} are in the package switchboard, which both bring"
    remedy = f"pip uninstall {' '.join(others)}, then pip install --force-reinstall --no-deps {DISTRIBUTION}"
    return error("package", said, remedy)


def _has_files_of_ours(one: Distribution) -> bool:
    """By the list of its files as it stands: to read those of all distributions as paths takes a second."""
    said = one.read_text("RECORD") or one.read_text("installed-files.txt") or ""
    return said.startswith("switchboard/") or "\nswitchboard/" in said


def check_settings() -> CheckResult:
    file = Path(FILE_NAME)
    where = str(file.absolute()) if file.is_file() else f"no {FILE_NAME} here, so defaults and the environment"
    return ok("settings", where)


def check_data_dir(directory: Path) -> CheckResult:
    if not directory.exists():
        return warning("data directory", f"{directory} does not exist yet", "`switchboard up` creates it")
    if not directory.is_dir() or not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        return error(
            "data directory",
            f"no permission to write to {directory}",
            f"change its owner: chown {os.geteuid()} {directory}",
        )
    try:
        require_ours(directory)
    except ConfigurationError as failure:
        detail, _, remedy = failure.message.rpartition("; ")
        return error("data directory", detail, remedy)
    return ok("data directory", str(directory))


def check_token_file(data_dir: Path) -> CheckResult:
    file = data_dir / OPERATOR_FILE
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
        file.open().close()
    except FileNotFoundError:
        return warning("operator's token", f"{file} does not exist yet", "`switchboard up` or `serve` creates it")
    except OSError as failure:
        return error(
            "operator's token", f"{file} cannot be read: {failure.strerror}", "run as the user who runs the server"
        )
    if mode & 0o077:
        return error(
            "operator's token",
            f"{file} has mode {mode:04o}: other users can read it",
            f"chmod 600 {file}, then revoke the token",
        )
    return ok("operator's token", f"{file} (mode {mode:04o})")


async def check_commands(settings: Settings) -> CheckResult:
    """Whether butlers' commands can run here."""
    return await check_sandbox(sandbox_rules(settings))


async def check_pooler(settings: Settings) -> CheckResult:
    """Whether the database can be used through the pooler of the settings."""
    try:
        database = await connect_pooled(settings)
    except SwitchboardError as failure:
        return error("pooler", str(failure), "correct database_url or the pooler, see docs/operations.md")
    await database.close()
    return ok("pooler", "it follows prepared statements and has the settings of our role")
