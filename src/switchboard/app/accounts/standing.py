"""How the accounts of `channels_dir` are, from their files and from what the server knows of them.

The command line asks the server over HTTP, the page its services. In: settings and facts; out: a row per account.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from msgspec import Struct

from switchboard.app.accounts.files import account_names
from switchboard.app.accounts.tokens import token_file
from switchboard.app.channels import is_full
from switchboard.app.ownership import read_ours
from switchboard.app.settings import TOO_MANY_INSIDE, Settings
from switchboard.connectors.kernel.accounts import manifest_of, pause_file, read_account, read_declarations
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.shown import Connector

_RUNS_ON: Final = "; until that is fixed, the account runs on as it was, or not at all"
_AWAY: Final = frozenset({"not connected", "stopped", "offline", "stale"})
_SOON: Final = timedelta(seconds=30)
"""By then a new account has reported, or does not work."""


class AccountFacts(Struct, frozen=True):
    """What the server knows of all accounts. Keys are accounts as in `telegram/bot:123456`, of `served` their names."""

    served: Mapping[str, str]
    connectors: Mapping[str, Connector]
    standing_by: Mapping[str, int]
    held: Mapping[str, int]
    quarantined: Mapping[str, int]
    waiting: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AccountStanding:
    """One account. Counts are null if no server runs, what its connector says also if it has never reported.

    `account` as in `telegram/bot:123456`; `error` says what is wrong; `waiting` replies are to be sent, messages of
    strangers are `held`, events that could not be read `quarantined`, further processes `standing_by`.
    """

    name: str
    channel: str
    account: str | None
    state: str
    error: str | None
    waiting: int | None
    held: int | None
    quarantined: int | None
    standing_by: int | None
    since: datetime | None
    lag_s: float | None
    catching_up: int | None
    last_seen_at: datetime | None
    counters: Mapping[str, int] | None
    version: str | None


def facts_of_connectors(connectors: Iterable[Connector]) -> tuple[dict[str, Connector], Sequence[str]]:
    """The connector of each account, and the account of each process that stands by.

    It is the process that serves the account, otherwise the one last heard from.
    """
    ranked = sorted(connectors, key=lambda one: (one.serving and one.liveness != "offline", one.last_seen_at))
    standing_by = [account_of(one) for one in ranked if one.state == "standby" and one.liveness == "online"]
    return {account_of(one): one for one in ranked}, standing_by


def account_of(connector: Connector) -> str:
    """As in `telegram/bot:123456`."""
    return f"{connector.channel}/{connector.endpoint}"


def find_standings(
    settings: Settings, facts: AccountFacts | None, names: Sequence[str] | None = None
) -> list[AccountStanding]:
    """The accounts of these names, by default all of them. `facts` None: no server runs."""
    full = is_full(settings, more=0)
    wanted = account_names(settings) if names is None else names
    return [_account_standing(settings, name, facts, full=full) for name in wanted]


def _account_standing(settings: Settings, name: str, facts: AccountFacts | None, *, full: bool) -> AccountStanding:
    file = settings.channels_dir / f"{name}.toml"
    channel, account, problem = _read_configuration(settings, file, facts.served.get(name) if facts else None)
    key = account or ""
    beat = facts.connectors.get(key) if facts else None
    if pause_file(file).exists():
        state = "paused"
    elif problem is None and not manifest_of(channel).connects:
        state = "ready"  # its webhooks are posted to the server
    else:
        state = _state_of(beat, problem, facts)
        state = "starting" if state in _AWAY and _changed_after(file, beat) else state
    last_error = beat.error_message if beat and state != "paused" else None
    wrong = f"{problem}{_runs_on(beat)}" if problem else None
    return AccountStanding(
        name=name,
        channel=channel,
        account=account,
        state=state,
        error=wrong or last_error or (TOO_MANY_INSIDE if full and state in _AWAY else None),
        waiting=facts.waiting.get(key, 0) if facts else None,
        held=facts.held.get(key, 0) if facts else None,
        quarantined=facts.quarantined.get(key, 0) if facts else None,
        standing_by=facts.standing_by.get(key, 0) if facts else None,
        since=beat.since if beat else None,
        lag_s=beat.lag_s if beat else None,
        catching_up=beat.catching_up if beat else None,
        last_seen_at=beat.last_seen_at if beat else None,
        counters=beat.counters if beat else None,
        version=beat.version if beat else None,
    )


def _read_configuration(settings: Settings, file: Path, served: str | None) -> tuple[str, str | None, str | None]:
    """Channel and account of a file, and what is wrong with it. `served`: the account of its token."""
    channel, account = (served or "").partition("/")[0], served
    try:
        said = read_declarations(file, read_ours)
        channel, account = said.channel, said.endpoint or account or _last_endpoint(settings, file.stem, said.channel)
        read_account(file, read_ours)
    except ConfigurationError as error:
        return channel, account, error.message
    return channel, account, None


def _runs_on(beat: Connector | None) -> str:
    online = beat is not None and beat.liveness == "online" and beat.state not in {"standby", "stopped"}
    return _RUNS_ON if online else ""


def _last_endpoint(settings: Settings, name: str, channel: str) -> str | None:
    """The endpoint with which the account was last connected, for a file that names none."""
    try:
        endpoint = read_ours(token_file(settings, name)).splitlines()[1:2]
    except (OSError, ConfigurationError):
        return None
    return f"{manifest_of(channel).channel}/{endpoint[0]}" if endpoint else None


def _state_of(beat: Connector | None, problem: str | None, facts: AccountFacts | None) -> str:
    if problem:
        return "invalid"
    if facts is None:
        return "unknown"
    if beat is None:
        return "not connected"
    return beat.state if beat.liveness == "online" or beat.state == "stopped" else beat.liveness


def _changed_after(file: Path, beat: Connector | None) -> bool:
    """Whether the account is so new, or was changed so recently, that its connector may not have reported yet."""
    try:
        changed = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except OSError:
        return False
    reported = beat is not None and beat.last_seen_at >= changed
    return not reported and datetime.now(UTC) - changed < _SOON
