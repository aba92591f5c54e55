"""Rules tried without writing any: route tests, dry runs, backtests. Next: `app/rules/replays.py`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from functools import partial
from typing import Annotated, Final

import structlog
from fastapi import Depends, Request, Response
from fastapi.responses import StreamingResponse

from switchboard.app.access import Principal
from switchboard.app.rules.proposals import ProposedRule
from switchboard.app.rules.replays import Proposal, ReplayProgress, ReplayQuestion, ReplaySpan
from switchboard.app.rules.service import EDIT_RULES, READ_RULES
from switchboard.core.routing.backtest import NEWEST
from switchboard.core.routing.draft import parse_facts
from switchboard.domain.routing import TeamId
from switchboard.server.contracts.rules import BacktestBody, DryRun, DryRunBody, TestAnswer, TestBody
from switchboard.server.http.lines import NDJSON, stream_lines
from switchboard.server.http.parameters import router_of
from switchboard.server.http.rules import RULE_REPLAYS, RULE_SERVICE
from switchboard.server.http.services import Parts, Responses, Within, answer, needs, operation

log = structlog.get_logger(__name__)


router = router_of("rules", prefix="/v1/rules")

Reader = Annotated[Principal, Depends(needs(READ_RULES))]
Editor = Annotated[Principal, Depends(needs(EDIT_RULES))]


@router.post("/test", **operation("test_rules", "Run route tests", TestAnswer))
async def test_rules(caller: Reader, parts: Parts, reach: Within, body: TestBody) -> Response:
    """Cases: a message, and its expected recipient; by the rules in force, or by those of a rule file."""
    del caller
    return answer(await parts.of(RULE_REPLAYS).test(body.cases, body.document, reach))


@router.post("/explain", **operation("explain_rules", "Explain a hypothetical message", DryRun))
async def explain(caller: Reader, parts: Parts, reach: Within, body: DryRunBody) -> Response:
    """Where it would go, and why; nothing is stored."""
    return answer(await parts.of(RULE_REPLAYS).dry_run(question(caller, body), reach))


def question(caller: Principal, body: DryRunBody) -> ReplayQuestion:
    """The message on the wire in the form for replays."""
    facts = None if body.facts is None else parse_facts(body.facts)
    return ReplayQuestion(body.envelope, facts, body.pinned, ask_author=caller.role == "operator")


_COUNT: Final = {"type": "integer"}
_LINE: Final = {
    "type": "object",
    "properties": {
        "progress": {"type": "object", "properties": {"looked_at": _COUNT, "of": _COUNT}},
        "result": {"$ref": "#/components/schemas/Blast"},
        "error": {"$ref": "#/components/schemas/ErrorInfo"},
    },
}
_LINES: Final[Responses] = {
    200: {
        "description": "Lines of JSON: progress, then the result or an error.",
        "content": {NDJSON: {"schema": _LINE}},
    }
}


@router.post(
    "/backtest",
    response_class=StreamingResponse,
    **operation("backtest_rules", "Backtest stored messages", None, 404, more=_LINES),
)
async def backtest(request: Request, caller: Editor, parts: Parts, body: BacktestBody) -> Response:
    """By the rules in force and by the proposed ones; shows only what would change. Ends when the client disconnects.

    For those who may edit rules: the examples name messages of others, and who got them.
    """
    await parts.of(RULE_SERVICE).check_editor(caller)
    last = NEWEST if body.last is None and body.days is None else body.last
    lines = parts.of(RULE_REPLAYS).backtest(
        ReplaySpan(last, body.days), proposal_of(body, partial(parts.of(RULE_SERVICE).check_scope, caller))
    )
    # The first step runs here, so that errors in the proposal are an answer of their own, not a line.
    first = await anext(lines)
    return StreamingResponse(stream_lines(request, parts, _named_lines(first, lines), "backtest"), media_type=NDJSON)


async def _named_lines(first: object, rest: AsyncGenerator[object, None]) -> AsyncGenerator[object, None]:
    try:
        yield _name_line(first)
        async for found in rest:
            yield _name_line(found)
    finally:
        await rest.aclose()


def _name_line(found: object) -> dict[str, object]:
    return {"progress" if isinstance(found, ReplayProgress) else "result": found}


def proposal_of(body: BacktestBody, may: Callable[[Collection[TeamId]], Awaitable[None]]) -> Proposal:
    """What the body of a backtest proposes; `may` raises Forbidden for teams that are not the caller's."""
    return Proposal(body.document, [ProposedRule(one.fields(), one.team_id, one.rule_id) for one in body.changes], may)
