"""Measures decisions by, and changes of, ten to a million rules, beside a linear scan and two other rule engines.

Called by `switchboard bench route`. In: sizes; out: frozen rows, which the CLI prints. Each size is measured in a
separate process, and so is each engine (`bench/peers.py`), so that memory is counted from zero. Rules and messages are
made up, and always the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from os import getpid
from time import perf_counter, perf_counter_ns
from typing import Final, Literal, ParamSpec, TypeVar
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from switchboard.bench import lab, peers
from switchboard.core.routing.decide import decide
from switchboard.core.routing.index import RoutingIndex, rank
from switchboard.domain.routing import Decision, Member, Rule, RuleChange, SystemId, Target, Team, TeamId

Edit = Literal["create a rule", "update a rule", "disable a rule"]
Case = Literal["hit", "miss", "three levels", "linear scan"] | Edit | peers.PeerName

SIZES: Final = (10, 1_000, 100_000, 1_000_000)
ROUNDS: Final = 20_000

_CHANGED: Final = 2_000
"""Changes of each kind, at most."""
_PATIENCE_S: Final = 3.0
"""Seconds after which a slow case may stop: a few decisions are enough to know how slow it is."""
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_SPREAD: Final = 2_654_435_761
"""Prime, so that its multiples visit the rules in an order that does not favour the processor's caches."""

_ROOT, _MIDDLE, _LEAF = TeamId("root"), TeamId("middle"), TeamId("leaf")
TEAMS: Final = tuple(
    Team(team_id, parent, members=(Member(SystemId(f"System1/{team_id}"), team_id, 1, "memo"),))
    for team_id, parent in ((_ROOT, None), (_MIDDLE, _ROOT), (_LEAF, _MIDDLE))
)

_TO_ROOT, _TO_MIDDLE = (Target(system_id=SystemId("System1/root")),), (Target(team_id=_MIDDLE),)
_TO_BOTH: Final = (*_TO_ROOT, *_TO_MIDDLE)

MessageFacts = Mapping[str, str]
P = ParamSpec("P")
T = TypeVar("T")


class Row(Struct, frozen=True):
    """One case at one size. Times are microseconds per decision, or per change; None if nothing was measured.

    `load_s` and `memory_mb` are those of the whole index, or of the whole engine; our time includes making the rules.
    """

    rules: int
    case: Case
    rounds: int = 0
    per_second: float | None = None
    p50_us: float | None = None
    p99_us: float | None = None
    load_s: float | None = None
    memory_mb: float | None = None
    """Growth of resident memory by loading, in 10^6 bytes; None if the system does not report it."""
    note: str = ""
    """Why it was not measured."""


