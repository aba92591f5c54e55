"""Event loop and garbage collector settings for long-running processes.

Called by `running.py` and `working.py`, and by `cli/bench.py` for code that normally runs in a worker.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The factory of the event loop; None for Python's own, if there is no fast one for this system."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop


def spare_the_collector() -> None:
    """Exempt everything loaded now: collecting it again and again took a tenth of the time of a message."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()
