"""Forms of the page, filled in by keyboard alone, in a browser that runs no script."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.browser import Tab
from tests.servers import Opened

_FURTHEST: Final = 150
_KEYS: Final = {"ArrowDown": (40, ""), "Space": (32, " ")}


async def reach(tab: Tab, selector: str) -> None:
    """Go from one element to the next with the Tab key until one that the selector finds has the focus."""
    for _ in range(_FURTHEST):
        if await tab.evaluate(f"document.activeElement.matches({json.dumps(selector)})"):
            return
        await tab.key("Tab")
    raise AssertionError(f"no key leads to {selector}")


async def enter(tab: Tab, selector: str, text: str) -> None:
    """Write into a field, in place of what is there."""
    await reach(tab, selector)
    await tab.evaluate("document.activeElement.select?.()")
    await tab.type(text)


async def tick(tab: Tab, selector: str) -> None:
    """Tick a box, or open what is folded."""
    await reach(tab, selector)
    await strike(tab, "Space")


async def choose(tab: Tab, selector: str, value: str) -> None:
    """Choose from a list."""
    await reach(tab, selector)
    for _ in range(_FURTHEST):
        if await tab.evaluate("document.activeElement.value") == value:
            return
        await strike(tab, "ArrowDown")
    raise AssertionError(f"{selector} has no {value!r}")


async def follow(tab: Tab, selector: str) -> None:
    """Press Enter on a link or button, and wait for the page that it leads to."""
    await reach(tab, selector)
    await tab.leave_by_key("Enter")


async def strike(tab: Tab, key: str) -> None:
    """A key that writes nothing."""
    code, text = _KEYS[key]
    for kind in ("keyDown", "keyUp"):
        more = {"text": text} if text and kind == "keyDown" else {}
        name = " " if key == "Space" else key
        await tab.send("Input.dispatchKeyEvent", type=kind, key=name, code=key, windowsVirtualKeyCode=code, **more)


async def audited(server: Opened, action: str) -> list[dict[str, Any]]:
    """The rows of the audit for an action, newest first."""
    answer = await server.http.get("/v1/audit", params={"action": action})
    assert answer.is_success, answer.text
    return list(answer.json()["entries"])
