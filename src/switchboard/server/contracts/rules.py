"""The shapes of bodies about rules, for reading requests and for the OpenAPI.

`rules.py`, `rule_history.py` and the MCP tools read requests with them; `core/routing/draft.py` and `check.py`
interpret the rules. Next: `app/rules/service.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, Field, model_validator

from switchboard.app.rules.records import ChangeView, DiffView, Linted, RuleEvent, VersionView
from switchboard.app.rules.replays import DryRun
from switchboard.app.rules.service import WrittenRule, WrittenRules
from switchboard.core.routing.backtest import Receivers
from switchboard.core.routing.check import MAX_PRIORITY
from switchboard.core.routing.draft import DRAFT_KEYS, MAX_FILTERS, MAX_VALUES
from switchboard.core.routing.rulefile import RuleJson
from switchboard.domain.json_values import JsonObject
from switchboard.domain.routing import RuleSetVersion
from switchboard.domain.shown import AuditEntry, SopRules
from switchboard.server.contracts.base import Body, Id, Line, ResponseBody, SystemRef, TeamRef, Word

__all__ = ["DiffView", "DryRun", "Linted", "VersionView", "WrittenRules"]


Version = Annotated[int, Field(ge=0, le=2**53)]
Priority = Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
FactValue = Word | Annotated[int, Field(ge=-(2**63), lt=2**63)]
FilterValue = FactValue | Annotated[list[FactValue], Field(min_length=1, max_length=MAX_VALUES)]
Filters = Annotated[dict[Word, FilterValue], Field(max_length=MAX_FILTERS)]


def _check_utf8(value: Any) -> Any:
    """Errors quote the document, so characters that UTF-8 cannot encode are refused first."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise ValueError("lone surrogates are not allowed in text") from None
    return value


Document = Annotated[JsonObject, AfterValidator(_check_utf8)]
Cases = Annotated[list[JsonObject], Field(max_length=10_000), AfterValidator(_check_utf8)]


# Requests -----------------------------------------------------------------------------------------------------------


class TargetBody(Body):
    """Who gets the message: a butler (`system_id`), or a team whose rules then decide."""

    system_id: SystemRef | None = None
    team_id: TeamRef | None = None

    @model_validator(mode="after")
    def _one(self) -> TargetBody:
        if (self.system_id is None) == (self.team_id is None):
            raise ValueError("a target is either a system_id or a team_id")
        return self


Targets = Annotated[list[TargetBody], Field(min_length=1, max_length=100)]


class _Fields(Body):
    def fields(self) -> JsonObject:
        """The parts of a rule that the caller named."""
        given = self.model_dump(mode="json", exclude_unset=True, exclude_none=True, by_alias=True)
        return {name: given[name] for name in DRAFT_KEYS if name in given}


class _InTeam(_Fields):
    team_id: TeamRef


class _Parts(_Fields):
    name: Line
    channel: Word
    filters: Filters = Field(default_factory=dict)
    targets: Targets
    priority: Priority = 0
    active: bool = True
    copies: bool = Field(default=False, alias="copy")
    reply_to_automatic: bool = False


class NewRuleBody(_Parts, _InTeam):
    """A rule to create. With a `rule_id` of your own the request is idempotent. `dry_run` writes nothing."""

    rule_id: Id | None = None
    reason: Line
    dry_run: bool = False


class _SomeParts(_Fields):
    name: Line | None = None
    channel: Word | None = None
    filters: Filters | None = None
    targets: Targets | None = None
    priority: Priority | None = None
    active: bool | None = None
    copies: bool | None = Field(default=None, alias="copy")
    reply_to_automatic: bool | None = None


class RulePatch(_SomeParts):
    """The fields to change; `filters` and `targets` are replaced as a whole. `version` is the one that you read."""

    version: Version
    reason: Line
    dry_run: bool = False


class _EditOfMany(Body):
    reason: Line
    expected_version: Version | None = None
    dry_run: bool = False


class RestoreBody(_EditOfMany):
    """The version to go back to; with `team_id`, only the rules of that team."""

    version: Version
    team_id: TeamRef | None = None


