"""The demo: the whole product on real input, with a worker killed in the middle.

Called by `commands.py`. In: a directory; out: a report on the terminal, and an exit code. Every part is the real one,
in a process of its own: server, two workers, `switchboard import`, `switchboard send`; this process plays the
connectors of Telegram and mail, which fetch replies and submit receipts. Next: `model.py`, for messages that no rule
decides.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final

from msgspec import Struct
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from switchboard.app.settings import Settings, load_settings
from switchboard.cli.client import Client, open_client, part
from switchboard.cli.demo.library import LIBRARY, Pages, a_port, pages_at
from switchboard.cli.demo.model import DESK, DemoModel, demo_model
from switchboard.cli.examples import examples
from switchboard.cli.messages.explain import tree_of
from switchboard.cli.output import Json, one_line, program, state, table
from switchboard.core.text.outside import outside_json
from switchboard.distribution import OUR_VARIABLES
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.json_values import JsonObject
from switchboard.domain.routing import SWITCHBOARD
from switchboard.tasks import cancel_tasks

_ENDPOINTS: Final = (("telegram", "telegram:bot:@house_switchboard_bot"), ("email", "house@home.example"))
_PATIENCE: Final = 50.0
_MAIN: Final = "switchboard.cli.main"
_SCRIPTED: Final = "switchboard.testing.scripted_llm"
_FOR_THE_CLERK: Final = "Put milk and bread on my shopping list, please."
_EXPECTED: Final = {"new": 21, "duplicates": 1, "refused": 1}
"""What `switchboard import` finds in `examples/inbox`."""


@dataclass(slots=True)
class Show:
    """The progress report; on a terminal the table is redrawn continually."""

    console: Console
    started: float = field(default_factory=monotonic)
    lines: list[str] = field(default_factory=list)
    messages: list[Json] = field(default_factory=list)
    ended: bool = False

    @property
    def live(self) -> bool:
        """Whether there is a terminal to draw on."""
        return self.console.is_terminal

    def tell(self, line: str) -> None:
        """Report what happens now."""
        text = f"{monotonic() - self.started:5.1f} s  {line}"
        self.lines.append(text)
        if not self.live:
            self.console.print(text, soft_wrap=True)

    def __rich__(self) -> Group:
        # While it runs, as much as fits on the screen; after its end, everything.
        newest = self.messages if self.ended else self.messages[: max(3, self.console.height - 14)]
        rows = [
            (m["channel"], one_line(m["sender"], 34), state(m["state"]), one_line(m["text"], 60))
            for m in reversed(newest)
        ]
        lines = self.lines if self.ended else self.lines[-10:]
        # The final table is shown in full; while it runs only first lines are, since the rest changes too fast.
        whole = [self.ended or line is self.lines[0] for line in lines]
        told = [Text(line, no_wrap=not all_, overflow="ellipsis") for line, all_ in zip(lines, whole, strict=True)]
        return Group(table("channel", "from", "state", "text", rows=rows), Text(), *told) if rows else Group(*told)


class DemoOutcome(Struct, frozen=True):
    """The final state; `certain`: the number of undeliverable messages is known beforehand."""

    took: Json
    explained: Mapping[str, Json]
    dead_letters: list[Json]
    books: Json
    certain: bool
    undecided: str | None = None
    """Why models that were asked decided nothing."""

    @property
    def counted(self) -> Json:
        """The counts of the import."""
        return {name: self.took[name] for name in _EXPECTED}

    @property
    def flaws(self) -> list[str]:
        """What is not as it should be."""
        found = []
        if not self.books["balanced"] or self.books["problems"]:
            found.append(f"the books do not balance: {self.books['problems']}")
        if self.counted != _EXPECTED:
            found.append(f"the import counted {self.counted}, not {_EXPECTED}")
        if self.certain and len(self.dead_letters) != 1:
            found.append(f"{len(self.dead_letters)} messages could not be delivered, not 1; --keep leaves demo.log")
        return found


def run_demo(directory: Path | None, *, keep: bool, console: Console, scripted: bool = False) -> int:
    """Run it in `directory` (kept), otherwise in a temporary one (removed, unless `keep`). 0: success.

    `scripted`: with the scripted model, even where the settings name another.

    Raises ConfigurationError when a part does not start, takes too long, or finds the directory in use.
    """
    if directory and directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigurationError(f"{directory} is not an empty directory; the demo starts from scratch: name a new one")
    home = _open_home(directory)
    try:
        settings = load_settings()
        with a_port() as listening:
            pages = pages_at(listening)
            model = demo_model(settings, examples(), home, pages, scripted=scripted)
            environment = {**environment_of(settings, home), **model.environment}
            demo = _with_pages(listening, pages, _run_demo(_Stage(home, environment, Show(console)), model, pages))
            return asyncio.run(_until_told_to_end(demo))
    except TimeoutError as error:
        raise ConfigurationError(f"the demo took too long. {_end_of_log(home)}".rstrip()) from error
    finally:
        if directory is None and not keep:
            shutil.rmtree(home, ignore_errors=True)


def _open_home(directory: Path | None) -> Path:
    """The directory for all files: `directory`, created if missing, or a temporary one."""
    if directory is not None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"{directory} cannot be created: {error}; name another directory") from error
        return directory.absolute()
    home = Path(tempfile.mkdtemp(prefix="switchboard-demo-"))
    if os.geteuid() == 0:
        home.chmod(0o711)  # the database runs as a plain user, who needs access to its own directory
    return home


async def _with_pages(listening: socket.socket, pages: Pages, demo: Coroutine[Any, Any, int]) -> int:
    """The demo, together with the pages that it fetches."""
    async with pages.serve_on(listening):
        return await demo


async def _until_told_to_end(demo: Coroutine[Any, Any, int]) -> int:
    """On a closed terminal or SIGTERM, end the demo as Ctrl-C does, with everything that it has started."""
    task = asyncio.create_task(demo)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup
        loop.add_signal_handler(signal.SIGHUP, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return 1


def environment_of(settings: Settings, home: Path) -> dict[str, str]:
    """The environment of all parts: ours without Switchboard's settings, except which PostgreSQL to run."""
    others = {k: v for k, v in os.environ.items() if not k.startswith(OUR_VARIABLES)}
    ours = {"DATA_DIR": str(home), "PORT": "0", "LOG_LEVEL": "warning"}
    if settings.postgres_binaries is not None:
        ours["POSTGRES_BINARIES"] = str(settings.postgres_binaries.absolute())
    return others | {f"SWITCHBOARD_{name}": value for name, value in ours.items()}


