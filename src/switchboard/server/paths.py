"""Paths that more than one part of the server has to know."""

from __future__ import annotations

from typing import Final

PUBLIC: Final = frozenset({"/", "/health", "/docs", "/docs/", "/openapi.json", "/v1/ws"})
"""What needs no token."""
SCHEMAS: Final = "/schemas/"
"""Below it are documents that are published."""
LINKS: Final = "/v1/files/"
"""A link is its own token."""
HOOKS: Final = "/hooks/"
"""Below it are webhooks, which are verified in other ways."""
WEB: Final = "/ui"
"""Below it are pages for people, which have a gate of their own: sessions instead of tokens."""
CONSENT_ANSWERS: Final = f"{WEB}/signed-in"
"""Where a browser brings the answer of a provider at which somebody has signed in."""
BLOBS: Final = "/v1/blobs"
"""Where files are posted."""
WEB_FILES: Final = f"{WEB}/chat/send"
"""Where a form of a page posts files."""


def is_public(path: str) -> bool:
    """Whether it needs no token."""
    return path in PUBLIC or path == WEB or path.startswith((HOOKS, LINKS, SCHEMAS, f"{WEB}/"))
