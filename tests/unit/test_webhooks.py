"""Webhooks before they are messages: signatures, and the mapping of any JSON. Pure."""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from standardwebhooks import Webhook

from switchboard.connectors.webhook.manifest import MANIFEST, WebhookAccountSettings, read
from switchboard.connectors.webhook.mapping import MessageMap, TemplateContext
from switchboard.connectors.webhook.signatures import TOLERANCE_S, Scheme, verify
from switchboard.core.envelope.read import parse_envelope
from switchboard.core.passages.own import joined
from switchboard.ports.connector import Account, Inbound, Posted, Unreadable

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
KEY = b64encode(b"a key of 24 bytes, or so").decode()
SECRET = f"whsec_{KEY}"
OTHER = f"whsec_{b64encode(b'another one, that is old').decode()}"
BODY = b'{"type":"invoice.paid","n":7}'


def signed(body: bytes = BODY, secret: str = SECRET, at: datetime = NOW) -> dict[str, str]:
    """The headers of a sender that uses the reference library."""
    return {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign("msg_1", at, body.decode()),
    }


def stripe(body: bytes = BODY, secret: str = SECRET, at: datetime = NOW) -> dict[str, str]:
    sent = str(int(at.timestamp()))
    right = hmac.digest(secret.encode(), sent.encode() + b"." + body, "sha256").hex()
    return {"stripe-signature": f"t={sent},v1={'0' * 64},v1={right},v0=1"}


def test_a_webhook_signed_by_the_reference_library_is_verified() -> None:
    assert verify("standard", BODY, signed(), [SECRET], NOW) is None
    assert verify("standard", BODY + b" ", signed(), [SECRET], NOW) == "the header webhook-signature does not fit"
    assert verify("standard", BODY, {**signed(), "webhook-id": "msg_2"}, [SECRET], NOW) is not None
    assert verify("standard", BODY, {}, [SECRET], NOW) == "the header webhook-id is missing"
    assert verify("standard", BODY, signed(), ["not base64!"], NOW) == "the secret is not base64 after whsec_"


def test_a_signature_cannot_be_used_for_another_id_time_and_body() -> None:
    at = str(int(NOW.timestamp()))
    elsewhere = {**signed(f"{at}.{{}}".encode()), "webhook-id": f"msg_1.{at}"}  # the same bytes, divided elsewhere
    assert "ambiguous" in (verify("standard", b"{}", elsewhere, [SECRET], NOW) or "")
    plain = {**signed(), "webhook-id": "order.paid.v2"}  # a dot alone is none
    assert verify("standard", BODY, plain, [SECRET], NOW) == "the header webhook-signature does not fit"


def test_one_of_several_signatures_and_one_of_two_secrets_is_enough() -> None:
    several = {**signed(), "webhook-signature": f"v1a,xyz v1,AAAA {signed()['webhook-signature']}"}
    assert verify("standard", BODY, several, [SECRET], NOW) is None
    for secret in (SECRET, OTHER):
        assert verify("standard", BODY, signed(secret=secret), [SECRET, OTHER], NOW) is None
        assert verify("stripe", BODY, stripe(secret=secret), [SECRET, OTHER], NOW) is None
    assert verify("standard", BODY, signed(secret=OTHER), [SECRET], NOW) is not None
    assert verify("stripe", BODY, stripe(secret=OTHER), [SECRET], NOW) == "the header Stripe-Signature does not fit"


@pytest.mark.parametrize(("off", "good"), [(-301, False), (-300, True), (0, True), (300, True), (301, False)])
def test_the_time_of_a_signature_may_be_five_minutes_away(off: int, good: bool) -> None:
    assert TOLERANCE_S == 300
    at = NOW + timedelta(seconds=off)
    assert (verify("standard", BODY, signed(at=at), [SECRET], NOW) is None) == good
    assert (verify("stripe", BODY, stripe(at=at), [SECRET], NOW) is None) == good


def test_the_example_that_github_publishes_is_verified() -> None:
    secret = "It's a Secret to Everybody"
    header = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert verify("github", b"Hello, World!", {"x-hub-signature-256": header}, [secret], NOW) is None
    assert verify("github", b"Hello, World?", {"x-hub-signature-256": header}, [secret], NOW) is not None
    assert verify("github", b"", {}, [secret], NOW) == "the header X-Hub-Signature-256 is missing"


