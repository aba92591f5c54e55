"""What an app must be allowed to do. Read by `manifest.py`, which asks for it, and `channel.py`, which compares."""

from __future__ import annotations

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
