"""Connects a program to the embedded database of an installation. The program calls `open_pool`. Next: `hosting.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from switchboard.domain.errors import ConfigurationError
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.store.database import foreign_pool
from switchboard.store.models.classification import Pool


@asynccontextmanager
async def open_pool(data_dir: Path | str, *, size: int = 10, binaries: Path | None = None) -> AsyncIterator[Pool]:
    """A pool of up to `size` connections to the embedded database of the installation with this `data_dir`.

    The server is shared with the other processes of the installation on this machine: the first starts it, the last
    stops it. `binaries`: as the setting `postgres_binaries`. With a `database_url` in the settings, open a pool on that
    URL instead. Raises ConfigurationError if there is no database yet, or this user may not use it, and Unavailable if
    it does not answer.
    """
    place = Path(data_dir) / "postgres"
    if not _holds_database(place):
        raise ConfigurationError(f"there is no database in {place}; `switchboard up` creates one")
    async with (
        embedded_postgres(place, binaries=binaries) as server,
        foreign_pool(server.url, size) as pool,
    ):
        yield pool


def _holds_database(place: Path) -> bool:
    try:
        return (place / "PG_VERSION").exists()
    except OSError as error:
        raise ConfigurationError(f"the database in {place} cannot be inspected: {error.strerror}") from error
