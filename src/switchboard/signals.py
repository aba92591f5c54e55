"""Signals that a parent withholds from us (`nohup`, `&` in a script), and what the programs that we start get.

What a process ignores, its programs ignore too, and a program that cannot be interrupted cannot be stopped gently. What
a process *handles* is at its default in its programs. So a signal that we are to ignore gets a handler that does
nothing: for good in processes of ours (`cli/main.py`), and in programs that embed us, only while we start something.
Python itself sees to SIGPIPE. Like `tasks.py` it knows nothing of Switchboard.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_PASSED_ON: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)


def drop_withheld() -> None:
    """From here on, drop the signals that we ignore, so that nothing that we start ignores them. Main thread only."""
    for number in _PASSED_ON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _drop)


def is_withheld(number: signal.Signals) -> bool:
    """Whether our parent withholds this signal from us."""
    return signal.getsignal(number) in {signal.SIG_IGN, _drop}


@contextmanager
def default_signals() -> Iterator[None]:
    """What is started within this block has these signals at their defaults; what we ignore, we go on ignoring.

    Outside of the main thread, where Python sets no handlers, it does nothing.
    """
    main = threading.current_thread() is threading.main_thread()
    ignored = [number for number in _PASSED_ON if main and signal.getsignal(number) is signal.SIG_IGN]
    try:
        for number in ignored:
            signal.signal(number, _drop)
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def _drop(number: int, frame: FrameType | None) -> None:
    """Do nothing."""
