"""What an app must be allowed to do. Read by `manifest.py`, which asks for it, and `channel.py`, which compares."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

PLACES: Final = ("channels", "groups", "im", "mpim")
"""How scopes and events call the kinds of conversations."""
BASIC_SCOPES: Final = (
    "app_mentions:read",
    "chat:write",
    "users:read",
    *(f"{place}:{right}" for right in ("history", "read") for place in PLACES),
)
"""Without these messages are lost."""
SCOPES: Final = (*BASIC_SCOPES, "assistant:write", "files:read", "files:write", "reactions:read")


def missing_in_words(granted: Collection[str], needed: Sequence[str]) -> str | None:
    """What to do about scopes that the app lacks; None if it has all, or Slack does not say which it has."""
    missing = [one for one in needed if one not in granted] if granted else []
    if not missing:
        return None
    return f"the app lacks {', '.join(missing)}: add what it lacks under OAuth & Permissions, and reinstall it"
