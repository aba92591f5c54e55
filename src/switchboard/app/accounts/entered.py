"""What was entered for a new account, over the network: checked without its platform. Pure but for packages it loads.

`service.py` and `consents.py` call it. In: words; out: an `AskedAccount`. Next: `questions.py`, `adding.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from switchboard.app.accounts.adding import AskedAccount
from switchboard.app.accounts.files import KeptSecret
from switchboard.app.accounts.questions import check_settings, require_from_afar
from switchboard.connectors.kernel.accounts import connectable, manifest_of
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.strangers import Policy, owner_by_code_mistake
from switchboard.core.text.words import offer
from switchboard.domain.errors import ConfigurationError, InvalidInput
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Manifest


@dataclass(frozen=True, slots=True)
class NewChannelAccount:
    """What was entered for a new account. `settings` is a tree as in the account's file.

    `owner_of`: the butler that the sender of the code will own.
    """

    channel: str
    name: str
    settings: JsonObject
    secrets: Mapping[str, str] = field(repr=False)
    strangers: Policy | None = None
    owner_of: str | None = None


def find_manifest(channel: str) -> Manifest:
    """The manifest of a channel that can be connected. Raises InvalidInput."""
    known = connectable()
    if channel not in known:
        raise InvalidInput(f"there is no channel {channel[:64]!r} to connect{offer(channel, known)}", field="channel")
    try:
        return manifest_of(channel)
    except ConfigurationError as error:
        raise InvalidInput(error.message, field="channel") from error


def read_entered(
    wanted: NewChannelAccount, manifest: Manifest, settings: JsonObject, secrets: Mapping[str, KeptSecret]
) -> AskedAccount:
    """The account that is asked for. `settings`: those that were entered, with any that follow. Raises InvalidInput."""
    require_from_afar(manifest, wanted.settings)
    asked = AskedAccount(manifest, wanted.name, check_settings(manifest, settings), secrets, wanted.strangers)
    if wanted.owner_of is not None:
        _require_owner_possible(asked)
    return asked


def read_secrets(manifest: Manifest, given: Mapping[str, str]) -> Mapping[str, KeptSecret]:
    """Those that were entered. Raises InvalidInput."""
    known = {one.name: one for one in manifest.secrets}
    if unknown := sorted(given.keys() - known.keys()):
        raise InvalidInput(f"the channel has no secret {unknown[0][:64]!r}{offer(unknown[0], known)}", field="secrets")
    found = {name: KeptSecret(value.strip()) for name, value in given.items() if value.strip()}
    for secret in manifest.secrets:
        if not secret.optional and secret.name not in found:
            raise InvalidInput(f"{secret.name} is missing: {secret.what}", field=secret.name)
    return found


def hide_secrets(secrets: Sequence[str], text: str) -> str:
    """The text, in which a platform or its package may have repeated a secret."""
    for secret in secrets:
        text = text.replace(secret, "…")
    return text


def _require_owner_possible(asked: AskedAccount) -> None:
    """Check that a code can make its sender an owner. Raises InvalidInput."""
    from_channel = owner_by_code_mistake(CHANNELS[asked.manifest.channel])
    if from_channel:
        raise InvalidInput(from_channel, field="owner_of")
    if asked.policy != "pair":
        raise InvalidInput(
            f"owners are made by a code, and none is needed where strangers is {asked.policy}", field="owner_of"
        )
