"""`switchboard tokens`: who may come in, and how far. Called by `main.py`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from switchboard.cli.client import ask, part
from switchboard.cli.output import AsJson, Json, errors, out, print_json, table, when

app = typer.Typer(help="Create, list and revoke tokens.", no_args_is_help=True)


class Role(StrEnum):
    """What a token is for."""

    OPERATOR = "operator"
    CONNECTOR = "connector"
    AGENT = "agent"


Name = Annotated[str, typer.Argument(help="The token's name.")]


@app.command("create")
def create(  # noqa: PLR0913 - the options of a command
    name: Name,
    *,
    role: Annotated[Role, typer.Option(help="What it opens: everything, one account, or one agent's own things.")],
    channel: Annotated[str | None, typer.Option(help="A connector's channel.")] = None,
    endpoint: Annotated[str | None, typer.Option(help="A connector's account.")] = None,
    system: Annotated[str | None, typer.Option(help="An agent's id, such as System1/memo.")] = None,
    expires_in_days: Annotated[
        int | None, typer.Option(min=1, help="It is good for so many days; by default for ever.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a token. It is shown once, now: only its hash is kept."""
    wanted = {
        "name": name,
        "role": role.value,
        "channel": channel,
        "endpoint": endpoint,
        "system_id": system,
        "expires_in_days": expires_in_days,
    }
    made = ask(
        lambda client: client.post("/v1/tokens", {key: value for key, value in wanted.items() if value is not None})
    )
    if as_json:
        print_json(made)
    else:
        errors().print(f"token {name} ({role.value}); it is not shown again:", style="dim")
        out().print(made["token"], soft_wrap=True)


@app.command("list")
def list_tokens(*, as_json: AsJson = False) -> None:
    """List tokens, never their secrets."""
    found = ask(lambda client: client.get("/v1/tokens"))
    if as_json:
        print_json(found)
        return
    rows = ((t["name"], t["role"], _scope(t), when(t["created_at"], short=True), _status(t)) for t in found["tokens"])
    out().print(table("name", "role", "for", "created", "status", rows=rows, keep=("name", "role", "created")))


def _scope(token: Json) -> str:
    account = "/".join(str(token[name]) for name in ("channel", "endpoint") if token.get(name))
    return str(token.get("system_id") or account or "everything")


def _status(token: Json) -> Text:
    if token.get("revoked_at"):
        return Text(f"revoked {when(token['revoked_at'])}", style="red")
    if token.get("expires_at"):
        return Text(f"until {when(token['expires_at'])}", style="yellow")
    return Text("good", style="green")


@app.command("revoke")
def revoke(name: Name, *, as_json: AsJson = False) -> None:
    """Revoke a token; from now on it opens nothing."""
    answer = ask(lambda client: client.delete(f"/v1/tokens/{part(name)}"))
    if as_json:
        print_json({"name": name, "status": "revoked"} | answer)
    else:
        out().print(f"{name} is revoked")
