"""Mails that the release before passages stored are not answered again, whatever this one reads in them."""

from __future__ import annotations

import msgspec

from switchboard.core.envelope.read import read_envelope
from switchboard.core.mail.parse import envelope_from_mail
from switchboard.domain.envelope import Envelope
from switchboard.journey.accept import Submission
from switchboard.store.messages.inbox import Acceptance
from tests.lab import lab
from tests.stored_mails import DESK, RECEIVED, handed_mails, stored_envelopes


def as_bytes(raw: bytes) -> Submission:
    read = envelope_from_mail(raw, endpoint=DESK, now=RECEIVED)
    return Submission(read.envelope, read.raw, "message/rfc822")


def as_json(envelope: Envelope) -> Submission:
    raw = msgspec.json.encode(envelope)
    return Submission(read_envelope(raw), raw)


async def test_stored_mails_come_again_in_every_form(database_url: str) -> None:
    mails, stored = handed_mails(), stored_envelopes()
    async with lab(database_url) as parts:
        first = await parts.accept.accept_all([as_json(one) for one in stored.values()])
        count = await parts.count("select count(*) from message_inbox")
        assert count == len(stored)
        known = dict(zip(stored, first, strict=True))
        for form in (
            {name: as_bytes(raw) for name, raw in mails.items()},
            {
                name: as_json(envelope_from_mail(raw, endpoint=DESK, now=RECEIVED).envelope)
                for name, raw in mails.items()
            },
            {name: as_json(one) for name, one in stored.items()},
        ):
            for (name, _), again in zip(form.items(), await parts.accept.accept_all(list(form.values())), strict=True):
                one = known[name]
                assert isinstance(one, Acceptance)
                assert isinstance(again, Acceptance)
                assert (name, again.duplicate, again.request_id) == (name, True, one.request_id)
        assert await parts.count("select count(*) from message_inbox") == count
