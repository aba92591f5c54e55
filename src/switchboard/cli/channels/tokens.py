"""A connector's token for the server: valid for one account, created once, kept in the data directory.

`account.py` calls it with the account of a file and its identity on the platform; a client of the server leaves. The
server's list of tokens says which account serves which endpoint: no endpoint has two accounts, and no account two.
"""

from __future__ import annotations

import os

import httpx2

from switchboard.app.accounts.names import PREFIX
from switchboard.app.accounts.tokens import lock_token, require_free, token_file
from switchboard.app.ownership import read_ours, write_private
from switchboard.app.settings import Settings
from switchboard.cli.channels.served import served_endpoints
from switchboard.cli.channels.watching import is_there
from switchboard.cli.client import Client, ServerPlace, find_server, http_client, part
from switchboard.cli.output import Json, NoServer
from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.answers import Unreachable
from switchboard.domain.errors import ConfigurationError, Overloaded, Unavailable
from switchboard.ports.connector import Identity


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
        async with lock_token(self.file):
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
        async with lock_token(self.file):
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


async def _has_token(client: Client, name: str, bound: Json) -> bool:
    """Whether the account already has one. Raises SignInRefused if it or this endpoint belongs to another."""
    served = served_endpoints(await client.whole("/v1/tokens", "tokens"))
    require_free(served, name, f"{bound['channel']}/{bound['endpoint']}")
    return name in served
