"""Welcome: the first run, on four cards; each is done or skipped by itself. Next: `app/setup/first_run.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from starlette.responses import Response

from switchboard.app.setup.discovery import Discovery
from switchboard.app.setup.first_run import CARDS, SETUP, WHOLE, CardState, SetupAnswers
from switchboard.app.setup.questions import BUTLER, WORKSPACE
from switchboard.app.setup.trial import BriefTrial, describe_habits
from switchboard.domain.errors import InvalidInput
from switchboard.server.http.setup import SETUP_SERVICE
from switchboard.server.web.chats import new_thread, newest_thread, open_chat
from switchboard.server.web.forms import NOTHING_ENTERED, Entered, Fields
from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.visit import Visit

_HERE: Final = "/welcome"
_LOOK: Final = f"{_HERE}/look"
_MODEL: Final = f"{_HERE}/model"
_CARD: Final = f"{_HERE}/card"
_REASON: Final = "on the page Welcome"
_BETWEEN: Final = "\t"
"""Stands between the source and the model in the value of a choice."""
_NONE, _OTHER = "none", "other"
_STATES: Final[tuple[CardState, ...]] = ("open", "done", "skipped")
_EXCHANGES: Final = 5
"""Of the conversation that was last written in."""


async def look_for_models(visit: Visit, _: Fields) -> Response:
    """The page with what was found: a form, as ports that do not answer take seconds, for which no page waits."""
    return await show_welcome(visit, looking=True)


async def show_welcome(
    visit: Visit,
    entered: Entered = NOTHING_ENTERED,
    *,
    looking: bool = False,
    brief: BriefTrial | None = None,
    files: Mapping[PurePosixPath, str] | None = None,
) -> Response:
    """All cards, with the models found where they were looked for; `brief`, `files`: what came of what was entered."""
    found = await _find_models(visit) if looking or entered.fields else None
    thread = visit.asked("thread") or await newest_thread(visit) or new_thread()
    return visit.page(
        "welcome.html",
        entered.status,
        state=await visit.services.of(SETUP_SERVICE).state(),
        opened=await open_chat(visit, thread, back="/ui/welcome", limit=_EXCHANGES),
        found=found,
        chosen=entered.value("choice") or _first_choice(found),
        butler=BUTLER,
        workspace=WORKSPACE,
        brief=brief,
        habits=[] if brief is None else list(describe_habits(brief.tried)),
        files=files,
        models=[(model.name, model.model) for model in visit.services.runtime.settings.models],
        port=visit.request.scope["server"][1],
        entered=entered,
        nothing_entered=NOTHING_ENTERED,
    )


async def _find_models(visit: Visit) -> Discovery | None:
    service = visit.services.of(SETUP_SERVICE)
    return await service.find_models() if (await service.state()).settable else None


def _first_choice(found: Discovery | None) -> str:
    if found is None or not found.offers:
        return _OTHER
    return f"{found.offers[0].source}{_BETWEEN}{found.offers[0].model}"


async def set_model(visit: Visit, fields: Fields) -> Response:
    """Test what was chosen, show what would be written, or write it and start again."""
    service, answers = visit.services.of(SETUP_SERVICE), answers_from(fields)
    match fields.get("do"):
        case "test":
            return await show_welcome(visit, Entered(fields), brief=await service.try_model(answers))
        case "write":
            await service.write_files(visit.caller, answers)
        case _:
            return await show_welcome(visit, Entered(fields), files=await service.propose_files(answers))
    if not await service.start_again(visit.caller):
        return visit.go(f"{_HERE}#model")
    return visit.page("restarting.html", start=service.start)


async def show_restarted(visit: Visit) -> Response:
    """For the page that waits for the restart: nothing, until another start than the one it knows answers."""
    if visit.asked("start") == visit.services.of(SETUP_SERVICE).start:
        return Response(status_code=204, headers=visit.headers)
    answer = visit.page("restarted.html")
    answer.headers["HX-Redirect"] = f"/ui{_HERE}"
    return answer


def answers_from(fields: Fields) -> SetupAnswers:
    """What was entered. Raises InvalidInput."""
    choice = fields.get("choice", "")
    butler, workspace = fields.get("butler", ""), fields.get("workspace", "")
    if choice == _NONE:
        if fields.get("url", "").strip():
            raise InvalidInput("an address is entered, but not chosen: choose Another server, or clear it", field="url")
        return SetupAnswers(butler=butler, workspace=workspace)
    if choice == _OTHER:
        url = fields.get("url", "").strip()
        if not url:
            raise InvalidInput("the address of the model's server is missing", field="url")
        return SetupAnswers(fields.get("model", "").strip(), "", url, butler, workspace)
    source, _, model = choice.partition(_BETWEEN)
    return SetupAnswers(model, source, "", butler, workspace)


async def settle_card(visit: Visit, fields: Fields) -> Response:
    """Note that a card is done, skipped or open again; after the whole page, Now is shown."""
    card = next((one for one in (*CARDS, WHOLE) if one == fields.get("card")), None)
    state = next((one for one in _STATES if one == fields.get("state")), None)
    if card is None or state is None:
        raise InvalidInput("open the page again, and choose there")
    await visit.services.of(SETUP_SERVICE).settle_card(visit.caller, card, state, _REASON)
    return visit.go("/" if card == WHOLE else f"{_HERE}#{card}")


PAGES: Final = (
    WebPage(_HERE, show_welcome, SETUP, "Set up"),
    WebPage(f"{_HERE}/restarted", show_restarted, SETUP),
    WebForm(_LOOK, look_for_models, SETUP),
    WebForm(_MODEL, set_model, SETUP, if_refused=show_welcome),
    WebForm(_CARD, settle_card, SETUP),
)
