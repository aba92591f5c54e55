"""The connector for e-mail against real servers: pymap and Dovecot for IMAP, aiosmtpd for SMTP."""

from __future__ import annotations

import asyncio
import imaplib
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from switchboard.connectors.email import channel
from switchboard.connectors.email.channel import EmailSession
from switchboard.connectors.email.manifest import MANIFEST
from switchboard.connectors.email.settings import EmailAccountSettings
from switchboard.core.mail.reply import message_id
from switchboard.domain.errors import ConfigurationError
from switchboard.ports.connector import (
    Account,
    Batch,
    FileIn,
    FileOut,
    Inbound,
    Later,
    Outcome,
    Part,
    Refused,
    Sent,
    SignInRefused,
    Uncertain,
    Unreadable,
)
from switchboard.transport.mail_servers.mailbox import Mailbox, SignIn
from switchboard.transport.mail_servers.server import Server
from tests.drivers import Relay
from tests.mail_servers import MAIL, OWN, PASSWORD, Imap, Postbox, running_dovecot, running_pymap, running_smtp

pytestmark = pytest.mark.slow


@pytest.fixture
def pymap() -> Iterator[Imap]:
    with running_pymap() as server:
        yield server


@pytest.fixture
def dovecot() -> Iterator[Imap]:
    with running_dovecot() as server:
        yield server


@pytest.fixture(params=["pymap", "dovecot"])
def imap(request: pytest.FixtureRequest) -> Imap:
    server: Imap = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def smtp() -> Iterator[tuple[Postbox, int]]:
    with running_smtp() as server:
        yield server


def settings_of(imap: Imap, smtp_port: int = 1, **others: Any) -> EmailAccountSettings:
    servers = {
        "imap": Server(host="127.0.0.1", port=imap.port, tls="none"),
        "smtp": Server(host="127.0.0.1", port=smtp_port, tls="none"),
    }
    return EmailAccountSettings(**{"address": OWN, "display_name": "House", "user": imap.user, **servers, **others})


@pytest.fixture
async def open_sessions() -> AsyncIterator[list[EmailSession]]:
    sessions: list[EmailSession] = []
    yield sessions
    for one in sessions:
        await one.close()


async def received(session: EmailSession, cursor: str | None, most: int) -> tuple[list[Inbound | Unreadable], str]:
    """So many events, and the cursor behind them."""
    events: list[Inbound | Unreadable] = []
    async with aclosing(session.receive(cursor)) as batches:
        async for batch in batches:
            events.extend(batch.events)
            cursor = batch.cursor or cursor
            if len(events) >= most:
                break
    assert cursor is not None
    return events, cursor


def ids(events: list[Inbound | Unreadable]) -> list[str]:
    return [one.envelope.event.external_event_id for one in events if isinstance(one, Inbound)]


def mail(name: str) -> bytes:
    return MAIL.format(name=name).encode()


async def test_what_arrives_after_the_cursor_is_received_once_and_stays_unseen(
    imap: Imap, open_sessions: list[EmailSession]
) -> None:
    session = EmailSession(settings_of(imap), PASSWORD)
    open_sessions.append(session)
    start = await session.latest()
    imap.deliver(mail("m1"), mail("m2"))
    events, cursor = await received(session, start, 2)
    assert ids(events) == ["<m1@x.example>", "<m2@x.example>"]
    assert isinstance(events[0], Inbound)
    assert events[0].direct
    assert (events[0].envelope.event.reply_address or {})["to"] == "ada@x.example"
    assert cursor == await session.latest()
    async with aclosing(session.receive(cursor)) as batches:
        nothing = await anext(batches)  # a search of n+1:* names the last mail again
    assert nothing == Batch((), cursor)
    imap.deliver(mail("m3"))
    events, _ = await received(session, cursor, 1)
    assert ids(events) == ["<m3@x.example>"]
    client = imap.login()
    client.select(readonly=True)
    assert client.search(None, "SEEN", "FROM", "ada@x.example")[1][0] in {b"", None}
    client.logout()


