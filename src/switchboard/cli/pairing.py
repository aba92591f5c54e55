"""`switchboard pairing`: which senders may write to an endpoint. Called by `main.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import typer

from switchboard.cli.channels.served import served_accounts
from switchboard.cli.client import Client, ask
from switchboard.cli.ids import ask_about
from switchboard.cli.names import butler
from switchboard.cli.output import Cursor, Json, clean, details, one_line, show, show_page, state, table, when
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.strangers import owner_by_code_mistake
from switchboard.core.text.words import offer

app = typer.Typer(help="Decide who may write: list, approve, deny or revoke senders; make codes.", no_args_is_help=True)

ContactId = Annotated[str, typer.Argument(help="The contact's id, or its first or last characters.", metavar="ID")]
Account = Annotated[
    str, typer.Argument(help="Channel and endpoint, such as telegram/bot:123456, or the name of an account.")
]
Reason = Annotated[str | None, typer.Option(help="The reason; it is recorded.", metavar="TEXT")]
Limit = Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")]
State = Annotated[
    Literal["stranger", "approved", "denied"] | None, typer.Option("--state", help="Only those in this state.")
]


@app.command("list")
def list_contacts(*, in_state: State = None, limit: Limit = 100, cursor: Cursor = None) -> None:
    """List strangers, approved and denied senders, the newest first."""
    found = ask(lambda c: c.get("/v1/pairing", {"state": in_state, "limit": limit, "cursor": cursor}))
    rows = (
        (
            c["contact_id"],
            f"{c['channel']}/{c['endpoint']}",
            state(c["state"]),
            c["scope"],
            c["identity"],
            c["held"],
            when(c["last_seen_at"], short=True),
            ", ".join(c["owner_of"]),
            c["display_name"] or "",
        )
        for c in found["contacts"]
    )
    names = ("id", "account", "state", "scope", "identity", "held", "last seen", "owner of", "name")
    shown = table(*names, rows=rows, keep=names[:5])
    show_page(found, shown, "pairing list", state=in_state, limit=limit)


@app.command("show")
def show_contact(contact_id: ContactId) -> None:
    """Show one contact."""
    found = ask_about("contact", contact_id, lambda client, one: client.get(f"/v1/pairing/{one}"))
    shown = {**found, "owner_of": ", ".join(found["owner_of"])}
    rows = ((name.replace("_", " "), when(v) if name.endswith("_at") else v) for name, v in shown.items())
    show(found, details(rows))


@app.command("messages")
def list_held(contact_id: ContactId, *, limit: Limit = 50, cursor: Cursor = None) -> None:
    """List the held messages of a stranger, the newest first."""
    asked = {"limit": limit, "cursor": cursor}
    found = ask_about("contact", contact_id, lambda c, one: c.get(f"/v1/pairing/{one}/messages", asked))
    rows = (
        (m["request_id"], when(m["received_at"], short=True), one_line(m["sender"], 60), one_line(m["text"]))
        for m in found["messages"]
    )
    names = ("id", "at", "from", "text")
    show_page(found, table(*names, rows=rows, keep=names[:2]), f"pairing messages {contact_id}", limit=limit)


@app.command("approve")
def approve(contact_id: ContactId, *, reason: Reason = None) -> None:
    """Approve a sender, and release their held messages in order."""
    answer = _decide(contact_id, "approve", reason)
    files = ". Files sent with held messages are not kept: ask for them again" if answer["messages"] else ""
    told = f"approved; messages released: {answer['messages']}{files}"
    show(answer, f"{told}\nbutlers use their tools for owners only, see `switchboard pairing code --help`")


@app.command("deny")
def deny(contact_id: ContactId, *, reason: Reason = None) -> None:
    """Forget a sender's held messages, and refuse later ones."""
    answer = _decide(contact_id, "deny", reason)
    show(answer, f"denied; messages forgotten: {answer['messages']}")


@app.command("revoke")
def revoke(contact_id: ContactId, *, reason: Reason = None) -> None:
    """Make an approved or denied sender a stranger again."""
    answer = _decide(contact_id, "revoke", reason)
    show(answer, "a stranger again; the next message is held")


@app.command("allow")
def allow(
    account: Account,
    identity: Annotated[str, typer.Argument(help="The platform's id of the person or group; of mail, the address.")],
    *,
    group: Annotated[bool, typer.Option("--group", help="It is a group.")] = False,
) -> None:
    """Approve a sender who has not written yet."""
    body = {**_place_of(account), "identity": identity, "scope": "group" if group else "person"}
    answer = ask(lambda client: client.post("/v1/pairing", body))
    show(answer, f"{clean(identity)} may write to {clean(account)}")


@app.command("code")
def code(
    account: Account,
    *,
    owner: Annotated[
        str | None, typer.Option(help="The butler that its sender will own, so that it uses its tools for them.")
    ] = None,
) -> None:
    """Print a code; the person who sends it to this endpoint within ten minutes is approved.

    With --owner, also for people who may write already; they must send it in a private chat.
    """
    place = _place_of(account)
    body = {**place, "owner_of": None if owner is None else butler(owner)}
    found = ask(lambda client: client.post("/v1/pairing/codes", body))
    mark = CHANNELS[found["channel"]].command_mark
    told = f"{mark}start {found['code']}\nvalid until {when(found['expires_at'])}, for one person and five tries"
    if found["owner_of"]:
        told += f"; send it in a private chat: who sends it will own {found['owner_of']}, which uses its tools for them"
    else:
        by_code = owner_by_code_mistake(CHANNELS[found["channel"]]) is None
        how = "pass --owner BUTLER" if by_code else "name the person in `owners` in the team file"
        told += f"; it makes nobody an owner, and butlers use their tools only for owners: {how}"
    if found["strangers"] != "pair":
        told += f"\nit has no effect yet: strangers is {found['strangers']} for {clean(account)}, not pair"
    if not ask(lambda client: _is_served(client, place)):
        told += f"\nno connector has ever reported for {clean(account)}: see `switchboard channels`"
    show(found, told)


def _decide(contact_id: str, how: str, reason: str | None) -> Json:
    body = {} if reason is None else {"reason": reason}
    return ask_about("contact", contact_id, lambda client, found: client.post(f"/v1/pairing/{found}/{how}", body))


async def _is_served(client: Client, place: Mapping[str, str]) -> bool:
    connectors = (await client.whole("/v1/connectors", "connectors"))["connectors"]
    return any(place.items() <= one.items() for one in connectors)


def _place_of(account: str) -> dict[str, str]:
    """Channel and endpoint of an account, which may be given by its name."""
    channel, slash, endpoint = account.partition("/")
    if not slash:
        served = ask(_read_served)
        if account not in served:
            raise typer.BadParameter(
                f"there is no account {account!r}{offer(account, served)}; or write channel and endpoint, such as "
                "telegram/bot:123456, as `switchboard channels` shows them",
                param_hint="ACCOUNT",
            )
        return served[account]
    if not (channel and endpoint):
        raise typer.BadParameter(
            "write channel and endpoint, such as telegram/bot:123456, as `switchboard channels` shows them",
            param_hint="ACCOUNT",
        )
    return {"channel": channel, "endpoint": endpoint}


async def _read_served(client: Client) -> dict[str, dict[str, str]]:
    """Channel and endpoint of each account that has ever been connected, by name."""
    found = served_accounts(await client.whole("/v1/tokens", "tokens"))
    return {name: {"channel": one["channel"], "endpoint": one["endpoint"]} for name, one in found.items()}
