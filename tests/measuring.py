"""A pytest plugin for `make coverage`: measures the workers of pytest-xdist, and no process that a test starts.

Coverage begins by itself in every Python that sees COVERAGE_PROCESS_START. A worker that has begun takes the variable
away from its children: their start is timed by tests, and many of them are killed.
"""

from __future__ import annotations

import os

import coverage
import pytest

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("COVERAGE_PROCESS_START", None)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Write down what was measured: xdist ends its workers without ceremony."""
    if (measured := coverage.Coverage.current()) is not None:
        measured.save()
