"""Answers of attendees that come by mail: accepted by a real server, written into a real calendar, or not applied."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace as other_server
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import icalendar
import pytest
from msgspec.structs import replace

from switchboard.app.calendar_mails import WorkerCalendarMails
from switchboard.domain.errors import Unavailable
from switchboard.modules.accounts.servers import open_calendars
from switchboard.modules.calendar.arrivals import MailingAccounts, apply_arrivals
from tests.calendar_house import DAY, CalendarHouse, LetterBox, account_at, open_house, scope_of
from tests.calendar_replies import FORMS, Answering, reply_mail
from tests.dav_servers import CALENDAR, GUEST, PASSWORD, USER, Answered, Asked, DavProxy, dav_proxy, radicale
from tests.servers import Opened, open_server

BEN, ZOE = "ben@work.example", "zoe@work.example"
DESK: Final = "assistant@home.example"
AUTH: Final = "mx.home.example; dmarc=pass header.from=work.example"
RFC822: Final = {"content-type": "message/rfc822"}


class AnsweredHouse:
    """Ann has invited Ben and Zoe; mails come to the account of her assistant."""

    def __init__(self, house: CalendarHouse, server: Opened) -> None:
        self.house = house
        self.server = server
        self.mails = WorkerCalendarMails(server.switchboard.runtime)
        self.uid = ""

    async def invite(self, **more: object) -> None:
        lunch = {"title": "Lunch", "start": f"{DAY:%Y-%m-%d} 12:00", "invite": [BEN, ZOE], **more}
        self.uid = (await self.house.approved("create", **lunch))["id"]

    async def receive(self, raw: bytes) -> str:
        """A mail for the assistant; returns its id."""
        answer = await self.server.http.post(f"/v1/ingest?endpoint={DESK}&provider=imap", content=raw, headers=RFC822)
        assert answer.status_code == 202, answer.text
        request_id: str = answer.json()["request_id"]
        return request_id

    async def answer(self, said: Answering, form: str = "Google", auth: str = AUTH) -> str:
        """A mail that is read at once; returns what `explain` says of it."""
        request_id = await self.receive(reply_mail(form, replace(said, uid=self.uid), to=DESK, auth=auth))
        await self.read()
        return await self.explained(request_id)

    async def read(self) -> None:
        """As the chore does."""
        held = self.house.opened.held
        await apply_arrivals(MailingAccounts(held, open_calendars, self.mails), held.store_of(""))

    async def explained(self, request_id: str) -> str:
        found = (await self.server.http.get(f"/v1/messages/{request_id}/explain")).json()
        assert found["message"]["state"] == "history"
        assert found["deliveries"] == found["replies"] == []
        last: str = found["decisions"][-1]["trail"][0]["detail"]
        return last

    def states(self) -> dict[str, str]:
        """What the event on the server says of everybody."""
        [data] = self.house.server.objects().values()
        events: Any = icalendar.Calendar.from_ical(data).walk("VEVENT")
        return {str(one).removeprefix("mailto:"): one.params["PARTSTAT"] for one in events[0]["ATTENDEE"]}


@pytest.fixture(scope="module")
def started() -> Iterator[DavProxy]:
    with ExitStack() as stack:
        yield stack.enter_context(dav_proxy(stack.enter_context(radicale())))


@pytest.fixture
async def answered(
    database_url: str, tmp_path: Path, started: DavProxy, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AnsweredHouse]:
    monkeypatch.setenv("CALENDAR_PASSWORD", PASSWORD)
    started.behave()
    trusted = {"email": {"trusted_servers": {DESK: ["mx.home.example"]}}}
    async with open_server(database_url, tmp_path, more=trusted) as server:
        accounts = {"home": account_at(started.port, sends="mail")}
        house = await open_house(server.lab.database, started.server, accounts, desk=LetterBox(USER))
        house.server.empty()
        await house.sync()
        made = AnsweredHouse(house, server)
        await made.invite()
        yield made


def at(hour: int, **more: Any) -> Answering:
    """What Ben says at an hour of today."""
    made = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(hours=hour)
    return Answering(made=made, **more)


async def test_answers_are_applied_to_the_event_and_never_answered(answered: AnsweredHouse) -> None:
    for hour, form in enumerate(FORMS):
        for minute, state in enumerate(("TENTATIVE", "DECLINED", "ACCEPTED")):
            said = at(hour, answer=state)
            said = replace(said, made=said.made + timedelta(minutes=minute))
            assert (await answered.answer(said, form)).startswith("calendar: applied: its sender has ")
            assert answered.states() == {BEN: state, ZOE: "NEEDS-ACTION"}
    [event] = (await answered.house.done("query", scope_of(), day=f"{DAY:%Y-%m-%d}"))["events"]
    assert f"{BEN} accepted" in event["attendees"], "the mirror has it, too"


@pytest.mark.parametrize(
    ("said", "auth", "why"),
    [
        (at(9), "", "not certain who has sent it"),
        (at(9), "mx.elsewhere.example; dmarc=pass header.from=work.example", "not certain who has sent it"),
        (at(9), "mx.home.example; dmarc=pass header.from=other.example", "not certain who has sent it"),
        (at(9), "mx.home.example; dmarc=fail header.from=work.example", "not certain who has sent it"),
        (at(9, attendee="eve@work.example"), AUTH, "the sender is not invited to it"),
        (at(9, method="COUNTER"), AUTH, "kept for a person to read, as it is a COUNTER"),
        (at(9, method="CANCEL", organizer=BEN), AUTH, "its sender does not organise the event"),
        (at(9, recurrence="RECURRENCE-ID:20200101T100000Z"), AUTH, "the event has no such date"),
    ],
)
async def test_what_is_not_the_senders_to_say_is_kept_as_history(
    answered: AnsweredHouse, said: Answering, auth: str, why: str
) -> None:
    assert why in await answered.answer(said, auth=auth)
    assert answered.states() == {BEN: "NEEDS-ACTION", ZOE: "NEEDS-ACTION"}


async def test_nobody_answers_for_somebody_else(answered: AnsweredHouse) -> None:
    raw = reply_mail("Google", replace(at(9), uid=answered.uid), to=DESK, auth=AUTH)
    request_id = await answered.receive(raw.replace(b"From: Ben <ben@", b"From: Ben <zoe@"))
    await answered.read()
    assert "does not speak for themselves" in await answered.explained(request_id)
    assert answered.states() == {BEN: "NEEDS-ACTION", ZOE: "NEEDS-ACTION"}


async def test_no_message_keeps_the_answers_of_others_waiting(
    answered: AnsweredHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody with a domain of their own is certain, and may write what they like; and we have mistakes, too."""
    raw = reply_mail("Google", at(9, uid="m1"), to=DESK, auth=AUTH)
    for place, (old, new) in enumerate(
        [(b"UID:m1", b"UID:m\0\0"), (b"SEQUENCE:0", b"SEQUENCE:" + b"9" * 5000), (b"METHOD:", b"METHOD:X\0" * 999)]
    ):
        await answered.receive(raw.replace(b"Message-ID: <", b"Message-ID: <%d" % place).replace(old, new))
    assert (await answered.answer(at(9))).startswith("calendar: applied: ")

    async def fail(*_: object) -> str:
        raise OverflowError("nobody has thought of this")

    monkeypatch.setattr("switchboard.modules.calendar.arrivals._outcome_of_object", fail)
    await answered.receive(reply_mail("Cyrus", at(10, uid="unknown"), to=DESK, auth=AUTH))
    with pytest.raises(Unavailable, match="nobody has thought of this"):
        await answered.read()