@pytest.mark.parametrize("address", [OWN, "bot+desk@home.example"])
async def test_our_own_address_is_an_address_and_no_text(
    pymap: Imap, open_sessions: list[EmailSession], address: str
) -> None:
    lines = [
        (f"From: {address}\r\nTo: ada@x.example", (True, False, False)),
        (f"From: ada@x.example\r\nTo: Bot <{address.upper()}>", (False, True, True)),
        (f"From: ada@x.example\r\nTo: {address}, eve@x.example", (False, False, True)),
        (f"From: ada@x.example\r\nTo: ro{address}", (False, False, False)),
        (f"From: ada@x.example\r\nTo: {address}.example", (False, False, False)),
        (f'From: ada@x.example\r\nTo: "{address}" <eve@x.example>', (False, False, False)),
        (f"From: ro{address}\r\nTo: {address}", (False, True, True)),
    ]
    if address != OWN:
        # A tag can be all that is ours of a mailbox.
        lines.append((f"From: {OWN}\r\nTo: {address}", (False, True, True)))
    session = EmailSession(settings_of(pymap, address=address), PASSWORD)
    open_sessions.append(session)
    start = await session.latest()
    pymap.deliver(*(f"{line}\r\n\r\nhello\r\n".encode() for line, _ in lines))
    events, _ = await received(session, start, len(lines))
    found = [(one.own, one.direct, one.envelope.control.addressed) for one in events if isinstance(one, Inbound)]
    assert found == [expected for _, expected in lines]


async def test_a_mail_is_as_old_as_our_own_server_says(imap: Imap, open_sessions: list[EmailSession]) -> None:
    session = EmailSession(settings_of(imap), PASSWORD)
    open_sessions.append(session)
    start = await session.latest()
    arrived = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
    client = imap.login()
    client.append(
        "INBOX", "", imaplib.Time2Internaldate(arrived), b"Date: Thu, 4 Jun 2020 12:00:00 +0000\r\n" + mail("m1")
    )
    client.logout()
    (event,), _ = await received(session, start, 1)
    assert isinstance(event, Inbound)
    assert event.envelope.event.sent_at == arrived


async def test_a_mail_that_arrives_while_it_waits_is_received(imap: Imap, open_sessions: list[EmailSession]) -> None:
    session = EmailSession(settings_of(imap, idle_s=120 if imap.announces else 1), PASSWORD)
    open_sessions.append(session)
    async with aclosing(session.receive(await session.latest())) as batches:
        await anext(batches)
        for name in ("m1", "m2", "m3"):
            arriving = asyncio.ensure_future(anext(batches))
            await asyncio.to_thread(imap.deliver, mail(name))
            batch: Batch = await arriving
            while not batch.events:
                batch = await anext(batches)
            assert ids(list(batch.events)) == [f"<{name}@x.example>"]


async def test_an_idle_mailbox_is_searched_once_in_idle_s_and_asked_nothing_else(dovecot: Imap) -> None:
    assert EmailAccountSettings.model_fields["idle_s"].default >= 60, "less than one request a minute"
    relay = Relay(0, dovecot.port)
    await relay.open()
    server = Server(host="127.0.0.1", port=relay.port, tls="none")
    session = EmailSession(settings_of(dovecot, idle_s=0.2).model_copy(update={"imap": server}), PASSWORD)
    async with aclosing(session.receive(await session.latest())) as batches:
        for _ in range(4):
            assert not (await anext(batches)).events
    await session.close()
    await relay.close()
    lines = [line.split(b" ", 1)[-1].split(b" ")[:2] for line in bytes(relay.said).splitlines()]
    asked = [b" ".join(words) for words in lines[lines.index([b"IDLE"]) :]]
    assert asked[:9] == [b"IDLE", b"DONE", b"UID SEARCH"] * 3


async def test_a_mailbox_that_was_made_anew_is_read_again(dovecot: Imap, open_sessions: list[EmailSession]) -> None:
    session = EmailSession(settings_of(dovecot, folder="Work"), PASSWORD)
    open_sessions.append(session)
    dovecot.deliver(mail("m1"), mail("m2"), folder="Work")
    _, cursor = await received(session, None, 2)
    client = dovecot.login()
    client.delete("Work")
    client.create("Work")
    client.logout()
    dovecot.deliver(mail("m3"), mail("m4"), folder="Work")
    events, again = await received(session, cursor, 2)
    assert ids(events) == ["<m3@x.example>", "<m4@x.example>"]
    assert again.partition(":")[0] != cursor.partition(":")[0]
    assert again.partition(":")[2] == cursor.partition(":")[2]


async def test_what_is_no_mail_is_named_and_the_next_one_goes_on(
    pymap: Imap, open_sessions: list[EmailSession]
) -> None:
    session = EmailSession(settings_of(pymap), PASSWORD)
    open_sessions.append(session)
    start = await session.latest()
    pymap.deliver(b"Subject: from nobody\r\n\r\nhello\r\n", mail("m2"))
    events, _ = await received(session, start, 2)
    assert isinstance(events[0], Unreadable)
    assert "no From field" in events[0].reason
    assert ids(events[1:]) == ["<m2@x.example>"]


