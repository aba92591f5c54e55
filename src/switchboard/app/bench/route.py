"""How fast a decision by rules is, from ten rules to a million, beside a linear scan of the same rules.

Called by `switchboard bench route`. Sizes enter, frozen rows leave; the CLI prints them. Each size is measured in a
process of its own, so that memory is counted from nothing. Rules and messages are made up, always the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from os import getpid
from time import perf_counter, perf_counter_ns
from typing import Final, Literal
from uuid import UUID

from switchboard.app.bench import lab
from switchboard.core.routing.decide import decide
from switchboard.core.routing.index import RoutingIndex
from switchboard.domain.routing import Decision, Member, Rule, SystemId, Target, Team, TeamId

Case = Literal["hit", "miss", "three levels", "linear scan"]

SIZES: Final = (10, 1_000, 100_000, 1_000_000)
ROUNDS: Final = 20_000

_SCANNED: Final = 2_000_000
"""Rules that the linear scan may look at in all: a few decisions are enough to know how slow it is."""
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_SPREAD: Final = 2_654_435_761
"""Prime, so that its multiples visit the rules in no order that a processor's cache would like."""

_ROOT, _MIDDLE, _LEAF = TeamId("root"), TeamId("middle"), TeamId("leaf")
TEAMS: Final = tuple(
    Team(team_id, parent, members=(Member(SystemId(f"System1/{team_id}"), team_id, 1, "memo"),))
    for team_id, parent in ((_ROOT, None), (_MIDDLE, _ROOT), (_LEAF, _MIDDLE))
)

Facts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One case at one size. Times per decision in microseconds; `load_s` and `memory_mb` are the whole index's."""

    rules: int
    case: Case
    rounds: int
    per_second: float
    p50_us: float
    p99_us: float
    load_s: float
    memory_mb: float | None
    """Growth of resident memory by the index, in 10^6 bytes; None where the system does not tell."""


def measure(sizes: Sequence[int] = SIZES, rounds: int = ROUNDS) -> list[Row]:
    """Four rows per size: a hit, a miss, three levels of teams with the whole trail, and the linear scan.

    `sizes` are numbers of rules, at least ten each; `rounds` decisions per row. Raises ValueError for a smaller size.
    """
    if min(sizes, default=10) < 10:
        raise ValueError("at least ten rules are needed for three levels of teams")
    rows: list[Row] = []
    for size in sizes:
        with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as fresh_process:
            rows.extend(fresh_process.submit(measure_here, size, rounds).result())
    return rows


def measure_here(size: int, rounds: int) -> list[Row]:
    """The rows of one size, measured in this process."""
    before, start = lab.resident_mb(getpid()), perf_counter()
    index = RoutingIndex(1, TEAMS, rules(size))
    load_s, after = perf_counter() - start, lab.resident_mb(getpid())
    memory = after - before if after is not None and before is not None else None
    deep = size // 10

    def row(case: Case, times: list[int]) -> Row:
        times.sort()
        p50, p99 = times[len(times) // 2] / 1000, times[len(times) * 99 // 100] / 1000
        return Row(size, case, len(times), len(times) * 1e9 / sum(times), p50, p99, load_s, memory)

    def decided(facts: Facts) -> Decision:
        return decide(index, facts)

    def hits(count: int) -> Iterator[Facts]:
        return (message(deep + nth * _SPREAD % (size - 3 * deep)) for nth in range(count))

    return [
        row("hit", _times(decided, hits(rounds))),
        row("miss", _times(decided, (message(size + nth) for nth in range(rounds)))),
        row("three levels", _times(decided, (message(nth * _SPREAD % deep) for nth in range(rounds)))),
        row("linear scan", _times(linear_scan(size), hits(max(3, min(rounds, _SCANNED // size))))),
    ]


def _times(work: Callable[[Facts], object], messages: Iterator[Facts]) -> list[int]:
    """Nanoseconds of each. A message is made just before it is decided, as facts are made of an envelope."""
    times: list[int] = []
    for facts in messages:
        start = perf_counter_ns()
        work(facts)
        times.append(perf_counter_ns() - start)
    return times


def linear_scan(size: int) -> Callable[[Facts], object]:
    """The baseline: look at the root's rules one after the other until one matches."""
    root = [(rule.channel, tuple(rule.filters.items())) for rule in rules(size) if rule.team_id == _ROOT]

    def first(facts: Facts) -> object:
        channels = ("*", facts["channel"])
        of_channel = (filters for channel, filters in root if channel in channels)
        return next((one for one in of_channel if all(facts.get(key) == value for key, value in one)), None)

    return first


def rules(size: int) -> Iterator[Rule]:
    """Four fifths in the root; of these the first lead on to the middle, whose rules lead on to the leaf."""
    deep = size // 10
    to_middle, to_leaf = (Target(team_id=_MIDDLE),), (Target(team_id=_LEAF),)
    for nth in range(size - 2 * deep):
        targets = to_middle if nth < deep else (Target(system_id=SystemId("System1/root")),)
        yield _rule(nth, nth, _ROOT, targets)
    for nth in range(deep):
        yield _rule(size + nth, nth, _MIDDLE, to_leaf)
        yield _rule(2 * size + nth, nth, _LEAF, (Target(system_id=SystemId("System1/leaf")),))


def _rule(number: int, person: int, team_id: TeamId, targets: tuple[Target, ...]) -> Rule:
    channel, filters = _wanted(person)
    created_at = _START + timedelta(seconds=number)
    name = f"rule {number}"
    return Rule(UUID(int=number), team_id, name, channel, filters, targets, created_at, priority=person % 5)


def _wanted(person: int) -> tuple[str, dict[str, str]]:
    """Channel and filters of a person's rule, in six shapes as a household has them."""
    number, mail = str(10**9 + person), f"p{person}@example.com"
    return (
        ("telegram", {"telegram_user_id": number}),
        ("telegram", {"telegram_chat_id": number}),
        ("email", {"email_sender": mail}),
        ("telegram", {"telegram_chat_id": number, "telegram_user_id": number}),
        ("email", {"email_sender": mail, "email_auth": "pass"}),
        ("*", {"sender": number}),
    )[person % 6]


def message(person: int) -> Facts:
    number, mail = str(10**9 + person), f"p{person}@example.com"
    if _wanted(person)[0] == "email":
        own = {"email_sender": mail, "email_domain": "example.com", "email_to": "me@example.com", "email_auth": "pass"}
        return {"channel": "email", "endpoint": "gmail:user:me@example.com", "sender": mail, **own}
    chat = {"telegram_chat_id": number, "telegram_user_id": number, "telegram_chat_type": "private"}
    envelope = {"endpoint": "telegram:bot:@house", "sender": number, "thread": number, "chat_type": "private"}
    return {"channel": "telegram", **envelope, **chat}
