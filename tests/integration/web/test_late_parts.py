"""A part of a page that takes too long says so in its place, and the rest of the page is there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2

from tests.lab import envelope_json
from tests.servers import NO_TLS, open_server
from tests.web_house import link_of

LATE = "This part took too long."


async def test_what_takes_too_long_says_so_in_its_place(database_url: str, tmp_path: Path) -> None:
    """As while somebody else has locked a table."""
    async with (
        open_server(database_url, tmp_path / "data") as server,
        httpx2.AsyncClient(base_url=server.url, verify=NO_TLS, timeout=30) as http,
    ):
        await server.submit(envelope_json("still there"))
        await http.post((await link_of(server)).removeprefix(server.url), headers={"origin": server.url})
        assert LATE not in (await http.get("/ui/")).text
        async with server.lab.database.transaction() as other:
            await other.run("lock table balance, model_usage in access exclusive mode")
            now, models = await asyncio.gather(http.get("/ui/"), http.get("/ui/models"))
        assert (now.status_code, models.status_code) == (200, 200)
        assert "still there" in now.text
        assert "No butler is working at the moment." in now.text
        assert now.text.count(LATE) == 3, "how it is, the last 24 hours, and the books"
        assert LATE in models.text
        assert LATE not in (await http.get("/ui/")).text
