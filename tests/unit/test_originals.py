"""`core/originals.py`: the bytes that arrived, read again as they were taken."""

from __future__ import annotations

import json

from switchboard.core.envelope.read import parse_envelope
from switchboard.core.envelope.stored import stored_json
from switchboard.core.mail.envelope import envelope_of_head
from switchboard.core.mail.parse import envelope_from_mail
from switchboard.core.originals import Original, whole_envelope
from switchboard.domain.json_values import JsonMapping
from tests.lab import envelope_json
from tests.strategies import NOW
from tests.unit.test_hypertext import REOPENED, calls


def original(raw: bytes, kept: JsonMapping | None = None) -> Original:
    return Original(raw, "application/json" if kept is None else "message/rfc822", kept or {})


def test_what_was_made_clean_when_it_came_is_made_so_again() -> None:
    given = json.dumps(envelope_json(" wash\x00 me\n", sender="\tal\x00ice", raw={"a": " \x00"})).encode()
    whole = whole_envelope(original(given))
    assert whole is not None
    assert (whole.payload.normalized_text, whole.sender.identity, whole.payload.raw) == (
        "wash me",
        "alice",
        {"a": " \x00"},
    )


def test_its_time_is_not_judged_by_the_clock_of_today() -> None:
    given = envelope_json()
    given["event"]["observed_at"] = "2999-01-01T00:00:00Z"
    assert whole_envelope(original(json.dumps(given).encode())) is not None


def test_a_mail_is_read_as_a_mail() -> None:
    raw = b"From: ann@example.org\nMessage-ID: <1@x>\n\nhello"
    taken = envelope_from_mail(raw, endpoint="me@example.org", now=NOW).envelope
    kept = json.loads(stored_json(taken))
    assert whole_envelope(original(raw, kept)) == taken


def test_a_mail_keeps_its_passages() -> None:
    raw = b"From: ann@example.org\nMessage-ID: <1@x>\nSubject: Fwd: x\n\nSee this.\n\n> hello"
    taken = envelope_from_mail(raw, endpoint="me@example.org", now=NOW).envelope
    whole = whole_envelope(original(raw, json.loads(stored_json(taken))))
    assert whole is not None
    assert (whole.payload.passages, len(taken.payload.passages)) == (taken.payload.passages, 3)


def test_the_body_of_a_mail_is_not_read_again() -> None:
    raw = b"From: ann@example.org\nContent-Type: text/html\n\n" + REOPENED.encode()
    kept = json.loads(stored_json(envelope_of_head(raw, endpoint="me@example.org", now=NOW).envelope))
    assert calls(lambda: whole_envelope(original(raw, kept))) < 5000


def test_what_this_release_cannot_read_is_nothing() -> None:
    later = envelope_json() | {"schema_version": "ingest.v2"}
    for unreadable in (json.dumps(later).encode(), b"{", b"", b"\xff"):
        assert whole_envelope(original(unreadable)) is None
    assert whole_envelope(original(b"From: ann@example.org", {"schema_version": "ingest.v2"})) is None


def test_what_a_door_takes_can_be_read_again() -> None:
    given = json.dumps(envelope_json("hello ", thread=" t")).encode()
    assert whole_envelope(original(given)) == parse_envelope(given, now=NOW.replace(year=2027))