class TestsBody(Body):
    """A file of route tests."""

    cases: Cases


class ImportBody(_EditOfMany):
    """A rule file (`switchboard.rules.v1`).

    It replaces all rules of the teams that it names, provided that the `tests` pass.
    """

    document: Document
    tests: TestsBody | None = None


class TestBody(Body):
    """Cases to run against the rules in force, or those of a rule file (`document`)."""

    cases: Cases
    document: Document | None = None


class DryRunBody(Body):
    """A hypothetical message: an `ingest.v1` envelope, or bare facts (a list if there are several values).

    `pinned` is the butler it replies to.
    """

    envelope: Document | None = None
    facts: Annotated[dict[Word, FilterValue], Field(min_length=1, max_length=MAX_FILTERS)] | None = None
    pinned: SystemRef | None = None

    @model_validator(mode="after")
    def _one(self) -> DryRunBody:
        if (self.envelope is None) == (self.facts is None):
            raise ValueError("give either an envelope or facts")
        return self


class ProposedChange(_SomeParts):
    """A new rule of `team_id`, or the rule `rule_id` with the given fields changed."""

    rule_id: Id | None = None
    team_id: TeamRef | None = None

    @model_validator(mode="after")
    def _which(self) -> ProposedChange:
        if (self.rule_id is None) == (self.team_id is None):
            raise ValueError("name the rule that changes (rule_id), or the team of a new one (team_id)")
        return self


class BacktestBody(Body):
    """Which stored messages to route again, and by which rules.

    The newest `last`, or those of the last `days`; by a rule file (`document`) or by `changes`.
    """

    last: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    days: Annotated[float, Field(gt=0, le=3660, allow_inf_nan=False)] | None = None
    document: Document | None = None
    changes: Annotated[list[ProposedChange], Field(max_length=1000)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one(self) -> BacktestBody:
        if (self.document is None) == (not self.changes):
            raise ValueError("give either a document or changes")
        return self


class SopBody(Body):
    """A standard operating procedure; its `routing_requirements` become rules."""

    document: Document
    reason: Line
    dry_run: bool = False


# Answers ------------------------------------------------------------------------------------------------------------


class RuleList(ResponseBody):
    """Oldest first. `next_cursor` is null on the last page."""

    version: int
    rules: list[RuleJson]
    next_cursor: str | None


class RuleDetail(ResponseBody):
    """A rule with its history, newest first; a removed rule as it last was."""

    rule: RuleJson
    history: list[RuleEvent]


@dataclass(frozen=True, slots=True)
class WrittenRuleView(WrittenRule):
    """The rule as it is now, or would be after a dry run.

    `warnings` is null if the team has too many rules to check, `blast` if it could not be computed; `fresh` is false if
    nothing had to be changed.
    """

    rule: RuleJson
    fresh: bool


class VersionPage(ResponseBody):
    """Newest first. `next_cursor` is null on the last page."""

    versions: list[RuleSetVersion]
    next_cursor: str | None


class DiffAnswer(ResponseBody):
    """The differences between two versions, one per rule. `changes` has the first 200 of `changed`."""

    from_: Annotated[int, Field(alias="from")]
    to: int
    changed: int
    changes: list[ChangeView]


class RuleFile(ResponseBody):
    """All rules of each team (`switchboard.rules.v1`); it can be imported as it is."""

    format: Literal["switchboard.rules.v1"]
    version: int
    teams: dict[str, list[JsonObject]]


class TestResult(ResponseBody):
    """A case: who was expected to get the message, who gets it, and why."""

    name: str
    passed: bool
    expected: Receivers
    got: Receivers
    trail: list[JsonObject]


class TestAnswer(ResponseBody):
    """The results of the cases, in their order."""

    version: int
    passed: int
    failed: int
    results: list[TestResult]


class SopList(ResponseBody):
    """By name. `next_cursor` is null on the last page."""

    sops: list[SopRules]
    next_cursor: str | None


class AuditList(ResponseBody):
    """Newest first. `next_cursor` is null on the last page."""

    entries: list[AuditEntry]
    next_cursor: str | None
