"""The interfaces over a small tree: a real server on a free port, a real database, a worker if wanted."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx2

from switchboard.app.access import Access, Principal
from switchboard.app.channels import known_channels
from switchboard.app.runtime import Runtime, Switchboard
from switchboard.app.settings import Settings
from switchboard.core.people.strangers import EndpointSettings, Policy
from switchboard.core.policy.rates import AcceptLimits
from switchboard.domain.routing import Rule, Team, TeamId
from switchboard.lanes.worker import Worker
from switchboard.server.listener import bind
from switchboard.server.serve import run_server
from switchboard.transport.mail_reading import MailLimits, MailReader
from tests.lab import Lab, butler, envelope_json, lab, rule, team_of

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Nothing here is https, and to read the certificates of the system takes longer than most requests."""

SIDE = TeamId("side")
TEAMS = (
    team_of(butler("echo"), "System4/root", purpose="everything"),
    team_of(butler("side"), "System4/side", team_id=SIDE, purpose="the rest"),
)
RULES = (
    rule("System1/echo", channel="telegram"),
    rule("System1/echo", channel="email"),
    rule("System1/echo", channel="api"),
    rule("side", channel="slack"),
)
"""A webhook reaches nobody: a dead letter."""

CONNECTOR = Principal("connector", "bot", "telegram", "bot:house")
AGENT = Principal("agent", "echo", system_id="System1/echo")
HANDLER = Principal("agent", "handler", system_id="System4/root")


@dataclass(frozen=True, slots=True)
class Opened:
    """A running server. `http` shows the operator's token."""

    url: str
    token: str = field(repr=False)
    http: httpx2.AsyncClient
    lab: Lab
    switchboard: Switchboard
    access: Access
    stop: asyncio.Event
    served: asyncio.Task[None]

    @property
    def environment(self) -> Mapping[str, str]:
        """What commands of the operator need, in a wide terminal."""
        return {"SWITCHBOARD_URL": self.url, "SWITCHBOARD_TOKEN": self.token, "COLUMNS": "200"}

    async def token_of(self, principal: Principal) -> str:
        """A new token."""
        return (await self.access.issue(Principal("operator", "test"), principal)).secret

    async def token_for(self, principal: Principal) -> Mapping[str, str]:
        """The header of a new token."""
        return {"authorization": f"Bearer {await self.token_of(principal)}"}

    async def submit(self, envelope: Mapping[str, Any], **headers: str) -> httpx2.Response:
        """POST one envelope."""
        return await self.http.post("/v1/ingest", json=envelope, headers=headers)


Tree = tuple[tuple[Team, ...], tuple[Rule, ...]]


@asynccontextmanager
async def open_server(
    database_url: str,
    data_dir: Path,
    *,
    worker: bool = False,
    tree: Tree = (TEAMS, RULES),
    mail_limits: MailLimits | None = None,
    policies: Mapping[str, Policy] | None = None,
    more: Mapping[str, Any] | None = None,
    **accept: Any,
) -> AsyncIterator[Opened]:
    """Migrate, seed, serve on a free port of loopback; with `worker`, answer too. `accept` are AcceptLimits,

    `more` other settings.
    """
    sizes = AcceptLimits(**accept)
    endpoints = {name: EndpointSettings(strangers=one) for name, one in (policies or {}).items()}
    settings = Settings(data_dir=data_dir, accept=sizes, endpoints=endpoints, **(more or {}))
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(
            lab(
                database_url,
                *tree,
                message_bytes=sizes.message_bytes,
                backlog=sizes.backlog,
                sender_per_minute=sizes.sender_per_minute,
                policies=settings.policies,
                channels=known_channels(settings),
            )
        )
        runtime = Runtime(settings, made.database, made.notifier, made.rule_book)
        await stack.enter_async_context(runtime.closing)
        mails = MailReader(mail_limits)
        stack.push_async_callback(mails.close)
        switchboard = Switchboard(runtime, made.accept, made.replies, mails)
        if worker:
            await stack.enter_async_context(_working(made.worker()))
        stop = asyncio.Event()
        url, served = await _serve(switchboard, stop)
        stack.push_async_callback(_stopped, stop, served)
        token = (data_dir / "operator.token").read_text(encoding="ascii").strip()
        http = await stack.enter_async_context(
            httpx2.AsyncClient(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=30, verify=NO_TLS)
        )
        yield Opened(url, token, http, made, switchboard, Access(made.database), stop, served)


async def _serve(switchboard: Switchboard, stop: asyncio.Event) -> tuple[str, asyncio.Task[None]]:
    at: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        run_server(switchboard, bind("127.0.0.1", 0), stop, lambda host, port: at.set_result(f"http://{host}:{port}"))
    )

    def ended(task: asyncio.Task[None]) -> None:
        if not at.done():
            at.set_exception(task.exception() or RuntimeError("the server stopped before it was up"))

    serving.add_done_callback(ended)
    return await at, serving


async def _stopped(stop: asyncio.Event, served: asyncio.Task[None]) -> None:
    stop.set()
    await served


@asynccontextmanager
async def _working(worker: Worker) -> AsyncIterator[None]:
    running = asyncio.create_task(worker.run())
    await worker.ready.wait()
    try:
        yield
    finally:
        worker.stop()
        await running


def serve_in_process(pipe: Connection, database_url: str, data_dir: Path) -> None:
    """For a process of its own: serve with some messages in, say (url, token), end at a word from the other side.

    It may write into its directory, as set-up does, which is therefore not that of the tests.
    """
    os.chdir(data_dir)

    async def main() -> None:
        async with open_server(database_url, data_dir, worker=True) as server:
            for channel in ("api", "telegram", "slack"):
                await server.submit(envelope_json("hello", channel=channel))
            pipe.send((server.url, server.token))
            await asyncio.to_thread(pipe.poll, None)

    asyncio.run(main())
