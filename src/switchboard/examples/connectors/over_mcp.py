"""A connector in 50 lines over MCP (the package `mcp`, 2.3): stdin are messages, stdout are replies.

    SWITCHBOARD_URL=http://127.0.0.1:8470 SWITCHBOARD_TOKEN=sb_c_… python over_mcp.py CHANNEL ENDPOINT

A line is `SENDER TEXT`. The same as over_http.py, with the tools `ingest`, `outbox_next` and `outbox_receipt`.
"""

import asyncio
import os
import sys
import uuid
from datetime import UTC, datetime
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

if len(sys.argv) != 3:
    sys.exit(__doc__)
CHANNEL, ENDPOINT = sys.argv[1:]
URL, TOKEN = os.environ["SWITCHBOARD_URL"], os.environ["SWITCHBOARD_TOKEN"]


async def call(client: Client, tool: str, **arguments: object) -> Any:
    """The result of a tool; an error raises, and a connector tries again: the same event is stored once."""
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        raise RuntimeError(result.content)
    return result.structured_content


async def submit(client: Client, sender: str, text: str) -> None:
    """After the result the message is safe with the switchboard: only then confirm it to the platform."""
    envelope = {
        "schema_version": "ingest.v1",
        "source": {"channel": CHANNEL, "provider": CHANNEL, "endpoint_identity": ENDPOINT},
        "event": {"external_event_id": str(uuid.uuid4()), "observed_at": datetime.now(UTC).isoformat()},
        "sender": {"identity": sender, "chat_type": "private"},
        "payload": {"raw": None, "normalized_text": text},
    }
    await call(client, "ingest", envelope=envelope)


async def deliver(client: Client, http: httpx2.AsyncClient) -> None:
    """Send what waits, files over HTTP; the receipt says what the platform said, here that the line was written."""
    for reply in (await call(client, "outbox_next", channel=CHANNEL, endpoint=ENDPOINT, wait_s=20))["replies"]:
        print(f"{reply['recipient']} {reply['text']}", flush=True)
        for n, file in enumerate(reply["files"]):
            got = await http.get(f"{URL}/v1/outbox/{reply['outbox_id']}/files/{n}")
            print(f"{reply['recipient']} [{file['filename']}: {len(got.content)} bytes]", flush=True)
        await call(client, "outbox_receipt", outbox_id=reply["outbox_id"], lease=reply["lease"], outcome="sent")


async def main() -> None:
    token = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        httpx2.AsyncClient(headers=token, timeout=60) as http,
        Client(streamable_http_client(f"{URL}/mcp", http_client=http)) as client,
    ):
        for line in sys.stdin:
            name, _, words = line.strip().partition(" ")
            if words:
                await submit(client, name, words)
                await deliver(client, http)
            else:
                print("not sent: a line is SENDER TEXT", file=sys.stderr)


asyncio.run(main())
