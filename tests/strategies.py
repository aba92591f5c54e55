"""What Hypothesis needs to invent valid input; used by unit and property tests alike."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from typing import Any, Final

from hypothesis import strategies as st

from switchboard.core.envelope.read import read_envelope
from switchboard.domain.envelope import Envelope

NOW: Final = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
"""The time that tests pass in."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
CHANNELS: Final = ("telegram", "telegram_bot", "email", "slack", "discord", "whatsapp", "matrix", "api", "cli")

_CHARACTERS = st.characters(codec="utf-8", exclude_characters="\x00")
_PLACEHOLDERS: Final = frozenset({"unknown", "none", "null", "undefined", "placeholder"})


def bare(identity: str) -> str:
    """An id as senders may have it: without blanks around it, and without control characters."""
    return "".join(one for one in identity if one.isprintable()).strip() or "x"


@cache
def words(max_size: int = 40) -> st.SearchStrategy[str]:
    """Non-empty text without blanks at its ends, of any script."""
    return st.text(_CHARACTERS, min_size=1, max_size=max_size).map(str.strip).filter(bool)


@cache
def identities() -> st.SearchStrategy[str]:
    """Ids as platforms make them, and others."""
    return st.one_of(st.from_regex(r"-?[1-9][0-9]{0,12}", fullmatch=True), words()).filter(
        lambda text: text.lower() not in _PLACEHOLDERS
    )


@cache
def json_values() -> st.SearchStrategy[Any]:
    """Any JSON, a few levels deep; integers of any size that fits 64 bits, no NaN."""
    floats = st.floats(allow_nan=False, allow_infinity=False)
    leaf = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | floats | st.text(_CHARACTERS, max_size=20)
    return st.recursive(
        leaf,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(_CHARACTERS, max_size=10), inner, max_size=3)
        ),
        max_leaves=4,
    )


@cache
def timestamps() -> st.SearchStrategy[str]:
    """RFC 3339 with any zone, from 1970 to NOW."""
    zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
    ticks = st.integers(0, 10**6 * int((NOW - _EPOCH).total_seconds()))
    return st.tuples(ticks, zones).map(
        lambda pair: (_EPOCH + timedelta(microseconds=pair[0])).astimezone(pair[1]).isoformat()
    )


def _object(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional)


@cache
def attachments() -> st.SearchStrategy[dict[str, Any]]:
    return _object(
        {
            "media_type": st.sampled_from(["image/jpeg", "application/pdf", "audio/ogg"]),
            "size_bytes": st.integers(0, 2**53),
        },
        {
            "filename": words() | st.none(),
            "storage_ref": words(),
            "source_attachment_id": words(),
            "unavailable": words(),
        },
    )


@cache
def raw_updates() -> st.SearchStrategy[Any]:
    """Raw objects as platforms send them, well-formed or nearly so."""
    chat = st.fixed_dictionaries({"id": st.integers(-(10**13), 10**13) | json_values()})
    message = st.fixed_dictionaries(
        {"message_id": st.integers(1, 10**6)}, optional={"chat": chat, "edit_date": json_values()}
    )
    telegram = st.fixed_dictionaries(
        {}, optional={"update_id": st.integers(1, 10**9) | json_values(), "message": message, "edited_message": message}
    )
    odd = st.dictionaries(
        st.sampled_from(
            ["update_id", "headers", "team_id", "event", "id", "edited_timestamp", "event_id", "message", "d"]
        ),
        json_values(),
        max_size=4,
    )
    return st.one_of(st.none(), telegram, odd, words())


@cache
def sources() -> st.SearchStrategy[dict[str, Any]]:
    """The `source` of an envelope."""
    return _object({"channel": st.sampled_from(CHANNELS), "provider": words(), "endpoint_identity": identities()}, {})


@cache
def events() -> st.SearchStrategy[dict[str, Any]]:
    """The `event` of an envelope."""
    kinds = st.sampled_from(["message", "edit", "delete", "reaction", "button", "membership", "bounce"])
    optional = {
        "external_thread_id": identities() | st.none(),
        "sent_at": timestamps() | st.none(),
        "kind": kinds,
        "refers_to": identities() | st.none(),
        "reply_address": st.dictionaries(words(10), json_values(), max_size=2) | st.none(),
        "also": st.lists(identities(), max_size=3),
    }
    return _object({"external_event_id": identities(), "observed_at": timestamps()}, optional)


@cache
def senders() -> st.SearchStrategy[dict[str, Any]]:
    """The `sender` of an envelope."""
    kinds = st.sampled_from(["private", "group", "supergroup", "channel"])
    people = st.dictionaries(identities(), words(), max_size=3)
    return _object(
        {"identity": identities().map(bare)},
        {"display_name": words() | st.none(), "chat_type": kinds | st.none(), "participants": people | st.none()},
    )