def test_what_the_library_of_stripe_signs_is_verified() -> None:
    # By `stripe.WebhookSignature.generate_signature_header` of stripe 16.1.0.
    body = (
        '{"id":"evt_1NG8Du2eZvKYlo2CUI79vXWy","object":"event","type":"payment_intent.succeeded",'
        '"data":{"object":{"description":"Café ☕"}}}'
    ).encode()
    header = "t=1777896000,v1=3105b34d80b3e2e24547093c8eed0a956f4e7a4be84cf5d6f6ac2f1248d28360"
    assert verify("stripe", body, {"stripe-signature": header}, ["whsec_test_secret"], NOW) is None
    assert verify("stripe", body + b" ", {"stripe-signature": header}, ["whsec_test_secret"], NOW) is not None


def test_a_bearer_token_is_compared_whole() -> None:
    for header, good in (("Bearer abc", True), ("bearer  abc ", True), ("Bearer ab", False), ("Basic abc", False)):
        assert (verify("bearer", BODY, {"authorization": header}, ["abc"], NOW) is None) == good
    assert verify("bearer", BODY, {"authorization": "Bearer "}, [""], NOW) is not None


HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature", "stripe-signature", "x-hub-signature-256")


@given(
    st.sampled_from(get_args(Scheme)),
    st.binary(),
    st.dictionaries(st.sampled_from([*HEADERS, "authorization"]), st.text() | st.sampled_from(["t=1", "1777896000"])),
    st.lists(st.text(), max_size=2),
)
def test_nothing_that_is_posted_makes_verify_raise_or_agree(
    scheme: Scheme, body: bytes, headers: Mapping[str, str], secrets: list[str]
) -> None:
    assert verify(scheme, body, headers, [*secrets, SECRET], NOW) is not None or headers["authorization"]


def account(verified: Scheme = "standard", **mapped: Any) -> Account:
    return Account("orders", WebhookAccountSettings(verify=verified, map=MessageMap(**mapped)), {"secret": SECRET})


def message(one: Account, body: bytes, headers: Mapping[str, str]) -> Any:
    """The envelope, as the server would take it."""
    event = read(one, Posted(body, headers), NOW)
    assert isinstance(event, Inbound)
    return parse_envelope(msgspec.json.encode(event.envelope), now=NOW)


QUOTED = [("quoted", "Pay me")]


def test_templates_hold_constants_paths_and_both() -> None:
    body = {"a": {"b": [{"c": "x"}, 2]}, "yes": True, "none": None}
    seen = TemplateContext(body, {"x-kind": "push"})
    for template, text in (
        ("just words", "just words"),
        ("{body.a.b.0.c}", "x"),
        ("{headers.X-Kind}: {body.a.b.1}!", "push: 2!"),
        ("{body.yes} {body.a.b}", 'true [{"c":"x"},2]'),
        ("{body.none|body.gone|body.a.b.1}", "2"),
        ("{body.a.b.9}{body.a.b.x}{body.none}", ""),
        ("{{body.yes}}", "{body.yes}"),
    ):
        assert seen.fill_template(template) == text


@pytest.mark.parametrize(
    ("text", "passages"),
    [
        ("New: {body.said|quoted}", [("own", "New:"), ("quoted", "Pay me")]),
        ("{body.said | quoted} ({body.n}) {body.gone|body.said|quoted}", [*QUOTED, ("own", "(7)"), *QUOTED]),
        ("{body.said|quoted}", QUOTED),
        ("{body.gone|quoted} {body.n}", []),
    ],
)
def test_values_that_are_marked_are_words_of_others(text: str, passages: list[tuple[str, str]]) -> None:
    body = b'{"type": "invoice.paid", "n": 7, "said": " Pay me\\n"}'
    made = message(account(text=text), body, signed(body))
    assert [(one.kind, one.text) for one in made.payload.passages] == passages
    assert made.payload.normalized_text == (joined(made.payload.passages) if passages else "7")


@pytest.mark.parametrize("field", ["sender", "thread", "event_id"])
def test_only_values_of_the_text_are_marked(field: str) -> None:
    with pytest.raises(ValidationError, match=r"only values in map\.text"):
        MessageMap.model_validate({field: "{body.a|quoted}"})


