"""What came late gives way: of each endpoint only a few old conversations are worked on at once, by all workers."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from switchboard.core.policy import tiers
from switchboard.domain.ledger import Item
from switchboard.journey.turn import TurnLimits
from switchboard.lanes.kinds import KINDS
from switchboard.lanes.notifier import WORK
from switchboard.ports.engine import Answer, Journal, Turn, TurnResult
from switchboard.store.work import lanes
from tests.hands import Hand, Scripted, a_hand, assert_balanced, at_work, message_of, rescue, settled
from tests.lab import Lab, envelope_json, lab, submission
from tests.servers import open_server
from tests.waiting import eventually

MOST = 4
LATE = (0, 0, 0, 0, 1000)


def _sent(ago: timedelta) -> dict[str, str]:
    return {"sent_at": (datetime.now(UTC) - ago).isoformat()}


async def write(parts: Lab, sender: str, text: str = "hi", *, late: bool = True, endpoint: str = "bot:house") -> None:
    """A message, two hours late or live."""
    more: dict[str, Any] = {"of_event": _sent(timedelta(hours=2) if late else timedelta(seconds=1))}
    await parts.accept.accept(submission(text, sender=sender, channel="api", endpoint=endpoint, **more))


async def running(parts: Lab) -> Counter[int]:
    """How many late lanes run, by endpoint."""
    rows = await parts.database.rows("select flow >> 32 as endpoint from lane where state = 'running' and tier = 4")
    return Counter(row["endpoint"] for row in rows)


async def test_those_that_claim_at_once_never_take_a_fifth(database_url: str) -> None:
    async with lab(database_url) as parts, AsyncExitStack() as stack:
        for n in range(24):
            await write(parts, f"s{n}", endpoint=f"bot:{n % 2}")
        hands = [await stack.enter_async_context(a_hand(parts.database)) for _ in range(8)]
        done = list[Item]()
        while len(done) < 24:
            rounds = await asyncio.gather(*(hand.claim(0, 0, 0, 0, 3) for hand in hands))
            assert max((await running(parts)).values()) <= MOST
            for hand, items in zip(hands, rounds, strict=True):
                done += items
                for item in items:
                    assert (await hand.answer(item)).ok
        assert len({item.lane for item in done}) == 24


async def test_who_claims_while_another_commits_passes_over_its_endpoint(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as one, a_hand(parts.database) as other:
        for n in range(12):
            await write(parts, f"s{n}", endpoint=f"bot:{n % 2}")
        async with parts.database.transaction() as open_:
            [first] = await lanes.claim(open_, one.worker, tuple(KINDS), {"work": (0, 0, 0, 0, 1)})
            items = await other.claim(*LATE)
            assert len(items) == MOST
            assert {item.flow >> 32 for item in items} != {first.flow >> 32}
        assert len(await other.claim(*LATE)) == MOST - 1


async def test_random_steps_agree_with_counting(database_url: str) -> None:
    """One claim takes what the limit leaves: no more, and never less while there is a place."""
    chance = random.Random(7)
    async with lab(database_url) as parts, AsyncExitStack() as stack:
        hands = [await stack.enter_async_context(a_hand(parts.database)) for _ in range(3)]
        held = list[tuple[Hand, Item]]()
        ready = "select flow >> 32 as endpoint from lane where tier = 4 and state = 'ready' and not delayed"
        for n in range(120):
            endpoint, who = f"bot:{chance.randrange(3)}", f"s{chance.randrange(12)}"
            await write(parts, who, str(n), endpoint=endpoint, late=chance.random() < 0.85)
            hand, places = chance.choice(hands), chance.randrange(6)
            if chance.random() < 0.4:
                before, waiting = (
                    await running(parts),
                    Counter([r["endpoint"] for r in await parts.database.rows(ready)]),
                )
                taken = await hand.claim(0, 0, 0, 0, places)
                room = sum(min(MOST - before[one], count) for one, count in waiting.items())
                assert sum(item.tier == tiers.LATE for item in taken) == min(places, room)
                held += [(hand, item) for item in taken]
                assert all(count <= MOST for count in (await running(parts)).values())
            while held and chance.random() < 0.4:
                owner, item = held.pop(chance.randrange(len(held)))
                assert await (owner.fail(item) if chance.random() < 0.3 else _answered(owner, item))


async def test_any_claim_takes_what_the_rules_of_places_say(database_url: str) -> None:
    """Each tier of a pool takes its places; what is left goes to those that have used up theirs, the highest first."""
    chance = random.Random(11)
    urgencies = ("high_priority", "interactive", "default", "passive")
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        for n in range(60):
            for m in range(chance.randrange(30)):
                more: dict[str, Any] = {"tier": chance.choice(urgencies), "endpoint": f"bot:{chance.randrange(4)}"}
                if chance.random() < 0.2:
                    more |= {"tier": "default", "of_event": _sent(timedelta(hours=2))}
                await parts.accept.accept(submission(sender=f"s{n}-{m % 7}", channel="api", thread=str(m), **more))
            await parts.database.run("update lane set pool = 'route' where hashtext(key::text) % 3 = 0")
            quota = {
                pool: tuple(chance.randrange(chance.choice([2, 9])) for _ in range(5)) for pool in ("work", "route")
            }
            expected = _fair(quota, await _claimable(parts))
            items = await lanes.claim(parts.database, hand.worker, tuple(KINDS), quota)
            rows = await parts.database.rows("select key, pool from lane where key = any($1)", [i.lane for i in items])
            pool_of = {row["key"]: row["pool"] for row in rows}
            assert Counter((pool_of[item.lane], item.tier) for item in items) == expected
            for item in items:
                assert (await hand.answer(item)).ok


async def _claimable(parts: Lab) -> Counter[tuple[str, int]]:
    """How many lanes of each pool and tier may be claimed; none of the late ones runs."""
    rows = await parts.database.rows(
        "select pool, tier, flow >> 32 as endpoint, count(*) as n from lane where state = 'ready' group by 1, 2, 3"
    )
    found = Counter[tuple[str, int]]()
    for row in rows:
        found[row["pool"], row["tier"]] += min(row["n"], MOST) if row["tier"] == tiers.LATE else row["n"]
    return found


def _fair(quota: Mapping[str, tuple[int, ...]], waiting: Counter[tuple[str, int]]) -> Counter[tuple[str, int]]:
    got = Counter[tuple[str, int]]()
    for pool, places in quota.items():
        for tier, n in enumerate(places):
            got[pool, tier] = min(n, waiting[pool, tier])
        for tier, n in enumerate(places):
            left = sum(places) - sum(got[pool, one] for one in range(len(places)))
            if got[pool, tier] >= n:
                got[pool, tier] += min(left, waiting[pool, tier] - got[pool, tier])
    return +got


async def _is(one: int, other: int) -> bool:
    return one == other


async def _answered(hand: Hand, item: Item) -> bool:
    return (await hand.answer(item)).ok


async def test_what_a_dead_worker_had_is_counted_no_more(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as dead, a_hand(parts.database) as alive:
        for n in range(9):
            await write(parts, f"s{n}")
        assert len(await dead.claim(*LATE)) == MOST
        assert await alive.claim(*LATE) == []
        await dead.die()
        await eventually(lambda: rescue(parts.database))
        assert len(await alive.claim(*LATE)) == MOST
        assert await alive.claim(*LATE) == []


async def test_each_endpoint_has_its_own_and_senders_take_turns(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        for n in range(8):
            await parts.accept.accept(
                submission("x", sender="busy", channel="api", thread=f"t{n}", of_event=_sent(timedelta(hours=1)))
            )
        for endpoint in ("bot:house", "bot:other"):
            for who in ("anna", "ben"):
                await write(parts, who, endpoint=endpoint)
        items = await hand.claim(*LATE)
        assert sorted(Counter(item.flow >> 32 for item in items).values()) == [2, MOST]
        assert sorted(Counter(item.flow for item in items).values()) == [1, 1, 1, 1, 2], "busy has what others leave"


async def test_the_limit_counts_in_each_pool(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        for n in range(12):
            await write(parts, f"s{n}")
        half = "update lane set pool = 'route' where key in (select key from lane where tier = 4 limit 6)"
        await parts.database.run(half)
        assert len(await hand.claim(*LATE, pool="route")) == MOST
        assert len(await hand.claim(*LATE)) == MOST


async def test_live_messages_go_first_and_make_their_conversation_live(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        for n in range(6):
            await write(parts, f"s{n}", "old")
        assert len(await hand.claim(*LATE)) == MOST
        waits = "select m.sender from lane l join message_inbox m using (conversation) where l.state = 'ready' limit 1"
        await write(parts, await parts.database.value(waits), "new", late=False)
        await write(parts, "somebody", "new", late=False)
        items = await hand.claim(0, 0, 9, 0)
        assert len(items) == 2
        texts = await _texts(parts, hand, items)
        assert sorted(texts) == ["new", "old"], "in a conversation the order is kept"
        for item in items:
            await hand.answer(item)
        assert await _texts(parts, hand, await hand.claim(0, 0, 9, 0)) == ["new"]


async def test_a_live_message_where_all_that_waits_came_late_wakes_workers(database_url: str) -> None:
    """Those who looked before passed over the conversation; whether its process knows the lanes makes no difference."""
    async with lab(database_url) as parts, lab(database_url) as other:
        for sender, process in (("ann", parts), ("bob", other)):
            await write(parts, sender)
            await parts.database.run("update lane set ready_at = ready_at - interval '1 minute'")
            woken = list[str]()
            with process.notifier.subscribe(WORK, partial(woken.append, sender)):
                await write(process, sender)
                assert not woken, "it came late as well"
                await write(process, sender, late=False)
                assert woken == [sender]


async def _texts(parts: Lab, hand: Hand, items: list[Item]) -> list[str]:
    ids = [await message_of(hand.database, item) for item in items]
    sql = "select envelope #>> '{payload,normalized_text}' from message_inbox where request_id = $1"
    return [str(await parts.database.value(sql, one)) for one in ids]


@pytest.mark.parametrize("most", [1, 3])
async def test_workers_answer_live_messages_while_an_account_catches_up(database_url: str, most: int) -> None:
    async with lab(database_url) as parts:
        busy, seen, go_on = Counter[str](), list[int](), asyncio.Event()

        async def play(turn: Turn, _: Journal) -> TurnResult:
            text = turn.text
            busy[text] += 1
            seen.append(busy["old"])
            if text == "old":
                await go_on.wait()
            busy[text] -= 1
            return Answer(text)

        for n in range(10):
            await write(parts, f"s{n}", "old")
        limits = TurnLimits(attempts=1, timeout=30, backoff_base=0.01, backoff_cap=0.02)
        engines = {"echo": Scripted(play)}
        workers = [parts.worker(engines, catch_up=most, poll=0.02, limits=limits) for _ in range(2)]
        async with at_work(*workers):
            await eventually(lambda: _is(busy["old"], most))
            await write(parts, "live", "new", late=False)
            answered = "select count(*) from outbox where text = 'new'"
            await eventually(lambda: parts.count(answered))
            assert busy["old"] == most
            go_on.set()
            await eventually(lambda: settled(parts))
        assert max(seen) == most
        assert await parts.count("select count(*) from outbox") == 11
        await assert_balanced(parts)


async def test_people_see_that_an_account_catches_up_and_which_messages_wait(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path) as server, a_hand(server.lab.database) as hand:
        for n in range(MOST + 1):
            about: dict[str, Any] = {"of_event": _sent(timedelta(hours=1)), "sender": f"s{n}"}
            assert (await server.submit(envelope_json(**about))).is_success
        assert (await server.submit(envelope_json(sender="live"))).is_success
        beat = {"channel": "telegram", "endpoint": "bot:house", "instance_id": "i", "state": "healthy"}
        assert (await server.http.post("/v1/connectors/heartbeat", json=beat)).is_success
        assert [item.tier for item in await hand.claim(*LATE)] == [tiers.LATE] * MOST + [2]
        [shown] = (await server.http.get("/v1/connectors")).json()["connectors"]
        assert shown["catching_up"] == MOST + 1

        notes = []
        for message in (await server.http.get("/v1/messages")).json()["messages"]:
            explained = (await server.http.get(f"/v1/messages/{message['request_id']}/explain")).json()
            notes += explained["notes"]
        told = f"of its account, {MOST} such conversations are worked on now"
        assert notes == [f"it arrived late, so current messages go first; {told}"]