@cache
def payloads() -> st.SearchStrategy[dict[str, Any]]:
    """The `payload` of an envelope; without text there is an attachment."""
    files = st.lists(attachments(), min_size=1, max_size=2)
    return st.one_of(
        _object({"normalized_text": words(200)}, {"raw": raw_updates()}),
        _object({"normalized_text": words() | st.just(""), "attachments": files}, {"raw": raw_updates()}),
    )


@cache
def controls() -> st.SearchStrategy[dict[str, Any]]:
    """The `control` of an envelope, often empty."""
    return _object(
        {},
        {
            "idempotency_key": words() | st.none(),
            "trace_context": st.dictionaries(words(10), json_values(), max_size=2) | st.none(),
            "policy_tier": st.sampled_from(["default", "interactive", "passive", "high_priority"]),
            "ingestion_tier": st.sampled_from(["full", "metadata"]),
            "addressed": st.booleans(),
            "pinned_target": words() | st.none(),
            "model": words() | st.none(),
        },
    )


def assembled(
    source: dict[str, Any],
    event: dict[str, Any],
    sender: dict[str, Any],
    payload: dict[str, Any],
    control: dict[str, Any],
) -> dict[str, Any]:
    """One `ingest.v1` of its parts; in the metadata tier without `raw`."""
    if control.get("ingestion_tier") == "metadata":
        payload = payload | {"raw": None}
    whole = {"source": source, "event": event, "sender": sender, "payload": payload}
    return {"schema_version": "ingest.v1", **whole, **({"control": control} if control else {})}


@cache
def envelope_dicts() -> st.SearchStrategy[dict[str, Any]]:
    """A valid `ingest.v1` as decoded JSON, valid by construction at NOW."""
    return st.builds(assembled, sources(), events(), senders(), payloads(), controls())


@cache
def envelopes() -> st.SearchStrategy[Envelope]:
    """Valid envelopes, as the interfaces pass them on."""
    return envelope_dicts().map(lambda fields: read_envelope(json.dumps(fields).encode()))


_REQUIRED = [
    *([name] for name in ("schema_version", "source", "event", "sender", "payload")),
    *(["source", name] for name in ("channel", "provider", "endpoint_identity")),
    *(["event", name] for name in ("external_event_id", "observed_at")),
    *(["sender", "identity"], ["payload", "normalized_text"]),
]
_STRINGS = [path for path in _REQUIRED if len(path) == 2 and path[1] != "observed_at"]
_NO_STRINGS: st.SearchStrategy[Any] = st.one_of(st.none(), st.integers(), st.booleans(), st.just([]), st.just({}))


def _set(whole: dict[str, Any], path: list[str], value: object) -> None:
    for name in path[:-1]:
        whole = whole[name]
    whole[path[-1]] = value


@st.composite
def broken_envelope_dicts(draw: st.DrawFn) -> dict[str, Any]:
    """A valid envelope with one thing wrong that no reading of it can forgive."""
    whole = copy.deepcopy(draw(envelope_dicts()))
    match draw(st.sampled_from(["missing", "unknown", "type", "empty", "time", "version", "long"])):
        case "missing":
            path = draw(st.sampled_from(_REQUIRED))
            inner = whole if len(path) == 1 else whole[path[0]]
            del inner[path[-1]]
        case "unknown":
            where = draw(st.sampled_from([[], ["source"], ["event"], ["sender"], ["payload"]]))
            name = draw(st.text(min_size=1, max_size=20)) + "!"
            _set(whole, [*where, name], draw(json_values()))
        case "type":
            _set(whole, draw(st.sampled_from(_STRINGS)), draw(_NO_STRINGS))
        case "empty":
            path = draw(st.sampled_from([path for path in _STRINGS if path[0] != "payload"]))
            _set(whole, path, draw(st.sampled_from(["", " ", "\t\n", "\x00", " \x00 "])))
        case "time":
            odd = ["", "now", "2026-01-01", "2026-01-01T10:00:00", "2026-13-01T00:00:00Z", "2999-01-01T00:00:00Z", 0]
            _set(whole, ["event", "observed_at"], draw(st.sampled_from(odd)))
        case "version":
            whole["schema_version"] = draw(st.text(max_size=9).filter(lambda text: text != "ingest.v1") | _NO_STRINGS)
        case _:
            _set(whole, draw(st.sampled_from([path for path in _STRINGS if path[0] != "payload"])), "x" * 513)
    return whole
