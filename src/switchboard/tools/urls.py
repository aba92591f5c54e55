"""Canonical URLs, so that the URL that a model requests can be compared with those that a person wrote.

Called by `web_fetch.py`, and by the engine `model` for the texts of a person and the hosts of its settings. In: text
from anybody; out: canonical URLs. Only the canonical form is fetched, never the model's spelling, so the spelling
cannot leak anything to a server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import AddressValueError, IPv6Address
from itertools import chain, islice
from typing import Final

import httpx2

from switchboard.domain.errors import ConfigurationError

MOST_URLS: Final = 200
"""Maximum of URLs taken from one text."""
_LONGEST: Final = 2000
_DEFAULTS: Final = {"http": 80, "https": 443}
_URL: Final = re.compile(r"https?://[^\s<>\"'`|\\^{}\x00-\x20\x7f]+", re.IGNORECASE)
_AFTER: Final = frozenset(".,;:!?*_~)]\u2026\u3001\u3002\u300b\u300d\u3011\uff01\uff09\uff0c\uff1b\uff1f")
"""Characters that may follow a URL in a sentence, or may be part of it."""
_MOST_AFTER: Final = 5
_HOST: Final = re.compile(r"[a-z0-9_.-]{1,253}")


def canonical(url: str) -> str | None:
    """The URL in canonical form, without fragment; None unless it is http or https, with a host and no password."""
    if len(url) > _LONGEST:
        return None
    try:
        parsed = httpx2.URL(url)
        host = parsed.raw_host.decode("ascii").rstrip(".").lower()
    except (httpx2.InvalidURL, UnicodeError, ValueError):
        return None
    port = parsed.port or _DEFAULTS.get(parsed.scheme, 0)
    if parsed.scheme not in _DEFAULTS or parsed.userinfo or not 0 < port < 65536:
        return None
    if parsed.port == 0 or not _is_host(host):
        return None
    shown = f"[{host}]" if ":" in host else host
    place = shown if port == _DEFAULTS[parsed.scheme] else f"{shown}:{port}"
    return f"{parsed.scheme}://{place}{parsed.raw_path.decode('ascii')}"


def _is_host(host: str) -> bool:
    if ":" not in host:
        return _HOST.fullmatch(host) is not None
    try:
        return IPv6Address(host).scope_id is None
    except AddressValueError:
        return False


def urls_in(text: str) -> frozenset[str]:
    """The canonical URLs in a person's text: those with a scheme, each with and without what may end the sentence."""
    readings = chain.from_iterable(_readings(match.group()) for match in islice(_URL.finditer(text), MOST_URLS))
    return frozenset(filter(None, map(canonical, readings)))


def written_urls(text: str) -> tuple[str, ...]:
    """The same URLs in order, each once: without what ends the sentence, except closing brackets of a pair."""
    found: dict[str, None] = {}
    for match in islice(_URL.finditer(text), MOST_URLS):
        url = match.group()
        for _ in range(_MOST_AFTER):
            if url[-1] not in _AFTER or (url[-1] == ")" and url.count("(") >= url.count(")")):
                break
            url = url[:-1]
        if (one := canonical(url)) is not None:
            found[one] = None
    return tuple(found)


def _readings(url: str) -> Iterable[str]:
    yield url
    for _ in range(_MOST_AFTER):
        if url[-1] not in _AFTER:
            return
        url = url[:-1]
        yield url


def place_of(url: str) -> str:
    """The host of a canonical URL, with its port unless that is the scheme's default."""
    return url.partition("://")[2].partition("/")[0].partition("?")[0]


def port_of(url: str) -> int:
    """The port of a canonical URL."""
    parsed = httpx2.URL(url)
    return parsed.port or _DEFAULTS[parsed.scheme]


def hosts_of(names: Iterable[str]) -> frozenset[str]:
    """Hosts of settings in canonical form: `docs.python.org`, `docs.example:8443`. Raises `ConfigurationError`."""
    return frozenset(map(_host_of, names))


def _host_of(name: str) -> str:
    url = canonical(f"http://{name}")
    if url is None or not url.endswith("/") or place_of(url) + "/" != url.removeprefix("http://"):
        raise ConfigurationError(f"{name!r} is not a host: write docs.python.org, or docs.example:8443 for a port")
    return place_of(url)
