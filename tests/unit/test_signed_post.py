"""Signatures, secrets, and which addresses may be called; no network beyond the resolver's own tables."""

from __future__ import annotations

from email.utils import formatdate
from pathlib import Path

import pytest

from switchboard.domain.errors import ConfigurationError
from switchboard.transport.signed_post import (
    PostDestination,
    PostError,
    Verification,
    check_url,
    checked_addresses,
    is_public,
    read_secret,
    retry_after,
    sign,
    verify,
)

SECRET = b"canary-7f3a"
BODY = b'{"text":"hello"}'
NOW = 1_800_000_000


def test_the_signature_is_the_documented_one() -> None:
    # Computed with: printf '%s' '1800000000.{"text":"hello"}' | openssl dgst -sha256 -hmac canary-7f3a
    assert sign(SECRET, NOW, BODY) == "v1=3734301a8091939dc3ab5b180bcc9f7dda8df5d96f0bb4505ef582f0a22529e7"


@pytest.mark.parametrize(
    ("changes", "verification"),
    [
        ({}, "valid"),
        ({"now": NOW + 300.0}, "valid"),
        ({"now": NOW - 300.0}, "valid"),
        ({"now": NOW + 301.0}, "stale"),
        ({"now": NOW - 301.0}, "stale"),
        ({"now": NOW + 301.0, "window": 400.0}, "valid"),
        ({"secret": b"another"}, "forged"),
        ({"body": BODY + b" "}, "forged"),
        ({"timestamp": str(NOW + 1)}, "forged"),
        ({"signature": "v1=" + "0" * 64}, "forged"),
        ({"timestamp": ""}, "malformed"),
        ({"timestamp": "-1"}, "malformed"),
        ({"timestamp": "١٢"}, "malformed"),
        ({"timestamp": "9" * 400}, "malformed"),
        ({"signature": ""}, "malformed"),
        ({"signature": "v2=" + "0" * 64}, "malformed"),
        ({"signature": "v1=" + "é" * 64}, "malformed"),
    ],
)
def test_verify(changes: dict[str, object], verification: Verification) -> None:
    given: dict[str, object] = {
        "secret": SECRET,
        "timestamp": str(NOW),
        "signature": sign(SECRET, NOW, BODY),
        "body": BODY,
        "now": float(NOW),
        "window": 300.0,
        **changes,
    }
    match given:
        case {
            "secret": bytes(secret),
            "timestamp": str(timestamp),
            "signature": str(signature),
            "body": bytes(body),
            "now": float(now),
            "window": float(window),
        }:
            told = verify(secret, timestamp=timestamp, signature=signature, body=body, now=now, window=window)
            assert told == verification
        case _:
            pytest.fail(f"the case is not well typed: {given}")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",  # noqa: S104 - an address to be refused, nothing is bound
        "0.1.2.3",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "198.18.0.1",
        "203.0.113.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:db8::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ],
)
def test_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::1"],
)
def test_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0x7f.1",
        "0",
        "0.0.0.0",  # noqa: S104 - an address to be refused, nothing is bound
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "169.254.169.254",
        "2852039166",
    ],
)
async def test_every_form_of_a_private_host_is_refused(host: str) -> None:
    with pytest.raises(PostError, match="not a public address") as caught:
        await checked_addresses(host, 80, allow_private=False)
    assert (caught.value.kind, caught.value.sent) == ("forbidden", False)


async def test_a_private_host_is_taken_where_it_is_allowed() -> None:
    assert await checked_addresses("127.1", 80, allow_private=True) == ("127.0.0.1",)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 64 + ".example", "xn--a..b"])
async def test_a_host_that_cannot_be_resolved_may_come_back(host: str) -> None:
    with pytest.raises(PostError) as caught:
        await checked_addresses(host, 80, allow_private=False)
    assert (caught.value.kind, caught.value.sent) == ("unreachable", False)


@pytest.mark.parametrize("url", ["http://example.org/hook", "https://example.org:8443", "http://[::1]:80/"])
def test_good_urls(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    "url",
    ["", "example.org", "ftp://example.org", "file:///etc/passwd", "http://", "http://a:99999999/", "http://\x00/"],
)
def test_bad_urls(url: str) -> None:
    with pytest.raises(ConfigurationError, match="URL"):
        check_url(url)


def test_a_secret_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", " canary \n")
    assert read_secret("HOOK_SECRET", None) == b"canary"


def test_a_secret_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("canary\n")
    assert read_secret(None, file) == b"canary"


def test_a_missing_secret_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOOK_SECRET", raising=False)
    empty = tmp_path / "empty"
    empty.write_text("\n")
    cases = [
        (None, None, "secret_env or secret_file"),
        ("HOOK_SECRET", empty, "secret_env or secret_file"),
        ("HOOK_SECRET", None, "environment variable HOOK_SECRET"),
        (None, empty, "openssl rand"),
        (None, tmp_path / "none", "is missing: put the secret there"),
    ]
    for env, file, told in cases:
        with pytest.raises(ConfigurationError, match=told):
            read_secret(env, file)


def test_a_destination_does_not_show_its_secret() -> None:
    assert "canary" not in repr(PostDestination("https://example.org", SECRET))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("999999999", 3600.0),
        ("-1", None),
        ("soon", None),
        ("1" * 5000, None),
        (formatdate(NOW + 90, usegmt=True), 90.0),
        (formatdate(NOW - 90, usegmt=True), 0.0),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, float(NOW)) == seconds
