"""`core/envelope/fast.py` against the strict way: what the fast way accepts, pydantic accepts as the same."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.envelope.fast import fast_envelope
from switchboard.core.envelope.read import read_envelope
from switchboard.core.envelope.stored import stored_envelope, stored_json
from switchboard.core.envelope.strict import model_of, strict, strict_envelope
from switchboard.core.routing.facts import facts
from switchboard.domain.envelope import MAX_ADDRESS, MAX_TEXT, Control, Envelope, Event, Payload, Sender, Source
from switchboard.domain.errors import InvalidInput
from tests.strategies import NOW, broken_envelope_dicts, envelope_dicts

TIME: Final = '"2026-05-31T10:00:00Z"'
SENT: Final = '"2026-05-31T09:59:58Z"'
BASE: Final = (
    '{"schema_version": "ingest.v1",'
    ' "source": {"channel": "telegram", "provider": "tg", "endpoint_identity": "bot:house"},'
    f' "event": {{"external_event_id": "e-1", "external_thread_id": "t-1", "observed_at": {TIME}, "sent_at": {SENT},'
    ' "kind": "edit", "refers_to": "m-1", "reply_address": {"v": 3}, "also": ["e-2"]},'
    ' "sender": {"identity": "s-1", "display_name": "Ann", "chat_type": "group", "participants": {"p-1": "Bob"}},'
    ' "payload": {"raw": {"r": 1}, "normalized_text": "hello", "attachments": [{"media_type": "image/png",'
    ' "filename": "f-1", "size_bytes": 77, "storage_ref": "b-1", "source_attachment_id": "a-1",'
    ' "unavailable": "u-1"}]},'
    ' "control": {"idempotency_key": "k-1", "trace_context": {"t": 2}, "policy_tier": "passive",'
    ' "ingestion_tier": "full", "addressed": true, "pinned_target": "System1/x"}}'
)
"""Every field is there, and every value stands in it once."""
STRINGS: Final = (
    *('"telegram"', '"tg"', '"bot:house"', '"e-1"', '"t-1"', '"s-1"', '"Ann"', '"p-1"', '"Bob"', '"hello"'),
    *('"m-1"', '"e-2"', '"image/png"', '"f-1"', '"b-1"', '"a-1"', '"u-1"', '"k-1"', '"System1/x"'),
)
"""What is stripped."""


def changed(old: str, new: str) -> bytes:
    assert BASE.count(old) == 1, old
    return BASE.replace(old, new).encode("utf-8", "surrogatepass")


def way(data: bytes) -> str:
    """`fast` or `strict`, by which it was taken, else the code of the refusal. Fails where the two do not agree."""
    fast = fast_envelope(data)
    try:
        full = strict_envelope(data)
    except InvalidInput as error:
        if fast is None:
            return error.code
        raise
    if fast is None:
        return "strict"
    assert fast == full
    assert msgspec.json.encode(fast) == msgspec.json.encode(full), "1 and 1.0 are equal, and yet not the same"
    assert fast.event.observed_at.utcoffset() == full.event.observed_at.utcoffset()
    return "fast"


def shown_by_pydantic(data: bytes) -> str:
    """What was stored before there was a fast way; fields that say nothing are left out."""
    whole = model_of(Envelope).model_validate_json(data)
    event = json.loads(whole.model_dump_json(include={"event"}))["event"]
    silent = {name for name, value in (("kind", "message"), ("also", [])) if event[name] == value}
    return whole.model_dump_json(exclude={"payload": {"raw", "passages"}, "event": silent}, exclude_none=True)


def nested(depth: int, left: str = "[", right: str = "]") -> str:
    return f"{left * (depth - 1)}{left[:1]}{right * depth}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-05-31T10:00:00Z", "fast"),
        ("2026-05-31t10:00:00z", "fast"),
        ("2026-05-31 10:00:00Z", "fast"),
        ("2026-05-31_10:00:00Z", "rfc3339_string_required"),
        ("2026-05-31T10:00:00", "timezone_required"),
        ("2026-05-31T10:00Z", "rfc3339_string_required"),
        ("20260531T100000Z", "rfc3339_string_required"),
        *((f"2026-05-31T10:00:00.{'123456'[:digits]}Z", "fast") for digits in range(1, 7)),
        *((f"2026-05-31T10:00:00.{'1234567899999999'[:digits]}Z", "strict") for digits in range(7, 16)),
        ("2026-05-31T10:00:00.0000005Z", "strict"),
        ("2026-05-31T10:00:00.9999999Z", "strict"),
        ("2026-05-31T10:00:00.9999999+02:00", "strict"),
        ("9999-12-31T23:59:59.9999999Z", "strict"),
        ("2026-05-31T10:00:00.Z", "rfc3339_string_required"),
        ("2026-05-31T10:00:00,5Z", "rfc3339_string_required"),
        ("2026-05-31T10:00:00.5+14:00", "fast"),
        ("2026-05-31T10:00:00-00:00", "fast"),
        ("2026-05-31T10:00:00+23:59", "fast"),
        ("2026-05-31T10:00:00+24:00", "rfc3339_string_required"),
        ("2026-05-31T10:00:00+0530", "rfc3339_string_required"),
        ("2026-05-31T10:00:00+0000", "rfc3339_string_required"),
        ("2026-05-31T10:00:00.5-0000", "timezone_required"),
        ("2026-05-31T10:00:00+05", "rfc3339_string_required"),
        ("2026-05-31T23:59:60Z", "rfc3339_string_required"),
        ("2026-05-31T24:00:00Z", "rfc3339_string_required"),
        ("2026-02-29T10:00:00Z", "rfc3339_string_required"),
        ("0000-01-01T00:00:00Z", "rfc3339_string_required"),
        ("0001-01-01T00:00:00+23:59", "fast"),
        ("9999-12-31T23:59:59-23:59", "fast"),
        (" 2026-05-31T10:00:00Z\\n", "strict"),
        ("2026-05-31T10:00:0\\u0030Z", "fast"),
        ("2026-05-31T10:00:00.123456\\u0037Z", "strict"),
        ("٢026-05-31T10:00:00Z", "rfc3339_string_required"),
    ],
)
def test_times(text: str, expected: str) -> None:
    assert way(changed(TIME, f'"{text}"')) == expected
    assert way(changed(SENT, f'"{text}"')) == expected


@pytest.mark.parametrize("value", ["1780000000", "1780000000.5", "null", "true", "{}"])
def test_a_time_is_a_string(value: str) -> None:
    assert way(changed(TIME, value)) == "rfc3339_string_required"


BLANKS: Final = [chr(code) for code in range(0x11000) if chr(code).isspace()]
PYDANTIC_KEEPS: Final = "\x1c\x1d\x1e\x1f"


@pytest.mark.parametrize(
    "blank", [*BLANKS, "\u200b", "\ufeff", "\x7f", "\x01"], ids=lambda blank: f"U+{ord(blank):04X}"
)
def test_blanks_around_and_within(blank: str) -> None:
    for place in STRINGS:
        for inner in (f"{blank}x", f"x{blank}", f"{blank}x{blank}", f"x{blank}y", f" x{blank}", blank):
            for quoted in (json.dumps(inner), json.dumps(inner, ensure_ascii=False)):
                found = way(changed(place, quoted))
                assert found in {"fast", "strict", "empty_value"}
                if place == '"hello"' or inner == f"x{blank}y":
                    assert found == "fast", "the text is stripped on the fast way, too"
                elif inner == f"x{blank}":
                    assert (found == "strict") == blank.isspace()


def test_what_only_python_would_strip_is_kept() -> None:
    for blank in PYDANTIC_KEEPS:
        taken = fast_envelope(changed('"hello"', json.dumps(f" {blank}x{blank}\n")))
        assert taken is not None
        assert taken.payload.normalized_text == f"{blank}x{blank}"


@pytest.mark.parametrize(
    ("number", "of_size", "of_raw"),
    [
        ("0", "fast", "fast"),
        ("-0", "fast", "fast"),
        ("-1", "invalid_value", "fast"),
        ("1.0", "wrong_type", "fast"),
        ("1e2", "wrong_type", "fast"),
        ("-0.0", "wrong_type", "fast"),
        ("9007199254740992", "fast", "fast"),
        ("9007199254740993", "invalid_value", "fast"),
        ("18446744073709551616", "invalid_value", "fast"),
        ("-9223372036854775809", "invalid_value", "fast"),
        ("9" * 4299, "invalid_value", "fast"),
        ("9" * 4301, "invalid_json", "invalid_json"),
        ("1e400", "wrong_type", "not_a_json_number"),
        ("-1e999", "wrong_type", "not_a_json_number"),
        ("NaN", "wrong_type", "not_a_json_number"),
        ("-Infinity", "wrong_type", "not_a_json_number"),
        ("1e-400", "wrong_type", "fast"),
        ("1.7976931348623157e308", "wrong_type", "fast"),
        ("123456789012345678901234567890.5", "wrong_type", "fast"),
        ("01", "invalid_json", "invalid_json"),
        ("1.", "invalid_json", "invalid_json"),
        (".5", "invalid_json", "invalid_json"),
        ("+1", "invalid_json", "invalid_json"),
        ("true", "wrong_type", "fast"),
        ('"77"', "wrong_type", "fast"),
        ("null", "wrong_type", "fast"),
    ],
)
def test_numbers(number: str, of_size: str, of_raw: str) -> None:
    assert way(changed("77", number)) == of_size
    assert way(changed('{"r": 1}', f'{{"r": {number}}}')) == of_raw
    assert way(changed('{"t": 2}', f'{{"t": [{number}]}}')) == of_raw


@pytest.mark.parametrize(("value", "expected"), [("false", "fast"), ("0", "wrong_type"), ('"true"', "wrong_type")])
def test_booleans(value: str, expected: str) -> None:
    assert way(changed("true", value)) == expected


@pytest.mark.parametrize(
    ("escaped", "expected"),
    [
        ("\\ud83d\\ude00", "fast"),
        ("\\/", "fast"),
        ("\\ufeff", "fast"),
        ("\\u0001", "fast"),
        ("\\u0000", "strict"),
        ("\\\\u0000", "strict"),
        ("\\ud83d", "lone_surrogate"),
        ("\\ude00\\ud83d", "lone_surrogate"),
        ("\\ud83d\\u0041", "lone_surrogate"),
        ("\ud83d", "invalid_utf8"),
        ("\x01", "invalid_json"),
        ("\x00", "invalid_json"),
        ("\n", "invalid_json"),
        ("\\x", "invalid_json"),
        ("\\u00g0", "invalid_json"),
    ],
)
def test_what_strings_and_keys_hold(escaped: str, expected: str) -> None:
    for place in STRINGS:
        refused = place == '"s-1"' and escaped == "\\u0000"  # without it, it would be the id of another sender
        assert way(changed(place, f'"x{escaped}y"')) == ("invalid_value" if refused else expected)
    for raw in (f'"{escaped}"', f'{{"x{escaped}y": 1}}', f'{{"a": ["{escaped}"]}}'):
        assert way(changed('{"r": 1}', raw)) == expected
        if raw[0] == "{":
            assert way(changed('{"t": 2}', raw)) == expected
    if expected in {"fast", "strict"} and escaped != "\\u0000":
        expected = "unknown_field"
    assert way(changed('"identity"', f'"identity{escaped}"')) == ("strict" if escaped == "\\u0000" else expected)


@pytest.mark.parametrize(("depth", "expected"), [(31, "fast"), (32, "fast"), (33, "too_deep"), (100_000, "too_deep")])
def test_depth(depth: int, expected: str) -> None:
    for whole in (nested(depth, '{"a":', "}"), f'{{"a":{nested(depth - 1)}}}', f'{{"a":[1,{nested(depth - 2)}]}}'):
        assert way(changed('{"r": 1}', whole)) == expected
        assert way(changed('{"t": 2}', whole)) == expected
        assert way(changed('{"v": 3}', whole)) == expected


def address(size: int) -> str:
    """An address whose compact form has so many bytes."""
    return json.dumps({"v": "é" * ((size - 8) // 2) + "x" * (size % 2)})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("null", "fast"),
        ("{}", "fast"),
        ("[]", "wrong_type"),
        ('"5488"', "wrong_type"),
        (address(MAX_ADDRESS), "fast"),
        (address(MAX_ADDRESS + 1), "address_too_long"),
        ('{"a": 1e999}', "not_a_json_number"),
    ],
)
def test_reply_addresses(value: str, expected: str) -> None:
    assert way(changed('{"v": 3}', value)) == expected


def text_of(count: int) -> str:
    return json.dumps("😀" * count, ensure_ascii=False)


@pytest.mark.parametrize(
    ("place", "most"),
    [
        *((place, 512) for place in STRINGS if place not in {'"telegram"', '"tg"', '"hello"'}),
        *(('"telegram"', 64), ('"tg"', 64), ('"hello"', MAX_TEXT)),
    ],
)
def test_lengths_are_counted_in_characters(place: str, most: int) -> None:
    assert [way(changed(place, text_of(count))) for count in (1, most - 1, most, most + 1)] == [
        *("fast", "fast", "fast", "too_long")
    ]
    blank = text_of(most)[:-1] + ' "'
    expected = "too_long" if place == '"s-1"' else "strict"  # the id of a sender is not stripped
    assert way(changed(place, blank)) == expected, "it fits when it is stripped"


def test_empty_strings() -> None:
    for place in STRINGS:
        expected = "fast" if place in {'"hello"', '"Ann"'} else "empty_value"
        assert way(changed(place, '""')) == expected


def people(count: int) -> str:
    return json.dumps({f"p-{n}": "x" for n in range(count)})


@pytest.mark.parametrize(
    ("participants", "expected"),
    [
        ("{}", "fast"),
        ("null", "fast"),
        ("[]", "wrong_type"),
        (people(1000), "fast"),
        (people(1001), "too_long"),
        ("{" + ",".join(['"p": "x"'] * 1001) + "}", "fast"),
        ('{"p": "x", "p": "y"}', "fast"),
        ('{"p": "x", " p": "y", "p ": "z"}', "strict"),
        ('{"p": " x"}', "strict"),
        ('{" ": "x"}', "empty_value"),
    ],
)
def test_participants(participants: str, expected: str) -> None:
    assert way(changed('{"p-1": "Bob"}', participants)) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"s-1"', '"s-1", "identity": "s-2"', "fast"),
        ('"s-1"', '"s-1", "identity": ""', "empty_value"),
        ('"identity": "s-1"', '"identity": "", "identity": "s-2"', "strict"),
        ('"sender": ', '"sender": 3, "sender": ', "strict"),
        ('"sender": ', '"sender": {"what": 1}, "sender": ', "strict"),
        (
            '"event": ',
            f'"event": {{"external_event_id": "9", "observed_at": {TIME[:-2]}.1234567Z"}}, "event": ',
            "fast",
        ),
        (TIME, f'{TIME}, "observed_at": {TIME[:-2]}.1234567Z"', "strict"),
        ('"observed_at"', '"observed\\u005fat"', "fast"),
        ('{"r": 1}', '{"r": 1, "s": 2, "r": 3}', "fast"),
        ('{"r": 1}', '" kept as it is "', "fast"),
        ('{"r": 1}', "[1]", "wrong_type"),
        ('{"r": 1}', "1", "wrong_type"),
        ('{"r": 1}', "{}", "fast"),
        ('{"t": 2}', "{}", "fast"),
        ('{"t": 2}', "[]", "wrong_type"),
        ('{"t": 2}', '{"t": null, "u": [null]}', "fast"),
        ('"full"', '"metadata"', "metadata_raw_must_be_null"),
        ('"full"', '"Full"', "invalid_value"),
        ('"group"', '"crowd"', "invalid_value"),
        ('"group"', '" group"', "invalid_value"),
        ('"edit"', '"edition"', "invalid_value"),
        ('"edit"', "null", "invalid_value"),
        (SENT, "null", "fast"),
        ('["e-2"]', "[]", "fast"),
        ('["e-2"]', "null", "wrong_type"),
        ('["e-2"]', json.dumps(["e"] * 20), "fast"),
        ('["e-2"]', json.dumps(["e"] * 21), "too_long"),
        ('"hello"', '""', "fast"),
        ('"ingest.v1"', '"ingest.v2"', "unsupported_schema_version"),
        ('"ingest.v1"', '" ingest.v1"', "unsupported_schema_version"),
        ('"provider"', '"Provider"', "unknown_field"),
        ('"provider"', '"type": "Source", "provider"', "unknown_field"),
        ('"provider": "tg",', "", "missing_field"),
        ('"passive"', '"passive",', "invalid_json"),
    ],
)
def test_odds_and_ends(old: str, new: str, expected: str) -> None:
    assert way(changed(old, new)) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (BASE.encode(), "fast"),
        (b" \n\t\r" + BASE.encode() + b"\r\n", "fast"),
        (b"\xef\xbb\xbf" + BASE.encode(), "invalid_json"),
        (BASE.encode("utf-16"), "invalid_utf8"),
        (b"\xc2\xa0" + BASE.encode(), "invalid_json"),
        (BASE.encode() + b"\x00", "invalid_json"),
        (BASE.encode() + BASE.encode(), "invalid_json"),
        (BASE.encode() + b" x", "invalid_json"),
        (b"[" + BASE.encode() + b"]", "wrong_type"),
        (b'["ingest.v1"]', "wrong_type"),
        (b"{}", "missing_field"),
        (b"", "invalid_json"),
    ],
)
def test_whole_inputs(data: bytes, expected: str) -> None:
    assert way(data) == expected


SMALL: Final[dict[str, Any]] = {
    "schema_version": "ingest.v1",
    "source": {"channel": "api", "provider": "http", "endpoint_identity": "a"},
    "event": {"external_event_id": "1", "observed_at": "2026-05-31T10:00:00Z"},
    "sender": {"identity": "s"},
    "payload": {"normalized_text": "x"},
}


@pytest.mark.parametrize(
    ("part", "value", "expected"),
    [
        ("payload", {"normalized_text": " \n"}, "empty_message"),
        ("payload", {"normalized_text": "", "attachments": []}, "empty_message"),
        ("payload", {"normalized_text": "", "attachments": None}, "wrong_type"),
        ("payload", {"normalized_text": "", "attachments": [{"media_type": "a", "size_bytes": 1}] * 100}, "fast"),
        ("payload", {"normalized_text": "", "attachments": [{"media_type": "a", "size_bytes": 1}] * 101}, "too_long"),
        ("payload", {"normalized_text": "", "attachments": [{"media_type": "a ", "size_bytes": 1}]}, "strict"),
        ("payload", {}, "missing_field"),
        ("payload", {"normalized_text": ""}, "empty_message"),
        ("event", {"external_event_id": "1", "observed_at": "2026-05-31T10:00:00Z", "kind": "edit"}, "fast"),
        ("control", {}, "fast"),
        ("control", None, "wrong_type"),
        ("control", {"ingestion_tier": "metadata"}, "fast"),
        ("control", {"policy_tier": None}, "invalid_value"),
        ("control", {"idempotency_key": None, "trace_context": None, "pinned_target": None}, "fast"),
    ],
)
def test_parts(part: str, value: object, expected: str) -> None:
    assert way(json.dumps({**SMALL, part: value}).encode()) == expected
    assert way(json.dumps(SMALL).encode()) == "fast"


@settings(max_examples=500, suppress_health_check=list(HealthCheck))
@given(envelope_dicts(), st.booleans())
def test_what_is_valid_goes_the_fast_way(fields: dict[str, Any], ascii_only: bool) -> None:
    data = json.dumps(fields, ensure_ascii=ascii_only).encode()
    # Not every word that Hypothesis finds bare is so after a NUL, and it may write `\\u0000` in so many letters.
    assert way(data) == "fast" or b"\\u0000" in data
    taken = fast_envelope(data)
    if taken is not None:
        assert json.dumps(json.loads(stored_json(taken))) == json.dumps(json.loads(shown_by_pydantic(data)))


def with_nul(value: object, dice: random.Random) -> object:
    """The same JSON with a NUL in some of its names and strings."""
    if isinstance(value, dict):
        return {with_nul(name, dice): with_nul(inner, dice) for name, inner in value.items()}
    if isinstance(value, list):
        return [with_nul(inner, dice) for inner in value]
    if not isinstance(value, str) or dice.random() < 0.7:
        return value
    at = dice.randint(0, len(value))
    return f"{value[:at]}\0{value[at:]}"


def strings(value: object) -> Iterator[str]:
    """All names and strings of this JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from strings(inner)