async def test_the_head_of_a_mail_that_is_too_large_is_no_mail(
    pymap: Imap, open_sessions: list[EmailSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "MAX_MAIL", 500)
    session = EmailSession(settings_of(pymap), PASSWORD)
    open_sessions.append(session)
    start = await session.latest()
    pymap.deliver(mail("m1") + b"x" * 500)
    [large], _ = await received(session, start, 1)
    assert isinstance(large, Unreadable)
    assert b"Message-ID: <m1@x.example>" in large.raw
    assert b"xxx" not in large.raw
    again = await session.read(large.raw)
    assert isinstance(again, Unreadable)
    assert "head alone" in again.reason
    assert isinstance(await session.read(mail("m1")), Inbound), "what was refused for another reason is read"


@asynccontextmanager
async def refusing(imap: Imap, uids: Sequence[int], what: bytes) -> AsyncIterator[Server]:
    """The server through a proxy that gives of some mails not `what` is asked for, as Exchange does."""
    asked = re.compile(rb"(\w+) UID FETCH (\d+) .*" + re.escape(what))
    serving = set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.ensure_future(carry(reader, writer)))

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", imap.port)

        async def there() -> None:
            while line := await reader.readline():
                found = asked.match(line)
                if found and int(found[2]) in uids:
                    writer.write(found[1] + b" NO The requested message could not be converted.\r\n")
                else:
                    ours.write(line)
            ours.close()

        async def back() -> None:
            with suppress(OSError):
                while piece := await theirs.read(65536):
                    writer.write(piece)
            writer.close()

        await asyncio.gather(there(), back())

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with proxy:
        yield Server(host="127.0.0.1", port=proxy.sockets[0].getsockname()[1], tls="none")
        await asyncio.gather(*serving)


