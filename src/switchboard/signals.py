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
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

_PASSED_ON: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)


@dataclass(slots=True)
class _Blocks:
    """How many blocks of `default_signals` are open, and the signals that are ignored again after the last."""

    count: int = 0
    ignored: list[signal.Signals] = field(default_factory=list)


_OPEN: Final = _Blocks()


def drop_withheld() -> None:
    """From here on, drop the signals that we ignore, so that nothing that we start ignores them. Main thread only."""
    for number in _PASSED_ON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _drop_signal)


def is_withheld(number: signal.Signals) -> bool:
    """Whether our parent withholds this signal from us."""
    return signal.getsignal(number) in {signal.SIG_IGN, _drop_signal}


@contextmanager
def default_signals() -> Iterator[None]:
    """What is started within this block has these signals at their defaults; what we ignore, we go on ignoring.

    Blocks may overlap: the signals are ignored again when the last has ended. Outside of the main thread, where Python
    sets no handlers, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ignored = [number for number in _PASSED_ON if signal.getsignal(number) is signal.SIG_IGN]
    _OPEN.ignored += ignored
    _OPEN.count += 1
    try:
        for number in ignored:
            signal.signal(number, _drop_signal)
        yield
    finally:
        _OPEN.count -= 1
        while _OPEN.ignored and not _OPEN.count:
            signal.signal(_OPEN.ignored.pop(), signal.SIG_IGN)


def _drop_signal(number: int, frame: FrameType | None) -> None:
    """Do nothing: unlike an ignored signal, one with a handler is at its default in a program that we start."""
