"""What the local model must be able to do: each task sends its messages to an installation and judges what happened.

`report.py` runs them all, `test_local_model.py` a few. In: a `House` and an `Asked`; out: a `Judged`. What is judged is
what a person or an operator sees: the reply, the plan with its origin, the effect in the workspace, what is remembered.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from tests.local_model.house import House
from tests.local_model.phone import next_day

Half = Literal["tune", "measure"]

_MESSAGES: Final = Path(__file__).with_name("messages.json")
_BY_THE_MODEL: Final = frozenset({"exact", "stripped", "repaired"})
_SPECIALISTS: Final = frozenset({"specialist", "specialist_with_tools"})
_PATIENCE: Final = 240.0
_CONDENSED_FROM: Final = 20
"""Messages after which a conversation is condensed: each has an answer, and 40 entries are enough."""
_FILLER: Final = (
    "It rained on day {n}.",
    "On day {n} the bus was late.",
    "Day {n} was quiet.",
    "I slept well on day {n}.",
)
RAW: Final = re.compile(
    r"<\|\w|</?(?:tool_call|tool_response|think|thinking|function|tools)\b|\[TOOL_CALLS\]|\bfunctions\.\w+"
    r"|\"(?:arguments|parameters|args|calls)\"\s*:\s*[\[{\"]|\"action\"\s*:\s*\"\w+\""
    r"|\A\s*(?:```\w*\s*)?\{.*\}\s*(?:```)?\s*\Z",
    re.DOTALL,
)
"""What a model writes for a machine: marks of its template, calls and decisions as text, a reply that is only JSON."""


class Asked(Struct, frozen=True):
    """A message of the report, and what is expected: a field for each way in which tasks judge."""

    id: str
    text: str
    butler: str = ""
    pages: tuple[str, ...] = ()
    file: str = ""
    has: str = ""
    output: str = ""
    ask: str = ""


class Judged(Struct, frozen=True):
    """Whether a message was dealt with as expected; if not, `why`. `raw`: markup reached the person."""

    ok: bool
    why: str = ""
    answer: str = ""

    @property
    def raw(self) -> bool:
        return RAW.search(self.answer) is not None


Task = Callable[[House, Asked], Judged]


def messages() -> Mapping[str, Mapping[Half, Sequence[Asked]]]:
    """The messages of each task, in two halves: one to improve Switchboard with, one that is only ever measured."""
    return msgspec.json.decode(_MESSAGES.read_bytes(), type=dict[str, dict[Half, list[Asked]]])


def _judged(answer: str, faults: Iterator[str]) -> Judged:
    why = "; ".join(faults)
    return Judged(not why, why, answer)


# Classification and plans ---------------------------------------------------------------------------------------------


def classify(house: House, asked: Asked) -> Judged:
    """The model chooses the right one of four butlers."""
    sent = house.send("desk", asked.text)
    answer = house.answer(sent, _PATIENCE)
    went_to = house.get(f"/v1/messages/{sent}")["went_to"]
    return Judged(went_to == [asked.butler], f"it went to {went_to}", answer)


def plan_report(house: House, asked: Asked) -> Judged:
    """Both pages are fetched, and a specialist writes from both, as the model planned it."""

    def faults(plan: Mapping[str, Any]) -> Iterator[str]:
        steps = plan["steps"]
        fetched = sorted(one["args"].get("url", "") for one in steps if one["target"] == "web_fetch")
        if fetched != sorted(f"http://{house.pages}{path}" for path in asked.pages):
            yield f"it fetches {fetched}"
        if others := [one["target"] for one in steps if one["action"] == "tool" and one["target"] != "web_fetch"]:
            yield f"it calls {others}"
        if not any(_sees(one, steps, "web_fetch", 2) for one in steps if one["action"] in _SPECIALISTS):
            yield "no specialist sees both pages"
        if undone := [one["id"] for one in steps if one["state"] != "done"]:
            yield f"not done: {undone}"

    return _planned(house, asked, faults)


def plan_build(house: House, asked: Asked) -> Judged:
    """An edit, then the build, then the tests, in this order."""

    def faults(plan: Mapping[str, Any]) -> Iterator[str]:
        kinds = [_kind(one) for one in plan["steps"]]
        if [kind for kind in kinds if kind][:3] != ["edit", "build", "test"]:
            yield f"its steps are {kinds}"

    return _planned(house, asked, faults)


def _kind(step: Mapping[str, Any]) -> str:
    if step["action"] == "specialist_with_tools" or step["target"] == "write_file":
        return "edit"
    command = str(step["args"].get("command", ""))
    return next((kind for kind in ("build", "test") if f"make {kind}" in command), "")


def plan_answer(house: House, asked: Asked) -> Judged:
    """An answer without tools: by the main model, or by one specialist."""

    def faults(plan: Mapping[str, Any]) -> Iterator[str]:
        if plan["action"] not in {"respond", "specialist"} and len(plan["steps"]) != 1:
            yield f"it decided on {plan['action']}"

    return _planned(house, asked, faults)


def _planned(house: House, asked: Asked, faults: Callable[[Mapping[str, Any]], Iterator[str]]) -> Judged:
    sent = house.send("planner", asked.text.replace("{site}", f"http://{house.pages}"))
    answer = house.answer(sent, _PATIENCE)
    plans = house.get(f"/v1/plans/{sent}")["plans"]
    if not plans:
        return Judged(False, "there is no plan", answer)
    plan = plans[0]
    by_template = [] if plan["source"] in _BY_THE_MODEL else [f"a template planned it: {'; '.join(plan['notes'])}"]
    return _judged(answer, iter([*by_template, *faults(plan)]))


def _sees(step: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], target: str, times: int) -> bool:
    """Whether a step needs so many steps with this target, directly or by others."""
    named = {one["id"]: one for one in steps}
    found, left = set[str](), list(step["needs"])
    while left:
        need = left.pop()
        if need not in found:
            found.add(need)
            left += named[need]["needs"]
    return [named[need]["target"] for need in found].count(target) >= times


# Turns ---------------------------------------------------------------------------------------------------------------


def tool_call(house: House, asked: Asked) -> Judged:
    """The effect is there: the file with its text, or the output of the command in the reply."""
    sent = house.send("hand", asked.text)
    answer = house.answer(sent, _PATIENCE)

    def faults() -> Iterator[str]:
        called = [step["tool"] for step in _steps(house, sent) if step["tool"]]
        if asked.file and asked.has not in _text_of(house.workspace / asked.file):
            yield f"{asked.file} is not there, or without its text; called: {called}"
        if asked.output and not (set(called) & {"execute_command", "bash"}):
            yield f"no command was run; called: {called}"
        elif asked.output and asked.output not in re.sub(r"(?<=\d)[,.  ](?=\d{3})", "", answer):
            yield f"{asked.output} is not in the reply; called: {called}"

    return _judged(answer, faults())


def reminder(house: House, asked: Asked) -> Judged:
    """One task is made, of what was said, for when it was said: `DAYS HOUR HOUR`, or `cron` and a pattern."""
    before = {one["task_id"] for one in house.get("/v1/tasks")["tasks"]}
    today = datetime.now(UTC).date()
    answer = house.answer(house.send("minder", asked.text), _PATIENCE)
    made = [one for one in house.get("/v1/tasks")["tasks"] if one["task_id"] not in before]

    def faults() -> Iterator[str]:
        if len(made) != 1:
            yield f"{len(made)} tasks were made"
        for one in made:
            if asked.has.lower() not in one["text"].lower():
                yield f"{asked.has} is not in {one['text']!r}"
            if not _is_meant(one, asked.output, today):
                yield f"it is due {one['when']}, {one['due']}, and not {asked.output}"

    return _judged(answer, faults())


def _is_meant(task: Mapping[str, Any], meant: str, today: date) -> bool:
    kind, _, pattern = meant.partition(" ")
    if kind == "cron":
        return re.fullmatch(pattern.replace("* *", r"\* \*", 1), task["when"]) is not None
    due = datetime.fromisoformat(task["due"])
    first, last = map(int, pattern.split())
    return due.date() == today + timedelta(days=int(kind)) and first <= due.hour <= last


def invite(house: House, asked: Asked) -> Judged:
    """One guest is invited for when it was said, after a person's approval; nobody, if the time is taken.

    What is expected is `free` or `busy`, then the weekday (Monday is 0), the hours between which it is, and minutes.
    """
    assert house.diary is not None
    kind, *numbers = asked.output.split()
    weekday, first, last, minutes = map(int, numbers)
    day = next_day(weekday, datetime.now(UTC).date())
    taken = (first, last) if kind == "busy" else (18, 20)
    house.diary.fill([(day, f"{taken[0]:02d}00", f"{taken[1]:02d}00"), (day, "0500", "0600")])
    house.read_modules()
    sent = house.text(asked.text, _PATIENCE)
    answer = house.answer(sent, _PATIENCE)
    while house.approve_calls(sent):
        answer = house.last_answer(sent, _PATIENCE)
    made = house.diary.meetings()

    def faults() -> Iterator[str]:
        if len(made) != (kind == "free"):
            called = [(one["tool"], one.get("ok")) for one in _steps(house, sent) if one["tool"]]
            yield f"{len(made)} meetings were made; called: {called}"
        for one in made:
            if one.guests != (asked.has,):
                yield f"invited: {', '.join(one.guests)}"
            if one.day != day or not first <= one.start < one.end <= last or (one.end - one.start) * 60 != minutes:
                yield f"it is on {one.day:%A} from {one.start:g} to {one.end:g}, and not {asked.output}"

    return _judged(answer, faults())


def mailbox(house: House, asked: Asked) -> Judged:
    """Who has written, and what was answered, are in the reply: `has` and `output`."""
    sent = house.text(asked.text, _PATIENCE, postal=True)
    answer = house.answer(sent, _PATIENCE)

    def faults() -> Iterator[str]:
        if missing := [word for word in (asked.has, asked.output) if word.lower() not in answer.lower()]:
            called = [(one["tool"], one.get("ok")) for one in _steps(house, sent) if one["tool"]]
            yield f"{' and '.join(missing)} not in the reply; called: {called}"

    return _judged(answer, faults())


def _steps(house: House, sent: str) -> Sequence[Mapping[str, Any]]:
    return [step for one in house.get(f"/v1/messages/{sent}/explain")["deliveries"] for step in one["steps"]]


def _text_of(file: Path) -> str:
    return file.read_text(errors="replace") if file.is_file() else ""


def fact(house: House, asked: Asked) -> Judged:
    """What a person asked to have remembered is known in their next conversation."""
    house.answer(house.send("keeper", asked.text), _PATIENCE)
    answer = house.answer(house.send("keeper", asked.ask), _PATIENCE)
    return Judged(asked.has.lower() in answer.lower(), f"{asked.has} is not in the reply", answer)


def compaction(house: House, asked: Asked) -> Judged:
    """A long conversation is condensed, and what the person said at its beginning is kept."""
    texts = [asked.text, *(_FILLER[n % len(_FILLER)].format(n=n) for n in range(1, _CONDENSED_FROM))]
    for text in texts:
        sent = house.send("diary", text, thread=asked.id, sender=asked.id)
        house.answer(sent, _PATIENCE)
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        kept = json.dumps([_kept(house, kind, asked.id) for kind in ("summaries", "facts")], ensure_ascii=False)
        if asked.id in kept:
            return Judged(asked.has.lower() in kept.lower(), f"kept is only {kept}"[:500])
        time.sleep(1)
    return Judged(False, "nothing was condensed")


def _kept(house: House, kind: str, thread: str) -> list[Mapping[str, Any]]:
    found = house.get(f"/v1/memory/{kind}", system_id="System1/diary", limit=500)[kind]
    return [one for one in found if thread in json.dumps(one)]


TASKS: Final[Mapping[str, Task]] = {
    "classify": classify,
    "plan-report": plan_report,
    "plan-build": plan_build,
    "plan-answer": plan_answer,
    "tool-call": tool_call,
    "reminder": reminder,
    "invite": invite,
    "mailbox": mailbox,
    "fact": fact,
    "compaction": compaction,
}
SENTENCES: Final = ("invite-t01", "mailbox-t1", "fact-t3", "reminder-t01")
"""The four of docs/household.md and its tests: `--sentences --times 10` tells how often each is done."""
PRIVATE: Final = frozenset({"invite", "mailbox"})
"""The tasks for which the house needs the person's accounts."""
GOALS: Final[Mapping[str, int]] = {"plan-report": 19, "tool-call": 18, "reminder": 14}
"""How many of all messages of a task must succeed."""
