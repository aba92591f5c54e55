"""A pytest plugin for `make test` and the like: a test that fails is run once more, alone, when all others have ended.

If it passes then, the run counts as passed, and says `FLAKY` with what was seen both times: the next change is to mend
it. If not, or if many tests fail, or if anything but a test fails (a module that cannot be collected, pytest itself),
nothing is forgiven. Nor is a test of the engine: a race may show only once. Alone means: in a pytest of its own,
without workers. A test whose worker crashed or that ran out of time has failed like any other. What Hypothesis has
found it tries again first, so it is not forgiven either.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import PurePosixPath
from textwrap import indent
from typing import Final

import pytest

from tests.results import forgive_in

MOST: Final = 5
"""More failures than this are no accident."""

ENGINE: Final = frozenset(
    f"test_{name}"
    for name in (
        *("accept", "batch_turns", "crash_points", "crash_points_models", "crash_points_turns", "engine_model"),
        *("interruptions", "journal", "killed_in_a_session", "lanes", "plans_killed", "trio", "turns", "waiting"),
    )
)
"""Modules of tests that are never run once more."""

_DEADLINE: Final = 300.0
"""Seconds for one test with the start of what it needs; pytest-timeout ends a test before."""


@dataclass(frozen=True, slots=True)
class Flaky:
    """A test that has failed and then passed, with both outputs."""

    test: str
    first: str
    second: str


_FLAKY: Final = pytest.StashKey[list[Flaky]]()


@pytest.hookimpl(wrapper=True, trylast=True)  # after pytest-xdist has ended its workers, before the summary
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Try again what has failed; the exit status is 0 if all of it passes."""
    yield
    if "PYTEST_XDIST_WORKER" in os.environ or session.exitstatus != pytest.ExitCode.TESTS_FAILED:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    failures = _failures(reporter)
    if not 0 < len(failures) <= MOST:
        return
    tried = [_try_again(session, test, first) for test, first in failures.items() if not _is_of_engine(test)]
    session.config.stash[_FLAKY] = flaky = [one for one in tried if one is not None]
    _forgive(reporter, {one.test for one in flaky})
    forgive_in(session.config.getoption("xmlpath", None), {one.test for one in flaky})
    if len(flaky) == len(failures):
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Both outputs of each flaky test."""
    for one in config.stash.get(_FLAKY, []):
        terminalreporter.section(f"FLAKY {one.test}", yellow=True)
        terminalreporter.write_line("It failed at first:")
        terminalreporter.write_line(indent(one.first, "    "))
        terminalreporter.write_line("It passed when it was run once more, alone:")
        terminalreporter.write_line(indent(one.second, "    "))


def _failures(reporter: pytest.TerminalReporter) -> dict[str, str]:
    """What each failed test said. Nothing if something has failed that is not a test."""
    said: dict[str, str] = {}
    for report in (*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())):
        if not isinstance(report, pytest.TestReport):
            return {}
        sections = "".join(f"\n--- {name} ---\n{text}" for name, text in report.sections)
        said[report.nodeid] = f"{said.get(report.nodeid, '')}{report.longreprtext}{sections}\n"
    return said


def _is_of_engine(test: str) -> bool:
    return PurePosixPath(test.partition("::")[0]).stem in ENGINE


def _try_again(session: pytest.Session, test: str, first: str) -> Flaky | None:
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", test]
    try:
        done = subprocess.run(
            command,
            cwd=session.config.rootpath,
            env={name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_DEADLINE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return Flaky(test, first, done.stdout) if done.returncode == 0 else None


def _forgive(reporter: pytest.TerminalReporter, tests: set[str]) -> None:
    """What failed and passed counts as passed and as flaky."""
    stats = reporter.stats
    for outcome in ("failed", "error"):
        failed = [report for report in stats.pop(outcome, ()) if report.nodeid not in tests]
        if failed:
            stats[outcome] = failed
    again = [pytest.TestReport(test, ("", None, test), {}, "passed", None, "call") for test in sorted(tests)]
    known = {report.nodeid for report in stats.get("passed", ())}
    stats.setdefault("passed", []).extend(report for report in again if report.nodeid not in known)
    stats["flaky"] = again
