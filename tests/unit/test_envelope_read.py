"""`core/envelope/read.py`: what is taken, what is refused, and what the sender is told."""

from __future__ import annotations

import json
import time
import tracemalloc
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from switchboard.core.envelope.read import MAX_BATCH, json_schema, parse_envelope, split_batch
from switchboard.core.envelope.stored import stored_envelope, stored_json
from switchboard.domain.envelope import MAX_ADDRESS, MAX_TEXT
from switchboard.domain.errors import InvalidInput
from tests.lab import envelope_json
from tests.strategies import NOW, broken_envelope_dicts, envelope_dicts


def fields(**changes: Any) -> dict[str, Any]:
    """A small valid envelope; `payload__raw=…` replaces or adds one field."""
    whole: dict[str, Any] = {
        "schema_version": "ingest.v1",
        "source": {"channel": "telegram", "provider": "telegram", "endpoint_identity": "bot:house"},
        "event": {"external_event_id": "1", "observed_at": "2026-05-31T10:00:00Z"},
        "sender": {"identity": "5488423581"},
        "payload": {"normalized_text": "hello"},
    }
    for path, value in changes.items():
        *parents, name = path.split("__")
        inner = whole
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = value
    return whole


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def refusal(raw: bytes | dict[str, Any]) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        parse_envelope(raw, now=NOW)
    return caught.value


ATTACHMENT = {"media_type": "image/png", "size_bytes": 1}
SIZE = "payload.attachments.0.size_bytes"
LATE = (NOW + timedelta(days=1, seconds=1)).isoformat()


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"schema_version": "ingest.v2"}, "unsupported_schema_version", "schema_version"),
        ({"schema_version": 1, "typo": 1}, "unsupported_schema_version", "schema_version"),
        ({"typo": 1}, "unknown_field", "typo"),
        ({"event__type": "x"}, "unknown_field", "event.type"),
        ({"payload__attachments": [ATTACHMENT | {"x": 1}]}, "unknown_field", "payload.attachments.0.x"),
        ({"payload__attachments": [{"size_bytes": 1}]}, "missing_field", "payload.attachments.0.media_type"),
        ({"source": {"channel": "a", "provider": "b"}}, "missing_field", "source.endpoint_identity"),
        ({"source": 3}, "wrong_type", "source"),
        ({"source__channel": " \x00 "}, "empty_value", "source.channel"),
        ({"source__channel": 7}, "wrong_type", "source.channel"),
        ({"source__channel": "x" * 65}, "too_long", "source.channel"),
        ({"event__external_event_id": ""}, "empty_value", "event.external_event_id"),
        ({"event__external_event_id": "Unknown"}, "placeholder_event_id", "event.external_event_id"),
        ({"event__observed_at": "2026-05-31T10:00:00"}, "timezone_required", "event.observed_at"),
        ({"event__observed_at": "2026-05-31"}, "timezone_required", "event.observed_at"),
        ({"event__observed_at": 1780000000}, "rfc3339_string_required", "event.observed_at"),
        ({"event__observed_at": "yesterday"}, "rfc3339_string_required", "event.observed_at"),
        ({"event__observed_at": "2026-02-30T10:00:00Z"}, "rfc3339_string_required", "event.observed_at"),
        ({"event__observed_at": LATE}, "future_timestamp", "event.observed_at"),
        ({"event__observed_at": "9999-12-31T23:59:59-23:59"}, "future_timestamp", "event.observed_at"),
        ({"event__observed_at": "0001-01-01T00:00:00+23:59"}, "past_timestamp", "event.observed_at"),
        ({"event__sent_at": "2026-05-31T10:00:00"}, "timezone_required", "event.sent_at"),
        ({"event__kind": "poke"}, "invalid_value", "event.kind"),
        ({"event__refers_to": ""}, "empty_value", "event.refers_to"),
        ({"event__also": ["1", " "]}, "empty_value", "event.also.1"),
        ({"event__also": ["1"] * 21}, "too_long", "event.also"),
        ({"event__reply_address": "5488"}, "wrong_type", "event.reply_address"),
        ({"event__reply_address": {"a": "x" * MAX_ADDRESS}}, "address_too_long", "event.reply_address"),
        ({"event__reply_address": {"a": nested(33)}}, "too_deep", "event.reply_address"),
        ({"sender__chat_type": "crowd"}, "invalid_value", "sender.chat_type"),
        ({"sender__participants": {"a": ""}}, "empty_value", "sender.participants.a"),
        ({"sender__participants": {str(n): "x" for n in range(1001)}}, "too_long", "sender.participants"),
        ({"payload__normalized_text": "x" * (MAX_TEXT + 1)}, "too_long", "payload.normalized_text"),
        ({"payload__normalized_text": " \x00"}, "empty_message", "payload.normalized_text"),
        ({"payload__raw": {"a": nested(33)}}, "too_deep", "payload.raw"),
        ({"payload__raw": [1, 2]}, "wrong_type", "payload.raw"),
        ({"payload__attachments": [ATTACHMENT] * 101}, "too_long", "payload.attachments"),
        ({"payload__attachments": [ATTACHMENT | {"size_bytes": -1}]}, "invalid_value", SIZE),
        ({"payload__attachments": [ATTACHMENT | {"size_bytes": "1"}]}, "wrong_type", SIZE),
        ({"control__addressed": "yes"}, "wrong_type", "control.addressed"),
        ({"control__policy_tier": "urgent"}, "invalid_value", "control.policy_tier"),
        ({"control__trace_context": []}, "wrong_type", "control.trace_context"),
        ({"control__trace_context": {"a": nested(40)}}, "too_deep", "control.trace_context"),
        ({"control__ingestion_tier": "metadata", "payload__raw": {}}, "metadata_raw_must_be_null", "payload.raw"),
    ],
)
def test_refused_with(changes: dict[str, Any], code: str, field: str) -> None:
    for raw in (fields(**changes), json.dumps(fields(**changes)).encode()):
        error = refusal(raw)
        assert (error.code, error.field, error.status) == (code, field, 422)
        assert field in error.message