class _Loaded(Struct, frozen=True):
    """The cost of loading this many rules."""

    rules: int
    load_s: float
    memory_mb: float | None

    def row(self, case: Case, times: list[int]) -> Row:
        times.sort()
        p50, p99 = times[len(times) // 2] / 1000, times[len(times) * 99 // 100] / 1000
        return Row(self.rules, case, len(times), len(times) * 1e9 / sum(times), p50, p99, self.load_s, self.memory_mb)


def measure(sizes: Sequence[int] = SIZES, rounds: int = ROUNDS) -> list[Row]:
    """Nine rows per size: a hit, a miss, three levels of teams, the linear scan, each engine, each kind of change.

    For the engines, as for the linear scan, hits are measured. `sizes` are numbers of rules, at least ten each;
    `rounds` is the number of decisions per row, fewer for slow cases. Raises ValueError for a smaller size.
    """
    if min(sizes, default=10) < 10:
        raise ValueError("at least ten rules are needed for three levels of teams")
    rows: list[Row] = []
    for size in sizes:
        ours = _in_a_fresh_process(measure_here, size, rounds)
        engines = (_in_a_fresh_process(measure_peer, size, rounds, name) for name in peers.PEERS)
        rows += [*ours[:4], *(row for engine in engines for row in engine), *ours[4:]]
    return rows


def _in_a_fresh_process(work: Callable[P, list[Row]], *args: P.args, **kwargs: P.kwargs) -> list[Row]:
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as fresh_process:
        return fresh_process.submit(work, *args, **kwargs).result()


def measure_here(size: int, rounds: int) -> list[Row]:
    """The rows of one size without the engines, measured in this process."""
    index, loaded = _loading(size, lambda: RoutingIndex(1, TEAMS, rules(size)))
    deep = size // 10

    def decided(facts: MessageFacts) -> Decision:
        return decide(index, facts)

    return [
        loaded.row("hit", _times(decided, _hits(size, rounds))),
        loaded.row("miss", _times(decided, (message(size + nth) for nth in range(rounds)))),
        loaded.row("three levels", _times(decided, (message(nth * _SPREAD % deep) for nth in range(rounds)))),
        loaded.row("linear scan", _times(linear_scan(size), _hits(size, rounds))),
        *(loaded.row(edit, times) for edit, times in _edits(index, size, min(rounds, _CHANGED)).items()),
    ]


def measure_peer(size: int, rounds: int, name: peers.PeerName) -> list[Row]:
    """The row of an engine, measured in this process, after checking that it finds the same rules as ours."""
    peer = peers.PEERS[name]
    if size > peer.most:
        return [Row(size, name, note=f"not measured: {peer.beyond}")]
    root = sorted((rule for rule in rules(size) if rule.team_id == _ROOT), key=rank)
    try:
        load = peers.loader(name)
    except ModuleNotFoundError:
        return [Row(size, name, note="not installed: needs the extra `bench`")]
    first, loaded = _loading(size, lambda: load(root))
    for person, expected in ((0, "rule 0"), (size // 2, f"rule {size // 2}"), (size, None)):
        if first(message(person)) != expected:
            raise RuntimeError(f"{name} finds {first(message(person))} where {expected} is meant")
    return [loaded.row(name, _times(first, _hits(size, rounds)))]


def _loading(size: int, load: Callable[[], T]) -> tuple[T, _Loaded]:
    before, start = lab.resident_mb(getpid()), perf_counter()
    loaded = load()
    load_s = perf_counter() - start
    return loaded, _Loaded(size, load_s, lab.growth(before, lab.resident_mb(getpid())))


def _hits(size: int, count: int) -> Iterator[MessageFacts]:
    deep = size // 10
    return (message(deep + nth * _SPREAD % (size - 3 * deep)) for nth in range(count))


def _times(work: Callable[[MessageFacts], object], messages: Iterator[MessageFacts]) -> list[int]:
    """Nanoseconds of each. A message is made just before its decision, as facts are made from an envelope."""
    times: list[int] = []
    enough = perf_counter() + _PATIENCE_S
    for facts in messages:
        start = perf_counter_ns()
        work(facts)
        times.append(perf_counter_ns() - start)
        if len(times) >= 3 and perf_counter() > enough:
            break
    return times


def _edits(index: RoutingIndex, size: int, rounds: int) -> Mapping[Edit, list[int]]:
    """Nanoseconds of each change. For each new rule of the root one is removed, so the size stays the same.

    An update changes everything that a rule decides by: its channel and filters, its priority and its targets.
    """
    times: dict[Edit, list[int]] = {"create a rule": [], "update a rule": [], "disable a rule": []}
    root = size - 2 * (size // 10)
    present: dict[int, Rule] = {}
    for nth in range(rounds):
        place = nth * _SPREAD % root
        old = present.get(place) or _rule(place, place, _ROOT, _TO_ROOT)
        if place < size // 10 and place not in present:
            old = replace(old, targets=_TO_MIDDLE)
        fresh = _rule(3 * size + nth, size + 2 * nth, _ROOT, _TO_ROOT)
        channel, filters = _condition_for(size + 2 * nth + 1)
        moved = replace(old, channel=channel, filters=filters, priority=old.priority + 1, targets=_TO_BOTH)
        edits: tuple[tuple[Edit, RuleChange], ...] = (
            ("create a rule", RuleChange(None, fresh)),
            ("update a rule", RuleChange(old, moved)),
            ("disable a rule", RuleChange(moved, replace(moved, active=False))),
        )
        for edit, change in edits:
            start = perf_counter_ns()
            index.apply(index.version + 1, (change,))
            times[edit].append(perf_counter_ns() - start)
        present[place] = fresh
    return times


def linear_scan(size: int) -> Callable[[MessageFacts], object]:
    """The baseline: try the root's rules one after the other until one matches."""
    root = [(rule.channel, tuple(rule.filters.items())) for rule in rules(size) if rule.team_id == _ROOT]

    def first(facts: MessageFacts) -> object:
        channels = ("*", facts["channel"])
        of_channel = (filters for channel, filters in root if channel in channels)
        return next((one for one in of_channel if all(facts.get(key) == value for key, value in one)), None)

    return first


def rules(size: int) -> Iterator[Rule]:
    """Four fifths are in the root; the first of these lead to the middle, whose rules lead to the leaf."""
    deep = size // 10
    to_leaf = (Target(team_id=_LEAF),)
    for nth in range(size - 2 * deep):
        yield _rule(nth, nth, _ROOT, _TO_MIDDLE if nth < deep else _TO_ROOT)
    for nth in range(deep):
        yield _rule(size + nth, nth, _MIDDLE, to_leaf)
        yield _rule(2 * size + nth, nth, _LEAF, (Target(system_id=SystemId("System1/leaf")),))


def _rule(number: int, person: int, team_id: TeamId, targets: tuple[Target, ...]) -> Rule:
    channel, filters = _condition_for(person)
    created_at = _START + timedelta(seconds=number)
    name = f"rule {number}"
    return Rule(
        *(name, channel, filters, targets, person % 5),
        rule_id=UUID(int=number),
        team_id=team_id,
        created_at=created_at,
    )


def _condition_for(person: int) -> tuple[str, dict[str, str]]:
    """Channel and filters of a person's rule, in six forms typical of a household."""
    number, mail = str(10**9 + person), f"p{person}@example.com"
    return (
        ("telegram", {"telegram_user_id": number}),
        ("telegram", {"telegram_chat_id": number}),
        ("email", {"email_sender": mail}),
        ("telegram", {"telegram_chat_id": number, "telegram_user_id": number}),
        ("email", {"email_sender": mail, "email_auth": "pass"}),
        ("*", {"sender": number}),
    )[person % 6]


def message(person: int) -> MessageFacts:
    number, mail = str(10**9 + person), f"p{person}@example.com"
    if _condition_for(person)[0] == "email":
        own = {"email_sender": mail, "email_domain": "example.com", "email_to": "me@example.com", "email_auth": "pass"}
        return {"channel": "email", "endpoint": "gmail:user:me@example.com", "sender": mail, **own}
    chat = {"telegram_chat_id": number, "telegram_user_id": number, "telegram_chat_type": "private"}
    envelope = {"endpoint": "telegram:bot:@house", "sender": number, "thread": number, "chat_type": "private"}
    return {"channel": "telegram", **envelope, **chat}
