"""Directories for databases: as root, PostgreSQL runs as another user, to whom those of pytest are closed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@contextmanager
def passable(prefix: str = "switchboard-test-") -> Iterator[Path]:
    """An empty directory that other users may pass through; removed in the end."""
    with TemporaryDirectory(prefix=prefix) as name:
        directory = Path(name).resolve()
        directory.chmod(0o711)
        yield directory


@pytest.fixture
def place() -> Iterator[Path]:
    """The same for one test."""
    with passable() as directory:
        yield directory
