"""`/v1/setup`: the first run of an installation that nobody has set up yet. Operators only.

Next: `app/setup/first_run.py`.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Response

from switchboard.app.access import Principal
from switchboard.app.setup.first_run import SETUP, FirstRun, SetupAnswers
from switchboard.server.contracts.setup import (
    BriefTestResult,
    ChangedSetupCard,
    FirstRunState,
    FoundModels,
    ModelChoice,
    NewInstallation,
    SetupCardChange,
    WrittenInstallation,
)
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation
from switchboard.server.services import ServiceFactory

SETUP_SERVICE: Final = ServiceFactory(lambda s: FirstRun(s.switchboard))
router = router_of("web", prefix="/v1/setup")

Operator = Annotated[Principal, Depends(needs(SETUP))]


@router.get("", **operation("get_setup", "Get how far the first run is", FirstRunState, needing=SETUP))
async def get_setup(parts: Parts) -> Response:
    """Which of its cards are done, and whether settings can be written."""
    return answer(await parts.of(SETUP_SERVICE).state())


@router.post("/models", **operation("find_models", "Find models for a butler", FoundModels, 409, needing=SETUP))
async def find_models(parts: Parts) -> Response:
    """Local servers are asked; of keys in the environment only the names are looked at."""
    return answer(await parts.of(SETUP_SERVICE).find_models())


@router.post("/test", **operation("try_model", "Test a model", BriefTestResult, 404, 409, needing=SETUP))
async def try_model(parts: Parts, body: ModelChoice) -> Response:
    """It is asked to call a tool, and has 15 seconds. A model that fails is an outcome, not an error."""
    return answer(await parts.of(SETUP_SERVICE).try_model(SetupAnswers(body.model, body.source, body.url)))


@router.post(
    "/files", **operation("write_setup", "Write the files of a new installation", WrittenInstallation, 404, 409)
)
async def write_files(caller: Operator, parts: Parts, body: NewInstallation) -> Response:
    """Settings, one team, the prompt of its butler: new files only, of this machine's directory. Then start again."""
    service, model = parts.of(SETUP_SERVICE), body.model
    answers = SetupAnswers(butler=body.butler, workspace=body.workspace)
    if model is not None:
        answers = SetupAnswers(model.model, model.source, model.url, body.butler, body.workspace)
    if body.dry_run:
        files, restarting = await service.propose_files(answers), False
    else:
        files = await service.write_files(caller, answers)
        restarting = await service.start_again(caller)
    state = await service.state()
    shown = [{"path": str(path), "text": text} for path, text in files.items()]
    return answer({"directory": state.directory, "files": shown, "written": not body.dry_run, "restarting": restarting})


@router.post("/cards", **operation("settle_setup_card", "Note what became of a card", ChangedSetupCard))
async def settle_card(caller: Operator, parts: Parts, body: SetupCardChange) -> Response:
    """Done, skipped, or open again."""
    await parts.of(SETUP_SERVICE).settle_card(caller, body.card, body.state, body.reason)
    return answer({"card": body.card, "state": body.state})
