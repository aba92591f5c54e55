"""Calls whose effect and risk depend on their arguments: in turns of models and of programs, and in plans."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from switchboard.agents.model.engine import ModelEngine
from switchboard.agents.trio.engine import TrioEngine
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.engine import Answer, Decided, EngineFailure, Parked, Turn
from switchboard.ports.tools import PreparedCall, ToolOutcome, ToolScope, ToolSpec
from switchboard.testing.engines import MemoryJournal, Record, a_turn
from switchboard.testing.scripted_llm import Call, Reply, ScriptedLlm
from tests.running import turns_by
from tests.trios import Given, a_trio, plan, tool
from tests.turning import OWNER, NoApprovals, a_model_engine

TURN: Final = a_turn({"owners": OWNER, "after_foreign": "never"}, "tell Ben")
STRANGERS: Final = a_turn({"owners": ["*:somebody"], "after_foreign": "never", "grants": {"others": []}}, "tell Ben")
SCHEMA: Final = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
ADDRESSES: Final = {"ben": "Ben <ben@example.org>", "me": "Ann <ann@example.org>"}


@dataclass(slots=True)
class Mail:
    """A tool that tells whoever is meant: oneself without asking, others only with approval, strangers never."""

    addresses: dict[str, str] = field(default_factory=lambda: dict(ADDRESSES))
    told: list[str] = field(default_factory=list)
    prepared: int = 0
    begun: bool = False
    keys: set[UUID] = field(default_factory=set)
    """Those with which it was prepared and called."""
    handed: list[tuple[bool, str]] = field(default_factory=list)
    """Of each call: whether it was approved, and the digest of that."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec("tell", "Tell somebody.", SCHEMA, "idempotent")

    async def prepare(self, arguments: JsonMapping, scope: ToolScope) -> PreparedCall | ToolOutcome:
        assert not scope.approved
        self.prepared += 1
        self.keys.add(scope.key)
        if self.begun:
            return PreparedCall("idempotent", "low", begun=True)
        address = self.addresses.get(str(arguments["to"]))
        if address is None:
            return ToolOutcome("there is nobody of that name", ok=False)
        if arguments["to"] == "me":
            return PreparedCall("idempotent", "low", "", f"to {address}", address)
        return PreparedCall("effectful", "high", "it reaches another person", f"to {address}", address)

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        self.keys.add(scope.key)
        self.told.append(self.addresses[str(arguments["to"])])
        self.handed.append((scope.approved, scope.prepared.digest if scope.prepared else ""))
        return ToolOutcome(f"told {self.told[-1]}")


Engine = ModelEngine | TrioEngine
Opened = Callable[[Path, Mail, str], AbstractAsyncContextManager[Engine]]


def script(to: str) -> Sequence[Reply]:
    call = Reply(calls=(Call("tell", {"to": to}),))
    return [call, Reply(text="Done."), *[Reply(text="Done.")] * 3]


@asynccontextmanager
async def a_model(_: Path, mail: Mail, to: str) -> AsyncIterator[Engine]:
    async with (
        ScriptedLlm(script(to)) as llm,
        a_model_engine(llm, [mail], approvals=NoApprovals()) as (engine, _models),
    ):
        yield engine


@asynccontextmanager
async def a_program(place: Path, mail: Mail, to: str) -> AsyncIterator[Engine]:
    body = f'told = call("tell", to="{to}")\nend("Done.")'
    async with turns_by(place, body, [mail], approvals=NoApprovals()) as engine:
        yield engine


@asynccontextmanager
async def a_plan(_: Path, mail: Mail, to: str) -> AsyncIterator[Engine]:
    planner = Given(plan(tool("s1", "tell", to=to)))
    async with (
        ScriptedLlm([Reply(text="Done.")] * 4) as llm,
        a_trio(llm, planner, [mail], approvals=NoApprovals()) as (engine, _models),
    ):
        yield engine


async def finish(engine: Engine, turn: Turn, record: Record) -> None:
    """Run it to its end, which fails where a plan has nothing else to tell."""
    with suppress(EngineFailure):
        assert isinstance(await engine.run(turn, MemoryJournal(record)), Answer)


ENGINES: Final[Sequence[Opened]] = (a_model, a_program, a_plan)


@pytest.mark.parametrize("opened", ENGINES)
@pytest.mark.parametrize("changed", [False, True])
async def test_what_is_approved_is_what_was_looked_up(opened: Opened, changed: bool, tmp_path: Path) -> None:
    mail, record = Mail(), Record()
    async with opened(tmp_path, mail, "ben") as engine:
        with pytest.raises(Parked):
            await engine.run(TURN, MemoryJournal(record))
        [(event, asked)] = record.asks.items()
        assert (asked.why, mail.told, mail.prepared) == ("it reaches another person", [], 1)
        assert asked.arguments == {"to": "ben", "(looked up)": "to Ben <ben@example.org>"}
        assert (asked.effect, asked.risk) == ("effectful", "high"), "of this call, not of its tool"
        record.ended[event] = Decided({"decision": "approved", "by": "ann", "text": "", "digest": asked.digest})
        if changed:
            mail.addresses["ben"] = "Ben <ben@elsewhere.example>"
        await finish(engine, replace(TURN, attempt=2), record)
    assert mail.told == ([] if changed else ["Ben <ben@example.org>"])
    assert mail.handed == [(True, one) for one in mail.told]
    assert mail.prepared == 2


@pytest.mark.parametrize("opened", ENGINES)
@pytest.mark.parametrize("granted", [True, False])
async def test_what_was_approved_and_begun_is_finished_whatever_it_has_changed(
    opened: Opened, granted: bool, tmp_path: Path
) -> None:
    """Unless the person may not use the tool any more."""
    mail, record = Mail(), Record()
    async with opened(tmp_path, mail, "ben") as engine:
        with pytest.raises(Parked):
            await engine.run(TURN, MemoryJournal(record))
        [(event, asked)] = record.asks.items()
        record.ended[event] = Decided({"decision": "approved", "by": "ann", "text": "", "digest": asked.digest})
        mail.addresses["ben"], mail.begun = "Ben <ben@elsewhere.example>", True
        now = TURN if granted else replace(TURN, member=STRANGERS.member)
        await finish(engine, replace(now, attempt=2), record)
    assert (mail.told, len(mail.keys)) == (["Ben <ben@elsewhere.example>"] if granted else [], 1)


@pytest.mark.parametrize("opened", ENGINES)
@pytest.mark.parametrize(("to", "told"), [("me", ["Ann <ann@example.org>"]), ("nobody", [])])
async def test_without_risk_nobody_is_asked(opened: Opened, to: str, told: list[str], tmp_path: Path) -> None:
    mail, record = Mail(), Record()
    async with opened(tmp_path, mail, to) as engine:
        await finish(engine, TURN, record)
    assert (mail.told, record.asks) == (told, {})
    assert mail.handed == [(False, one) for one in told]


@pytest.mark.parametrize("opened", ENGINES)
async def test_a_refused_call_is_not_made(opened: Opened, tmp_path: Path) -> None:
    mail, record = Mail(), Record()
    async with opened(tmp_path, mail, "ben") as engine:
        with pytest.raises(Parked):
            await engine.run(TURN, MemoryJournal(record))
        [event] = record.asks
        record.ended[event] = Decided({"decision": "refused", "by": "ann", "text": "", "digest": ""})
        await finish(engine, replace(TURN, attempt=2), record)
    assert mail.told == []