async def test_an_answer_reaches_the_organizer_among_all_who_have_the_event_here(
    answered: AnsweredHouse, started: DavProxy
) -> None:
    """Ben is of the household, too, and his calendar is asked first."""
    guests = other_server(started.server.of_events(), user=GUEST, book=f"/{GUEST}/work/")
    guests.ask("MKCALENDAR", content=CALENDAR.format(name="Work", component="VEVENT").encode()).raise_for_status()
    [data] = answered.house.server.objects().values()
    guests.put("copy.ics", data)
    home = answered.house.opened.held.accounts["home"]
    accounts = {"guest": replace(home, user=GUEST, person="ben"), "home": home}
    answered.house = await open_house(
        answered.server.switchboard.runtime.database, started.server, accounts, desk=LetterBox(USER)
    )
    await answered.house.sync()
    assert (await answered.answer(at(9))).startswith("calendar: applied: ")
    assert answered.states()[BEN] == "ACCEPTED"


async def test_earlier_answers_and_those_to_earlier_versions_do_not_count(answered: AnsweredHouse) -> None:
    await answered.answer(at(9, answer="DECLINED"))
    assert "they have answered later" in await answered.answer(at(8, answer="ACCEPTED"))
    assert answered.states()[BEN] == "DECLINED"
    await answered.house.approved("update", event=answered.uid, place="Garden")
    assert "an earlier version" in await answered.answer(at(10, answer="ACCEPTED"))
    assert "applied" in await answered.answer(at(11, answer="ACCEPTED", sequence=1))
    assert answered.states()[BEN] == "ACCEPTED"
    other = await answered.receive(reply_mail("Google", at(9, uid="unknown"), to=DESK, auth=AUTH))
    await answered.read()
    assert "no calendar here has the event" in await answered.explained(other)


