"""`switchboard messages`: what arrived. Called by `cli/main.py`. Next: `explain.py`, which says why it went there."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from typing import Annotated
from uuid import UUID

import msgspec
import typer
from rich.text import Text

from switchboard.cli.client import Client, ask
from switchboard.cli.ids import RequestId, ask_about
from switchboard.cli.messages.files import attachment_line, save
from switchboard.cli.models.views import attempt_line
from switchboard.cli.names import butler, targets
from switchboard.cli.output import (
    Cursor,
    Json,
    clean,
    one_line,
    out,
    print_json,
    show,
    show_page,
    state,
    table,
    wants_json,
    when,
)
from switchboard.cli.rules.options import moment, reason_for
from switchboard.cli.rules.views import pairs_of
from switchboard.core.passages.folding import folded
from switchboard.core.passages.showing import marked_text
from switchboard.core.text.visible import escaped
from switchboard.domain.envelope import Passage
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.shown import MessageState

app = typer.Typer(
    help="List messages; show, stop or correct one, or get its original bytes or its files.", no_args_is_help=True
)

Limit = Annotated[int, typer.Option(min=1, max=500, help="Maximum number, newest first.")]
Channel = Annotated[str | None, typer.Option(help="Only this channel.")]
Endpoint = Annotated[str | None, typer.Option(help="Only this account of a channel, such as a bot or a mailbox.")]
Sender = Annotated[str | None, typer.Option(help="Only from this sender, as the channel knows them, such as 5488.")]
Team = Annotated[str | None, typer.Option(help="Only what went to a butler of this team, or died there.")]
Since = Annotated[
    str | None,
    typer.Option(help="Only what came in at this time or later, such as 2026-01-31 or 2026-01-31T12:00:00Z."),
]
Until = Annotated[str | None, typer.Option(help="Only what came in before this time.")]


@app.command("list")
def list_messages(  # noqa: PLR0913 - the options of a command
    *,
    limit: Limit = 50,
    cursor: Cursor = None,
    channel: Channel = None,
    endpoint: Endpoint = None,
    sender: Sender = None,
    to: Annotated[
        str | None, typer.Option("--butler", help="Only what went to this butler, such as memo or System1/memo.")
    ] = None,
    team: Team = None,
    only: Annotated[MessageState | None, typer.Option("--state", help="Only messages in this state.")] = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """List messages, the newest first.

    Each page looks through 10,000 messages at most, unless only channel, account and time are given.
    """
    asked = {"limit": limit, "channel": channel, "endpoint": endpoint, "sender": sender, "state": only}
    times = {"since": moment(since, "--since"), "until": moment(until, "--until")}
    params = {**asked, **times, "system_id": to and butler(to), "team_id": team, "cursor": cursor}
    page = ask(lambda client: client.get("/v1/messages", params))
    show_page(page, _print_found, "messages list", **asked, butler=to, team=team, since=since, until=until)


def _print_found(page: Json) -> None:
    rows = (
        (
            m["request_id"],
            when(m["received_at"], short=True),
            state(_state_of(m)),
            m["channel"],
            m["sender"],
            ", ".join(m["went_to"]),
            one_line(m["text"]),
        )
        for m in page["messages"]
    )
    names = ("id", "received", "state", "channel", "sender", "went to", "text")
    out().print(table(*names, rows=rows, keep=("id", "received", "state"), room=12))
    if page.get("looked_until"):
        looked = f"looked through 10,000 messages, as far as {when(page['looked_until'])}"
        out().print(looked, style="dim", soft_wrap=True)


@app.command("show")
def show_message(request_id: RequestId) -> None:
    """Show one message with its envelope, deliveries, replies and dead letters."""
    message = ask_about("message", request_id, lambda client, found: client.get(f"/v1/messages/{found}"))
    rows: list[tuple[object, object]] = [("id", message["request_id"]), ("state", state(_state_of(message)))]
    rows.append(("received", when(message["received_at"])))
    rows += [(name, message.get(name)) for name in ("channel", "endpoint", "sender", "thread", "conversation")]
    if message.get("same_id"):
        rows.append(("same id", f"as message {message['same_id']}, which has another content"))
    rows.append(("facts", pairs_of(message["facts"] or {})))
    attached = message["envelope"]["payload"]["attachments"]
    rows += [(f"file {n}", attachment_line(one)) for n, one in enumerate(attached, 1)]
    rows += [("delivery", _became(d["system_id"], d["state"], d["error_class"])) for d in message["deliveries"]]
    rows += [("reply", _became(r["system_id"], r["state"], r["text"])) for r in message["replies"]]
    rows += [
        ("dead letter", _became(x["team_id"], x["status"], f"{x['category']}: {x['reason']}"))
        for x in message["dead_letters"]
    ]
    rows += [("model", attempt_line(c)) for c in message["classifications"]]
    show(message, table("", "", rows=rows, wrap=True), Text("\n" + clean(_words_in(message))))


def _state_of(message: JsonMapping) -> object:
    """A code goes to no butler, which the books count as cancelled."""
    return "code" if message.get("is_code") else message["state"]


def _words_in(message: JsonMapping) -> str:
    """The text, in which lines of others are marked."""
    given = message["envelope"]["payload"].get("passages") or ()
    passages = msgspec.convert(given, tuple[Passage, ...])
    return marked_text(folded(passages, answers=False)) if passages else str(message["text"])


def _became(who: object, how: object, what: object) -> Text:
    return Text(clean(who) + "  ").append(state(how)).append(f"  {one_line(what or '', 300)}", style="dim")


@app.command("correct")
def correct_message(
    request_id: RequestId,
    *,
    to: Annotated[
        str,
        typer.Option(help="The butler or team that should have got it.", metavar="TARGET"),
    ],
    reason: Annotated[str | None, typer.Option(help="The reason; it is recorded.", metavar="TEXT")] = None,
    only_note: Annotated[
        bool, typer.Option("--only-note", help="Only record the correction, deliver nothing.")
    ] = False,
) -> None:
    """Say who should have received a message: it goes there too, once, and the correction is recorded.

    What the wrong butler did is not undone. `models log --corrected` lists corrections.
    """
    [target] = targets([to])
    body = {"to": next(iter(target.values())), "only_note": only_note} | ({} if reason is None else {"reason": reason})

    def correct(client: Client, found: UUID) -> Awaitable[Json]:
        return client.post(f"/v1/messages/{found}/correction", body)

    answer = ask_about("message", request_id, correct)
    was = "was already corrected" if answer["already"] else "is corrected"
    takers = ", ".join(clean(one["system_id"]) for one in answer["deliveries"])
    sent = f", and delivered to {takers} (decision {answer['decision_n']})" if answer["decision_n"] else ""
    show(answer, f"{request_id} {was} to {clean(answer['corrected_to'])}{sent}")


@app.command("reroute")
def reroute_message(
    request_id: RequestId,
    *,
    to: Annotated[
        str | None, typer.Option(help="A butler or a team; without it the current rules decide.", metavar="TARGET")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="The reason, required; it is recorded.", metavar="TEXT")] = None,
    instead_of: Annotated[
        str | None, typer.Option(help="Only in place of this butler; others who have the message keep it.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Even if there is an answer already.")] = False,
) -> None:
    """Send a message to others than those who have it, who do not answer it any more.

    What they did is not undone.
    """
    body: Json = {"reason": reason_for(reason), "again": again}
    body |= {} if to is None else {"to": targets([to])[0]}
    body |= {} if instead_of is None else {"instead_of": butler(instead_of)}

    def reroute(client: Client, found: UUID) -> Awaitable[Json]:
        return client.post(f"/v1/messages/{found}/reroute", body)

    answer = ask_about("message", request_id, reroute)
    takers = ", ".join(clean(one["system_id"]) for one in answer["deliveries"])
    before = f", no longer to {', '.join(clean(one) for one in answer['withdrawn'])}" if answer["withdrawn"] else ""
    show(answer, f"{answer['request_id']} is rerouted to {takers}{before} (decision {answer['decision_n']})")


@app.command("stop")
def stop_message(
    request_id: RequestId,
    *,
    reason: Annotated[str | None, typer.Option(help="The reason; it is recorded.", metavar="TEXT")] = None,
) -> None:
    """Stop the turns for a message; what was written so far is the reply. Messages waiting behind it are kept."""
    body = {} if reason is None else {"reason": reason}
    answer = ask_about("message", request_id, lambda client, found: client.post(f"/v1/messages/{found}/stop", body))
    show(answer, "stop requested" if answer["stopped"] else "no turn is running")


@app.command("try")
def try_message(
    request_id: RequestId,
    *,
    reason: Annotated[str | None, typer.Option(help="The reason; it is recorded.", metavar="TEXT")] = None,
) -> None:
    """Try now what waits for its next attempt, or is paused: turns, notices and replies of a message."""
    body = {} if reason is None else {"reason": reason}
    answer = ask_about("message", request_id, lambda client, found: client.post(f"/v1/messages/{found}/try", body))
    show(answer, "it goes on now" if answer["lanes"] else "nothing of it waits for another attempt")


@app.command("raw")
def raw_message(request_id: RequestId) -> None:
    """Write the message's bytes to stdout, exactly as they came. With --json: their text and media type.

    On a terminal, characters that could steer it are written as \\x1b and the like.
    """

    async def fetch(client: Client, found: UUID) -> tuple[bytes, str]:
        response = await client.ask("GET", f"/v1/messages/{found}/raw")
        return response.content, response.headers.get("content-type", "")

    content, media_type = ask_about("message", request_id, fetch)
    if wants_json():
        print_json({"media_type": media_type, "size_bytes": len(content), "text": content.decode(errors="replace")})
    else:
        shown = escaped(content.decode(errors="replace").replace("\r\n", "\n")).encode()
        sys.stdout.buffer.write(shown if sys.stdout.isatty() else content)
        sys.stdout.buffer.flush()


app.command("save")(save)
