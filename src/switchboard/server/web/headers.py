"""The headers of every answer below `/ui/`: what a page may load and run, and who may keep it. Called by `visit.py`."""

from __future__ import annotations

from secrets import token_urlsafe
from typing import Final

FOREVER: Final = {"cache-control": "public, max-age=31536000, immutable", "x-content-type-options": "nosniff"}
"""Of static files, which have the hash of their content in their name."""
_ALWAYS: Final = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "same-origin",  # with `no-referrer`, browsers say that our own forms come from the origin `null`
    "x-content-type-options": "nosniff",
}
FOREIGN_POLICY: Final = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'self'"
)
"""Of a document that others wrote: it loads nothing, runs nothing, and leads nowhere."""


def new_nonce() -> str:
    """A new number that scripts and htmx elements of one answer bear."""
    return token_urlsafe(16)


def page_headers(nonce: str) -> dict[str, str]:
    """The headers of a page or a fragment whose elements bear `nonce`."""
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "frame-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "
        "require-trusted-types-for 'script'; trusted-types htmx"
    )
    return {**_ALWAYS, "content-security-policy": policy}


def foreign_headers() -> dict[str, str]:
    """The headers of a document or file that others wrote."""
    return {**_ALWAYS, "content-security-policy": FOREIGN_POLICY, "x-dns-prefetch-control": "off"}
