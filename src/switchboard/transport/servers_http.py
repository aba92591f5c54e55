"""HTTP connections to servers of calendars and contacts. Next: `dav/client.py`, `google/client.py`, which open them."""

from __future__ import annotations

import os
import ssl
from functools import cache

import httpx2


def open_http(timeout: httpx2.Timeout) -> httpx2.AsyncClient:
    """It follows no redirect: what signs in goes to no other host unasked."""
    context = _tls_context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    return httpx2.AsyncClient(verify=context, timeout=timeout, follow_redirects=False)


@cache
def _tls_context(*_: str | None) -> ssl.SSLContext:
    """For whom the environment trusts: reading certificates takes the event loop longer than most requests."""
    return httpx2.create_ssl_context()
