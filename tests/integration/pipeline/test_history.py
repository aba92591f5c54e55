"""What a model is shown of the conversation: how far back, how much, in which order."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import pytest

from switchboard.journey.accept import Submission
from switchboard.pipeline import (
    MessagePipeline,
)
from switchboard.store.database import query
from switchboard.store.ids import IdSequence, new_uuid7
from tests.embedding import (
    HEALTH,
    call,
    calling,
    context,
    talk,
)
from tests.lab import Lab, submission
from tests.postgres import AN_ID

REALTIME = ("telegram", "whatsapp", "slack", "discord")


@pytest.mark.parametrize("channel", REALTIME)
async def test_of_a_chat_fifteen_minutes_are_shown_both_sides(house: Lab, pool: asyncpg.Pool, channel: str) -> None:
    minutes = [("too old", 16), ("old", 14), ("new", 1)]
    request_id, key = await talk(house, [(text, timedelta(minutes=ago)) for text, ago in minutes])
    model = calling(call("health"))
    given = context(source_channel=channel, conversation=key, request_id=str(request_id))
    await MessagePipeline(pool, model, "switchboard").process("and tomorrow?", {}, request_context=given)
    assert [(one["from"], one["author"], one["text"]) for one in model.data["history"]] == [
        ("them", "alice", "old"),
        ("us", HEALTH, "re: old"),
        ("them", "alice", "new"),
        ("us", HEALTH, "re: new"),
    ]


async def test_of_a_chat_thirty_messages_are_shown_the_newest(house: Lab, pool: asyncpg.Pool) -> None:
    said = [(f"message {n}", timedelta(seconds=100 - n)) for n in range(20)]
    request_id, key = await talk(house, said)
    model = calling(call("health"))
    given = context(conversation=key, request_id=str(request_id))
    await MessagePipeline(pool, model, "switchboard").process("and?", {}, request_context=given)
    history = model.data["history"]
    assert len(history) == 30
    assert history[-1]["text"] in {"message 19", "re: message 19"}
    assert not {"message 0", "re: message 0"} & {one["text"] for one in history}


async def test_of_a_chat_no_more_than_50_000_tokens_are_shown(house: Lab, pool: asyncpg.Pool) -> None:
    said = [(f"message {n} " + "lorem ipsum " * 4000, timedelta(seconds=100 - n)) for n in range(9)]
    request_id, key = await talk(house, said)
    model = calling(call("health"))
    given = context(conversation=key, request_id=str(request_id))
    await MessagePipeline(pool, model, "switchboard").process("and?", {}, request_context=given)
    texts = [one["text"] for one in model.data["history"]]
    assert 2 <= len(texts) < 18
    assert texts[-1].startswith("re: message 8"), "the newest is kept"


async def test_of_mail_the_whole_chain_is_shown_up_to_50_000_tokens(house: Lab, pool: asyncpg.Pool) -> None:
    days = [(f"mail {n} " + "lorem ipsum " * 4000, timedelta(days=9 - n)) for n in range(9)]
    request_id, key = await talk(house, days)
    model = calling(call("health"))
    given = context(source_channel="email", conversation=key, request_id=str(request_id))
    await MessagePipeline(pool, model, "switchboard").process("re: re:", {}, request_context=given)
    texts = [one["text"][:6].strip() for one in model.data["history"]]
    assert 2 <= len(texts) < 18
    assert texts[-1].startswith("re: ma"), "the newest is kept"
    assert "mail 0" not in texts

    short = [(f"mail {n}", timedelta(days=900 - n)) for n in range(40)]
    request_id, key = await talk(house, short, thread="long ago")
    given = context(source_channel="email", conversation=key, request_id=str(request_id))
    await MessagePipeline(pool, model, "switchboard").process("re: re:", {}, request_context=given)
    assert len(model.data["history"]) == 80


@pytest.mark.parametrize("channel", ["api", "mcp", "cli"])
async def test_of_an_api_nothing_is_shown(house: Lab, pool: asyncpg.Pool, channel: str) -> None:
    request_id, key = await talk(house, [("before", timedelta(minutes=1))])
    model = calling(call("health"))
    given = context(source_channel=channel, conversation=key, request_id=str(request_id))
    await MessagePipeline(pool, model, "switchboard").process("x", {}, request_context=given)
    assert model.data["history"] == []


@pytest.mark.parametrize("channel", ["telegram", "email"])
async def test_any_split_of_messages_into_batches_gives_the_same_prompts(
    house: Lab, pool: asyncpg.Pool, channel: str
) -> None:
    texts = [f"message {n}" + " lorem ipsum" * 4000 for n in range(6)]  # more than 50,000 tokens, so some are dropped
    prompts = set()
    for cuts in range(2 ** (len(texts) - 1)):
        thread = f"split {cuts}"
        batches: list[list[Submission]] = [[]]
        for n, text in enumerate(texts):
            batches[-1].append(submission(text, channel=channel, thread=thread))
            if cuts >> n & 1:
                batches.append([])
        for batch in batches:
            await house.accept.accept_all(batch)
        key = await house.database.value("select name from conversation where name like $1", f"%/split%20{cuts}")
        model = calling(call("health"))
        given = context(source_channel=channel, conversation=key)
        await MessagePipeline(pool, model, "switchboard").process("and?", {}, request_context=given)
        prompts.add(tuple(one["text"] for one in model.data["history"]))
    [history] = prompts
    assert 0 < len(history) < len(texts)
    assert list(history) == texts[-len(history) :]


async def test_the_fifteen_minutes_count_from_the_message_however_long_it_waited(
    house: Lab, pool: asyncpg.Pool
) -> None:
    _, key = await talk(house, [("too old", timedelta(minutes=36)), ("just before", timedelta(minutes=21))])
    received = datetime.now(UTC) - timedelta(minutes=20)
    model = calling(call("health"))
    given = context(conversation=key, request_id=str(IdSequence().next(1, received.timestamp())[0]))
    await MessagePipeline(pool, model, "switchboard").process("and?", {}, request_context=given)
    assert [one["text"] for one in model.data["history"]] == ["just before", "re: just before"]


async def test_of_other_conversations_nothing_is_shown(house: Lab, pool: asyncpg.Pool) -> None:
    await talk(house, [("a secret", timedelta(minutes=1))], thread="other")
    request_id, key = await talk(house, [("mine", timedelta(minutes=1))], thread="own")
    model = calling(call("health"))
    given = context(conversation=key, request_id=str(request_id))
    await MessagePipeline(pool, model, "switchboard").process("x", {}, request_context=given)
    assert [one["text"] for one in model.data["history"]] == ["mine", "re: mine"]


FILL = """
insert into conversation
select conversation_key('telegram/bot/' || n), 'telegram/bot/' || n from generate_series(0, 999) n;
insert into conversation_start select conversation, AN_ID from conversation cross join generate_series(1, 1) n;
insert into message_inbox
select AN_ID, conversation_key('telegram/bot/' || n % 1000), 'telegram', 'bot', 's', null,
       '{"payload": {"normalized_text": "hello"}}', 'application/json', now() from generate_series(1, 10000) n;
