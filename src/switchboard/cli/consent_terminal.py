"""A terminal at which somebody signs in by OAuth 2: the page is opened in a browser, or the final address is pasted.

`login_terminal.py` has one. In: the address of the page; out: lines that were entered.
Next: `transport/oauth/sign_in.py`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from contextlib import suppress
from typing import Final

import typer

_PIECE: Final = 65_536


class ConsentTerminal:
    """The part of a `ConsentDesk` that shows a page, on standard error, and waits for the address at its end."""

    def __init__(self) -> None:
        self._rest = b""

    def open_page(self, address: str) -> None:
        """Print it on a line of its own; a browser is started only where it has a screen."""
        typer.echo(address, err=True)
        if sys.stdin.isatty() and _has_screen():
            with suppress(webbrowser.Error):
                webbrowser.open(address)

    async def pasted_line(self) -> str:
        """As in the protocol."""
        while b"\n" not in self._rest:
            piece = await _read_piece(sys.stdin.fileno())
            if not piece:
                await asyncio.Event().wait()  # its end: nobody can paste anything
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace").strip()


async def _read_piece(descriptor: int) -> bytes:
    """What has been entered, as soon as there is anything; no thread waits for it, which could not be ended."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:  # a file, which is always ready
        return os.read(descriptor, _PIECE)
    try:
        await ready.wait()
        return os.read(descriptor, _PIECE)
    finally:
        loop.remove_reader(descriptor)


def _has_screen() -> bool:
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
