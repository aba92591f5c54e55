"""`make kit`: every planted defect against every law, and connectors that are killed twenty times at every point.

Each defect breaks its laws and no other. Each table shows for one channel, and each point, how many kills there were,
and how many messages or parts were lost, doubled, repeated with a mark, or left uncertain. Dovecot and Postfix take
part with three kills a point. Ends with 1 if anything is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

import structlog

from switchboard.testing.bot_api import BotApi
from switchboard.testing.connectors import (
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
from tests.documents import HOME
from tests.drivers import FolderDriver, TelegramDriver, mail_driver, postfix_driver
from tests.integration.test_connector_conformance import PLANTED, broken_by
from tests.mail_servers import queueing_postfix, running_dovecot, running_pymap, running_smtp

KILLS: Final = 20
KILLS_OF_REAL_SERVERS: Final = 3
_PARTS: Final = 5


@dataclass(frozen=True, slots=True)
class Run:
    """One channel: its driver, how time passes, and how often it is killed at each point."""

    name: str
    opened: Callable[[], AbstractAsyncContextManager[Driver]]
    run: Callable[[Coroutine[Any, Any, list[Killed]]], list[Killed]]
    kills: int


def main(names: Sequence[str]) -> int:
    """Without names all channels, and the defects; the exit code."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # laws read logs, people need not
    wrong = defects() if not names or "defects" in names else 0
    for make in RUNS:
        with make() as run:
            if not names or run.name.partition(" ")[0] in names:
                wrong += killed(run)
    return int(wrong > 0)


def defects() -> int:
    """How many planted defects break other laws than theirs."""
    wrong = 0
    for name, (make, laws) in PLANTED.items():
        broken = broken_by(make)
        wrong += broken != laws
        print(f"{'as planted' if broken == laws else 'WRONG'}  {name}: {', '.join(sorted(broken)) or 'no law'}")
    return wrong


def killed(run: Run) -> int:
    """How many points have lost or doubled something."""

    async def rows() -> list[Killed]:
        async with run.opened() as driver:
            found = await killed_while_receiving(driver, RECEIVING_DEATHS, run.kills)
            # At the points that each part passes, so many kills in all.
            for death in SENDING_DEATHS:
                of_parts = death.at in {"connector_intended", "connector_sent", "connector_recorded"}
                kills = ceil(run.kills / _PARTS) if of_parts else run.kills
                found += await killed_while_sending(driver, [death], kills)
        return found

    began = monotonic()
    found = run.run(rows())
    print(f"\n{run.name}, {monotonic() - began:.0f} s\n{table(found)}", flush=True)
    return sum(bool(row.lost or row.doubled) for row in found)


@contextmanager
def telegram() -> Iterator[Run]:
    """By the strict Bot API server."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Driver]:
        async with BotApi() as api:
            yield TelegramDriver(api)

    yield Run("telegram at the Bot API server", opened, in_no_time, KILLS)


@contextmanager
def folder() -> Iterator[Run]:
    """The example."""
    sys.path.insert(0, str(HOME / "examples/connectors/folder"))
    manifest = __import__("folder_channel").MANIFEST

    @asynccontextmanager
    async def opened() -> AsyncIterator[Driver]:
        with TemporaryDirectory() as place:
            yield FolderDriver(Path(place), manifest)

    yield Run("folder", opened, in_no_time, KILLS)


@contextmanager
def mail() -> Iterator[Run]:
    """By pymap and aiosmtpd."""
    with running_pymap() as imap, running_smtp() as (postbox, port):
        yield Run("email at pymap and aiosmtpd", lambda: mail_driver(imap, postbox.mails, port), in_its_time, KILLS)


@contextmanager
def real_mail() -> Iterator[Run]:
    """By the servers that people run."""
    with running_dovecot() as dovecot, queueing_postfix(dovecot) as postfix:
        yield Run("postfix and dovecot", lambda: postfix_driver(dovecot, postfix), in_its_time, KILLS_OF_REAL_SERVERS)


RUNS: Final = (telegram, folder, mail, real_mail)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
