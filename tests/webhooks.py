"""Senders of webhooks for tests: what they post, signed for the time and the secret of the test."""

from __future__ import annotations

import hmac
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from standardwebhooks import Webhook

KEY: Final = b64encode(b"a key of 24 bytes, or so").decode()
SECRET: Final = f"whsec_{KEY}"
_FORMS: Final = Path(__file__).parent / "fixtures" / "webhooks"


@dataclass(frozen=True)
class Request:
    """What is posted."""

    body: bytes
    headers: Mapping[str, str]


def form(name: str) -> Request:
    """What GitHub or Stripe have posted; not signed, as the secret is another here."""
    head, _, body = (_FORMS / f"{name}.txt").read_text(encoding="utf-8").partition("\n\n")
    pairs = (line.partition(": ") for line in head.splitlines())
    return Request(body.encode(), {key.lower(): value for key, _, value in pairs if key != "Host"})


def standard(body: bytes, event_id: str = "msg_1", *, secret: str = SECRET, at: datetime | None = None) -> Request:
    """Signed by the reference library of Standard Webhooks."""
    sent = at or datetime.now(UTC)
    headers = {
        "content-type": "application/json",
        "webhook-id": event_id,
        "webhook-timestamp": str(int(sent.timestamp())),
        "webhook-signature": Webhook(secret).sign(event_id, sent, body.decode()),
    }
    return Request(body, headers)


def github(request: Request, secret: str) -> Request:
    """Signed as GitHub does."""
    digest = hmac.digest(secret.encode(), request.body, "sha256").hex()
    return Request(request.body, {**request.headers, "x-hub-signature-256": f"sha256={digest}"})


def stripe(request: Request, secret: str, at: float | None = None) -> Request:
    """Signed as Stripe does, also with the signature of an older secret."""
    sent = str(int(time.time() if at is None else at))
    right = hmac.digest(secret.encode(), sent.encode() + b"." + request.body, "sha256").hex()
    return Request(request.body, {**request.headers, "stripe-signature": f"t={sent},v1={'0' * 64},v1={right},v0=1"})


def account(directory: Path, name: str, settings: str, secret: str = SECRET) -> Path:
    """The file of an account in `directory`, and that of its secret."""
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.secret").write_text(secret, encoding="utf-8")
    file = directory / f"{name}.toml"
    text = f'channel = "webhook"\nsecrets.secret.file = "{name}.secret"\n[settings]\n{settings}\n'
    file.write_text(text, encoding="utf-8")
    return file
