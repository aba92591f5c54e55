"""Teams, rules, and what is decided about a message.

`core/routing/` turns (rule set, facts) into a `Decision`; `journey/accept.py` stores it. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, NewType
from uuid import UUID

from msgspec import Struct, field

from switchboard.domain.json_values import JsonMapping

TeamId = NewType("TeamId", str)
SystemId = NewType("SystemId", str)
"""`System1/interviewer`, `System4/root`: the role's number, then the name; unique in the whole tree."""
SWITCHBOARD: Final = SystemId("switchboard")
"""Switchboard itself, where it answers in place of a butler. It is in no team, and no rule leads to it."""

MODEL_ENGINES: Final = frozenset({"model", "trio"})
"""Engines of ours that ask models. Only their butlers have tools of ours, many of them for owners alone."""


def spoken_name(system_id: str) -> str:
    """A butler as people in a chat would say it: `tax clerk` for `System1/tax-clerk`."""
    return " ".join(system_id.rpartition("/")[2].replace("-", " ").replace("_", " ").split()) or system_id


SystemNumber = Literal[1, 2, 3, 4, 5]
DeadLetterCategory = Literal[
    "no_route",
    "dead_letter_rule",
    "classification_failed",
    "target_unavailable",
    "retry_exhausted",
    "poison",
    "expired",
    "policy_violation",
    "refused",
    "outcome_unknown",
    "reply_uncertain",
    "reply_braked",
    "reply_unreachable",
    "reply_undelivered",
]
"""Why nobody took a message. `refused`: its butler declined; `outcome_unknown`: an effect may have happened.

`reply_…`: why its reply was not sent: it may have been sent before, a program seems to answer, the conversation is
blocked, or the platform did not deliver what it had taken.
"""


class Owner(Struct, frozen=True):
    """A person at one endpoint who became an owner of a butler by a code."""

    channel: str
    endpoint: str
    identity: str


class Member(Struct, frozen=True):
    """An agent in a team. `engine` and `options` say what answers; a System1 with an engine is a butler.

    `owners` are those who became owners by a code, beside those whom the option `owners` names. `linked`: the handles
    of the persons that it names, without an endpoint if they mean a person at all of the channel; in a `RuleBook` only
    those that prove who writes.
    """

    system_id: SystemId
    team_id: TeamId
    number: SystemNumber
    engine: str
    options: JsonMapping = field(default_factory=dict)
    description: str = ""
    capabilities: tuple[str, ...] = ()
    active: bool = True
    owners: frozenset[Owner] = frozenset()
    linked: frozenset[Owner] = frozenset()

    @property
    def name(self) -> str:
        """The part after the slash: `interviewer`."""
        return self.system_id.partition("/")[2]


class Team(Struct, frozen=True):
    """A node of the tree; exactly one team, the root, has no parent."""

    team_id: TeamId
    parent_id: TeamId | None
    purpose: str = ""
    members: tuple[Member, ...] = ()
    classify: bool = False
    """Whether a model may be asked if no rule of this team fires."""


class Target(Struct, frozen=True):
    """Exactly one is set: a System1 of the team (or its System4: an explicit dead letter), or a direct sub-team."""

    system_id: SystemId | None = None
    team_id: TeamId | None = None


FilterValue = str | tuple[str, ...]
"""What a fact must be: one value, or any of several, which are sorted and distinct."""
Filters = Mapping[str, FilterValue]


class Move(Struct, frozen=True):
    """A conversation that has moved: its channel, its original thread and its present one."""

    channel: str
    first: str
    now: str


class RuleDraft(Struct, frozen=True):
    """A rule as written: fires if the channel is equal (or `*`) and every filter is met.

    A further field that is true or false is one here, and a column; files and the history have it by its name.
    """

    name: str
    channel: str
    filters: Filters
    targets: tuple[Target, ...]
    priority: int = 0
    """Rules of higher priority are tried first."""
    active: bool = True
    copy: bool = False
    """It copies messages to its targets, butlers of its team, whatever rule or model decides, and decides nothing."""
    reply_to_automatic: bool = False
    """Whether replies are sent to the automatic mail that it routes to its targets."""


