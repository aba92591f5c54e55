"""A server killed at each point of taking a webhook: the sender posts again, and there is one message."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import httpx2
import pytest

from tests.forked import Forked, Forks
from tests.ports import free_port
from tests.processes import environment
from tests.servers import NO_TLS
from tests.webhooks import Request, account, standard

BODY = b'{"type":"order.paid","order":7}'
PATIENCE_S = 60.0


def serve(forks: Forks, env: Mapping[str, str], place: Path, crash_at: str = "") -> Forked:
    return forks.start("switchboard.cli.main", "serve", env={**env, "SWITCHBOARD_CRASH_AT": crash_at}, errors=place)


async def posted(server: Forked, url: str, request: Request) -> httpx2.Response | None:
    """The answer once the server is up; None: it was killed before it answered."""
    deadline = time.monotonic() + PATIENCE_S
    async with httpx2.AsyncClient(verify=NO_TLS, timeout=PATIENCE_S) as client:
        while time.monotonic() < deadline:
            try:
                return await client.post(f"{url}/hooks/orders", content=request.body, headers=dict(request.headers))
            except httpx2.TransportError:
                if server.returncode is not None:
                    return None
                await asyncio.sleep(0.02)
    raise TimeoutError(server.errors.read_text(encoding="utf-8")[-2000:])


@pytest.mark.slow
async def test_killed_before_it_answers_a_webhook_it_ends_with_one_message_of_it(
    forks: Forks, database_url: str, tmp_path: Path
) -> None:
    account(tmp_path / "channels.d", "orders", 'verify = "standard"')
    port, errors = free_port(), tmp_path / "errors"
    url = f"http://127.0.0.1:{port}"
    env = environment(tmp_path / "data", PORT=str(port), DATABASE_URL=database_url)
    env = {**os.environ, **env, "SWITCHBOARD_CHANNELS_DIR": str(tmp_path / "channels.d")}
    request = standard(BODY)
    for point in ("after_receive", "before_commit", "after_commit"):
        killed = serve(forks, env, errors, point)
        assert await posted(killed, url, request) is None, point
        assert await killed.wait() == -signal.SIGKILL, point
    server = serve(forks, env, errors)
    try:
        answer = await posted(server, url, request)
        assert answer is not None
        assert (answer.status_code, answer.json()["status"]) == (200, "duplicate")
        token = (tmp_path / "data" / "operator.token").read_text(encoding="ascii").strip()
        async with httpx2.AsyncClient(verify=NO_TLS, headers={"authorization": f"Bearer {token}"}) as client:
            found = json.loads((await client.get(f"{url}/v1/messages")).content)["messages"]
        assert [one["request_id"] for one in found] == [answer.json()["request_id"]]
    finally:
        server.kill()
        await server.wait()
