"""What systemd says of our unit, and what it is told. Called by `commands.py`.

Where systemd is not the first process nothing is asked: `why_none` says why.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from switchboard.cli.service.unit import NAME

_BOOTED: Final = Path("/run/systemd/system")
_ASKED: Final = ("LoadState", "UnitFileState", "ActiveState", "SubState", "MainPID", "NRestarts", "Result")
_SECONDS: Final = 60


def why_none() -> str | None:
    """Why systemd cannot be asked here; None if it can."""
    if _BOOTED.is_dir() and shutil.which("systemctl"):
        return None
    try:
        first = Path("/proc/1/comm").read_text(encoding="utf-8").strip()
    except OSError:
        first = "unknown"
    return f"systemd does not run here: the first process is {first}"


def control(*arguments: str) -> str:
    """Run `systemctl`, for the user's own manager unless we are root; empty if all is well, else what it said."""
    done = _run_systemctl(*arguments)
    return "" if done.returncode == 0 else (done.stderr or done.stdout).strip() or f"it ended with {done.returncode}"


def unit_state() -> Mapping[str, str]:
    """The properties of our unit, by name; empty if it cannot be asked."""
    lines = _run_systemctl("show", NAME, f"--property={','.join(_ASKED)}").stdout.splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def lingers(user: str) -> bool:
    """Whether the services of a user run without a session."""
    return (Path("/var/lib/systemd/linger") / user).exists()


def _user_option() -> tuple[str, ...]:
    """What `systemctl` needs to mean our kind of unit."""
    return () if os.geteuid() == 0 else ("--user",)


def _run_systemctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["systemctl", *_user_option(), "--no-pager", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_SECONDS, stdin=subprocess.DEVNULL
    )
