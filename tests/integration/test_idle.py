"""A day in which nobody writes: a whole switchboard with models, whose clocks are the test's, asks none of them.

Time passes in steps of five minutes. For the database all that is on record becomes that much older, so that whatever
is due after a while is due, again and again; breakers and the account of the day get the test's clock. What counts
requests is the server of the models itself.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from switchboard.app.models import dispatcher as models
from switchboard.app.models.dispatcher import StoredSpending
from switchboard.app.ops import periodic
from switchboard.app.ops.maintenance import maintenance_tasks, retention_tasks
from switchboard.app.runtime import Switchboard
from switchboard.app.settings import Settings
from switchboard.app.wiring import make_worker, open_runtime, open_switchboard
from switchboard.core.policy.budget import Amount, Cap
from switchboard.domain.classification import Candidate
from switchboard.llm.dispatch import Dispatcher
from switchboard.ports.maintenance import MaintenanceTask
from switchboard.server.listener import bind
from switchboard.server.serve import run_server
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.messages.inbox import get_message
from switchboard.store.models import classification
from switchboard.store.models.classification import NewSession, Reservation
from switchboard.store.work import maintenance
from switchboard.testing.scripted_llm import Call, Reply, Request, ScriptedLlm, Status
from tests.hands import at_work
from tests.lab import spent_on, submission
from tests.waiting import eventually

pytestmark = pytest.mark.slow
STEP: Final = timedelta(minutes=5)
STEPS: Final = timedelta(hours=24) // STEP
TODAY: Final = date(2026, 1, 1)
TEAM: Final = {
    "team": {"name": "root"},
    "classify": True,
    "systems": [{"name": "System1/health", "engine": "echo"}, {"name": "System4/root", "engine": "echo"}],
}
_OLDER: Final = """
select string_agg(format('update %I set %s', table_name, times), '; ' order by table_name) from (
    select table_name, string_agg(format('%1$I = %1$I - interval ''5 minutes''', column_name), ', ') as times
    from information_schema.columns
    where table_schema = 'switchboard' and data_type = 'timestamp with time zone'
      and table_name not in ('process', 'migration')
    group by table_name
) t
"""
"""The statement that makes all that is on record that much older; those who live stay as they are."""


@dataclass
class Day:
    """The clock of a day, and what was done in it."""

    seconds: float = 0.0
    tasks: tuple[MaintenanceTask, ...] = ()
    runs: Counter[str] = field(default_factory=Counter)

    def now(self) -> float:
        """For breakers."""
        return self.seconds

    def today(self) -> date:
        """For the account."""
        return (datetime(TODAY.year, TODAY.month, TODAY.day, tzinfo=UTC) + timedelta(seconds=self.seconds)).date()

    def counted(self, made: Callable[..., tuple[MaintenanceTask, ...]], *args: Any) -> tuple[MaintenanceTask, ...]:
        """The maintenance tasks of a worker, each of which counts."""
        some = tuple(replace(task, run=partial(self._run, task)) for task in made(*args))
        self.tasks += some
        return some

    async def _run(self, task: MaintenanceTask) -> object:
        self.runs[task.name] += 1
        return await task.run()

    async def pass_by(self, database: Database) -> None:
        """One step after the other, and in each what is due then."""
        older: str = await database.value(_OLDER)
        known: dict[str, Callable[[], Awaitable[object]]] = {task.name: task.run for task in self.tasks}
        for _ in range(STEPS):
            self.seconds += STEP.total_seconds()
            async with database.connection() as connection:
                await connection.execute(older)
            for name in await maintenance.due(database, list(known)):
                await known[name]()
                await maintenance.done(database, name, None)


@pytest.fixture
def day(monkeypatch: pytest.MonkeyPatch) -> Day:
    """All clocks that models have anything to do with are this one."""
    made = Day()
    monkeypatch.setattr(models, "Dispatcher", partial(Dispatcher, clock=made.now))
    monkeypatch.setattr(models, "StoredSpending", partial(StoredSpending, today=made.today))
    monkeypatch.setattr(periodic, "maintenance_tasks", partial(made.counted, maintenance_tasks))
    monkeypatch.setattr(periodic, "retention_tasks", partial(made.counted, retention_tasks))
    return made


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Switchboard]:
    """Server, worker and all background tasks."""
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(open_runtime(settings))
        switchboard = await stack.enter_async_context(open_switchboard(runtime))
        await stack.enter_async_context(at_work(make_worker(runtime)))
        stop, opened = asyncio.Event(), asyncio.Event()
        serving = asyncio.create_task(run_server(switchboard, bind("127.0.0.1", 0), stop, lambda *_: opened.set()))
        await opened.wait()
        try:
            yield switchboard
        finally:
            stop.set()
            await serving


async def message(switchboard: Switchboard, text: str) -> str:
    """Send one, and wait until it is settled; its state."""
    accepted = await switchboard.accept.accept(submission(text, sender=text))
    assert accepted.decision is None, "it waits for a model"
    found = await get_message(switchboard.runtime.database, accepted.request_id)

    async def over() -> bool:
        nonlocal found
        found = await get_message(switchboard.runtime.database, accepted.request_id)
        return found is not None and found.state != "in_flight"

    await eventually(over)
    assert found is not None
    return found.state


def _asked(llm: ScriptedLlm) -> int:
    return len(llm.requests)


async def _leave_halves(database: Database) -> None:
    """What a process leaves that was killed while it asked: an open session, and money that is set aside."""
    butlers = (Candidate("System1/health"),)
    new = NewSession("telegram/bot/x", new_uuid7(), "root", butlers, timedelta(minutes=10))
    await classification.open_session(database, new, sha256(b"secret").digest())
    await classification.reserve_day(
        database, Reservation(new_uuid7(), TODAY, Amount(10, 3)), Cap(), timedelta(minutes=10)
    )


@pytest.mark.slow
async def test_in_a_day_without_messages_no_model_is_asked(database_url: str, tmp_path: Path, day: Day) -> None:
    """After some trouble: a model in cooldown, a dead letter, what a killed process left behind."""
    ill = True

    def brain(request: Request) -> Reply:
        if request.dialect == "openai-chat" and ill:
            return Reply(fault=Status(500))
        return Reply(calls=(Call("route_to_butler", {"butler": "ghost" if "ghost" in request.prompt else "health"}),))

    program = tmp_path / "claude"
    program.write_text(f"#!{sys.executable} -S\nopen({str(tmp_path / 'started')!r}, 'w')\n", encoding="utf-8")
    program.chmod(0o755)
    async with ScriptedLlm(brain) as llm:
        settings = Settings.model_validate(
            {
                "database_url": database_url,
                "data_dir": tmp_path,
                "teams": [TEAM],
                "worker": {"ttl": 60},  # where the machine stands still, nobody is to be taken for dead
                "models": [
                    {"name": "ill", "kind": "openai", "model": "m", "base_url": f"{llm.url}/v1"},
                    {"name": "well", "kind": "anthropic", "model": "m", "base_url": llm.url},
                    {"name": "cli", "kind": "claude-code", "model": "m", "base_url": llm.url, "program": str(program)},
                ],
                "classify": {"models": ["ill", "well", "cli"], "attempts": 1},
                "spending": {"tokens_per_day": 1_000_000},
                "dead_letters": {"tell_sender": True, "keep_days": 1},
            }
        )
        async with running(settings) as switchboard:
            database = switchboard.runtime.database
            assert [await message(switchboard, text) for text in ("one", "two", "ghost")] == ["answered"] * 2 + ["dead"]
            assert _asked(llm) == 6, "each was asked of both"
            assert await message(switchboard, "four") == "answered"
            assert _asked(llm) == 7, "who failed three times is in cooldown"
            await _leave_halves(database)
            asked, spent = _asked(llm), await spent_on(database, TODAY)

            await day.pass_by(database)

            assert _asked(llm) == asked, "0 calls in 24 hours"
            assert llm.strays == ()
            assert not (tmp_path / "started").exists()
            dead_letters, old = (
                {"log_dead_letters", "tell_senders", "empty_dead_letters"},
                {
                    "forget_sessions",
                    "forget_classifications",
                    "forget_events",
                    "forget_deltas",
                    "forget_strangers",
                    "forget_accounts",
                    "forget_posted",
                    "forget_late_failures",
                    "erase_entries",
                },
            )
            # Not "expire_leases" and "digest": nothing waits for them.
            assert day.runs.keys() == {"make_partitions", "balance_books", "forget_blobs"} | dead_letters | old
            assert min(day.runs[name] for name in ("tell_senders", "balance_books")) >= STEPS
            assert min(day.runs["empty_dead_letters"], day.runs["forget_classifications"]) >= 24
            assert day.runs["forget_sessions"] >= 24 * 6
            assert await database.value("select count(*) from session_token") == 0

            ill = False
            assert await message(switchboard, "control") == "answered"
            assert _asked(llm) == asked + 1
            tomorrow = await spent_on(database, TODAY + timedelta(days=1))
            assert tomorrow.tokens > 0
            assert await spent_on(database, TODAY) == spent


LOADED: Final = """
import asyncio, sys
from pathlib import Path
import switchboard.server.serve
from switchboard.app.settings import Settings
from switchboard.app.wiring import make_worker, open_runtime, open_switchboard
from switchboard.server.app import create_app

async def main():
    settings = Settings(database_url=sys.argv[1], data_dir=Path(sys.argv[2]))
    async with open_runtime(settings, for_worker=True) as runtime, open_switchboard(runtime) as made:
        make_worker(runtime)
        create_app(made)
        print(*sys.modules)

asyncio.run(main())
"""


async def test_where_no_model_is_configured_nothing_that_asks_one_is_imported(
    database_url: str, tmp_path: Path
) -> None:
    """Server and worker in a process of their own: no SDK, and of ours only what the settings are checked by."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LOADED, database_url, str(tmp_path)), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    loaded = out.decode().splitlines()[-1].split()
    assert process.returncode == 0
    assert {name.partition(".")[0] for name in loaded} & {"openai", "anthropic", "mcp"} == set()
    assert "switchboard.server.app" in loaded
    assert {"jinja2", "switchboard.server.web.site"} & set(loaded) == set(), "pages cost nothing until the first"
    ours = {name for name in loaded if name.startswith(("switchboard.llm.", "switchboard.app.models.dispatcher"))}
    assert ours == {f"switchboard.llm.{name}" for name in ("local_embedder", "packages", "port", "spec")}
    assert "switchboard.tools.web_fetch" not in loaded