async def test_what_cannot_be_written_now_is_tried_again(answered: AnsweredHouse, started: DavProxy) -> None:
    """The server is away, then somebody else is faster, then we are told nothing of a write that was done."""
    request_id = await answered.receive(reply_mail("Cyrus", replace(at(9), uid=answered.uid), to=DESK, auth=AUTH))
    started.before = lambda asked: Answered(503) if asked.method in ("GET", "REPORT", "PUT") else None
    with pytest.raises(Unavailable, match="1 answers of attendees could not be written"):
        await answered.read()
    started.behave()
    left = ["somebody"]

    def be_faster(asked: Asked) -> Answered | None:
        if asked.method == "PUT" and left:
            left.clear()
            [(name, data)] = answered.house.server.objects().items()
            answered.house.server.put(Path(name).name, data.replace(b"SUMMARY:Lunch", b"SUMMARY:Dinner"))
        return None

    started.before = be_faster
    started.after = lambda asked, answer: Answered(500) if asked.method == "PUT" and not left else answer
    with pytest.raises(Unavailable):
        await answered.read()
    started.behave()
    await answered.read()
    assert "applied" in await answered.explained(request_id)
    assert answered.states() == {BEN: "ACCEPTED", ZOE: "NEEDS-ACTION"}
    assert answered.house.events()[0][0] == "Dinner"
    count = len((await answered.server.http.get(f"/v1/messages/{request_id}/explain")).json()["decisions"])
    await answered.read()
    assert count == 2


async def test_what_its_organizer_cancels_is_cancelled_in_our_calendar(answered: AnsweredHouse) -> None:
    invited = f"ATTENDEE;PARTSTAT=ACCEPTED:mailto:{USER}"
    answered.house.put("m", "Board", DAY + timedelta(hours=9), f"ORGANIZER:mailto:{BEN}", invited)
    await answered.house.sync()
    answered.uid = "m"
    assert "applied" in await answered.answer(at(9, method="CANCEL", organizer=BEN, sequence=1))
    cancelled = [data for data in answered.house.server.objects().values() if b"STATUS:CANCELLED" in data]
    assert [b"UID:m\r\n" in data for data in cancelled] == [True]
