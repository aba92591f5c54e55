"""What files say they are, and what messages name."""

from __future__ import annotations

import pytest

from switchboard.core.files.blobs import Sniffed, named_blobs, sniff
from switchboard.domain.envelope import Attachment
from switchboard.domain.errors import InvalidInput

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
ZIP = b"PK\x03\x04" + bytes(20)
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


@pytest.mark.parametrize(
    ("head", "claimed", "expected"),
    [
        (PNG, "image/png", Sniffed("image/png")),
        (PNG, "application/octet-stream", Sniffed("image/png")),
        (PNG, "text/html; charset=utf-8", Sniffed("image/png", "text/html")),
        (ZIP, DOCX, Sniffed(DOCX)),
        (ZIP, "image/png", Sniffed("application/zip", "image/png")),
        (b"hello", "text/csv", Sniffed("text/csv")),
        (b"hello", "image/png", Sniffed("text/plain", "image/png")),
        (b"<!DOCTYPE html><p>", "text/plain", Sniffed("text/html", "text/plain")),
        (b"\0\1\2\3", "application/x-special", Sniffed("application/x-special")),
        (b"\0\1\2\3", "image/png", Sniffed("application/octet-stream", "image/png")),
        (b"\0\1\2\3", "not a type\r\nX: y", Sniffed("application/octet-stream")),
        (b"", "text/plain", Sniffed("text/plain")),
    ],
)
def test_a_claim_counts_as_long_as_the_bytes_allow_it(head: bytes, claimed: str, expected: Sniffed) -> None:
    assert sniff(head, claimed) == expected


def file(storage_ref: str | None) -> Attachment:
    return Attachment(media_type="text/plain", size_bytes=1, storage_ref=storage_ref)


def test_what_a_message_names() -> None:
    one = "ab" * 32
    named = named_blobs([file(None), file("sha256:x"), file(f"blob:{one}"), file(f"blob:{one}")])
    assert named == {bytes.fromhex(one): "payload.attachments.2.storage_ref"}


@pytest.mark.parametrize("name", ["", "ab", "AB" * 32, "ab" * 33, "zz" * 32])
def test_a_name_that_none_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        named_blobs([file(f"blob:{name}")])
    assert refused.value.field == "payload.attachments.0.storage_ref"


@pytest.mark.parametrize("part", [b"<!---->", b"<!>", b"<!-- ", b"<?xml ", b" \n"])
def test_no_file_takes_long_to_look_at(part: bytes) -> None:
    """The test ends by its limit of time if the patterns try all ways to divide what they do not match."""
    assert sniff((part * 4096)[:4095] + b"x", "").media_type
