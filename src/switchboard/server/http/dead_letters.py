"""Dead letters: list, reroute and close undeliverable messages. Next: `app/dead_letters/service.py`."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from uuid import UUID

from fastapi import Depends, Response

from switchboard.app.access import Principal
from switchboard.app.dead_letters.reach import DEAD_LETTERS
from switchboard.app.dead_letters.requests import Bulk, Reroute, RuleWish
from switchboard.app.dead_letters.service import DeadLetterService
from switchboard.domain.routing import DeadLetterCategory, Target
from switchboard.server.contracts.base import Cursor, Limit, Word
from switchboard.server.contracts.dead_letters import (
    BulkBody,
    BulkOutcome,
    DeadLetterDetail,
    DeadLetterFilterBody,
    DeadLetterPage,
    HandleBody,
    Handled,
    Moment,
    RerouteBody,
    Rerouted,
)
from switchboard.server.contracts.rules import TargetBody
from switchboard.server.http.parameters import router_of
from switchboard.server.http.rules import RULE_SERVICE
from switchboard.server.http.services import Parts, answer, needs, operation, page
from switchboard.server.services import ServiceFactory
from switchboard.store.messages.dead_letters import DeadLetterFilter

DEAD_LETTER_SERVICE: Final = ServiceFactory(lambda s: DeadLetterService(s.runtime, s.access, s.of(RULE_SERVICE)))
router = router_of("dead letters", prefix="/v1/dead-letters")

Handler = Annotated[Principal, Depends(needs(DEAD_LETTERS))]


@router.get("", **operation("list_dead_letters", "List dead letters", DeadLetterPage))
async def list_dead_letters(  # noqa: PLR0913, PLR0917 - one parameter per filter of the contract
    caller: Handler,
    parts: Parts,
    team_id: Word | None = None,
    status: Literal["pending", "handled"] | None = None,
    category: DeadLetterCategory | None = None,
    channel: Word | None = None,
    system_id: Word | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    limit: Limit = 50,
    cursor: Cursor | None = None,
) -> Response:
    """Newest first; a System4 sees those of its team. They died in [since, until)."""
    teams = None if team_id is None else (team_id,)
    wanted = DeadLetterFilter(teams, status, category, channel, system_id, since, until)
    return answer(
        page("dead_letters", await parts.of(DEAD_LETTER_SERVICE).list(caller, wanted, limit=limit, cursor=cursor))
    )


@router.get("/{dead_letter_id}", **operation("get_dead_letter", "Get a dead letter", DeadLetterDetail, 404))
async def get_dead_letter(caller: Handler, parts: Parts, dead_letter_id: UUID) -> Response:
    """In full: the envelope, the original bytes, who was notified, and where it was rerouted."""
    return answer(await parts.of(DEAD_LETTER_SERVICE).get(caller, dead_letter_id))


@router.post("/bulk", **operation("bulk_dead_letters", "Reroute or handle many dead letters", BulkOutcome))
async def bulk(caller: Handler, parts: Parts, body: BulkBody) -> Response:
    """One by one: what fails stays pending and is listed. May be repeated; continue with `next_cursor`."""
    return answer(await parts.of(DEAD_LETTER_SERVICE).bulk(caller, bulk_of(body)))


@router.post(
    "/{dead_letter_id}/reroute", **operation("reroute_dead_letter", "Reroute a dead letter", Rerouted, 404, 409)
)
async def reroute(caller: Handler, parts: Parts, dead_letter_id: UUID, body: RerouteBody) -> Response:
    """To a butler, to a team, or by the current rules from its own team downward; repeated, it says what was done."""
    return answer(await parts.of(DEAD_LETTER_SERVICE).reroute(caller, dead_letter_id, reroute_of(body)))


@router.post("/{dead_letter_id}/handle", **operation("handle_dead_letter", "Close a dead letter", Handled, 404, 409))
async def handle(caller: Handler, parts: Parts, dead_letter_id: UUID, body: HandleBody) -> Response:
    """Nothing more is to be done with it; the message stays dead."""
    return answer(await parts.of(DEAD_LETTER_SERVICE).handle(caller, dead_letter_id, body.resolution))


def reroute_of(body: RerouteBody) -> Reroute:
    """The body as `DeadLetterService` takes it."""
    rule = None if body.rule is None else RuleWish(body.rule.name, body.rule.filters, body.rule.priority)
    return Reroute(body.reason, _target_of(body.to), rule)


def filter_of(body: DeadLetterFilterBody) -> DeadLetterFilter:
    """The body as `DeadLetterService` takes it."""
    teams = None if body.team_id is None else (body.team_id,)
    return DeadLetterFilter(
        teams, body.status, body.category, body.channel, body.system_id, body.since, body.until, body.ids
    )


def bulk_of(body: BulkBody) -> Bulk:
    """The body as `DeadLetterService` takes it."""
    return Bulk(
        filter_of(body.filter),
        body.action,
        body.reason or body.resolution or "",
        _target_of(body.to),
        limit=body.limit,
        after=body.cursor,
        dry_run=body.dry_run,
    )


def _target_of(to: TargetBody | None) -> Target | None:
    return None if to is None else Target(to.system_id, to.team_id)
