"""`switchboard webhooks`: a dry run of the mapping of an account. Called by `main.py`.

Reads the file of the account; asks no server. Next: `connectors/webhook/mapping.py`.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from switchboard.app.ownership import read_ours
from switchboard.app.settings import load_settings
from switchboard.cli.output import clean, show
from switchboard.connectors.kernel.accounts import Configured, read_account
from switchboard.core.envelope.read import parse_envelope
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Hook, Posted, Unreadable

app = typer.Typer(help="Webhooks of other programs: try how they become messages.", no_args_is_help=True)


@app.command("try")
def try_mapping(
    name: Annotated[str, typer.Argument(help="The account: its file is NAME.toml in the directory channels.d.")],
    file: Annotated[Path, typer.Argument(help="The body of a webhook; - reads stdin.")],
    *,
    header: Annotated[list[str] | None, typer.Option(help="A header: 'X-GitHub-Event: push'. Repeatable.")] = None,
) -> None:
    """Show the message that a webhook would become. Nothing is submitted, and no signature is needed."""
    settings = load_settings()
    account = read_account(settings.channels_dir / f"{name}.toml", read_ours)
    hook = _hook(account)
    if hook is None:
        raise InvalidInput(f"the account {name!r} takes no webhooks")
    if hook.read is None:
        raise InvalidInput(
            f"the account {name!r} has no mapping: its connector reads what {account.manifest.name} posts"
        )
    now = datetime.now(UTC)
    found = hook.read(account.account, Posted(_body(file), _headers(header or [])), now)
    if isinstance(found, Unreadable):
        raise InvalidInput(f"it would go to quarantine: {found.reason}")
    written = msgspec.json.encode(found.envelope)
    parse_envelope(written, now=now)
    envelope: JsonObject = msgspec.json.decode(written)
    show(envelope, clean(msgspec.json.format(written, indent=2).decode()))


def _hook(account: Configured) -> Hook | None:
    return account.manifest.hook(account.account) if account.manifest.hook else None


def _body(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}") from error


def _headers(lines: list[str]) -> dict[str, str]:
    pairs = [line.partition(":") for line in lines]
    if wrong := [line for line, sign, _ in pairs if not sign]:
        raise InvalidInput(f"a header is written 'Name: value', not {wrong[0]!r}")
    return {name.strip().lower(): value.strip() for name, _, value in pairs}
