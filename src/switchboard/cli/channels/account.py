"""Serves one account: its identity at the server and its token, then the kernel.

`cli/processes/connect.py` calls it in a process of its own, `inside.py` as a task in the server's process. In: the
account; out: the exit code of a process. Next: `connectors/kernel/runner.py`.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import httpx2

from switchboard.app.settings import Settings
from switchboard.cli.channels.instances import instance_of
from switchboard.cli.channels.tokens import AccountToken
from switchboard.cli.client import ServerPlace
from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.answers import TokenRefused
from switchboard.connectors.kernel.runner import Runner
from switchboard.ports.connector import Identity


async def connect_account(
    settings: Settings, account: Configured, stop: asyncio.Event, server: ServerPlace | None = None
) -> int:
    """Serve the account until `stop`; returns the exit code. Raises ConfigurationError if only a person can help.

    `server`: where it is, with the operator's token; None: where environment and settings say.
    """
    token = AccountToken(settings, account, server)
    clock = asyncio.get_running_loop().time
    known = Identity(account.endpoint) if account.endpoint else token.identity()
    try:
        async with AsyncExitStack() as stack:
            instance = stack.enter_context(instance_of(token.file.with_suffix(".instance")))

            async def client_for(identity: Identity) -> httpx2.AsyncClient:
                return await stack.enter_async_context(await token.client(identity))

            runner = Runner(account, client_for, clock, known, instance.instance_id, instance.restarted)
            return await runner.run(stop)
    except TokenRefused:
        await token.forget()  # it was revoked: the next process gets a new one
        raise
