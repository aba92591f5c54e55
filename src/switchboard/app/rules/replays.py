"""Tries rules without writing any: where a message would go, whether tests pass, what a change would affect.

HTTP and MCP call `Replays`, and `app/rules/service.py` for the blast radius of each edit. In: envelopes, cases,
proposals; out: dry runs, test results, differences. Reads only, in chunks, so that messages are decided in between.
Next: `core/routing/backtest.py`, `store/rules/replay.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from msgspec import Struct

from switchboard.app.messages.explain import ExplainedStep, explained_trail
from switchboard.app.reach import Reach
from switchboard.app.rules.proposals import (
    Proposed,
    ProposedRule,
    edit_by,
    from_document,
    from_wanted,
    refuse_wrong,
    retry_if_moved,
)
from switchboard.app.runtime import Runtime
from switchboard.core.envelope import read as wire
from switchboard.core.envelope.identity import conversation, named_in
from switchboard.core.routing.backtest import NEWEST, BacktestTally, Blast, Receivers, receivers
from switchboard.core.routing.check import check_facts
from switchboard.core.routing.decide import simulate
from switchboard.core.routing.facts import facts, shown_facts, with_derived
from switchboard.core.routing.index import RoutingIndex
from switchboard.core.routing.routetests import RouteCase, RouteTestOutcome, parse_cases, run_cases
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.routing import RuleChange, SystemId, TeamId
from switchboard.store.messages.inbox import find_authors, find_places
from switchboard.store.rules.replay import cases_since, count_cases
from switchboard.store.rules.versions import MovedOn

log = structlog.get_logger(__name__)

BLAST_DAYS: Final = 1
_CHUNK: Final = 2000
_SLICE: Final = 50
"""Messages decided at once: about a millisecond, after which waiting requests get their turn."""
_MANY: Final = 2000
"""Changes that are applied in a thread: more of them would delay requests."""


class ReplayQuestion(Struct, frozen=True):
    """A hypothetical message: an envelope as a connector would send it, or bare facts, and whom it replies to."""

    envelope: JsonMapping | None = None
    facts: Mapping[str, str] | None = None
    pinned: SystemId | None = None
    ask_author: bool = False
    """Whether it may be looked up who wrote what is replied to; in a conversation of others that is their secret."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """Where a hypothetical message would go, and why."""

    version: int
    facts: Mapping[str, str | Sequence[str]]
    pinned: str | None
    trail: tuple[ExplainedStep, ...]
    receivers: Receivers


class TestRun(Struct, frozen=True):
    """The results of a file of cases."""

    version: int
    passed: int
    failed: int
    results: tuple[JsonMapping, ...]


class ReplaySpan(Struct, frozen=True):
    """Selects stored messages: the newest `last`, those of the last `days`, or both conditions."""

    last: int | None = None
    days: float | None = None


class Proposal(Struct, frozen=True):
    """Rules to try: a rule file, or single changes; with neither, the rules in force."""

    document: object = None
    changes: Sequence[ProposedRule] = ()
    may: Callable[[Collection[TeamId]], Awaitable[None]] | None = None
    """Raises Forbidden when the caller may not try rules of these teams: what changes there names others' messages."""


class ReplayProgress(Struct, frozen=True):
    """The progress of a backtest."""

    looked_at: int
    of: int


class FailedTests(InvalidInput):
    """Tests that fail with the changed rules; `details` has every case that failed."""

    code = "route_tests_failed"

    def __init__(self, run: TestRun) -> None:
        failed = [result for result in run.results if not result["passed"]]
        names = ", ".join(repr(result["name"]) for result in failed[:5])
        rest = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
        super().__init__(
            f"{run.failed} of {run.passed + run.failed} route tests fail: {names}{rest}; nothing was written",
            field="tests",
        )
        self.details = {"passed": run.passed, "failed": run.failed, "results": failed[:100]}


