"""Which addresses of a server belong together, and how two spellings of one are recognised. Pure.

Passwords go to the site of the account alone: the host that a person has named, and hosts of the same registrable
domain, as iCloud and Fastmail have one for each user. Called by `client.py` for every request, redirect and address
that a server names.
"""

from __future__ import annotations

from functools import cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import quote, unquote_to_bytes

import httpx2
from publicsuffixlist import PublicSuffixList

from switchboard.transport.dav.kinds import DavError

_PORTS: Final = {"http": 80, "https": 443}
_KEPT: Final = "@:!$&'()*+,;=~"
"""What needs no escape in a segment of a path; servers escape some of it, and some do not."""


def start_of(url: str) -> httpx2.URL:
    """The address that a person has given. Raises DavError (`refused`), with what would be correct."""
    try:
        parsed = httpx2.URL(url if "://" in url else f"https://{url}")
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise DavError("refused", f"the address of the server is not understood: {error}") from error
    if parsed.scheme not in _PORTS or not parsed.host or parsed.userinfo:
        raise DavError("refused", "the address of the server begins with https:// and has a host, and no password")
    if parsed.scheme == "http" and not _is_loopback(parsed.host):
        raise DavError("refused", f"the password would go to {parsed.host} unencrypted: use https://")
    return parsed.copy_with(fragment=None, query=None)


def next_of(base: httpx2.URL, href: str, account: httpx2.URL) -> httpx2.URL:
    """Where `href` leads from `base`. Raises DavError (`elsewhere`) if the account's password may not go there."""
    try:
        place = base.join(href).copy_with(fragment=None)
    except (httpx2.InvalidURL, UnicodeError, ValueError) as error:
        raise DavError("unreadable", f"the server named an address that is none: {error}") from error
    if not _is_same_site(account, place):
        raise DavError("elsewhere", f"{base.host} refers to {place.host}, which gets no password of {account.host}")
    return place


def _is_same_site(account: httpx2.URL, place: httpx2.URL) -> bool:
    if place.scheme not in _PORTS or place.userinfo or (account.scheme, place.scheme) == ("https", "http"):
        return False
    if place.host == account.host:
        return _port_of(place) == _port_of(account) or not _is_loopback(place.host)
    domain = _registrable_domain(account.host)
    return place.scheme == "https" and domain is not None and domain == _registrable_domain(place.host)


def _port_of(url: httpx2.URL) -> int:
    return url.port or _PORTS[url.scheme]


def _is_loopback(host: str) -> bool:
    """On this machine. Another port of it may be a program of somebody else."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _registrable_domain(host: str) -> str | None:
    """What somebody could register: `icloud.com` of its hosts; None for numbers and single words."""
    try:
        ip_address(host)
    except ValueError:
        return _public_suffixes().privatesuffix(host.rstrip(".").lower())
    return None


@cache
def _public_suffixes() -> PublicSuffixList:
    return PublicSuffixList()  # a tenth of a second, where a server refers to another host


def path_of(url: httpx2.URL) -> str:
    """The path in one spelling: without needless escapes, and without a slash at the end."""
    path = url.raw_path.decode("ascii").partition("?")[0]
    return "/".join(quote(unquote_to_bytes(part), safe=_KEPT) for part in path.rstrip("/").split("/"))


def name_in(url: httpx2.URL) -> str:
    """The last segment of the path, without escapes: the name of an object in its collection."""
    last = path_of(url).rpartition("/")[2]
    return unquote_to_bytes(last).decode("utf-8", "replace").replace("\0", "\ufffd")


def place_of(collection: httpx2.URL, name: str) -> httpx2.URL:
    """The address of an object in a collection."""
    return collection.copy_with(raw_path=f"{path_of(collection)}/{quote(name, safe=_KEPT)}".encode("ascii"))


def as_directory(url: httpx2.URL) -> httpx2.URL:
    """With a slash at the end, as the address of a collection has."""
    path = url.raw_path.decode("ascii").partition("?")[0]
    return url.copy_with(raw_path=f"{path.rstrip('/')}/".encode("ascii"))
