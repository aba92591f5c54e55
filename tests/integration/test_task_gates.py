"""Conditions of tasks: a read-only call of a tool says whether a task is carried out when it is due."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from switchboard.app.gates import WorkerGates
from switchboard.app.ops.engines import engine_context
from switchboard.app.ops.modules import make_modules, open_gates
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.app.wiring import open_runtime
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.routing import Member
from switchboard.modules.schedule import ledger
from switchboard.modules.schedule.ledger import Task
from switchboard.modules.schedule.manifest import MANIFEST
from switchboard.modules.schedule.opened import OpenSchedule
from switchboard.modules.schedule.settings import TaskLimits
from switchboard.ports.effects import Effect
from switchboard.ports.front_door import Origin
from switchboard.ports.gates import GATES, Gate, GateAnswer
from switchboard.ports.tools import NamedTool, PreparedCall, Reach, Tool, ToolOutcome, ToolScope, ToolSpec
from switchboard.store.database import Database
from switchboard.store.modules.migrations import migrate_modules
from switchboard.store.modules.stores import open_stores
from tests.doors import Killed, RememberingDoor, an_origin
from tests.integration.test_schedule import ANN, WATER, House, a_scope

FOUND, NOTHING, FAILED = GateAnswer("found"), GateAnswer("nothing"), GateAnswer("failed", "no such file")


class SaidGates:
    """Gates that answer what a test says."""

    def __init__(self) -> None:
        self.answers: list[GateAnswer] = []
        self.asked = 0
        self.flaw = ""

    async def find_flaw(self, origin: Origin, gate: Gate) -> str:
        return self.flaw if origin.system_id and gate.tool else "there is no tool"

    async def fingerprint_of(self, origin: Origin, gate: Gate) -> str:
        return f"{origin.system_id} {gate.arguments}"

    async def check(self, origin: Origin, gate: Gate) -> GateAnswer:
        self.asked += 1
        return self.answers.pop(0) if origin.system_id and gate.tool else FAILED


class GatedHouse(House):
    """The same with gates."""

    def opened(self, **settings: int) -> OpenSchedule:
        self.gates = SaidGates()
        return OpenSchedule(self.store, self.door, TaskLimits(**settings), self.gates)

    async def let_pass(self, seconds: float = 90_000) -> None:
        await self.database.run(
            "update switchboard_schedule.firing set due = due - make_interval(secs => $1)", float(seconds)
        )
        await super().let_pass(seconds)

    async def make_daily(self, text: str = WATER) -> Task:
        return await self.make(text, cron="0 7 * * *", only_if='read_file {"path": "mail.txt"}')


@pytest.fixture
async def house(database: Database) -> GatedHouse:
    assert await migrate_modules(database, [MANIFEST]) == {}
    return GatedHouse(database, (await open_stores(database, MANIFEST))(""), RememberingDoor())


@pytest.mark.parametrize(
    ("answers", "states", "told"),
    [
        ([FOUND], [("said", 0)], 1),
        ([NOTHING, NOTHING], [("skipped", 1)] * 2, 0),
        ([FAILED] * 2, [("failed", 2)] * 2, 0),
        ([FAILED] * 5, [("failed", 2)] * 5, 1),
        ([FAILED, FAILED, NOTHING, FAILED, FAILED], [("failed", 2)] * 2 + [("skipped", 1)] + [("failed", 2)] * 2, 0),
    ],
)
async def test_what_a_condition_says_decides(
    house: GatedHouse, answers: list[GateAnswer], states: list[tuple[str, int]], told: int
) -> None:
    task = await house.make_daily()
    house.gates.answers = list(answers)
    for _ in answers:
        await house.let_pass(86_400)
        await house.carry_out()
        await house.carry_out()
    rows = sorted(await house.firings(), key=lambda one: one.made_at)
    assert [(one.state, one.gate_exit) for one in rows] == states
    assert (len(house.door.texts), house.gates.asked) == (told, len(answers))
    found = await ledger.find_task(house.store, task.task_id)
    assert found is not None
    assert found.state == "active"


async def test_whoever_is_killed_keeps_to_what_the_condition_said(house: GatedHouse) -> None:
    await house.make_daily()
    house.gates.answers = [FOUND]
    await house.let_pass(86_400)
    house.door.faults = ["killed after"]
    with pytest.raises(Killed):
        await house.carry_out()
    await House.let_pass(house, 1)
    await house.carry_out()
    assert (await house.states(), len(house.door.texts), house.gates.asked) == (["said"], 1, 1)


async def test_what_is_due_once_and_cannot_be_checked_is_told_at_once(house: GatedHouse) -> None:
    await house.make(time=f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d %H:%M}", only_if="read_file")
    house.gates.answers = [FAILED]
    await house.let_pass(86_400)
    await house.carry_out()
    await house.carry_out()
    assert (await house.states(), ["was not carried out" in one for one in house.door.texts]) == (["failed"], [True])


async def test_slow_conditions_keep_reminders_waiting_once(house: GatedHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchboard.modules.schedule.due._SLOW_S", 0)
    for text in ("one", "two", "three"):
        await house.make_daily(text)
    await house.make("feed the cat", cron="0 9 * * *")
    house.gates.answers = [NOTHING] * 3
    await house.let_pass(2 * 86_400)
    for asked in (1, 2, 3):
        await house.carry_out()
        assert (house.gates.asked, len(house.door.texts)) == (asked, 1)


@pytest.mark.parametrize(
    ("only_if", "flaw", "why"),
    [
        ("read_file {", "", "arguments as JSON"),
        ("read_file []", "", "arguments as JSON"),
        ("x", "is no tool", "no tool"),
    ],
)
async def test_a_wrong_condition_is_refused_at_once(house: GatedHouse, only_if: str, flaw: str, why: str) -> None:
    house.gates.flaw = flaw
    outcome = await house.call("schedule_every", cron="0 7 * * *", text="look", only_if=only_if)
    assert (outcome.ok, why in outcome.text, await house.tasks()) == (False, True, [])


class SayingTool(NamedTool):
    """A tool that says `text`, or that does not end."""

    def __init__(self, name: str, text: str = "a letter", *, effect: Effect = "idempotent", reach: Reach = "inside"):
        schema = {"type": "object", "properties": {"box": {"type": "string"}}, "additionalProperties": False}
        self.spec = ToolSpec(name, "A tool.", schema, effect, reach=reach)
        self.text = text

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        if self.text == "endless":
            await asyncio.Event().wait()
        assert (scope.reader is None, arguments) == (False, {})
        return ToolOutcome(self.text, ok=self.text != "broken")


TOOLS = [SayingTool(f"says_{n}", text) for n, text in enumerate(("1", "", " [] ", "{}", "FALSE", "null", "None", "0"))]
TOOLS += [SayingTool("broken", "broken"), SayingTool("endless", "endless"), SayingTool("far", reach="outside")]
TOOLS += [SayingTool("asks", reach="query"), SayingTool("changes", effect="effectful")]


class ToolsOfTest:
    def may_have(self, member: Member, name: str) -> bool:
        return any(one.name == name for one in TOOLS) and member.active

    async def of(self, member: Member) -> Sequence[Tool]:
        return TOOLS if member.active else ()


@pytest.fixture
async def runtime(database_url: str, tmp_path: Path) -> AsyncIterator[Runtime]:
    """Of an installation with one butler, whose owner is Ann."""
    member = {"name": "butler", "type": "operation", "engine": "memo", "config": {"owners": ["telegram:ann"]}}
    (tmp_path / "teams").mkdir()
    (tmp_path / "teams/root.json").write_text(json.dumps({"team": {"name": "root"}, "systems": [member]}))
    given = {"database_url": database_url, "data_dir": tmp_path, "teams_dir": tmp_path / "teams"}
    async with open_runtime(Settings.model_validate(given)) as runtime, runtime.closing:
        yield runtime


def make_gates(runtime: Runtime) -> WorkerGates:
    """Those that modules of a worker are handed."""
    modules = make_modules(runtime)
    open_gates(modules, engine_context(runtime.settings, runtime.database, runtime.channels, toolset=ToolsOfTest()))
    gates = modules.offers[GATES]
    assert isinstance(gates, WorkerGates)
    return gates


def origin_of(runtime: Runtime, sender: str = "ann") -> Origin:
    [butler] = [one for one in runtime.rule_book.rules.members.values() if one.name == "butler"]
    return replace(an_origin(sender), system_id=butler.system_id, chat_type="private")


async def test_what_a_tool_says_is_found_or_nothing(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchboard.app.gates.GATE_SECONDS", 0.1)
    gates, origin = make_gates(runtime), origin_of(runtime)
    found = {one.name: await gates.check(origin, Gate(one.name, {}, tainted=False)) for one in TOOLS}
    nothing = {f"says_{n}" for n in range(1, 7)}
    assert {name for name, one in found.items() if one.result == "nothing"} == nothing
    assert {name for name, one in found.items() if one.result == "found"} == {"says_0", "says_7", "asks"}
    assert "was stopped after 0.1 s" in found["endless"].why
    assert found["broken"] == GateAnswer("failed", "broken")


async def test_a_condition_reads_with_the_rights_of_its_maker_now(runtime: Runtime) -> None:
    gates, origin = make_gates(runtime), origin_of(runtime)
    wrong: Mapping[str, Gate] = {
        "is no tool": Gate("mail_search", {}),
        "does more than read": Gate("changes", {}),
        "asks, broken, endless": Gate("far", {}),
        "others' words": Gate("asks", {}, tainted=True),
        "the arguments of says_0 are wrong": Gate("says_0", {"bax": "in"}),
    }
    for why, gate in wrong.items():
        assert why in await gates.find_flaw(origin, gate)
    gate = Gate("says_0", {"box": "in"})
    assert await gates.find_flaw(origin, gate) == ""
    for no_owner in (origin_of(runtime, "bob"), replace(origin, chat_type="group")):
        answer = await gates.check(no_owner, gate)
        assert (answer.result, "no tool that this person may use" in answer.why) == ("failed", True)
    rules = runtime.rule_book.rules
    butler = replace(rules.members[origin.system_id], options={"owners": ["telegram:bob"]})
    runtime.rule_book.rules = replace(rules, members={**rules.members, origin.system_id: butler})
    assert (await gates.check(origin, gate)).result == "failed"  # she was an owner when the task was made


async def test_a_command_is_a_condition_only_if_an_owner_approved_it(house: GatedHouse) -> None:
    tool = next(one for one in MANIFEST.tools if one.spec.name == "schedule_every")
    assert tool.prepare is not None
    given = {"cron": "0 7 * * *", "text": "look", "only_if": 'execute_command {"command": "./new-mail.sh"}'}
    prepared = await tool.prepare(house.schedule, given, a_scope(ANN))
    assert isinstance(prepared, PreparedCall)
    assert (prepared.risk, prepared.shown, "new-mail" in prepared.digest) == ("high", "./new-mail.sh", True)
    harmless = await tool.prepare(house.schedule, {**given, "only_if": 'read_file {"path": "a"}'}, a_scope(ANN))
    assert isinstance(harmless, PreparedCall)
    assert harmless.risk == "low"
    assert "only if an owner has approved" in (await house.call("schedule_every", a_scope(ANN), **given)).text
    assert (await house.call("schedule_every", replace(a_scope(ANN), approved=True), **given)).ok
    [task] = await house.tasks()
    assert "new-mail" in task.gate


async def test_a_command_runs_as_it_was_approved_or_not_at_all(runtime: Runtime) -> None:
    modules = make_modules(runtime)
    open_gates(modules, engine_context(runtime.settings, runtime.database, runtime.channels))
    gates, origin = modules.offers[GATES], origin_of(runtime)
    assert isinstance(gates, WorkerGates)
    gate = Gate("execute_command", {"command": "./look.sh in/box"})
    if "no tool" in await gates.find_flaw(origin, gate):
        pytest.skip("there is no sandbox on this machine")
    ready = await gates._find_ready(origin, gate)
    assert not isinstance(ready, str)
    program = ready.scope.workspace / "look.sh"
    program.parent.mkdir(parents=True, exist_ok=True)
    for code, result in (("exit 0", "found"), ("exit 1", "nothing"), ("exit 2", "failed"), ("nonsense", "failed")):
        program.write_text(f"#!/bin/sh\n{code}\n")
        program.chmod(0o755)
        gate = replace(gate, fingerprint=await gates.fingerprint_of(origin, gate))
        assert (await gates.check(origin, gate)).result == result
        assert await gates.find_flaw(origin, gate) == ""
    program.write_text("#!/bin/sh\nexit 0\n")
    answer = await gates.check(origin, gate)
    assert (answer.result, "not as it was approved" in answer.why) == ("failed", True)
    for command in (
        *("sh look.sh", "./look.sh; true", "./look.sh *", "./look.sh $F", "cd . && ./look.sh", "F=1 ./look.sh"),
        *(
            "python3 -m look",
            "./'look.sh'",
            "/bin/sh look.sh",
            "../look.sh",
            "./missing.sh",
            "F=./look.sh true",
            "./look.sh\nx",
            "./l?ok.sh",
        ),
    ):
        assert "a program in the workspace" in await gates.find_flaw(
            origin, Gate("execute_command", {"command": command})
        )
