"""The corpus of mails: each is taken with a text that can be read, or refused with a reason."""

from __future__ import annotations

import pytest

from switchboard.core.mail.files import attached_to, file_of
from switchboard.core.mail.parse import envelope_from_mail
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import InvalidInput
from tests.mail_corpus import FAMILIES, SIZE, corpus, large
from tests.strategies import NOW


def read(raw: bytes) -> Envelope | InvalidInput:
    try:
        return envelope_from_mail(raw, endpoint="bot@home.example", now=NOW).envelope
    except InvalidInput as error:
        return error


@pytest.mark.parametrize("family", FAMILIES)
def test_each_is_taken_or_refused_with_a_reason(family: str) -> None:
    taken = 0
    for case in corpus():
        if case.family != family:
            continue
        found = read(case.raw)
        if isinstance(found, InvalidInput):
            assert (found.code, case.words) == ("unreadable_mail", None)
            assert len(found.message) > 20
            continue
        text = found.payload.normalized_text
        assert text or found.payload.attachments
        assert "\x00" not in text
        assert case.words is None or case.words in text
        assert found.event.reply_address is not None
        files = [file_of(attached_to(case.raw), at) for at in range(min(3, len(found.payload.attachments)))]
        assert None not in files
        taken += 1
    assert taken > 0


def test_the_corpus_is_large_and_the_same_each_time() -> None:
    assert sum(1 for _ in corpus()) == SIZE >= 1_000
    assert [case.raw for case in corpus(100)] == [case.raw for case in corpus(100)]


def test_a_mail_of_25_megabytes_is_read() -> None:
    raw = large(25_000_000)
    payload = envelope_from_mail(raw, endpoint="bot@home.example", now=NOW).envelope.payload
    assert payload.normalized_text == "readable words"
    assert payload.attachments[0].size_bytes == 18_750_000
    assert file_of(attached_to(raw), 0) == bytes(18_750_000)
    assert file_of(attached_to(raw), 1) is None