insert into outbox
select lane_key('send', null, conversation), row_number() over (partition by conversation), request_id,
       request_id, 'System1/health', 'telegram', 'bot', null, 'x', 'e', 'text', 'sent', false, null, null,
       now(), now() from message_inbox;
insert into session_token (session_id, hash, conversation, request_id, team_id, candidates, expires_at)
select request_id, decode(md5(request_id::text), 'hex'), conversation, request_id, 'root', '[]', now() + interval '1 h'
from message_inbox;
insert into route_call select request_id, 1, request_id, 'health', null, '', true, '' from message_inbox;
insert into classification (request_id, conversation, team_id, n, candidates, result, tokens_in, tokens_out, ms)
select request_id, conversation, 'root', 1, '{}', '{}', 1, 1, 1 from message_inbox;
insert into transcription (request_id, n, blob, model, language, host, seconds)
select request_id, 0, '', 'm', 'auto', 'h', 1 from message_inbox;
analyze;
""".replace("AN_ID", AN_ID)


async def test_what_runs_for_every_message_reads_by_index(house: Lab) -> None:
    await house.database.run(FILL)
    now, some = datetime.now(UTC), UUID(int=7)
    asked: dict[str, tuple[object, ...]] = {
        "history_in": ("telegram/bot/7", UUID(int=0), new_uuid7(), 30, 400_000),
        "history_out": ("telegram/bot/7", now, 30, 400_000),
        "find_session": (b"x",),
        "end_session": (some,),
        "open_session": (some, b"x", "c", some, "root", "[]", timedelta(minutes=1)),
        "record_call": (some, 5, "health", None, "", True, "", some),
        "calls": (some, some),
        "log": (some, "c", "root", None, [], "{}", None, 1, 1, None, 1, None),
        "attempts": (some,),
    }
    for name, arguments in asked.items():
        rows = await house.database.rows("explain " + query(f"classification.{name}"), *arguments)
        plan = "\n".join(row[0] for row in rows)
        assert "Seq Scan" not in plan, f"{name}:\n{plan}"


async def test_the_log_counts_the_time_in_which_the_history_was_read(
    house: Lab, pool: asyncpg.Pool, database_url: str
) -> None:
    request_id, key = await talk(house, [("hello", timedelta(minutes=1))])
    process = MessagePipeline(pool, calling(call("health")), "switchboard").process
    given = context(conversation=key, request_id=str(request_id))
    other = await asyncpg.connect(database_url)
    async with other.transaction():
        await other.execute("lock table switchboard.outbox in access exclusive mode")
        running = asyncio.create_task(process("and?", {}, request_context=given))
        while not await other.fetchval("select exists (select from pg_locks where not granted)"):
            await asyncio.sleep(0)
        await other.execute("select pg_sleep(0.2)")
    await running
    await other.close()
    assert await house.database.value("select ms from classification") >= 200
