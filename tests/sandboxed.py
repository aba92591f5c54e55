"""Commands in a sandbox in a process of their own: as another user, where there can be none, and behind a guard.

`main` runs in a process that was forked for it, by `integration/test_sandbox.py` and `bombs.py`, with a file that says
what to run. Out: a file beside it with what came of it. Bombs are run behind a guard only: control groups and limits of
the kernel that hold the whole process, whatever becomes of the sandbox.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import json
import os
import resource
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from switchboard.ports.sandbox import SandboxRules
from switchboard.sandbox.cgroups import find_parents
from switchboard.sandbox.run import Sandbox

QUOTA: Final = 64 * 1024**2
GUARD_PROCESSES: Final = 200
GUARD_MEMORY: Final = 1024**3
_NEW_USERS: Final = 0x10000000
_NEW_MOUNTS: Final = 0x00020000
_PRIVATE: Final = 0x00044000
"""MS_REC | MS_PRIVATE."""
_DETACH: Final = 2
_DROP_FROM_BOUND: Final = 24
_NO_NEW_PRIVILEGES: Final = 38
"""What `setpriv --bounding-set=-all --no-new-privs` asks of the kernel."""


def plain_user() -> int:
    """One that has no processes yet, so that the kernel counts ours alone."""
    return 60_000 + os.getpid() % 5_000


def main(arguments: Sequence[str]) -> None:
    """`root`, `plain`, `serviced`, `forbidden` or `ungrouped`, and the file."""
    who, name = arguments
    file = Path(name)
    job = json.loads(file.read_text())
    with file.with_suffix(".out").open("w") as out:
        guard = Guard() if job["guarded"] else None
        _become(who, Path(job["workspace"]))
        said = asyncio.run(_run(job))
        json.dump(said | (guard.told() if guard else {}), out)


def remove_groups(said: Mapping[str, Any]) -> None:
    """Of a guard whose process has ended."""
    for group in map(Path, said.get("groups", ())):
        for directory in (group / "self", group):
            with suppress(FileNotFoundError):
                directory.rmdir()


def _become(who: str, workspace: Path) -> None:
    if who == "serviced":
        _take_privileges()
    if who in ("plain", "serviced") and os.geteuid() == 0:
        user = plain_user()
        os.chown(workspace, user, user)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    elif who == "forbidden":
        _forbid_users()
    elif who == "ungrouped":
        _hide_groups()


def _take_privileges() -> None:
    """What a unit takes that needs no systemd: NoNewPrivileges=yes, CapabilityBoundingSet=, UMask=."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1) if os.geteuid() == 0 else ():
        _call("prctl", _DROP_FROM_BOUND, capability, 0, 0, 0)
    _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    os.umask(0o077)


def _forbid_users() -> None:
    """From here on no process may make a namespace of users, as on machines that do not permit it."""
    faulthandler.cancel_dump_traceback_later()  # its thread: only a process with one thread may do this
    while len([*Path("/proc/self/task").iterdir()]) > 1:
        os.sched_yield()
    _call("unshare", _NEW_USERS)
    Path("/proc/self/uid_map").write_text("0 0 1")
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


def _hide_groups() -> None:
    """From here on there are no control groups, as in many containers."""
    _call("unshare", _NEW_MOUNTS)
    _call("mount", b"none", b"/", None, _PRIVATE, None)
    _call("umount2", b"/sys/fs/cgroup", _DETACH)


def _call(name: str, *arguments: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)


async def _run(job: dict[str, Any]) -> dict[str, Any]:
    sandbox = Sandbox(SandboxRules(**job["limits"], hidden=(Path(job["hidden"]),)))
    if lacking := await sandbox.lacking():
        return {"lacking": lacking}
    ended = {}
    for name, command in job["commands"].items():
        done = await sandbox.run(command, Path(job["workspace"]), job["quota"], 60)
        ended[name] = (done.output.decode("utf-8", "replace"), done.status, done.killed)
        if job["guarded"]:
            _empty(Path(job["workspace"]))
    return {"lacking": "", "limits": sandbox.limits, "ended": ended}


def _empty(directory: Path) -> None:
    for entry in directory.iterdir():
        entry.chmod(0o700)
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


class Guard:
    """Holds this process and all that it starts. Raises OSError where the kernel does not hold it.

    With control groups, if they can be made: then it knows how much was taken at most. In any case no user but root
    gets more processes. Where neither would hold, as root without groups, the sandbox must be off, so nothing is run.
    """

    def __init__(self) -> None:
        self._groups = dict(_outer_groups())
        own = 0 if os.geteuid() == 0 else _tasks_of(os.geteuid())
        most = own + GUARD_PROCESSES
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        resource.setrlimit(resource.RLIMIT_DATA, (GUARD_MEMORY, GUARD_MEMORY))

    def told(self) -> dict[str, Any]:
        """How many processes, threads included, and bytes of memory there were at most (None: not known).

        `left` are the groups of sandboxes that were not removed.
        """
        processes = self._read("pids", "pids.peak")
        memory = self._read("memory", "memory.max_usage_in_bytes", "memory.peak")
        groups = [f"{group}" for group in {*self._groups.values()}]
        left = [f"{one}" for group in self._groups.values() for one in group.glob("switchboard-*")]
        return {"processes": processes, "memory": memory, "groups": groups, "left": left}

    def _read(self, controller: str, *names: str) -> int | None:
        for name in names:
            with suppress(KeyError, FileNotFoundError):
                return int((self._groups[controller] / name).read_text())
        return None


def _outer_groups() -> Iterator[tuple[str, Path]]:
    """Groups with limits, in which we are, and in which others can be made."""
    for parents in find_parents():
        name = f"switchboard-{uuid4().hex}"
        groups = {controller: parent / name for controller, parent in parents.directories.items()}
        unified = len(set(groups.values())) == 1
        try:
            for group in {*groups.values()}:
                group.mkdir()
        except OSError:
            continue
        for names, value in ((("pids.max",), GUARD_PROCESSES), (("memory.max", "memory.limit_in_bytes"), GUARD_MEMORY)):
            for file in (group / name for group in {*groups.values()} for name in names):
                if file.exists():
                    file.write_text(f"{value}")
        for group in {*groups.values()}:
            inner = group / "self" if unified else group
            inner.mkdir(exist_ok=True)
            (inner / "cgroup.procs").write_text(f"{os.getpid()}")
        assert (groups["pids"] / "pids.max").read_text().strip() == f"{GUARD_PROCESSES}"
        assert name in Path("/proc/self/cgroup").read_text()
        yield from groups.items()
        return


def _tasks_of(user: int) -> int:
    tasks = 0
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if entry.stat().st_uid == user:
                tasks += len([*(entry / "task").iterdir()])
    return tasks
