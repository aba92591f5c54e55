"""Where the token of an account is kept, and the rule that no endpoint has two accounts, and no account two.

The token is made by the process that serves the account, and revoked when the account is removed.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from switchboard.app.settings import Settings
from switchboard.ports.connector import SignInRefused


def token_file(settings: Settings, account: str) -> Path:
    """Where the token of an account is kept."""
    return settings.data_dir / "connectors" / f"{account}.token"


@asynccontextmanager
async def lock_token(file: Path) -> AsyncIterator[None]:
    """Keep other processes from creating or revoking this file's token: the newer one would revoke the other's."""
    if not file.parent.parent.is_dir():  # without a data directory, no process on this machine makes tokens
        yield
        return
    file.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(file.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        await asyncio.to_thread(fcntl.flock, descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def require_free(served: Mapping[str, str], name: str, account: str) -> None:
    """An account has one endpoint, and an endpoint one account. Raises SignInRefused.

    `served`: the accounts with a token, as in `{"house": "telegram/bot:123456"}`.
    """
    if served.get(name, account) != account:
        raise SignInRefused(
            f"the secret belongs to {account}, and the account {name} is {served[name]}: put the right secret back, "
            f"or give the new one an account of its own; `switchboard channels remove {name}` ends the old"
        )
    if twin := next((other for other, one in served.items() if one == account and other != name), None):
        raise SignInRefused(f"{account} is connected by the account {twin} already; remove one of the two")
