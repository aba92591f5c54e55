"""A pytest plugin for `make test`: coverage of the workers of pytest-xdist, and of no process that a test starts.

Coverage begins by itself in every Python that sees COVERAGE_PROCESS_START. A worker that has begun takes the variable
away from its children: their start is timed by tests, and many of them are killed.

Measuring doubles the time of a property that runs thousands of examples through the same lines, so the first ones are
measured, and the others run without. A test with the mark `unmeasured` is not measured at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import count
from typing import Any, Final

import coverage
import pytest

_MEASURED: Final = 25
"""Examples of each property."""

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("COVERAGE_PROCESS_START", None)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Write down what was measured: xdist ends its workers without ceremony."""
    if (measured := coverage.Coverage.current()) is not None:
        measured.save()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Stop measuring where it shows nothing new, for the rest of the test."""
    if (measured := coverage.Coverage.current()) is None:
        return (yield)
    if item.get_closest_marker("unmeasured"):
        with _stopped(measured):
            return (yield)
    if (property_ := getattr(getattr(item, "obj", None), "hypothesis", None)) is None:
        return (yield)
    with _sampled(measured, property_):
        return (yield)


@contextmanager
def _stopped(measured: coverage.Coverage) -> Iterator[None]:
    measured.stop()
    try:
        yield
    finally:
        measured.start()


@contextmanager
def _sampled(measured: coverage.Coverage, property_: Any) -> Iterator[None]:
    """`property_` is what Hypothesis attaches to a test; it calls its `inner_test` for each example."""
    inner = property_.inner_test
    property_.inner_test = _measured_at_first(inner, measured)
    try:
        yield
    finally:
        property_.inner_test = inner
        measured.stop()
        measured.start()


def _measured_at_first(inner: Callable[..., object], measured: coverage.Coverage) -> Callable[..., object]:
    numbers = count()

    @wraps(inner)
    def example(*args: object, **kwargs: object) -> object:
        if next(numbers) == _MEASURED:
            measured.stop()
        return inner(*args, **kwargs)

    return example
