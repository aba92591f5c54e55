"""One signed POST to a checked address: the way out for webhooks.

`http.py` (turns), `callback.py` (replies) and `app/dead_letters/telling.py` call `post` with a destination and a body;
it returns a status and at most 1 MiB of body, or raises `PostError`. Receivers check requests with `verify`. Next:
`http.py`.

A host is resolved once: the addresses are checked and one of them is connected to, so that a name that resolves to
something else a moment later (DNS rebinding) gains nothing. Proxies from the environment are not used, because they
would resolve the name again. Connections are not kept: one that was verified for a name must not serve another name on
the same address, and a connection that the other side has closed meanwhile would make outcomes unknown.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Final, Literal, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

import httpx2
from msgspec import Struct

from switchboard.domain.errors import ConfigurationError
from switchboard.transport.webhook_spec import WebhookSpec

TIMESTAMP_HEADER: Final = "Switchboard-Timestamp"
SIGNATURE_HEADER: Final = "Switchboard-Signature"
WINDOW_S: Final = 300.0
"""Seconds that a timestamp may be in the past or in the future."""
MAX_RESPONSE: Final = 1_048_576
MAX_RETRY_AFTER_S: Final = 3600.0
RETRYABLE: Final = frozenset({408, 425, 429})
"""Statuses below 500 after which the same request may succeed."""

_CONNECT_S: Final = 10.0
_MOST_ADDRESSES: Final = 4
_PORTS: Final = {"http": 80, "https": 443}
_NAT64: Final = ip_network("64:ff9b::/96")
_ALSO_FORBIDDEN: Final = (
    ip_network("192.0.0.0/24"),  # metadata of Oracle's cloud lives here; older Pythons consider part of it public
    ip_network("168.63.129.16/32"),  # Azure's host, on a public address
    ip_network("fec0::/10"),
)

Verification = Literal["valid", "malformed", "stale", "forged"]
Failure = Literal["forbidden", "unreachable", "timeout"]
Resolve = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""From a host and a port to its numeric addresses."""
_T = TypeVar("_T")


class PostError(Exception):
    """No answer came. `sent` False: the other side has certainly not seen the request."""

    def __init__(self, message: str, *, kind: Failure, sent: bool) -> None:
        super().__init__(message)
        self.kind = kind
        self.sent = sent


@dataclass(frozen=True, slots=True)
class PostDestination:
    """Where to post, and the secret to sign with; `timeout` in seconds is for the whole exchange."""

    url: str
    secret: bytes = field(repr=False)
    timeout: float = 30.0
    allow_private: bool = False


class PostResult(Struct, frozen=True):
    """The answer. `cut`: only the first 1 MiB is kept. `retry_after` in seconds, at most an hour."""

    status: int
    media_type: str
    body: bytes
    cut: bool = False
    retry_after: float | None = None


class SendTrace:
    """Whether sending has begun: before that, nothing can have happened. Used as the `trace` of the request."""

    def __init__(self) -> None:
        self.begun = False

    async def __call__(self, event: str, _: object) -> None:
        self.begun = self.begun or not event.startswith("connection.")


def sign(secret: bytes, timestamp: int, body: bytes) -> str:
    """The signature header: `v1=` and the hex HMAC-SHA256 of `timestamp.body`; `timestamp` in Unix seconds."""
    return "v1=" + hmac.new(secret, b"%d." % timestamp + body, sha256).hexdigest()


def verify(
    secret: bytes, *, timestamp: str, signature: str, body: bytes, now: float, window: float = WINDOW_S
) -> Verification:
    """Check the two headers of a request against its unmodified body; in constant time where it matters.

    `now` and `window` in (Unix) seconds. Trust only `valid`; the other results are for the log.
    """
    if not re.fullmatch(r"\d{1,12}", timestamp, re.ASCII) or not re.fullmatch(r"v1=[0-9a-f]{64}", signature):
        return "malformed"
    if not hmac.compare_digest(sign(secret, int(timestamp), body), signature):
        return "forged"
    return "valid" if abs(now - int(timestamp)) <= window else "stale"


