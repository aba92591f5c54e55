"""The baseline of the API: a FastAPI POST that validates the envelope, stores nothing, and answers. Run with -m."""

from __future__ import annotations

import socket
from typing import Annotated, Any

import uvicorn
from fastapi import Body, FastAPI

from switchboard.core.envelope.strict import AsModel
from switchboard.domain.envelope import Envelope

app = FastAPI()


@app.post("/v1/ingest", status_code=202)
async def ingest(envelope: Annotated[Any, AsModel(Envelope), Body()]) -> dict[str, str]:
    """Report acceptance without storing anything."""
    return {"status": "accepted", "event": envelope.event.external_event_id}


def main() -> None:
    """Listen on a free port of loopback and print it."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)  # noqa: T201 - the first line is the protocol
    uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    main()
