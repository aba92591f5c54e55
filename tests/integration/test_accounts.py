"""One instance serves an account, a second takes over when it is gone, and the first can write nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from switchboard.app.ops.maintenance import ACCOUNTS_STAY
from switchboard.core.people.strangers import Contact, Scope
from switchboard.domain.errors import AccountHeld, Conflict
from switchboard.domain.ledger import OutboxPart, PartState
from switchboard.domain.routing import Move
from switchboard.domain.shown import Connector, ContactState
from switchboard.journey.reply import PullRequest
from switchboard.ports.channel import Receipt
from switchboard.store.connectors import accounts
from switchboard.store.connectors.accounts import Holder, forget, lease_account, recent
from switchboard.store.connectors.heartbeats import by_account, list_connectors
from switchboard.store.messages import outbox
from switchboard.store.messages.outbox import MAX_SENDS
from switchboard.store.people import strangers, tokens
from tests.hands import a_hand, at_work, settled
from tests.lab import Lab, envelope_json, lab, submission
from tests.ruling import error_of
from tests.servers import CONNECTOR, Opened, open_server
from tests.waiting import eventually

ACCOUNT = {"channel": "telegram", "endpoint": "bot:house"}
NOTHING: dict[str, Any] = {
    "replays": 0,
    "moved": {},
    "answering": [],
    "recent": [],
    "heard": 0,
    "accepts": ["passages", "recordings"],
}


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data") as opened:
        opened.http.headers.update(await opened.token_for(CONNECTOR))
        yield opened


async def told(server: Opened, instance: str) -> Any:
    """The lease, without the time of the first one."""
    answer = (await leased(server, instance)).json()
    assert datetime.fromisoformat(answer.pop("since")) < datetime.now(UTC) + timedelta(minutes=1)
    return answer


async def leased(server: Opened, instance: str) -> httpx2.Response:
    return await server.http.post("/v1/connectors/lease", json={**ACCOUNT, "instance_id": instance})


async def saved(server: Opened, lease: int, cursor: str) -> httpx2.Response:
    return await server.http.put("/v1/connectors/cursor", json={**ACCOUNT, "lease": lease, "cursor": cursor})


async def released(server: Opened, lease: int) -> httpx2.Response:
    return await server.http.delete("/v1/connectors/lease", params={**ACCOUNT, "lease": lease})


async def run_out(parts: Lab) -> None:
    """The holder has not renewed its lease in time."""
    await parts.database.run("update connector_account set lease_until = clock_timestamp() - interval '1 ms'")


async def test_a_second_instance_takes_over_when_the_first_is_gone(server: Opened) -> None:
    assert await told(server, "a") == {"lease": 1, "ttl_s": 15.0, "cursor": None, **NOTHING}
    assert (await saved(server, 1, "884")).status_code == 200
    assert await told(server, "a") == {
        "lease": 1,
        "ttl_s": 15.0,
        "cursor": "884",
        **NOTHING,
    }, "renewed"
    held = await leased(server, "b")
    assert error_of(held) == (409, "account_held")
    assert held.json()["error"]["details"]["instance_id"] == "a"
    assert 0 < int(held.headers["retry-after"]) <= 15
    await run_out(server.lab)
    assert await told(server, "b") == {"lease": 2, "ttl_s": 15.0, "cursor": "884", **NOTHING}
    assert error_of(await saved(server, 1, "885")) == (409, "lease_lost"), "the first one wakes up"
    assert error_of(await leased(server, "a")) == (409, "account_held")
    assert (await leased(server, "b")).json()["cursor"] == "884"


async def test_a_lease_that_ran_out_writes_nothing_though_nobody_took_over(server: Opened) -> None:
    await leased(server, "a")
    await run_out(server.lab)
    assert error_of(await saved(server, 1, "884")) == (409, "lease_lost")
    assert error_of(await released(server, 1)) == (409, "lease_lost")
    assert await told(server, "a") == {"lease": 2, "ttl_s": 15.0, "cursor": None, **NOTHING}


async def test_a_released_account_is_taken_at_once(server: Opened) -> None:
    await leased(server, "a")
    assert (await released(server, 1)).json() == {"status": "released"}
    assert (await leased(server, "b")).json()["lease"] == 2
    assert error_of(await released(server, 1)) == (409, "lease_lost")
    assert error_of(await leased(server, "a")) == (409, "account_held")


async def test_a_killed_instance_is_back_at_once_and_its_dead_process_shut_out(
    server: Opened,
) -> None:
    await leased(server, "a")
    body = {**ACCOUNT, "instance_id": "a", "restarted": True}
    assert (await server.http.post("/v1/connectors/lease", json=body)).json()["lease"] == 2
    assert error_of(await saved(server, 1, "884")) == (409, "lease_lost")
    assert (await leased(server, "a")).json()["lease"] == 2, "renewed"
    other = await server.http.post("/v1/connectors/lease", json={**body, "instance_id": "b"})
    assert error_of(other) == (409, "account_held")


async def echoed(parts: Lab) -> None:
    """A reply waits for the connector."""
    await parts.accept.accept(submission("hello"))
    async with at_work(parts.worker()):
        await eventually(lambda: settled(parts))


@pytest.mark.parametrize(("instance", "freed"), [("a", True), ("b", False)])
async def test_replies_of_a_killed_process_are_free_for_its_own_instance_only(
    database_url: str, instance: str, freed: bool
) -> None:
    async with lab(database_url) as parts:
        await echoed(parts)
        account = ("telegram", "bot:house")
        first = await lease_account(parts.database, *account, Holder("a"))
        pull = PullRequest(*account)
        [reply] = await parts.replies.pull(replace(pull, account_lease=first.lease))
        begun = OutboxPart(part=0, of=2, state="intent")
        assert await outbox.record_part(parts.database, reply.outbox_id, reply.lease, begun) == "intent"
        await run_out(parts)
        second = await lease_account(parts.database, *account, Holder(instance, restarted=True))
        late = await outbox.record_part(parts.database, reply.outbox_id, reply.lease, begun)
        again = await parts.replies.pull(replace(pull, account_lease=second.lease))
        assert late == (None if freed else "intent")
        assert [(one.text, [part.state for part in one.parts]) for one in again] == [("hello", ["uncertain"])] * freed


async def test_replies_a_session_has_not_begun_to_send_are_free_for_the_next_one(database_url: str) -> None:
    account = ("telegram", "bot:house")
    async with lab(database_url) as parts:
        for number in range(3):
            await parts.accept.accept(submission("hello", thread=f"{number}"))
        async with at_work(parts.worker()):
            await eventually(lambda: settled(parts))
        first = await lease_account(parts.database, *account, Holder("a"))
        pull = PullRequest(*account, account_lease=first.lease, idempotent=True)
        unread, begun = await parts.replies.pull(replace(pull, limit=2))
        [in_doubt] = await parts.replies.pull(replace(pull, idempotent=False))
        intent = OutboxPart(part=0, of=1, state="intent")
        assert await outbox.record_part(parts.database, begun.outbox_id, begun.lease, intent) == "intent"
        assert (await lease_account(parts.database, *account, Holder("a", reconnected=True))).lease == first.lease
        assert await outbox.record_part(parts.database, unread.outbox_id, unread.lease, intent) is None, "too late"
        assert [one.outbox_id for one in await parts.replies.pull(pull)] == [unread.outbox_id]
        for one in (begun, in_doubt):
            assert (await outbox.get_reply(parts.database, one.outbox_id)).state == "sending"


async def test_a_session_that_keeps_breaking_uses_no_attempts_of_unbegun_replies(
    database_url: str,
) -> None:
    account = ("telegram", "bot:house")
    async with lab(database_url) as parts:
        await echoed(parts)
        lease = await lease_account(parts.database, *account, Holder("a"))
        pull = PullRequest(*account, account_lease=lease.lease, idempotent=True)
        for _ in range(MAX_SENDS + 1):
            [reply] = await parts.replies.pull(pull)
            assert reply.attempts == 1
            await lease_account(parts.database, *account, Holder("a", reconnected=True))


@pytest.mark.parametrize("holder", [Holder("a", restarted=True), Holder("a", reconnected=True)])
async def test_replies_that_are_leased_at_the_moment_of_a_reconnection_are_free(
    database_url: str, holder: Holder
) -> None:
    """Nobody waits any more for the answer to the old request."""
    account = ("telegram", "bot:house")
    async with lab(database_url) as parts:
        await echoed(parts)
        first = await lease_account(parts.database, *account, Holder("a"))
        async with parts.database.transaction() as one:
            await accounts.require_lease(one, *account, first.lease)
            await outbox.lease(one, outbox.pull_pool(*account), limit=1, lease_s=60.0, idempotent=True)
            again = asyncio.create_task(lease_account(parts.database, *account, holder))
            await eventually(lambda: one_waits(parts))
        second = await again
        pull = PullRequest(*account, account_lease=second.lease, idempotent=True)
        assert [one.text for one in await parts.replies.pull(pull)] == ["hello"]


async def one_waits(parts: Lab) -> bool:
    """For a lock of the database."""
    blocked = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    return await parts.count(blocked) == 1


async def test_what_is_begun_during_a_reconnection_is_given_to_nobody(database_url: str) -> None:
    """It would be sent twice: its intent was taken."""
    account = ("telegram", "bot:house")
    async with lab(database_url) as parts:
        await echoed(parts)
        first = await lease_account(parts.database, *account, Holder("a"))
        pull = PullRequest(*account, account_lease=first.lease, idempotent=True)
        [reply] = await parts.replies.pull(pull)

        async with parts.database.transaction() as one:
            begun = await outbox.record_part(one, reply.outbox_id, reply.lease, OutboxPart(0, 1, "intent"))
            assert begun == "intent"
            again = asyncio.create_task(lease_account(parts.database, *account, Holder("a", reconnected=True)))
            await eventually(lambda: one_waits(parts))
        await again
        assert await parts.replies.pull(pull) == []
        assert [part.state for part in await outbox.parts_of(parts.database, reply.outbox_id)] == ["intent"]


async def test_an_intent_put_off_by_the_platform_leaves_no_doubt_after_a_kill(
    database_url: str,
) -> None:
    async with lab(database_url) as parts:
        await echoed(parts)
        first = await lease_account(parts.database, "telegram", "bot:house", Holder("a"))
        pull = PullRequest("telegram", "bot:house", account_lease=first.lease)
        [reply] = await parts.replies.pull(pull)

        async def says(part: int, state: PartState) -> PartState | None:
            row = OutboxPart(part=part, of=3, state=state)
            return await outbox.record_part(parts.database, reply.outbox_id, reply.lease, row)

        assert [await says(0, "intent"), await says(0, "sent"), await says(0, "later")] == ["intent", "sent", "sent"]
        assert [await says(1, "intent"), await says(1, "later"), await says(2, "later")] == ["intent", "later", "later"]
        second = await lease_account(parts.database, "telegram", "bot:house", Holder("a", restarted=True))
        [again] = await parts.replies.pull(replace(pull, account_lease=second.lease))
        assert [(one.part, one.state) for one in again.parts] == [(0, "sent")]
        assert await says(1, "later") is None, "the lease has ended"


@pytest.mark.parametrize(("size", "status"), [(65_536, 200), (65_537, 422)])
async def test_a_cursor_is_any_text_of_64_kib(server: Opened, size: int, status: int) -> None:
    await leased(server, "a")
    cursor = '{"é": "\\u2028"}'.ljust(size, "x")
    assert (await saved(server, 1, cursor)).status_code == status
    assert (await leased(server, "a")).json()["cursor"] == (cursor if status == 200 else None)


async def test_of_many_instances_that_ask_at_once_one_gets_the_account(database_url: str) -> None:
    async with lab(database_url) as parts:
        for holders in (1, 2, 3):
            asked = (lease_account(parts.database, "telegram", "bot:house", Holder(f"{holders}-{n}")) for n in range(8))
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
            [got] = [one for one in outcomes if not isinstance(one, AccountHeld)]
            assert not isinstance(got, BaseException)
            assert got.lease == holders
            await run_out(parts)


async def test_only_the_holder_of_the_account_gets_its_replies(database_url: str) -> None:
    pull = PullRequest("telegram", "bot:house")
    async with lab(database_url) as parts:
        await echoed(parts)
        first = await lease_account(parts.database, "telegram", "bot:house", Holder("a"))
        with pytest.raises(AccountHeld):
            await parts.replies.pull(pull)
        await run_out(parts)
        second = await lease_account(parts.database, "telegram", "bot:house", Holder("b"))
        with pytest.raises(Conflict):
            await parts.replies.pull(replace(pull, account_lease=first.lease))
        [reply] = await parts.replies.pull(replace(pull, account_lease=second.lease))
        assert reply.text == "hello"


async def test_a_removed_account_is_not_missed_and_its_cursor_stays_for_30_days(server: Opened) -> None:
    database = server.lab.database
    beat = {**ACCOUNT, "instance_id": "a", "version": "1", "state": "healthy"}
    assert (await server.http.post("/v1/connectors/heartbeat", json=beat)).is_success
    lease = (await server.http.post("/v1/connectors/lease", json={**ACCOUNT, "instance_id": "a"})).json()["lease"]
    kept = await server.http.put("/v1/connectors/cursor", json={**ACCOUNT, "lease": lease, "cursor": "7"})
    assert kept.is_success
    assert len(await list_connectors(database)) == 1

    [name] = [one.name for one in await tokens.list_tokens(database) if one.role == "connector"]
    assert await tokens.revoke(database, name)

    assert await list_connectors(database) == []
    await database.run("update connector_account set lease_until = now() - interval '31 days'")
    await database.run("update token set revoked_at = now() - interval '29 days' where role = 'connector'")
    assert await forget(database, ACCOUNTS_STAY) == 0
    await database.run("update token set revoked_at = now() - interval '31 days' where role = 'connector'")
    assert await forget(database, ACCOUNTS_STAY) == 1


async def moves(server: Opened, old: str, new: str, lease: int = 1) -> httpx2.Response:
    body = {**ACCOUNT, "lease": lease, "old": old, "new": new}
    return await server.http.post("/v1/connectors/moves", json=body)


async def test_a_conversation_that_moves_twice_is_known_by_its_first_thread(server: Opened) -> None:
    await leased(server, "a")
    for old, new in (("-5", "-100"), ("-5", "-100"), ("-100", "-200"), ("-200", "-5")):
        assert (await moves(server, old, new)).json() == {"status": "saved"}
    assert (await leased(server, "a")).json()["moved"] == {"-100": "-5", "-200": "-5"}
    known = await accounts.moves(server.lab.database)
    assert known == [Move("telegram", "-5", "-100"), Move("telegram", "-5", "-200")], "lint is told of them"
    assert error_of(await moves(server, "-6", "-7", lease=2)) == (409, "lease_lost")


@pytest.mark.parametrize(
    ("scope", "before", "then"),
    [
        ("group", {"-5": "approved"}, {"-100": ("approved", "boss")}),
        ("group", {"-5": "approved", "-100": "stranger"}, {"-100": ("approved", "boss"), "-5": ("stranger", "boss")}),
        ("person", {"-5": "approved"}, {"-100": ("approved", "boss")}),
        ("person", {"-5": "denied"}, {"-100": ("denied", "boss")}),
        ("person", {"-5": "stranger"}, {"-100": ("stranger", "boss")}),
        ("person", {"-5": "denied", "-100": "stranger"}, {"-100": ("denied", "boss"), "-5": ("stranger", "boss")}),
        ("person", {"-5": "approved", "-100": "denied"}, {"-100": ("denied", "boss"), "-5": ("stranger", "boss")}),
        ("person", {"-100": "denied"}, {"-100": ("denied", "boss")}),
    ],
)
async def test_what_was_decided_follows_a_group_or_a_person(
    server: Opened, scope: Scope, before: dict[str, ContactState], then: dict[str, tuple[str, str]]
) -> None:
    """And who decided it; whoever has the old id afterwards is somebody else."""
    database = server.lab.database
    await leased(server, "a")
    for identity, state in before.items():
        added, _ = await strangers.add(database, Contact("telegram", "bot:house", scope, identity), "boss")
        await strangers.decide(database, added, state, "boss")
    for _ in range(2):
        await moves(server, "-5", "-100")
        found = await strangers.list_contacts(database, None, None, 10)
        assert {one.identity: (one.state, one.decided_by) for one in found} == then


async def answering(server: Opened) -> Any:
    asked = {**ACCOUNT, "instance_id": "a", "answering": True}
    return (await server.http.post("/v1/connectors/lease", json=asked)).json()["answering"]


async def test_a_lease_tells_in_which_conversations_a_butler_is_answering(server: Opened) -> None:
    topic = {"chat": -5, "topic": 3, "group": True}
    async with a_hand(server.lab.database) as hand:
        for chat, address, tier in (("1", topic, "full"), ("2", {"chat": 2}, "history"), ("3", {"chat": 3}, "held")):
            about: dict[str, Any] = {"of_event": {"reply_address": address}, "of_control": {"ingestion_tier": tier}}
            assert (await server.submit(envelope_json(thread=chat, **about))).is_success
        assert (await server.submit(envelope_json(thread="4"))).is_success, "a message without an address"
        assert await answering(server) == [], "nothing is claimed yet"
        items = await hand.claim(10, 10, 10)
        assert len(items) == 2
        assert await answering(server) == [{"conversation": "telegram/bot%3Ahouse/1", "address": topic}]
        assert (await leased(server, "a")).json()["answering"] == [], "told to those who ask"
        for item in items:
            await hand.answer(item)
        assert await answering(server) == []


async def beats(server: Opened, instance: str, state: str, lag_s: float | None = None) -> None:
    beat = {**ACCOUNT, "instance_id": instance, "state": state, "lag_s": lag_s}
    assert (await server.http.post("/v1/connectors/heartbeat", json=beat)).is_success


async def shown(server: Opened) -> list[tuple[str, str, str, bool]]:
    known = await list_connectors(server.lab.database)
    return [(one.instance_id, one.state, one.liveness, one.serving) for one in known]


async def test_each_process_of_an_account_is_shown_and_a_standby_changes_nothing(server: Opened) -> None:
    await leased(server, "b")
    await beats(server, "b", "healthy")
    await beats(server, "a", "standby")
    assert await shown(server) == [("a", "standby", "online", False), ("b", "healthy", "online", True)]
    [account] = by_account(await list_connectors(server.lab.database))
    assert account.instance_id == "b", "though the other one was heard of later"

    await beats(server, "b", "stopped")
    assert (await shown(server))[1] == ("b", "stopped", "offline", True)
    await run_out(server.lab)
    await leased(server, "a")
    await beats(server, "a", "healthy")
    assert await shown(server) == [("a", "healthy", "online", True)], "what has ended is forgotten"

    await server.lab.database.run("update connector set last_seen_at = now() - interval '11 minutes'")
    await beats(server, "c", "starting")
    assert await shown(server) == [("c", "starting", "online", False)], "and what was not heard of for long"


async def test_a_token_cannot_fill_the_list_of_processes(server: Opened) -> None:
    await leased(server, "house")
    for n in range(16):
        await beats(server, f"p{n}", "standby")
    one_more = {**ACCOUNT, "instance_id": "one more", "state": "standby"}
    refused = await server.http.post("/v1/connectors/heartbeat", json=one_more)
    assert (*error_of(refused), refused.json()["error"]["field"]) == (429, "too_many_instances", "instance_id")
    assert refused.headers["retry-after"] == "600"
    await beats(server, "p3", "healthy")
    await beats(server, "house", "healthy")
    assert len(await shown(server)) == 17, "those that are known go on, and so does the one that serves the account"
    assert error_of(await server.http.post("/v1/connectors/heartbeat", json=one_more)) == (429, "too_many_instances")

    await beats(server, "p0", "stopped")
    await beats(server, "p1", "stopped")
    assert (await server.http.post("/v1/connectors/heartbeat", json=one_more)).is_success


async def test_since_when_an_account_is_so_and_how_far_it_is_behind(server: Opened) -> None:
    async def now() -> Connector:
        return (await list_connectors(server.lab.database))[0]

    await beats(server, "a", "healthy")
    first = await now()
    await beats(server, "a", "healthy", 90.0)
    second = await now()
    assert (second.since, first.lag_s) == (first.since, None)
    assert second.lag_s is not None
    assert 90 <= second.lag_s < 200, "it grows until the next heartbeat"
    await beats(server, "a", "error")
    assert (await now()).state == "failed"
    assert (await now()).since > first.since


async def test_a_lease_tells_the_last_replies_and_which_of_them_has_failed_once(database_url: str) -> None:
    hour = timedelta(hours=1)
    pull = PullRequest("telegram", "bot:house")
    async with lab(database_url) as parts:
        for sender in ("ann", "bob", "cal"):
            await parts.accept.accept(submission("hello", sender=sender))
        await parts.accept.accept(submission("hello", sender="dan", endpoint="bot:garden"))
        async with at_work(parts.worker()):
            await eventually(lambda: settled(parts))
        for reply in await parts.replies.pull(pull):
            outcome = Receipt("sent") if reply.recipient == "ann" else Receipt("failed", error="braked")
            await parts.replies.receipt(reply.outbox_id, reply.lease, outcome)
            if reply.recipient == "cal":
                await parts.replies.resend(reply.outbox_id)
        found = await recent(parts.database, "telegram", "bot:house", datetime.now(UTC) - hour)
        told = sorted((one.recipient, one.sent_s is not None, one.failed) for one in found)
        assert told == [("ann", True, False), ("bob", False, True), ("cal", False, True)]
        assert {one.conversation for one in found} == {f"telegram/bot%3Ahouse/{who}" for who in ("ann", "bob", "cal")}
        assert await recent(parts.database, "telegram", "bot:house", datetime.now(UTC) + hour) == []


async def test_how_much_butlers_hear_stays_until_the_account_says_something_else(server: Opened) -> None:
    async def heard(**said: object) -> int:
        body = {**ACCOUNT, "instance_id": "a", **said}
        return int((await server.http.post("/v1/connectors/lease", json=body)).json()["heard"])

    assert [await heard(), await heard(heard=20), await heard(), await heard(heard=0)] == [0, 20, 20, 0]
    refused = await server.http.post("/v1/connectors/lease", json={**ACCOUNT, "instance_id": "a", "heard": 21})
    assert refused.status_code == 422
