"""`switchboard open` and `switchboard web-sessions`: links that sign in on the page, and who is signed in.

Called by `main.py`. Next: `app/web_sessions.py`.
"""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import urlencode

import typer

from switchboard.app.whereabouts import find_whereabouts
from switchboard.cli.client import Client, ask, server_url
from switchboard.cli.output import Json, errors, show, table, wants_json, when
from switchboard.cli.rules.options import reason_for
from switchboard.domain.errors import InvalidInput, NotFound

_MAY: Final = {
    "operator": "sees and decides everything",
    "approver": "decides what butlers ask",
    "connector": "chats, and sees only their own messages",
}
app = typer.Typer(help="Who is signed in on the page: list browsers, sign one out.", no_args_is_help=True)


def open_page(
    *,
    name: Annotated[
        str | None,
        typer.Option("--for", help="Make it for somebody else: a member of the household, or an approver."),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="With --for: for a new member, who chats and sees only their own messages.")
    ] = False,
) -> None:
    """Make a link that signs a browser in to the page: once, within ten minutes.

    Open it in a browser and press its button. It is for the token of this command or, with --for NAME, for somebody
    else: a member of the household, or an approver. The first link for a new member needs --new.
    """
    asked = ({} if name is None else {"name": name}) | ({"new": True} if new else {})
    made = ask(lambda client: client.post("/v1/web/links", asked))
    address = made["url"] or server_url(find_whereabouts()) + made["path"]
    if not wants_json():
        who = f"{'the new member ' if new else ''}{made['name']}, who {_MAY[made['role']]}"
        errors().print(f"signs in {who}; once, until {when(made['expires_at'])}:", style="dim", soft_wrap=True)
    show({**made, "url": address}, address)


@app.command("list")
def list_sessions() -> None:
    """List the browsers that are signed in, the newest first."""
    found = ask(lambda client: client.whole("/v1/web/sessions", "sessions"))
    rows = (
        (
            one["session_id"],
            one["name"],
            one["role"],
            when(one["used_at"], short=True),
            when(one["created_at"], short=True),
            one["label"],
        )
        for one in found["sessions"]
    )
    show(found, table("id", "token", "role", "last used", "since", "browser", rows=rows, keep=("id", "token")))


@app.command("end")
def end_session(
    session_id: Annotated[str, typer.Argument(help="The session's id, or its first or last characters.", metavar="ID")],
    *,
    reason: Annotated[str | None, typer.Option(help="The reason; it is recorded.", metavar="TEXT")] = None,
) -> None:
    """Sign a browser out, at once."""

    async def work(client: Client) -> Json:
        found = (await client.whole("/v1/web/sessions", "sessions"))["sessions"]
        meant = _find_id(session_id, [one["session_id"] for one in found])
        return await client.delete(f"/v1/web/sessions/{meant}{_with_reason(reason)}")

    show(ask(work), "signed out")


@app.command("end-all")
def end_all_sessions(
    *,
    reason: Annotated[str | None, typer.Option(help="The reason, required; it is recorded.", metavar="TEXT")] = None,
) -> None:
    """Sign all browsers out, at once."""
    asked = _with_reason(reason_for(reason))
    ended = ask(lambda client: client.delete(f"/v1/web/sessions{asked}"))
    show(ended, f"signed out: {ended['sessions']}")


def _with_reason(reason: str | None) -> str:
    return f"?{urlencode({'reason': reason})}" if reason else ""


def _find_id(given: str, known: list[str]) -> str:
    """The only id that begins or ends as given. Raises NotFound, InvalidInput."""
    meant = [one for one in known if given and (one.startswith(given) or one.endswith(given))]
    if not meant:
        raise NotFound(f"there is no session {given}; see `switchboard web-sessions list`")
    if len(meant) > 1:
        raise InvalidInput(f"{given} is part of several ids; give more of it", code="ambiguous_id")
    return meant[0]
