"""The files of accounts in `channels_dir`: found, written, removed. Next: `connectors/kernel/accounts.py`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from switchboard.app.account_tables import toml_value
from switchboard.app.accounts.names import ACCOUNT_NAME
from switchboard.app.accounts.tokens import token_file
from switchboard.app.ownership import read_ours, write_private
from switchboard.app.settings import Settings
from switchboard.connectors.kernel.accounts import Configured, Declared, pause_file, read_declarations
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.strangers import Policy
from switchboard.domain.errors import ConfigurationError, Conflict, InvalidInput, NotFound
from switchboard.ports.surroundings import MAX_HEARD
from switchboard.transport.oauth.token_file import lock_of


@dataclass(frozen=True, slots=True)
class KeptSecret:
    """A secret, and where it is kept: in the environment variable `env`, otherwise in a file of its own."""

    value: str = field(repr=False)
    env: str | None = None


def account_names(settings: Settings) -> list[str]:
    """The accounts that have a file here, whatever it contains."""
    return sorted(file.stem for file in settings.channels_dir.glob("*.toml"))


def known_accounts(settings: Settings) -> tuple[Mapping[str, Declared], list[str]]:
    """The accounts whose files can be read, by name, and what is wrong with others."""
    found, problems = {}, []
    for name in account_names(settings):
        try:
            found[name] = read_declarations(settings.channels_dir / f"{name}.toml", read_ours)
        except ConfigurationError as error:
            problems.append(error.message)
    return found, problems


def find_account_file(settings: Settings, name: str) -> Path:
    """The file of an account that is there. Raises NotFound."""
    file = settings.channels_dir / f"{name}.toml"
    if not file.is_file():
        known = ", ".join(account_names(settings))
        there = f"there are: {known}" if known else "it has no accounts yet"
        raise NotFound(f"there is no account {name!r} in {settings.channels_dir.absolute()}; {there}")
    return file


def find_new_file(settings: Settings, name: str) -> Path:
    """The file of a new account. Raises InvalidInput, Conflict."""
    if not ACCOUNT_NAME.fullmatch(name):
        raise InvalidInput(f"{name!r} is not a valid name: use lower case, digits, '-' and '_' only", field="name")
    file = settings.channels_dir / f"{name}.toml"
    if file.exists():
        raise Conflict(
            f"the account {name} exists; give this one another name: switchboard channels add CHANNEL NAME, or "
            f"`switchboard channels remove {name}` first"
        )
    return file


def require_single(others: Mapping[str, Declared], endpoint: str) -> None:
    """Check that no other account has this endpoint, as in `telegram/bot:123456`. Raises Conflict."""
    if twin := next((name for name, one in others.items() if one.endpoint == endpoint), None):
        raise Conflict(f"{endpoint} is connected by the account {twin} already: `switchboard channels show {twin}`")


def write_account(
    file: Path, account: Configured, secrets: Mapping[str, KeptSecret], strangers: Policy
) -> tuple[Path, ...]:
    """Write the files of an account that has signed in, secrets first: its own file connects it at once.

    Raises ConfigurationError.
    """
    kept = {name: file.with_name(f"{file.stem}.{name}") for name, one in secrets.items() if one.env is None}
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in _drafts_of(file):
            left.unlink(missing_ok=True)
        for name, place in kept.items():
            write_private(place, secrets[name].value + "\n")
        write_private(file, _account_file_text(account, secrets, kept, strangers))
    except OSError as error:
        raise ConfigurationError(f"{error.filename or file} cannot be written: {error.strerror}") from error
    return (file, *kept.values())


def _account_file_text(
    account: Configured, secrets: Mapping[str, KeptSecret], kept: Mapping[str, Path], strangers: Policy
) -> str:
    places = {name: {"file": kept[name].name} if name in kept else {"env": one.env} for name, one in secrets.items()}
    settings = account.account.settings.model_dump(mode="json", exclude_unset=True)
    lines = {
        "channel": account.manifest.name,
        "endpoint": f"{account.manifest.channel}/{account.endpoint}",
        "strangers": strangers,
        "settings": settings,
        "secrets": places,
    }
    if not CHANNELS[account.manifest.channel].personal:
        lines["handling"] = {"heard": MAX_HEARD}
    head = "# Written by `switchboard channels add`; it is yours to edit, and changes take effect within seconds."
    return "\n".join([head, *(f"{name} = {toml_value(value)}" for name, value in lines.items())]) + "\n"


def resume_account(file: Path) -> None:
    """Let a paused account continue where it stopped."""
    with suppress(FileNotFoundError):
        pause_file(file).unlink()


def remove_account_files(settings: Settings, file: Path) -> None:
    """Remove what adding it wrote, the account's own file last, as what is left without it is never found again.

    A secret elsewhere is not ours to remove.
    """
    for one in _files_of(settings, file):
        one.unlink(missing_ok=True)


def _files_of(settings: Settings, file: Path) -> list[Path]:
    try:
        declared = read_declarations(file, read_ours)
        tokens = [declared.token_file, lock_of(declared.token_file)] if declared.token_file else []
        secrets = [one for one in (*declared.secret_files, *tokens) if one.parent == file.parent]
    except ConfigurationError:
        secrets = []
    mine = [one for one in secrets if one.name.startswith(f"{file.stem}.")]
    return [*_drafts_of(file), *mine, token_file(settings, file.stem), pause_file(file), file]


def _drafts_of(file: Path) -> list[Path]:
    """What `write_private` was killed at, secrets among them."""
    return [*file.parent.glob(f".{file.stem}.*")]
