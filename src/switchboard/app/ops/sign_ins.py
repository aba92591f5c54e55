"""The check of `switchboard doctor` that sign-ins by OAuth 2 last: of accounts of channels and of modules.

`checks.py` calls it. In: the settings; out: what has ended or ends soon, with the command that signs in again. Nobody
is asked but the token files, in which whoever renews them has written what the provider said.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from switchboard.app.ownership import read_ours
from switchboard.app.settings import Settings
from switchboard.connectors.kernel.accounts import read_declarations
from switchboard.domain.errors import ConfigurationError
from switchboard.ports.checks import CheckResult, count_of, error, ok, warning
from switchboard.transport.oauth.token_file import read_tokens
from switchboard.transport.oauth.tokens import describe_end, ends_soon

_NAME: Final = "sign-in"
_LOST: Final = "log the account in again, or put the file back where it was"


def check_sign_ins(settings: Settings, now: datetime | None = None) -> list[CheckResult]:
    """Empty where nobody has signed in by OAuth 2."""
    files = dict.fromkeys((*_files_of_channels(settings.channels_dir), *_files_of_modules(settings)))
    found = [finding for file in files if (finding := _check_file(file, now or datetime.now(UTC)))]
    return found or ([ok(f"{_NAME}s", count_of(len(files), "token file"))] if files else [])


def _check_file(file: Path, now: datetime) -> CheckResult | None:
    try:
        kept = read_tokens(file)
    except ConfigurationError as failure:
        return error(_NAME, failure.message, _LOST)
    if kept.failed:
        return error(_NAME, describe_end(kept), kept.sign_in)
    if ends_soon(kept, now):
        return warning(_NAME, f"that of {kept.user} ends at {kept.refresh_expires_at:%Y-%m-%d %H:%M} UTC", kept.sign_in)
    return None


def _files_of_channels(directory: Path) -> Iterator[Path]:
    for account in sorted(directory.glob("*.toml")):
        with suppress(ConfigurationError):  # another check says so
            if (tokens := read_declarations(account, read_ours).token_file) is not None:
                yield tokens


def _files_of_modules(settings: Settings) -> Iterator[Path]:
    for table in settings.modules.values():
        accounts = table.get("accounts")
        for account in accounts.values() if isinstance(accounts, dict) else ():
            if isinstance(account, dict) and isinstance(account.get("token_file"), str):
                yield Path(account["token_file"])
