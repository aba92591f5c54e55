"""Installations for tests of whole processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import passable


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory for one test; where the executable itself is tested, with spaces in its name."""
    with passable(
        "switchboard cli " if request.path.stem.startswith("test_cli_") else "switchboard-test-"
    ) as directory:
        yield directory


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """For all tests, with a database that is made once."""
    with passable() as directory:
        yield directory
