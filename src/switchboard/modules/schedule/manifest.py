"""What the module is, before it is open. The entry point `schedule` of the group `switchboard.modules`."""

from __future__ import annotations

from typing import Final

from switchboard.modules.schedule.settings import TaskLimits
from switchboard.modules.schedule.tools import prepare_task, schedule_at, schedule_cancel, schedule_every, schedule_list
from switchboard.ports.front_door import FRONT_DOOR
from switchboard.ports.gates import GATES
from switchboard.ports.module import ModuleManifest, PersonalQueries, typed_tool

MANIFEST: Final = ModuleManifest(
    name="schedule",
    tools=(
        typed_tool(schedule_at, prepare=prepare_task, effect="idempotent", ordered=True, reach="inside"),
        typed_tool(schedule_every, prepare=prepare_task, effect="idempotent", ordered=True, reach="inside"),
        typed_tool(schedule_list, effect="idempotent", ordered=True, reach="inside"),
        typed_tool(schedule_cancel, effect="idempotent", ordered=True, reach="inside"),
    ),
    opens="switchboard.modules.schedule.opened:open_schedule",
    settings=TaskLimits,
    sql="switchboard.modules.schedule.sql",
    personal=PersonalQueries("tasks.of_person", ("tasks.lock_of_person", "tasks.erase_of_person")),
    needs=(FRONT_DOOR, GATES),
)
