"""Where a request comes from: whether pages may be shown there, and whether a form was sent by one of our own pages.

`site.py` asks before it looks at a session. In: the scope; out: an `WebArrival`. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.types import Scope

from switchboard.app.settings import Settings
from switchboard.core.posted import Network

_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto")
COOKIE: Final = "sb_session_"
"""Followed by our port, as browsers send the cookies of one server to all ports of its host."""


class WebArrival(Struct, frozen=True):
    """How a browser reaches us. `private`: nobody on the way can read along, so pages may be shown."""

    scheme: str
    host: str
    private: bool
    same_origin: bool
    """Whether it was sent by one of our own pages; browsers say so of everything but GET."""
    cookie_name: str
    cookie: str | None
    """The secret of a session; None: there is none, or several, of which others may have set one."""
    sends_cookies: bool
    """Whether a browser would have sent its cookie: not if it comes from another site."""

    @property
    def https(self) -> bool:
        """Whether the browser speaks https, so that cookies can be limited to it."""
        return self.scheme == "https"


def read_arrival(scope: Scope, settings: Settings) -> WebArrival:
    """What the request tells about its way here."""
    headers = Headers(scope=scope)
    peer, port = (scope.get("client") or ("", 0))[0], (scope.get("server") or ("", 0))[1]
    host = headers.get("host", "")
    forwarded = any(name in headers for name in _FORWARDED)
    trusted = is_in(peer, settings.trusted_proxies)
    scheme = headers.get("x-forwarded-proto", "") if trusted and forwarded else scope["scheme"]
    scheme = "https" if scheme.lower() == "https" else "http"
    private = scheme == "https" or (is_loopback(host) and not forwarded)
    site = headers.get("sec-fetch-site")
    name = f"{COOKIE}{port}"
    return WebArrival(
        scheme=scheme,
        host=host,
        private=private or settings.web.insecure,
        same_origin=_is_own(headers.get("origin"), f"{scheme}://{host}", settings.public_url)
        and site in {None, "same-origin"},
        cookie_name=name,
        cookie=_only_cookie(headers.getlist("cookie"), name),
        sends_cookies=site in {"same-origin", "none"},
    )


def is_loopback(host: str) -> bool:
    """Whether a Host header names this machine itself."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    name = name.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def is_in(address: str, networks: Sequence[Network]) -> bool:
    """Whether an address is in one of the networks."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in networks)


def _is_own(origin: str | None, here: str, public_url: str | None) -> bool:
    """A missing origin, or `null`, is nobody's."""
    public = urlsplit(public_url or "")
    return bool(origin) and origin in {here, f"{public.scheme}://{public.netloc}"}


def _only_cookie(headers: Sequence[str], name: str) -> str | None:
    """The cookie's value if it was sent exactly once: another program on this host may set one for a longer path."""
    pairs = (one.strip().partition("=") for header in headers for one in header.split(";"))
    found = [value for told, _, value in pairs if told == name]
    return found[0] if len(found) == 1 else None
