"""The tests themselves: a flaky test is told from a broken one, and nothing that is started outlives its test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.once_more import ENGINE
from tests.ports import free_port
from tests.processes import DEADLINE, that_know, until

ROOT = Path(__file__).parents[2]

GUARDED = """
from tests import guard
from tests.guard import pytest_cmdline_main

def pytest_configure(config):
    config.pluginmanager.register(guard)
"""
FIRST_FAILS = """
from pathlib import Path

def first_time(name):
    mark = Path(name)
    if mark.exists():
        return False
    mark.touch()
    return True
"""
SLEEPER = """
import asyncio, os, subprocess, sys, time

def start(*, shell=False):
    command = [sys.executable, "-c", "import time; time.sleep(600)", os.getcwd()]
    if shell:  # orphaned at once, in a session of its own, as a daemon is
        subprocess.run(["sh", "-c", '"$@" & echo', "sh", *command], stdout=subprocess.DEVNULL, start_new_session=True)
    else:
        subprocess.Popen(command)

def main(arguments):
    asyncio.run(forever())

async def forever():
    await asyncio.Event().wait()
"""


def test_a_port_is_given_to_one_server_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with several listeners asks for all of its ports before it listens at any."""
    first = free_port()
    dice = iter((first, first, first + 1, first + 2, first + 3))
    monkeypatch.setattr("tests.ports.secrets.randbelow", lambda _: next(dice) - 20_000)
    assert free_port() != first


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with tests of its own, guarded as ours are."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q -p no:cacheprovider -p xdist -p timeout\n")
    (tmp_path / "conftest.py").write_text(GUARDED)
    (tmp_path / "first.py").write_text(FIRST_FAILS)
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    return tmp_path


def write(project: Path, body: str, name: str = "test_it.py") -> None:
    """A module of tests."""
    imports = "import os, signal, time\nfrom first import first_time\nfrom sleeper import start\n"
    (project / name).write_text(f"{imports}\n{body}\n")


def command(*more: str) -> list[str]:
    return [sys.executable, "-m", "pytest", *more]


def surroundings(project: Path) -> dict[str, str]:
    """Ours, but no worker of pytest-xdist and not measured; only the plugins that it needs.

    On CI (`CI`, `BUILD_NUMBER`) pytest says the whole of a failure once more in its summary; here it says it once.
    """
    ours = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_XDIST", "COVERAGE"))}
    kept = {key: value for key, value in ours.items() if key not in {"CI", "BUILD_NUMBER"}}
    path = os.pathsep.join((str(project), str(ROOT)))
    return kept | {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def run(project: Path, *more: str, plugin: str = "tests.once_more") -> tuple[int, str]:
    """The exit status and the output of a run."""
    done = subprocess.run(
        command("-p", plugin, *more),
        cwd=project,
        env=surroundings(project),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE * 2,
        check=False,
    )
    return done.returncode, done.stdout


WORKERS = pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])


@WORKERS
def test_a_test_that_passes_the_second_time_is_flaky(project: Path, workers: tuple[str, ...]) -> None:
    write(
        project,
        """
def test_good(): pass
def test_once():
    print("what it printed")
    assert not first_time("mark"), "it was the first time"
""",
    )
    code, said = run(project, *workers)
    assert code == 0, said
    assert "FLAKY test_it.py::test_once" in said
    assert "AssertionError: it was the first time" in said
    assert "what it printed" in said
    assert "    1 passed in " in said  # its second run
    assert said.splitlines()[-1].startswith("2 passed, 1 flaky in ")


def test_a_test_that_fails_twice_has_failed(project: Path) -> None:
    write(project, 'def test_bad(): assert False\ndef test_once(): assert not first_time("mark")')
    code, said = run(project)
    assert code == 1, said
    assert "FLAKY test_it.py::test_once" in said
    assert "FAILED test_it.py::test_bad" in said
    assert said.splitlines()[-1].startswith("1 failed, 1 passed, 1 flaky in ")


def test_what_fails_after_a_test_is_tried_again_with_it(project: Path) -> None:
    write(
        project,
        """
import pytest
@pytest.fixture
def after():
    yield
    assert not first_time("mark")
def test_that_passed(after): pass
""",
    )
    code, said = run(project)
    assert code == 0, said
    assert said.splitlines()[-1].startswith("1 passed, 1 flaky in ")


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", id="crash"),
        pytest.param("time.sleep(600)", id="timeout"),
        pytest.param("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]); time.sleep(600)", id="deaf"),
    ],
)
def test_a_crash_and_a_test_without_end_are_failures_like_others(project: Path, end: str) -> None:
    write(project, f'def test_good(): pass\ndef test_once():\n    if first_time("mark"): {end}')
    limits = ("--timeout=1", "-o", "faulthandler_timeout=3", "-o", "faulthandler_exit_on_timeout=true")
    code, said = run(project, "-n", "1", *limits)
    assert code == 0, said
    assert "FLAKY test_it.py::test_once" in said
    assert said.splitlines()[-1].startswith("2 passed, 1 flaky in ")


