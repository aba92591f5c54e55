"""A real browser, driven over its own protocol (CDP): what pages show and run, what they ask for, what they violate.

Tests take `chromium`, a fixture of a whole session, and open a `Tab` in it with cookies of its own. Source:
chromedevtools.github.io/devtools-protocol.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path
from shutil import rmtree, which
from time import monotonic, sleep
from typing import Any, Final

import websockets

SOON: Final = 20.0
DESK: Final = (1280, 800)
PHONE: Final = (390, 844)
AXE: Final = Path(__file__).with_name("web") / "axe.min.js"
_LEVELS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
_PROGRAMS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_SWITCHES: Final = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--disable-gpu",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)

_POST: Final = """(url, fields) => {
    const form = document.createElement('form');
    form.method = 'post';
    form.action = url;
    for (const [name, value] of Object.entries(fields)) {
        const field = document.createElement('input');
        field.name = name;
        field.value = value;
        form.append(field);
    }
    document.body.append(form);
    form.submit();
}"""


def find_chromium() -> str | None:
    """The program, if there is one. The shell has no windows to keep: a page takes a fifth of the CPU time in it."""
    return next(filter(None, map(which, _PROGRAMS)), None)


@contextmanager
def run_chromium() -> Iterator[str]:
    """A headless Chromium; yields the address of its protocol."""
    program = find_chromium()
    if program is None:
        raise RuntimeError("there is no chromium here")
    place = Path(tempfile.mkdtemp(prefix="chromium-"))
    alone = ["--no-sandbox"] if os.geteuid() == 0 else []
    running = subprocess.Popen(
        [program, *_SWITCHES, *alone, f"--user-data-dir={place}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield _protocol_address(place / "DevToolsActivePort", running)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        rmtree(place, ignore_errors=True)


def _protocol_address(file: Path, running: subprocess.Popen[bytes]) -> str:
    """Chromium says where it listens in a file."""
    until = monotonic() + SOON
    while monotonic() < until and running.poll() is None:
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        sleep(0.02)
    raise RuntimeError("chromium did not start")


class PageFailed(Exception):
    """The browser refused a command, or a script of the test threw."""


class Tab:
    """A page of a browser. What it did since it was opened: `requests`, and `troubles` (console, policy)."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self._socket = socket
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._session: str | None = None
        self._context: str | None = None
        self._target: str | None = None
        self._loaded = asyncio.Event()
        self.requests: list[str] = []
        self.troubles: list[str] = []

    async def send(self, method: str, **params: object) -> Any:
        """Call a method of the protocol. Raises PageFailed."""
        number = next(self._ids)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        await self._socket.send(json.dumps(message))
        async with asyncio.timeout(SOON):
            return await answer

    async def listen(self) -> None:
        """Take answers and events. Runs until cancelled."""
        async for raw in self._socket:
            message = json.loads(raw)
            if "id" in message:
                self._settle(message)
            else:
                self._note(message["method"], message["params"])

    def _settle(self, message: Mapping[str, Any]) -> None:
        waiting = self._waiting.pop(message["id"])
        if waiting.done():
            return
        if "error" in message:
            waiting.set_exception(PageFailed(message["error"]["message"]))
        else:
            waiting.set_result(message["result"])

    def _note(self, event: str, told: Mapping[str, Any]) -> None:
        match event:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Runtime.exceptionThrown":
                self.troubles.append(f"exception: {told['exceptionDetails'].get('exception', {}).get('description')}")
            case "Log.entryAdded" if told["entry"]["level"] in {"error", "warning"}:
                self.troubles.append(f"{told['entry']['source']}: {told['entry']['text']}")
            case "Runtime.consoleAPICalled" if told["type"] in {"error", "warning", "assert"}:
                said = [str(one.get("value", one.get("description"))) for one in told["args"]]
                self.troubles.append(f"console: {' '.join(said)}")
            case "Audits.issueAdded" if told["issue"]["code"] == "ContentSecurityPolicyIssue":
                self.troubles.append(f"CSP: {told['issue']['details']['contentSecurityPolicyIssueDetails']}")

    async def know_nobody(self) -> None:
        """Have cookies of its own; they go when this tab's connection ends, and so does the page."""
        context = await self.send("Target.createBrowserContext", disposeOnDetach=True)
        self._context = context["browserContextId"]

    def share_cookies(self, other: Tab) -> None:
        """Be a tab of the same browser."""
        self._context = other._context

    async def start(self, size: tuple[int, int], *, script: bool, dark: bool, **how: object) -> None:
        """Make the page; `how`: as `Target.createTarget` has it."""
        target = await self.send("Target.createTarget", url="about:blank", browserContextId=self._context, **how)
        self._target = target["targetId"]
        attached = await self.send("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "Audits"):
            await self.send(f"{domain}.enable")
        await self.resize(size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])
        if not script:
            await self.send("Emulation.setScriptExecutionDisabled", value=True)

    async def resize(self, size: tuple[int, int]) -> None:
        """Another window."""
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=size[0],
            height=size[1],
            deviceScaleFactor=1,
            mobile=size[0] < 600,
        )

    async def open(self, url: str) -> None:
        """Go to an address, and wait until it is loaded. Raises PageFailed."""
        self._loaded.clear()
        went = await self.send("Page.navigate", url=url)
        if "errorText" in went:
            raise PageFailed(f"{url}: {went['errorText']}")
        await self.loaded()

    async def post(self, url: str, fields: Mapping[str, str]) -> None:
        """Send a form with these fields there, and wait until the page that follows is loaded."""
        self._loaded.clear()
        await self.evaluate(f"({_POST})({json.dumps(url)}, {json.dumps(dict(fields))})")
        await self.loaded()

    async def loaded(self) -> None:
        """Wait for the page that is being loaded."""
        async with asyncio.timeout(SOON):
            await self._loaded.wait()

    async def click(self, selector: str) -> None:
        """Press what the selector finds, as with a mouse; returns when the page that follows is loaded."""
        self._loaded.clear()
        await self.press(selector)
        await self.loaded()

    async def leave_by_key(self, name: str) -> None:
        """Press a key that leads to another page; returns when that is loaded."""
        self._loaded.clear()
        await self.key(name)
        await self.loaded()

    async def press(self, selector: str) -> None:
        """The same, where no page follows."""
        spot = await self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.send("Input.dispatchMouseEvent", type=kind, x=spot[0], y=spot[1], button="left", clickCount=1)

    async def type(self, text: str) -> None:
        """Write into what has the focus."""
        await self.send("Input.insertText", text=text)

    async def key(self, name: str) -> None:
        """A key such as Tab or Enter."""
        text = {"Enter": "\r"}.get(name)
        codes = {"Tab": 9, "Enter": 13, "Escape": 27}
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            await self.send(
                "Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=codes[name], **more
            )

    async def evaluate(self, script: str) -> Any:
        """The value of an expression in the page; a promise is awaited. Raises PageFailed."""
        told = await self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise PageFailed(str(told["exceptionDetails"].get("exception", {}).get("description")))
        return told["result"].get("value")

    async def until(self, script: str, within: float = SOON) -> None:
        """Wait until an expression in the page is true."""
        async with asyncio.timeout(within):
            while not await self.evaluate(script):
                await asyncio.sleep(0.02)

    async def cookie(self, beginning: str) -> str:
        """The value of the cookie whose name begins so."""
        found = (await self.send("Network.getCookies"))["cookies"]
        return next(str(one["value"]) for one in found if one["name"].startswith(beginning))

    async def close(self) -> None:
        """Close it, where its cookies stay."""
        await self.send("Target.closeTarget", targetId=self._target)

    async def text(self) -> str:
        """What a person reads."""
        return str(await self.evaluate("document.body.innerText"))

    async def find_barriers(self) -> list[str]:
        """What axe-core finds that keeps people out, at the levels A and AA."""
        await self.evaluate(AXE.read_text(encoding="utf-8"))
        tags = json.dumps(list(_LEVELS))
        found = await self.evaluate(
            f"axe.run(document, {{runOnly: {tags}, iframes: false}}).then(r => r.violations.map("
            "v => v.id + ': ' + v.nodes.map(n => n.target + ' ' + n.failureSummary).join('; ')))"
        )
        return [str(one) for one in found]

    async def is_wider_than_window(self) -> bool:
        """Whether one has to scroll sideways."""
        return bool(await self.evaluate("document.documentElement.scrollWidth > innerWidth"))

    async def picture(self, file: Path, *, whole: bool = False) -> None:
        """Save what is seen, as PNG or WebP; `whole`: also what one would scroll to."""
        more: dict[str, object] = {"captureBeyondViewport": True} if whole else {}
        if whole:
            box = (await self.send("Page.getLayoutMetrics"))["cssContentSize"]
            more["clip"] = {"x": 0, "y": 0, "width": box["width"], "height": min(box["height"], 4000), "scale": 1}
        kind = file.suffix.removeprefix(".")
        if kind == "webp":
            more["quality"] = 80
        shot = await self.send("Page.captureScreenshot", format=kind, **more)
        await asyncio.to_thread(file.write_bytes, b64decode(shot["data"]))


@asynccontextmanager
async def open_tab(
    chromium: str, size: tuple[int, int] = DESK, *, script: bool = True, dark: bool = False
) -> AsyncIterator[Tab]:
    """A page in a window of this size, in a browser that knows nobody."""
    async with _connected(chromium) as tab:
        await tab.know_nobody()
        await tab.start(size, script=script, dark=dark)
        yield tab


@asynccontextmanager
async def open_another(chromium: str, first: Tab) -> AsyncIterator[Tab]:
    """A page of the same browser, in a window beside the first."""
    async with _connected(chromium) as tab:
        tab.share_cookies(first)
        await tab.start(DESK, script=True, dark=False, newWindow=True)
        try:
            yield tab
        finally:
            await tab.close()


@asynccontextmanager
async def _connected(chromium: str) -> AsyncIterator[Tab]:
    async with websockets.connect(chromium, max_size=None, ping_interval=None) as socket:
        tab = Tab(socket)
        listening = asyncio.create_task(tab.listen())
        try:
            yield tab
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening
