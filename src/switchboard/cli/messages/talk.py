"""A message from the terminal, and the wait for its answer.

Called by `send.py` and `chat.py`. In: text, which goes to the server as an `ingest.v1` envelope; out: its progress as a
`MessageProgress`. Next: `cli/client.py`.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from msgspec import Struct
from rich.text import Text

from switchboard.cli.client import Client, part
from switchboard.cli.output import FAILED, OK, Json, NoServer, clean, errors, out, show
from switchboard.core.files.reply_files import reply_name, size_text
from switchboard.domain.envelope import SCHEMA_VERSION
from switchboard.domain.errors import InvalidInput, Unavailable

_LONGEST_S: Final = 3600.0
"""Of one stream."""
_AGAIN_S: Final = 0.5
"""Pause before a stream that has ended is asked for again."""
_FAILURES: Final = 20
"""Failures in a row after which a stream is abandoned."""

Take = Callable[[str, Json], None]
"""Is given the kind and the data of an event; see docs/api.md."""


class Draft(Struct, frozen=True):
    """A message to send, with its sender. `event_id` names the event: repeating it repeats the same message."""

    text: str
    channel: str
    endpoint: str
    sender: str
    thread: str | None
    event_id: str


class MessageProgress(Struct, frozen=True):
    """The progress of a message: its replies so far, its state, and whether more can come."""

    request_id: str
    state: str
    settled: bool
    replies: tuple[Json, ...]
    reasons: tuple[str, ...] = ()
    """Why it is dead, where it is."""
    asked: bool = False
    """Its turn waits for people."""

    @property
    def good(self) -> bool:
        """Whether a butler accepted it."""
        return self.settled and self.state == "answered"


def local_user() -> str:
    """The user of this terminal."""
    return getpass.getuser()


def local_endpoint() -> str:
    """This terminal's account: user@host."""
    return f"{local_user()}@{socket.gethostname()}"


def new_id() -> str:
    """A unique name for an event or a thread."""
    return str(uuid4())


def require_text(text: str) -> str:
    """The text, unless empty. Raises InvalidInput."""
    if not text.strip():
        raise InvalidInput("there is nothing to send: the text is empty", code="empty_message")
    return text


def envelope(draft: Draft) -> Json:
    """The draft as `ingest.v1`."""
    event = {"external_event_id": draft.event_id, "observed_at": datetime.now(UTC).isoformat().replace("+00:00", "Z")}
    return {
        "schema_version": SCHEMA_VERSION,
        "source": {"channel": draft.channel, "provider": "internal", "endpoint_identity": draft.endpoint},
        "event": event | ({"external_thread_id": draft.thread} if draft.thread else {}),
        "sender": {"identity": draft.sender},
        "payload": {"raw": None, "normalized_text": draft.text},
        "control": {"policy_tier": "interactive"},
    }


async def submit(client: Client, draft: Draft) -> Json:
    """Submit it; returns {request_id, duplicate, …}."""
    # Invalid bytes come from a terminal as lone surrogates, which nobody else can read as text either.
    body = json.dumps(envelope(draft), ensure_ascii=False).encode(errors="replace")
    return await client.post("/v1/ingest", body)


async def follow(client: Client, request_id: str, *, wait: float, take: Take) -> MessageProgress:
    """Wait up to `wait` seconds until all is settled; `take` receives every event of its stream.

    An interrupted stream, as when the server restarts, is continued. Raises NoServer or Unavailable if that fails.
    """
    path, deadline, kind, last, failures = f"/v1/messages/{part(request_id)}", time.monotonic() + wait, "", "", 0
    while True:
        left = min(max(deadline - time.monotonic(), 0.0), _LONGEST_S)
        try:
            async for mark, kind, data in client.events(f"{path}/stream", {"wait_s": round(left, 2)}, after=last):
                last, failures = mark or last, 0
                take(kind, data)
        except (NoServer, Unavailable):
            failures += 1
            if failures == _FAILURES or time.monotonic() >= deadline:
                raise
        if time.monotonic() >= deadline or kind == "done":
            return await _answer(client, path, request_id)
        await asyncio.sleep(_AGAIN_S)


async def _answer(client: Client, path: str, request_id: str) -> MessageProgress:
    got = await client.get(f"{path}/replies")
    reasons = await _reasons(client, request_id) if got["state"] in ("dead", "declined") else ()
    return MessageProgress(request_id, got["state"], got["settled"], tuple(got["replies"]), reasons)


async def _reasons(client: Client, request_id: str) -> tuple[str, ...]:
    message = await client.get(f"/v1/messages/{part(request_id)}")
    return tuple(
        f"{dead_letter['category']}: {dead_letter['reason']}" for dead_letter in message.get("dead_letters", [])
    )


def show_reply(reply: Json) -> None:
    """A reply as people read it: the butler and its text."""
    out().print(
        Text(f"{clean(reply['system_id'])}: ", style="bold cyan").append(clean(reply["text"]), style="not bold default")
    )
    show_files(reply)


def show_files(reply: Json) -> None:
    """The files of a reply, and how to get them; a server of an earlier release lists none."""
    for file in reply.get("files", ()):
        out().print(Text(f"  {describe_file(file)}"), soft_wrap=True)
    if reply.get("files"):
        errors().print(Text(f"  switchboard outbox save {reply['outbox_id']}", style="dim"), soft_wrap=True)


def describe_file(file: Json) -> str:
    """A file of a reply on a line: `report.pdf, application/pdf, 31 MB`."""
    return f"{reply_name(file['filename'])}, {clean(file['media_type'])}, {size_text(file['size_bytes'])}"


def _show_silence(answer: MessageProgress) -> None:
    """Report the outcome if no reply does."""
    reasons = "".join(f"\n  {reason}" for reason in answer.reasons)
    match answer:
        case MessageProgress(settled=False):
            note = f"no answer yet; look later with `switchboard explain {answer.request_id}`"
        case MessageProgress(state="dead"):
            note = f"this message could not be delivered; it is kept as a dead letter{reasons}"
        case MessageProgress(state="declined"):
            note = f"declined: no reply is needed{reasons}"
        case MessageProgress(state="cancelled"):
            note = "cancelled"
        case MessageProgress(replies=()):
            note = "accepted, without a reply"
        case _:
            return
    errors().print(Text(clean(note), style="yellow"), soft_wrap=True)


def conclude(answer: MessageProgress, accepted: Json) -> int:
    """Show machines the whole exchange, and people what no reply has said; returns the exit code."""
    whole = {
        **accepted,
        "state": answer.state,
        "settled": answer.settled,
        "replies": list(answer.replies),
        "reasons": list(answer.reasons),
    }
    show(whole, lambda _: _show_silence(answer))
    return OK if answer.good else FAILED
