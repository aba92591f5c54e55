"""Servers that themselves invite the guests of what our client writes: who gets how many mails, what is read back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from switchboard.ports.collection_server import ServerObject
from switchboard.transport.dav.client import DavClient, open_dav
from switchboard.transport.dav.discovery import find_collections, offers_scheduling
from switchboard.transport.dav.kinds import CALDAV, DavError
from switchboard.transport.dav.reading import list_changes, read_object
from switchboard.transport.dav.writing import create_object, delete_object, replace_object
from tests.cyrus_server import NEIGHBOUR, cyrus
from tests.dav_servers import (
    USER,
    DavProxy,
    SendingServer,
    dav_proxy,
    event,
    give_address,
    sending_xandikos,
    xandikos,
)

GUEST = "eve@else.example"
OUR_PART = (f"ORGANIZER:mailto:{USER}", f"ATTENDEE;PARTSTAT=ACCEPTED:mailto:{USER}")


@pytest.fixture(scope="module", params=[cyrus, sending_xandikos], ids=["cyrus", "xandikos"])
def server(request: pytest.FixtureRequest) -> Iterator[SendingServer]:
    with ExitStack() as stack:
        yield stack.enter_context(request.param())


@pytest.fixture
def proxy(server: SendingServer) -> Iterator[DavProxy]:
    server.of_events().empty()
    server.postbox.mails.clear()
    with dav_proxy(server.of_events()) as started:
        yield started


@pytest.fixture
async def client(proxy: DavProxy) -> AsyncIterator[DavClient]:
    async with open_dav(proxy.login(), CALDAV) as made:
        yield made


def meeting(title: str, *more: str, guests: tuple[str, ...] = (GUEST,)) -> bytes:
    """An event that ann has organized."""
    invited = (f"ATTENDEE;PARTSTAT=NEEDS-ACTION;RSVP=TRUE:mailto:{guest}" for guest in guests)
    return event(title, *OUR_PART, *invited, *more, uid="meeting@home.example")


def methods_sent(server: SendingServer) -> list[tuple[str, str]]:
    """For each mail, to whom it went and what it asks for."""
    found = []
    for mail in server.mails:
        [part] = [one for one in mail.walk() if one.get_content_type() == "text/calendar"]
        found.append((mail["to"].strip(" <>"), str(part.get_param("method"))))
    return found


async def test_a_meeting_is_announced_once_and_its_end_too(
    server: SendingServer, proxy: DavProxy, client: DavClient
) -> None:
    [calendar] = await find_collections(client)
    assert await offers_scheduling(client, calendar.url)
    made = await create_object(client, proxy.book, ServerObject("m.ics", "", meeting("lunch", "SEQUENCE:0")))
    assert methods_sent(server) == [(GUEST, "REQUEST")]
    same = await replace_object(client, proxy.book, made, made.data)
    assert len(server.mails) == 1, "nothing has changed for anybody"
    changed = await replace_object(client, proxy.book, same, meeting("dinner", "SEQUENCE:1"))
    assert methods_sent(server)[1:] == [(GUEST, "REQUEST")]
    await delete_object(client, proxy.book, changed)
    assert methods_sent(server)[2:] == [(GUEST, "CANCEL")]


async def test_what_has_become_of_an_invitation_is_written_to_the_guest(proxy: DavProxy, client: DavClient) -> None:
    """So what the server has is read back, and differs from what was sent."""
    sent = meeting("lunch")
    made = await create_object(client, proxy.book, ServerObject("m.ics", "", sent))
    assert made == await read_object(client, proxy.book, "m.ics")
    assert b"SCHEDULE-STATUS" in unfolded(made)
    listed = await list_changes(client, proxy.book, "")
    assert listed.etags == {"m.ics": made.etag}
    assert (await list_changes(client, proxy.book, listed.cursor)).etags == {}


async def test_whoever_repeats_the_bytes_may_invite_again(server: SendingServer, proxy: DavProxy) -> None:
    """For Xandikos what it has added itself is a change: that is why what is kept is what it has."""
    for _ in range(2):
        proxy.server.put("m.ics", meeting("lunch"))
    assert methods_sent(server) == [(GUEST, "REQUEST")] * (1 if server.name == "cyrus" else 2)


async def test_a_guest_is_invited_once_by_what_is_repeated(
    server: SendingServer, proxy: DavProxy, client: DavClient
) -> None:
    """What the server notes beside a guest makes no other object of it."""
    proxy.after = lambda asked, answered: None if asked.method == "PUT" else answered
    for _ in range(2):
        await create_object(client, proxy.book, ServerObject("m.ics", "", meeting("lunch")))
    assert methods_sent(server) == [(GUEST, "REQUEST")]
    assert b"UID:meeting@home.example" in (await read_object(client, proxy.book, "m.ics")).data


async def test_of_two_writers_one_is_heard(server: SendingServer, proxy: DavProxy, client: DavClient) -> None:
    made = await create_object(client, proxy.book, ServerObject("m.ics", "", meeting("lunch")))
    await replace_object(client, proxy.book, made, meeting("dinner", "SEQUENCE:1"))
    with pytest.raises(DavError) as error:
        await replace_object(client, proxy.book, made, meeting("breakfast", "SEQUENCE:1"))
    assert error.value.state == "changed"
    assert len(server.mails) == 2, "what lost has told nobody"


async def test_a_client_may_keep_the_server_from_inviting_guests(
    server: SendingServer, proxy: DavProxy, client: DavClient
) -> None:
    """Xandikos does not heed it."""
    quiet = meeting("lunch").replace(b"RSVP=TRUE", b"RSVP=TRUE;SCHEDULE-AGENT=CLIENT")
    made = await create_object(client, proxy.book, ServerObject("m.ics", "", quiet))
    await delete_object(client, proxy.book, made)
    assert methods_sent(server) == ([] if server.name == "cyrus" else [(GUEST, "REQUEST"), (GUEST, "CANCEL")])


@pytest.mark.parametrize(("part", "answers"), [("ACCEPTED", 1), ("NEEDS-ACTION", 0)])
async def test_the_organizer_alone_hears_of_a_meeting_of_another(
    server: SendingServer, proxy: DavProxy, client: DavClient, part: str, answers: int
) -> None:
    """Cyrus answers for a user who is noted as having accepted, and for one who deletes it; Xandikos does not."""
    foreign = meeting("lunch").replace(f"ORGANIZER:mailto:{USER}".encode(), b"ORGANIZER:mailto:ann@other.example")
    foreign = foreign.replace(b"PARTSTAT=ACCEPTED", f"PARTSTAT={part}".encode())
    made = await create_object(client, proxy.book, ServerObject("m.ics", "", foreign))
    await delete_object(client, proxy.book, made)
    heard = answers + 1 if server.name == "cyrus" else 0
    assert methods_sent(server) == [("ann@other.example", "REPLY")] * heard


async def test_a_neighbour_is_invited_without_a_mail(server: SendingServer, proxy: DavProxy, client: DavClient) -> None:
    """Cyrus puts it into the calendar of whoever has one there; a user who has never opened it gets a mail."""
    if server.name != "cyrus":
        pytest.skip("the subject has no other users")
    theirs = replace(server.of_events(), user=NEIGHBOUR, book=server.calendar.replace(USER, NEIGHBOUR))
    assert theirs.names() == []
    await create_object(client, proxy.book, ServerObject("m.ics", "", meeting("lunch", guests=(NEIGHBOUR, GUEST))))
    assert methods_sent(server) == [(GUEST, "REQUEST")]
    assert len(theirs.names()) == 1


async def test_a_server_says_that_it_invites_and_invites_nobody() -> None:
    """Xandikos, as it comes, knows no address of its user: it takes the organizer for somebody else."""
    with xandikos() as server, dav_proxy(server.of_events()) as proxy:
        async with open_dav(proxy.login(), CALDAV) as client:
            assert await offers_scheduling(client, proxy.book)
            made = await create_object(client, proxy.book, ServerObject("m.ics", "", meeting("lunch")))
            assert b"SCHEDULE-STATUS" not in unfolded(made)
            give_address(server)
            made = await replace_object(client, proxy.book, made, meeting("dinner"))
            assert b'SCHEDULE-STATUS="3.7;' in unfolded(made)


def unfolded(found: ServerObject) -> bytes:
    return found.data.replace(b"\r\n", b"\n").replace(b"\n ", b"")
