"""What every worker does from time to time. A feature adds its line here.

`app/wiring.py` gives the tasks to a worker. In: the runtime, and the models and callbacks of the worker; out: tasks, of
which those run that the settings ask for. Next: `maintenance.py`, and the other modules that it imports.
"""

from __future__ import annotations

from collections.abc import Container
from itertools import chain

from switchboard.app.dead_letters.replies import reply_tasks
from switchboard.app.memory.consolidating import consolidation_tasks
from switchboard.app.memory.indexing import indexing_tasks
from switchboard.app.models.process import compacting
from switchboard.app.notices import notice_tasks
from switchboard.app.ops.erased_files import file_tasks
from switchboard.app.ops.maintenance import maintenance_tasks, retention_tasks
from switchboard.app.ops.traces import TraceExport, open_sink
from switchboard.app.runtime import Runtime
from switchboard.journey.compaction import Compactor
from switchboard.ports.maintenance import MaintenanceTask
from switchboard.ports.models import Models


def periodic_tasks(runtime: Runtime, models: Models, callbacks: Container[str]) -> tuple[MaintenanceTask, ...]:
    """All of them. What they open is closed with the runtime. Raises ConfigurationError."""
    database, settings = runtime.database, runtime.settings
    return tuple(
        chain(
            maintenance_tasks(database, runtime.notifier, settings.dead_letters, callbacks, runtime.channels),
            retention_tasks(database, settings.classify.keep_days, settings.memory.keep_days),
            reply_tasks(runtime),
            notice_tasks(runtime),
            _compaction_tasks(runtime, models),
            consolidation_tasks(runtime, models),
            indexing_tasks(database, settings.memory.languages, runtime.embedder),
            file_tasks(database, settings.data_dir, settings.memory.results_keep_days),
            _trace_tasks(runtime),
        )
    )


def _compaction_tasks(runtime: Runtime, models: Models) -> tuple[MaintenanceTask, ...]:
    """Nothing is compacted if no model can be asked."""
    names = compacting(runtime.settings.models, runtime.settings.memory.compact_model)
    if not names:
        return ()
    compactor = Compactor(runtime.database, models, names, owns=runtime.rule_book.owns)
    runtime.closing.push_async_callback(compactor.aclose)
    return (MaintenanceTask("compact", 2.0, compactor.start_due),)


def _trace_tasks(runtime: Runtime) -> tuple[MaintenanceTask, ...]:
    """Nothing is traced if no collector is named."""
    if (sink := open_sink(runtime.settings.traces)) is None:
        return ()
    traces = TraceExport(runtime.database, sink, runtime.settings.traces.share)
    runtime.closing.push_async_callback(traces.aclose)
    return (MaintenanceTask("export_traces", 2.0, traces.start_due),)
