"""Consolidation as what workers do from time to time. `app/ops/periodic.py` lists it.

Next: `journey/consolidation.py`.
"""

from __future__ import annotations

from switchboard.app.models.process import compacting
from switchboard.app.runtime import Runtime
from switchboard.journey.consolidation import Consolidator
from switchboard.ports.maintenance import MaintenanceTask
from switchboard.ports.models import Models
from switchboard.store.memory.consolidation import forget_old_runs


def consolidation_tasks(runtime: Runtime, models: Models) -> tuple[MaintenanceTask, ...]:
    """Facts are found by compaction alone if no model can be asked, or no tokens are for this."""
    settings, database = runtime.settings.memory, runtime.database
    forgetting = MaintenanceTask("forget_runs", 3600.0, lambda: forget_old_runs(database, settings.keep_days))
    names = compacting(runtime.settings.models, settings.compact_model)
    if not names or not settings.consolidation_tokens:
        return (forgetting,)
    owns = runtime.rule_book.owns
    consolidator = Consolidator(database, models, names, settings.consolidation_tokens, owns=owns)
    runtime.closing.push_async_callback(consolidator.aclose)
    return (forgetting, MaintenanceTask("consolidate", 300.0, consolidator.start_due))