def read_secret(env: str | None, file: Path | None, *, hint: str = ", such as `openssl rand -hex 32` makes") -> bytes:
    """The secret, from the environment variable `env` or from `file`. Raises `ConfigurationError` that says what to do.

    `hint` says where to get a secret; the default suits one that two parties may choose.
    """
    if (env is None) == (file is None):
        raise ConfigurationError("a secret is needed: give either secret_env or secret_file")
    if env is not None:
        secret, place = os.environ.get(env, ""), f"environment variable {env}"
    else:
        secret, place = _read_secret_file(Path(str(file)), hint), f"file {file}"
    if not secret.strip():
        raise ConfigurationError(f"the {place} holds no secret: put one there{hint}")
    return secret.strip().encode()


def header_with_key(env: str | None, header: str, *, hint: str) -> dict[str, str]:
    """The header with the key in the environment variable `env`, as a bearer token if it is `authorization`.

    Empty, if no variable is named. Raises ConfigurationError.
    """
    if env is None:
        return {}
    key = read_secret(env, None, hint=hint).decode()
    if not (key.isascii() and key.isprintable()):
        raise ConfigurationError(f"the environment variable {env} holds something that is not a key")
    return {header: f"Bearer {key}" if header.lower() == "authorization" else key}


def _read_secret_file(file: Path, hint: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:  # as after a restore without secrets
        raise ConfigurationError(f"the file {file} is missing: put the secret there{hint}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the secret cannot be read from {file}: {error}") from error


def destination(webhook: WebhookSpec, whose: str, timeout: float) -> PostDestination:
    """The destination in the settings; `timeout` in seconds. Raises `ConfigurationError` with `whose` and the fix."""
    try:
        check_url(webhook.url)
        secret = read_secret(webhook.secret_env, webhook.secret_file)
    except ConfigurationError as error:
        raise ConfigurationError(f"{whose}: {error.message}") from error
    return PostDestination(webhook.url, secret, timeout, webhook.allow_private)


def check_url(url: str) -> None:
    """Raises `ConfigurationError` unless it is an http or https URL with a host; not shown: it may hold a password."""
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise ConfigurationError(f"the URL is not understood: {type(error).__name__}") from error
    if parsed.scheme not in _PORTS or not parsed.host or not 0 < (parsed.port or _PORTS[parsed.scheme]) < 65536:
        raise ConfigurationError("the URL must begin with http:// or https:// and name a host (and a port below 65536)")


async def post(to: PostDestination, body: bytes, idempotency_key: UUID) -> PostResult:
    """Post JSON, signed with the current time; redirects are not followed. Raises `PostError`, `ConfigurationError`."""
    check_url(to.url)
    client, sending = _client(), SendTrace()
    request = client.build_request(
        "POST",
        to.url,
        content=body,
        headers=_headers_of(to.secret, body, idempotency_key),
        timeout=limits(to.timeout),
        extensions={"allow_private": to.allow_private, "trace": sending},
    )
    host = request.url.host
    try:
        async with asyncio.timeout(to.timeout):
            return await _exchange_once(client, request)
    except TimeoutError as error:
        raise PostError(f"{host} took longer than {to.timeout:g} s", kind="timeout", sent=sending.begun) from error
    except httpx2.HTTPError as error:
        kind: Failure = "timeout" if isinstance(error, httpx2.TimeoutException) else "unreachable"
        message = f"{host}: {type(error).__name__} {error}".strip()
        raise PostError(message, kind=kind, sent=sending.begun) from error


def limits(whole: float) -> httpx2.Timeout:
    """The timeouts of an exchange: an address that does not connect leaves half the time for the next."""
    return httpx2.Timeout(whole, connect=min(whole / 2, _CONNECT_S))


def _headers_of(secret: bytes, body: bytes, idempotency_key: UUID) -> dict[str, str]:
    timestamp = int(time.time())
    return {
        "Content-Type": "application/json",
        "Accept": "application/json, text/plain",
        "Accept-Encoding": "identity",  # an uncompressed body cannot grow beyond the limit
        "Connection": "close",
        "User-Agent": "switchboard",
        "Idempotency-Key": str(idempotency_key),
        TIMESTAMP_HEADER: str(timestamp),
        SIGNATURE_HEADER: sign(secret, timestamp, body),
    }


async def _exchange_once(client: httpx2.AsyncClient, request: httpx2.Request) -> PostResult:
    response = await client.send(request, stream=True)
    try:
        body, cut = await body_of(response, MAX_RESPONSE)
    finally:
        await response.aclose()
    headers = response.headers
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return PostResult(response.status_code, media_type, body, cut, retry_after(headers.get("retry-after"), time.time()))


async def body_of(response: httpx2.Response, most: int) -> tuple[bytes, bool]:
    """The first `most` bytes of a body as it is sent, and whether it was cut."""
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > most:
            return bytes(body[:most]), True
    return bytes(body), False


def retry_after(value: str | None, now: float) -> float | None:
    """The header `Retry-After` in seconds from `now` (Unix seconds), both forms; None if absent or invalid."""
    if value is None:
        return None
    if re.fullmatch(r"\d{1,9}", value.strip(), re.ASCII):
        return min(float(value), MAX_RETRY_AFTER_S)
    try:
        return min(max(parsedate_to_datetime(value).timestamp() - now, 0.0), MAX_RETRY_AFTER_S)
    except (ValueError, OverflowError):
        return None


def is_public(address: str) -> bool:
    """Whether a numeric address is on the public Internet; of an IPv4 address inside IPv6, the inner one counts."""
    ip = _inner_address(ip_address(address))
    special = ip.is_multicast or ip.is_reserved or any(ip in network for network in _ALSO_FORBIDDEN)
    return ip.is_global and not special


def _inner_address(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(ip, IPv4Address):
        return ip
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or ip


async def resolve(host: str, port: int) -> tuple[str, ...]:
    """The numeric addresses of a host, in any notation, according to the system. Raises OSError, UnicodeError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(info[4][0]).partition("%")[0] for info in found))


async def checked_addresses(
    host: str, port: int, *, allow_private: bool, resolver: Resolve = resolve
) -> tuple[str, ...]:
    """Resolve a host, in any notation. Raises `PostError` if one of its addresses is forbidden."""
    try:
        addresses = await resolver(host, port)
    except (OSError, UnicodeError) as error:
        raise PostError(f"{host} cannot be resolved: {error}", kind="unreachable", sent=False) from error
    for address in addresses:
        if not allow_private and not is_public(address):
            message = f"{host} is at {address}, which is not a public address; allow_private would permit it"
            raise PostError(message, kind="forbidden", sent=False)
    return addresses


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Connects to the checked address by number; the name stays in the Host header and in the TLS handshake.

    The extension `allow_private` of a request says whether it may go to private addresses.
    """

    def __init__(self, resolver: Resolve = resolve) -> None:
        self._resolver = resolver
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        self._inner = httpx2.AsyncHTTPTransport(limits=limits)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.raw_host.decode("ascii")
        port = request.url.port or _PORTS[request.url.scheme]
        allowed = request.extensions["allow_private"]
        addresses = await checked_addresses(host, port, allow_private=allowed, resolver=self._resolver)
        *others, last = addresses[:_MOST_ADDRESSES]
        for address in others:
            try:
                return await self._inner.handle_async_request(_pin_address(request, host, address))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue  # nothing was sent; the next address may answer
        return await self._inner.handle_async_request(_pin_address(request, host, last))

    async def aclose(self) -> None:
        await self._inner.aclose()


def _pin_address(request: httpx2.Request, host: str, address: str) -> httpx2.Request:
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": host},
    )


def per_loop(make: Callable[[], _T]) -> Callable[[], _T]:
    """A function that calls `make` once for each event loop."""
    made: WeakKeyDictionary[asyncio.AbstractEventLoop, _T] = WeakKeyDictionary()

    def of_this_loop() -> _T:
        loop = asyncio.get_running_loop()
        if loop not in made:
            made[loop] = make()
        return made[loop]

    return of_this_loop


# A client costs 25 ms (loading certificates). No connection is kept, so nothing needs closing.
_client = per_loop(lambda: httpx2.AsyncClient(transport=CheckedTransport(), trust_env=False, follow_redirects=False))