@pytest.mark.parametrize(
    "wrong",
    [
        "{",
        "}",
        "{x}",
        "{quoted}",
        "{|quoted}",
        "{body.a|quoted|body.b}",
        "{body.}",
        "{body.a",
        "{body.a|y}",
        "{}",
        "a } b",
        "{body{x}}",
    ],
)
def test_a_template_that_means_nothing_is_refused_when_it_is_read(wrong: str) -> None:
    with pytest.raises(ValidationError):
        MessageMap(text=wrong)


@given(st.text())
def test_every_template_that_is_taken_can_be_filled(template: str) -> None:
    try:
        mapped = MessageMap(text=template)
    except ValidationError:
        return
    assert isinstance(TemplateContext({"a": 1}, {}).fill_template(mapped.text), str)


def test_a_webhook_becomes_the_message_that_the_mapping_says() -> None:
    one = account(text="Paid: {body.n}", sender="{body.type}", sender_name="Till", thread="orders-{body.n}")
    made = message(one, BODY, signed())
    assert (made.source.channel, made.source.provider, made.source.endpoint_identity) == ("webhook", "http", "orders")
    assert (made.event.external_event_id, made.event.external_thread_id) == ("msg_1", "orders-7")
    assert (made.sender.identity, made.sender.display_name) == ("invoice.paid", "Till")
    assert (made.payload.normalized_text, made.event.sent_at, made.event.kind) == ("Paid: 7", NOW, "message")
    assert made.payload.raw == {"type": "invoice.paid", "n": 7}


def test_without_a_mapping_the_text_is_the_json_and_the_sender_the_account() -> None:
    made = message(account(), BODY, signed())
    assert (made.payload.normalized_text, made.sender.identity) == (BODY.decode(), "orders")
    assert message(account(), b"[1]", signed()).payload.raw == {"body": [1]}


def test_the_key_is_the_senders_own_id_else_the_hash_of_the_body() -> None:
    cases: tuple[tuple[Scheme, Mapping[str, str], str], ...] = (
        ("standard", signed(), "msg_1"),
        ("github", {"x-github-delivery": "72d3162e"}, "72d3162e"),
        ("stripe", stripe(), "evt_1"),
        ("bearer", {"idempotency-key": "k-1"}, "k-1"),
        ("bearer", {}, "evt_1"),
    )
    for scheme, headers, key in cases:
        assert message(account(scheme), b'{"id":"evt_1"}', headers).event.external_event_id == key
    assert message(account("bearer"), BODY, {}).event.external_event_id.startswith("sha256:")
    assert message(account("stripe", event_id="{body.n}"), BODY, {}).event.external_event_id == "7"


def test_events_that_are_not_among_those_to_answer_are_history() -> None:
    one = account(only={"{body.type}": ("invoice.paid",)})
    assert message(one, BODY, signed()).control.ingestion_tier == "full"
    assert message(one, b'{"type":"ping"}', signed()).control.ingestion_tier == "history"


@pytest.mark.parametrize("body", [b"", b"\xff", b"payload=%7B%7D", b"[" * 10_000, b'{"a":NaN}'])
def test_what_is_not_json_is_unreadable_under_the_same_key(body: bytes) -> None:
    event = read(account(), Posted(body, signed(b"")), NOW)
    assert isinstance(event, Unreadable)
    assert (event.event_id, event.raw) == ("msg_1", body)
    assert "not JSON" in event.reason


def test_json_of_too_many_parts_is_unreadable_and_costs_nothing() -> None:
    event = read(account(), Posted(b"[" + b"{}," * 8_000_000 + b"0]", signed(b"")), NOW)
    assert isinstance(event, Unreadable)
    assert event.reason == "the JSON has more than 20000 objects and lists"


def test_nul_is_left_out_wherever_it_is() -> None:
    made = message(account(), b'{"a\\u0000": ["b\\u0000", {"c": "\\\\u0000"}, 1, 2.5, true, null]}', signed())
    assert made.payload.raw == {"a": ["b", {"c": "\\u0000"}, 1, 2.5, True, None]}


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists), st.text())
def test_any_json_becomes_an_envelope(body: object, header: str) -> None:
    posted = Posted(msgspec.json.encode({"a": str(body)}), {"webhook-id": header, "webhook-timestamp": header})
    assert isinstance(read(account(sender="{body.a}"), posted, NOW), Inbound)


def test_a_settings_file_without_a_scheme_is_refused() -> None:
    assert MANIFEST.settings is WebhookAccountSettings
    with pytest.raises(ValidationError):
        WebhookAccountSettings.model_validate({"verify": "none"})
