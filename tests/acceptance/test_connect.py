"""`switchboard connect` in real processes that are killed, with a folder of files and with Telegram: nothing is lost.

Nothing is doubled either, but for what Telegram cannot be asked about, which says so.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from email import message_from_bytes
from pathlib import Path
from typing import Final

import pytest

from switchboard.connectors.kernel.parts import REPEAT_NOTE
from switchboard.store.messages import outbox
from switchboard.testing.bot_api import TOKEN, BotApi, Hang
from tests.documents import HOME
from tests.drivers import put as write
from tests.drivers import replies_in as sent
from tests.forked import ForkedCommand
from tests.hands import at_work
from tests.mail_servers import (
    MAIL,
    OWN,
    PASSWORD,
    Imap,
    Postbox,
    running_dovecot,
    running_postfix,
    running_pymap,
    running_smtp,
)
from tests.mail_servers import write as deliver
from tests.processes import EXECUTABLE
from tests.routing import rule
from tests.servers import RULES, TEAMS, Opened, open_server
from tests.waiting import eventually

FOLDER: Final = HOME / "src/switchboard/examples/connectors/folder"
TREE: Final = (TEAMS, (*RULES, rule("System1/echo", channel="webhook")))
POINTS: Final = tuple(
    f"connector_{at}"
    for at in ("received", "submitted", "before_cursor", "cursor_saved", "confirmed", "intended", "sent", "recorded")
)
MORE_POINTS: Final = ("connector_queued", "connector_fetched", "connector_unreported", "connector_reported")


async def answered(root: Path, count: int) -> bool:
    """Whether so many replies are there."""
    return len(sent(root)) >= count


def test_the_folder_is_a_channel_in_less_than_150_lines() -> None:
    assert len((FOLDER / "folder_channel.py").read_text().splitlines()) < 150


@pytest.fixture
async def server(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """With a worker, unless its parameter says otherwise."""
    worker = getattr(request, "param", True)
    async with open_server(database_url, tmp_path / "data", worker=worker, tree=TREE) as opened:
        yield opened


@pytest.fixture
def environment(server: Opened, tmp_path: Path) -> Mapping[str, str]:
    """Of a connector: the package is installed, and the account has a file."""
    packages = tmp_path / "packages"
    installed = packages / "folder_channel-0.1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: folder-channel\nVersion: 0.1.0\n")
    (installed / "entry_points.txt").write_text("[switchboard.connectors]\nfolder = folder_channel:MANIFEST\n")
    (packages / "folder_channel.py").symlink_to(FOLDER / "folder_channel.py")
    (tmp_path / "channels.d").mkdir()
    (tmp_path / "channels.d/files.toml").write_text(
        f'channel = "folder"\nsettings = {{path = "{tmp_path / "folder"}"}}\n'
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHBOARD_")}
    return kept | {
        "PYTHONPATH": str(packages),
        "SWITCHBOARD_URL": server.url,
        "SWITCHBOARD_DATA_DIR": str(tmp_path / "data"),
        "SWITCHBOARD_CHANNELS_DIR": str(tmp_path / "channels.d"),
    }


async def start(environment: Mapping[str, str], account: str = "files", **more: str) -> ForkedCommand[bytes]:
    """A connector, in a process of its own."""
    return await asyncio.to_thread(ForkedCommand, [EXECUTABLE, "connect", account], env={**environment, **more})


async def end(process: ForkedCommand[bytes]) -> int:
    """Told to end; its exit code."""
    if process.poll() is None:
        process.terminate()
    return await ended(process)


async def ended(process: ForkedCommand[bytes]) -> int:
    """Its exit code; what kills it is its own affair."""
    return await asyncio.to_thread(process.wait, 60)


async def leases_end(server: Opened) -> None:
    """As if their time had passed."""
    database = server.lab.database
    await database.run("update connector_account set lease_until = clock_timestamp() - interval '1 ms'")
    await database.run("update lane set lease_until = now() - interval '1 ms' where state = 'running'")
    await outbox.expire_leases(database)


async def is_served(server: Opened) -> bool:
    """Whether a connector that can be told to end holds the account."""
    held = "select count(*) from connector_account where lease_until > clock_timestamp()"
    return await server.lab.count(held) > 0


@pytest.mark.slow
async def test_killed_at_every_point_each_message_has_one_answer(
    server: Opened, environment: Mapping[str, str], tmp_path: Path
) -> None:
    folder, expected = tmp_path / "folder", list[str]()
    for number, point in enumerate((*POINTS, *MORE_POINTS)):
        write(folder, f"person {number}", "1", f"hello {point}")
        expected.append(f"hello {point}")
        killed = await start(environment, SWITCHBOARD_CRASH_AT=point)
        assert await ended(killed) == -9, point
        await leases_end(server)
    process = await start(environment)
    try:
        await eventually(lambda: is_served(server), within=60)  # those before it may have answered all
        await eventually(lambda: answered(folder, len(expected)), within=150)
    finally:
        assert await end(process) == 0
    answers = sent(folder)
    assert sorted(word for text in answers for word in expected if word in text) == sorted(expected)
    messages = (await server.http.get("/v1/messages", params={"limit": 500})).json()["messages"]
    assert len(messages) == len(expected)
    assert not list(folder.glob("inbox/*/*.txt"))


async def test_the_token_is_for_this_account_alone_and_nobody_else_may_read_it(
    server: Opened, environment: Mapping[str, str], tmp_path: Path
) -> None:
    write(tmp_path / "folder", "ada", "1", "hello")
    process = await start(environment)
    try:
        await eventually(lambda: answered(tmp_path / "folder", 1), within=60)
    finally:
        assert await end(process) == 0
    file = tmp_path / "data/connectors/files.token"
    assert file.stat().st_mode & 0o777 == 0o600
    [token] = [one for one in (await server.http.get("/v1/tokens")).json()["tokens"] if one["role"] == "connector"]
    assert (token["name"], token["endpoint"]) == ("connector-files", str(tmp_path / "folder"))


def bot_account(tmp_path: Path, api: BotApi, handling: str = "") -> None:
    """The file of an account and that of its token."""
    place = tmp_path / "channels.d"
    place.joinpath("house.toml").write_text(
        f'channel = "telegram"\nhandling = {{{handling}}}\n'
        f'settings = {{api_url = "{api.url}", poll_s = 1}}\n'
        'secrets = {token = {file = "telegram.token"}}\n'
    )
    place.joinpath("telegram.token").touch(mode=0o600)
    place.joinpath("telegram.token").write_text(f"{TOKEN}\n")


@pytest.mark.slow
async def test_a_bot_that_is_killed_at_eight_points_answers_each_message(
    server: Opened, environment: Mapping[str, str], tmp_path: Path
) -> None:
    async with BotApi() as api:
        bot_account(tmp_path, api)
        first = await start(environment, "house")
        await asyncio.wait_for(api.until(lambda: api.polling), 60)
        assert await end(first) == 0
        for point in POINTS:
            api.people.say(f"hello {point}")
            killed = await start(environment, "house", SWITCHBOARD_CRASH_AT=point)
            assert await ended(killed) == -9, point
            await leases_end(server)
        process = await start(environment, "house")
        try:
            await eventually(lambda: is_served(server), within=60)
            await asyncio.wait_for(api.until(lambda: all(any(p in t for t in api.texts) for p in POINTS)), 150)
        finally:
            assert await end(process) == 0
        texts = list(api.texts)
    repeats = [text for text in texts if REPEAT_NOTE in text]
    assert len(texts) - len(repeats) <= len(POINTS)
    assert len(repeats) <= len(POINTS), "of one conversation one part is being sent when it is killed, wherever that is"
    answered_at = [next(n for n, text in enumerate(texts) if point in text) for point in POINTS]
    assert answered_at == sorted(answered_at)
    assert sum("connector_received" in text for text in texts if text not in repeats) <= 1


@pytest.mark.slow
async def test_a_kill_between_upload_and_message_leaves_one_with_all_files(
    server: Opened, environment: Mapping[str, str], tmp_path: Path
) -> None:
    photos = [b"\xff\xd8\xff%d" % number * 50_000 for number in range(3)]
    async with BotApi() as api:
        bot_account(tmp_path, api, 'start = "all"')
        api.people.album(photos, "look")
        killed = await start(environment, "house", SWITCHBOARD_CRASH_AT="connector_uploaded")
        assert await ended(killed) == -9
        assert await server.lab.count("select count(*) from blob") >= 1
        assert await server.lab.count("select count(*) from message_inbox") == 0
        await leases_end(server)
        process = await start(environment, "house")
        try:
            await eventually(lambda: is_cursor(server, f"{api.world.next_update}@0"), within=60)
        finally:
            assert await end(process) == 0
    [message] = (await server.http.get("/v1/messages")).json()["messages"]
    shown = (await server.http.get(f"/v1/messages/{message['request_id']}")).json()
    names = [one["storage_ref"].removeprefix("blob:") for one in shown["envelope"]["payload"]["attachments"]]
    assert [(await server.http.get(f"/v1/blobs/{name}")).content for name in names] == photos
    assert await server.lab.count("select count(*) from blob") == 3


@pytest.mark.slow
async def test_a_process_stopped_in_send_past_its_leases_sends_and_saves_nothing(
    server: Opened, environment: Mapping[str, str], tmp_path: Path
) -> None:
    database = server.lab.database

    async def cursor() -> object:
        return await database.value("select cursor from connector_account")

    async def stands_by() -> bool:
        return bool(await database.value("select count(*) from connector where state = 'standby'"))

    async with BotApi() as api:
        bot_account(tmp_path, api, 'start = "all", on_uncertain = "ask"')
        api.spoil("sendMessage", Hang(taken=True))
        api.people.say("a" * 2500 + "\n\n" + "b" * 1590)
        first = await start(environment, "house")
        await asyncio.wait_for(api.until(lambda: len(api.texts) == 1), 60)
        first.send_signal(signal.SIGSTOP)
        await leases_end(server)
        api.people.say("are you there?")
        second = await start(environment, "house")
        try:
            await asyncio.wait_for(api.until(lambda: "are you there?" in api.texts), 60)
            await asyncio.wait_for(api.until(lambda: api.polling), 60)
            before = await cursor()
            first.send_signal(signal.SIGCONT)
            await eventually(stands_by, within=60)
            assert await cursor() == before
        finally:
            first.send_signal(signal.SIGCONT)
            assert [await end(first), await end(second)] == [0, 0]
        assert api.texts == ["a" * 2500, "are you there?"], "the second part waits for a person"
    states = [row["state"] for row in await database.rows("select state from outbox order by outbox_id")]
    assert states == ["uncertain", "sent"]


@pytest.mark.slow
@pytest.mark.parametrize("server", [False], indirect=True)
async def test_a_mail_connector_killed_at_six_points_answers_each_mail_once(
    server: Opened, environment: Mapping[str, str], tmp_path: Path
) -> None:
    receiving = POINTS[: POINTS.index("connector_intended")]
    with running_pymap() as imap, running_smtp() as (postbox, smtp_port):
        (tmp_path / "channels.d/desk.toml").write_text(
            f'channel = "email"\nsecrets = {{password = {{env = "MAIL_PASSWORD"}}}}\n'
            f'[settings]\naddress = "{OWN}"\nuser = "{imap.user}"\nidle_s = 0.2\n'
            f'imap = {{host = "127.0.0.1", port = {imap.port}, tls = "none"}}\n'
            f'smtp = {{host = "127.0.0.1", port = {smtp_port}, tls = "none"}}\n'
        )
        signed_in = {**environment, "MAIL_PASSWORD": PASSWORD}
        first = await start(signed_in, "desk")
        await eventually(lambda: has_cursor(server), within=60)
        assert await end(first) == 0
        # No answer may be on its way at a kill but the one that it is about: a person would have to say whether it was
        # sent. So butlers begin to work when all is received but the mail whose answer is recorded.
        for point in receiving:
            await killed_at(point, signed_in, imap, server)
        async with at_work(server.lab.worker()):
            await answered_by(signed_in, postbox, len(receiving), server)
            await killed_at("connector_recorded", signed_in, imap, server)
            await answered_by(signed_in, postbox, len(receiving) + 1, server)
    points = (*receiving, "connector_recorded")
    answers = [message_from_bytes(one) for one in postbox.mails]
    assert sorted(one["In-Reply-To"] for one in answers) == sorted(f"<{point}@x.example>" for point in points)
    assert all(one["In-Reply-To"] == f"<{one['To']}>" for one in answers)


async def killed_at(point: str, environment: Mapping[str, str], imap: Imap, server: Opened) -> None:
    """A mail comes, by a person of its own, as one who gets many answers in minutes waits for the next."""
    imap.deliver(MAIL.format(name=point).replace("ada@", f"{point}@").encode())
    killed = await start(environment, "desk", SWITCHBOARD_CRASH_AT=point)
    assert await ended(killed) == -9, point
    await leases_end(server)


async def answered_by(environment: Mapping[str, str], postbox: Postbox, count: int, server: Opened) -> None:
    """A connector that is left alone answers, until there are so many answers."""
    process = await start(environment, "desk")
    try:
        await eventually(lambda: is_served(server), within=60)
        await eventually(lambda: as_many(postbox.mails, count), within=60)
        await eventually(lambda: settled_replies(server, count), within=60)
    finally:
        assert await end(process) == 0


@pytest.mark.slow
async def test_a_real_mailbox_killed_three_times_loses_and_doubles_nothing(
    server: Opened, environment: Mapping[str, str], tmp_path: Path
) -> None:
    points = ("connector_received", "connector_intended", "connector_sent")
    with running_dovecot() as dovecot, running_postfix(dovecot) as postfix:
        (tmp_path / "channels.d/desk.toml").write_text(
            f'channel = "email"\nsecrets = {{password = {{env = "MAIL_PASSWORD"}}}}\n'
            f'[settings]\naddress = "{OWN}"\nuser = "{dovecot.user}"\nidle_s = 1\n'
            f'imap = {{host = "127.0.0.1", port = {dovecot.tls_port}}}\n'
            f'smtp = {{host = "127.0.0.1", port = {postfix}, tls = "starttls"}}\n'
        )
        signed_in = {**environment, "MAIL_PASSWORD": PASSWORD, "SSL_CERT_FILE": str(dovecot.certificate)}
        first = await start(signed_in, "desk")
        await eventually(lambda: has_cursor(server), within=60)
        assert await end(first) == 0
        for point in points:
            await asyncio.to_thread(deliver, dovecot, postfix, point)
            killed = await start(signed_in, "desk", SWITCHBOARD_CRASH_AT=point)
            assert await ended(killed) == -9, point
            await leases_end(server)
        process = await start(signed_in, "desk")
        try:
            await eventually(lambda: settled_replies(server, len(points)), within=150)
        finally:
            assert await end(process) == 0
        answers = [str(one["In-Reply-To"]) for one in dovecot.mails("ada")]
    rows = await server.lab.database.rows("select reply_to, state from outbox")
    states = {str(row[0]): str(row[1]) for row in rows}
    assert sorted(states) == sorted(f"<{point}@x.example>" for point in points)
    assert len(answers) == len(set(answers)), "no mail has two answers"
    unanswered = states.keys() - set(answers)
    assert {states[one] for one in unanswered} <= {"uncertain"}, "what was being sent is named"
    assert answers, "the mail that was sent before a kill"


async def settled_replies(server: Opened, count: int) -> bool:
    """Whether so many replies are sent, or in doubt."""
    told = "select count(*) from outbox where state in ('sent', 'uncertain')"
    return int(await server.lab.database.value(told)) >= count


async def is_cursor(server: Opened, cursor: str) -> bool:
    """Whether the connector has come there."""
    return bool(await server.lab.database.value("select cursor from connector_account") == cursor)


async def has_cursor(server: Opened) -> bool:
    """Whether the connector knows from where it goes on."""
    return bool(await server.lab.database.value("select count(*) from connector_account where cursor is not null"))


async def as_many(found: Sequence[object], count: int) -> bool:
    """Whether there are so many."""
    return len(found) >= count
