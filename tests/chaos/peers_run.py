"""Our side of the comparison with other gateways: what `switchboard up` does in the same situations, and its cost.

    python -m tests.chaos.peers_run [--runs 1] [--json] [--record]

The fake Telegram and the scripted model are in this process and are never killed. The installation is as `init` writes
it, but for 16 requests at once and people who own their butler. Prints a table beside the rows of `comparison.json`;
exit code 1 if a row became worse by more than its noise. `--record` writes the rows and the page instead. A run takes
four minutes. In: nothing; out: rows. Next: `comparison.py`, which knows the rows; `house.py`, which kills.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Final

import msgspec
from rich.console import Console

from switchboard.bench.channels import polled_s
from switchboard.bench.footprint import FootprintWorkload
from switchboard.bench.footprint import measure as measure_footprint
from switchboard.bench.lab import percentile
from switchboard.testing.bot_api import BotApi
from switchboard.testing.bot_api import Status as Refused
from switchboard.testing.scripted_llm import Call, Reply, Request, ScriptedLlm
from switchboard.testing.scripted_llm.faults import Status
from tests.chaos.asked import a_directory, asked_for, exit_code
from tests.chaos.channels_run import until
from tests.chaos.comparison import Measured, busier, measured_now, read_comparison, record, table, worse
from tests.chaos.house import House

_CHATS: Final = 10
_DOWN: Final = 5
_TURN_S: Final = 8.0
_QUICK_TURN_S: Final = 6.0
_WITHIN_S: Final = 60.0
"""What is not answered so long after a start is lost."""
_FIRST_ID: Final = 1000
_PEOPLE: Final = 100
_MESSAGES: Final = 30
_PAUSE_S: Final = 0.15
"""After each message, so that a chat has one message a second at most, as Telegram wants it."""
_FAILURES: Final = 3
_OTHERS_AFTER_S: Final = (11.0, 16.0)
_RETRY_AFTER_S: Final = 5
_WORDS: Final = [f"word{n}" for n in range(1, 1100)]
_LONG: Final = " ".join(_WORDS)[:9000].rpartition(" ")[0]
_MARK: Final = re.compile(r"msg-\d+")

Rows = dict[str, float]


@dataclass(frozen=True, slots=True)
class PeersPlan:
    """How often all is measured; `record`: the rows are written down instead of compared."""

    runs: int = 1
    json: bool = False
    record: bool = False


@dataclass(slots=True)
class Model:
    """Answers `reply-to` and the mark of the message, or what the message says that it should do; takes so long."""

    takes_s: float = 0.0
    holds: bool = False
    """It answers nothing until it is killed off."""
    asked: list[tuple[float, str]] = field(default_factory=list)
    """When (s), and the mark."""
    llm: ScriptedLlm = field(init=False)

    def __post_init__(self) -> None:
        self.llm = ScriptedLlm(self._answer)

    def times(self, mark: str) -> int:
        """How often it was asked about this message."""
        return [one for _, one in self.asked].count(mark)

    def _answer(self, request: Request) -> Reply:
        text = next(said.text for said in reversed(request.messages) if said.role == "user")
        mark = _MARK.findall(text)[-1]
        self.asked.append((perf_counter(), mark))
        if "fails" in text and self.times(mark) <= _FAILURES:
            return Reply(fault=Status(500))
        if "broken" in text and not request.results:
            return Reply(calls=(Call(request.tools[0], '{"path": '),))
        gate = str(request.number) if self.holds or self.takes_s else ""
        if gate and not self.holds:
            asyncio.get_running_loop().call_later(self.takes_s, self.llm.release, gate)
        return Reply(text=f"reply-to {mark}. {_LONG if 'long' in text else ''}", gate=gate)


@dataclass(slots=True)
class Scene:
    """The people, the model and the house."""

    api: BotApi
    model: Model
    house: House
    started: float = 0.0

    async def start(self) -> float:
        """Start all; seconds until it polls."""
        self.started = perf_counter()
        _, polled = await asyncio.gather(self.house.start(), polled_s(self.api, self.started))
        return polled

    async def kill(self) -> None:
        """Kill all; Telegram notices."""
        await self.house.kill("everything")
        await self.api.until(lambda: not self.api.polling)

    def say(self, number: int, *words: str, chat: int | None = None) -> str:
        """Somebody writes, by default everybody in a chat of their own; the mark of the message."""
        person = _FIRST_ID + (number if chat is None else chat)
        mark = f"msg-{number}"
        user = {"id": person, "is_bot": False, "first_name": f"Person {person}"}
        self.api.people.say(" ".join(("hello", *words, mark)), user=user)
        return mark

    def replies(self, mark: str) -> list[str]:
        """The answers to this message."""
        return [text for text in self.api.texts if text.startswith(f"reply-to {mark}.")]

    async def answered(self, marks: Sequence[str]) -> float:
        """Wait until all are answered, or lost. Returns the time (s)."""
        try:
            async with asyncio.timeout(_WITHIN_S):
                await self.api.until(lambda: all(self.replies(mark) for mark in marks))
        except TimeoutError:
            lost = [mark for mark in marks if not self.replies(mark)]
            print(f"not answered within {_WITHIN_S:g} s: {', '.join(lost)}", file=sys.stderr)
        return perf_counter()


@asynccontextmanager
async def opened(place: Path) -> AsyncIterator[Scene]:
    """A new installation, which is not started yet."""
    model = Model()
    owners = [f"telegram:{_FIRST_ID + n}" for n in range(_PEOPLE)]
    async with BotApi() as api, model.llm:
        scene = Scene(api, model, House.initialized(place, api.url, model.llm.url, owners))
        try:
            yield scene
        finally:
            await scene.house.stop()


async def kills(scene: Scene) -> Rows:
    """Everything is killed when all requests are with the model, and again; people write while it is down."""
    model = scene.model
    first = await scene.start()
    model.holds = True
    ten = [scene.say(n) for n in range(_CHATS)]
    await until(lambda: len({mark for _, mark in model.asked}) == _CHATS)
    await scene.kill()
    model.holds, model.takes_s = False, _TURN_S
    polled = await scene.start()
    last = await scene.answered(ten) - scene.started
    counts = [len(scene.replies(mark)) for mark in ten]
    await scene.kill()
    five = [scene.say(n) for n in range(_CHATS, _CHATS + _DOWN)]
    await scene.start()
    down = await scene.answered(five) - scene.started
    return {
        "once": counts.count(1),
        "lost": counts.count(0),
        "twice": sum(count > 1 for count in counts),
        "last_s": last,
        "restart_s": polled,
        "start_s": first,
        "down": sum(bool(scene.replies(mark)) for mark in five),
        "down_s": down,
        "again": sum(len(scene.replies(mark)) > count for mark, count in zip(ten, counts, strict=True)),
    }


async def messages(scene: Scene) -> Rows:
    """What a message costs beyond the model, which answers at once."""
    model, began_at = scene.model, len(scene.model.asked)
    took, until_asked = [], []
    for n in range(_MESSAGES):
        began = perf_counter()
        mark = scene.say(100 + n, chat=n % _CHATS)
        took.append((await scene.answered([mark]) - began) * 1000)
        until_asked.append((next(at for at, one in model.asked if one == mark) - began) * 1000)
        await asyncio.sleep(_PAUSE_S)
    request = model.llm.requests[began_at]
    return {
        "message_p50_ms": percentile(took, 50),
        "message_p95_ms": percentile(took, 95),
        "asked_p50_ms": percentile(until_asked, 50),
        "prompt_bytes": len(msgspec.json.encode(request.body)),
        "tools": len(request.tools),
        "calls": (len(model.asked) - began_at) / _MESSAGES,
    }


async def quick_messages(scene: Scene) -> Rows:
    """Two more while a turn runs."""
    scene.model.takes_s = _QUICK_TURN_S
    began = perf_counter()
    marks = [scene.say(200, chat=20)]
    await until(lambda: scene.model.times(marks[0]))
    marks += [scene.say(n, chat=20) for n in (201, 202)]
    last = await scene.answered(marks) - began
    scene.model.takes_s = 0.0
    answers = [text for text in scene.api.texts if any(text.startswith(f"reply-to {mark}.") for mark in marks)]
    places = [min(answers.index(text) for text in scene.replies(mark)) for mark in marks if scene.replies(mark)]
    in_order = all(a < b for a, b in pairwise(places))
    return {"quick": len(answers), "quick_in_order": in_order, "quick_s": last}


async def long_answer(scene: Scene) -> Rows:
    """9,000 characters."""
    before = len(scene.api.texts)
    await scene.answered([mark := scene.say(210, "long", chat=21)])
    whole = f"reply-to {mark}. {_LONG}".split()

    def parts() -> list[str]:
        return scene.api.texts[before:]

    try:
        async with asyncio.timeout(_WITHIN_S):
            await scene.api.until(lambda: whole[-1] in "\n".join(parts()))
    except TimeoutError:
        pass  # the rows say what is missing
    return {"parts": len(parts()), "words_complete": "\n".join(parts()).split() == whole}


async def refused(scene: Scene) -> Rows:
    """Telegram asks for a pause of 5 s."""
    parameters = {"retry_after": _RETRY_AFTER_S}
    scene.api.spoil("sendMessage", Refused(429, f"Too Many Requests: retry after {_RETRY_AFTER_S}", parameters))
    began = perf_counter()
    mark = scene.say(220, chat=22)
    took = await scene.answered([mark]) - began
    return {"refused": len(scene.replies(mark)), "refused_calls": scene.model.times(mark), "refused_s": took}


async def broken_call(scene: Scene) -> Rows:
    """A tool call whose arguments are no JSON."""
    began = perf_counter()
    mark = scene.say(230, "broken", chat=23)
    took = await scene.answered([mark]) - began
    return {"broken": len(scene.replies(mark)), "broken_calls": scene.model.times(mark), "broken_s": took}


async def failing_model(scene: Scene) -> Rows:
    """HTTP 500 three times for one message; others write meanwhile."""
    began = perf_counter()
    failing = asyncio.create_task(scene.answered([scene.say(240, "fails", chat=24)]))
    rows = {}
    for n, after in enumerate(_OTHERS_AFTER_S, 1):
        await asyncio.sleep(max(0.0, began + after - perf_counter()))
        wrote = perf_counter()
        rows[f"other_{after:g}_s"] = await scene.answered([scene.say(240 + n, chat=24 + n)]) - wrote
    return {"failing_s": await failing - began, **rows}


async def footprint() -> Rows:
    """What the house takes, idle and after 40 turns."""
    found = await measure_footprint(FootprintWorkload(counted_s=30.0))
    return {
        "processes": sum(one.processes for one in found.idle.values()),
        "idle_mb": sum(one.memory_mb for one in found.idle.values()),
        "used_mb": sum(one.memory_mb for one in found.used.values()),
        "statements": found.statements_a_second,
        "idle_cpu_s": found.cpu_s_a_minute,
    }


async def one_run(place: Path, loads: list[float]) -> Rows:
    """All rows, each part in an installation of its own; the load after each goes to `loads`."""
    rows: Rows = {}
    for name, acts in _PARTS.items():
        directory = place / name
        directory.mkdir(mode=0o711)
        async with opened(directory) as scene:
            if name == "turns":
                await scene.start()
                await scene.answered([scene.say(99)])
            for act in acts:
                rows |= await act(scene)
                loads.append(os.getloadavg()[0])
                print(f"{act.__name__.replace('_', ' ')}: load {loads[-1]:.1f}", file=sys.stderr, flush=True)
    return rows | await footprint()


_PARTS: Final = {
    "killed": (kills,),
    "turns": (messages, quick_messages, long_answer, refused, broken_call, failing_model),
}


def main() -> int:
    """Measure, show, and compare or record."""
    plan = asked_for(PeersPlan, __doc__)
    directory = a_directory()
    runs, loads = [], [os.getloadavg()[0]]
    for n in range(plan.runs):
        (place := directory / str(n)).mkdir(mode=0o711)
        runs.append(asyncio.run(one_run(place, loads)))
        loads.append(os.getloadavg()[0])
    now, before = measured_now(runs, loads), read_comparison().ours
    problems = worse(now, before)
    if busier(now, before):
        print("more load than when the rows were recorded: times are not compared", file=sys.stderr)
    _show(now, before, as_json=plan.json)
    for problem in problems:
        print(f"worse: {problem}", file=sys.stderr)
    if plan.record:
        record(now)
    return exit_code(directory, well=plan.record or not problems)


def _show(now: Measured, before: Measured, *, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(now).decode())
    else:
        Console().print(table(now, before))


if __name__ == "__main__":
    sys.exit(main())
