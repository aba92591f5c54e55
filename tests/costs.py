"""A pytest plugin for `make test` and the like: at the end, the files whose tests took the most of the processors.

In: nothing; out: a table of ten files. Counted is the CPU time of the process that runs a test and of what it has
started and seen end, not that of the shared PostgreSQL and of collecting the tests. Next to it is how long they took:
a large difference on a machine that does nothing else means that tests wait.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from typing import Final

import pytest

from tests.forked import spent_by_forked

_SHOWN: Final = 10
_CPU: Final = "cpu"
_SPENT: Final = pytest.StashKey[float]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """What comes after is tests."""
    session.config.stash[_SPENT] = _spent()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A report, also one that comes from a worker, says what was spent since the one before."""
    report = yield
    now = _spent()
    report.user_properties.append((_CPU, now - item.config.stash[_SPENT]))
    item.config.stash[_SPENT] = now
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table."""
    cpu, took = defaultdict[str, float](float), defaultdict[str, float](float)
    for report in (one for reports in terminalreporter.stats.values() for one in reports):
        if isinstance(report, pytest.TestReport):
            file = report.nodeid.partition("::")[0]
            cpu[file] += sum(float(str(value)) for name, value in report.user_properties if name == _CPU)
            took[file] += report.duration
    terminalreporter.section("CPU time of tests")
    terminalreporter.write_line(f"{sum(cpu.values()):7.1f} s  of {sum(took.values()):7.1f} s  all")
    for file, seconds in sorted(cpu.items(), key=lambda one: -one[1])[:_SHOWN]:
        terminalreporter.write_line(f"{seconds:7.1f} s  of {took[file]:7.1f} s  {file}")


def _spent() -> float:
    return sum(os.times()[:4]) + spent_by_forked()
