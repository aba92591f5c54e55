"""The worker: crash-only. Whatever happens to it or to its database, others go on, and it fences itself."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from switchboard.domain.errors import Unavailable
from switchboard.domain.ledger import Item
from switchboard.embedded.postmaster import stop
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.lanes.worker import Worker, WorkerSettings
from switchboard.ports.engine import Answer, Journal, Turn, TurnResult
from switchboard.ports.maintenance import MaintenanceTask
from switchboard.store.database import Database
from switchboard.store.work import lanes
from tests.hands import Scripted, assert_balanced, at_work, rescue, settled, turns
from tests.lab import Lab, lab, submission
from tests.waiting import SOON, eventually


class Slow:
    """An engine whose turns wait for `go`; knows who runs, who was cancelled, and who finished."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.running: set[str] = set()
        self.begun = Counter[str]()
        self.cancelled = Counter[str]()

    async def run(self, turn: Turn, _: Journal) -> TurnResult:
        who = turn.envelope.sender.identity
        self.begun[who] += 1
        self.running.add(who)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled[who] += 1
            raise
        finally:
            self.running.discard(who)
        return Answer("ok")

    async def busy(self, count: int) -> None:
        await eventually(lambda: _is(len(self.running) == count))


async def _is(condition: bool) -> bool:
    return condition


async def fill(parts: Lab, conversations: int, each: int = 1) -> None:
    given = [submission(str(n), sender=f"s{w}", channel="api") for n in range(each) for w in range(conversations)]
    await parts.accept.accept_all(given)


async def cut_off(parts: Lab) -> None:
    """Terminate the connections that show that workers live."""
    await parts.database.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'switchboard worker' and datname = current_database()"
    )


async def test_a_worker_cut_off_cancels_its_turns_reregisters_and_answers_once(database_url: str) -> None:
    slow = Slow()
    async with lab(database_url) as parts:
        await fill(parts, 3)
        async with at_work(parts.worker({"echo": slow})):
            await slow.busy(3)
            before = await parts.count("select max(process_id) from process")
            await cut_off(parts)
            await eventually(lambda: _is(slow.cancelled.total() == 3))
            await slow.busy(3)
            slow.go.set()
            await eventually(lambda: settled(parts))
            assert await parts.count("select max(process_id) from process") > before
        assert slow.begun == {"s0": 2, "s1": 2, "s2": 2}
        assert Counter(t[2] for t in await turns(parts)) == {"lost": 3, "answered": 3}
        assert await parts.count("select count(*) from outbox") == 3
        await assert_balanced(parts)


async def test_a_worker_that_was_declared_dead_stops_itself_before_anything_else(database_url: str) -> None:
    slow = Slow()
    async with lab(database_url) as parts:
        await fill(parts, 1)
        async with at_work(parts.worker({"echo": slow}, ttl=0.8)):
            await slow.busy(1)
            await parts.database.run("delete from process")
            await eventually(lambda: _is(slow.cancelled.total() == 1))
            slow.go.set()
            await eventually(lambda: settled(parts))
        assert await parts.count("select count(*) from outbox") == 1
        await assert_balanced(parts)


async def test_why_a_worker_was_interrupted_is_told_in_words(database_url: str) -> None:
    async with lab(database_url) as parts:

        async def gone() -> None:
            raise Unavailable("the database has gone away")

        task = MaintenanceTask("look", 60.0, gone)
        worker = Worker(parts.database, parts.notifier, {}, WorkerSettings(poll=0.1), (task,))
        with capture_logs() as logs:
            async with at_work(worker):
                await eventually(lambda: _is(any(line["event"] == "worker interrupted" for line in logs)))
        told = [line for line in logs if line["log_level"] == "warning"]
        assert {(line["event"], line.get("reason")) for line in told} == {
            ("worker interrupted", "the database has gone away")
        }


