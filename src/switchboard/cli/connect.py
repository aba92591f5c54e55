"""`switchboard connect`: one account of a channel, in a process of its own. Called by `main.py`.

The account's file enters; nothing leaves but logs. With the operator's token at hand it makes a token that is valid for
this account alone, and keeps it in the data directory. Next: `connectors/kernel/runner.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import httpx2
import typer

from switchboard.app.logs import set_up_logs
from switchboard.app.ownership import read_ours
from switchboard.app.settings import Settings, load_settings
from switchboard.cli.client import Client, Place, find_server, http_client, open_client, part
from switchboard.cli.output import NoServer
from switchboard.cli.parts import stop_with_stdin
from switchboard.connectors.kernel.accounts import Configured, configured
from switchboard.connectors.kernel.api import Unreachable
from switchboard.connectors.kernel.runner import Runner
from switchboard.domain.errors import ConfigurationError, Conflict, Overloaded, Unavailable
from switchboard.ports.connector import Identity


def connect(
    name: Annotated[str, typer.Argument(help="The account: its file is NAME.toml in the directory channels.d.")],
    *,
    while_stdin: Annotated[
        bool, typer.Option("--while-stdin", hidden=True, help="Stop when stdin is closed by the parent process.")
    ] = False,
) -> None:
    """Connect one account of a channel: receive its messages, and send the replies. `switchboard up` does it for all.

    A second process of the same account stands by, and takes over when the first is gone.
    """
    settings = load_settings()
    set_up_logs(settings.log_level)
    account = configured(settings.channels_dir / f"{name}.toml", read_ours)
    code = asyncio.run(_connect(settings, account, while_stdin))
    if code:
        sys.exit(code)


async def _connect(settings: Settings, account: Configured, while_stdin: bool) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if while_stdin:
        stop_with_stdin(stop)
    token_file = settings.data_dir / "connectors" / f"{account.account.name}.token"

    async def client_for(identity: Identity) -> httpx2.AsyncClient:
        return await _client(settings, account, identity, token_file)

    try:
        return await Runner(account, client_for, asyncio.get_running_loop().time).run(stop)
    except ConfigurationError:
        token_file.unlink(missing_ok=True)  # perhaps it was revoked; the next process gets a new one
        raise


async def _client(settings: Settings, account: Configured, identity: Identity, file: Path) -> httpx2.AsyncClient:
    """Connections to the server with the token of this account."""
    place = find_server(settings)
    if os.environ.get("SWITCHBOARD_TOKEN"):
        return http_client(place)
    try:
        token = read_ours(file).strip()
    except FileNotFoundError:
        token = await _issued(settings, account, identity)
        _keep(file, token)
    return http_client(Place(place.url, token, place.hint))


async def _issued(settings: Settings, account: Configured, identity: Identity) -> str:
    """A new token, in place of one of the same name whose secret is lost. Raises Unreachable."""
    bound = {"role": "connector", "channel": account.manifest.channel, "endpoint": identity.endpoint}
    body = {"name": f"connector-{account.account.name}", **bound}
    try:
        async with open_client(settings) as client:
            return await _create(client, body)
    except (NoServer, Unavailable, Overloaded) as error:
        raise Unreachable(error.message) from error


async def _create(client: Client, body: dict[str, str]) -> str:
    try:
        return str((await client.post("/v1/tokens", body))["token"])
    except Conflict:
        await client.delete(f"/v1/tokens/{part(body['name'])}")
        return str((await client.post("/v1/tokens", body))["token"])


def _keep(file: Path, token: str) -> None:
    file.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as out:
        out.write(f"{token}\n")
