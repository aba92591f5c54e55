"""`make kit`: every planted defect against every law, and connectors that are killed twenty times at every point.

    python -m tests.kit [defects] [guesses] [telegram] [slack] [discord] [whatsapp] [folder] [pymap] [dovecot]

Each defect breaks its laws and no other. The table at the end shows for each channel and point how many kills there
were, and how many messages or parts were lost, doubled, repeated with a mark, or left uncertain. E-mail runs by pymap
and aiosmtpd, and with three kills a point by Dovecot and Postfix. Strangers guess the owner's code of a bot 10,000
times. Ends with 1 if anything is wrong.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

import httpx2
import structlog

from switchboard.bench import lab
from switchboard.testing.connectors import (
    PUSHING_DEATHS,
    RECEIVING_DEATHS,
    SENDING_DEATHS,
    Driver,
    Killed,
    in_its_time,
    in_no_time,
    killed_while_receiving,
    killed_while_sending,
    table,
)
from tests.chat_drivers import CHATS
from tests.documents import HOME
from tests.drivers import FolderDriver, mail_driver, postfix_driver
from tests.guessing import BOT, contacts, guess
from tests.integration.test_connector_conformance import ALL, PLANTED, broken_by
from tests.mail_servers import queueing_postfix, running_dovecot, running_pymap, running_smtp

KILLS: Final = 20
KILLS_OF_REAL_SERVERS: Final = 3
_PARTS: Final = 5
DEFECTS: Final = "defects"
GUESSES: Final = "guesses"
_GUESSERS: Final = 50
_GUESSES_EACH: Final = 200


@dataclass(frozen=True, slots=True)
class Run:
    """One channel: its driver, how time passes, and how often it is killed at each point."""

    opened: Callable[[], AbstractAsyncContextManager[Driver]]
    run: Callable[[Coroutine[Any, Any, list[Killed]]], list[Killed]]
    kills: int


def main(names: Sequence[str]) -> int:
    """All of them unless some are named; the exit code."""
    everything = (DEFECTS, GUESSES, *RUNS)
    if unknown := sorted(set(names) - set(everything)):
        print(f"there is no {', '.join(unknown)}; there are {', '.join(everything)}")
        return 2
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # laws read logs, people need not
    wanted = names or everything
    wrong = defects() if DEFECTS in wanted else 0
    wrong += asyncio.run(let_in()) if GUESSES in wanted else 0
    tables = list[str]()
    try:
        for name in RUNS:
            if name in wanted:
                found = killed(name)
                wrong += sum(bool(row.lost or row.doubled) for row in found)
                tables.append(f"{name}\n{table(found)}")
    finally:
        print("\n\n".join(tables))
    return int(wrong > 0)


def defects() -> int:
    """How many planted defects break other laws than theirs."""
    wrong, began = 0, monotonic()
    for name, (make, laws) in PLANTED.items():
        broken = broken_by(make)
        wrong += broken != laws
        said = "as planted" if broken == laws else "WRONG"
        print(f"{said}  {name}: {', '.join(sorted(broken)) or 'no law'}", flush=True)
    print(f"{len(PLANTED)} defects, each on {len(ALL)} laws: {wrong} wrong, {monotonic() - began:.0f} s", flush=True)
    return wrong


async def let_in() -> int:
    """How many of 10,000 guesses of the owner's code let somebody in, at a server in a process of its own."""
    began = monotonic()
    endpoints = json.dumps({f"{BOT['channel']}/{BOT['endpoint']}": {"strangers": "pair"}})
    with lab.home() as place:
        async with (
            lab.switchboard(place, "up", more={"SWITCHBOARD_ENDPOINTS": endpoints}) as up,
            httpx2.AsyncClient(base_url=up.url, headers=_bearer(up.token), timeout=300.0) as http,
        ):
            made = await http.post("/v1/tokens", json={"name": "bot", "role": "connector", **BOT})
            await guess(http, _bearer(made.raise_for_status().json()["token"]), _GUESSERS, _GUESSES_EACH)
            found, wrong = await contacts(http), len(await contacts(http, state="approved"))
    held = sum(one["held"] for one in found)
    guesses = f"{_GUESSERS * _GUESSES_EACH} guesses of {len(found)} strangers"
    print(f"{guesses}: {wrong} let in, {held} messages held, {monotonic() - began:.0f} s", flush=True)
    return wrong + (len(found) != _GUESSERS)


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def killed(name: str) -> list[Killed]:
    """What became of the messages and replies of one channel."""
    began = monotonic()
    with RUNS[name]() as run:
        found = run.run(_rows(run))
    print(f"{name}: {sum(row.kills for row in found)} kills, {monotonic() - began:.0f} s", flush=True)
    return found


async def _rows(run: Run) -> list[Killed]:
    async with run.opened() as driver:
        pushing = PUSHING_DEATHS if hasattr(driver, "acknowledged") else ()
        found = await killed_while_receiving(driver, (*RECEIVING_DEATHS, *pushing), run.kills)
        # At the points that each part passes, so many kills in all.
        for death in SENDING_DEATHS:
            of_parts = death.at in {"connector_intended", "connector_sent", "connector_recorded"}
            kills = ceil(run.kills / _PARTS) if of_parts else run.kills
            found += await killed_while_sending(driver, [death], kills)
    return found


@contextmanager
def _chat(name: str) -> Iterator[Run]:
    """Against the strict server of its platform."""
    yield Run(CHATS[name].open, in_no_time, KILLS)


@contextmanager
def folder() -> Iterator[Run]:
    """The example."""
    sys.path.insert(0, str(HOME / "src/switchboard/examples/connectors/folder"))
    manifest = __import__("folder_channel").MANIFEST

    @asynccontextmanager
    async def opened() -> AsyncIterator[Driver]:
        with TemporaryDirectory() as place:
            yield FolderDriver(Path(place), manifest)

    yield Run(opened, in_no_time, KILLS)


@contextmanager
def mail() -> Iterator[Run]:
    """E-mail by pymap and aiosmtpd."""
    with running_pymap() as imap, running_smtp() as (postbox, port):
        yield Run(lambda: mail_driver(imap, postbox.mails, port), in_its_time, KILLS)


@contextmanager
def real_mail() -> Iterator[Run]:
    """E-mail by Postfix and Dovecot."""
    with running_dovecot() as dovecot, queueing_postfix(dovecot) as postfix:
        yield Run(lambda: postfix_driver(dovecot, postfix), in_its_time, KILLS_OF_REAL_SERVERS)


RUNS: Final[Mapping[str, Callable[[], AbstractContextManager[Run]]]] = {
    **{name: partial(_chat, name) for name in CHATS},
    "folder": folder,
    "pymap": mail,
    "dovecot": real_mail,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
