"""Measures the disk space per message, and how long lists and look-ups take with ten times as many messages.

Called by `switchboard bench grow`. Most messages are inserted by SQL (`filling.py`); afterwards a share of them really
goes through accept leg, worker and connector, so that lanes and indexes are not as tidy as on their first day.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import count
from statistics import median
from time import perf_counter
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from switchboard.app.logs import set_up_logs
from switchboard.app.messages.explain import explain
from switchboard.app.runtime import Runtime, Switchboard
from switchboard.app.settings import Settings
from switchboard.app.wiring import make_worker, open_runtime, open_switchboard
from switchboard.bench import lab
from switchboard.bench.filling import CHANNEL, ENDPOINT, PER_CHAT, RARE, fill
from switchboard.bench.turn import submission
from switchboard.domain.errors import SwitchboardError, Unavailable
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.journey.accept import Submission
from switchboard.journey.reply import PullRequest
from switchboard.lanes.kinds import KINDS
from switchboard.ports.channel import Receipt
from switchboard.store import books
from switchboard.store.database import Database
from switchboard.store.messages import dead_letters, inbox, outbox
from switchboard.store.messages.dead_letters import ALL_DEAD_LETTERS, DeadLetterFilter
from switchboard.store.messages.searching import IdRange, MessageFilter, find_messages
from switchboard.store.work import lanes, ledger, processes
from switchboard.store.work.processes import NewProcess

_REAL: Final = 20
"""Messages that are really processed first, and are then copied."""
_CLAIMS: Final = 7
_PLACES: Final = {"work": [1, 1, 1, 1]}
_SLOW_MS: Final = 1000.0
"""A look-up that takes this long is timed once; all others several times."""
_BATCH: Final = 100

_SIZES: Final = """
select coalesce(i.inhparent, c.oid)::regclass::text as name,
       sum(pg_table_size(c.oid))::float8 as rows, sum(pg_indexes_size(c.oid))::float8 as indexes
