"""All forms of the page, each as a person fills it in; `forms_run.py` sends each while its server is killed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from switchboard.server.web.page import WebForm
from switchboard.server.web.pages import PAGES
from switchboard.testing.bot_api import TOKEN

OF_THE_BROWSER: Final = {"/theme"}
"""What is kept in a cookie alone."""
OF_A_PROVIDER: Final = {
    "/connections/consent/{channel}",
    "/connections/accounts/{name}/sign-in",
    "/connections/consents/{consent_id:uuid}/finish",
}
"""Signing in at a provider: it is kept in memory alone, so a server that was killed has it begun again."""
WHY: Final = "because the test says so"


class FilledForm(Struct, frozen=True):
    """A form, and what is entered. Names in braces stand for ids of `forms_house.py`.

    `page`: where it is; `way`: forms that are sent before, as only the answer to the last of them has it. `told`: what
    the page says when it is sent once more after it was done; empty: the same as the first time. `views`: what
    changes nothing, or makes something new each time; each time is on the record.
    """

    path: str
    page: str
    entered: Mapping[str, str] = {}
    way: tuple[FilledForm, ...] = ()
    told: str = ""
    views: bool = False
    reason: bool = True
    """Whether it asks for a reason."""
    files: bool = False
    unrecorded: bool = False
    """Whether it leaves no row in the audit, as the thing itself says who did it."""
    intends: bool = False
    """Whether its row in the audit comes first, so that what is killed before it is done has another one each time."""
    pieces: bool = False
    """Whether it does several things, each by itself."""
    starts: bool = False
    """Whether what it does is complete with the next start only."""

    @property
    def name(self) -> str:
        """As the report calls it."""
        return " ".join([self.path, *(one for one in self.entered.values() if one in {"handle", "reroute"})])


def _reasoned(path: str, page: str, told: str = "", *, intends: bool = False, **more: str) -> FilledForm:
    return FilledForm(path, page, {"reason": WHY, **more}, told=told, intends=intends)


def _shown_by(
    way: FilledForm, *ways: FilledForm, path: str, told: str = "", views: bool = False, reason: str = WHY
) -> FilledForm:
    entered = {"reason": reason} if reason else {}
    return FilledForm(path, way.page, entered, (way, *ways), told, views, reason=bool(reason))


_ANN: Final = {"system_id": "System1/house", "author": "telegram/bot%3Ahouse/ann"}
_FACTS: Final = FilledForm("/memory/facts", "/memory", _ANN, views=True, reason=False)
_FACT: Final = FilledForm("/memory/facts/{fact}", "/memory", {}, (_FACTS,), views=True, reason=False)
_LOOK: Final = FilledForm("/welcome/look", "/welcome", views=True, reason=False)
_RUNS: Final = FilledForm("/memory/runs", "/memory", views=True, reason=False)
_SUMMARIES: Final = FilledForm("/memory/summaries", "/memory", views=True, reason=False)
_LETTER: Final = "/dead-letters/{letter}"
_PHONE: Final = "/connections/accounts/phone"
_RULE_FORM: Final = "/rules/{rule}/change"
_NEW_RULE: Final = {
    "name": "the sea",
    "channel": "api",
    "filters": "sender = sea",
    "targets": "System1/post",
    "priority": "3",
}
_CHANGED: Final = FilledForm(_RULE_FORM, "/rules/{rule}", {"priority": "7"})
_SHOWN_DELETE: Final = FilledForm("/rules/{rule}/delete", "/rules/{rule}")
_SHOWN_BACK: Final = FilledForm("/rules/versions/2/restore", "/rules/versions/2", {"to": "1"})

FORMS: Final = (
    FilledForm(
        "/chat/send",
        "/chat?thread=rain",
        {"text": "Is it raining?", "key": "rain-1"},
        reason=False,
        files=True,
        unrecorded=True,
    ),
    FilledForm("/chat/{chat}/stop", "/chat?thread=noon", reason=False),
    FilledForm("/chat/approvals/{call}/approve", "/chat?thread=pay", reason=False),
    FilledForm("/chat/approvals/{call}/refuse", "/chat?thread=pay", reason=False),
    FilledForm("/chat/approvals/{question}/answer", "/chat?thread=ask", {"text": "red"}, reason=False),
    _reasoned("/messages/{open}/reroute", "/messages/{open}/actions", "already had this message", to="System1/post"),
    _reasoned("/messages/{answered}/correct", "/messages/{answered}/actions", to="System1/post"),
    _reasoned("/messages/{later}/try", "/messages/{later}/actions"),
    _reasoned("/messages/{open}/stop", "/messages/{open}/actions"),
    _reasoned("/messages/{unsent}/replies/{reply}/resend", "/messages/{unsent}/actions", "is pending"),
    FilledForm("/approvals/{call}/approve", "/approvals/{call}", reason=False),
    FilledForm("/approvals/{call}/refuse", "/approvals/{call}", {"reason": WHY}),
    FilledForm("/approvals/{question}/answer", "/approvals/{question}", {"text": "red"}, reason=False),
    FilledForm(
        "/connections/add/telegram",
        "/connections/add/telegram",
        {"name": "new", "secret.token": TOKEN, "more": "api_url={bot}"},
        (_reasoned(f"{_PHONE}/remove", _PHONE),),
        reason=False,
        intends=True,
    ),
    FilledForm(f"{_PHONE}/test", _PHONE, views=True, reason=False),
    _reasoned(f"{_PHONE}/pause", _PHONE, intends=True),
    FilledForm(f"{_PHONE}/resume", _PHONE, {"reason": WHY}, (_reasoned(f"{_PHONE}/pause", _PHONE),), intends=True),
    FilledForm(f"{_PHONE}/remove", _PHONE, {"reason": WHY}, intends=True, pieces=True),
    FilledForm(f"{_PHONE}/code", _PHONE, views=True, reason=False),
    FilledForm(
        "/connections/accounts/listed/allow",
        "/connections/accounts/listed",
        {"identity": "noor"},
        reason=False,
    ),
    _reasoned("/strangers/{stranger}/approve", "/strangers/{stranger}"),
    _reasoned("/strangers/{stranger}/deny", "/strangers/{stranger}"),
    FilledForm(
        "/strangers/{stranger}/revoke",
        "/strangers/{stranger}",
        {"reason": WHY},
        (_reasoned("/strangers/{stranger}/approve", "/strangers/{stranger}"),),
    ),
    *(
        FilledForm(
            "/dead-letters/many",
            f"/dead-letters/many?channel=webhook&action={action}",
            {"reason": WHY, "action": action.partition("&")[0]},
            intends=True,
            pieces=True,
        )
        for action in ("handle", "reroute&to=System1/post")
    ),
    _reasoned(f"{_LETTER}/reroute", _LETTER, to="System1/post"),
    FilledForm(f"{_LETTER}/handle", _LETTER, {"resolution": WHY}),
    _shown_by(FilledForm("/rules/new", "/rules/new?team=root", _NEW_RULE), path="/rules/new"),
    _shown_by(_CHANGED, path=_RULE_FORM),
    _shown_by(_SHOWN_DELETE, path="/rules/{rule}/delete"),
    _shown_by(_SHOWN_BACK, path="/rules/versions/2/restore"),
    _reasoned("/butlers/quarantine", "/butlers", system_id="System1/courier"),
    FilledForm(
        "/butlers/release",
        "/butlers",
        {"reason": WHY, "system_id": "System1/courier"},
        (_reasoned("/butlers/quarantine", "/butlers", system_id="System1/courier"),),
    ),
    FilledForm("/butlers/modules/sync", "/butlers/modules", {"module": "calendar"}, views=True, reason=False),
    FilledForm("/butlers/modules/release", "/butlers/modules", {"module": "calendar"}, reason=False),
    _FACTS,
    _FACT,
    FilledForm(
        "/memory/add",
        "/memory",
        {"text": "Ann likes figs", "author": "ann", "system_id": "System1/house"},
        reason=False,
    ),
    _shown_by(_FACTS, _FACT, path="/memory/facts/{fact}/share"),
    _shown_by(_FACTS, _FACT, path="/memory/facts/{fact}/undo", told="counts as never said already"),
    _shown_by(_FACTS, _FACT, path="/memory/facts/{fact}/forget", told="it was forgotten"),
    FilledForm("/memory/entities", "/memory", {"system_id": "System1/house"}, views=True, reason=False),
    _RUNS,
    _shown_by(_RUNS, path="/memory/runs/{run}/undo"),
    _SUMMARIES,
    _shown_by(_SUMMARIES, path="/memory/summaries/{summary}/restore", told="that was done"),
    _reasoned("/tasks/{task}/cancel", "/tasks/{task}", "is cancelled already"),
    _reasoned("/tasks/{task}/pause", "/tasks/{task}", "is paused"),
    FilledForm(
        "/tasks/{task}/resume",
        "/tasks/{task}",
        {"reason": WHY},
        (_reasoned("/tasks/{task}/pause", "/tasks/{task}"),),
        told="is active",
    ),
    _reasoned("/tasks/{task}/run", "/tasks/{task}", "was due meanwhile"),
    _LOOK,
    FilledForm(
        "/welcome/model",
        "/welcome",
        {"do": "write", "choice": "none"},
        (_LOOK,),
        told="You already have settings",
        reason=False,
        intends=True,
        pieces=True,
        starts=True,
    ),
    FilledForm("/welcome/card", "/welcome", {"card": "channel", "state": "skipped"}, reason=False),
    _reasoned("/sessions/end-all", "/sessions"),
    _reasoned("/sessions/{session}/end", "/sessions"),
    FilledForm("/leave", "/sessions", told="Sign in", reason=False),
)


def missing_forms() -> set[str]:
    """The forms of the page that nothing here fills in."""
    filled = {re.sub("{.*?}", "x", one.path).replace("versions/2", "versions/x") for one in FORMS}
    known = {page.path for page in PAGES if isinstance(page, WebForm)} - OF_THE_BROWSER - OF_A_PROVIDER
    return {path for path in known if not any(re.fullmatch(re.sub("{.*?}", "[^/]+", path), one) for one in filled)}
