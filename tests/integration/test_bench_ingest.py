"""What the load of `bench ingest` counts is what is stored."""

from __future__ import annotations

import json

import pytest

from switchboard.bench.connection import Connection
from switchboard.bench.ingest import batch_headers, batch_of, count_new_messages, messages, single_headers
from tests.servers import Opened


async def stored(server: Opened) -> int:
    return await server.lab.count("select count(*) from message_inbox")


async def test_single_posts_are_stored(server: Opened) -> None:
    connection = await Connection.open(f"{server.url}/v1/ingest", single_headers(server.token))
    for message, _ in zip(messages("m"), range(3), strict=False):
        assert json.loads(await connection.post(message.encode()))["duplicate"] is False
    assert await stored(server) == 3
    connection.close()


async def test_of_a_batch_what_is_new_and_good_is_counted(server: Opened) -> None:
    connection = await Connection.open(f"{server.url}/mcp", batch_headers(server.token))
    first, second = (message for message, _ in zip(messages("m"), range(2), strict=False))
    for _ in range(2):  # by the SDK, which has to be imported first, and by the short way
        assert count_new_messages(await connection.post(batch_of([first, second, first, "{}", '"text"']))) == 2
        first, second = (text.replace("m-", "n-") for text in (first, second))
    assert await stored(server) == 4
    connection.close()


async def test_an_answer_that_is_none_of_success_is_an_error(server: Opened) -> None:
    connection = await Connection.open(f"{server.url}/v1/ingest", single_headers("sb_o_wrong"))
    with pytest.raises(ConnectionError, match="401"):
        await connection.post(b"{}")
    connection.close()
