"""The chaos run where a model decides: it fails in every way in a part of its calls, and a worker dies every second.

    python -m tests.chaos.model_run [--messages 1000] [--conversations 120] [--workers 3] [--seconds 40] [--seed N]

Workers and server are real `switchboard` processes. A model behind an API is asked first, a command line where that
has failed. The server is killed as well, so that command lines find it gone. The last line counts; exit code 0 only
if every message was delivered where it says, or is a dead letter with its reason; if every way to fail was met; and if
more messages were delivered than died.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from switchboard.app.ops.doctor import check_database
from switchboard.app.settings import Settings
from switchboard.domain.errors import SwitchboardError
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.journey.accept import Submission
from switchboard.server.listener import bind
from switchboard.store.database import Database
from switchboard.store.messages.inbox import Acceptance
from switchboard.store.work.processes import count_alive
from tests.chaos import claude, model
from tests.chaos.asked import a_directory, all_met, asked_for, exit_code
from tests.chaos.books import read_traces
from tests.chaos.model_books import RULED, ModelReport, judge_models
from tests.chaos.run import crash
from tests.forked import ForkedCommand
from tests.lab import Lab, butler, lab, rule, submission, team_of
from tests.processes import EXECUTABLE
from tests.waiting import eventually

BUTLERS: Final = ("b0", "b1", "b2", "b3")
TEAM: Final = team_of(*map(butler, (*BUTLERS, RULED.removeprefix("System1/"))), "System4/root", classify=True)
EVERY_WAY: Final = {f"api {way}" for way in model.WAYS} | {f"cli {way}" for way in claude.WAYS}
LIMIT_S: Final = 180
"""What is not done with so long after the last message came is lost."""
RULES: Final = (rule(RULED, chat_type="private"),)


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """How much, and how rough. `rate`: the part of the calls that fails, of the API and of the command line.

    The messages come within so many `seconds`, and in each of them a worker is killed.
    """

    messages: int = 1000
    conversations: int = 120
    workers: int = 3
    seconds: int = 40
    rate: float = 0.3
    seed: int = 1


@dataclass(slots=True)
class House:
    """The processes of a run, and what they have written down."""

    directory: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    server: subprocess.Popen[bytes] | None = None

    def hire(self) -> None:
        """One worker more."""
        self.workers.append(self._start("work"))

    def open_server(self) -> None:
        """The server, at the port of the settings, unless it is running."""
        if self.server is None or self.server.poll() is not None:
            self.server = self._start("serve")

    def kill_server(self) -> None:
        """Kill the server; without it there is no MCP server."""
        if self.server is not None:
            self.server.kill()
            self.server.wait()

    def _start(self, command: str) -> subprocess.Popen[bytes]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("SWITCHBOARD_")}
        with (self.directory / f"{command}.log").open("ab") as log:
            return ForkedCommand(
                [EXECUTABLE, command],
                cwd=self.directory,
                env=kept,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def alive(self) -> list[subprocess.Popen[bytes]]:
        return [one for one in self.workers if one.poll() is None]

    def close(self) -> None:
        for one in (*self.workers, *([self.server] if self.server else [])):
            one.kill()
            one.wait()


async def run(plan: ModelPlan, directory: Path) -> ModelReport:
    """The whole run in `directory`."""
    dice = random.Random(plan.seed)
    data = directory / "database"
    async with (
        embedded_postgres(data) as server,
        lab(server.url, [TEAM], RULES, classifying=True) as parts,
        _model(directory, plan) as url,
    ):
        settings = _settle_in(directory, server.url, url, plan.rate)
        house = House(directory)
        house.open_server()
        for _ in range(plan.workers):
            house.hire()
        try:
            feeding = asyncio.create_task(_feed(parts, plan, dice))
            until = time.monotonic() + plan.seconds + LIMIT_S
            kills = await _havoc(plan, dice, house, data, lambda: _at_work(parts.database, feeding, until))
            acknowledged = await feeding
            await eventually(lambda: _is_up(parts.database), within=30)
            print(f"{kills} kill -9 of workers, one a second, 1 database crash", flush=True)
            problems = [f"{one.name}: {one.detail}" for one in await check_database(settings) if one.status == "error"]
        finally:
            house.close()
        traces = read_traces([directory / f"{kind}.trace" for kind in ("api", "cli")])
        await _tell(parts.database, traces)
        return await judge_models(parts.database, acknowledged, traces, problems)


@asynccontextmanager
async def _model(directory: Path, plan: ModelPlan) -> AsyncIterator[str]:
    """The URL of the model, a process of its own."""
    words = (sys.executable, "-m", "tests.chaos.model", str(directory / "api.trace"), str(plan.rate), str(plan.seed))
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield json.loads(await asyncio.wait_for(process.stdout.readline(), 30))["url"]
    finally:
        process.kill()
        await process.wait()


def _settle_in(directory: Path, database: str, model: str, rate: float) -> Settings:
    """Write what the processes read: the settings, and the program that is the command line."""
    program = claude.install(directory, rate=rate)
    api = {"name": "api", "kind": "openai", "model": "m", "base_url": f"{model}/v1", "timeout": 1.5, "concurrency": 8}
    cli = {"name": "cli", "kind": "claude-code", "model": "m", "base_url": model, "timeout": 4.0, "concurrency": 4}
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    given: dict[str, Any] = {
        "database_url": database,
        "data_dir": str(directory / "data"),
        "port": port,
        "log_level": "info",
        "models": [api, cli | {"program": str(program)}],
        "classify": {
            "models": ["api", "cli"],
            "attempts": 4,
            "timeout": 12.0,
            "tokens_per_message": 100_000,
            **dict.fromkeys(("sender_per_minute", "sender_tokens_per_day", "newcomer_tokens_per_day"), 0),
        },
        "spending": {"tokens_per_day": 0},
    }
    (directory / "switchboard.toml").write_text(_toml(given), encoding="utf-8")
    return Settings.model_validate(given)


def _toml(given: dict[str, Any]) -> str:
    """Settings as a file: JSON's texts, numbers and lists are TOML's."""
    groups = {name: value for name, value in given.items() if isinstance(value, dict)}
    plain = [f"{name} = {json.dumps(given[name])}" for name in given.keys() - groups.keys() - {"models"}]
    tables = [(f"[{name}]", group) for name, group in groups.items()]
    tables += [("[[models]]", model) for model in given["models"]]
    for head, table in tables:
        plain += [head, *(f"{name} = {json.dumps(value)}" for name, value in table.items())]
    return "\n".join(plain) + "\n"


async def _feed(parts: Lab, plan: ModelPlan, dice: random.Random) -> list[str]:
    """Hand in all messages, each until it is acknowledged, as a connector would; the ids that were told."""
    numbers: Counter[str] = Counter()
    told: list[str] = []
    batches = max(1, plan.messages // 20)
    pause = plan.seconds / batches
    for start in range(0, plan.messages, 20):
        batch = [_message(n, plan, dice, numbers) for n in range(start, min(start + 20, plan.messages))]
        told += await _until_acknowledged(parts, batch)
        await asyncio.sleep(pause)
    return told


def _message(n: int, plan: ModelPlan, dice: random.Random, numbers: Counter[str]) -> Submission:
    """Its number in its conversation, whom it is for, and its event. One in five is decided by a rule."""
    sender = f"s{dice.randrange(plan.conversations)}"
    names = dice.sample(BUTLERS, 2 if dice.random() < 0.1 else 1)
    text = f"{numbers[sender]} {'+'.join(names)} e{n}"
    numbers[sender] += 1
    ruled = {"chat_type": "private"} if dice.random() < 0.2 else {}
    return submission(text, channel="api", sender=sender, event=f"e{n}", **ruled)


async def _until_acknowledged(parts: Lab, batch: Sequence[Submission]) -> list[str]:
    while True:
        outcomes = await parts.accept.accept_all(batch)
        if not any(isinstance(outcome, SwitchboardError) for outcome in outcomes):
            return [str(outcome.request_id) for outcome in outcomes if isinstance(outcome, Acceptance)]
        await asyncio.sleep(0.2)


async def _havoc(
    plan: ModelPlan, dice: random.Random, house: House, data: Path, at_work: Callable[[], Awaitable[bool]]
) -> int:
    """`kill -9` of a worker every second, of the server every sixth; the database crashes once. Returns the kills."""
    kills, crash_at = 0, plan.seconds // 2
    while await at_work():
        await asyncio.sleep(1.0)
        while len(house.alive()) < plan.workers:
            house.hire()
        if kills == plan.seconds:
            house.open_server()
            continue
        if kills == crash_at:
            crash_at = -1
            await crash(data)
        if kills % 6 == 3:
            house.kill_server()
        else:
            house.open_server()
        if alive := house.alive():  # who starts while the database is away ends by itself
            dice.choice(alive).kill()
            kills += 1
    return kills


async def _at_work(database: Database, feeding: asyncio.Task[Any], until: float) -> bool:
    """Whether messages are still to come or on their way; False in any case after `until`."""
    if time.monotonic() > until:
        return False
    open_lanes = "select count(*) from lane where state in ('ready', 'running') and pool in ('work', 'route')"
    try:
        return not feeding.done() or bool(await database.value(open_lanes))
    except SwitchboardError:
        return True


async def _is_up(database: Database) -> bool:
    """Whether a worker lives: the doctor asks for one."""
    return await count_alive(database, "worker") > 0


async def _tell(database: Database, traces: list[list[str]]) -> None:
    """How often each way of failing was met."""
    ways = Counter(" ".join(line) for line in traces)
    print("calls:", ", ".join(f"{way} {n}" for way, n in sorted(ways.items())), flush=True)
    rows = await database.rows(
        "select case when error is null then 'well'"
        " else coalesce(substring(error from '^([a-z_]+): '), 'no classification') end as ended,"
        " count(*) from classification group by 1 order by 2 desc"
    )
    print("attempts on record:", ", ".join(f"{row['ended']} {row['count']}" for row in rows), flush=True)
    lost = await database.value(
        "select count(*) from attempt join lane on key = lane where kind = 'route' and outcome = 'lost'"
    )
    print("attempts lost with their worker:", lost, flush=True)


def main() -> int:
    """Read the command line, run, print the report."""
    plan = asked_for(ModelPlan, __doc__)
    directory = a_directory()
    began = time.monotonic()
    report = asyncio.run(run(plan, directory))
    print(f"{time.monotonic() - began:.0f} s")
    print(report)
    met = all_met(EVERY_WAY - report.calls.keys())
    return exit_code(directory, well=report.clean and met and report.delivered > sum(report.dead.values()))


if __name__ == "__main__":
    sys.exit(main())
