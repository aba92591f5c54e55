"""A connector in 50 lines: each line of stdin is a message to the switchboard, each reply a line of stdout.

    SWITCHBOARD_URL=http://127.0.0.1:8470 SWITCHBOARD_TOKEN=sb_c_… python over_http.py CHANNEL ENDPOINT

A line is `SENDER TEXT`; replies to the sender's earlier messages come before the next line is read. A real connector
would listen to its platform instead of stdin, and take the platform's own ids of events.
"""

import os
import sys
import uuid
from datetime import UTC, datetime
from typing import Any

import httpx2

if len(sys.argv) != 3:
    sys.exit(__doc__)
CHANNEL, ENDPOINT = sys.argv[1:]
token = {"Authorization": f"Bearer {os.environ['SWITCHBOARD_TOKEN']}"}
http = httpx2.Client(base_url=os.environ["SWITCHBOARD_URL"], headers=token, timeout=60)


def post(path: str, body: object) -> Any:
    """The decoded answer; an error raises, and a connector tries again: the same event is stored once."""
    response = http.post(path, json=body)
    if response.is_error:
        raise RuntimeError(response.text)
    return response.json()


def submit(sender: str, text: str) -> None:
    """After the answer the message is safe with the switchboard: only then confirm it to the platform."""
    envelope = {
        "schema_version": "ingest.v1",
        "source": {"channel": CHANNEL, "provider": CHANNEL, "endpoint_identity": ENDPOINT},
        "event": {"external_event_id": str(uuid.uuid4()), "observed_at": datetime.now(UTC).isoformat()},
        "sender": {"identity": sender, "chat_type": "private"},
        "payload": {"raw": None, "normalized_text": text},
    }
    post("/v1/ingest", envelope)


def deliver() -> None:
    """Send what waits; the receipt says what the platform said, here that the line was written."""
    replies = post("/v1/outbox/next", {"channel": CHANNEL, "endpoint": ENDPOINT, "wait_s": 20})["replies"]
    for reply in replies:
        print(f"{reply['recipient']} {reply['text']}", flush=True)
        for n, file in enumerate(reply["files"]):
            data = http.get(f"/v1/outbox/{reply['outbox_id']}/files/{n}").raise_for_status().content
            print(f"{reply['recipient']} [{file['filename']}: {len(data)} bytes]", flush=True)
        post(f"/v1/outbox/{reply['outbox_id']}/receipt", {"lease": reply["lease"], "outcome": "sent"})


for line in sys.stdin:
    name, _, words = line.strip().partition(" ")
    if words:
        submit(name, words)
        deliver()
    else:
        print("not sent: a line is SENDER TEXT", file=sys.stderr)
