"""`switchboard tokens`: access tokens and their scopes. Called by `main.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import typer
from rich.text import Text

from switchboard.cli.client import Client, ask, part
from switchboard.cli.missing import MissingOption
from switchboard.cli.names import butler
from switchboard.cli.output import Json, clean, details, errors, one_of, show, table, wants_json, when
from switchboard.core.text.words import near, or_list
from switchboard.domain.errors import InvalidInput

app = typer.Typer(help="Create, list and revoke tokens.", no_args_is_help=True)


Role = Literal["operator", "connector", "agent", "metrics", "approver"]
_OPTIONAL: Final = frozenset({"--person"})
_BOUND: Final[Mapping[Role, frozenset[str]]] = {
    "operator": frozenset(),
    "connector": frozenset({"--channel", "--endpoint"}),
    "agent": frozenset({"--system", "--person"}),
    "metrics": frozenset(),
    "approver": frozenset(),
}

Name = Annotated[str, typer.Argument(help="The token's name.")]


@app.command("create")
def create(  # noqa: PLR0913 - the options of a command
    name: Name,
    *,
    role: Annotated[
        Role,
        typer.Option(
            help="What it is for: operator (everything), connector (one account), agent, metrics (reads /metrics), or "
            "approver (decides what butlers ask)."
        ),
    ],
    channel: Annotated[str | None, typer.Option(help="A connector's channel.")] = None,
    endpoint: Annotated[str | None, typer.Option(help="A connector's account.")] = None,
    system: Annotated[str | None, typer.Option(help="An agent's id, such as System1/memo.")] = None,
    person: Annotated[
        str | None, typer.Option(help="Whom an agent calls tools for, by id; by default for nobody in particular.")
    ] = None,
    expires_in_days: Annotated[int | None, typer.Option(min=1, help="Days until it expires; by default never.")] = None,
) -> None:
    """Create a token. It is shown once, now: only its hash is kept."""
    _check_bound(role, {"--channel": channel, "--endpoint": endpoint, "--system": system, "--person": person})
    system = system and butler(system)
    wanted = {
        "name": name,
        "role": role,
        "channel": channel,
        "endpoint": endpoint,
        "system_id": system,
        "person": person,
        "expires_in_days": expires_in_days,
    }
    given = {key: value for key, value in wanted.items() if value is not None}

    async def work(client: Client) -> tuple[Json, str | None]:
        token = await client.post("/v1/tokens", given)
        return token, await _warning_if_unknown(client, channel=channel, system=system)

    made, warning = ask(work)
    if warning is not None:
        errors().print(f"warning: {clean(warning)}", style="yellow", soft_wrap=True)
    if not wants_json():
        errors().print(f"token {name} ({role}); it will not be shown again:", style="dim")
    show(made, made["token"])


async def _warning_if_unknown(client: Client, *, channel: str | None, system: str | None) -> str | None:
    """A warning if the token is for something that does not exist (yet)."""
    if channel is not None:
        try:
            await client.get("/v1/messages", {"channel": channel, "limit": 1})
        except InvalidInput as error:
            return error.message
    if system is None:
        return None
    active = [one["system_id"] for one in (await client.whole("/v1/agents", "agents"))["agents"] if one["active"]]
    meant = near(system, active)
    hint = f"; did you mean {or_list(meant)}?" if meant else ""
    return None if system in active else f"no team has an active member {system}{hint}"


def _check_bound(role: Role, given: Mapping[str, str | None]) -> None:
    """Check that a token has exactly the bindings of its role."""
    for option, value in given.items():
        if option in _BOUND[role] - _OPTIONAL and not value:
            raise MissingOption(f"a token with the role {role} needs it", param_hint=option)
        if option not in _BOUND[role] and value is not None:
            raise typer.BadParameter(f"a token with the role {role} is not bound to one", param_hint=option)


@app.command("list")
def list_tokens() -> None:
    """List tokens, never their secrets."""
    found = ask(lambda client: client.whole("/v1/tokens", "tokens"))
    rows = ((t["name"], t["role"], _scope(t), when(t["created_at"], short=True), _status(t)) for t in found["tokens"])
    names = ("name", "role", "for", "created", "status")
    show(found, table(*names, rows=rows, keep=("name", "role", "created")))


@app.command("show")
def show_token(name: Name) -> None:
    """Show one token, never its secret."""
    token = one_of(ask(lambda client: client.whole("/v1/tokens", "tokens"))["tokens"], "name", name, "token")
    rows = [("name", token["name"]), ("role", token["role"]), ("for", _scope(token)), ("status", _status(token))]
    show(token, details([*rows, ("created", when(token["created_at"]))]))


def _scope(token: Json) -> str:
    account = "/".join(str(token[name]) for name in ("channel", "endpoint") if token.get(name))
    unbound = {"metrics": "/metrics", "approver": "/v1/approvals"}
    person = f" for {token['person']}" if token.get("person") else ""
    return str((token.get("system_id") or "") + person or account or unbound.get(token["role"], "everything"))


def _status(token: Json) -> Text:
    if token.get("revoked_at"):
        return Text(f"revoked {when(token['revoked_at'])}", style="red")
    if token.get("expires_at"):
        return Text(f"until {when(token['expires_at'])}", style="yellow")
    return Text("valid", style="green")


@app.command("revoke")
def revoke(name: Name) -> None:
    """Revoke a token; it is invalid from now on."""
    answer = ask(lambda client: client.delete(f"/v1/tokens/{part(name)}"))
    show({"name": name, "status": "revoked"} | answer, f"{name} is revoked")
