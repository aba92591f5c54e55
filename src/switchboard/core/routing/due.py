"""The decision about a task that is due: it goes to its butler or to Switchboard itself, whatever the rules say. Pure.

Called by `journey/decide.py` and `journey/classify.py` in place of `decide.py`. In: an index, facts, and whom the task
is for; out: a `Decision` whose trail names the task. Next: `core/envelope/due.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from switchboard.core.envelope.due import task_named
from switchboard.core.routing.index import RoutingIndex
from switchboard.domain.envelope import DueTask
from switchboard.domain.routing import SWITCHBOARD, Chosen, Decision, SystemId, Target, TrailStep, Unrouted


def decide_task(index: RoutingIndex, facts: Mapping[str, str], pinned: SystemId | None, task: DueTask) -> Decision:
    """Who gets it: Switchboard, which says the text, or the butler; if there is no path to it, nobody else does."""
    root, targets = index.root, () if pinned is None else (Target(system_id=pinned),)
    if pinned == SWITCHBOARD:
        detail = f"{task_named(task)}: said by Switchboard itself"
        step = TrailStep(root, "command", targets=targets, detail=detail)
        return Decision(index.version, (Chosen(pinned, root),), (), (step,), facts)
    butler = None if pinned is None else index.butler(pinned)
    if butler is None:
        why = f"{task_named(task)}: {pinned} cannot be reached from the root"
        step, lost = TrailStep(root, "pin_unreachable", targets=targets, detail=why), index.handler(root)
        return Decision(index.version, (), (Unrouted(root, "target_unavailable", why, lost),), (step,), facts)
    step = TrailStep(root, "pin", targets=targets, detail=f"{task_named(task)}: a reminder of the butler to itself")
    return Decision(index.version, (butler,), (), (step,), facts)
