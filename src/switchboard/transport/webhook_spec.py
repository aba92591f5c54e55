"""Where something is posted, signed with a secret: `[dead_letters.tell]` and `[[callbacks]]` of the settings.

Read by `app/settings.py`, used by `signed_post.py` and `agents/callback.py`. It does not import the client of HTTP.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class WebhookSpec(Struct, frozen=True, kw_only=True):
    """A webhook, and the variable or the file with its secret."""

    url: str
    secret_env: str | None = None
    secret_file: Path | None = None
    allow_private: bool = False


class CallbackSpec(WebhookSpec, frozen=True, kw_only=True):
    """Where replies to messages of one `api` endpoint are posted."""

    endpoint: str
