"""What is due: written down, then carried out through the front door. The chores of the module.

The kernel runs them, one at a time of all workers, with a store whose transactions fail once another worker has taken
over. What is due is committed before anything is said or done, and completed after it: whoever is killed in between
has the call repeated under the same key, which finds the first. Nothing goes out of the ledger without a state that
says what became of it. Next: `ledger.py`.
"""

from __future__ import annotations

from datetime import datetime
from time import monotonic
from typing import Final

import msgspec
import structlog

from switchboard.core.zones import find_zone
from switchboard.domain.errors import InvalidInput
from switchboard.modules.schedule import words
from switchboard.modules.schedule.instants import fingerprint_of
from switchboard.modules.schedule.ledger import (
    FiringEnd,
    FiringRow,
    FiringState,
    Task,
    add_firing,
    count_caught_up,
    count_failure,
    find_task,
    finish_firing,
    forget_failures,
    forget_old,
    look_around,
    move_on,
    note_gated,
    note_submitted,
    note_told,
    open_firings,
    pause_task,
    take_due,
    tasks_of_zone,
    try_later,
    zones_in_use,
)
from switchboard.modules.schedule.planning import ON_TIME, Due, catch_up, comes_too_late, due_again, next_due
from switchboard.modules.schedule.settings import TaskLimits
from switchboard.ports.front_door import Firing, FrontDoor, Origin
from switchboard.ports.gates import Gate, GateAnswer, Gates
from switchboard.ports.module_store import ModuleStore, TakenOver

log = structlog.get_logger(__name__)

_BATCH: Final = 100
_EACH: Final = 20
_WAIT_S: Final = 5.0
_LONGEST_WAIT_S: Final = 300.0
_OBSTACLE_WAIT_S: Final = 3600.0
_SLOW_S: Final = 5.0
"""Seconds of one run after which no further condition is checked in it."""
_TOLD_AFTER: Final = 3
"""Times in a row that a condition could not be checked, after which its person is told, once."""
_LEFT_LYING: Final = "it was due in time, but could not be carried out for too long"


