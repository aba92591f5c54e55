"""The life of an account, hours of it in virtual time: outages, rivals, patience, typing, and what is told of them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from msgspec.structs import replace

from switchboard.connectors.kernel.intake import Handling
from switchboard.connectors.kernel.runner import SILENT
from switchboard.core.envelope.read import read_envelope
from switchboard.core.policy.tiers import LATE, TIERS, tier_of
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Batch, Later, Refused, Session, Uncertain
from switchboard.testing.connectors import ScriptedPlatform, ScriptedSwitchboard, in_no_time, passes
from switchboard.testing.connectors.platform import CAPABILITIES
from switchboard.testing.connectors.running import connector, listening, scripted, texts, until
from tests.integration.test_connector_conformance import Around, Planted

TYPING = replace(CAPABILITIES, typing_s=5.0)
SLOW = replace(CAPABILITIES, receive_window_s=60.0)
"""Of a platform whose long polls last 20 s, for hours that are not to be long."""
LEASE = "POST /v1/connectors/lease"


def state(switchboard: ScriptedSwitchboard) -> str:
    """What the last heartbeat says."""
    return str(switchboard.heartbeats[-1]["state"])


def test_typing_is_renewed_while_a_turn_runs_and_ends_with_the_reply() -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(TYPING), scripted()
        async with connector(platform.configured, switchboard):
            await platform.says("t", "hello")
            await until(lambda: bool(switchboard.accepted), "the message is accepted")
            switchboard.answering = {"t": {"thread": "t"}}
            await passes(1.5)
            assert platform.typing == [{"thread": "t"}], "it is shown soon"
            await passes(20.0)
            assert 5 <= len(platform.typing) <= 6, "it is shown again every 4 s, before it ends"
            outbox_id = switchboard.reply(switchboard.accepted[0], "hi")
            await until(lambda: switchboard.outcome(outbox_id) == "sent", "the reply is sent")
            shown = len(platform.typing)
            switchboard.answering = {}
            await passes(60.0)
            assert len(platform.typing) == shown, "it ends with the reply"

    in_no_time(main())


def test_a_draft_is_shown_every_second_until_the_reply_or_a_refusal() -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(replace(CAPABILITIES, draft_s=1.0)), scripted()
        async with connector(platform.configured, switchboard):
            await platform.says("t", "hello")
            await until(lambda: bool(switchboard.accepted), "the message is accepted")
            await passes(30.0)
            assert not any("written" in one for one in switchboard.requests), "an idle account asks for nothing"
            switchboard.answering = {"t": {"thread": "t"}, "u": {"thread": "u"}}
            switchboard.writing = {"t": (7, ""), "u": (8, "")}
            await passes(10.0)
            assert platform.drafts == []
            began = len(switchboard.requests)
            for n in range(1, 101):
                switchboard.writing = {"t": (7, "word " * n), "u": (8, "**still**")}
                await passes(0.1)
            asked = sum("written" in one for one in switchboard.requests[began:])
            assert 9 <= asked <= 11
            assert platform.drafts.count((8, "still")) + platform.drafts.count((8, "**still**")) == 1
            assert 9 <= sum(number == 7 for number, _ in platform.drafts) <= 11
            platform.drafting = [OSError("away"), Later(20.0)]
            for n in range(3):
                switchboard.writing = {"t": (7, f"{n}")}
                await passes(1.0)
            before = len(platform.drafts)
            switchboard.writing = {"t": (7, "during the pause")}
            await passes(15.0)
            assert len(platform.drafts) == before
            await passes(10.0)
            platform.drafting = [Refused("not here", "blocked")]
            switchboard.writing = {"t": (7, "refused")}
            await passes(2.0)
            switchboard.writing = {"t": (7, "not tried"), "u": (8, "welcome")}
            await passes(2.0)
            assert platform.drafts[before:] == [(7, "during the pause"), (7, "refused"), (8, "welcome")]
            outbox_id = switchboard.reply(switchboard.accepted[0], "hi")
            await until(lambda: switchboard.outcome(outbox_id) == "sent", "the reply is sent")
            assert [part.text for part in platform.posts] == ["hi"]
            platform.drafting = [Refused("no drafts")]
            for n in range(5):
                switchboard.writing = {"u": (8, f"more {n}")}
                await passes(1.0)
            ended = len(switchboard.requests)
            assert platform.drafts[-1] == (8, "more 0")
            await passes(30.0)
            assert not any("written" in one for one in switchboard.requests[ended:])

    in_no_time(main())


@pytest.mark.parametrize("server", ["an earlier release", "a broken one", "one that is away"])
def test_drafts_that_cannot_be_had_harm_nobody(server: str) -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(replace(CAPABILITIES, draft_s=1.0)), scripted()
        switchboard.answering = {"t": {"thread": "t"}}
        if server == "one that is away":
            switchboard.closed = {"/v1/connectors/written"}
        if server == "a broken one":
            switchboard.writing, switchboard.closed, switchboard.outage = {}, {"/v1/connectors/written"}, 422
        async with connector(platform.configured, switchboard):
            await passes(60.0)
            asked = sum("written" in one for one in switchboard.requests)
            assert (asked > 30) is (server == "one that is away")
            await platform.says("t", "hello")
            await until(lambda: bool(switchboard.accepted), "the message is accepted")
            outbox_id = switchboard.reply(switchboard.accepted[0], "hi")
            await until(lambda: switchboard.outcome(outbox_id) == "sent", "the reply is sent")
        assert platform.opened == 1

    in_no_time(main())


def test_typing_is_shown_soon_after_a_start_for_turns_running_or_resumed() -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(TYPING), scripted()
        switchboard.answering = {"running": {"thread": "running"}}
        async with connector(platform.configured, switchboard):
            await until(lambda: bool(platform.typing), "it is shown")
            assert switchboard.requests.count(LEASE) == 1, "the first lease tells"
            switchboard.answering |= {"again": {"thread": "again"}}
            await passes(2.0)
            assert {"thread": "again"} in platform.typing
            await passes(10.0)
            before = switchboard.requests.count(LEASE)
            await passes(60.0)
            assert switchboard.requests.count(LEASE) - before <= 13, "later it is asked no more often than before"

    in_no_time(main())


def test_typing_in_many_conversations_takes_few_connections() -> None:
    busy = list[int]()

    class Slow(Around):
        def __init__(self, platform: Planted, session: Session) -> None:
            super().__init__(platform, session)
            self.typing, self.open = self.slow, 0

        async def slow(self, address: JsonObject) -> None:
            self.open += 1
            busy.append(self.open)
            await asyncio.sleep(0.02)
            self.open -= 1
            await self.session.typing(address)

    async def main() -> None:
        platform, switchboard = Planted(TYPING, defect=Slow), scripted()
        async with connector(platform.configured, switchboard):
            await platform.says("t", "hello")
            await until(lambda: bool(switchboard.accepted), "the message is accepted")
            switchboard.answering = {f"t{number}": {"thread": f"t{number}"} for number in range(100)}
            await passes(3.5)
            assert sorted(one["thread"] for one in platform.typing) == sorted(switchboard.answering)

    in_no_time(main())
    assert max(busy) <= 5


def test_an_account_asks_no_more_often_for_many_messages_than_for_one() -> None:
    async def main() -> int:
        platform, switchboard = ScriptedPlatform(TYPING), scripted()
        async with connector(platform.configured, switchboard):
            await passes(10.0)
            before = switchboard.requests.count(LEASE)
            for number in range(100):
                await platform.says(f"t{number % 7}", f"message {number}")
                await passes(0.1)
            return switchboard.requests.count(LEASE) - before

    assert in_no_time(main()) <= 11


def test_a_platform_without_typing_is_never_asked_and_failures_do_no_harm() -> None:
    async def main(typing_s: float) -> ScriptedPlatform:
        platform, switchboard = ScriptedPlatform(replace(CAPABILITIES, typing_s=typing_s)), scripted()
        switchboard.answering = {"t": {"thread": "t"}}
        async with connector(platform.configured, switchboard) as running:
            await passes(10.0)
            async with platform.away():
                await passes(1.0)
            await platform.says("t", "hello")
            await until(lambda: bool(switchboard.accepted), "the message is accepted")
            assert not running.task.done()
        return platform

    assert in_no_time(main(0.0)).typing == []
    assert in_no_time(main(5.0)).typing


@pytest.mark.parametrize(("server", "expected"), [(0, 12), (20, 12), (None, None)])
def test_how_much_butlers_hear_is_told_to_servers_that_know_it(server: int | None, expected: int | None) -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(handling=Handling(start="all", heard=12)), scripted()
        switchboard.heard = server
        async with connector(platform.configured, switchboard):
            await platform.says("t", "hello")
            await until(lambda: bool(switchboard.accepted), "the message is accepted")
            await passes(20.0)
        assert switchboard.heard == expected
        assert any(b'"heard"' in body for body in switchboard.told) == (server is not None)

    in_no_time(main())


def test_a_kill_ends_also_what_waits_when_it_is_cancelled() -> None:
    class Stubborn(Around):
        async def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
            del cursor
            for _ in range(9):
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
            yield Batch(())

    async def main() -> None:
        platform, switchboard = Planted(defect=Stubborn), scripted()
        async with connector(platform.configured, switchboard) as running:
            await until(lambda: "POST /v1/outbox/next" in switchboard.requests, "the account is open")
            async with asyncio.timeout(60.0):
                await running.killed()
            assert running.task.done()

    in_no_time(main())


@asynccontextmanager
async def soon_sent(platform: ScriptedPlatform, switchboard: ScriptedSwitchboard) -> AsyncIterator[None]:
    """A reply is made, and whatever the block does, sent within 5 s, long before its lease ends."""
    async with connector(platform.configured, switchboard):
        await platform.says("t", "hello")
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        outbox_id, began = switchboard.reply(switchboard.accepted[0], "hi"), asyncio.get_running_loop().time()
        yield
        await until(lambda: switchboard.outcome(outbox_id) == "sent", "the reply is sent", more_s=60.0)
        assert asyncio.get_running_loop().time() - began < 5.0


def test_replies_in_transit_when_the_session_broke_are_sent_by_the_next() -> None:
    """The request for replies ends with its session, and then the server cannot take back what it has answered."""

    class Wire(ScriptedSwitchboard):
        given = False

        async def handle(self, request: httpx2.Request, dead: asyncio.Event) -> httpx2.Response:
            answer = await super().handle(request, dead)
            if not self.given and request.url.path == "/v1/outbox/next" and answer.json()["replies"]:
                self.given = True
                await asyncio.Event().wait()
            return answer

    async def main() -> None:
        platform, switchboard = ScriptedPlatform(), Wire(asyncio.get_running_loop().time)
        async with soon_sent(platform, switchboard):
            await until(lambda: switchboard.given, "the reply is leased")
            async with platform.away():
                await passes(0.1)

    in_no_time(main())


@pytest.mark.parametrize("path", ["/next", "/parts"])
def test_an_answer_lost_on_the_way_is_requested_again_in_the_same_session(path: str) -> None:
    class Wire(ScriptedSwitchboard):
        lost = False

        async def handle(self, request: httpx2.Request, dead: asyncio.Event) -> httpx2.Response:
            answer = await super().handle(request, dead)
            if not self.lost and request.url.path.endswith(path) and answer.json().get("replies", [path]):
                self.lost = True
                raise httpx2.ReadError("the connection was reset")
            return answer

    async def main() -> None:
        platform, switchboard = ScriptedPlatform(), Wire(asyncio.get_running_loop().time)
        async with soon_sent(platform, switchboard):
            pass
        assert (switchboard.lost, platform.opened, [one.text for one in platform.posts]) == (True, 1, ["hi"])

    in_no_time(main())


def test_a_standby_says_so_and_is_not_behind() -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(), scripted()
        async with connector(platform.configured, switchboard), connector(platform.configured, switchboard):
            await passes(300.0)
            told = {(beat["instance_id"], beat["state"], beat["lag_s"]) for beat in switchboard.heartbeats}
            assert sorted((state, lag) for _, state, lag in told if state != "starting") == [
                ("healthy", None),
                ("standby", None),
            ]
            assert len({instance for instance, *_ in told}) == 2
            assert len(switchboard.heartbeats) <= 8, "every two minutes each"

    in_no_time(main())


def test_a_rival_poller_makes_us_degraded_and_we_recover_unaided() -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(), scripted()
        async with connector(platform.configured, switchboard) as running:
            await passes(5.0)
            opened, platform.rival = platform.opened, "another program polls for this bot"
            platform.changed.set()
            await passes(600.0)
            assert state(switchboard) == "degraded"
            assert "another program polls" in switchboard.heartbeats[-1]["error_message"]
            assert switchboard.heartbeats[-1]["lag_s"] > 400
            assert 9 <= platform.opened - opened <= 20, "after 5 s, then less and less often, up to a minute"
            assert not running.task.done()
            platform.rival = ""
            await platform.says("t", "hello")
            await passes(75.0)
            assert (state(switchboard), switchboard.heartbeats[-1]["lag_s"]) == ("healthy", None)
            assert len(switchboard.accepted) == 1

    in_no_time(main())


def test_a_refused_sign_in_is_failed_and_retried_every_quarter_of_an_hour() -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(), scripted()
        async with connector(platform.configured, switchboard) as running:
            await passes(5.0)
            async with platform.away():
                platform.refusal = "the token was revoked: get another one"
                await passes(1.0)
            await passes(60.0)
            opened = platform.opened
            await passes(3600.0)
            assert (state(switchboard), platform.opened - opened) == ("failed", 4)
            assert "revoked" in switchboard.heartbeats[-1]["error_message"]
            assert not running.task.done()
            platform.refusal = ""
            await passes(905.0)
            assert state(switchboard) == "healthy"

    in_no_time(main())


def test_a_silent_platform_is_degraded_reconnected_and_ends_the_process() -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(), scripted()
        async with connector(platform.configured, switchboard) as running:
            await passes(5.0)
            assert state(switchboard) == "healthy"
            opened, platform.silent = platform.opened, True
            await passes(3 * CAPABILITIES.receive_window_s + 1.5)
            assert (platform.opened - opened, state(switchboard)) == (1, "degraded")
            platform.silent = False
            await platform.says("t", "hello")
            await passes(3 * CAPABILITIES.receive_window_s)
            assert (len(switchboard.accepted), state(switchboard)) == (1, "healthy")
            platform.silent = True
            await passes(60.0)
            assert running.task.done()
            assert running.task.result() == SILENT
            assert state(switchboard) == "stopped"

    in_no_time(main())


def test_since_when_a_platform_takes_no_replies_is_told_until_it_takes_one() -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(handling=Handling(start="all", on_uncertain="ask")), scripted()
        await platform.says("t", "hello")
        async with connector(platform.configured, switchboard):
            await until(lambda: bool(switchboard.accepted), "the message is accepted")
            platform.outcomes = [Later(60.0, "nobody listens"), Uncertain("no answer")]
            first = switchboard.reply(switchboard.accepted[0], "hi")
            await passes(5.0)
            assert (state(switchboard), switchboard.outcome(first)) == ("degraded", "")
            since, _, why = switchboard.heartbeats[-1]["error_message"].partition(": ")
            assert why == "replies wait: nobody listens"
            await passes(60.0)
            assert (state(switchboard), switchboard.outcome(first)) == ("degraded", "uncertain")
            assert switchboard.heartbeats[-1]["error_message"] == f"{since}: no answer", "since the first"
            switchboard.reply(switchboard.accepted[0], "again")
            await passes(5.0)
            assert (state(switchboard), switchboard.heartbeats[-1]["error_message"]) == ("healthy", None)

    in_no_time(main())


def test_one_log_line_tells_that_an_account_is_connected_lost_or_back() -> None:
    async def main() -> list[str]:
        platform = ScriptedPlatform()
        with listening() as logged:
            async with connector(platform.configured, scripted()):
                await passes(120.0)
                async with platform.away():
                    await passes(300.0)
                await passes(120.0)
                return [line for line in logged() if "connected" in line]

    connected, lost, back = in_no_time(main())
    assert "'account connected'" in connected
    assert "'account not connected'" in lost
    assert "'why'" in lost
    assert back == connected


def test_the_lag_of_an_account_is_told_when_it_begins_and_when_it_ends() -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(), scripted()
        sent_at = datetime.now(UTC) - timedelta(hours=1)
        async with connector(platform.configured, switchboard):
            await passes(5.0)
            switchboard.refusal = lambda _: "internal_error"
            platform.add("t", "hello", event={"sent_at": sent_at})
            await passes(5.0)
            assert 3600 <= switchboard.heartbeats[-1]["lag_s"] < 3700
            switchboard.refusal = lambda _: None
            await passes(130.0)
            assert switchboard.heartbeats[-1]["lag_s"] is None

    in_no_time(main())


def test_two_programs_answering_each_other_are_stopped_despite_restarts() -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(replace(SLOW, brake=(4, 600.0)), poll_s=20.0), scripted()
        replies = list[str]()
        for number in range(20):
            await platform.says("t", f"message {number}")
            async with connector(platform.configured, switchboard) as running:
                await until(lambda: len(switchboard.accepted) > len(replies), "it is accepted")
                replies.append(switchboard.reply(switchboard.accepted[-1], "an answer"))
                await passes(150.0 if number % 3 else 2.0)
                await running.killed()
        async with connector(platform.configured, switchboard):
            await passes(7200.0)
            outcomes = [switchboard.outcome(one) for one in replies]
            assert outcomes == ["sent"] * 5 + ["failed"] * 15
            switchboard.resend(replies[7])
            await passes(5.0)
            assert switchboard.outcome(replies[7]) == "sent", "a person may always send it"
        await platform.says("t", "a person, an hour later")
        async with connector(platform.configured, switchboard):
            await passes(5.0)
            last = switchboard.reply(switchboard.accepted[-1], "an answer")
            await passes(5.0)
            assert switchboard.outcome(last) == "sent"

    in_no_time(main())


def test_half_an_hour_without_the_platform_leaves_nothing_dead_or_in_doubt() -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(SLOW, poll_s=20.0), scripted()
        await platform.says("t", "tell me")
        text = "\n\n".join(f"{number} ".ljust(80, "x") for number in range(5))
        async with connector(platform.configured, switchboard):
            await until(lambda: bool(switchboard.accepted), "the message is accepted")
            async with platform.away():
                outbox_id = switchboard.reply(switchboard.accepted[0], text)
                await passes(1800.0)
            assert (switchboard.outcome(outbox_id), platform.posts) == ("", [])
            for _ in range(5):
                platform.outcomes += [Later(40.0)]
            await passes(600.0)
            assert switchboard.outcome(outbox_id) == "sent"
        assert [part.text for part in platform.posts] == text.split("\n\n")
        assert set(switchboard.receipts) == {"later", "sent"}
        assert {part["state"] for part in switchboard.parts(outbox_id).values()} == {"sent"}

    in_no_time(main())


def test_one_long_failing_item_of_a_batch_is_quarantined_despite_a_restart() -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(SLOW, poll_s=20.0), scripted()
        switchboard.refusal = lambda envelope: "internal_error" if texts([envelope]) == ["number 3"] else None
        for number in range(1, 6):
            await platform.says(f"t{number}", f"number {number}")
        async with connector(platform.configured, switchboard):
            await passes(60.0)
            assert (texts(switchboard.accepted), switchboard.cursor) == ([f"number {n}" for n in (1, 2, 4, 5)], None)
            await passes(780.0)
            await platform.says("t9", "later")
            assert switchboard.quarantined == {}, "not before a quarter of an hour"
            await passes(240.0)
            assert list(switchboard.quarantined) == ["3"]
            assert switchboard.cursor == "6"
        async with connector(platform.configured, switchboard):
            await passes(1200.0)
        assert (len(switchboard.accepted), list(switchboard.quarantined), switchboard.cursor) == (5, ["3"], "6")

    in_no_time(main())


def test_while_nothing_else_succeeds_what_fails_waits() -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(SLOW, poll_s=20.0), scripted()
        switchboard.refusal = lambda _: "internal_error"
        await platform.says("t", "hello")
        async with connector(platform.configured, switchboard):
            await passes(7200.0)
            assert switchboard.quarantined == {}
            switchboard.refusal = lambda _: None
            await passes(130.0)
        assert len(switchboard.accepted) == 1

    in_no_time(main())


def test_an_idle_account_asks_the_platform_nothing_and_us_seldom() -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(replace(SLOW, typing_s=5.0), poll_s=20.0), scripted()
        async with connector(platform.configured, switchboard):
            await passes(60.0)
            asked, platform_asked = len(switchboard.requests), platform.requests
            await passes(3600.0)
            assert platform.requests == platform_asked
            counted = Counter(switchboard.requests[asked:])
        assert counted.pop(LEASE) <= 721, "the lease, every 5 s"
        assert counted.pop("POST /v1/outbox/next") <= 181, "a long poll of 20 s"
        assert counted == {"POST /v1/connectors/heartbeat": 30}

    in_no_time(main())


def test_a_first_start_keeps_what_is_there_as_history_despite_a_kill() -> None:
    async def main() -> None:
        platform, switchboard = ScriptedPlatform(handling=Handling(start="7d")), scripted()
        for number in range(60):
            sent_at = switchboard.since - timedelta(hours=number + 1)
            platform.add(f"t{number}", f"old {number}", event={"sent_at": sent_at})
        async with connector(platform.configured, switchboard) as running:
            await until(lambda: len(switchboard.accepted) >= 50, "a part of it is there")
            await running.killed()
        platform.add("t", "new", event={"sent_at": switchboard.since + timedelta(seconds=1)})
        async with connector(platform.configured, switchboard):
            await until(lambda: switchboard.cursor == "61", "all is there")
        tiers = Counter(one["control"].get("ingestion_tier", "full") for one in switchboard.accepted)
        assert (tiers, texts(switchboard.accepted)[-1]) == ({"history": 60, "full": 1}, "new")

    in_no_time(main())


def test_what_waited_at_the_platform_gives_way_to_what_is_written_now() -> None:
    async def main() -> list[int]:
        platform, switchboard = ScriptedPlatform(), scripted()
        for minutes in (60, 1):
            platform.add(f"t{minutes}", "hello", event={"sent_at": datetime.now(UTC) - timedelta(minutes=minutes)})
        async with connector(platform.configured, switchboard):
            await until(lambda: len(switchboard.accepted) == 2, "both are there")
        envelopes = [read_envelope(json.dumps(one).encode()) for one in switchboard.accepted]
        assert {one.control.policy_tier for one in envelopes} == {"default"}, "the server ranks them, by sent_at"
        return [tier_of(one, datetime.now(UTC)) for one in envelopes]

    assert in_no_time(main()) == [LATE, TIERS["default"]]