class Rule(RuleDraft, frozen=True, kw_only=True):
    """A rule of a team, with what Switchboard adds when it is stored."""

    rule_id: UUID
    team_id: TeamId
    version: int = 0
    """The version of the rule set that last wrote it: an edit of the rule names the version that its author saw."""
    source: str = ""
    """`sop:NAME` for a rule that a standing operating procedure registers, changes and disables; else empty."""
    created_by: str = ""
    updated_by: str = ""
    created_at: datetime
    updated_at: datetime | None = None
    """When it was last written; None for a rule that was never stored."""

    @property
    def catch_all(self) -> bool:
        """Channel `*` and no filter: tried last, after classification. A copying one copies all that its team gets."""
        return self.channel == "*" and not self.filters


class RuleChange(Struct, frozen=True):
    """The change of one rule. `before` None: it is new; `after` None: it is removed. Both have the same id and team."""

    before: Rule | None
    after: Rule | None

    @property
    def rule(self) -> Rule:
        """The rule as it is afterwards, or as it was when it is removed."""
        rule = self.after or self.before
        if rule is None:
            raise ValueError("a change has a rule on one side at least")
        return rule


@dataclass(frozen=True, slots=True)
class VersionHead:
    """Who changed the rules, when, and why."""

    version: int
    author: str
    reason: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class RuleSetVersion(VersionHead):
    """Who changed the rules, when, why, and how many. `teams` is true if teams or members may have changed too."""

    changes: int
    teams: bool


class RuleSet(Struct, frozen=True):
    """Everything that decides: one immutable version of teams, members and rules."""

    version: int
    teams: tuple[Team, ...]
    rules: tuple[Rule, ...]


StepReason = Literal[
    "command",
    "pin",
    "pin_unreachable",
    "reroute",
    "by_hand",
    "correction",
    "handed_on",
    "rule",
    "classified",
    "classification_failed",
    "undecided",
    "catch_all",
    "no_route",
    "dead_letter_rule",
    "target_unavailable",
    "copy",
    "history",
]
"""`command`: the message is for Switchboard itself. `history`: it is kept, and goes to nobody.

`reroute`: a dead letter was sent on, by a person or by the rules in the following steps; `by_hand`: a person has sent
the message to others than those who had it; `correction`: a model had chosen another butler, and a person named the
right one; `handed_on`: the butler that had it passed it to another butler, or to a team, below its own team.

`classified`: a model chose; `classification_failed`: it could not, and the catch-all or the dead letter follows.
`undecided`, only in simulations: a model would be asked. `copy`: a rule that copies; it decided nothing.
"""


class TrailStep(Struct, frozen=True, gc=False):
    """What happened in one team on the way down, and why."""

    team_id: TeamId
    reason: StepReason
    rule_id: UUID | None = None
    rule_name: str | None = None
    targets: tuple[Target, ...] = ()
    detail: str = ""


class Chosen(Struct, frozen=True):
    """A butler that gets the message, and the team it was reached in."""

    system_id: SystemId
    team_id: TeamId
    segment: str | None = None
    """Its part of the message's text; None: the whole."""


class Unrouted(Struct, frozen=True):
    """An undeliverable branch: the team whose dead letter it is, why, and who is notified (its System4)."""

    team_id: TeamId
    category: DeadLetterCategory
    reason: str
    handler: SystemId | None
    segment: str | None = None
    """The part of the text that reached this team; None: the whole."""


class Decision(Struct, frozen=True, gc=False):
    """What was chosen, by which version of the rules, and why. Never empty: a butler or a dead letter."""

    version: int
    chosen: tuple[Chosen, ...]
    unrouted: tuple[Unrouted, ...]
    trail: tuple[TrailStep, ...]
    facts: Mapping[str, str] = {}
    """The facts of the message as it was, kept so that it can be decided again and explained."""
    parts: Mapping[TeamId, str] = {}
    """The part of the text that reached each team below one whose model split it; all others have the whole."""


class Undecided(Struct, frozen=True):
    """No rule of this team fired and a model may be asked: `deciding` yields this and waits for the answer.

    `segment` is the part of the message that reached this team; None: the whole.
    """

    team_id: TeamId
    segment: str | None = None


class Route(Struct, frozen=True):
    """One choice of a model: a candidate of the team, and its part of the text; None: the whole."""

    target: Target
    segment: str | None = None


class Classified(Struct, frozen=True):
    """The answer to `Undecided`. `failed` says why the model could not choose; `detail` is worth recording."""

    routes: tuple[Route, ...] = ()
    failed: str | None = None
    detail: str = ""
