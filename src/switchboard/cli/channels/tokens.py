"""A connector's token for the server: valid for one account, created once, kept in the data directory.

`account.py` calls it with the account of a file and its identity on the platform; a client of the server leaves. The
server's list of tokens says which account serves which endpoint: no endpoint has two accounts, and no account two.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from switchboard.app.ownership import read_ours, write_private
from switchboard.app.settings import Settings
from switchboard.cli.channels.served import PREFIX, served_accounts
from switchboard.cli.channels.watching import is_there
from switchboard.cli.client import Client, ServerPlace, find_server, http_client, part
from switchboard.cli.output import Json, NoServer
from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.answers import Unreachable
from switchboard.domain.errors import ConfigurationError, Overloaded, Unavailable
from switchboard.ports.connector import Identity, SignInRefused


class AccountToken:
    """The token of one account, and the file that keeps it with the endpoint that it is for.

    `server`: where it is, with the operator's token; None: where environment and settings say.
    """

    def __init__(self, settings: Settings, account: Configured, server: ServerPlace | None = None) -> None:
        self._settings = settings
        self._account = account
        self._server = server
        self.file = token_file(settings, account.account.name)
        self._used = ""

    def identity(self) -> Identity | None:
        """The identity that the kept token is for; None if there is none."""
        _, endpoint = self._read()
        return Identity(endpoint) if endpoint else None

    async def client(self, identity: Identity) -> httpx2.AsyncClient:
        """Connections to the server. Raises Unreachable, SignInRefused, ConfigurationError."""
        place = self._server or find_server(self._settings.whereabouts)
        if self._server is None and os.environ.get("SWITCHBOARD_TOKEN"):
            return http_client(place)
        async with alone(self.file):
            self._used, endpoint = self._read()
            if not self._used or endpoint != identity.endpoint:
                self._require_wanted()
                self._used = await self._issue_token(place, identity)
                write_private(self.file, f"{self._used}\n{identity.endpoint}\n")
        return http_client(ServerPlace(place.url, self._used, place.hint))

    async def forget(self) -> None:
        """After the server refused the token, remove it, unless another process already has a new one."""
        if not self._used:
            return
        async with alone(self.file):
            token, endpoint = self._read()
            if token == self._used:
                write_private(self.file, f"\n{endpoint}\n")

    def _read(self) -> tuple[str, str]:
        """Token and endpoint, either of which may be empty."""
        try:
            token, _, endpoint = read_ours(self.file).partition("\n")
        except FileNotFoundError:
            return "", ""
        return token.strip(), endpoint.strip()

    def _require_wanted(self) -> None:
        """Check that the account is still wanted: during sign-in it may have been paused or removed."""
        name = self._account.account.name
        if not is_there(self._settings.channels_dir / f"{name}.toml"):
            raise ConfigurationError(f"the account {name!r} has been paused or removed")

    async def _issue_token(self, place: ServerPlace, identity: Identity) -> str:
        """A new token, replacing one of the same name whose secret is lost. Raises Unreachable, SignInRefused."""
        bound = {"channel": self._account.manifest.channel, "endpoint": identity.endpoint}
        name = self._account.account.name
        try:
            async with http_client(place) as http:
                client = Client(http, place)
                if await _has_token(client, name, bound):
                    await client.delete(f"/v1/tokens/{part(PREFIX + name)}")
                made = await client.post("/v1/tokens", {"name": PREFIX + name, "role": "connector", **bound})
        except (NoServer, Unavailable, Overloaded) as error:
            raise Unreachable(error.message) from error
        return str(made["token"])


@asynccontextmanager
async def alone(file: Path) -> AsyncIterator[None]:
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


def token_file(settings: Settings, account: str) -> Path:
    """Where the token of an account is kept."""
    return settings.data_dir / "connectors" / f"{account}.token"


async def _has_token(client: Client, name: str, bound: Json) -> bool:
    """Whether the account already has one. Raises SignInRefused if it or this endpoint belongs to another."""
    served = served_accounts(await client.whole("/v1/tokens", "tokens"))
    require_free(served, name, bound)
    return name in served


def require_free(served: dict[str, Json], name: str, bound: Json) -> None:
    """An account has one endpoint, and an endpoint one account. Raises SignInRefused."""
    if served.get(name, bound) != bound:
        raise SignInRefused(
            f"the secret belongs to {_name_of_account(bound)}, and the account {name} is "
            f"{_name_of_account(served[name])}: put the right secret back, or give the new one an account of its own; "
            f"`switchboard channels remove {name}` ends the old"
        )
    if twin := next((other for other, one in served.items() if one == bound and other != name), None):
        raise SignInRefused(
            f"{_name_of_account(bound)} is connected by the account {twin} already; remove one of the two"
        )


def _name_of_account(bound: Json) -> str:
    return f"{bound['channel']}/{bound['endpoint']}"
