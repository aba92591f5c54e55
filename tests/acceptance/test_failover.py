"""The database machine is lost, and its synchronous standby takes over: nothing that was acknowledged is."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from switchboard.domain.errors import Unavailable
from switchboard.embedded.binaries import account_for, find_programs
from switchboard.embedded.postmaster import EmbeddedServer, stop
from switchboard.embedded.supervisor import embedded_postgres
from tests.lab import butler, envelope_json, lab, rule, submission, team_of
from tests.processes import Server, environment, running, told, write_teams
from tests.waiting import eventually

pytestmark = pytest.mark.slow

REPLICATION = {"wal_level": "replica", "max_wal_senders": "4", "hot_standby": "on"}
CHATS, EACH = 20, 20
ECHO = {
    "team": {"name": "root"},
    "systems": [{"name": "echo", "type": "operation", "engine": "echo"}],
    "routing_rules": [{"name": "all", "channel": "*", "targets": [{"system_id": "System1/echo"}]}],
}


@asynccontextmanager
async def pair(place: Path) -> AsyncIterator[tuple[EmbeddedServer, EmbeddedServer]]:
    """A primary whose commits wait for its standby, and the standby."""
    async with embedded_postgres(place / "primary", settings=REPLICATION) as primary:
        copy = place / "standby"
        copy.mkdir(mode=0o700)
        account = account_for(primary.data_dir)
        if account is not None:
            shutil.chown(copy, account.uid, account.gid)
        programs = await find_programs(None, account)
        source = ("-h", str(primary.socket_dir), "-p", str(primary.port), "-U", "postgres")
        made = await programs.run("pg_basebackup", *source, "-D", str(copy), "-R", "-c", "fast", data_dir=copy)
        assert made.code == 0, made.text
        async with embedded_postgres(copy, settings=REPLICATION) as standby:
            await ask(primary, "alter system set synchronous_standby_names = '*'", "select pg_reload_conf()")
            await eventually(lambda: in_step(primary))
            yield primary, standby


async def ask(server: EmbeddedServer, *statements: str) -> Any:
    """Run statements; the value of the last."""
    connection = await asyncpg.connect(server.url)
    try:
        return [await connection.fetchval(statement) for statement in statements][-1]
    finally:
        await connection.close()


async def in_step(primary: EmbeddedServer) -> bool:
    return bool(await ask(primary, "select count(*) from pg_stat_replication where sync_state = 'sync'"))


async def waiting_for_the_standby(primary: EmbeddedServer) -> list[int]:
    """The sessions whose commit waits."""
    found = "select array_agg(pid) from pg_stat_activity where wait_event = 'SyncRep'"
    return list(await ask(primary, found) or [])


@pytest.mark.parametrize("channel", ["telegram", "slack"], ids=["routed", "nobody takes it"])
async def test_nothing_unconfirmed_by_the_standby_is_acknowledged_on_any_retry(place: Path, channel: str) -> None:
    """A cancelled wait is a success to PostgreSQL, with a warning; a duplicate has nothing to write of its own."""
    alone = team_of(butler("echo"))
    rules = (rule("System1/echo", channel="telegram"),)
    async with pair(place) as (primary, standby), lab(primary.url, (alone,), rules) as parts:
        await stop(standby.data_dir, immediate=True)
        for _ in range(2):
            sending = asyncio.create_task(parts.accept.accept(submission("x", channel=channel, event="1")))
            await eventually(lambda: waiting_for_the_standby(primary))
            for pid in await waiting_for_the_standby(primary):
                await ask(primary, f"select pg_cancel_backend({pid})")
            with pytest.raises(Unavailable):
                await sending
        sending = asyncio.create_task(parts.accept.accept(submission("x", channel=channel, event="1")))
        await eventually(lambda: waiting_for_the_standby(primary))
        await ask(primary, "alter system set synchronous_standby_names = ''", "select pg_reload_conf()")
        assert (await sending).duplicate
        assert await parts.count("select count(*) from message_inbox") == 1


def either(primary: EmbeddedServer, standby: EmbeddedServer) -> str:
    """One URL for both: whichever may be written to."""
    hosts = f"{primary.socket_dir},{standby.socket_dir}"
    ports = f"{primary.port},{standby.port}"
    return f"postgresql://postgres@/switchboard?host={hosts}&port={ports}&target_session_attrs=read-write"


def envelope(chat: int, number: int) -> Mapping[str, Any]:
    event, name = f"{chat}-{number}", str(chat)
    return envelope_json(str(number), channel="api", sender=name, event=event, thread=name, endpoint="api:test")


class Sender:
    """Sends every chat's messages one after the other, each again until it is acknowledged; keeps what was promised."""

    def __init__(self, server: Server) -> None:
        token = Path(server.said["token_file"]).read_text().strip()
        self.url = server.said["url"]
        self.headers = {"authorization": f"Bearer {token}"}
        self.promised: dict[str, tuple[int, int]] = {}
        self.half = asyncio.Event()

    async def send_all(self) -> None:
        async with aiohttp.ClientSession(headers=self.headers) as http, asyncio.TaskGroup() as group:
            for chat in range(CHATS):
                group.create_task(self._chat(http, chat))

    async def _chat(self, http: aiohttp.ClientSession, chat: int) -> None:
        for number in range(EACH):
            await eventually(partial(self._accepted, http, chat, number), within=60)

    async def _accepted(self, http: aiohttp.ClientSession, chat: int, number: int) -> bool:
        async with http.post(f"{self.url}/v1/ingest", json=envelope(chat, number)) as response:
            if response.status == 503:  # the one thing that may be said while no database can be written to
                return False
            response.raise_for_status()
            self.promised[(await response.json())["request_id"]] = (chat, number)
        if len(self.promised) >= CHATS * EACH // 2:
            self.half.set()
        return True


async def test_a_standby_takes_over_and_nothing_is_lost_or_doubled(place: Path) -> None:
    async with pair(place) as (primary, standby):
        url = either(primary, standby)
        env = environment(place / "data", DATABASE_URL=url, TEAMS_DIR=str(write_teams(place / "teams", ECHO)))
        with running(env, "up") as server:
            sender = Sender(server)
            sending = asyncio.create_task(sender.send_all())
            await asyncio.wait_for(sender.half.wait(), 60)
            await stop(primary.data_dir, immediate=True)
            assert await ask(standby, "select pg_promote()")
            await sending
            assert len(sender.promised) == CHATS * EACH
            await eventually(lambda: all_answered(standby, sender.promised), within=60)
            assert await answers(standby) == {str(c): [f"{n}" for n in range(EACH)] for c in range(CHATS)}
            assert told(server.environment, "doctor")["healthy"]


async def all_answered(standby: EmbeddedServer, promised: Mapping[str, object]) -> bool:
    answered = await ask(standby, "select count(*) from switchboard.delivery where state = 'answered'")
    return bool(answered == len(promised))


async def answers(standby: EmbeddedServer) -> Mapping[str, Sequence[str]]:
    """Per chat, what its replies say, in the order in which they wait to be sent."""
    connection = await asyncpg.connect(standby.url)
    try:
        rows = await connection.fetch(
            "select thread, array_agg(text order by seq) as texts from switchboard.outbox group by thread"
        )
    finally:
        await connection.close()
    return {row["thread"]: row["texts"] for row in rows}