async def test_a_mail_the_server_withholds_is_set_aside_and_blocks_no_others(
    pymap: Imap, open_sessions: list[EmailSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "_REFUSED_S", (0.0, 0.0))
    straight = EmailSession(settings_of(pymap), PASSWORD)
    open_sessions.append(straight)
    start = await straight.latest()
    assert start is not None
    pymap.deliver(mail("m1"), mail("m2"))
    first = int(start.partition(":")[2]) + 1
    async with refusing(pymap, (first,), b"BODY.PEEK[]") as server:
        session = EmailSession(settings_of(pymap).model_copy(update={"imap": server}), PASSWORD)
        open_sessions.append(session)
        events, _ = await received(session, start, 2)
    assert isinstance(events[0], Unreadable)
    assert "could not be converted" in events[0].reason
    assert b"Message-ID: <m1@x.example>" in events[0].raw
    assert ids(events[1:]) == ["<m2@x.example>"]


async def test_a_server_that_gives_nothing_at_all_is_asked_again_later(
    pymap: Imap, open_sessions: list[EmailSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "_REFUSED_S", (0.0, 0.0))
    async with refusing(pymap, range(10_000), b"BODY.PEEK[") as server:
        session = EmailSession(settings_of(pymap).model_copy(update={"imap": server}), PASSWORD)
        open_sessions.append(session)
        start = await session.latest()
        pymap.deliver(mail("m1"))
        with pytest.raises(OSError, match="could not be converted"):
            await received(session, start, 1)


async def test_a_file_can_be_fetched(pymap: Imap, open_sessions: list[EmailSession]) -> None:
    session = EmailSession(settings_of(pymap), PASSWORD)
    open_sessions.append(session)
    start = await session.latest()
    head = 'MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="b"\r\n\r\n'
    pdf = "Content-Type: application/pdf\r\nContent-Transfer-Encoding: base64\r\n\r\nAP8="
    parts = f"--b\r\n\r\nwords\r\n--b\r\n{pdf}\r\n--b--\r\n"
    pymap.deliver(f"From: ada@x.example\r\n{head}{parts}".encode())
    events, _ = await received(session, start, 1)
    assert isinstance(events[0], Inbound)
    (file,) = events[0].files
    assert b"".join([piece async for piece in session.fetch(file)]) == b"\x00\xff"
    again = await session.read(events[0].raw)
    assert isinstance(again, Inbound)
    assert b"".join([piece async for piece in session.fetch(again.files[0])]) == b"\x00\xff", "from quarantine, too"
    with pytest.raises(ValueError, match="no such attachment"):
        await anext(session.fetch(FileIn(0, {"part": 7}, events[0].raw)))


async def test_a_wrong_password_is_named_and_not_shown(imap: Imap) -> None:
    account = Account("desk", settings_of(imap), {"password": "wrong-and-secret"})
    with pytest.raises(SignInRefused, match="refuses the sign-in") as caught:
        await MANIFEST.open(account)
    assert "wrong-and-secret" not in str(caught.value)


async def test_an_account_without_password_and_token_command_is_not_opened() -> None:
    with pytest.raises(ConfigurationError, match=r"needs the secret `password`, `token_command` or `token_file`"):
        await MANIFEST.open(Account("desk", settings_of(Imap(1, "bot")), {}))


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (("false",), SignInRefused),
        (("true",), SignInRefused),
        (("/nothing/here",), SignInRefused),
        (("echo", "a-token"), SignInRefused),
    ],
)
async def test_a_token_that_cannot_be_had_or_is_refused(
    pymap: Imap, command: tuple[str, ...], error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        await MANIFEST.open(Account("desk", settings_of(pymap, token_command=command), {}))
    assert "a-token" not in str(caught.value)


TO: dict[str, Any] = {"to": "ada@x.example", "subject": "Hi", "message_id": "<m1@x.example>", "references": []}


async def sent(session: EmailSession, text: str = "Fine.") -> Outcome:
    return await session.send(Part(address=TO, text=text, rendered={"html": f"<p>{text}</p>"}), "key-1")


async def test_an_answer_is_sent_and_its_copy_filed(
    imap: Imap, smtp: tuple[Postbox, int], open_sessions: list[EmailSession]
) -> None:
    postbox, port = smtp
    session = EmailSession(settings_of(imap, port), PASSWORD)
    name = message_id("key-1", OWN)
    part = Part(address=TO, text=".\n.dots")
    assert await session.find(part, "key-1") is None
    assert await session.send(part, "key-1") == Sent(name)
    await session.close()
    (raw,) = postbox.mails
    assert name.encode() in raw
    assert b"Auto-Submitted: auto-replied" in raw
    assert postbox.senders == [OWN]
    again = EmailSession(settings_of(imap, port), PASSWORD)
    open_sessions.append(again)
    assert await again.find(part, "key-1") == Sent(name)
    assert await again.find(part, "key-2") is None


async def test_a_server_that_takes_small_mails_gets_no_larger_files(pymap: Imap) -> None:
    """It says so before anybody signs in; the kernel names larger files in the text."""
    with running_smtp(size=2_000_000) as (box, port):
        session = await MANIFEST.open(
            Account("desk", settings_of(pymap, port, sent_copy="never"), {"password": PASSWORD})
        )
        able = session.capabilities
        assert able is not None
        assert able == replace(MANIFEST.capabilities, max_file_out=able.max_file_out)
        assert 1_000_000 < able.max_file_out < 1_461_000, "base64 makes a third more of it, and lines"
        outcomes = [
            await session.send(Part(address={"to": "ada@x.example"}, text="Here.", files=(zeros(size),)), f"key-{size}")
            for size in (able.max_file_out, 1_461_600)
        ]
        await session.close()
    assert [type(one) for one in outcomes] == [Sent, Refused]
    assert len(box.mails) == 1


def zeros(size: int) -> FileOut:
    async def read() -> AsyncIterator[bytes]:
        yield bytes(size)

    return FileOut("zeros.bin", "application/octet-stream", size, read)


@pytest.mark.parametrize("size", [33_554_432, 0, None])
async def test_a_server_that_names_no_lower_limit_leaves_all_as_it_is(size: int | None, pymap: Imap) -> None:
    """Nor does one that cannot be reached: mails arrive all the same."""
    with running_smtp(size=size or 0) as (_, port):
        settings = settings_of(pymap, port if size is not None else 1)
        session = await MANIFEST.open(Account("desk", settings, {"password": PASSWORD}))
        assert session.capabilities is None
        await session.close()


async def test_a_copy_that_cannot_be_filed_changes_nothing(pymap: Imap, smtp: tuple[Postbox, int]) -> None:
    postbox, port = smtp
    session = EmailSession(settings_of(pymap, port), "wrong")
    # The SMTP server of this test wants no sign-in, and IMAP refuses it.
    assert isinstance(await sent(session), Sent)
    await session.close()
    assert len(postbox.mails) == 1


@pytest.mark.parametrize(
    ("rcpt", "data", "outcome"),
    [
        ("550 no such user", "250 OK", Refused("the SMTP server says: 550 no such user", "blocked")),
        ("451 greylisted", "250 OK", Later(300, "the SMTP server says: 451 greylisted")),
        ("250 OK", "554 spam", Refused("the SMTP server says: 554 spam")),
        ("250 OK", "452 full", Later(300, "the SMTP server says: 452 full")),
        ("250 OK", "close", Uncertain("the SMTP server got the whole mail and did not answer")),
    ],
)
async def test_what_the_smtp_server_says_decides(
    smtp: tuple[Postbox, int], rcpt: str, data: str, outcome: Outcome
) -> None:
    postbox, port = smtp
    postbox.rcpt, postbox.data = rcpt, data
    session = EmailSession(settings_of(Imap(1, "bot"), port, sent_copy="never"), PASSWORD)
    assert await sent(session) == outcome


@asynccontextmanager
async def silent_smtp(after: bytes) -> AsyncIterator[tuple[list[bytes], int]]:
    """An SMTP server that says nothing more once it got a line that begins so, and its port.

    In the list each connection is an empty line, and each mail that begins one that says so.
    """
    lines: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(b"")
        writer.write(b"220 here\r\n" if after else b"")
        in_mail = silent = not after
        while line := await reader.readline():
            silent = silent or line.upper().startswith(after)
            lines.extend([line] if line == b"DATA\r\n" else [])
            in_mail = line != b".\r\n" and (in_mail or line == b"DATA\r\n")
            if not silent and (not in_mail or line == b"DATA\r\n"):
                writer.write(b"354 go on\r\n" if in_mail else b"250 OK\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield lines, server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize(
    ("after", "outcome"), [(b"", Later), (b"MAIL", Later), (b"DATA", Later), (b".\r\n", Uncertain)]
)
async def test_a_silent_server_is_given_up_before_the_kernel_gives_us_up(
    monkeypatch: pytest.MonkeyPatch, after: bytes, outcome: type[Outcome]
) -> None:
    monkeypatch.setattr(channel, "_WRITTEN_S", 0.5)
    monkeypatch.setattr(channel, "_ANSWERED_S", 1.0)
    async with silent_smtp(after) as (_, port):
        session = EmailSession(settings_of(Imap(1, "bot"), port, sent_copy="never"), PASSWORD)
        assert isinstance(await sent(session), outcome)
        await session.close()


async def test_of_many_mails_at_once_a_few_are_handed_in_and_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_TURN_S", 0.1)
    monkeypatch.setattr(channel, "_WRITTEN_S", 2.0)
    async with silent_smtp(b"") as (connections, port):
        session = EmailSession(settings_of(Imap(1, "bot"), port, sent_copy="never"), PASSWORD)
        outcomes = await asyncio.gather(*(sent(session) for _ in range(100)))
        await session.close()
    assert len(connections) == 4
    assert sum(outcome == Later(5.0, "other mails are being handed in") for outcome in outcomes) == 96
    assert all(isinstance(outcome, Later) for outcome in outcomes)


async def test_of_a_hundred_mails_at_once_each_is_sent_or_certainly_not(smtp: tuple[Postbox, int]) -> None:
    postbox, port = smtp
    session = EmailSession(settings_of(Imap(1, "bot"), port, sent_copy="never"), PASSWORD)
    outcomes = await asyncio.gather(*(sent(session) for _ in range(100)))
    await session.close()
    assert all(isinstance(outcome, Sent | Later) for outcome in outcomes)
    assert len(postbox.mails) == sum(isinstance(outcome, Sent) for outcome in outcomes) > 0


async def test_before_the_final_dot_nothing_was_taken() -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := await reader.readline():
            if line.upper().startswith(b"RCPT"):
                break
            writer.write(b"250 OK\r\n")
        writer.close()

    server = await asyncio.start_server(break_off, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    session = EmailSession(settings_of(Imap(1, "bot"), port, sent_copy="never"), PASSWORD)
    assert isinstance(await sent(session), Later)
    server.close()
    await server.wait_closed()
    assert isinstance(await sent(session), Later)


@pytest.mark.parametrize("to", [None, OWN, "bot+tag@home.example"])
async def test_nobody_and_ourselves_are_not_answered(to: str | None) -> None:
    session = EmailSession(settings_of(Imap(1, "bot")), PASSWORD)
    outcome = await session.send(Part(address=TO | {"to": to}, text="x"), "key")
    assert isinstance(outcome, Refused)


def test_a_connection_that_is_refused_is_an_os_error() -> None:
    with pytest.raises(OSError, match=r"."):
        Mailbox(Server(host="127.0.0.1", port=1, tls="none"), SignIn("bot", PASSWORD))


def test_a_password_is_sent_in_the_clear_to_this_machine_only() -> None:
    with pytest.raises(ValueError, match="in the clear"):
        Server(host="mail.example", port=143, tls="none")


async def test_an_answer_waits_for_a_token() -> None:
    session = EmailSession(settings_of(Imap(1, "bot"), token_command=("false",)), "")
    assert isinstance(await sent(session), Later)
