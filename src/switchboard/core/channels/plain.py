"""Channels about which only the providers are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from switchboard.ports.channel import Channel

_PROVIDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "activitywatch": ("activitywatch",),
    "gaming": ("steam",),
    "google_calendar": ("google_calendar",),
    "google_drive": ("google_drive",),
    "home_assistant": ("home_assistant",),
    "owntracks": ("owntracks",),
    "spotify": ("spotify",),
    "spotify_user_client": ("spotify",),
    "voice": ("live-listener",),
    "wellness": ("google_health", "home_assistant"),
}
CHANNELS: Final = tuple(Channel(name=name, providers=frozenset(given)) for name, given in _PROVIDERS.items())