class DueTasks:
    """Carries out what is due, in one worker."""

    def __init__(self, door: FrontDoor, settings: TaskLimits, gates: Gates) -> None:
        self._door = door
        self._gates = gates
        self._settings = settings
        self._follows_zones = True

    async def carry_out(self, store: ModuleStore) -> None:
        """All that is due now. If nothing is, it is one query. Raises `Unavailable`, `TakenOver`."""
        if self._follows_zones:
            await self.follow_zone_rules(store)
            self._follows_zones = False
        seen = await look_around(store)
        if seen.due:
            while await self._write_down(store, seen.now) == _BATCH:
                pass
        if seen.due or seen.open:
            await self._end_firings(store, seen.now)

    async def forget_old(self, store: ModuleStore) -> None:
        """What is older than 90 days."""
        async with store.transaction() as one:
            await forget_old(one)

    async def follow_zone_rules(self, store: ModuleStore) -> None:
        """Plan again what was planned by other rules of its zone than this machine has: the wall time stays."""
        for zone, rules in await zones_in_use(store):
            try:
                found = fingerprint_of(find_zone(zone))
            except ValueError as error:  # its tasks are paused when they are due
                log.warning("this machine does not know a time zone", why=str(error))
                continue
            if found == rules:
                continue
            log.info("the rules of a time zone have changed: its tasks are planned again", zone=zone)
            while await self._plan_again(store, zone, found) == _BATCH:
                pass

    async def _plan_again(self, store: ModuleStore, zone: str, rules: str) -> int:
        async with store.transaction() as one:
            tasks = await tasks_of_zone(one, zone, rules, _BATCH)
            for task in tasks:
                if task.due is not None:
                    await move_on(one, task, due_again(task.timing, task.due))
        return len(tasks)

    async def _write_down(self, store: ModuleStore, now: datetime) -> int:
        """Make firings of the tasks that are due, and plan their next time, in one transaction."""
        async with store.transaction() as one:
            tasks = await take_due(one, _BATCH)
            for task in tasks:
                try:
                    await _write_firing(one, task, now)
                except (ValueError, OverflowError) as error:  # such as a zone that this machine does not know
                    log.warning("a task cannot be planned", task=task.short_id, why=str(error))
                    await pause_task(one, task.task_id, str(error))
        return len(tasks)

    async def _end_firings(self, store: ModuleStore, now: datetime) -> None:
        """Carry out or tell what is open, the oldest of each person first."""
        began = monotonic()
        firings = await open_firings(store, _EACH, _BATCH)
        late = any(one.late_s > ON_TIME.total_seconds() for one in firings)
        done = dict(await count_caught_up(store, ON_TIME)) if late and self._settings.catch_up else {}
        for firing in firings:
            task = await find_task(store, firing.task_id)
            if task is None:
                continue
            if self._settings.catch_up and firing.is_open and firing.late_s > ON_TIME.total_seconds():
                if done.get(task.person, 0) >= self._settings.catch_up:
                    continue
                done[task.person] = done.get(task.person, 0) + 1
            await self._end_or_wait(store, task, firing, now)
            if task.gate and monotonic() - began > _SLOW_S:
                return  # what is due by now comes before the other conditions

    async def _end_or_wait(self, store: ModuleStore, task: Task, firing: FiringRow, now: datetime) -> None:
        """One firing; whatever goes wrong with it stops no other."""
        try:
            if firing.is_open:
                await self._end_firing(store, task, firing, now)
            else:
                await self._tell_person(store, task, firing)
        except TakenOver:
            raise
        except InvalidInput as error:
            await self._give_up(store, firing, str(error))
        except msgspec.MsgspecError as error:
            await self._give_up(store, firing, f"its origin cannot be read: {error}")
        except Exception as error:  # it is seen in the ledger, and tried again
            log.warning("a task that is due has to wait", task=task.short_id, why=str(error), exc_info=True)
            await try_later(store, firing, min(_WAIT_S * 2 ** min(firing.tries, 10), _LONGEST_WAIT_S), str(error))

    async def _end_firing(self, store: ModuleStore, task: Task, firing: FiringRow, now: datetime) -> None:
        if task.state in ("cancelled", "paused"):
            await finish_firing(store, firing, FiringEnd("skipped", why=f"the task was {task.state}"))
        elif _is_too_late(task, firing, now):
            await finish_firing(
                store,
                firing,
                FiringEnd("missed", why=_LEFT_LYING, tell=words.explain_missed(task, firing.wall, firing.passed)),
            )
        elif why := await self._door.obstacle(_origin_of(task)):
            await self._pause_after(store, task, firing, why)
        elif await self._passes_gate(store, task, firing):
            text = words.late(task, firing) if task.kind == "say" and firing.late_s > ON_TIME.total_seconds() else ""
            submitted = await self._door.submit(
                _firing_of(task, firing, text or task.text, own=task.own and not text, say=task.kind == "say")
            )
            await finish_firing(store, firing, FiringEnd(_state_after(task), submitted.request_id))

    async def _passes_gate(self, store: ModuleStore, task: Task, firing: FiringRow) -> bool:
        """Whether it is to be carried out: it has no condition, or that holds. Otherwise it has ended."""
        if not task.gate or firing.state == "gated":
            return True
        answer = await self._gates.check(_origin_of(task), msgspec.json.decode(task.gate, type=Gate))
        async with store.transaction() as one:
            if answer.result == "failed":
                await _end_unchecked(one, task, firing, answer)
                return False
            await forget_failures(one, task.task_id)
            if answer.result == "nothing":
                await finish_firing(one, firing, FiringEnd("skipped", gate_exit=1, why="its condition did not hold"))
                return False
            await note_gated(one, firing)
        return True

    async def _pause_after(self, store: ModuleStore, task: Task, firing: FiringRow, why: str) -> None:
        log.warning("a task is paused", task=task.short_id, butler=task.system_id, why=why)
        async with store.transaction() as one:
            await finish_firing(
                one, firing, FiringEnd("failed", why=why, tell=words.explain_pause(task, firing.wall, why))
            )
            await pause_task(one, task.task_id, why)

    async def _tell_person(self, store: ModuleStore, task: Task, firing: FiringRow) -> None:
        """Under the key of the firing, which was not used: whatever happens, its person is told once."""
        if why := await self._door.obstacle(_origin_of(task)):
            await try_later(store, firing, _OBSTACLE_WAIT_S, why)
            return
        submitted = await self._door.submit(_firing_of(task, firing, firing.tell, own=False, say=True))
        if submitted.duplicate and firing.why == _LEFT_LYING:  # killed after it was carried out, and found too late
            await note_submitted(store, firing, _state_after(task))
        await note_told(store, firing, submitted.request_id)

    async def _give_up(self, store: ModuleStore, firing: FiringRow, why: str) -> None:
        """The door does not take it. Its person is told, unless that is what it does not take."""
        log.error("a task that was due cannot be carried out", task=str(firing.task_id), why=why)
        if firing.is_open:
            await finish_firing(
                store, firing, FiringEnd("failed", why=why, tell=words.explain_refusal(firing.wall, why))
            )
        else:
            await note_told(store, firing, None)


async def _end_unchecked(store: ModuleStore, task: Task, firing: FiringRow, answer: GateAnswer) -> None:
    log.warning("the condition of a task cannot be checked", task=task.short_id, why=answer.why)
    failures = await count_failure(store, task.task_id)
    told = failures == _TOLD_AFTER or not task.cron  # what is due once is not tried again
    tell = words.explain_unchecked(task, firing.wall, answer.why) if told else ""
    await finish_firing(store, firing, FiringEnd("failed", gate_exit=2, why=answer.why, tell=tell))


async def _write_firing(store: ModuleStore, task: Task, now: datetime) -> None:
    due = task.due
    if due is None:
        return
    again = due_again(task.timing, due)
    # If it comes later by now, the rules of the zone have changed. What became due after `now` was read is due.
    if again.at > max(now, due.at):
        await move_on(store, task, again)
        return
    latest, passed, following = catch_up(task.timing, again, now)
    missed = comes_too_late(task.kind, latest, following, now)
    tell = words.explain_missed(task, latest.wall, passed) if missed else ""
    await add_firing(store, task, latest, late=now - latest.at, passed=passed, missed=tell)
    await move_on(store, task, following)


def _is_too_late(task: Task, firing: FiringRow, now: datetime) -> bool:
    """A firing that was written down in time, but could not be carried out for long."""
    due = Due(firing.due, firing.wall)
    return comes_too_late(task.kind, due, next_due(task.timing, due.at), now)


def _state_after(task: Task) -> FiringState:
    return "said" if task.kind == "say" else "fired"


def _origin_of(task: Task) -> Origin:
    return msgspec.json.decode(task.origin, type=Origin)


def _firing_of(task: Task, firing: FiringRow, text: str, *, own: bool, say: bool) -> Firing:
    return Firing(
        origin=_origin_of(task),
        task_id=str(task.task_id),
        revision=firing.revision,
        due=firing.due,
        made_at=task.made_at,
        text=text,
        say=say,
        own=own,
        tainted=task.tainted,
    )