class Replays:
    """Tries rules on existing or hypothetical messages."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._one_at_a_time = asyncio.Lock()
        """Held for a chunk: however many replays there are, requests wait for one of them at most."""

    async def dry_run(self, question: ReplayQuestion, reach: Reach) -> DryRun:
        """The decision of the rules in force, and why, as far as within the reach. Raises InvalidInput."""
        await self._runtime.rule_book.refresh()
        known, pinned = await self._facts_and_pin(question)
        decision = simulate(self._runtime.rule_book.rules.index, known, pinned)
        trail = await explained_trail(self._runtime, decision)
        shown = tuple(step for step in trail if step.team_id in reach)
        return DryRun(decision.version, shown_facts(known), pinned, shown, receivers(decision))

    async def _facts_and_pin(self, question: ReplayQuestion) -> tuple[Mapping[str, str], SystemId | None]:
        if question.envelope is None:
            return self._check_facts(question.facts or {}), question.pinned
        now, channels = datetime.now(UTC), self._runtime.channels
        envelope = wire.parse_envelope(question.envelope, now=now)
        people_book = self._runtime.people_book
        await people_book.refresh()
        known = facts(envelope, channels.of(envelope), channels.schedule_at(now), people_book.people.find_sender)
        return known, question.pinned or await self._find_author(envelope, ask=question.ask_author)

    def _check_facts(self, given: Mapping[str, str]) -> Mapping[str, str]:
        """Check that the channel has these facts: a misspelt one would go unnoticed."""
        for problem in check_facts(given, self._runtime.channels):
            raise InvalidInput(problem.message, code=problem.code, field=f"facts.{problem.field}")
        return with_derived(given, self._runtime.channels[given["channel"]])

    async def _find_author(self, envelope: Envelope, *, ask: bool) -> SystemId | None:
        """The butler that gets it before any rule, as at ingest: the named one, or the author replied to."""
        if envelope.control.pinned_target is not None:
            return SystemId(envelope.control.pinned_target)
        channel = self._runtime.channels[envelope.source.channel]
        answered = channel.replied_to(envelope)
        if not answered or not ask:
            return None
        place, named = conversation(envelope, channel), named_in(envelope, channel)
        if named is not None:
            [place] = await find_places(self._runtime.database, [named], keep=False)
        [author] = await find_authors(self._runtime.database, [(place, answered)])
        return author

    async def test(self, cases: object, document: object, reach: Reach) -> TestRun:
        """Whether the cases go where they should, by the rules in force or those of a rule file.

        Raises InvalidInput.
        """
        await self._runtime.rule_book.refresh()
        parsed = self._parse_cases(cases)
        if document is None:
            rules = self._runtime.rule_book.rules
            return await self._run(rules.index.copy(team.team_id for team in rules.teams), parsed, reach)
        return await self._run(await retry_if_moved(lambda: self._of_document(document)), parsed, reach)

    async def _run(self, index: RoutingIndex, cases: Sequence[RouteCase], reach: Reach) -> TestRun:
        """Run in pieces, one run at a time, so that requests are served meanwhile."""
        outcomes: list[RouteTestOutcome] = []
        async with self._one_at_a_time:
            for at in range(0, len(cases), _SLICE):
                outcomes += run_cases(index, cases[at : at + _SLICE])
                await asyncio.sleep(0)
        return _test_run(index.version, outcomes, reach)

    async def _of_document(self, document: object) -> RoutingIndex:
        _, proposed = await from_document(self._runtime, document, edit_by("test"))
        await refuse_wrong(self._runtime, proposed.changes)
        _, after = await self._try_proposal(proposed)
        return after

    async def require(self, cases: object, proposed: Proposed, reach: Reach) -> None:
        """Raise FailedTests unless all cases pass after the changes; MovedOn if the rules have changed meanwhile."""
        parsed = self._parse_cases(cases)
        if not parsed:
            raise InvalidInput(
                "there must be at least one case, otherwise nothing would be tested",
                code="invalid_route_tests",
                field="tests.cases",
            )
        _, after = await self._try_proposal(proposed)
        run = await self._run(after, parsed, reach)
        if run.failed:
            raise FailedTests(run)

    def _parse_cases(self, cases: object) -> list[RouteCase]:
        return parse_cases({"cases": cases}, datetime.now(UTC), self._runtime.channels)

    def before(self, changes: Iterable[RuleChange]) -> RoutingIndex:
        """The rules in force now, unchanged for the teams that the changes touch."""
        return self._runtime.rule_book.rules.index.copy({change.rule.team_id for change in changes})

    async def _try_proposal(self, proposed: Proposed) -> tuple[RoutingIndex, RoutingIndex]:
        """The rules before and after the proposal. Raises MovedOn when the former are gone."""
        book = self._runtime.rule_book
        await book.refresh()
        if book.rules.version != proposed.version:
            raise MovedOn(book.rules.version, proposed.version)
        before = self.before(proposed.changes)
        return before, await self._rules_after(before, proposed.changes)

    async def _rules_after(self, before: RoutingIndex, changes: Sequence[RuleChange]) -> RoutingIndex:
        """The rules after the changes. Raises ValueError if they are not changes of these rules."""
        after = before.copy({change.rule.team_id for change in changes})
        if len(changes) > _MANY:
            await asyncio.to_thread(after.apply, before.version, changes)
        else:
            after.apply(before.version, changes)
        return after

    async def blast(self, before: RoutingIndex, changes: Sequence[RuleChange]) -> Blast | None:
        """How many of the last day's messages these changes redirect. None: another edit came in between."""
        if not changes:
            return Blast(0, 0, (), complete=True)
        try:
            after = await self._rules_after(before, changes)
        except ValueError as error:
            log.info("no blast radius", reason=str(error))
            return None
        tally = BacktestTally(before, after, changes)
        async for _ in self._replay_messages(tally, ReplaySpan(NEWEST, BLAST_DAYS)):
            pass
        return tally.blast(complete=tally.looked_at < NEWEST)

    async def backtest(self, span: ReplaySpan, proposal: Proposal) -> AsyncGenerator[ReplayProgress | Blast, None]:
        """Decide stored messages by the rules in force and by proposed ones: yields progress, finally the differences.

        InvalidInput is raised only before the first value.
        """
        tally = await retry_if_moved(lambda: self._make_tally(proposal))
        of = await count_cases(self._runtime.database, since=_begin_of(span), last=span.last)
        yield ReplayProgress(0, of)
        async for looked_at in self._replay_messages(tally, span):
            yield ReplayProgress(looked_at, max(of, looked_at))
        yield tally.blast()

    async def _make_tally(self, proposal: Proposal) -> BacktestTally:
        await self._runtime.rule_book.refresh()
        proposed = await self._read_proposal(proposal)
        if proposal.may is not None:
            await proposal.may({change.rule.team_id for change in proposed.changes})
        await refuse_wrong(self._runtime, proposed.changes)
        before, after = await self._try_proposal(proposed)
        return BacktestTally(before, after, proposed.changes)

    async def _read_proposal(self, proposal: Proposal) -> Proposed:
        edit = edit_by("backtest")
        if proposal.document is not None:
            return (await from_document(self._runtime, proposal.document, edit))[1]
        return await from_wanted(self._runtime, proposal.changes, edit)

    async def _replay_messages(self, tally: BacktestTally, span: ReplaySpan) -> AsyncIterator[int]:
        """Fill the tally; yields the number of processed messages after each chunk."""
        stored = cases_since(self._runtime.database, since=_begin_of(span), last=span.last, chunk=_CHUNK)
        async for cases in stored:
            async with self._one_at_a_time:
                for at in range(0, len(cases), _SLICE):
                    tally.add(cases[at : at + _SLICE])
                    await asyncio.sleep(0)
            yield tally.looked_at


def _begin_of(span: ReplaySpan) -> datetime | None:
    return None if span.days is None else datetime.now(UTC) - timedelta(days=span.days)


def _test_run(version: int, outcomes: Sequence[RouteTestOutcome], reach: Reach) -> TestRun:
    results = tuple(_result_of(outcome, reach) for outcome in outcomes)
    passed = sum(outcome.passed for outcome in outcomes)
    return TestRun(version, passed, len(outcomes) - passed, results)


def _result_of(outcome: RouteTestOutcome, reach: Reach) -> JsonObject:
    return {
        "name": outcome.case.name,
        "passed": outcome.passed,
        "expected": outcome.expected,
        "got": outcome.got,
        "trail": [step for step in outcome.trail if step.team_id in reach],
    }
