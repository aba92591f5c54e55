"""How long the pages take among many messages: the first byte of each page and filter, also where nothing is found.

`python -m tests.web_speed --messages 100000` prints milliseconds, and how many times as long as `/health` takes. With
`--place DIRECTORY` the messages stay there for the next run. They are those of `switchboard bench grow`. With
`--beside DIRECTORY`, in which a run has left fewer or more, each page is asked of both in turn, so that what else the
machine does meets both alike, and the ratio of the two is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Final
from urllib.parse import quote

import httpx2

from switchboard.app.access import Access, Principal
from switchboard.app.logs import set_up_logs
from switchboard.app.runtime import Runtime, Switchboard
from switchboard.app.settings import Settings
from switchboard.app.web_sessions import WebSessions
from switchboard.bench import lab
from switchboard.bench.grow import growing
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.server.listener import bind
from switchboard.server.serve import run_server
from switchboard.server.web.page import WebPage
from switchboard.server.web.pages import PAGES
from tests.servers import NO_TLS

BASELINE: Final = "/health"
NOWHERE: Final = "nobody-and-nowhere"
FILTERS: Final[Mapping[str, Sequence[str]]] = {
    "/ui/messages": (
        *(f"state={one}" for one in ("answered", "in_flight", "declined", "dead", "held", "cancelled", "history")),
        "channel=email",
        "channel=sms",
        f"endpoint={NOWHERE}",
        f"sender={NOWHERE}",
        f"butler={quote('System1/nobody')}",
        "team=nowhere",
        "since=2026-01-01&until=2026-01-02",
    ),
    "/ui/dead-letters": ("team=nowhere", "channel=sms", "category=no_route", "state=handled"),
    "/ui/approvals": ("state=all", "state=expired"),
    "/ui/strangers": ("state=all", "state=denied"),
    "/ui/plans": ("running=1",),
    "/ui/audit": (f"action={NOWHERE}",),
}


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


@asynccontextmanager
async def filled(place: Path, messages: int) -> AsyncIterator[tuple[Runtime, Switchboard]]:
    """A switchboard with so many messages; they are made unless they are there."""
    async with AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(embedded_postgres(place / "data" / "postgres"))
        settings = Settings(database_url=postgres.url, data_dir=place / "data", teams_dir=place / "teams")
        parts = await stack.enter_async_context(growing(settings, messages, 0.002, _say))
        await parts.fill_once()
        yield parts.runtime, parts.switchboard


@asynccontextmanager
async def signed_in(switchboard: Switchboard) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with the session of an operator."""
    stop, ready = asyncio.Event(), asyncio.Queue[str]()
    serving = asyncio.create_task(
        run_server(
            switchboard, bind("127.0.0.1", 0), stop, lambda host, port: ready.put_nowait(f"http://{host}:{port}")
        )
    )
    url, database = await ready.get(), switchboard.runtime.database
    access = Access(database)
    async with httpx2.AsyncClient(base_url=url, verify=NO_TLS, timeout=60) as http:
        name = (await access.tokens(1))[0].name
        link = await WebSessions(database, access).make_link(Principal("operator", name))
        entered = await http.post(link.path, headers={"origin": url})
        assert entered.status_code == 303, entered.text
        yield http
    stop.set()
    await serving


async def paths(runtime: Runtime) -> list[str]:
    """Every page that can be asked for here, and each filter where it has most to look through."""
    middle = await runtime.database.row(
        "select m.request_id, c.name from message_inbox m join conversation c using (conversation) "
        "order by request_id desc offset 1000 limit 1"
    )
    assert middle is not None
    pages = [f"/ui{page.path}" for page in PAGES if isinstance(page, WebPage) and page.menu]
    pages += [f"/ui/messages/{middle['request_id']}", f"/ui/messages/{middle['request_id']}/actions"]
    pages += [f"/ui/messages?cursor={middle['request_id']}", f"/ui/conversations?cursor={middle['request_id']}"]
    pages += [f"/ui/conversations/one?name={quote(middle['name'], safe='')}"]
    return pages + [f"{path}?{one}" for path, filters in FILTERS.items() for one in filters]


async def time_paths(http: httpx2.AsyncClient, wanted: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each, in rounds, so that what else the machine does meets all alike."""
    times: dict[str, list[float]] = {path: [] for path in wanted}
    for n in range(rounds + 1):
        for path in wanted:
            began = perf_counter()
            answer = await http.get(path)
            took = (perf_counter() - began) * 1000
            if n:  # the first time, templates are compiled
                times[path].append(took)
            elif answer.status_code not in (200, 422):  # names that nobody has are refused, once they were looked for
                sys.stderr.write(f"{path}: {answer.status_code}\n")
    return times


async def compare(place: Path, beside: Path, rounds: int) -> None:
    """Measure two places that are filled side by side, print."""
    set_up_logs("error")
    async with AsyncExitStack() as stack:
        asked: list[tuple[httpx2.AsyncClient, list[str]]] = []
        for one in (beside, place):
            runtime, switchboard = await stack.enter_async_context(filled(one, 1))
            http = await stack.enter_async_context(signed_in(switchboard))
            asked.append((http, [BASELINE, *await paths(runtime)]))
        names = asked[0][1]
        times: list[tuple[list[float], list[float]]] = [([], []) for _ in names]
        for _ in range(rounds):
            for number, both in enumerate(times):
                for (http, wanted), found in zip(asked, both, strict=True):
                    path = wanted[number]
                    found.extend((await time_paths(http, [path], 1))[path])
    bases = [median(one) for one in times[0]]
    sys.stdout.write(f"{'beside ms':>10} {'ms':>8} {'ratio':>6} {'ratio':>6} {'of both':>8}  page\n")
    for name, both in zip(names, times, strict=True):
        few, many = (median(one) for one in both)
        ratios = f"{few / bases[0]:6.1f} {many / bases[1]:6.1f} {many / few:8.2f}"
        sys.stdout.write(f"{few:10.1f} {many:8.1f} {ratios}  {name}\n")


async def main(messages: int, rounds: int, place: Path) -> None:
    """Fill, measure, print."""
    set_up_logs("error")
    async with filled(place, messages) as (runtime, switchboard), signed_in(switchboard) as http:
        times = await time_paths(http, [BASELINE, *await paths(runtime)], rounds)
    cut = {path: quantiles(found, n=100, method="inclusive") for path, found in times.items()}
    base = cut[BASELINE][49]
    sys.stdout.write(f"{'p50 ms':>8} {'p99 ms':>8} {'ratio':>6}  page\n")
    for path, one in cut.items():
        sys.stdout.write(f"{one[49]:8.1f} {one[98]:8.1f} {one[49] / base:6.1f}  {path}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--place", type=Path)
    parser.add_argument("--beside", type=Path)
    given = parser.parse_args()
    with lab.home() as home:
        if given.place is not None:
            given.place.mkdir(exist_ok=True)
            given.place.chmod(0o711)
            shutil.copytree(home / "teams", given.place / "teams", dirs_exist_ok=True)
        if given.beside is not None:
            asyncio.run(compare(given.place, given.beside, given.rounds))
        else:
            asyncio.run(main(given.messages, given.rounds, given.place or home))