VALID = json.dumps(fields(payload__raw="RAW")).encode()


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (VALID + b"x", "invalid_json"),
        (b"[]", "wrong_type"),
        (b"null", "wrong_type"),
        (VALID.replace(b"RAW", b"\xff"), "invalid_utf8"),
        (VALID.replace(b"RAW", b"\\ud83d"), "lone_surrogate"),
        (VALID.replace(b"RAW", b"\\ude00 and more"), "lone_surrogate"),
        (VALID.replace(b'"RAW"', b"[" * 500 + b"]" * 500), "too_deep"),
        (VALID.replace(b'"RAW"', b"[" * 600 + b'"\\u0000"' + b"]" * 600), "too_deep"),
        (VALID.replace(b'"RAW"', b"[" * 100_000), "too_complex"),
        (VALID.replace(b'"RAW"', b"[" + b"[]," * 20_000 + b"0]"), "too_complex"),
        (VALID.replace(b'"RAW"', b"9" * 5000), "invalid_json"),
        (VALID.replace(b'"RAW"', b'{"a": -' + b"9" * 4300 + b"}"), "invalid_value"),
        (VALID.replace(b'"RAW"', b'{"a": NaN}'), "not_a_json_number"),
        (VALID.replace(b'"RAW"', b'{"a": [1e999]}'), "not_a_json_number"),
    ],
)
def test_refused_bytes(raw: bytes, code: str) -> None:
    assert refusal(raw).code == code


def test_brackets_within_a_text_are_no_objects_and_lists() -> None:
    text = "{[" * 30_000 + '\\"{'
    data = VALID.replace(b'"RAW"', json.dumps(text).encode())
    assert parse_envelope(data, now=NOW).payload.raw == text


def test_a_text_without_an_end_is_gone_through_once() -> None:
    """It took a minute, and an hour with a megabyte, while the server answered nobody."""
    began = time.process_time()
    assert refusal(b"[" * 20_001 + b'"' + b'\\"' * 40_000).code == "too_complex"
    assert time.process_time() - began < 5


@pytest.mark.parametrize("number", ["9" * 4300, "-" + "9" * 4299, "1e308", "5e-324"])
def test_a_number_that_is_taken_can_be_read_back(number: str) -> None:
    body = json.dumps(fields(control__trace_context={"n": 0})).replace('"n": 0', f'"n": {number}')
    taken = parse_envelope(body.encode(), now=NOW)
    assert stored_envelope(stored_json(taken)) == taken


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), b"x"])
def test_a_mapping_with_what_is_not_json_is_refused(value: object) -> None:
    assert refusal(fields(payload__raw={"a": value})).code == "invalid_json"


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    assert refusal(fields(payload__raw=10**5000)).code == "invalid_json"


