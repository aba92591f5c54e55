"""Whether sign-ins by OAuth 2 last, of accounts of channels and of modules: for `switchboard doctor`, and for notices.

`ops/checks.py` calls `check_sign_ins`; every worker calls `note_sign_ins` from time to time. In: the settings; out:
what has ended or ends soon. Nobody is asked but the token files, in which whoever renews them has written what the
provider said. Next: `notices.py`, which tells operators.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from switchboard.app.ownership import read_ours
from switchboard.app.settings import Settings
from switchboard.connectors.kernel.accounts import read_declarations
from switchboard.core.notices import Unnoticed
from switchboard.domain.errors import ConfigurationError
from switchboard.ports.checks import CheckResult, count_of, error, ok, warning
from switchboard.store import notices
from switchboard.store.database import Database
from switchboard.transport.oauth.token_file import KeptTokens, read_tokens
from switchboard.transport.oauth.tokens import coming_end, describe_end, explain_trial

_NAME: Final = "sign-in"
_LOST: Final = "log the account in again, or put the file back where it was"


def check_sign_ins(settings: Settings, now: datetime | None = None) -> list[CheckResult]:
    """Empty where nobody has signed in by OAuth 2."""
    files = {*_files_of_channels(settings.channels_dir), *_files_of_modules(settings)}
    found = [finding for file in sorted(files) if (finding := _check_file(file, now or datetime.now(UTC)))]
    return found or ([ok(f"{_NAME}s", count_of(len(files), "token file"))] if files else [])


def _check_file(file: Path, now: datetime) -> CheckResult | None:
    try:
        kept = read_tokens(file)
    except ConfigurationError as failure:
        return error(_NAME, failure.message, _LOST)
    if kept.failed:
        return error(_NAME, describe_end(kept), kept.sign_in)
    if (end := coming_end(kept, now)) is not None:
        return warning(_NAME, f"that of {kept.user} ends {_describe_time(kept, end)}", kept.sign_in)
    return None


async def note_sign_ins(database: Database, settings: Settings, now: datetime | None = None) -> None:
    """Note for operators what has ended or ends soon, as far as the token files are on this machine."""
    at = now or datetime.now(UTC)
    await notices.note_sign_ins(database, await asyncio.to_thread(lambda: [*_sign_in_ends(settings, at)]))


def _sign_in_ends(settings: Settings, now: datetime) -> Iterator[Unnoticed]:
    """The end of one by which only a connector signs in is told of by the connector, as a failure of its account."""
    channels = _files_of_channels(settings.channels_dir)
    modules = _files_of_modules(settings)
    for file in sorted({*channels, *modules}):
        try:
            kept = read_tokens(file)
        except ConfigurationError:  # it may be on another machine; where it must be here, doctor says so
            continue
        key = f"{file.name} {kept.consented_at.isoformat()}"
        if kept.failed and file in modules:
            yield Unnoticed("sign_in_ended", key, f"{file.name}: {kept.failed.rstrip('.')}", channels.get(file))
        elif not kept.failed and (end := coming_end(kept, now)) is not None:
            yield Unnoticed("sign_in_ends", key, f"{file.name}: {_describe_time(kept, end)}")


def _describe_time(kept: KeptTokens, end: datetime) -> str:
    at = f"at {end:%Y-%m-%d %H:%M} UTC"
    return f"{at}, {why}" if (why := explain_trial(kept, end)) else at


def _files_of_channels(directory: Path) -> dict[Path, str | None]:
    """The token files, each with the account whose connector signs in by it, if that is known."""
    found = dict[Path, str | None]()
    for account in sorted(directory.glob("*.toml")):
        with suppress(ConfigurationError):  # another check says so
            declared = read_declarations(account, read_ours)
            if declared.token_file is not None:
                found[declared.token_file.resolve()] = declared.endpoint
    return found


def _files_of_modules(settings: Settings) -> set[Path]:
    found = set[Path]()
    for table in settings.modules.values():
        accounts = table.get("accounts")
        for account in accounts.values() if isinstance(accounts, dict) else ():
            if isinstance(account, dict) and isinstance(account.get("token_file"), str):
                found.add(Path(account["token_file"]).resolve())
    return found
