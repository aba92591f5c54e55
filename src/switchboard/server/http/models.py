"""`/v1/models`, `/v1/classifications`: models, their cost, their choices, and corrections.

Next: `app/models/spending.py`, `app/classification/log.py`, `app/classification/corrections.py`.
"""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import Depends, Query, Response

from switchboard.app.access import Principal
from switchboard.app.classification.corrections import CORRECT, CorrectionResult, CorrectionService, Wish
from switchboard.app.classification.log import CLASSIFICATIONS, ClassificationFilter, ClassificationLog
from switchboard.app.models.spending import MODELS, By, ModelsView, SpendingService, UsageView
from switchboard.server.contracts.base import Cursor, Limit, Word
from switchboard.server.contracts.dead_letters import Moment
from switchboard.server.contracts.models import CaseFile, ClassificationPage, CorrectionBody
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation, page
from switchboard.server.services import ServiceFactory, Services

router = router_of("models", prefix="/v1")


def _make_spending(services: Services) -> SpendingService:
    runtime = services.runtime
    return SpendingService(runtime.settings, runtime.database, lambda: list(runtime.rule_book.rules.members.values()))


SPENDING_SERVICE: Final = ServiceFactory(_make_spending)
CORRECTION_SERVICE: Final = ServiceFactory(lambda services: CorrectionService(services.runtime, services.access))
_LOG: Final = ServiceFactory(lambda services: ClassificationLog(services.runtime, services.access))

Reader = Annotated[Principal, Depends(needs(CLASSIFICATIONS))]
Corrector = Annotated[Principal, Depends(needs(CORRECT))]


@router.get("/models", **operation("list_models", "List models", ModelsView, needing=MODELS))
async def list_models(parts: Parts) -> Response:
    """Those that are asked come first; with their usage today and the state of the daily limits."""
    return answer(await parts.of(SPENDING_SERVICE).models())


@router.get("/models/usage", **operation("get_model_usage", "Get usage and cost of models", UsageView, needing=MODELS))
async def get_usage(
    parts: Parts,
    by: By = "day",
    since: Annotated[Moment | None, Query(alias="from")] = None,
    until: Annotated[Moment | None, Query(alias="to")] = None,
    limit: Limit = 100,
    cursor: Cursor | None = None,
) -> Response:
    """Tokens and cost from `from` until `to`, by default of the last 30 days.

    Days newest first, everything else most expensive first. By day, model, butler and asker (`turn`, `plan`,
    `compaction`, `classification`) everything counts, by whole days (UTC); of classification a butler has its share.
    By message and team: classifications and the answers of models in turns, but not compaction and failed requests of
    turns; a turn counts when its message came.
    """
    return answer(await parts.of(SPENDING_SERVICE).usage(by, since, until, limit=limit, cursor=cursor))


@router.get("/classifications", **operation("list_classifications", "List classifications", ClassificationPage))
async def list_classifications(  # noqa: PLR0913, PLR0917 - one parameter per filter of the contract
    caller: Reader,
    parts: Parts,
    team_id: Word | None = None,
    butler: Word | None = None,
    failed: bool = False,
    corrected: bool = False,
    limit: Limit = 50,
    cursor: Cursor | None = None,
) -> Response:
    """Every attempt, the newest message first; a System3 and a System4 see those of their teams."""
    wanted = ClassificationFilter(None if team_id is None else (team_id,), butler, failed, corrected)
    return answer(page("classifications", await parts.of(_LOG).list(caller, wanted, limit=limit, cursor=cursor)))


@router.get(
    "/classifications/cases",
    **operation("list_classification_cases", "List corrections as route tests", CaseFile, needing=MODELS),
)
async def list_cases(
    parts: Parts, team_id: Word | None = None, limit: Limit = 500, cursor: Cursor | None = None
) -> Response:
    """The newest first, in the form of `switchboard rules test`."""
    return answer(page("cases", await parts.of(_LOG).cases(team_id, limit=limit, cursor=cursor)))


@router.post(
    "/messages/{request_id}/correction",
    **operation("correct_classification", "Correct a classification", CorrectionResult, 404, 409),
)
async def correct(caller: Corrector, parts: Parts, request_id: UUID, body: CorrectionBody) -> Response:
    """A model chose wrongly: this butler or team gets it too, unless it has it already, or with `only_note`."""
    wish = Wish(body.to, body.reason, body.only_note)
    return answer(await parts.of(CORRECTION_SERVICE).correct(caller, request_id, wish))
