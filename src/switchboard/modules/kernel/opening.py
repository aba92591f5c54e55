"""Opens one module: imports what its manifest names, and calls it, under limits, whatever it does.

`opened.py` calls it with the context that the module gets. In: a manifest and a `ModuleContext`; out: the `Module`, or
`ForeignFailure`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from importlib import import_module
from typing import Any, Final, Protocol, cast

from msgspec import Struct

from switchboard.modules.kernel.foreign import ForeignFailure, call_foreign, describe_failure, retrieve_error
from switchboard.ports.module import Module, ModuleContext, ModuleManifest
from switchboard.tasks import refuse_exit

OPENING_S: Final = 20.0
"""Seconds for the import, and again for opening."""
CLOSING_S: Final = 5.0


class CallModule(Protocol):
    """Runs what a module does. Raises RuntimeError where it wants to end the process."""

    def __call__(self, work: Awaitable[object], /) -> Coroutine[Any, Any, object]: ...


class _Imported(Struct, frozen=True):
    """The function that opens a module, if it is async; otherwise what it has opened."""

    function: Callable[[ModuleContext], Coroutine[Any, Any, object]] | None
    opened: object = None


async def open_module(
    manifest: ModuleManifest, context: ModuleContext, around: CallModule, seconds: float = OPENING_S
) -> Module:
    """Open a module; `around` runs what it does in the event loop. Raises `ForeignFailure`."""

    def load() -> _Imported:
        package, _, name = manifest.opens.partition(":")
        function: Any = getattr(import_module(package), name)
        return _Imported(function) if inspect.iscoroutinefunction(function) else _Imported(None, function(context))

    imported = await call_foreign(load, seconds)
    if imported.function is None:
        opened = imported.opened
    else:
        opened = await _run_within(around(imported.function(context)), seconds)
    if not hasattr(opened, "aclose") or not hasattr(opened, "chores"):
        raise ForeignFailure(f"{manifest.opens} returned {type(opened).__name__}, which is no module")
    return cast(Module, opened)


async def close_module(module: Module, seconds: float = CLOSING_S) -> None:
    """Close it, as far as it does that within the limit. Raises `ForeignFailure`."""
    await _run_within(refuse_exit(module.aclose), seconds)


async def _run_within(work: Awaitable[object], seconds: float) -> object:
    """What comes of it. What does not end in time is cancelled, and not waited for: it may refuse."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task,), timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
    if not task.done():
        task.add_done_callback(retrieve_error)
        raise ForeignFailure(f"it has not ended within {seconds:g} s")
    try:
        return task.result()
    except BaseException as error:
        raise describe_failure(error, seconds) from error