@WORKERS
def test_a_module_that_cannot_be_collected_is_never_forgiven(project: Path, workers: tuple[str, ...]) -> None:
    write(project, 'def test_once(): assert not first_time("mark")')
    write(project, 'assert not first_time("another")', "test_other.py")
    for more in ((), ("--continue-on-collection-errors",)):
        for mark in ("mark", "another"):
            (project / mark).unlink(missing_ok=True)
        code, said = run(project, *workers, *more)
        assert code != 0, said
        assert "FLAKY" not in said


def test_many_failures_are_no_accident(project: Path) -> None:
    write(project, "\n".join(f'def test_{n}(): assert not first_time("{n}")' for n in range(6)))
    code, said = run(project)
    assert code == 1, said
    assert "FLAKY" not in said
    assert said.splitlines()[-1].startswith("6 failed in ")


def test_a_race_of_the_engine_is_never_forgiven(project: Path) -> None:
    write(project, 'def test_once(): assert not first_time("mark")')
    write(project, 'def test_race(): assert not first_time("another")', "test_lanes.py")
    code, said = run(project)
    assert code == 1, said
    assert "FLAKY test_it.py::test_once" in said
    assert "FAILED test_lanes.py::test_race" in said
    assert "FLAKY test_lanes.py" not in said
    assert said.splitlines()[-1].startswith("1 failed, 1 passed, 1 flaky in ")


def test_the_tests_of_the_engine_are_where_they_are_looked_for() -> None:
    assert {path.stem for path in (ROOT / "tests").rglob("test_*.py")} >= ENGINE


linux = pytest.mark.skipif(sys.platform != "linux", reason="there is no guard on this system")


@linux
@WORKERS
def test_a_test_that_leaves_a_process_has_failed(project: Path, workers: tuple[str, ...]) -> None:
    write(project, "def test_leaves():\n    start()\n    start(shell=True)\ndef test_good(): pass")
    code, said = run(project, *workers, plugin="no:once_more")
    assert code == 1, said
    assert "still running after the test, ended now" in said
    assert said.count("started by test_it.py::test_leaves") == 2
    assert said.splitlines()[-1].startswith("2 passed, 1 error in ")
    assert that_know(project) == []


@linux
def test_a_test_that_leaves_a_forked_process_has_failed(project: Path) -> None:
    write(
        project,
        """
from pathlib import Path
from tests.forked import end_forking, forks
def test_leaves(forks): forks.start("sleeper", env={}, errors=Path("errors"))
def test_good(): end_forking()
""",
    )
    code, said = run(project, plugin="no:once_more")
    assert code == 1, said
    assert "still running after the test, ended now" in said
    assert said.count("started by test_it.py::test_leaves") == 1
    assert said.splitlines()[-1].startswith("2 passed, 1 error in ")


@linux
def test_a_forked_process_that_does_not_end_says_where_it_is(project: Path) -> None:
    write(
        project,
        """
from tests.forked import ForkedCommand, end_forking, forks
def test_waits(forks): ForkedCommand(["switchboard", "-m", "sleeper"], env={}).wait(1)
def test_good(): end_forking()
""",
    )
    code, said = run(project, plugin="no:once_more")
    assert code == 1, said
    assert "TimeoutExpired" in said
    assert "code forever" in said
    assert "SigBlk:\t0000000000000000" in said


@linux
def test_what_a_fixture_of_several_tests_leaves_is_found_at_the_end(project: Path) -> None:
    write(
        project,
        """
import pytest
@pytest.fixture(scope="module")
def shared(): start(shell=True)
def test_one(shared): pass
def test_two(shared): pass
""",
    )
    code, said = run(project)
    assert code == 1, said
    assert "2 passed in" in said
    assert "still running after the tests, ended now" in said
    assert that_know(project) == []


@linux
@pytest.mark.parametrize("victim", ["outer guard", "inner guard", "pytest"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_run_that_is_killed(project: Path, victim: str, number: signal.Signals) -> None:
    write(project, 'def test_long():\n    start(shell=True)\n    start()\n    first_time("mark")\n    time.sleep(600)')
    process = subprocess.Popen(
        command("-n", "1"), cwd=project, env=surroundings(project), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(lambda: (project / "mark").exists() or process.poll() is not None)
    chain = {"outer guard": process.pid}
    chain["inner guard"] = first_child(chain["outer guard"])
    chain["pytest"] = first_child(chain["inner guard"])
    os.kill(chain[victim], number)
    assert process.wait(DEADLINE) != 0
    until(lambda: that_know(project) == [])


@linux
def test_tests_do_not_inherit_signals_that_are_ignored(project: Path) -> None:
    write(
        project,
        """
import subprocess, sys
ASK = "import signal as s; print([n for n in (s.SIGINT, s.SIGHUP, s.SIGTERM) if s.getsignal(n) is s.SIG_IGN])"
def test_of_ours(): assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
def test_of_programs(): assert subprocess.check_output([sys.executable, "-c", ASK], text=True) == "[]\\n"
""",
    )
    for workers in ((), ("-n", "1")):
        words = ["sh", "-c", 'trap "" INT HUP TERM; "$@"', "sh", *command(*workers)]
        done = subprocess.run(words, cwd=project, env=surroundings(project), capture_output=True, check=False)
        assert done.returncode == 0, done.stdout


def first_child(parent: int) -> int:
    """Not one that was adopted later."""
    return int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])