class _Stage(Struct, frozen=True):
    """The directory and environment of the parts, and the report."""

    home: Path
    environment: dict[str, str]
    show: Show


async def _run_demo(stage: _Stage, model: DemoModel, pages: Pages) -> int:
    show, environment = stage.show, stage.environment
    environment["SWITCHBOARD_TEAMS_DIR"] = str(model.teams)
    with Live(show, console=show.console, refresh_per_second=8, transient=True) if show.live else nullcontext():
        async with AsyncExitStack() as stack:
            show.tell(model.said)
            show.tell("setting up: a database, a server and two workers")
            environment.update(await _start_scripted_model(stage, model, stack))
            server = await stack.enter_async_context(_run_process(stage, "serve", "--while-stdin", "--json"))
            address = await _first_line(server, stage.home)
            show.tell(f"the server is listening at {address['url']}, database included")
            environment["SWITCHBOARD_URL"] = address["url"]
            environment["SWITCHBOARD_CLASSIFY__MCP_URL"] = f"{address['url']}/mcp"
            os.environ.update({k: environment[k] for k in ("SWITCHBOARD_URL", "SWITCHBOARD_DATA_DIR")})
            victim = await stack.enter_async_context(_run_worker(stage))
            client = await stack.enter_async_context(open_client())
            took = await _play_act(stage, client, (server, victim), stack, pages=pages if model.clerk else None)
            show.messages = await _list_messages(client)
            explained, undecided = await _find_interesting(client)
            books = await client.get("/v1/books", {"now": True})
            dead_letters = (await client.get("/v1/dead-letters"))["dead_letters"]
    return _show_epilogue(show, DemoOutcome(took, explained, dead_letters, books, model.certain, undecided))


