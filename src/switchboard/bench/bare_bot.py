"""The baseline of `switchboard bench channels`: a bot that only long-polls the Bot API and answers at once.

    python -m switchboard.bench.bare_bot URL_WITH_TOKEN

It stores nothing, so a crash would lose the messages in progress. Prints a line when it is ready.
"""

from __future__ import annotations

import asyncio
import sys

import httpx2


async def serve(base: str) -> None:
    """Answer every message with its own text until stopped."""
    async with httpx2.AsyncClient(timeout=60, trust_env=False) as client:
        offset = 0
        print("ready", flush=True)  # noqa: T201 - the first line is the protocol
        while True:
            asked = {"offset": offset, "timeout": 30}
            found = (await client.post(f"{base}/getUpdates", json=asked)).json()["result"]
            for update in found:
                offset = update["update_id"] + 1
                message = update["message"]
                sent = {"chat_id": message["chat"]["id"], "text": message["text"]}
                (await client.post(f"{base}/sendMessage", json=sent)).raise_for_status()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
