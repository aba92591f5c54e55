"""Pauses accounts by a file beside theirs: for `switchboard channels`, and for accounts that are restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from switchboard.connectors.kernel.accounts import pause_file
from switchboard.domain.errors import ConfigurationError


def pause_account(file: Path) -> None:
    """Pause the account of this file. Raises ConfigurationError."""
    place = pause_file(file)
    try:
        if place.is_symlink():  # it may lead elsewhere
            place.unlink()
        place.touch(mode=0o600)
    except OSError as error:
        raise ConfigurationError(f"{place} cannot be written: {error.strerror}") from error


@contextmanager
def paused_account(file: Path) -> Iterator[None]:
    """Pause the account, and keep it paused unless the block fails."""
    before = pause_file(file).exists()
    pause_account(file)
    try:
        yield
    except BaseException:
        if not before:
            pause_file(file).unlink(missing_ok=True)
        raise
