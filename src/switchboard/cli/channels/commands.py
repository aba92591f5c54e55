"""`switchboard channels`: add, test, pause, resume and remove accounts, and see how they are. Called by `cli/main.py`.

Next: `app/accounts`, of which it is a face; `connecting.py` for what adding asks, `standing.py` for what is shown.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Final

import typer

from switchboard.app.accounts.adding import check_account
from switchboard.app.accounts.files import find_account_file, remove_account_files, resume_account
from switchboard.app.accounts.names import PREFIX
from switchboard.app.accounts.presets import find_preset
from switchboard.app.accounts.tokens import lock_token, token_file
from switchboard.app.settings import Settings, load_settings
from switchboard.cli.channels.connecting import ConnectOptions, connect_new
from switchboard.cli.channels.served import served_accounts
from switchboard.cli.channels.signing_in import connect_preset, sign_in_again
from switchboard.cli.channels.standing import behind, print_next, standing
from switchboard.cli.client import Client, ask, part
from switchboard.cli.output import clean, details, errors, one_line, one_of, print_json, table, wants_json, when
from switchboard.cli.output import show as print_found
from switchboard.cli.output import state as in_colour
from switchboard.connectors.kernel.accounts import connectable, manifest_of
from switchboard.connectors.kernel.pausing import pause_account, paused_account
from switchboard.core.people.strangers import Policy

_TIMES: Final = frozenset({"since", "last_seen_at"})
_UNSHOWN: Final = frozenset({"counters", "lag s"})

app = typer.Typer(help="Accounts of channels: list, add, test, pause, resume and remove them.", no_args_is_help=False)

Name = Annotated[str, typer.Argument(help="The account, as `channels list` names it.")]


@app.callback(invoke_without_command=True)
def channels(context: typer.Context) -> None:
    """List the accounts, unless a command follows."""
    if context.invoked_subcommand is None:
        list_accounts()


@app.command("list")
def list_accounts() -> None:
    """List the accounts: how each is, what waits there, and its last error."""
    settings = load_settings()
    found = standing(settings)
    rows = (
        (
            one["name"],
            one["account"] or one["channel"],
            in_colour(one["state"]),
            behind(one["lag_s"]),
            *(one[name] for name in ("waiting", "held", "quarantined")),
            when(one["last_seen_at"], short=True),
            one_line(one["error"] or ""),
        )
        for one in found["channels"]
    )
    names = ("name", "account", "state", "behind", "waiting", "held", "quarantine", "last seen", "error")
    print_found(found, table(*names, rows=rows, keep=names[:3], wrap=True))
    if not found["channels"] and not wants_json():
        told = (
            f"no account in {settings.channels_dir.absolute()}; add one, in the directory where `switchboard up` runs"
        )
        errors().print(
            f"{told}: switchboard channels add CHANNEL, such as telegram or slack", style="dim", soft_wrap=True
        )


@app.command("show")
def show(name: Name) -> None:
    """Show one account with its counters."""
    found = one_of(standing(load_settings())["channels"], "name", name, "account")
    shown = {**found, "behind": behind(found["lag_s"])}
    rows = [(key.replace("_", " "), when(shown[key]) if key in _TIMES else shown[key]) for key in shown]
    counted = sorted((found["counters"] or {}).items())
    print_found(found, details([*(row for row in rows if row[0] not in _UNSHOWN), *counted]))


@app.command("add")
def add(  # noqa: PLR0913 - the options of a command
    channel: Annotated[str, typer.Argument(help="The channel, such as telegram or email; or gmail, or microsoft.")],
    name: Annotated[str | None, typer.Argument(help="What to call the account; by default as the channel.")] = None,
    *,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the channel as NAME=VALUE, such as imap.port=993; may be repeated."),
    ] = None,
    secret_file: Annotated[
        list[str] | None, typer.Option(help="A file with the secret, `-` for stdin; NAME=FILE where there are several.")
    ] = None,
    secret_env: Annotated[
        list[str] | None, typer.Option(help="The environment variable with the secret, which is not copied.")
    ] = None,
    webhook: Annotated[
        bool, typer.Option("--webhook", help="Let the platform post to `public_url` instead of asking it for news.")
    ] = False,
    strangers: Annotated[
        Policy | None, typer.Option(help="Who may write: only paired or listed senders, or everyone.")
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option(help="The butler that the sender of the code will own, so that it uses its tools for them."),
    ] = None,
) -> None:
    """Connect an account: sign in, write its files, and print a code with which you are approved.

    At a terminal it asks for what is missing. Nothing is written unless the platform accepts the secret.
    """
    asking = not wants_json() and sys.stdin.isatty() and sys.stderr.isatty()
    if webhook and channel in connectable() and "webhook" not in manifest_of(channel).settings.model_fields:
        raise typer.BadParameter(f"{channel} knows only one way to receive", param_hint="--webhook")
    given = [*(setting or ()), *(("webhook=true",) if webhook else ())]
    wanted = ConnectOptions(channel, name, given, secret_file or (), secret_env or (), strangers, asking, owner)
    preset = find_preset(channel)
    added = connect_preset(load_settings(), wanted, *preset) if preset else connect_new(load_settings(), wanted)
    if wants_json():
        print_json(added)
    else:
        print_next(added)


@app.command("test")
def check(name: Name) -> None:
    """Sign in to the platform with the account's secret, and say who it belongs to."""
    settings = load_settings()
    account, identity = asyncio.run(check_account(settings, find_account_file(settings, name)))
    endpoint = f"{account.manifest.channel}/{identity.endpoint}"
    found = {"name": name, "account": endpoint, "display_name": identity.display_name}
    who = f"{clean(identity.display_name)} " if identity.display_name else ""
    told = f"{name}: the platform accepts the secret of {who}({clean(endpoint)})"
    if not account.manifest.connects:
        told = f"{name}: its file is right; it takes what is posted to {account.account.hook_url or f'/hooks/{name}'}"
    print_found(found, told)