async def _start_scripted_model(stage: _Stage, model: DemoModel, stack: AsyncExitStack) -> Mapping[str, str]:
    """Start the scripted model, if there is one; returns the environment for later parts."""
    if model.script is None:
        return {}
    words = ("--script", str(model.script), "--while-stdin")
    process = await stack.enter_async_context(_run_process(stage, *words, module=_SCRIPTED))
    return model.at((await _first_line(process, stage.home))["url"])


async def _play_act(
    stage: _Stage,
    client: Client,
    parts: tuple[asyncio.subprocess.Process, tuple[asyncio.subprocess.Process, int]],
    stack: AsyncExitStack,
    *,
    pages: Pages | None,
) -> Json:
    """Send everything, kill a busy worker, and wait until all is settled and sent."""
    server, (victim, number) = parts
    show = stage.show
    watching = asyncio.create_task(_watch_messages(client, show))
    connectors = [asyncio.create_task(_run_connector(client, show, *endpoint)) for endpoint in _ENDPOINTS]
    importing = asyncio.create_task(_import_inbox(stage))
    chatting = asyncio.create_task(_type_lines(stage, client, pages))
    tasks = (watching, *connectors, importing, chatting)
    try:
        await _wait_until(lambda: _is_busy(client), _Alive(stage.home, (server, victim), tasks))
        busy = await _count_running(client)
        os.kill(victim.pid, signal.SIGKILL)
        show.tell(f"kill -9 of worker {number}, in the middle of {busy} turns")
        second, _ = await stack.enter_async_context(_run_worker(stage))
        took = await importing
        show.tell(f"import: {took['new']} new, {took['duplicates']} duplicate, {took['refused']} refused")
        await chatting
        await _wait_until(lambda: _is_settled(client), _Alive(stage.home, (server, second), tasks))
        show.tell("everything is done, every reply has its receipt")
        return took
    finally:
        await cancel_tasks(*tasks)


def _show_epilogue(show: Show, outcome: DemoOutcome) -> int:
    console, dead_letters, books = show.console, outcome.dead_letters, outcome.books
    show.ended = True
    if show.live:
        console.print(show)
    for title, explanation in outcome.explained.items():
        console.print(f"\n{title}", style="bold")
        console.print(tree_of(explanation))
    if outcome.undecided is not None:
        console.print(f"\nNo message was decided by a model: {outcome.undecided}", style="bold yellow", soft_wrap=True)
    console.print("\nWhat could not be delivered, kept whole:", style="bold")
    rows = [(x["team_id"], x["channel"], x["category"], x["handler"], one_line(x["reason"], 300)) for x in dead_letters]
    names = ("team", "channel", "category", "notified", "reason")
    console.print(table(*names, rows=rows, keep=names[2:3], wrap=True, room=40))
    console.print("\nThe books:", style="bold")
    counted = ("accepted", "in_flight", "answered", "declined", "dead", "cancelled", "held")
    console.print(table(*counted, rows=[[books[name] for name in counted]]))
    good = not outcome.flaws
    summary = "they balance: nothing lost, nothing doubled" if good else f"NOT as expected: {'; '.join(outcome.flaws)}"
    console.print(f"{summary}. {monotonic() - show.started:.0f} s in all.", style="bold green" if good else "bold red")
    console.print(f"\nNext, start it for real: {program()} up (a tour is in docs/tour.md)", soft_wrap=True)
    console.print(f"and talk to it in another terminal: {program()} chat", soft_wrap=True)
    return 0 if good else 1


