"""`switchboard send`: one message, and its answer if asked for. Called by `cli/main.py`. Next: `talk.py`."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from switchboard.cli.client import Client, ask
from switchboard.cli.messages.screen import screen
from switchboard.cli.messages.talk import (
    Draft,
    conclude,
    follow,
    local_endpoint,
    local_user,
    new_id,
    require_text,
    submit,
)
from switchboard.cli.output import OK, errors, exit_unless_ok, show, wants_json
from switchboard.domain.errors import Unavailable


def send(  # noqa: PLR0913 - the options of a command
    text: Annotated[str, typer.Argument(help="The text; `-` reads it from stdin.")],
    *,
    channel: Annotated[
        Literal["api", "cli"], typer.Option(help="The channel; messages of all others come from connectors.")
    ] = "api",
    endpoint: Annotated[
        str | None, typer.Option(help="The account that the message is sent to; by default you@this-host.")
    ] = None,
    sender: Annotated[str | None, typer.Option(help="The sender; by default you.")] = None,
    thread: Annotated[str | None, typer.Option(help="The conversation; by default the sender's.")] = None,
    event_id: Annotated[
        str | None, typer.Option("--id", help="The id of the event: sent twice with the same id, it is stored once.")
    ] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the answer, which is printed.")] = 0.0,
) -> None:
    """Send one message. Exit code 1 with --wait: no answer came in time, or it could not be delivered."""
    for option, value in {"--endpoint": endpoint, "--sender": sender, "--thread": thread, "--id": event_id}.items():
        if value == "":  # from an unset variable, perhaps: a default in its place would go unnoticed
            raise typer.BadParameter("must not be empty", param_hint=option)
    draft = Draft(
        text=_text(text),
        channel=channel,
        endpoint=endpoint or local_endpoint(),
        sender=sender or local_user(),
        thread=thread,
        event_id=event_id or new_id(),
    )
    exit_unless_ok(ask(lambda client: _send(client, draft, wait)))


def _text(text: str) -> str:
    return require_text(sys.stdin.buffer.read().decode(errors="replace") if text == "-" else text)


async def _send(client: Client, draft: Draft, wait: float) -> int:
    try:
        accepted = await submit(client, draft)
    except Unavailable as error:
        if error.code == "not_ours":
            raise
        again = f"it may have been stored: to have it stored once, send it again with --id {draft.event_id}"
        raise Unavailable(f"{error.message}; {again}", code=error.code) from error
    request_id = str(accepted["request_id"])
    if not wait:
        again = " (it was stored before)" if accepted["duplicate"] else ""
        show(accepted, f"{request_id}{again}")
        # A sender that does not wait for an answer would not learn that there will be none.
        if accepted.get("triage_decision") == "dead_letter" and not wants_json():
            note = f"note: no butler gets it: it is a dead letter; `switchboard explain {request_id}` says why"
            errors().print(note, style="yellow", soft_wrap=True)
        return OK
    answer = await follow(client, request_id, wait=wait, take=screen())
    return conclude(answer, accepted)
