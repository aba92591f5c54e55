"""Directories of turns and sessions: what killed workers leave behind is removed, what living ones use is not."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Literal

import pytest

from switchboard.agents.command import engine
from switchboard.ports.engine import EngineContext
from tests.engines import Book
from tests.turning import NoMemos

HOLDS: Final = """
import asyncio, sys
from switchboard.transport.scratch import scratch

async def main():
    async with scratch(sys.argv[1]) as place:
        print(place, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("kind", ["session", "turn"])
def test_what_killed_workers_leave_behind_is_removed(directory: Path, kind: Literal["session", "turn"]) -> None:
    with ExitStack() as stack:
        killed, living = (_holder(stack, kind) for _ in range(2))
        left, used = _place_of(killed), _place_of(living)
        assert {left.parent, used.parent} == {directory}
        (left / "0-letter.txt").write_text("private")
        killed.kill()
        killed.wait()
        assert left.exists()
        engine(EngineContext(NoMemos(), Book()))
        assert not left.exists()
        assert used.exists()


def test_what_looks_like_a_directory_of_ours_is_left_alone(directory: Path) -> None:
    elsewhere = directory / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("kept")
    (directory / "switchboard-turn-link").symlink_to(elsewhere)
    (directory / "switchboard-turn-file").write_text("kept")
    engine(EngineContext(NoMemos(), Book()))
    assert (elsewhere / "kept").read_text() == "kept"
    assert (directory / "switchboard-turn-file").read_text() == "kept"


def _holder(stack: ExitStack, kind: str) -> subprocess.Popen[str]:
    process = stack.enter_context(
        subprocess.Popen([sys.executable, "-c", HOLDS, kind], stdout=subprocess.PIPE, text=True)
    )
    stack.callback(process.kill)
    return process


def _place_of(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())