@settings(max_examples=500, suppress_health_check=list(HealthCheck))
@given(envelope_dicts(), st.randoms(use_true_random=False))
def test_what_is_stored_holds_no_nul(fields: dict[str, Any], dice: random.Random) -> None:
    """The type `json` would take it, and every query that looks into it would fail."""
    try:
        envelope = read_envelope(json.dumps(with_nul(fields, dice)).encode())
    except InvalidInput:  # an empty word, a word for another, a name that is there twice
        return
    assert not [text for text in strings(json.loads(stored_json(envelope))) if "\0" in text]
    assert not [text for text in strings(facts(envelope, CHANNELS[envelope.source.channel])) if "\0" in text]


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(broken_envelope_dicts())
def test_what_is_broken_is_refused_by_both(fields: dict[str, Any]) -> None:
    found = way(json.dumps(fields).encode())
    # Whether a time lies in the future is asked later.
    assert found not in {"fast", "strict"} or fields["event"]["observed_at"] == "2999-01-01T00:00:00Z"


NASTY: Final = [
    *(
        "null",
        "true",
        "0",
        "-0",
        "1.0",
        "1e2",
        "1e999",
        "-1",
        "9" * 30,
        "NaN",
        "[]",
        "{}",
        '""',
        '" "',
        '"x "',
        '"\\u0085x"',
    ),
    *('"\\u001cx"', '"x\\u0000"', '"\\ud83d"', '"\\ud83d\\ude00"', '"default"', '"metadata"', '"full"', '"private"'),
    *('{"a": 1}', '{" a": "b", "a": "c"}', '{"a": {"b": [1.5]}}', nested(31), nested(40), '"ingest.v1"'),
    *(
        f'"2026-05-31T10:00:00{rest}"'
        for rest in ("z", ".1234567Z", ".123456Z", "+0530", "+05:30", "", " Z", ".9999999-00:00")
    ),
]
TOKENS: Final = [match.span() for match in re.finditer(r'"[^"]*"|\d+|true', BASE)]


