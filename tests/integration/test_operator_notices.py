"""Operators are told in chats: one notice a minute of a kind, nothing lost, and no notice about notices in a loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from switchboard.app.dead_letters.replies import ReplyNotices
from switchboard.app.notices import OperatorNotices, unusable
from switchboard.app.settings import Settings
from switchboard.app.sign_ins import note_sign_ins
from switchboard.core.notices import TEST
from switchboard.core.people.strangers import Contact
from switchboard.domain.ledger import LeasedRow
from switchboard.journey.reply import PullRequest
from switchboard.ports.channel import Receipt
from switchboard.ports.connector import SignInRefused
from switchboard.store.connectors.heartbeats import Heartbeat, heartbeat
from switchboard.store.messages import inbox
from switchboard.store.people import strangers
from switchboard.testing.oauth import WEEK_S, OAuthServer
from switchboard.transport.oauth.token_file import write_tokens
from switchboard.transport.oauth.tokens import TokenFile
from tests.hands import assert_balanced, at_work, settled
from tests.lab import DEFAULT_TEAMS, Lab, lab, submission
from tests.oauth import now_of, signed_in
from tests.waiting import eventually

FIRST, SECOND = "telegram/bot:house/41", "telegram/bot:house/42"
PULL = PullRequest("telegram", "bot:house")
UNCERTAIN, BLOCKED = Receipt("uncertain", error="words"), Receipt("failed", error="words", because="blocked")


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[Lab]:
    """Without rules, whatever comes is a dead letter; operators have written in two chats."""
    async with lab(database_url, DEFAULT_TEAMS, (), policies={("telegram", "bot:house"): "pair"}) as parts:
        for chat in ("41", "42", "7"):
            await strangers.add(parts.database, Contact("telegram", "bot:house", "person", chat), "test")
            if chat != "7":
                await write(parts, chat)
        await parts.database.run("update dead_letter set noticed = true")
        yield parts


async def write(parts: Lab, who: str) -> None:
    of_event = {"reply_address": {"chat": int(who), "message": 9}}
    await parts.accept.accept(
        submission("my secret wish", sender=who, chat_type="private", thread=who, of_event=of_event)
    )


def operators(parts: Lab, *addresses: str) -> OperatorNotices:
    return OperatorNotices(parts.database, parts.notifier, lambda: parts.rule_book.rules.index, addresses)


async def a_minute_later(parts: Lab) -> None:
    await parts.database.run("update told_operators set at = at - interval '1 minute'")


async def sent(parts: Lab, receipt: Receipt | None = None) -> list[tuple[object, str]]:
    """The replies that connectors get, with their chats."""
    async with at_work(parts.worker()):
        await eventually(lambda: settled(parts))
    replies: list[LeasedRow] = []
    while leased := await parts.replies.pull(PULL):
        for reply in leased:
            await parts.replies.receipt(reply.outbox_id, reply.lease, receipt or Receipt("sent"))
        replies += leased
    await ReplyNotices(parts.database, parts.notifier, parts.rule_book).tell()
    return [((reply.address or {}).get("chat"), reply.text) for reply in replies]


async def test_one_a_minute_of_each_kind_and_the_rest_is_a_number_in_the_next(house: Lab) -> None:
    told = operators(house, FIRST, SECOND)
    for who in ("7", "strange", "stranger"):
        await write(house, who) if who == "7" else await house.accept.accept(submission(sender=who))
    assert await told.tell() == 2
    await write(house, "7")
    await write(house, "7")
    assert await told.tell() == 0
    assert sorted(await sent(house), key=str) == [
        (41, "Switchboard: 1 dead letter (no_route). See: switchboard dlq list"),
        (41, "Switchboard: 2 strangers who are not let in yet (telegram/bot:house 2). See: switchboard pairing list"),
    ]
    await a_minute_later(house)
    assert (await told.tell(), await told.tell()) == (1, 0)
    [(chat, text)] = await sent(house)
    assert (chat, text.partition("(")[0]) == (41, "Switchboard: 2 dead letters ")
    await assert_balanced(house)


@pytest.mark.parametrize("receipt", [UNCERTAIN, BLOCKED], ids=["uncertain", "blocked"])
async def test_an_unsent_notice_goes_to_the_next_address_and_finally_to_the_log(house: Lab, receipt: Receipt) -> None:
    told = operators(house, FIRST, SECOND)
    await write(house, "7")
    chats = list[object]()
    with capture_logs() as logs:
        for _ in range(4):
            await a_minute_later(house)
            await told.tell()
            chats += [chat for chat, _ in await sent(house, receipt)]
    assert chats == [41, 42], "each notice is about the one before, and behind the last address is only the log"
    assert [one["count"] for one in logs if one["event"].startswith("operators were not told")] == [1]

    await write(house, "7")
    await a_minute_later(house)
    assert await told.tell() == (receipt is UNCERTAIN), (
        "where nothing can be sent, nothing is sent until a person looks"
    )
    await assert_balanced(house)


async def test_each_failure_of_an_account_is_told_through_another_one(house: Lab) -> None:
    other = "telegram/bot:other"
    beat = Heartbeat("telegram", "bot:house", "one", None, "failed", "a secret", {})
    third = Contact("telegram", "bot:other", "person", "43")
    await strangers.add(house.database, third, "test")
    of_event = {"reply_address": {"chat": 43}}
    spoken = submission(sender="43", endpoint="bot:other", thread="43", chat_type="private", of_event=of_event)
    await house.accept.accept(spoken)
    await house.database.run("update dead_letter set noticed = true")
    told = operators(house, FIRST, f"{other}/43")
    for state in ("failed", "failed", "healthy", "failed"):
        await heartbeat(house.database, replace(beat, state=state))
        await a_minute_later(house)
        await told.tell()
    await sent(house)
    texts = await house.database.rows("select channel, endpoint, text from outbox where text like 'Switchboard: %'")
    account = "Switchboard: 1 account that does not work (telegram/bot:house). See: switchboard doctor"
    assert [tuple(row.values()) for row in texts] == [("telegram", "bot:other", account)] * 2


async def test_each_end_of_a_sign_in_is_told_once(house: Lab, tmp_path: Path) -> None:
    """Of a calendar, of a mailbox that is a channel, and of both at once: that is not told through this channel."""
    told, files = operators(house, FIRST, "telegram/bot:other/1"), {}
    async with OAuthServer() as server:
        server.trial = server.tells_trial = True
        for name in ("calendar", "channel", "both"):
            files[name] = tmp_path / f"{name}.token"
            write_tokens(files[name], await signed_in(server))
        for name, endpoint in (("channel", "gmail/ann@example.org"), ("both", "telegram/bot:house")):
            account = f'channel = "email"\nendpoint = "{endpoint}"\nsettings = {{token_file = "{name}.token"}}\n'
            (tmp_path / f"{name}.toml").write_text(account)
        accounts = {name: {"token_file": str(files[name])} for name in ("calendar", "both")}
        settings = Settings(channels_dir=tmp_path, modules={"calendar": {"accounts": accounts}})

        async def notices() -> list[tuple[object, str]]:
            """What is told by two workers, of which one is started again."""
            await asyncio.gather(*(note_sign_ins(house.database, settings, now_of(server)) for _ in range(2)))
            await a_minute_later(house)
            await asyncio.gather(told.tell(), operators(house, FIRST).tell())
            await note_sign_ins(house.database, settings, now_of(server))
            await a_minute_later(house)
            assert await told.tell() == 0
            return await sent(house)

        assert await notices() == []
        server.clock.move(WEEK_S - 80_000)
        [(chat, text)] = await notices()
        assert (chat, await notices()) == (41, [])
        assert text.startswith("Switchboard: 3 sign-ins that end within a day (both.token: at ")
        assert text.count("your Google project is in Testing: publish it first") == 3
        server.clock.move(80_001)
        for file in files.values():
            with pytest.raises(SignInRefused):
                await TokenFile(file, lambda: now_of(server)).access_token()
        assert await notices() == [
            (
                41,
                "Switchboard: 1 sign-in that has ended (calendar.token: after seven days, as all do while your Google "
                "project is in Testing: publish it first, under Audience, Publish app). See: switchboard doctor",
            )
        ]
        write_tokens(files["calendar"], await signed_in(server))
        assert await notices() == []
        server.clock.move(WEEK_S - 80_000)
        [(_, text)] = await notices()
        assert "1 sign-in that ends within a day (calendar.token: at " in text


async def test_only_approved_chats_that_have_written_are_told(house: Lab) -> None:
    told = operators(house, "telegram/bot:house/7", "telegram/bot:house/8", FIRST)
    why = await unusable(house.database, ("telegram/bot:house/7", "telegram/bot:house/8", FIRST))
    assert [(name[-1], reason.partition(":")[0]) for name, reason in why.items()] == [
        ("7", "nothing was written there yet"),
        ("8", "it is not approved"),
    ]
    refused = [str(await told.test(f"telegram/bot:house/{chat}")) for chat in ("7", "8")]
    assert refused == list(why.values())
    await told.test(FIRST)
    assert await sent(house) == [(41, TEST)]
    await write(house, "7")
    assert (await told.tell(), await sent(house)) == (
        1,
        [(7, "Switchboard: 1 dead letter (no_route). See: switchboard dlq list")],
    )
    await house.database.run("update contact set state = 'denied'")
    await house.database.run("update dead_letter set noticed = false")
    await a_minute_later(house)
    with capture_logs() as logs:
        assert await told.tell() == 0
    assert [one["log_level"] for one in logs] == ["warning"]
    [message] = await house.database.rows("select request_id from message_inbox where channel = 'notice' limit 1")
    shown = await inbox.get_message(house.database, message["request_id"])
    assert shown is not None
    assert (shown.channel, shown.endpoint, shown.state) == ("notice", "telegram/bot:house", "answered")
