"""The file with the tokens of one sign-in: JSON that only its owner may read, replaced as a whole under a lock.

Several accounts of the settings may name the same file, as one consent may open a calendar and a mailbox. Whoever
renews the tokens holds the lock from before it reads the file until the new ones are on the disk: a refresh token may
be good for one use only. The lock is a file beside it, `NAME.lock`, since this one is replaced. Next: `tokens.py`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shlex
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from switchboard.domain.errors import ConfigurationError

_POLL_S: Final = 0.05
_LOCK_S: Final = 60.0
"""Longer than any refresh takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """By what a provider knows who asks: made by the user at the provider, and where that is asked."""

    provider: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    authorization_endpoint: str
    token_endpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTokens:
    """What the file has. `scopes` are those that were granted, `user` is who has granted them.

    `sign_in` is the command that replaces the file. `failed`: why the provider accepts the refresh token no more; then
    nothing is asked until somebody has signed in again.
    """

    client: OAuthClient
    user: str
    scopes: tuple[str, ...]
    sign_in: str
    refresh_token: str = field(repr=False)
    access_token: str = field(repr=False)
    expires_at: datetime
    consented_at: datetime
    refresh_expires_at: datetime | None = None
    failed: str = ""


def read_tokens(file: Path) -> KeptTokens:
    """Raises ConfigurationError that says what would be right, and quotes nothing of the file."""
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            data = opened.read()
    except FileNotFoundError as error:
        raise ConfigurationError(f"the token file {file} is missing: sign in again") from error
    except OSError as error:
        raise ConfigurationError(f"the token file {file} cannot be read: {error.strerror}") from error
    if mode & 0o077:
        closing = f"chmod 600 {shlex.quote(str(file.absolute()))}"
        raise ConfigurationError(f"the token file {file} can be read by other users; close it: {closing}")
    try:
        return msgspec.json.decode(data, type=KeptTokens)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConfigurationError(f"{file} is no token file, or is damaged: sign in again") from None


def write_tokens(file: Path, kept: KeptTokens) -> None:
    """Replace the file. When this returns, the tokens survive a loss of power. Raises OSError."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
        out.flush()
        os.fsync(out.fileno())
    draft.replace(file)
    directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@asynccontextmanager
async def hold_token_lock(file: Path) -> AsyncIterator[None]:
    """Nobody else renews the tokens of this file meanwhile. Raises ConfigurationError, and TimeoutError after a minute.

    The kernel releases the lock of a process that dies.
    """
    try:
        descriptor = os.open(lock_of(file), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigurationError(f"the lock of the token file {file} cannot be opened: {error.strerror}") from error
    try:
        await _acquire_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


async def replace_tokens(file: Path, kept: KeptTokens) -> None:
    """Put the tokens of another consent in place of these, while nobody renews them. Raises ConfigurationError."""
    async with hold_token_lock(file):
        try:
            write_tokens(file, kept)
        except OSError as error:
            raise ConfigurationError(f"the token file {file} cannot be written: {error.strerror}") from error


def lock_of(file: Path) -> Path:
    """The file by which those who renew the tokens wait for each other."""
    return file.with_name(f"{file.name}.lock")


async def _acquire_lock(descriptor: int) -> None:
    """Polled, because a thread that blocks in flock could not be cancelled."""
    until = time.monotonic() + _LOCK_S
    while True:
        with suppress(BlockingIOError):
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.monotonic() > until:
            raise TimeoutError("another process has been renewing the same tokens for a minute")
        await asyncio.sleep(_POLL_S)
