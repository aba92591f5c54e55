"""Invitations that we mail because the server of calendars does not: who gets what, once, and how answers come in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Final

import icalendar
import pytest

from switchboard.modules.calendar.mails import mails_of_step
from switchboard.ports.mail_desk import OutgoingMail
from switchboard.ports.tools import PreparedCall
from switchboard.store.database import Database
from tests.calendar_house import DAY, CalendarHouse, LetterBox, account_at, open_house, scope_of
from tests.dav_servers import PASSWORD, USER, Answered, Asked, DavProxy, dav_proxy, radicale

BEN, ZOE, EVE = "ben@work.example", "zoe@work.example", "eve@work.example"
ISO: Final = f"{DAY:%Y-%m-%d}"
ELEVEN: Final = DAY + timedelta(hours=11)


class MailingHouse:
    """The calendars of Ann, whose server sends nothing, and what is mailed for her."""

    def __init__(self, house: CalendarHouse, box: LetterBox) -> None:
        self.house = house
        self.box = box

    @property
    def calendar(self) -> Any:
        """The only object on the server."""
        [data] = self.house.server.objects().values()
        return icalendar.Calendar.from_ical(data)

    def last(self) -> OutgoingMail:
        """The latest mail."""
        return [*self.box.mails.values()][-1]

    def part_of_last(self) -> Any:
        """Its event, as another implementation reads it."""
        calendar = self.last().calendar
        assert calendar is not None
        [event] = icalendar.Calendar.from_ical(calendar.ics).walk("VEVENT")
        return event


@pytest.fixture(scope="module")
def started() -> Iterator[DavProxy]:
    with ExitStack() as stack:
        yield stack.enter_context(dav_proxy(stack.enter_context(radicale())))


@pytest.fixture
async def mailing(database: Database, started: DavProxy, monkeypatch: pytest.MonkeyPatch) -> MailingHouse:
    monkeypatch.setenv("CALENDAR_PASSWORD", PASSWORD)
    started.behave()
    box = LetterBox(USER)
    house = await open_house(database, started.server, {"home": account_at(started.port, sends="mail")}, desk=box)
    house.server.empty()
    return MailingHouse(house, box)


def lunch(**more: object) -> dict[str, Any]:
    return {"title": "Lunch", "start": f"{ISO} 12:00", "invite": [BEN, ZOE], **more}


async def test_who_is_invited_is_mailed_once_and_approved_before(mailing: MailingHouse) -> None:
    house, box = mailing.house, mailing.box
    scope = await house.approve("create", scope_of(), **lunch())
    assert scope.prepared is not None
    assert scope.prepared.risk == "high"
    assert scope.prepared.shown.endswith(f"Mailed by {USER}: {BEN} (invitation), {ZOE} (invitation)")
    assert box.sent == []
    said = await house.done("create", scope, **lunch())
    assert said["mailed"] == [BEN, ZOE]
    assert await house.done("create", scope, **lunch()) == said
    assert box.sent == [(BEN, "REQUEST"), (ZOE, "REQUEST")]
    assert mailing.last().subject == f"Invitation: Lunch ({DAY:%A} {ISO} 12:00-13:00 Europe/Berlin)"
    agents = [one.params["SCHEDULE-AGENT"] for one in mailing.calendar.walk("VEVENT")[0]["ATTENDEE"]]
    assert agents == ["CLIENT", "CLIENT"]
    assert "SCHEDULE-AGENT" not in str(mailing.last().calendar)


async def test_changes_removals_and_deletions_are_mailed_to_whom_they_concern(mailing: MailingHouse) -> None:
    house, box = mailing.house, mailing.box
    made = await house.approved("create", **lunch())
    box.mails.clear()
    await house.approved("update", event=made["id"], place="Garden", uninvite=[ZOE], invite=[EVE])
    assert box.sent == [(BEN, "REQUEST"), (ZOE, "CANCEL"), (EVE, "REQUEST")]
    assert mailing.calendar.walk("VEVENT")[0]["SEQUENCE"] == 1
    prepared = await house.prepare("update", event=made["id"], title="Dinner")
    assert isinstance(prepared, PreparedCall)
    assert prepared.risk == "medium", "nobody is told of another title"
    await house.done("update", event=made["id"], title="Dinner")
    assert len(box.sent) == 3
    deleted = await house.approved("delete", event=made["id"])
    assert sorted(box.sent[3:]) == [(BEN, "CANCEL"), (EVE, "CANCEL")]
    assert mailing.part_of_last()["SEQUENCE"] == 2
    await house.approved("undo", change=deleted["change"])
    assert sorted(box.sent[5:]) == [(BEN, "REQUEST"), (EVE, "REQUEST")]
    assert mailing.part_of_last()["SEQUENCE"] == 3


async def test_an_answer_goes_to_the_organizer_and_can_be_changed(mailing: MailingHouse) -> None:
    house, box = mailing.house, mailing.box
    house.put("m", "Board", ELEVEN, f"ORGANIZER:mailto:{EVE}", f"ATTENDEE;PARTSTAT=NEEDS-ACTION:mailto:{USER}")
    await house.approved("respond", event="m", answer="accepted", comment="I bring cake; two")
    reply = mailing.part_of_last()
    assert (str(reply["ATTENDEE"]), reply["ATTENDEE"].params["PARTSTAT"]) == (f"mailto:{USER}", "ACCEPTED")
    assert str(reply["COMMENT"]) == "I bring cake; two"
    assert "X-OTHERS" not in reply
    assert mailing.last().text.splitlines()[0] == f"{USER} accepts this invitation."
    await house.approved("respond", event="m", answer="declined")
    again = await house.approved("respond", event="m", answer="accepted")
    assert box.sent == [(EVE, "REPLY")] * 3
    assert "answer it again with calendar_respond" in await house.refused("undo", change=again["change"])


async def test_nothing_is_written_where_nobody_can_mail(mailing: MailingHouse) -> None:
    mailing.box.own = ()
    assert f"no e-mail account of this installation sends mails as {USER}" in await mailing.house.refused(
        "create", **lunch()
    )
    mailing.box.own = (USER,)
    assert "is no address of e-mail" in await mailing.house.refused("create", **lunch(invite=["bén@work.example"]))
    notes = "x" * 4000
    mailing.house.put(
        "o", "Odd", ELEVEN, f"ORGANIZER:mailto:{USER}", f"ATTENDEE:mailto:{BEN}", *["X-ODD:" + "y" * 70] * 4000
    )
    assert "too large to be mailed" in await mailing.house.refused("update", event="o", place="Garden", notes=notes)
    mailing.house.server.empty()
    mailing.box.own = ()
    mailing.house.put("m", "Board", ELEVEN, f"ORGANIZER:mailto:{EVE}", f"ATTENDEE:mailto:{USER}")
    assert "no e-mail account" in await mailing.house.refused("respond", event="m", answer="accepted")
    assert mailing.house.events() == [("Board", f"{ELEVEN:%Y-%m-%d %H:%M}")]


async def test_what_is_taken_back_is_not_mailed(mailing: MailingHouse, started: DavProxy) -> None:
    """Somebody books the time at the moment when we write."""
    house = mailing.house

    def book(asked: Asked, answered: Answered) -> Answered:
        if asked.method == "PUT" and "others" not in asked.path:
            house.put("others", "Meeting", DAY + timedelta(hours=12))
        return answered

    scope = await house.approve("create", scope_of(), **lunch())
    started.after = book
    said = await house.call("create", scope, **lunch())
    assert "that time is taken" in said.text
    assert house.events() == [("Meeting", f"{ISO} 12:00")]
    assert mailing.box.sent == []
    assert await mails_of_step(house.opened.held.store_of("home"), scope.key) == ()
