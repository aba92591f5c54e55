"""A turn run by a command-line program: claude-code or codex asks its model itself, and calls our tools.

`engine.py` makes a `ProgramTalk` if the models of a turn are such programs. A run of the program is one step (`run:1`).
Each call is a step of its own, identified by the tool, the arguments, and a counter of identical calls
(`tool:pay:3f0c…:1`); a step before it records what is called (`made:1`). So after a crash the program is started again,
is told what was called before, and gets the recorded result if it repeats a call. Next: `llm/running.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from hashlib import sha256
from time import monotonic
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from switchboard.agents.turns.asking import event_of
from switchboard.agents.turns.calls import Around, record_of_text, urls_of_record
from switchboard.agents.turns.requests import record_of_request
from switchboard.agents.turns.talk import Talk
from switchboard.core.planning.guard import is_read_only
from switchboard.core.turns.frozen import Frozen
from switchboard.core.turns.limits import CompletedCall, TurnUsage, find_reached_limit
from switchboard.core.turns.loop import DAY_SPENT, PlannedCall, begin, canonical_arguments, empty_answer, ended_at
from switchboard.core.turns.render import as_text, made_before, messages
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.llm import (
    NO_USAGE,
    CarryOut,
    ChatMessage,
    ModelDelta,
    ModelFailure,
    Reply,
    Report,
    Request,
    ToolCall,
    ToolResult,
)
from switchboard.ports.engine import Answer, Costed, Journal, OnRecord, Parked, Refusal, StopReason, Turn, TurnResult
from switchboard.ports.history import EntryCall
from switchboard.ports.models import Asking
from switchboard.tasks import cancel_tasks

_PENDING: Final = (
    "pending: end now. A person must decide about this first, and is being asked. Do nothing else, and write no "
    "answer: you will be started again, and told the result, when it is decided."
)
_AGAIN: Final = "[from the record of an earlier run for this message; nothing was done again]\n"
_NOT_RUN: Final = (
    "not carried out: a limit for this message is reached. Call nothing more, and answer with what you have"
)
_SHORT: Final = 16
_MOST_NAME: Final = 64
_LEAST_S: Final = 1.0
_PATIENCE: Final = 5
"""How many times a program is told to end; if it still calls tools, it is ended."""


class ProgramTalk(Talk):
    """A running turn of this kind."""

    def __init__(self, turn: Turn, journal: Journal, frozen: Frozen, around: Around) -> None:
        super().__init__(turn, journal, frozen, around)
        self._used = TurnUsage()
        self._finished: list[CompletedCall] = []
        self._made: list[PlannedCall] = []
        """All calls of the turn, in order."""
        self._records: dict[str, JsonMapping] = {}
        """Their records, by path; calls that wait for a person have none."""
        self._tasks: dict[str, asyncio.Task[JsonMapping]] = {}
        self._waiting: set[str] = set()
        """The paths of calls of this run about which a person must decide."""
        self._limit: StopReason | None = None
        self._told_to_end = 0
        self._so_far = ""
        """The latest text of this run, even if the run fails."""
        self._began = 0.0
        self._in_order = asyncio.Lock()
        self._asking_people = asyncio.Lock()
        """Held while people are asked, so that parallel calls count each other's requests."""

    async def _through(self) -> TurnResult:
        n, result = 0, None
        while result is None:
            n += 1
            await self._recall()
            if n > 1 and (stop := find_reached_limit(self._frozen.limits, self._used, self._finished)):
                return self._answer_at_stop(stop)
            result = self._conclude_run(await self._ran(n))
        return result

    def _answer_at_stop(self, stop: StopReason, text: str = "") -> Answer:
        end = ended_at(stop, text)
        return self._result(Answer(end.text, stop_reason=end.stop_reason))

    def _result(self, answer: Answer) -> Answer:
        self._close()
        return super()._result(answer)

    # Runs -------------------------------------------------------------------------------------------------------------

    async def _ran(self, n: int) -> JsonMapping:
        """The record of a run. Raises `EngineFailure`."""

        async def act(_: UUID) -> Costed:
            self._go_on()
            self._telling.restart(n)
            self._began, self._told_to_end = monotonic(), 0
            self._limit, self._so_far = None, ""
            self._waiting.clear()
            try:
                report = await self._around.models.ask(await self._whole(), self._asking_for_run())
                # The program may have died before a call ended; and errors that end the attempt are raised here.
                await asyncio.gather(*self._tasks.values())
            finally:
                await cancel_tasks(*self._tasks.values())
                self._tasks.clear()
            return self._record_of(report, monotonic() - self._began)

        try:
            record: JsonMapping = await self._journal.step(f"run:{n}", act)
        except ModelFailure as failure:
            raise await self._failure(failure, n) from failure
        return record

    async def _whole(self) -> Request:
        """The whole turn as one request."""
        frozen = self._frozen
        said = messages(frozen.history, (await self._begin_progress()).messages, frozen.zone)
        before = [(call.made, self._records[call.path]) for call in self._made if call.path in self._records]
        text = "\n\n".join(filter(None, (as_text(said), made_before(before))))
        return Request(
            (ChatMessage("user", text),),
            system=frozen.system,
            tools=tuple(tool.offered for tool in frozen.tools),
            max_tokens=frozen.max_tokens,
            deadline=max(frozen.limits.seconds - self._used.seconds, _LEAST_S),
            whole=False,
            key=f"{self._turn.request_id}",
            carrying=self._carrying,
            rounds=frozen.limits.requests,
        )

    def _asking_for_run(self) -> Asking:
        before = len(self._made)

        async def taken() -> bool:
            return len(self._made) > before

        # A run is not begun again here: its request must then name the calls that were made before.
        asking = self._asking(begin(""), 0, [])
        return replace(asking, shorter=None, on_delta=self._hear, taken=taken, again=None, name="")

    def _hear(self, delta: ModelDelta) -> None:
        self._telling.hear(delta)
        self._so_far = self._telling.text or self._so_far

    def _record_of(self, report: Report, seconds: float) -> Costed:
        """The journal record of a run. Raises ModelFailure for failures that may be temporary."""
        late = seconds + self._used.seconds >= self._frozen.limits.seconds
        limit = self._limit or ("limit:time" if late else None)
        if report.reply is None and (limit or self._waiting):
            report = replace(report, reply=self._cut(report))
        kept = record_of_request(report, seconds, last=False)
        rounds = "limit:requests" if report.reply and report.reply.stop_reason == "rounds" else None
        return replace(kept, result={**kept.result, "limit": limit or rounds, "waits": bool(self._waiting)})

    def _cut(self, report: Report) -> Reply:
        """The partial answer of a run that ended, or was ended, before it had a whole one."""
        usage = sum((one.usage for one in report.attempts), NO_USAGE)
        return Reply(self._so_far, usage=usage, model=report.attempts[-1].name, stop_reason="end")

    def _conclude_run(self, record: JsonMapping) -> TurnResult | None:
        """The result of the turn after a run; None if it continues with another run."""
        if "refused" in record:
            usage = self._use.usage
            return Refusal(f"the model refused: {record['refused']}", stop_reason="refused", usage=usage)
        if "spent" in record:
            return self._result(Answer(DAY_SPENT, stop_reason="limit:money"))
        reply = msgspec.convert(record["reply"], Reply)
        self._count(reply, record["seconds"])
        if record["waits"]:
            return None
        self._written = reply.text or self._written
        if record["limit"]:
            return self._answer_at_stop(record["limit"], reply.text)
        if not reply.text.strip():
            return self._result(Answer(empty_answer(self._finished), stop_reason="error"))
        ended: StopReason = "length" if reply.stop_reason == "length" else "end"
        return self._result(Answer(reply.text.strip(), stop_reason=ended))

    def _count(self, reply: Reply, seconds: float) -> None:
        self._use.book(reply)
        used, micros = self._used, round((reply.usage.cost_usd or 0.0) * 1_000_000)
        self._used = TurnUsage(
            used.requests + 1,
            len(self._made),
            used.tokens + reply.usage.tokens,
            used.micros + micros,
            used.seconds + seconds,
        )

    # Calls ------------------------------------------------------------------------------------------------------------

    async def _recall(self) -> None:
        """Load the calls of earlier runs and their records. Calls approved since are made now. Raises `Parked`."""
        on_record = self._journal.on_record()
        while (made := on_record.get(f"made:{len(self._made) + 1}")) is not None and made.state == "done":
            of = made.result
            self._made.append(
                PlannedCall(of["path"], ToolCall(of["tool"], of["arguments"], id=f"call_{len(self._made) + 1}"))
            )
        unresolved = [call for call in self._made if call.path not in self._records]
        asked = [call for call in unresolved if event_of(call.path) in on_record]
        for call in asked:
            await self._wait(call)
        for call in unresolved:
            if call in asked or self._has_begun(call, on_record):
                self._keep_record(call, await self._call(call))

    def _has_begun(self, call: PlannedCall, on_record: Mapping[str, OnRecord]) -> bool:
        """Whether a call has an outcome on record, even an unknown one; all other calls may be made again."""
        found, tool = on_record.get(call.path), self._tools.get(call.made.name)
        repeated = tool is None or tool.effect == "idempotent"
        return found is not None and (found.state == "done" or not repeated)

    async def _wait(self, call: PlannedCall) -> None:
        try:
            self._decisions[call.path] = await self._journal.wait(event_of(call.path))
        except Parked:
            self._go_on()  # a turn that must end no longer waits
            raise

    def _carrying(self) -> CarryOut:
        """The function that carries out the calls of one run."""
        seen = Counter[str]()

        async def carry_out(made: ToolCall) -> ToolResult:
            digest = sha256(canonical_arguments(made).encode()).hexdigest()[:_SHORT]
            head = f"tool:{made.name[:_MOST_NAME]}:{digest}"
            if any(path.startswith(head) for path in self._waiting):
                return self._end_now(_PENDING)  # nobody is asked twice about the same call
            seen[head] += 1
            path = f"{head}:{seen[head]}"
            if self._is_over(path):
                return self._end_now(_NOT_RUN)
            if (known := self._records.get(path)) is not None:
                return ToolResult("", _AGAIN + known["text"], known["ok"])
            try:
                record = await asyncio.shield(self._task(path, made))
            except Exception as error:  # it ends the attempt, like `Fenced`, and is no failure of the model
                raise ModelFailure("unavailable", "the turn cannot go on", alive=True) from error
            if path in self._waiting:
                return self._end_now(_PENDING)
            return ToolResult("", record["text"], record["ok"])

        return carry_out

    def _end_now(self, why: str) -> ToolResult:
        """Tell the program to end, and why. Raises ModelFailure if it ignores that often; waiting calls are kept."""
        self._told_to_end += 1
        if self._told_to_end > _PATIENCE:
            raise ModelFailure("defect", "it was told to end, but keeps calling tools", alive=True)
        return ToolResult("", why, ok=False)

    def _task(self, path: str, made: ToolCall) -> asyncio.Task[JsonMapping]:
        """The task of a call. It continues if the program is gone, so that the outcome is recorded."""
        if path not in self._tasks:
            self._tasks[path] = asyncio.create_task(self._carry(path, made))
        return self._tasks[path]

    async def _carry(self, path: str, made: ToolCall) -> JsonMapping:
        tool = self._tools.get(made.name)
        free = tool is not None and is_read_only(tool) and not self._people.may_be_prepared(made.name)
        async with nullcontext() if free else self._in_order:
            n, call = await self._record_intent(path, made)
            try:
                async with self._asking_people:
                    self._decisions |= await self._people.decisions([call], n, self._read())
            except Parked:
                self._waiting.add(path)
                return record_of_text(_PENDING)
            record = await self._call(call)
            self._keep_record(call, record)
            return record

    def _read(self) -> list[EntryCall]:
        """The calls whose results the program has, or may have by now."""
        done = [(one.made, self._records[one.path]) for one in self._made if one.path in self._records]
        return [
            self._entry_call_of(made, ToolResult(made.id or "", record["text"], record["ok"])) for made, record in done
        ]

    async def _record_intent(self, path: str, made: ToolCall) -> tuple[int, PlannedCall]:
        """The number of a call, and the call itself, recorded before anything is done."""
        for n, call in enumerate(self._made, 1):
            if call.path == path:
                return n, call
        n = len(self._made) + 1
        call = PlannedCall(path, replace(made, id=f"call_{n}"))
        self._made.append(call)
        intent = {"path": path, "tool": made.name, "arguments": dict(made.arguments)}

        async def act(_: UUID) -> JsonObject:
            return intent

        await self._journal.step(f"made:{n}", act)
        return n, call

    def _is_over(self, path: str) -> bool:
        """Whether a limit of the turn is reached before this call."""
        others = {*(call.path for call in self._made), *self._tasks} - {path}
        seconds = self._used.seconds + monotonic() - self._began
        used = replace(self._used, requests=0, tool_calls=len(others), seconds=seconds)
        self._limit = self._limit or find_reached_limit(self._frozen.limits, used, self._finished)
        return self._limit is not None

    def _keep_record(self, call: PlannedCall, record: JsonMapping) -> None:
        self._records[call.path] = record
        self._caller.learn(urls_of_record(record))
        result, ok = f"{record['ok']} {record['text']}", record["ok"]
        self._finished.append(CompletedCall(call.made.name, canonical_arguments(call.made), result, ok=ok))

    def _close(self) -> None:
        """Add the calls to the history, and their files to the answer."""
        for made, record in self._open.values():
            if record is not None:
                self._remember(made, record)
        self._open.clear()
