"""The first run in a real browser: from an empty directory to the first answer, and to a butler with a model.

`python -m tests.first_run` prints how many seconds and clicks that takes, from the start of `switchboard up` on, with
and without JavaScript; tests call the same functions. In: an empty directory; out: a `FirstRunFigures`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

import httpx2

from tests.browser import DESK, PageFailed, Tab, open_tab, run_chromium
from tests.processes import DEADLINE, Server, environment, running, scripted_llm
from tests.servers import NO_TLS

WORKER: Final[dict[str, Any]] = {
    "rules": [
        {
            "when": {"tool": "look_up_number"},
            "replies": [{"calls": [{"name": "look_up_number", "arguments": {"person": "Ada"}}]}],
            "again": True,
        },
        {
            "when": {"system": "helpful assistant", "results": False},
            "replies": [{"calls": [{"name": "write_file", "arguments": {"path": "notes.txt", "content": "buy milk"}}]}],
            "again": True,
        },
        {"when": {"system": "helpful assistant"}, "replies": [{"text": "It is in notes.txt."}], "again": True},
        {"when": {}, "replies": [{"text": "{}"}], "again": True},
    ]
}
"""A model that calls tools, as its server's script."""
LOOK: Final = "#model form.look button"
WELCOMED: Final = "document.querySelector('h1')?.innerText === 'Welcome'"
HEARD: Final = "document.querySelector('#chat > :last-child .theirs .bubble') !== null"


class FirstRunFigures(NamedTuple):
    """Of one way: seconds since the start of `up`, clicks of a person."""

    what: str
    seconds: float
    clicks: int


class Visitor:
    """Somebody at the page who counts clicks."""

    def __init__(self, tab: Tab, *, script: bool) -> None:
        self.tab = tab
        self.script = script
        self.clicks = 0

    async def click(self, selector: str) -> None:
        """Click, and wait for the page that it leads to."""
        self.clicks += 1
        await self.tab.click(selector)

    async def sign_in(self, link: str) -> None:
        """Open the link that `up` has printed, and press its button."""
        await self.tab.open(link)
        await self.click("main button")

    async def say(self, text: str) -> None:
        """Write something, and wait for the answer."""
        await self.draft(text)
        await self.click("#box button")
        if self.script:
            await self.tab.until(HEARD, DEADLINE)
        while not await self.tab.evaluate(HEARD):
            await self.tab.open(await self.tab.evaluate("location.href.split('#')[0]"))

    async def draft(self, text: str) -> None:
        """Write something, and do not send it yet."""
        await self.tab.evaluate("document.querySelector('#text').focus()")
        await self.tab.type(text)

    async def look_for_models(self) -> None:
        """Press the button: with JavaScript, the page stays as it is."""
        self.clicks += 1
        if self.script:
            await self.tab.press(LOOK)
            await self.tab.until("document.querySelector('#url') !== null")
        else:
            await self.tab.click(LOOK)


@asynccontextmanager
async def visitor_of(
    chromium: str, server: Server, *, script: bool = True, size: tuple[int, int] = DESK
) -> AsyncIterator[Visitor]:
    """A tab in which nobody is signed in yet, and then is."""
    async with open_tab(chromium, size, script=script) as tab:
        visitor = Visitor(tab, script=script)
        await visitor.sign_in(await link_to(server))
        yield visitor


async def link_to(server: Server) -> str:
    """What `switchboard open` prints."""
    url, file = server.said["url"], Path(server.said["token_file"])
    token = (await asyncio.to_thread(file.read_text, encoding="ascii")).strip()
    async with httpx2.AsyncClient(base_url=url, verify=NO_TLS, headers={"authorization": f"Bearer {token}"}) as http:
        made = await http.post("/v1/web/links", json={})
    return f"{url}{made.json()['path']}"


async def first_answer(chromium: str, server: Server, began: float, *, script: bool = True) -> FirstRunFigures:
    """From nothing to the first answer, of the butler that keeps notes."""
    async with visitor_of(chromium, server, script=script) as visitor:
        assert await visitor.tab.evaluate(WELCOMED)
        await visitor.say("The bin is emptied on Tuesday")
        assert "Why did it go there?" in await visitor.tab.text()
        return FirstRunFigures(f"first answer{_how(script)}", monotonic() - began, visitor.clicks)


async def first_tool_call(
    chromium: str, server: Server, model_url: str, began: float, *, script: bool = True
) -> FirstRunFigures:
    """From nothing to a butler with the model there, tested, written and restarted, that has called a tool."""
    async with visitor_of(chromium, server, script=script) as visitor:
        tab = visitor.tab
        await visitor.look_for_models()
        await choose_address(tab, model_url)
        await visitor.click("button[value=test]")
        assert "answers, and calls tools" in await tab.evaluate("document.querySelector('#tried').innerText")
        await visitor.click("button[value=show]")
        assert "switchboard.toml" in await tab.evaluate("document.querySelector('#new-files').innerText")
        await visitor.click("button[value=write]")
        await come_back(visitor)
        await visitor.say("Note that I must buy milk")
        assert "It is in notes.txt." in await tab.text()
        return FirstRunFigures(f"first tool call{_how(script)}", monotonic() - began, visitor.clicks)


async def choose_address(tab: Tab, model_url: str) -> None:
    """Choose another server, and enter its address."""
    await tab.press("input[value=other]")
    await tab.evaluate("document.querySelector('#url').focus()")
    await tab.type(model_url)


async def come_back(visitor: Visitor) -> None:
    """Wait until the page is there again after a restart: by itself with JavaScript, else by its own reload."""
    if visitor.script:
        await visitor.tab.until(WELCOMED, DEADLINE)
        return
    address = await visitor.tab.evaluate("document.querySelector('main a').href")
    while not await visitor.tab.evaluate(WELCOMED):
        with suppress(PageFailed):
            await visitor.tab.open(address)


def _how(script: bool) -> str:
    return "" if script else ", without JavaScript"


@contextmanager
def started(directory: Path, **more: str) -> Iterator[Server]:
    """`switchboard up` in a directory, as a person starts it who has nothing else."""
    env = environment(directory / "data", LOG_LEVEL="error", **more) | {"HOME": str(directory)}
    for name in [one for one in env if one.endswith(("_API_KEY", "_KEY"))]:
        del env[name]
    with running(env, "up", cwd=directory, before=("env",)) as server:  # it becomes itself, which a fork cannot
        yield server


def main() -> None:
    """Print the figures of this machine."""
    for script in (True, False):
        with run_chromium() as chromium, tempfile.TemporaryDirectory() as place:
            Path(place).chmod(0o755)  # as root, PostgreSQL runs as somebody else
            for name in ("notes", "model"):
                directory = Path(place) / name
                directory.mkdir(mode=0o755)
                with scripted_llm(WORKER, Path(place)) as provider:
                    began = monotonic()
                    with started(directory) as server:
                        work = (
                            first_answer(chromium, server, began, script=script)
                            if name == "notes"
                            else first_tool_call(chromium, server, f"{provider}/v1", began, script=script)
                        )
                        figures = asyncio.run(work)
                        print(f"{figures.what}: {figures.seconds:.1f} s, {figures.clicks} clicks")


if __name__ == "__main__":
    main()
