"""What wants to use up the machine, in a sandbox: `python -m tests.bombs` runs it again and again on a busy machine.

`integration/test_sandbox.py` runs each once. In: how often, and for how many busy loops; out: the highest numbers of
processes that the kernel has seen, and exit code 1 if one is higher than it may be.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.forked import end_forking, forked
from tests.sandboxed import remove_groups

_MIB: Final = 1024**2
LIMITS: Final[Mapping[str, int]] = {"memory": 64 * _MIB, "processes": 24, "tmpfs": 4 * _MIB}
QUOTA: Final = 8 * _MIB
FEW: Final = 12
"""Of our own: the process that runs the sandbox, its threads, and bwrap."""


def _py(code: str) -> str:
    return f"python3 -c {shlex.quote(code)}"


BOMBS: Final[Mapping[str, tuple[str, str]]] = {
    "memory": (_py("x = bytearray()\nwhile True: x += b'x' * 2**22"), "memory|^$"),
    "shared memory": (
        _py("import mmap\nl = []\nwhile True:\n  m = mmap.mmap(-1, 2**24); m.write(b'x' * 2**24); l.append(m)"),
        "memory",
    ),
    "memory of many": (
        "for i in 1 2 3 4 5 6; do "
        + _py("import time; x = b'x' * 25_000_000; time.sleep(60)")
        + " & done; wait; exec sleep 60",
        "memory",
    ),
    "forks": ("f() { f | f & }; while :; do (f); done", "processes|^$"),
    "forks that are not waited for": (
        _py("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"),
        "processes",
    ),
    "threads": (
        _py("import threading as t, time\nwhile True: t.Thread(target=time.sleep, args=(60,), daemon=True).start()"),
        "processes|memory|^$",
    ),
    "disk": ("cat /dev/zero >file", "workspace|^$"),
    "disk, removed": ("exec 5>file; rm file; cat /dev/zero >&5", "workspace|^$"),
    "disk, where nobody may look": (
        "mkdir d; chmod 300 d; while :; do i=$((i + 1)); head -c 1M /dev/zero >d/$i; done",
        "workspace|memory",
    ),
    "disk, where nobody may ask": (
        "mkdir d; exec 5>d/a 6>d/b 7>d/c; chmod 400 d; for i in 5 6 7; do head -c 7M /dev/zero >&$i; done; sleep 60",
        "workspace",
    ),
    "disk, many files": ("while :; do i=$((i + 1)); head -c 1M /dev/zero >$i; done", "workspace|memory"),
}
"""What wants too much, and what it is killed for; for nothing, if the kernel ends it by a limit of its own."""


def job(workspace: Path, hidden: Path) -> dict[str, Any]:
    """All of them, as `sandboxed.main` reads it."""
    commands = {name: command for name, (command, _) in BOMBS.items()}
    place = {"workspace": f"{workspace}", "hidden": f"{hidden}", "quota": QUOTA}
    return {"commands": commands, **place, "limits": dict(LIMITS), "guarded": True}


def wrong(said: Mapping[str, Any]) -> dict[str, Any]:
    """Those that ended well or for another reason than they should, too many processes, and groups that were left."""
    ended: Mapping[str, tuple[str, int, str]] = said["ended"]
    found: dict[str, Any] = {
        name: told for name, told in ended.items() if told[1] == 0 or not re.search(BOMBS[name][1], told[2])
    }
    if said["processes"] is not None and said["processes"] > LIMITS["processes"] + FEW:
        found["processes"] = said["processes"]
    return found | ({"left": said["left"]} if said["left"] else {})


def _written(directory: Path) -> Path:
    """The file of a job."""
    directory.chmod(0o755)
    (directory / "hidden").mkdir()
    (directory / "workspace").mkdir()
    file = directory / "job.json"
    file.write_text(json.dumps(job(directory / "workspace", directory / "hidden")))
    return file


async def _bombed(who: str, place: Path) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory(dir=place) as name:
        file = _written(Path(name))
        directory = file.parent
        env = {"PATH": os.environ["PATH"]}
        process = forked().start("tests.sandboxed", who, f"{file}", env=env, errors=directory / "errors", cwd=Path("/"))
        if await process.wait() != 0:
            raise RuntimeError(process.errors.read_text())
        said: Mapping[str, Any] = json.loads(file.with_suffix(".out").read_text())
        remove_groups(said)
        return said


@contextmanager
def _busy(loops: int) -> Iterator[None]:
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


async def _again_and_again(times: int, place: Path) -> int:
    status = 0
    for who in ("root", "plain") if os.geteuid() == 0 else ("plain",):
        highest: list[int] = []
        for _ in range(times):
            said = await _bombed(who, place)
            if said["lacking"]:
                _tell(f"{who}: no sandbox: {said['lacking']}")
                break
            highest.append(said["processes"] or 0)
            if bad := wrong(said):
                status = 1
                _tell(f"{who}: {bad}")
        _tell(f"{who}: {len(highest)} times {len(BOMBS)} bombs, at most {max(highest, default=0)} processes at once")
    _tell(f"(a sandbox may have {LIMITS['processes']}, up to {FEW} are ours)")
    return status


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """The exit code."""
    options = argparse.ArgumentParser()
    options.add_argument("--times", type=int, default=20)
    options.add_argument("--busy", type=int, default=4)
    given = options.parse_args()
    with _busy(given.busy), tempfile.TemporaryDirectory() as name:
        place = Path(name).resolve()
        place.chmod(0o755)
        try:
            return asyncio.run(_again_and_again(given.times, place))
        finally:
            end_forking()


if __name__ == "__main__":
    sys.exit(main())
