"""Checks of the files of accounts: wrong ones, paused ones, mail for which nobody vouches.

Called by `app/ops/checks.py`. In: the files, and what the settings say of mail; out: findings. Next: `accounts.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from switchboard.connectors.kernel.accounts import ReadFile, pause_file, read_account, read_declarations
from switchboard.core.channels import email
from switchboard.core.people.strangers import Policy
from switchboard.domain.errors import ConfigurationError
from switchboard.ports.checks import MOST, CheckResult, count_of, error, ok, warning


class Trust(Struct, frozen=True):
    """What the settings say of mail: who may write to an account, and which servers' word counts, by address."""

    policies: Mapping[tuple[str, str], Policy]
    servers: Mapping[str, Collection[str]]


def check_accounts(directory: Path, read: ReadFile, trust: Trust, full: str | None) -> list[CheckResult]:
    """Accounts of channels: wrong files, unknown channels, unreadable secrets, mail nobody vouches for.

    `full`: what to do about more accounts than can be connected; None: there are not too many.
    """
    files = sorted(directory.glob("*.toml"))
    looks = (_check_file(file, read) or _check_mailbox(file, read, trust) for file in files)
    found = [finding for finding in looks if finding is not None]
    if full is not None:
        found.insert(0, error("accounts", f"not all of {len(files)} accounts are connected", full))
    good = ok("accounts", f"{count_of(len(files), 'account')} in {directory}")
    return found[:MOST] or ([good] if files else [])


def _check_file(file: Path, read: ReadFile) -> CheckResult | None:
    try:
        read_account(file, read)
    except ConfigurationError as failure:
        remedy = "correct it: `switchboard up` notices; until then it connects this account as it was, or not at all"
        return error("account", failure.message, remedy)
    if pause_file(file).exists():
        return warning("account", f"{file.stem} is paused", f"switchboard channels resume {file.stem}")
    return None


def _check_mailbox(file: Path, read: ReadFile, trust: Trust) -> CheckResult | None:
    """A mailbox where senders count only if a mail server vouches for them, and no server is trusted."""
    said = read_declarations(file, read)
    channel, _, address = (said.endpoint or "").partition("/")
    policy = said.strangers or trust.policies.get((channel, address), "open")
    if (
        channel != email.NAME
        or policy == "open"
        or not said.receives
        or trust.servers.get(address)
        or trust.servers.get("*")
    ):
        return None
    detail = (
        f"{file.stem}: no mail server is trusted to authenticate senders, so every mail is held and nobody is answered"
    )
    remedy = (
        f"name the server with which Authentication-Results of your mails begins, in switchboard.toml, and restart: "
        f'[email.trusted_servers] "{address}" = ["mx.example.org"]'
    )
    return warning("account", detail, remedy)


def paused_endpoints(directory: Path, read: ReadFile) -> set[str | None]:
    """The endpoints of accounts that are silent on purpose."""
    found = set()
    for file in filter(lambda file: pause_file(file).exists(), directory.glob("*.toml")):
        with suppress(ConfigurationError):
            found.add(read_declarations(file, read).endpoint)
    return found