async def test_a_beat_that_takes_too_long_is_an_outage_and_no_defect(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(_: Database, __: int) -> bool:
        await asyncio.Event().wait()
        return True

    async with lab(database_url) as parts:
        monkeypatch.setattr(lanes, "beat", hangs)
        worker = Worker(parts.database, parts.notifier, {}, WorkerSettings(poll=0.1, ttl=0.8))
        with capture_logs() as logs:
            async with at_work(worker):
                await eventually(lambda: _is(any(line["event"] == "worker interrupted" for line in logs)))
                monkeypatch.undo()
        assert {line.get("reason") for line in logs if line["log_level"] != "info"} <= {
            "a beat took too long: the database or this machine is overloaded",
            "no beat got through in time",
        }


def _stop_everything(seconds: float) -> None:
    """As SIGSTOP does: nothing of the process runs, and then all goes on."""
    time.sleep(seconds)


async def test_a_worker_stopped_for_long_begins_nothing_when_it_wakes_up(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, really, stops = Slow(), lanes.load_work, iter([2.2])
    slow.go.set()

    async def load(database: Database, items: Sequence[Item]) -> list[lanes.Work]:
        work = await really(database, items)
        _stop_everything(next(stops, 0.0))
        return work

    monkeypatch.setattr(lanes, "load_work", load)
    async with lab(database_url) as parts:
        await fill(parts, 1)
        async with at_work(parts.worker({"echo": slow}, ttl=4.0)):
            await eventually(lambda: settled(parts))
        assert slow.begun.total() == 1
        *before, last = [outcome for _, _, outcome, _ in await turns(parts)]
        assert (set(before), last) == ({"lost"}, "answered")
        await assert_balanced(parts)


async def test_a_worker_told_to_stop_finishes_what_runs_and_begins_nothing_more(database_url: str) -> None:
    slow = Slow()
    async with lab(database_url) as parts:
        await fill(parts, 2, each=3)
        worker = parts.worker({"echo": slow})
        running = asyncio.create_task(worker.run())
        await slow.busy(2)
        worker.stop()
        slow.go.set()
        async with asyncio.timeout(SOON):
            await running
        assert slow.begun.total() <= 4, "what had been handed on already may still be begun"
        assert slow.cancelled.total() == 0
        assert await parts.count("select count(*) from process") == 0
        assert await parts.count("select count(*) from lane where state = 'running'") == 0
        async with at_work(parts.worker({"echo": slow})):
            await eventually(lambda: settled(parts))
        assert slow.begun.total() == 6
        await assert_balanced(parts)


async def test_what_a_stopping_worker_leaves_moves_at_once_and_costs_no_attempt(
    database_url: str,
) -> None:
    slow, attempts = Slow(), []

    async def note(turn: Turn, _: Journal) -> TurnResult:
        attempts.append(turn.attempt)
        return Answer("ok")

    async with lab(database_url) as parts:
        await fill(parts, 2)
        first = parts.worker({"echo": slow}, drain=0.1)
        running = asyncio.create_task(first.run())
        await slow.busy(2)
        # The second would not look again for a minute: only the ring of the first tells it.
        async with at_work(parts.worker({"echo": Scripted(note)}, poll=60, rescue_every=60)):
            first.stop()
            async with asyncio.timeout(SOON):
                await running
            await eventually(lambda: settled(parts))
        assert slow.cancelled.total() == 2
        assert attempts == [1, 1]
        assert {t[2] for t in await turns(parts)} == {"answered"}
        await assert_balanced(parts)


@pytest.mark.parametrize(
    ("conversations", "each", "settings"),
    [
        (1, 40, {}),  # a lane is given up after 16 items
        (30, 1, {"pools": {"work": 1}}),
        (30, 2, {"pools": {"work": 7}}),
        (6, 3, {"catch_up": 1}),
    ],
)
async def test_nothing_that_is_ready_waits_until_a_worker_looks_again(
    database_url: str, conversations: int, each: int, settings: dict[str, Any]
) -> None:
    """The workers would look again after a minute."""
    async with lab(database_url) as parts:
        late = "catch_up" in settings
        sent = {"of_event": {"sent_at": "2020-01-01T00:00:00Z"}} if late else {}
        async with at_work(*(parts.worker(poll=60, rescue_every=60, **settings) for _ in range(2))):
            for n in range(each):
                given = [submission(str(n), sender=f"s{w}", channel="api", **sent) for w in range(conversations)]
                await parts.accept.accept_all(given)
            await eventually(lambda: settled(parts))
        if late:
            assert await parts.count("select count(*) from lane where kind = 'turn' and tier <> 4") == 0
        await assert_balanced(parts)


class _LateClaim:
    """A claim that the server carries out although its worker has gone: the moment in which no lane may be lost."""

    def __init__(self) -> None:
        self.under_way = asyncio.Event()
        self.go_on = asyncio.Event()
        self.tasks: list[asyncio.Task[list[Item]]] = []
        self._claim = lanes.claim

    async def __call__(
        self,
        database: Database,
        worker: int,
        kinds: Sequence[str],
        quota: Mapping[str, Sequence[int]],
        served: Sequence[tuple[str, int, int]],
        **more: int,
    ) -> list[Item]:
        async def at_the_server() -> list[Item]:
            await self.go_on.wait()
            return await self._claim(database, worker, kinds, quota, served, **more)

        self.tasks.append(asyncio.create_task(at_the_server()))
        self.under_way.set()
        return await asyncio.shield(self.tasks[-1])


@pytest.mark.parametrize("lost", [False, True])
async def test_a_claim_under_way_while_its_worker_leaves_leaves_nothing_behind(
    database_url: str, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    slow, late = Slow(), _LateClaim()
    async with lab(database_url) as parts:
        await fill(parts, 2)
        with monkeypatch.context() as patched:
            patched.setattr(lanes, "claim", late)
            worker = parts.worker({"echo": slow}, drain=0.2)
            running = asyncio.create_task(worker.run())
            async with asyncio.timeout(SOON):
                await late.under_way.wait()
                if lost:
                    await cut_off(parts)
                worker.stop()
                await running
                late.go_on.set()
                await asyncio.gather(*late.tasks)
        assert slow.running == set(), "no turn outlives its worker's right to run it"
        slow.go.set()
        async with at_work(parts.worker({"echo": slow})):
            await eventually(lambda: settled(parts))
        await assert_balanced(parts)


async def test_a_worker_whose_task_is_cancelled_leaves_no_turn_running(database_url: str) -> None:
    slow = Slow()
    async with lab(database_url) as parts:
        await fill(parts, 2)
        running = asyncio.create_task(parts.worker({"echo": slow}).run())
        await slow.busy(2)
        running.cancel()
        await asyncio.wait([running])
        assert slow.running == set()
        assert slow.cancelled.total() == 2


async def test_a_worker_without_advisory_locks_is_taken_over_by_its_ttl_alone(database_url: str) -> None:
    slow = Slow()
    async with lab(database_url) as parts:
        await fill(parts, 1)
        running = asyncio.create_task(parts.worker({"echo": slow}, use_lock=False, ttl=1.0).run())
        await slow.busy(1)
        async with at_work(parts.worker(use_lock=False, ttl=1.0)):
            assert await rescue(parts.database) == 0
            running.cancel()
            await asyncio.wait([running])
            await eventually(lambda: settled(parts))
        await assert_balanced(parts)


async def test_a_message_wakes_a_sleeping_worker_of_another_process(database_url: str) -> None:
    async with lab(database_url) as server, lab(database_url) as elsewhere:
        async with at_work(elsewhere.worker(poll=60)):
            await eventually(lambda: _sleeping(elsewhere))
            for n in range(3):
                await server.accept.accept(submission(str(n), channel="api"))
                await eventually(lambda: settled(server))
        await assert_balanced(server)


async def _sleeping(parts: Lab) -> bool:
    return await parts.count("select count(*) from process") == 1


async def test_workers_cut_off_at_random_answer_everything_once_and_in_order(database_url: str) -> None:
    dice = random.Random(3)

    async def play(_: Turn, journal: Journal) -> TurnResult:
        async def act(_: Any) -> None:
            await asyncio.sleep(0.001)

        await journal.step("a", act)
        await journal.step("b", act)
        return Answer("ok")

    async with lab(database_url) as parts:
        await fill(parts, 10, each=20)
        workers: list[Worker] = [parts.worker({"echo": Scripted(play)}, pools={"work": 6}) for _ in range(3)]

        async def cut_one_or_see_the_end() -> bool:
            pids = await parts.database.rows(
                "select pid from pg_stat_activity"
                " where application_name = 'switchboard worker' and datname = current_database()"
            )
            if pids and dice.random() < 0.15:
                await parts.database.rows("select pg_terminate_backend($1)", dice.choice(pids)["pid"])
            return await settled(parts)

        async with at_work(*workers):
            await eventually(cut_one_or_see_the_end)
        assert await parts.count("select count(*) from outbox") == 200
        assert await parts.count("select count(*) from delivery where state = 'answered'") == 200
        await assert_balanced(parts)


@asynccontextmanager
async def a_server(place: Path) -> AsyncIterator[str]:
    async with embedded_postgres(place, settings={"fsync": "off"}) as server:
        yield server.url


@pytest.mark.slow
@pytest.mark.parametrize("immediate", [False, True], ids=["restarted", "crashed"])
async def test_a_worker_lives_through_a_restart_of_postgresql(place: Path, immediate: bool) -> None:
    data, slow = place / "data", Slow()
    async with a_server(data) as url, lab(url) as parts:
        await fill(parts, 3)
        async with at_work(parts.worker({"echo": slow})):
            await slow.busy(3)
            await stop(data, immediate=immediate)
            with pytest.raises(Unavailable):
                await parts.accept.accept(submission("nobody home"))
            await eventually(lambda: _is(slow.cancelled.total() == 3))
            slow.go.set()
            async with a_server(data):
                accepted = await parts.accept.accept(submission("again", sender="late", channel="api"))
                await eventually(lambda: settled(parts))
                assert await parts.replies_to(accepted.request_id) == ["ok"]
                assert await parts.count("select count(*) from outbox") == 4
                await assert_balanced(parts)
