"""The event loop and the garbage collector of what runs for long.

Called by `running.py` and `working.py`, and by `bench.py` for what in real life runs in a worker.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the loop. None, where there is none for the system: Python's own serves."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop


def spare_the_collector() -> None:
    """What is loaded now stays; searching it for garbage again and again took a tenth of the time of a message."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()