@settings(max_examples=1500)
@given(
    st.lists(
        st.tuples(st.sampled_from(TOKENS), st.sampled_from(NASTY)), min_size=1, max_size=3, unique_by=lambda p: p[0]
    )
)
def test_with_any_value_anywhere_both_agree(swaps: list[tuple[tuple[int, int], str]]) -> None:
    text = BASE
    for (start, end), value in sorted(swaps, reverse=True):
        text = text[:start] + value + text[end:]
    way(text.encode())


@settings(max_examples=1500)
@given(
    st.from_regex(
        r"\A(\d{4}|202\d)-[01]\d-[0-3]\d[Tt _]?[0-2]\d:[0-6]\d(:[0-6]\d)?([.,]\d{0,10})?([Zz]|[+-]\d\d:?\d?\d?)?\Z"
    )
)
def test_of_times_both_think_alike(text: str) -> None:
    way(changed(TIME, json.dumps(text)))


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(envelope_dicts(), st.integers(0, 2**32))
def test_of_damaged_bytes_both_think_alike(fields: dict[str, Any], seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(20):
        whole = bytearray(json.dumps(fields, ensure_ascii=False).encode())
        for _ in range(dice.randint(1, 3)):
            at, byte = dice.randrange(len(whole)), dice.choice([dice.randrange(256), dice.choice(b'"\\ {}[]:,0u')])
            match dice.randrange(3):
                case 0:
                    whole[at] = byte
                case 1:
                    whole.insert(at, byte)
                case _:
                    del whole[at]
        way(bytes(whole))


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(envelope_dicts())
def test_what_is_stored_is_read_as_it_was(fields: dict[str, Any]) -> None:
    """Also what pydantic wrote, before there was a fast way."""
    data = json.dumps(fields).encode()
    whole = strict_envelope(data)
    bare = msgspec.structs.replace(whole, payload=msgspec.structs.replace(whole.payload, raw=None))
    assert stored_envelope(stored_json(whole)) == bare
    assert stored_envelope(shown_by_pydantic(data)) == bare


def test_every_default_that_was_shown_still_is() -> None:
    assert json.loads(stored_json(strict_envelope(json.dumps(SMALL).encode()))) == {
        **SMALL,
        "payload": {"normalized_text": "x", "attachments": []},
        "control": {"policy_tier": "default", "ingestion_tier": "full", "addressed": False},
    }


def test_stored_rows_may_be_of_any_age() -> None:
    """The least that was ever stored, and a number as jsonb gives it back."""
    row = json.dumps({**SMALL, "control": {"trace_context": {"n": 10**308}}})
    assert stored_envelope(row).control == Control(trace_context={"n": 10**308})
    offset = row.replace("10:00:00Z", "10:00:00.25-23:59")
    assert stored_envelope(offset).event.observed_at == datetime(2026, 6, 1, 9, 59, 0, 250_000, tzinfo=UTC)
    with pytest.raises(msgspec.ValidationError):
        stored_envelope(row.replace("ingest.v1", "ingest.v2"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": Source(channel="x" * 65, provider="p", endpoint_identity="e")},
        {"sender": Sender(identity=" ")},
        {"sender": Sender(identity="a\x00b")},
        {"sender": Sender(identity="a", display_name="\ud800")},
        {"event": Event(external_event_id="1", observed_at=datetime(2026, 1, 1))},  # noqa: DTZ001 - that is the point
        {"payload": Payload(normalized_text="")},
    ],
    ids=repr,
)
def test_what_is_built_by_hand_is_checked_where_that_is_asked_for(wrong: dict[str, Any]) -> None:
    good = Envelope(
        schema_version="ingest.v1",
        source=Source(channel=" api ", provider="p", endpoint_identity="e"),
        event=Event(external_event_id="1", observed_at=NOW),
        sender=Sender(identity="a"),
        payload=Payload(normalized_text="x\n", raw={"a": 1}),
    )
    fast = strict(Envelope, good)
    assert (fast.source.channel, fast.payload.normalized_text, fast.payload.raw) == ("api", "x", {"a": 1})
    with pytest.raises(ValueError, match="validation error"):
        strict(Envelope, msgspec.structs.replace(good, **wrong))