def test_a_mapping_that_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    assert refusal(fields(payload__raw=loop)).code in {"invalid_json", "too_deep"}


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"payload__normalised_text": "x"}, "did you mean normalized_text?"),
        ({"evnt": {}}, "did you mean event?"),
        ({"payload__attachments": [ATTACHMENT | {"sise_bytes": 1}]}, "did you mean size_bytes?"),
        ({"sender__zzz": 1}, "known here: identity, display_name, chat_type, participants"),
    ],
)
def test_an_unknown_field_gets_a_hint(changes: dict[str, Any], hint: str) -> None:
    assert hint in refusal(fields(**changes)).message


def test_a_misspelt_field_is_named_before_the_one_that_is_missing_for_it() -> None:
    error = refusal(fields(sender={"identiy": "5"}))
    assert (error.code, error.field) == ("unknown_field", "sender.identiy")
    assert "and 1 more" in error.message


def test_a_long_name_of_a_stranger_does_not_fill_the_log() -> None:
    error = refusal(fields(**{"x" * 100_000: 1}))
    assert len(error.message) < 500
    assert error.field is not None
    assert len(error.field) <= 200


def test_strings_are_stripped_and_freed_of_nul() -> None:
    trace = {"trace\x00parent": ["\x00a", {"b": "\x00"}]}
    one = parse_envelope(
        fields(source__channel=" te\x00le ", payload__normalized_text="\x00 a\x00b\n", control__trace_context=trace),
        now=NOW,
    )
    assert one.source.channel == "tele"
    assert one.payload.normalized_text == "ab"
    assert one.control.trace_context == {"traceparent": ["a", {"b": ""}]}


def test_raw_is_kept_as_it_came() -> None:
    raw = {"text": " a\x00 ", "emoji": "😀", "big": 2**63, "list": [None, True, 1.5]}
    assert parse_envelope(fields(payload__raw=raw), now=NOW).payload.raw == raw


def test_the_tolerance_for_clocks_is_a_day() -> None:
    edge = (NOW + timedelta(days=1)).isoformat()
    assert parse_envelope(fields(event__observed_at=edge), now=NOW).event.observed_at == NOW + timedelta(days=1)


def test_a_placeholder_id_is_taken_with_an_idempotency_key() -> None:
    one = parse_envelope(fields(event__external_event_id="unknown", control__idempotency_key="k"), now=NOW)
    assert one.control.idempotency_key == "k"


def batch(*items: bytes) -> bytes:
    return b'{ "envelopes" : [ ' + b" ,\n ".join(items) + b" ] }"


@pytest.mark.parametrize(
    "items",
    [
        [VALID],
        [VALID, VALID],
        [b'"envelopes"', b"3", b"3", b"33", b"3", b"null", b"{ }"],
        [b'{"a" : "\xff"}', VALID],
        [b'{"a": "\\ud83d"}', b'{"a": "\\ud83d\\ude00"}', b'"\\\\ud800"', b'"\\ud800"'],
        [VALID] * MAX_BATCH,
    ],
)
def test_a_batch_is_split_byte_for_byte(items: list[bytes]) -> None:
    assert split_batch(batch(*items)) == items


@given(
    st.lists(st.one_of(envelope_dicts(), st.integers(), st.text(), st.booleans()), min_size=1, max_size=5),
    st.booleans(),
)
def test_whatever_json_is_in_a_batch_comes_out_again(values: list[Any], ascii_only: bool) -> None:
    items = [json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") for value in values]
    assert split_batch(batch(*items)) == items


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"[]", "wrong_type"),
        (b'{"envelopes": {}}', "wrong_type"),
        (b"{}", "missing_field"),
        (b'{"envelopes": [1], "more": 1}', "unknown_field"),
        (b'{"envelopes": [1], "": 1}', "unknown_field"),
        (b'{"envelopes": [1}', "invalid_json"),
        (b'{"\xff": 1}', "invalid_utf8"),
        (b'{"envelopes": [' + b"[" * 100_000, "too_deep"),
        (batch(), "batch_size"),
        (batch(*[b"1"] * (MAX_BATCH + 1)), "batch_size"),
    ],
)
def test_a_bad_batch_is_refused(body: bytes, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        split_batch(body)
    assert caught.value.code == code


def test_items_that_are_too_many_are_not_kept() -> None:
    body = batch(*[b"1"] * 500_000)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match="this one holds more"):
            split_batch(body)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * len(body)


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=200), st.text(alphabet='{}[]":,\\ud8envlops10 ', max_size=60).map(str.encode)))
@example(b'{"envelopes":[1]]}')
@example(b'{"envelopes":[1],"envelopes":["]"]}')
def test_arbitrary_bytes_are_split_or_refused(body: bytes) -> None:
    for part in (body, b'{"envelopes":[' + body + b"]}"):
        with suppress(InvalidInput):
            assert all(item in part for item in split_batch(part))


