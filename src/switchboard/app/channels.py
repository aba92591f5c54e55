"""The channels of this installation: ours, those of plug-ins, and those named in the settings.

`checked.py` asks once per process, and `ops/checks.py`; what adds or shows accounts asks whether there is room. A
plug-in is a `Channel` that an installed package names as an entry point of the group `switchboard.channels`. Next:
`core/channels/registry.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from switchboard.app.ownership import read_ours
from switchboard.app.settings import MOST_INSIDE, Settings
from switchboard.connectors.kernel.accounts import pause_file, read_account
from switchboard.core.channels import email
from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.domain.errors import ConfigurationError
from switchboard.transport.plug_ins import plug_ins

_GROUP: Final = "switchboard.channels"


def known_channels(settings: Settings) -> Channels:
    """The table. Raises ConfigurationError for a plug-in that cannot be loaded or conflicts with another channel."""
    added = []
    for entry in plug_ins(_GROUP):
        try:
            added.append(entry.load())
        except ImportError as error:
            raise ConfigurationError(f"the channel {entry.name!r} ({entry.value}) cannot be loaded: {error}") from error
    schedules = [one.make_schedule(name) for name, one in settings.schedules.items()]
    ours = Channels(
        (*CHANNELS.values(), email.trusting(settings.email.trusted_servers, settings.email.max_hops)), schedules
    )
    return ours.adding(added, settings.channels)


def is_full(settings: Settings, *, more: int) -> bool:
    """Whether with so many more accounts not all can be served, as there is no place inside the server's process."""
    files = settings.channels_dir.glob("*.toml")
    return settings.connectors == "inside" and sum(map(_is_connected, files)) + more > MOST_INSIDE


def _is_connected(file: Path) -> bool:
    """Whether something has to connect this account: not if it is invalid or paused, or only gets webhooks."""
    try:
        return not pause_file(file).exists() and read_account(file, read_ours).manifest.connects
    except ConfigurationError:
        return False
