"""Which channels there are, and who may provide them.

Called by `journey/accept.py` for every envelope before it is stored, and by `core/routing/check.py` for every rule
before it is written. A channel enters; nothing leaves, or an error that names the right ones. Next:
`core/routing/facts.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import InvalidInput


def _own_providers(*channels: str) -> dict[str, frozenset[str]]:
    """Channels that one platform of the same name provides."""
    return {channel: frozenset({channel}) for channel in channels}


CHANNELS: Final[Mapping[str, frozenset[str]]] = {
    **_own_providers("telegram", "slack", "discord", "whatsapp", "matrix", "xmpp", "irc", "signal", "sms"),
    **_own_providers("google_calendar", "google_drive", "spotify", "owntracks", "home_assistant", "activitywatch"),
    "telegram_bot": frozenset({"telegram"}),
    "telegram_user_client": frozenset({"telegram"}),
    "whatsapp_user_client": frozenset({"whatsapp"}),
    "spotify_user_client": frozenset({"spotify"}),
    "email": frozenset({"gmail", "imap", "smtp", "file"}),
    "webhook": frozenset({"http", "github", "gitlab", "stripe"}),
    "api": frozenset({"internal", "http"}),
    "mcp": frozenset({"internal", "mcp"}),
    "cli": frozenset({"internal"}),
    "dashboard": frozenset({"internal"}),
    "voice": frozenset({"live-listener"}),
    "gaming": frozenset({"steam"}),
    "wellness": frozenset({"google_health", "home_assistant"}),
}
"""Channel -> the providers that may submit it. A plug-in's channel is added to a copy of this by `app/`."""

_MANY: Final = 2000


def near(word: str, words: Iterable[str]) -> tuple[str, ...]:
    """The names that `word` was probably meant to be, best first; at most three, often none."""
    by_lower = {name.lower(): name for name in sorted(words)}
    if len(by_lower) > _MANY:
        # Comparing costs some 50 µs a name: of a great many only those that begin alike are worth it.
        by_lower = {low: name for low, name in by_lower.items() if low[:2] == word[:2].lower()}
    return tuple(by_lower[low] for low in get_close_matches(word.lower(), list(by_lower)[:_MANY], n=3, cutoff=0.6))


def or_list(words: Iterable[str]) -> str:
    """`gmail, imap or smtp`: what a sentence offers instead."""
    *first, last = sorted(words) or ["nothing"]
    return f"{', '.join(first)} or {last}" if first else last


def check_source(envelope: Envelope, channels: Mapping[str, frozenset[str]] = CHANNELS) -> None:
    """Refuse an envelope whose channel is unknown or whose provider does not provide it.

    `channels` maps a channel to its allowed providers. Raises InvalidInput with the code `unknown_channel` (field
    `source.channel`) or `invalid_source_provider` (field `source.provider`); the message names what would be right.
    """
    channel, provider = envelope.source.channel, envelope.source.provider
    providers = channels.get(channel)
    if providers is None:
        meant = near(channel, channels) or tuple(channels)
        message = f"there is no channel {channel!r}; did you mean {or_list(meant)}?"
        raise InvalidInput(message, code="unknown_channel", field="source.channel")
    if provider not in providers:
        message = f"channel {channel!r} is provided by {or_list(providers)}, not by {provider!r}"
        raise InvalidInput(message, code="invalid_source_provider", field="source.provider")