SCHEMA = json_schema()
# jsonschema has no type stubs.
Validator: Any = import_module("jsonschema").Draft202012Validator
VALIDATOR = Validator(SCHEMA)


def test_the_schema_is_a_schema_with_a_name() -> None:
    Validator.check_schema(SCHEMA)
    assert (SCHEMA["$id"], SCHEMA["title"]) == ("/schemas/ingest.v1.json", "ingest.v1")
    assert SCHEMA["additionalProperties"] is False


def test_the_schema_names_every_limit_and_every_default() -> None:
    identity = {"maxLength": 512, "minLength": 1, "pattern": "^[^\\x00]*$", "type": "string"}
    people = {"maxProperties": 1000, "patternProperties": {"^[^\\x00]*$": identity}, "type": "object"}
    sender = SCHEMA["$defs"]["Sender"]
    assert sender["description"].startswith("Who wrote it.")
    assert sender["required"] == ["identity"]
    assert sender["properties"] == {
        "identity": {**identity, "title": "Identity"},
        "display_name": {
            "anyOf": [{"maxLength": 512, "pattern": "^[^\\x00]*$", "type": "string"}, {"type": "null"}],
            "default": None,
            "title": "Display Name",
        },
        "chat_type": {
            "anyOf": [{"enum": ["private", "group", "supergroup", "channel"], "type": "string"}, {"type": "null"}],
            "default": None,
            "title": "Chat Type",
        },
        "participants": {
            "anyOf": [people | {"propertyNames": {"maxLength": 512, "minLength": 1}}, {"type": "null"}],
            "default": None,
            "title": "Participants",
        },
    }
    parts = {name: part["properties"] for name, part in SCHEMA["$defs"].items()}
    assert parts["Attachment"]["size_bytes"] == {
        "maximum": 2**53,
        "minimum": 0,
        "title": "Size Bytes",
        "type": "integer",
    }
    assert parts["Event"]["observed_at"] == {"format": "date-time", "title": "Observed At", "type": "string"}
    assert (parts["Payload"]["attachments"]["default"], parts["Payload"]["attachments"]["maxItems"]) == ([], 100)
    assert parts["Payload"]["normalized_text"]["maxLength"] == MAX_TEXT
    assert [part["default"] for part in parts["Control"].values()] == [
        *(None, None, "default", "full", False, None, None)
    ]
    assert SCHEMA["properties"]["schema_version"]["const"] == "ingest.v1"


@settings(max_examples=300)
@given(envelope_dicts())
def test_what_is_accepted_conforms_to_the_schema(one: dict[str, Any]) -> None:
    VALIDATOR.validate(one)
    VALIDATOR.validate(json.loads(msgspec.json.encode(parse_envelope(one, now=NOW))))


# What the schema cannot say, or says of stripped strings only.
BEYOND_THE_SCHEMA = {
    *("timezone_required", "rfc3339_string_required", "future_timestamp", "past_timestamp", "placeholder_event_id"),
    *(
        "address_too_long",
        "metadata_raw_must_be_null",
        "empty_message",
        "empty_value",
        "too_deep",
        "lone_surrogate",
        "invalid_json",
    ),
}


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(broken_envelope_dicts())
def test_what_is_refused_is_refused_by_the_schema_as_far_as_it_can_say_so(one: dict[str, Any]) -> None:
    assert refusal(one).code in BEYOND_THE_SCHEMA or not VALIDATOR.is_valid(one)


@pytest.mark.parametrize(
    "changes",
    [
        {"typo": 1},
        {"source__channel": ""},
        {"source__channel": "x" * 65},
        {"control__addressed": "yes"},
        {"sender__chat_type": "crowd"},
        {"payload__attachments": [{"media_type": "a", "size_bytes": "1"}]},
        {"control__trace_context": []},
        {"schema_version": "ingest.v2"},
    ],
)
def test_the_schema_refuses_what_the_model_refuses(changes: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(fields(**changes))
    assert refusal(fields(**changes)).code


@pytest.mark.parametrize(
    "identity", [" bob", "bob\n", "\u3000bob", "   ", "b\tob", "b\x1fob", "b\x85ob", "b\x00ob", "bob\x00"]
)
def test_a_sender_id_that_could_be_taken_for_another_is_refused(identity: str) -> None:
    sent = envelope_json()
    sent["sender"]["identity"] = identity
    with pytest.raises(InvalidInput) as caught:
        parse_envelope(json.dumps(sent).encode(), now=datetime.now(UTC))
    assert caught.value.field == "sender.identity"
