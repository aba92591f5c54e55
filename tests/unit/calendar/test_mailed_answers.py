"""What answers of attendees' programs change in our event, and what they do not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import icalendar
import pytest

from switchboard.core.mail.parse import envelope_from_mail
from switchboard.core.text.content_lines import content_lines
from switchboard.domain.errors import InvalidInput
from switchboard.modules.calendar.editing.fields import PartStat
from switchboard.modules.calendar.editing.scopes import edit_this
from switchboard.modules.calendar.editing.series import read_source
from switchboard.modules.calendar.mailing.answering import (
    AppliedAnswer,
    apply_answer,
    apply_cancellation,
    read_message,
)
from switchboard.modules.calendar.mailing.composing import OwnAnswer
from switchboard.modules.calendar.mailing.recipients import reply_to
from tests.calendar_replies import FORMS, Answering, reply_mail, reply_object
from tests.unit.calendar.test_mailed_invitations import (
    ANN,
    BEN,
    CONTEXT,
    EARLIER,
    OWN,
    ZOE,
    created,
    series_in,
    week,
)

NOW: Final = datetime(2026, 11, 2, tzinfo=UTC)
DATE: Final = "RECURRENCE-ID;TZID=Europe/Berlin:20261210T140000"
DATE_IN_UTC: Final = "RECURRENCE-ID:20261210T130000Z"


def answered(data: bytes, message: bytes, sender: str = BEN) -> AppliedAnswer:
    [said] = read_message(message, sender).answers
    return apply_answer(data, said, CONTEXT.zone_of)


def states(data: bytes) -> dict[str, dict[str, str]]:
    """By date and by attendee, as another implementation reads it."""
    events: Any = icalendar.Calendar.from_ical(data).walk("VEVENT")
    found = {}
    for event in events:
        rid = event["RECURRENCE-ID"].to_ical().decode() if "RECURRENCE-ID" in event else ""
        lines = event["ATTENDEE"] if isinstance(event["ATTENDEE"], list) else [event["ATTENDEE"]]
        found[rid] = {str(one).removeprefix("mailto:"): one.params["PARTSTAT"] for one in lines}
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("answer", ["ACCEPTED", "DECLINED", "TENTATIVE"])
def test_an_answer_of_any_program_is_that_of_its_sender_alone(form: str, answer: str) -> None:
    event = created(BEN, ZOE)
    applied = answered(event, reply_object(form, Answering(answer=answer)))
    assert states(applied.data) == {"": {BEN: answer, ZOE: "NEEDS-ACTION"}}
    changed = [one for one in content_lines(applied.data) if one not in content_lines(event)]
    assert [one.name for one in changed] == ["ATTENDEE"]
    assert answered(applied.data, reply_object(form, Answering(answer=answer))).data == applied.data


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("date", [DATE, DATE_IN_UTC])
def test_an_answer_for_one_date_leaves_the_others(form: str, date: str) -> None:
    event = created(BEN, weekly=True)
    applied = answered(event, reply_object(form, Answering(answer="DECLINED", recurrence=date)))
    assert states(applied.data) == {"": {BEN: "NEEDS-ACTION"}, "20261210T140000": {BEN: "DECLINED"}}
    everything = answered(applied.data, reply_object(form, Answering()))
    assert states(everything.data) == {"": {BEN: "ACCEPTED"}, "20261210T140000": {BEN: "DECLINED"}}


def test_an_answer_to_a_series_is_one_to_its_open_dates() -> None:
    event = edit_this(series_in(created(BEN, weekly=True)), week(1), EARLIER, CONTEXT)
    applied = answered(event, reply_object("Google", Answering()))
    assert states(applied.data) == {"": {BEN: "ACCEPTED"}, "20261210T140000": {BEN: "ACCEPTED"}}


def test_who_speaks_for_somebody_else_says_nothing() -> None:
    message = reply_object("Google", Answering())
    assert read_message(message, ZOE).answers == ()
    assert read_message(message.replace(b"PARTSTAT=ACCEPTED", b"PARTSTAT=DELEGATED"), BEN).answers == ()
    assert read_message(message.replace(b"METHOD:REPLY", b"METHOD:COUNTER"), BEN).answers == ()


@pytest.mark.parametrize("date", ["", DATE, "RECURRENCE-ID;TZID=Europe/Berlin:20261211T140000"])
def test_who_is_not_invited_does_not_answer(date: str) -> None:
    event = created(ZOE, weekly=True)
    with pytest.raises(InvalidInput):
        answered(event, reply_object("Google", Answering(recurrence=date)))


@pytest.mark.parametrize("method", ["REPLY", "CANCEL"])
@pytest.mark.parametrize(
    "said",
    [
        {"uid": "m\0m"},
        {"uid": "m" * 2000},
        {"recurrence": "RECURRENCE-ID:99991231T235959Z"},
        {"recurrence": "RECURRENCE-ID;TZID=Pacific/Auckland:00010101T000000"},
        {"recurrence": "RECURRENCE-ID:99999999T999999Z"},
    ],
)
def test_what_no_event_has_is_refused_in_words(method: str, said: dict[str, Any]) -> None:
    message = reply_object("Google", Answering(method=method, organizer=BEN, **said))
    with pytest.raises(InvalidInput):
        applied_to(created(BEN, weekly=True), message)


def applied_to(event: bytes, message: bytes) -> AppliedAnswer:
    """A message of Ben, to whose event we are invited if he cancels it."""
    read = read_message(message, BEN)
    if read.answers:
        return apply_answer(event, read.answers[0], CONTEXT.zone_of)
    return apply_cancellation(event.replace(ANN.encode(), BEN.encode()), read.cancellations[0], OWN, CONTEXT.zone_of)


@pytest.mark.parametrize("version", ["9" * 5000, str(2**31), "9" * 12, "-1", "x"])
def test_a_version_that_is_no_number_is_the_first(version: str) -> None:
    message = reply_object("Google", Answering()).replace(b"SEQUENCE:0", b"SEQUENCE:" + version.encode())
    [said] = read_message(message, BEN).answers
    assert said.sequence == 0


def test_a_message_about_more_dates_than_anybody_answers_is_not_read() -> None:
    dates = b"".join(
        f"BEGIN:VEVENT\r\nUID:m1\r\nRECURRENCE-ID:20260101T{at // 60:02}{at % 60:02}00Z\r\nEND:VEVENT\r\n".encode()
        for at in range(60)
    )
    message = reply_object("Google", Answering()).replace(b"END:VCALENDAR", dates + b"END:VCALENDAR")
    with pytest.raises(InvalidInput, match="more than 50 dates"):
        read_message(message, BEN)


def test_the_organizer_alone_cancels() -> None:
    organized = b"ORGANIZER:mailto:"
    mine = created(ANN, BEN, weekly=True).replace(organized + ANN.encode(), organized + BEN.encode())
    whole = reply_object("Google", Answering(method="CANCEL", organizer=BEN, sequence=1))
    [said] = read_message(whole, BEN).cancellations
    assert b"STATUS:CANCELLED" in apply_cancellation(mine, said, OWN, CONTEXT.zone_of).data
    assert read_message(whole, ZOE).cancellations == ()
    dated = reply_object("Google", Answering(method="CANCEL", organizer=BEN, recurrence=DATE))
    [one] = read_message(dated, BEN).cancellations
    applied = apply_cancellation(mine, one, OWN, CONTEXT.zone_of)
    assert applied.recurrence == "20261210T140000"
    assert [part.text("STATUS") for part in read_source(applied.data).parts] == ["", "CANCELLED"]
    for other, own in ((created(BEN), frozenset((ANN,))), (mine, frozenset((BEN,)))):
        with pytest.raises(InvalidInput, match="does not organise"):
            apply_cancellation(other, said, own, CONTEXT.zone_of)
    with pytest.raises(InvalidInput, match="later version"):
        apply_cancellation(mine.replace(b"SEQUENCE:0", b"SEQUENCE:2"), said, OWN, CONTEXT.zone_of)


@pytest.mark.parametrize("answer", ["ACCEPTED", "DECLINED", "TENTATIVE"])
def test_our_own_answer_is_read_by_us_and_others(answer: PartStat) -> None:
    event = created(BEN, weekly=True)
    source = read_source(event)
    assert source.master is not None
    mail = reply_to(source, source.master, {BEN}, OwnAnswer(answer, NOW, "Späte Ankunft, 10 min"))
    assert (mail.method, mail.recipient, mail.sender) == ("REPLY", ANN, BEN)
    assert states(answered(event, mail.ics).data) == {"": {BEN: answer}}
    reply: Any = icalendar.Calendar.from_ical(mail.ics).walk("VEVENT")[0]
    assert str(reply["COMMENT"]) == "Späte Ankunft, 10 min"
    assert "DESCRIPTION" not in reply


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("calendar", "REPLY"),
        ("calendar", "COUNTER"),
        ("calendar", "CANCEL"),
        ("message", "REQUEST"),
        ("message", "ADD"),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_mails_of_programs_are_no_messages_to_anybody(form: str, method: str, kind: str) -> None:
    raw = reply_mail(form, Answering(method=method), to=ANN)
    assert envelope_from_mail(raw, endpoint=ANN, now=NOW + timedelta(days=1)).envelope.event.kind == kind
    unnamed = raw.replace(b'; method="' + method.encode() + b'"', b"")
    assert unnamed != raw
    assert envelope_from_mail(unnamed, endpoint=ANN, now=NOW + timedelta(days=1)).envelope.event.kind == kind
