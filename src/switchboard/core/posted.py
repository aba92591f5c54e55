"""Requests posted to `/hooks/{account}`: decompression, their form for replays, and the client's address. Pure.

`app/connectors/hooks.py` calls it. Next: `ports/connector.py`, where `Posted` is.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final

from msgspec.structs import replace

from switchboard.domain.errors import InvalidInput, TooLarge
from switchboard.ports.connector import Posted

Network = IPv4Network | IPv6Network

_SECRET: Final = re.compile(".*(?:auth|cookie|signature|secret|token|password|credential|api-?key).*")
_RECORD: Final = re.compile(rb"POST /hooks/([A-Za-z0-9_.-]{1,64})\r\n((?:[^\r\n]*\r\n)*?)\r\n")
_GZIP: Final = 31
"""The window size that makes zlib expect a gzip header."""


def is_packed(posted: Posted) -> bool:
    """Whether the body is compressed with gzip, according to its header."""
    return posted.headers.get("content-encoding", "").strip().lower() == "gzip"


def decompress_body(posted: Posted, most: int) -> Posted:
    """The request with its body decompressed. Raises InvalidInput, or TooLarge if that is more than `most` bytes."""
    if not is_packed(posted):
        return posted
    packed = zlib.decompressobj(_GZIP)
    try:
        body = packed.decompress(posted.body, most + 1)
    except zlib.error as error:
        raise InvalidInput(f"the body is not gzip: {error}", code="invalid_value", field="Content-Encoding") from None
    if len(body) > most:
        raise TooLarge(f"the body unpacked exceeds the limit of {most} bytes; nothing was stored")
    return replace(posted, body=body)


def record_of_request(account: str, posted: Posted) -> bytes:
    """The form kept in quarantine, without the headers that prove who sent it."""
    lines = (f"{name}: {value}" for name, value in posted.headers.items() if not _SECRET.fullmatch(name))
    head = "".join(f"{line}\r\n" for line in (f"POST /hooks/{account}", *lines) if line.isprintable())
    return head.encode() + b"\r\n" + posted.body


def read_record(raw: bytes) -> tuple[str, Posted] | None:
    """The account and what was posted to it; None for events of connectors."""
    found = _RECORD.match(raw)
    if found is None:
        return None
    lines = found[2].decode("utf-8", "replace").splitlines()
    headers = {name: value for name, _, value in (line.partition(": ") for line in lines)}
    return found[1].decode("ascii"), Posted(raw[found.end() :], headers)


def client_of(peer: str, forwarded: str, trusted: Sequence[Network]) -> str:
    """The address of the client: `X-Forwarded-For` read from its end, as far as our own proxies have written it."""
    hops = [one.strip() for one in forwarded.split(",") if one.strip()]
    client = peer
    while hops and _is_in(client, trusted):
        client = hops.pop()
    return client


def _is_in(address: str, networks: Sequence[Network]) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in networks)
