"""A client of the gateway: each line of stdin is a message, its answer is printed while it is written.

    SWITCHBOARD_URL=http://127.0.0.1:8470 SWITCHBOARD_TOKEN=sb_c_… python talk.py SESSION

A connection that is lost is made again, and the answer goes on where it was. Needs the package `websockets`.
"""

import asyncio
import json
import os
import sys
import uuid
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

if len(sys.argv) != 2:
    sys.exit(__doc__)
SESSION = sys.argv[1]
URL = os.environ["SWITCHBOARD_URL"].replace("http", "ws", 1) + "/v1/ws"


class Refused(Exception):
    """The server says no; the text says why."""


async def ask(socket: ClientConnection, method: str, **params: Any) -> Any:
    """Send a request, and wait for its answer. Nothing else comes meanwhile: we follow one stream at a time."""
    await socket.send(json.dumps({"type": "req", "id": "1", "method": method, "params": params}))
    answer = json.loads(await socket.recv())
    if not answer["ok"]:
        raise Refused(answer["error"]["message"])
    return answer["payload"]


async def say(text: str) -> str:
    """Send a message, follow its answer to the end, and return it."""
    key, stream, seq = str(uuid.uuid4()), "", 0
    said: dict[str, str] = {}
    async for socket in connect(URL, proxy=None):  # again and again, until we return
        try:
            await ask(socket, "connect", token=os.environ["SWITCHBOARD_TOKEN"])
            if not stream or not (await ask(socket, "chat.resume", stream=stream, seq=seq))["resumed"]:
                # The same key is the same message: if it was stored, it is not stored again.
                sent = await ask(socket, "chat.send", session=SESSION, text=text, key=key, stream=True)
                stream, seq, said = sent["stream"], 0, {}
            while True:
                event = json.loads(await socket.recv())
                seq, told = event["seq"], event["payload"]
                match event["event"]:
                    case "chat.delta":
                        before = said.get(told["system_id"], "")
                        said[told["system_id"]] = before[: told["offset"]] + told["text"]
                    case "chat.reset":
                        said[told["system_id"]] = ""
                    case "chat.done":
                        return "\n\n".join(said.values())
                    case "chat.error":
                        raise Refused(told["message"])
        except ConnectionClosed as closed:
            if closed.rcvd and closed.rcvd.code == 1008:
                raise Refused(closed.rcvd.reason) from closed
    raise Refused("no connection")


for line in filter(None, map(str.strip, sys.stdin)):
    try:
        print(asyncio.run(say(line)), flush=True)
    except Refused as error:
        print(f"no answer: {error}", file=sys.stderr)
