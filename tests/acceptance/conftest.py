"""Installations for tests of whole processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import passable


@pytest.fixture
def place() -> Iterator[Path]:
    """With spaces in its name."""
    with passable("switchboard cli ") as directory:
        yield directory


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """For all tests, with a database that is made once."""
    with passable() as directory:
        yield directory
