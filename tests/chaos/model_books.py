"""What a chaos run with models is judged by: every message by the database, every model call by the traces."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from switchboard.store.books import audit_books
from switchboard.store.database import Database

RULED: Final = "System1/ruled"
"""Who gets what a rule decides; all else is decided by a model."""

# One row per message: whom its text names, where it came to, and how it ended.
_MESSAGES: Final = """
select m.request_id::text as id, m.envelope #>> '{payload,normalized_text}' as text,
       m.envelope #>> '{sender,chat_type}' as chat_type,
       coalesce(d.butlers, '{}') as butlers, coalesce(d.states, '{}') as states,
       coalesce(x.dead_letters, '{}') as dead_letters,
       coalesce(x.reasons, '{}') as reasons, coalesce(x.whole, true) as whole, coalesce(o.replies, 0) as replies,
       coalesce(t.trail, '') as trail
from message_inbox m
left join (
    select request_id, array_agg(system_id) as butlers, array_agg(state) as states from delivery group by 1
) d on d.request_id = m.request_id
left join (
    select x.request_id, array_agg(x.category) as dead_letters, array_agg(x.reason) as reasons,
           bool_and(x.payload #>> '{payload,normalized_text}' = i.envelope #>> '{payload,normalized_text}'
                    and x.raw = (select r.raw from message_raw r where r.request_id = x.request_id)) as whole
    from dead_letter x join message_inbox i on i.request_id = x.request_id group by 1
) x on x.request_id = m.request_id
left join (select request_id, count(*) as replies from outbox group by 1) o on o.request_id = m.request_id
left join (select request_id, string_agg(trail::text, ' ') as trail from decision group by 1) t
    on t.request_id = m.request_id"""

_DISORDER: Final = """
select count(*) from (
    select split_part(m.envelope #>> '{payload,normalized_text}', ' ', 1)::int as n,
           lag(split_part(m.envelope #>> '{payload,normalized_text}', ' ', 1)::int)
               over (partition by d.lane order by d.seq) as before
    from delivery d join message_inbox m on m.request_id = d.request_id
) x where n <= before"""

_ASKED_AGAIN: Final = """
select count(*) from classification c
join step s on starts_with(s.path, 'classify ' || c.team_id || ' ') and s.state = 'done'
join routing r on r.lane = s.lane and r.seq = s.seq and r.request_id = c.request_id
where c.at > s.ended_at"""
"""Attempts that began after the classification was in the journal: paid for twice."""

_REASONS: Final[Sequence[tuple[str, str]]] = (
    ("budget used up", r"budget: "),
    ("workers died", r"given up after"),
    ("no such butler", r"no candidate|names no butler"),
    ("MCP down", r"Switchboard's MCP server|MCP server switchboard|MCP error"),
    ("denied", r"did not allow"),
    ("call not recorded", r"no record of|recorded no call"),
    ("timeout", r"timeout: |too long"),
    ("rate limited", r"rate_limited: "),
    ("garbage", r"garbage: "),
    ("refused", r"refused: "),
    ("not reached", r"unavailable: |open: |busy: "),
    ("no call", r"without a call|broke off"),
)


@dataclass(frozen=True, slots=True)
class ModelReport:
    """Counts. Those from `lost` to `asked_again` must be 0, and `problems` empty."""

    accepted: int
    delivered: int
    dead: Mapping[str, int]
    lost: int
    doubled: int
    out_of_order: int
    astray: int
    """Deliveries to whom neither the text nor a rule names, or not to all of them without anybody saying so."""
    bare: int
    """Dead letters without a reason, or without the whole message."""
    asked_again: int
    problems: Sequence[str]
    calls: Mapping[str, int] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether nothing that was promised was broken."""
        wrong = self.lost or self.doubled or self.out_of_order or self.astray or self.bare or self.asked_again
        return not wrong and not self.problems and self.accepted == self.delivered + sum(self.dead.values())

    @property
    def failed(self) -> int:
        """Calls that were made to fail."""
        return sum(n for way, n in self.calls.items() if not way.endswith(" well"))

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason} {n}" for reason, n in sorted(self.dead.items(), key=lambda one: -one[1]))
        told = (
            f"accepted {self.accepted}, delivered {self.delivered}, dead-lettered {sum(self.dead.values())}"
            f" (by reason: {reasons or 'none'}), lost {self.lost}, doubled {self.doubled},"
            f" out of order {self.out_of_order}, model calls {sum(self.calls.values())}, of these failed {self.failed}"
        )
        if self.clean:
            return told
        more = f"astray {self.astray}, bare letters {self.bare}, asked again {self.asked_again}"
        return f"{told}; {more}; problems: {'; '.join(self.problems) or 'none'}"


async def judge_models(
    database: Database, acknowledged: Sequence[str], traces: list[list[str]], problems: Sequence[str]
) -> ModelReport:
    """Hold the ids that were acknowledged against what is stored. `problems`: what the doctor said."""
    rows = await database.rows(_MESSAGES)
    ends = [_End(**dict(row)) for row in rows]
    dead = Counter(reason_of(" ".join(end.reasons)) for end in ends if end.dead)
    books = await audit_books(database)
    off = [] if books.balanced else [f"the books do not balance: {books.messages}, {books.targets}"]
    return ModelReport(
        accepted=len(ends),
        delivered=sum(end.delivered for end in ends),
        dead=dead,
        lost=len({*acknowledged, *(end.id for end in ends)} - {end.id for end in ends if end.delivered or end.dead}),
        doubled=sum(end.doubled for end in ends) + abs(len(ends) - len(set(acknowledged))),
        out_of_order=int(await database.value(_DISORDER)),
        astray=sum(end.astray for end in ends),
        bare=sum(end.bare for end in ends),
        asked_again=int(await database.value(_ASKED_AGAIN)),
        problems=(*off, *books.problems, *problems),
        calls=Counter(" ".join(line) for line in traces if line[0] in {"api", "cli"}),
    )


def reason_of(reason: str) -> str:
    """In two words why a message died: what is said of the last model, which stands at the end."""
    found = [(hit.start(), name) for name, words in _REASONS for hit in re.finditer(words, reason)]
    for first in ("budget used up", "workers died"):
        if any(name == first for _, name in found):
            return first
    return max(found)[1] if found else f"other ({reason[:100]})"


@dataclass(frozen=True, slots=True)
class _End:
    """A message, and all that became of it."""

    id: str
    text: str
    chat_type: str | None
    butlers: Sequence[str]
    states: Sequence[str]
    dead_letters: Sequence[str]
    reasons: Sequence[str]
    whole: bool
    replies: int
    trail: str

    @property
    def delivered(self) -> bool:
        """Every butler that was chosen has answered, and nothing of it died."""
        return bool(self.butlers) and set(self.states) == {"answered"} and not self.dead_letters

    @property
    def dead(self) -> bool:
        """It is a dead letter, or one part of it is."""
        return bool(self.dead_letters) and "pending" not in self.states

    @property
    def doubled(self) -> bool:
        """It came to a butler twice, was answered more often than delivered, or died more than once."""
        twice = len(set(self.butlers)) < len(self.butlers) or len(self.dead_letters) > max(1, len(self.butlers))
        return twice or self.replies > self.states.count("answered")

    @property
    def bare(self) -> bool:
        return bool(self.dead_letters) and not (self.whole and all(self.reasons))

    @property
    def astray(self) -> bool:
        """A part that went to nobody is owned up to in the trail; then the butler that was named gets the whole."""
        if not self.butlers:
            return self.chat_type == "private" and self.dead
        meant = {RULED} if self.chat_type == "private" else {f"System1/{b}" for b in self.text.split()[1].split("+")}
        given = set(self.butlers)
        return given != meant and not (given < meant and "a part was not assigned" in self.trail)
