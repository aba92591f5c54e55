"""`/link`: a person shows with a code that another account is theirs, and nobody else can."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from msgspec.structs import replace

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.classification.history import LIMITS
from switchboard.core.people.handle import Handle, handle_at
from switchboard.core.people.owners import owns
from switchboard.core.people.strangers import code_in
from switchboard.domain.message import RequestId
from switchboard.domain.routing import Owner, SystemId
from switchboard.journey.linking import (
    CLAIMED_TEXT,
    LINKED_TEXT,
    OVERHEARD_TEXT,
    READ_TEXT,
    SAME_TEXT,
    TAKEN_TEXT,
    UNKNOWN_TEXT,
    WRONG_TEXT,
)
from switchboard.store.ids import new_uuid7
from switchboard.store.models import classification
from switchboard.store.people import people as store
from switchboard.store.people.people import StoredOwner
from tests.hands import assert_balanced, at_work, settled
from tests.lab import TRUSTING, Lab, butler, lab, rule, submission, team_of
from tests.waiting import eventually

HERS: Final = replace(butler("echo"), options={"owners": ["person:ann"]})
TO_US: Final = {"To": "me@example.net"}
PASSED: Final = {"headers": {**TO_US, "Authentication-Results": "mx.example; dmarc=pass header.from=example.org"}}
MAIL: Final = {"channel": "email", "sender": "ann@example.org", "endpoint": "me@example.net", "raw": PASSED}
COPIED: Final = {"headers": {**PASSED["headers"], "Cc": "bob@example.org"}}
PRIVATE: Final = {"sender": "5488", "thread": "5488", "chat_type": "private"}


@pytest.fixture
async def parts(database_url: str) -> AsyncIterator[Lab]:
    """With the persons ann, who is 5488 of Telegram, and bob, who is 77."""
    async with lab(database_url, [team_of(HERS)], [rule("System1/echo")], channels=TRUSTING) as opened:
        for person, number in (("ann", "5488"), ("bob", "77")):
            async with opened.database.transaction() as one:
                await store.begin_change(one)
                await store.create(one, person, person.title())
                await store.link(one, person, handle_at(CHANNELS["telegram"], "bot:house", number), "operator")
        async with at_work(opened.worker()):
            yield opened


async def say(parts: Lab, text: str, **more: Any) -> str:
    message = await parts.accept.accept(submission(text, **more))
    await eventually(lambda: settled(parts))
    [told] = await parts.replies_to(message.request_id)
    return told


async def ask_code(parts: Lab, **more: Any) -> str:
    """The command that the answer to `/link` says to send."""
    return (await say(parts, "/link", **(more or PRIVATE))).split("\n")[1]


async def handles_of(parts: Lab, person: str) -> set[Handle]:
    book = await store.load(parts.database)
    return {handle for handle, one in book.handles.items() if one.person == person}


async def test_a_code_links_the_account_that_sends_it_once_and_is_audited(parts: Lab) -> None:
    command = await ask_code(parts)
    assert await say(parts, command.lower().replace("-", ""), **MAIL) == LINKED_TEXT
    mail = Handle("email", "", "ann@example.org")
    assert await handles_of(parts, "ann") == {Handle("telegram", "", "5488"), mail}
    assert await say(parts, command, **{**PRIVATE, "sender": "9", "thread": "9"}) == WRONG_TEXT
    await parts.rule_book.refresh()
    member = parts.rule_book.rules.members[SystemId("System1/echo")]
    assert owns(Owner("email", "bot:house", "ann@example.org"), member)
    [row] = await parts.database.rows("select actor, detail::text from audit where action = 'people:linked'")
    asked = {"channel": "telegram", "endpoint": None, "identity": "5488"}
    linked = {"person_id": "ann", "channel": "email", "endpoint": None, "identity": "ann@example.org"}
    assert (row["actor"], json.loads(row["detail"])) == ("code of telegram:5488", {**linked, "asked_by": asked})
    # It can be undone, and the unlinked one proves nothing any more.
    assert await ask_code(parts, **MAIL)
    async with parts.database.transaction() as one:
        await store.begin_change(one)
        assert await store.unlink(one, "ann", mail)
    assert await say(parts, "/link", **MAIL) == UNKNOWN_TEXT
    assert await parts.count("select count(*) from link_code") == 1
    await assert_balanced(parts)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ({**PRIVATE, "sender": "9", "thread": "9"}, UNKNOWN_TEXT),
        ({**PRIVATE, "thread": "-5", "chat_type": "group"}, OVERHEARD_TEXT),
        ({**MAIL, "raw": COPIED}, OVERHEARD_TEXT),
        ({**MAIL, "raw": {"headers": TO_US}}, "/link"),  # it may be forged, and is no command
        ({"channel": "api", "sender": "ann"}, CLAIMED_TEXT),
        ({"channel": "irc", "sender": "ann", "chat_type": "private"}, CLAIMED_TEXT),
    ],
)
async def test_no_code_is_given_where_it_is_not_certain_who_asks(parts: Lab, said: dict[str, Any], answer: str) -> None:
    assert await say(parts, "/link", **said) == answer
    assert await parts.count("select count(*) from link_code") == 0


@pytest.mark.parametrize(
    ("said", "answer", "spent"),
    [
        (PRIVATE, SAME_TEXT, True),
        ({**PRIVATE, "sender": "77", "thread": "77"}, TAKEN_TEXT, True),
        ({**PRIVATE, "sender": "9", "thread": "-5", "chat_type": "group"}, READ_TEXT, True),
        ({"channel": "api", "sender": "ann"}, CLAIMED_TEXT, False),
        ({**MAIL, "raw": {"headers": TO_US}}, None, False),  # it may be forged, and is no command
    ],
)
async def test_what_proves_nothing_or_is_another_persons_is_not_linked(
    parts: Lab, said: dict[str, Any], answer: str | None, spent: bool
) -> None:
    command = await ask_code(parts)
    assert await say(parts, command, **said) == (answer or command)
    assert len((await store.load(parts.database)).handles) == 2
    assert (await say(parts, command, **MAIL) == WRONG_TEXT) is spent


async def test_five_wrong_tries_ten_minutes_or_a_new_code_end_one(parts: Lab) -> None:
    stranger = {**PRIVATE, "sender": "9", "thread": "9"}
    first, second = await ask_code(parts), await ask_code(parts)
    assert await say(parts, first, **stranger) == WRONG_TEXT
    for _ in range(4):
        assert await say(parts, "/link 22222-22222", **stranger) == WRONG_TEXT
    assert await say(parts, second, **stranger) == WRONG_TEXT
    third = await ask_code(parts)
    await parts.database.run("update link_code set expires_at = clock_timestamp()")
    assert await say(parts, third, **stranger) == WRONG_TEXT
    assert (await say(parts, "/link 2345", **stranger)).startswith("That is no whole code.")
    assert await say(parts, "/link https://example.org", **stranger) == "/link https://example.org"


async def test_of_two_who_send_one_code_at_once_one_is_linked(parts: Lab) -> None:
    command = await ask_code(parts)
    sent = [submission(command, **{**PRIVATE, "sender": one, "thread": one}) for one in ("8", "9")]
    taken = await asyncio.gather(*map(parts.accept.accept, sent))
    await eventually(lambda: settled(parts))
    told = sorted([text for one in taken for text in await parts.replies_to(one.request_id)])
    assert told == sorted([LINKED_TEXT, WRONG_TEXT])
    assert len(await handles_of(parts, "ann")) == 2


async def test_a_turn_that_runs_again_finds_its_code_used_by_itself_alone(parts: Lab) -> None:
    code = code_in((await ask_code(parts)).partition(" ")[2])
    assert code is not None
    first, other = RequestId(new_uuid7()), RequestId(new_uuid7())
    async with parts.database.transaction() as one:
        used = [await store.use_code(one, code, message) for message in (first, first, other)]
    assert used == [StoredOwner("ann", Handle("telegram", "", "5488"))] * 2 + [None]


async def test_no_model_is_told_a_code(parts: Lab) -> None:
    command = await ask_code(parts)
    await say(parts, "hello", **PRIVATE)
    await say(parts, command, **MAIL)
    for said in (PRIVATE, MAIL):
        message = submission("what now?", **said)
        taken = await parts.accept.accept(message)
        conversation = await parts.database.value(
            "select c.name from message_inbox join conversation c using (conversation) where request_id = $1",
            taken.request_id,
        )
        now = message.envelope.event.observed_at
        shown = await classification.history(parts.database, conversation, new_uuid7(), LIMITS["realtime"], now)
        assert command.partition(" ")[2] not in " ".join(one.text for one in shown)