@app.command("login")
def log_in(name: Name) -> None:
    """Sign in an account again whose sign-in by OAuth 2 has ended: a browser opens, or you paste the final address."""
    kept = sign_in_again(find_account_file(load_settings(), name))
    print_found({"name": name, "user": kept.user}, f"{name}: {clean(kept.user)} has signed in; it is connected again")


@app.command("pause")
def pause(name: Name) -> None:
    """Disconnect an account until it is resumed. What is written to it waits at the platform."""
    pause_account(find_account_file(load_settings(), name))
    told = f"{name}: paused; its platform keeps what arrives, as long as it can. Let it go on: "
    told += f"switchboard channels resume {name}"
    print_found({"name": name, "state": "paused"}, told)


@app.command("resume")
def resume(name: Name) -> None:
    """Let a paused account continue where it stopped."""
    resume_account(find_account_file(load_settings(), name))
    told = f"{name}: resumed; `switchboard up` connects it within a second"
    print_found({"name": name, "state": "resumed"}, told)


@app.command("remove")
def remove(name: Name, *, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False) -> None:
    """Take an account out of service: its files, its secret and its token are removed. Its messages stay."""
    settings = load_settings()
    file = find_account_file(settings, name)
    if not yes:
        _confirm_removal(name)
    with paused_account(file):  # then the end of its process is no accident, and no process takes a new token
        ask(lambda client: _revoke_token(client, settings, name))
    remove_account_files(settings, file)
    told = f"{name}: removed; added again within 30 days, it continues where it stopped"
    print_found({"name": name, "state": "removed"}, told)


def _confirm_removal(name: str) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("not a terminal: pass --yes", param_hint="--yes")
    if not typer.confirm(f"Remove the account {name} with its secret?", err=True):
        raise typer.Abort


async def _revoke_token(client: Client, settings: Settings, name: str) -> None:
    """Also revoke the token that a process of the account may be creating just now."""
    async with lock_token(token_file(settings, name)):
        if name in served_accounts(await client.whole("/v1/tokens", "tokens")):
            await client.delete(f"/v1/tokens/{part(PREFIX + name)}")
