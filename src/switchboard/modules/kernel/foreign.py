"""Foreign code that is imported or called under a limit, in a thread that nobody waits for at the end.

Modules may loop, or end the process while they are imported: a thread that computes for ever costs a worker half of its
speed, but neither its life nor its end. Called by `manifests.py` and `opening.py`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


class ForeignFailure(Exception):
    """Foreign code has failed, in whatever way: a clause that says how."""


def call_foreign_now(work: Callable[[], _T], seconds: float) -> _T:
    """What comes of the work, waited for. Raises `ForeignFailure`."""
    try:
        return _start_thread(work).result(seconds)
    except BaseException as error:
        raise describe_failure(error, seconds) from error


async def call_foreign(work: Callable[[], _T], seconds: float) -> _T:
    """The same, while others go on. Raises `ForeignFailure`."""
    begun = asyncio.wrap_future(_start_thread(work))
    begun.add_done_callback(retrieve_error)
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.shield(begun)
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        raise describe_failure(error, seconds) from error


def describe_failure(error: BaseException, seconds: float) -> ForeignFailure:
    """An error of foreign code as a clause."""
    if isinstance(error, ForeignFailure):
        return error
    if isinstance(error, TimeoutError):
        return ForeignFailure(f"it has not ended within {seconds:g} s")
    if isinstance(error, SystemExit):
        return ForeignFailure(f"it wanted to end the process (SystemExit {error.code!r})")
    return ForeignFailure(f"{type(error).__name__}: {error}"[:500])


def _start_thread(work: Callable[[], _T]) -> Future[_T]:
    done: Future[_T] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            # Raised in a future, it would end the loop that waits for it.
            done.set_exception(error if isinstance(error, Exception) else describe_failure(error, 0))
        else:
            done.set_result(result)

    # A daemon, unlike the threads of an executor: the interpreter would wait for those when it ends.
    threading.Thread(target=run, name="a module", daemon=True).start()
    return done


def retrieve_error(done: asyncio.Future[_T]) -> None:
    """Mark the error of work that nobody waits for any more as seen."""
    if not done.cancelled():
        done.exception()
