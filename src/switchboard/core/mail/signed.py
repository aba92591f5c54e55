"""The mail inside an S/MIME message that is signed and not encrypted (`signed-data`, RFC 8551).

Called by `core/mail/texts.py`. In: the bytes of `smime.p7m`, which a stranger wrote; out: the bytes that were signed,
or None. The signature is not checked: to us it is a wrapper. Only the way to the content is read (BER, RFC 5652,
section 5): ContentInfo, SignedData, EncapsulatedContentInfo, OCTET STRING. Linear time. Next: `core/mail/mime.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

_SIGNED_DATA: Final = bytes.fromhex("2a864886f70d010702")
_INTEGER, _OCTETS, _OID, _SEQUENCE, _SET, _CONTENT = 0x02, 0x04, 0x06, 0x30, 0x31, 0xA0
_CONSTRUCTED: Final = 0x20
_MAX_DEPTH: Final = 16


class _Malformed(Exception):
    """It is no BER, or not of this form."""


class _Element(Struct, frozen=True):
    """A tag, and where its contents begin and end; `end` is None if a mark ends them (indefinite length)."""

    tag: int
    begin: int
    end: int | None


def signed_content(data: bytes) -> bytes | None:
    """The content of `signed-data`; None if it is something else, or has no content."""
    try:
        at = _inside(data, 0, _SEQUENCE)
        kind = _element(data, at)
        if kind.tag != _OID or data[kind.begin : kind.end] != _SIGNED_DATA:
            return None
        at = _inside(data, _after(data, kind), _CONTENT)
        at = _inside(data, at, _SEQUENCE)
        at = _skipped(data, _skipped(data, at, _INTEGER), _SET)
        at = _skipped(data, _inside(data, at, _SEQUENCE), _OID)
        return b"".join(_octets(data, _element(data, _inside(data, at, _CONTENT))))
    except (_Malformed, IndexError):
        return None


def _inside(data: bytes, at: int, tag: int) -> int:
    """Where the contents of the element at `at` begin."""
    found = _element(data, at)
    if found.tag != tag:
        raise _Malformed
    return found.begin


def _skipped(data: bytes, at: int, tag: int) -> int:
    found = _element(data, at)
    if found.tag != tag:
        raise _Malformed
    return _after(data, found)


def _element(data: bytes, at: int) -> _Element:
    """The element at `at`. Raises IndexError at the end of the data."""
    tag, length = data[at], data[at + 1]
    if length == 0x80:
        return _Element(tag, at + 2, None)
    if length < 0x80:
        return _Element(tag, at + 2, at + 2 + length)
    begin = at + 2 + (length & 0x7F)
    return _Element(tag, begin, begin + int.from_bytes(data[at + 2 : begin][:8]))


def _after(data: bytes, element: _Element, depth: int = 0) -> int:
    """Where the next element begins."""
    if element.end is not None:
        return element.end
    if depth > _MAX_DEPTH:
        raise _Malformed
    at = element.begin
    while (one := _element(data, at)).tag:
        at = _after(data, one, depth + 1)
    return at + 2


def _octets(data: bytes, element: _Element, depth: int = 0) -> Iterator[bytes]:
    """The pieces of an octet string, which may be made of others."""
    if element.tag == _OCTETS:
        yield data[element.begin : element.end]
        return
    if element.tag != _OCTETS | _CONSTRUCTED or depth > _MAX_DEPTH:
        raise _Malformed
    end, at = len(data) if element.end is None else min(element.end, len(data)), element.begin
    while at < end and (one := _element(data, at)).tag:
        yield from _octets(data, one, depth + 1)
        at = _after(data, one)