from pg_class c left join pg_inherits i on i.inhrelid = c.oid
where c.relkind = 'r' and c.relnamespace = 'switchboard'::regnamespace
group by 1 order by sum(pg_total_relation_size(c.oid)) desc
"""
_IN_THE_MIDDLE: Final = "select request_id from message_inbox order by request_id offset $1 limit 1"
_BUSY: Final = "select exists (select from lane where state <> 'idle')"

Say = Callable[[str], None]
LookUp = Callable[[], Awaitable[object]]


class Size(Struct, frozen=True):
    """Bytes per message of one table, with its indexes separately."""

    table: str
    rows: float
    indexes: float

    @property
    def total(self) -> float:
        """Bytes of both."""
        return self.rows + self.indexes


class GrowthResult(Struct, frozen=True):
    """`few` and `many`: milliseconds by look-up, with a tenth of the messages and with all."""

    messages: int
    sizes: tuple[Size, ...]
    few: Mapping[str, float]
    many: Mapping[str, float]


async def measure(messages: int, aged: float, say: Say) -> GrowthResult:
    """Run it on a separate database."""
    set_up_logs("error")
    with lab.home() as place:
        async with embedded_postgres(place / "data" / "postgres") as server:
            settings = Settings(database_url=server.url, data_dir=place / "data", teams_dir=place / "teams")
            async with growing(settings, messages, aged, say) as parts:
                return await parts.grow()


@asynccontextmanager
async def growing(settings: Settings, messages: int, aged: float, say: Say) -> AsyncIterator[Growing]:
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(open_runtime(settings))
        switchboard = await stack.enter_async_context(open_switchboard(runtime))
        yield Growing(runtime, switchboard, messages, aged, say)


class Growing:
    """A switchboard with a growing number of messages."""

    def __init__(self, runtime: Runtime, switchboard: Switchboard, messages: int, aged: float, say: Say) -> None:
        self.runtime, self.switchboard, self._database = runtime, switchboard, runtime.database
        self._messages, self._aged, self._say = messages, aged, say
        self._there = 0
        self._real: list[UUID] = []
        self._envelopes = map(_submission, count(), iter(self._chat, None))
        self._random = random.Random(11)

    def _chat(self) -> int:
        return self._random.randrange(max(_REAL, self._there // PER_CHAT))

    async def grow(self) -> GrowthResult:
        """Fill and measure twice: with a tenth of the messages, and with all."""
        await self._turns(_REAL)
        few = await self._at(self._messages // 10)
        many = await self._at(self._messages)
        return GrowthResult(self._messages, await sizes(self._database, self._messages), few, many)

    async def fill_once(self) -> None:
        """Fill in all messages, unless an earlier run has."""
        if await self._database.value("select exists (select from message_inbox)"):
            return
        await self._turns(_REAL)
        await fill(self._database, self._there, self._messages, self._messages, self._real)
        await self._database.run("vacuum analyze")

    async def _at(self, messages: int) -> dict[str, float]:
        real = max(_CLAIMS, round((messages - self._there) * self._aged))
        began = perf_counter()
        self._say(f"filling in messages {self._there:,} to {messages - real:,}")
        await fill(self._database, self._there, messages - real, self._messages, self._real)
        self._there = messages - real
        await self._database.run("analyze")
        self._say(f"took {perf_counter() - began:.0f} s; {real:,} messages on the real way")
        times = await self._claims()
        await self._turns(real - _CLAIMS)
        self._say(f"timing look-ups among {self._there:,} messages")
        return times | await look(self.runtime, self._there)

    async def _claims(self) -> dict[str, float]:
        """Time accepting a message and claiming its lane; the lanes are given back, and workers do the rest later."""
        accepted: list[float] = []
        claimed: list[float] = []
        worker = await processes.register(self._database, NewProcess("worker", tuple(KINDS), "bench", 0, "", 3600))
        for _ in range(_CLAIMS):
            accepted.append(await time_look_up(partial(self._accept, 1)))
            claimed.append(await time_look_up(partial(lanes.claim, self._database, worker, list(KINDS), _PLACES)))
        await lanes.release_worker(self._database, worker)
        return {"accept one message": median(accepted), "claim": median(claimed)}

    async def _accept(self, messages: int) -> None:
        for answer in await self.switchboard.accept.accept_all([next(self._envelopes) for _ in range(messages)]):
            if isinstance(answer, SwitchboardError):
                raise answer
            self._there += 1
            self._real = [*self._real, answer.request_id][:_REAL]

    async def _turns(self, messages: int) -> None:
        """Accept new messages, let a real worker answer them, and send the replies."""
        worker = make_worker(self.runtime)
        working = asyncio.create_task(worker.run())
        try:
            for n in range(0, messages, _BATCH):
                await self._accept(min(_BATCH, messages - n))
                await self._send()
            while await self._database.value(_BUSY):
                await self._send()
        finally:
            worker.stop()
            await working

    async def _send(self) -> None:
        replies = self.switchboard.replies
        pulled = await replies.pull(PullRequest(CHANNEL, ENDPOINT, limit=_BATCH))
        sent = (Receipt("sent", platform_message_id=reply.outbox_id.hex[:8]) for reply in pulled)
        await asyncio.gather(*map(replies.receipt, [r.outbox_id for r in pulled], [r.lease for r in pulled], sent))


async def sizes(database: Database, messages: int) -> tuple[Size, ...]:
    """Sizes per message, largest table first; partitions count for their table."""
    rows = await database.rows(_SIZES)
    return tuple(Size(row["name"], row["rows"] / messages, row["indexes"] / messages) for row in rows)


async def look(runtime: Runtime, messages: int) -> dict[str, float]:
    """Milliseconds of every list and look-up, each the median of several."""
    middle = await runtime.database.value(_IN_THE_MIDDLE, messages // 2)
    return {name: await median_time(act) for name, act in look_ups(runtime, middle).items()}


def look_ups(runtime: Runtime, one: UUID) -> dict[str, LookUp]:
    """The look-ups, by the name under which they are shown; `one` is a message."""
    database = runtime.database
    messages, replies = partial(_find_messages, database), partial(outbox.page_of_replies, database, limit=100)
    deliveries = partial(ledger.list_deliveries, database)
    dead = partial(dead_letters.list_dead_letters, database)
    echo: Any = "System1/echo"
    return {
        "inbox list": messages,
        "inbox list, frequent channel": partial(messages, channel=CHANNEL),
        "inbox list, rare channel": partial(messages, channel=RARE),
        "inbox list, absent channel": partial(messages, channel="irc"),
        "message": partial(inbox.get_message, database, one),
        "message, its bytes": partial(inbox.get_raw, database, one),
        "explain": partial(explain, runtime, one),
        "outbox list": replies,
        "outbox list, sent": partial(replies, state="sent"),
        "outbox list, uncertain (none)": partial(replies, state="uncertain"),
        "ledger list": deliveries,
        "ledger list, butler and answered": partial(deliveries, system_id=echo, state="answered"),
        "ledger list, butler and declined (none)": partial(deliveries, system_id=echo, state="declined"),
        "ledger list, pending (none)": partial(deliveries, state="pending"),
        "ledger list, absent butler": partial(deliveries, system_id="System1/absent"),
        "deliveries per butler": partial(books.tallies, database),
        "lanes list": partial(lanes.list_lanes, database),
        "lanes by state": partial(ledger.lane_states, database),
        "backlog": partial(inbox.count_backlog, database),
        "dead letters": partial(dead, ALL_DEAD_LETTERS),
        "dead letters, pending": partial(dead, DeadLetterFilter(status="pending")),
        "books balance": partial(books.balance_books, database),
        "books, as written down": partial(books.kept_books, database),
        "doctor's audit of the books": partial(books.check_books, database),
        "doctor's audit of all days": partial(books.audit_books, database),
    }


async def _find_messages(database: Database, channel: str | None = None) -> object:
    wanted = MessageFilter(channel=channel)
    return await find_messages(database, wanted, IdRange(), oldest=False, limit=50)


async def median_time(act: LookUp) -> float:
    """The median of several times in milliseconds; only the first time of a slow look-up."""
    first = await time_look_up(act)
    return first if first > _SLOW_MS else median([await time_look_up(act) for _ in range(_CLAIMS)])


async def time_look_up(act: LookUp) -> float:
    """Milliseconds. A look-up that is abandoned (a statement has 60 s) counts with the time until then."""
    began = perf_counter()
    with suppress(Unavailable):
        await act()
    return (perf_counter() - began) * 1000


_WORDS: Final = (
    *("remind", "plumber", "thursday", "between", "nine", "eleven", "kitchen", "invoice", "doctor", "appointment"),
    *("school", "calendar", "budget", "train", "ticket", "birthday", "dinner", "garden", "insurance", "battery"),
    *("washing", "machine", "holiday", "passport", "weather", "meeting", "report", "delivery", "parcel", "yesterday"),
)


def _text(n: int) -> str:
    """Two or three sentences, different for each message."""
    chosen = random.Random(n).choices(_WORDS, k=20)
    return f"Could you please {' '.join(chosen[:10])}? And then tell me about {' '.join(chosen[10:])}."


def _submission(n: int, chat: int) -> Submission:
    """A message as a Telegram connector submits it."""
    return submission(_envelope(n, str(5480000000 + chat), _text(n)))


def _envelope(n: int, sender: str, text: str) -> dict[str, object]:
    person = {"id": sender, "is_bot": False, "first_name": "Margarete", "language_code": "de"}
    message = {"message_id": n, "from": person, "chat": {"id": sender, "type": "private"}, "date": n, "text": text}
    return {
        "schema_version": "ingest.v1",
        "source": {"channel": CHANNEL, "provider": CHANNEL, "endpoint_identity": ENDPOINT},
        "event": {
            "external_event_id": f"{710000000 + n}",
            "external_thread_id": sender,
            "observed_at": "2026-01-01T00:00:00Z",
        },
        "sender": {"identity": sender, "display_name": "Margarete Example", "chat_type": "private"},
        "payload": {"raw": {"update_id": 710000000 + n, "message": message}, "normalized_text": text},
        "control": {"policy_tier": "default"},
    }


def summary(result: GrowthResult) -> Sequence[tuple[str, float, float, float]]:
    """Bytes per message for each table: rows, indexes, both; and for all tables together."""
    shown = [(size.table, size.rows, size.indexes, size.total) for size in result.sizes if size.total >= 1]
    rows, indexes = (sum(getattr(size, part) for size in result.sizes) for part in ("rows", "indexes"))
    return [*shown, ("all tables", rows, indexes, rows + indexes)]
