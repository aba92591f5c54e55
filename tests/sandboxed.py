"""Commands in a sandbox as another user, or where there can be none: `main` runs in a process that was forked for it.

Called by `integration/test_sandbox.py` through the fixture `forks`, with a file that says what to run. Out: a file
beside it with what came of it.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from switchboard.ports.sandbox import SandboxRules
from switchboard.sandbox.run import Sandbox

NOBODY: Final = 65534
QUOTA: Final = 64 * 1024**2
_NEW_USERS: Final = 0x10000000


def main(arguments: Sequence[str]) -> None:
    """`nobody` or `forbidden`, and the file."""
    who, name = arguments
    file = Path(name)
    if who == "nobody":
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    else:
        forbid_users()
    file.with_suffix(".out").write_text(json.dumps(asyncio.run(_run(json.loads(file.read_text())))))


def forbid_users() -> None:
    """From here on no process may make a namespace of users, as on machines that do not permit it."""
    faulthandler.cancel_dump_traceback_later()  # its thread: only a process with one thread may do this
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_USERS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/uid_map").write_text("0 0 1")
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


async def _run(job: dict[str, Any]) -> dict[str, Any]:
    sandbox = Sandbox(SandboxRules(hidden=(Path(job["hidden"]),)))
    lacking = await sandbox.lacking()
    if lacking:
        return {"lacking": lacking}
    done = await sandbox.run(job["command"], Path(job["workspace"]), QUOTA, 60)
    return {"lacking": "", "output": done.output.decode(), "status": done.status, "killed": done.killed}
