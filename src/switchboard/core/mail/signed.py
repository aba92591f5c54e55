"""The mail inside an S/MIME message that is signed and not encrypted (`signed-data`, RFC 8551).

Called by `core/mail/texts.py`. In: the bytes of `smime.p7m`, which a stranger wrote; out: the bytes that were signed,
or None. The signature is not checked: to us it is a wrapper. Only the way to the content is read (BER, RFC 5652,
section 5): ContentInfo, SignedData, EncapsulatedContentInfo, OCTET STRING. Linear time. Next: `core/mail/mime.py`.

Whoever attaches a signed mail did not write it, so only a part that is all of a mail wraps what its sender wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from switchboard.core.mail.head import field
from switchboard.core.mail.mime import MailPart, content, is_attached

_KINDS: Final = frozenset({"application/pkcs7-mime", "application/x-pkcs7-mime"})
_NAMES: Final = frozenset({"", "smime.p7m", "smime.p7s"})
_ENTITY: Final = re.compile(rb"\s{0,20}(?:content-[a-z-]{1,30}|mime-version)[ \t]*:", re.IGNORECASE)
_OF_LISTS: Final = ("list-id", "list-post", "list-unsubscribe", "list-help")

_SIGNED_DATA: Final = bytes.fromhex("2a864886f70d010702")
_INTEGER, _OCTETS, _OID, _SEQUENCE, _SET, _CONTENT = 0x02, 0x04, 0x06, 0x30, 0x31, 0xA0
_CONSTRUCTED: Final = 0x20
_INDEFINITE: Final = 0x80
_MAX_DEPTH: Final = 16
_MAX_ELEMENTS: Final = 20_000
"""Programs cut a content of some megabytes into a few thousand pieces."""


class _Malformed(Exception):
    """It is no BER, or not of this form."""


class _Element(Struct, frozen=True):
    """A tag, and where its contents begin and end; `end` is None if a mark ends them (indefinite length)."""

    tag: int
    begin: int
    end: int | None


def may_be_signed_mail(part: MailPart) -> bool:
    """Whether it is a signed mail by its type and name; other names are those of documents."""
    return part.kind in _KINDS and part.filename.lower() in _NAMES


def wrapper_of(root: MailPart) -> MailPart | None:
    """The signed mail that a mail consists of: the mail itself, or all that it contains.

    Mailing lists put it into a multipart, with a footer below. Programs say of it that it is attached, so within a
    multipart it could be a file of the sender.
    """
    part = root
    while part.children and not part.is_file:
        first, *below = part.children
        if below and not (part is root and _is_by_list(root) and all(map(_is_footer, below))):
            return None
        part = first
    is_all = part is root or not is_attached(part.head)
    return part if is_all and may_be_signed_mail(part) else None


def signed_mail(part: MailPart) -> bytes | None:
    """The mail in a part that may be a signed one; None if it is something else."""
    found = signed_content(content(part))
    return found if found is not None and _ENTITY.match(found) else None


def _is_by_list(root: MailPart) -> bool:
    return any(field(root.head, name) for name in _OF_LISTS)


def _is_footer(part: MailPart) -> bool:
    return part.media_type == "text/plain" and not part.children and not part.is_file


def signed_content(data: bytes) -> bytes | None:
    """The content of `signed-data`; None if it is something else, or has no content."""
    try:
        return _Reader(data).content()
    except (_Malformed, IndexError):
        return None


class _Reader:
    """Reads elements at positions of the data. Its methods raise `_Malformed`, and IndexError at the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = _MAX_ELEMENTS

    def content(self) -> bytes | None:
        at = self._inside(0, _SEQUENCE)
        kind = self._element(at, _OID)
        if self._data[kind.begin : kind.end] != _SIGNED_DATA:
            return None
        at = self._inside(self._inside(self._after(kind), _CONTENT), _SEQUENCE)
        at = self._skip_element(self._skip_element(at, _INTEGER), _SET)
        at = self._skip_element(self._inside(at, _SEQUENCE), _OID)
        return b"".join(self._octets(self._element(self._inside(at, _CONTENT))))

    def _element(self, at: int, tag: int | None = None) -> _Element:
        """The element at `at`, which must have that tag."""
        self._left -= 1
        found, length = self._data[at], self._data[at + 1]
        if self._left < 0 or tag not in {None, found}:
            raise _Malformed
        if length == _INDEFINITE:
            return _Element(found, at + 2, None)
        begin = at + 2 + (length & 0x7F if length > _INDEFINITE else 0)
        size = int.from_bytes(self._data[at + 2 : begin][:8], "big") if length > _INDEFINITE else length
        return _Element(found, begin, begin + size)

    def _inside(self, at: int, tag: int) -> int:
        """Where the contents of the element at `at` begin."""
        return self._element(at, tag).begin

    def _skip_element(self, at: int, tag: int) -> int:
        """Where the element after the one at `at` begins."""
        return self._after(self._element(at, tag))

    def _after(self, element: _Element, depth: int = 0) -> int:
        if element.end is not None:
            return element.end
        if depth > _MAX_DEPTH:
            raise _Malformed
        at = element.begin
        while (one := self._element(at)).tag:
            at = self._after(one, depth + 1)
        return at + 2

    def _octets(self, element: _Element, depth: int = 0) -> Iterator[bytes]:
        """The pieces of an octet string, which may be made of others."""
        if element.tag == _OCTETS:
            yield self._data[element.begin : element.end]
            return
        if element.tag != _OCTETS | _CONSTRUCTED or depth > _MAX_DEPTH:
            raise _Malformed
        at, end = element.begin, len(self._data) if element.end is None else min(element.end, len(self._data))
        while at < end and (one := self._element(at)).tag:
            yield from self._octets(one, depth + 1)
            at = self._after(one)
