"""A program that we start ignores no signal, whatever our parent withholds from us."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from switchboard.signals import default_signals

_TABLE = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGPIPE)


@pytest.fixture(scope="module")
def ignored() -> dict[str, int]:
    """By the kind of program, the mask of the signals that it ignores."""
    host = ["/bin/sh", "-c", 'trap "" INT QUIT HUP PIPE; exec "$@"', "sh", sys.executable, "-m", "tests.signal_host"]
    done = subprocess.run(
        host, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True
    )
    said: dict[str, int] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize("kind", ["command", "guarded", "mcp", "postgresql", "sandbox", "bash"])
def test_programs_ignore_nothing_that_we_ignore(ignored: dict[str, int], kind: str) -> None:
    if kind not in ignored:
        pytest.skip("no sandbox here")
    assert [number for number in _TABLE if ignored[kind] >> (number - 1) & 1] == []


def test_what_is_started_while_another_start_ends_ignores_nothing_either() -> None:
    """As where a start awaits something: the blocks overlap, and none is inside the other."""
    was = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ExitStack() as second:
            with ExitStack() as first:
                first.enter_context(default_signals())
                second.enter_context(default_signals())
            assert signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, was)


def test_we_go_on_ignoring_it(ignored: dict[str, int]) -> None:
    for when in ("ours", "ours after"):
        assert all(ignored[when] >> (number - 1) & 1 for number in _TABLE)
