"""Webhooks as a channel: how an account verifies posted requests and turns them into messages.

The entry point `webhook`. No connector runs: the server accepts the events (`app/connectors/hooks.py`), and replies
wait in the outbox of the endpoint. Next: `signatures.py`, `mapping.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal

from msgspec.structs import replace
from pydantic import BaseModel, Field

from switchboard.connectors.webhook.bodies import read_body
from switchboard.connectors.webhook.mapping import MessageMap, TemplateContext
from switchboard.connectors.webhook.signatures import Scheme, stripe_fields, verify
from switchboard.core.envelope.identity import hash_of_body
from switchboard.core.passages.own import has_others_words, joined
from switchboard.domain.envelope import MAX_TEXT, Control, Envelope, Event, Payload, Sender, Source
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import (
    Account,
    Capabilities,
    Hook,
    Inbound,
    Manifest,
    Posted,
    Secret,
    Session,
    SignInRefused,
    Unreadable,
)
from switchboard.ports.raw import integer, word


class WebhookAccountSettings(BaseModel, extra="forbid", frozen=True):
    """Settings for one sender of webhooks. `endpoint`: its name in rules and tokens, by default the account's name.

    `repeats`: whether the same content again under a known id is a duplicate, or an event. `body_id_hours`: how long an
    event without an id is the same as another one with the same body, counted from the first; 0: never.
    """

    verify: Scheme
    endpoint: str | None = Field(default=None, min_length=1, max_length=512)
    map: MessageMap = MessageMap()
    repeats: Literal["duplicates", "events"] = "duplicates"
    body_id_hours: float = Field(default=24.0, ge=0, le=10_000)


_PROVIDER: Final[dict[Scheme, str]] = {"standard": "http", "github": "github", "stripe": "stripe", "bearer": "http"}
_EVENT_ID: Final[dict[Scheme, str]] = {
    "standard": "{headers.webhook-id}",
    "github": "{headers.x-github-delivery}",
    "stripe": "{body.id}",
    "bearer": "{headers.idempotency-key|headers.webhook-id|body.id}",
}
"""The sender's own id of the event: sent again, it is the same event."""


def settings_of(account: Account) -> WebhookAccountSettings:
    """The settings of an account of this channel."""
    if not isinstance(account.settings, WebhookAccountSettings):
        raise TypeError("these are not the settings of a webhook")
    return account.settings


def _hook_of(account: Account) -> Hook:
    return Hook(_endpoint_of(account), _verify_post, read)


def _endpoint_of(account: Account) -> str:
    return settings_of(account).endpoint or account.name


def _verify_post(account: Account, posted: Posted, now: datetime) -> str | None:
    secrets = [found for name in ("secret", "second") if (found := account.secrets.get(name))]
    return verify(settings_of(account).verify, posted.body, posted.headers, secrets, now)


def read(account: Account, posted: Posted, now: datetime) -> Inbound | Unreadable:
    """The message that an account makes of a posted request."""
    digest = hash_of_body(posted.body)
    try:
        body = read_body(posted)
    except InvalidInput as error:
        event_id = _event_id(account, TemplateContext(None, posted.headers))
        return Unreadable(event_id or digest, posted.body, error.message, error)
    seen, settings = TemplateContext(body, posted.headers), settings_of(account)
    event_id = _event_id(account, seen)
    envelope = _make_envelope(account, seen, now, event_id or digest)
    if settings.repeats == "events" or not (event_id or settings.body_id_hours):
        apart = _by_itself(envelope, f"{now.isoformat()} {digest}")
        return Inbound(envelope=apart, raw=posted.body, direct=True)
    seconds = None if event_id else settings.body_id_hours * 3600
    return Inbound(envelope=envelope, raw=posted.body, direct=True, id_for_s=seconds)


def _by_itself(envelope: Envelope, key: str) -> Envelope:
    """The event under a key that no other one has, whatever its id."""
    return replace(envelope, control=replace(envelope.control, idempotency_key=key))


def _event_id(account: Account, seen: TemplateContext) -> str:
    settings = settings_of(account)
    return seen.fill_template(settings.map.event_id or _EVENT_ID[settings.verify]).strip()[:512]


def _make_envelope(account: Account, seen: TemplateContext, now: datetime, event_id: str) -> Envelope:
    settings = settings_of(account)
    mapped, endpoint = settings.map, _endpoint_of(account)
    return Envelope(
        schema_version="ingest.v1",
        source=Source(channel="webhook", provider=_PROVIDER[settings.verify], endpoint_identity=endpoint),
        event=Event(
            external_event_id=event_id,
            external_thread_id=seen.fill_template(mapped.thread).strip() or None,
            observed_at=now,
            sent_at=_sent_at(settings.verify, seen),
        ),
        sender=Sender(
            identity=seen.fill_template(mapped.sender).strip() or endpoint,
            display_name=seen.fill_template(mapped.sender_name).strip() or None,
        ),
        payload=_make_payload(seen, mapped.text),
        control=Control(addressed=True, ingestion_tier="full" if seen.fits(mapped.only) else "history"),
    )


def _make_payload(seen: TemplateContext, template: str) -> Payload:
    passages = seen.passages(template)
    text = joined(passages)[:MAX_TEXT]
    return Payload(
        raw=_as_object(seen.body), normalized_text=text, passages=passages if has_others_words(passages) else ()
    )


def _as_object(body: object) -> JsonObject:
    return body if isinstance(body, dict) else {"body": body}


def _sent_at(scheme: Scheme, seen: TemplateContext) -> datetime | None:
    match scheme:
        case "standard":
            seconds = integer(seen.headers.get("webhook-timestamp"))
        case "stripe":
            seconds = word(stripe_fields(seen.headers.get("stripe-signature", "")).get("t", [""])[0])
        case _:
            return None
    try:
        return datetime.fromtimestamp(int(seconds), UTC) if seconds else None
    except (ValueError, OverflowError, OSError):
        return None


async def _refuse_to_open(account: Account) -> Session:
    raise SignInRefused(f"nothing connects a webhook: it arrives at the server, at /hooks/{account.name}")


MANIFEST: Final = Manifest(
    name="webhook",
    channel="webhook",
    provider="http",
    settings=WebhookAccountSettings,
    secrets=(
        Secret("secret", "what the sender signs with, such as whsec_…, or the token that it sends"),
        Secret(
            "second", "a second one that is valid too, while the sender changes from one to the other", optional=True
        ),
    ),
    strangers="open",  # a valid signature is a permission to write
    steps=(
        "Set public_url in switchboard.toml to the address at which the world reaches your server.",
        "Enter that address and /hooks/NAME at the sender of the webhooks.",
        "The sender shows you a secret, or asks for one: copy it.",
    ),
    capabilities=Capabilities(text_limit=MAX_TEXT),
    open=_refuse_to_open,
    hook=_hook_of,
    connects=False,
)