@asynccontextmanager
async def _run_process(
    stage: _Stage, *arguments: str, module: str = _MAIN
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Switchboard command in a separate process; shut down cleanly or, if that fails, at once.

    It runs in the demo's home: a `switchboard.toml` where the demo was started may name a real database.
    """
    with (stage.home / "demo.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, *arguments),
            env=stage.environment,
            cwd=stage.home,
            stdin=asyncio.subprocess.PIPE,  # with `--while-stdin`, it runs no longer than we do
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 10)
            except TimeoutError:
                process.kill()
        await _wait_closed(process)


async def _wait_closed(process: asyncio.subprocess.Process) -> None:
    """Wait until the process and its pipes are gone: a pipe open when the loop closes causes a traceback."""
    if process.stdin is not None:
        process.stdin.close()
    if process.stdout is not None:
        while await process.stdout.read(65_536):
            pass
    await process.wait()


@asynccontextmanager
async def _run_worker(stage: _Stage) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """A worker, and its number in `explain`."""
    async with _run_process(stage, "work", "--while-stdin", "--concurrency", "8", "--json") as process:
        number = int((await _first_line(process, stage.home))["worker"])
        stage.show.tell(f"worker {number} is ready (process {process.pid})")
        yield process, number


async def _first_line(process: asyncio.subprocess.Process, home: Path) -> Json:
    """The line that a part prints when ready. Raises ConfigurationError with its own words if it never is."""
    if process.stdout is None:
        raise ConfigurationError("the process has no output")
    line = await asyncio.wait_for(process.stdout.readline(), _PATIENCE)
    return _read_output(line, home)


def _read_output(text: bytes, home: Path) -> Json:
    """The JSON output of a part. Raises ConfigurationError if it is an error, or missing."""
    if not text.strip():
        raise ConfigurationError(f"a part of the demo has stopped. {_end_of_log(home)}".rstrip())
    value: Json = json.loads(text)
    if "error" in value:
        raise ConfigurationError(f"a part of the demo has stopped: {value['error']['message']}")
    return value


def _end_of_log(home: Path) -> str:
    """The end of the parts' log; the file itself disappears with its directory, unless that is kept."""
    log = home / "demo.log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return "\n".join(("The last lines of its log (--keep leaves all of it):", *lines[-8:])) if lines else ""


class _Alive(Struct, frozen=True):
    """The processes without which waiting is pointless."""

    home: Path
    parts: Sequence[asyncio.subprocess.Process]
    tasks: Sequence[asyncio.Task[Any]]

    def check(self) -> None:
        """Raise a task's error, or ConfigurationError if a part has ended."""
        for task in self.tasks:
            if task.done():
                task.result()
        if any(one.returncode is not None for one in self.parts):
            raise ConfigurationError(f"a part of the demo has stopped. {_end_of_log(self.home)}".rstrip())


async def _import_inbox(stage: _Stage) -> Json:
    """`switchboard import` of everything in the example inbox."""
    inbox = examples() / "inbox"
    sources = [str(inbox / name) for name in ("telegram.jsonl", "household.mbox", "eml", "api.jsonl")]
    return await _read_result(stage, "import", *sources, "--endpoint", "house@home.example", "--json")


async def _read_result(stage: _Stage, *arguments: str) -> Json:
    async with _run_process(stage, *arguments) as process:
        if process.stdout is None:
            raise ConfigurationError("the process has no output")
        text = await process.stdout.read()
        await asyncio.wait_for(process.wait(), _PATIENCE)  # a signal while it ends would confuse asyncio
        return _read_output(text, stage.home)


async def _type_lines(stage: _Stage, client: Client, pages: Pages | None) -> None:
    """The lines of cli.txt in turn, through `switchboard send`; then one for each butler with a model."""
    for line in (examples() / "inbox" / "cli.txt").read_text(encoding="utf-8").splitlines():
        answer = await _read_result(stage, *_send_arguments(line, "demo"), "--wait", "20")
        _tell_answer(stage.show, line, answer["replies"])
    if pages is not None:
        async with asyncio.timeout(_PATIENCE):  # the user's own model may be unavailable, or ask again and again
            await _approve_call(stage, client)
        await _plan_pages(stage, pages)


async def _plan_pages(stage: _Stage, pages: Pages) -> None:
    """The planning butler fetches both pages, and writes from them."""
    answer = await _read_result(stage, *_send_arguments(pages.question, LIBRARY), "--wait", "30")
    stage.show.tell(f"a plan of several steps: {pages.most} of {len(pages.urls)} pages were fetched at the same time")
    _tell_answer(stage.show, pages.question, answer["replies"])


async def _approve_call(stage: _Stage, client: Client) -> None:
    """The butler with a model asks before calling its tools, and `switchboard approvals approve` permits it."""
    show = stage.show
    request_id = (await _read_result(stage, *_send_arguments(_FOR_THE_CLERK, DESK)))["request_id"]
    while not (told := await client.get(f"/v1/messages/{part(request_id)}/replies", {"wait_s": 0.5}))["settled"]:
        for one in reversed((await client.get("/v1/approvals", {"state": "pending"}))["approvals"]):
            show.tell(f"waits for an approval: {one['tool']}  {one_line(outside_json(one['arguments']), 90)}")
            done = await _read_result(stage, "approvals", "approve", one["approval_id"], "--json")
            show.tell(f"{program()} approvals approve {one['approval_id'][:8]} → {done['state']}")
    _tell_answer(show, _FOR_THE_CLERK, [one for one in told["replies"] if one["system_id"] != SWITCHBOARD])


def _send_arguments(line: str, session: str) -> tuple[str, ...]:
    return ("send", line, "--channel", "cli", "--thread", session, "--json")


def _tell_answer(show: Show, line: str, replies: Sequence[Json]) -> None:
    for reply in replies:
        show.tell(f"cli: “{one_line(line, 40)}” → {one_line(reply['text'], 90)}")


async def _run_connector(client: Client, show: Show, channel: str, endpoint: str) -> None:
    """A minimal connector: fetch the replies, send them, submit the receipts."""
    ask: JsonObject = {"channel": channel, "endpoint": endpoint, "wait_s": 5, "idempotent": True}
    while True:
        for reply in (await client.post("/v1/outbox/next", ask))["replies"]:
            show.tell(f"{channel} → {reply['recipient']}: {one_line(reply['text'], 90)}")
            receipt = {
                "lease": reply["lease"],
                "outcome": "sent",
                "platform_message_id": f"demo-{reply['outbox_id'][-6:]}",
            }
            await client.post(f"/v1/outbox/{part(reply['outbox_id'])}/receipt", receipt)


async def _watch_messages(client: Client, show: Show) -> None:
    while True:
        show.messages = await _list_messages(client)
        await asyncio.sleep(0.2)


async def _list_messages(client: Client) -> list[Json]:
    found: list[Json] = (await client.get("/v1/messages", {"limit": 30}))["messages"]
    return found


async def _wait_until(holds: Callable[[], Awaitable[bool]], alive: _Alive) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not await holds():
            alive.check()
            await asyncio.sleep(0.1)


async def _count_running(client: Client) -> int:
    return len((await client.get("/v1/deliveries", {"state": "running"}))["deliveries"])


async def _is_busy(client: Client) -> bool:
    return await _count_running(client) >= 2


async def _is_settled(client: Client) -> bool:
    """Nothing in flight, and no reply on its way."""
    for name in ("pending", "sending"):
        if (await client.get("/v1/outbox", {"state": name}))["replies"]:
            return False
    return bool((await client.get("/v1/books", {"now": True}))["in_flight"] == 0)


async def _find_interesting(client: Client) -> tuple[dict[str, Json], str | None]:
    """Explanations of a message whose worker was killed, and of the newest decided by a model, or why not."""
    messages = (await client.get("/v1/messages", {"limit": 100}))["messages"]
    explanations = [await client.get(f"/v1/messages/{part(m['request_id'])}/explain") for m in messages]
    lost = [e for e in explanations if '"lost"' in json.dumps(e["deliveries"])]
    found = {_KILLED: (lost or explanations)[-1]}
    for title, shows in _SHOWN.items():
        if (newest := next(filter(shows, explanations), None)) is not None:
            found[title] = newest
    return found, None if _DECIDED in found else _why_not(explanations)


def _why_not(explanations: Sequence[Json]) -> str | None:
    """The failure of a model's newest attempt; None if no model was asked."""
    attempts = [one for e in explanations for one in e["classifications"]]
    return one_line(attempts[0]["error"] or "no butler was chosen", 300) if attempts else None


def _with_tools(explanation: Json) -> bool:
    steps = (step for delivery in explanation["deliveries"] for step in delivery["steps"])
    return any(step["path"].startswith("tool:") for step in steps)


def _with_plan(explanation: Json) -> bool:
    return bool(explanation["plans"])


def _was_classified(explanation: Json) -> bool:
    steps = (step for decision in explanation["decisions"] for step in decision["trail"])
    return any(step["reason"] == "classified" for step in steps)


_KILLED: Final = "A message whose worker was killed, explained:"
_DECIDED: Final = "A message that a model decided, explained:"
_SHOWN: Final[Mapping[str, Callable[[Json], bool]]] = {
    "A turn of a model that called tools, explained:": _with_tools,
    "A plan of several steps, explained:": _with_plan,
    _DECIDED: _was_classified,
}
"""Of each kind the newest is shown."""
