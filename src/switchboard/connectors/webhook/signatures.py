"""Verifies the sender of a webhook: Standard Webhooks, GitHub, Stripe, or a bearer token. Pure.

`manifest.py` calls `verify`. In: the raw bytes, headers by lower-case names, the secrets; out: None, or why not. Never
raises, and compares in constant time. Next: `mapping.py`.
"""

from __future__ import annotations

import binascii
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal

Scheme = Literal["standard", "github", "stripe", "bearer"]

TOLERANCE_S: Final = 300
"""How far the time of a signature may be from ours."""
_SECONDS: Final = re.compile(r"[0-9]{1,12}")
_LIKE_A_TIME: Final = re.compile(r"\.[0-9]{1,12}(?:\.|$)")
_MOST_SIGNATURES: Final = 20


def verify(scheme: Scheme, raw: bytes, headers: Mapping[str, str], secrets: Sequence[str], now: datetime) -> str | None:
    """None if one of the secrets signed it; otherwise a sentence that says why, without secrets."""
    match scheme:
        case "standard":
            return _verify_standard(raw, headers, secrets, now)
        case "github":
            given = headers.get("x-hub-signature-256", "")
            return _compare_signatures(
                "X-Hub-Signature-256", [given], [f"sha256={_hex_digest(s.encode(), raw)}" for s in secrets]
            )
        case "stripe":
            return _verify_stripe(raw, headers, secrets, now)
        case "bearer":
            kind, _, token = headers.get("authorization", "").partition(" ")
            given = token.strip() if kind.lower() == "bearer" else ""
            return _compare_signatures("Authorization", [given], secrets)


def stripe_fields(header: str) -> dict[str, list[str]]:
    """The fields of `t=…,v1=…,v1=…` by name."""
    fields: dict[str, list[str]] = {}
    for name, _, value in (one.strip().partition("=") for one in header.split(",")[:_MOST_SIGNATURES]):
        fields.setdefault(name, []).append(value)
    return fields


def _verify_standard(raw: bytes, headers: Mapping[str, str], secrets: Sequence[str], now: datetime) -> str | None:
    event_id, sent = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not event_id:
        return "the header webhook-id is missing"
    if _LIKE_A_TIME.search(event_id):  # what was signed could be another id, another time and another body
        return "the header webhook-id has a number after a dot, which makes its signature ambiguous"
    if wrong := _time_is_wrong(sent, now):
        return wrong
    keys = [key for secret in secrets if (key := _decode_key(secret)) is not None]
    if not keys:
        return "the secret is not base64 after whsec_"
    signed = f"{event_id}.{sent}.".encode("utf-8", "replace") + raw
    right = [f"v1,{b64encode(_digest_of(key, signed)).decode()}" for key in keys]
    return _compare_signatures(
        "webhook-signature", headers.get("webhook-signature", "").split()[:_MOST_SIGNATURES], right
    )


def _verify_stripe(raw: bytes, headers: Mapping[str, str], secrets: Sequence[str], now: datetime) -> str | None:
    fields = stripe_fields(headers.get("stripe-signature", ""))
    sent = fields.get("t", [""])[0]
    if wrong := _time_is_wrong(sent, now):
        return wrong
    right = [_hex_digest(secret.encode(), f"{sent}.".encode() + raw) for secret in secrets]
    return _compare_signatures("Stripe-Signature", fields.get("v1", []), right)


def _time_is_wrong(sent: str, now: datetime) -> str | None:
    if not _SECONDS.fullmatch(sent):
        return "it has no time of its signature"
    away = int(sent) - now.timestamp()
    return None if abs(away) <= TOLERANCE_S else f"its time is {abs(away):.0f} s {'ahead' if away > 0 else 'ago'}"


def _compare_signatures(header: str, given: Sequence[str], right: Iterable[str]) -> str | None:
    """Compare every pair: stopping at the first match would reveal which one it was."""
    if not any(given):
        return f"the header {header} is missing"
    pairs = [(_bytes_of(one), _bytes_of(other)) for one in given if one for other in right]
    matches = [hmac.compare_digest(one, other) for one, other in pairs]
    return None if any(matches) else f"the header {header} does not fit"


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decode_key(secret: str) -> bytes | None:
    try:
        return b64decode(secret.removeprefix("whsec_"), validate=True) or None
    except (binascii.Error, ValueError):
        return None


def _digest_of(key: bytes, signed: bytes) -> bytes:
    return hmac.digest(key, signed, "sha256")


def _hex_digest(key: bytes, signed: bytes) -> str:
    return _digest_of(key, signed).hex()
