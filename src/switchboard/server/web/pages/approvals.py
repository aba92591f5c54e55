"""Approvals: what butlers ask people, in full, and the decisions. Next: `app/approvals/service.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, get_args
from uuid import UUID

from starlette.responses import Response

from switchboard.app.approvals.service import APPROVALS
from switchboard.app.people.naming import KnownSenders, decider_of
from switchboard.core.turns.asking import Verb, render_arguments
from switchboard.domain.shown import ApprovalState, ShownApproval
from switchboard.server.http.approvals import APPROVAL_SERVICE
from switchboard.server.web.forms import NOTHING_ENTERED, Entered, Fields, choice_from
from switchboard.server.web.naming import name_senders
from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.visit import Visit

_ROWS: Final = 50
_STATES: Final[tuple[ApprovalState, ...]] = get_args(ApprovalState)


async def show_approvals(visit: Visit) -> Response:
    """What waits for a decision, newest first; or those of another state."""
    state = visit.asked("state") or "pending"
    wanted = None if state == "all" else choice_from(state, _STATES, "state")
    found, following = await visit.services.of(APPROVAL_SERVICE).list(wanted, limit=_ROWS, cursor=visit.asked("cursor"))
    shown = [(one, render_arguments(one.arguments)) for one in found]
    names = await _name_people_of(visit, found)
    return visit.page("approvals.html", approvals=shown, following=following, state=state, states=_STATES, names=names)


async def _name_people_of(visit: Visit, found: Sequence[ShownApproval]) -> KnownSenders:
    """Those who wrote, and those who decided in a chat."""
    deciders = [(decider_of(one.decided_by), None) for one in found if one.decided_by]
    return await name_senders(visit, found, others=deciders)


async def show_approval(visit: Visit, entered: Entered = NOTHING_ENTERED) -> Response:
    """One, with all of its arguments and the forms to decide about it."""
    asked = await visit.services.of(APPROVAL_SERVICE).get(_approval_id(visit))
    options = asked.arguments.get("options") if asked.kind == "question" else None
    return visit.page(
        "approval.html",
        entered.status,
        asked=asked,
        names=await _name_people_of(visit, [asked]),
        arguments=render_arguments(asked.arguments),
        question=str(asked.arguments.get("question", "")),
        options=[str(one) for one in options] if isinstance(options, (list, tuple)) else [],
        entered=entered,
        outcome="It is decided, and the butler goes on." if visit.asked("done") else None,
    )


async def approve_call(visit: Visit, fields: Fields) -> Response:
    """Let the call be made, once and with these arguments."""
    return await _decide_request(visit, fields, "approve", "")


async def refuse_request(visit: Visit, fields: Fields) -> Response:
    """Refuse the call, or leave the question without an answer."""
    return await _decide_request(visit, fields, "refuse", " ".join(fields.get("reason", "").split()))


async def answer_question(visit: Visit, fields: Fields) -> Response:
    """Answer a question: by one of its options, or in words."""
    return await _decide_request(visit, fields, "answer", fields.get("text", ""))


async def _decide_request(visit: Visit, fields: Fields, verb: Verb, text: str) -> Response:
    """Decide what was shown: its digest comes with the form."""
    approval_id, digest = _approval_id(visit), fields.get("digest", "")
    await visit.services.of(APPROVAL_SERVICE).decide(visit.caller, approval_id, verb, text, digest)
    return visit.go(f"/approvals/{approval_id}?done=1")


def _approval_id(visit: Visit) -> UUID:
    return visit.path_id("approval_id")


_ONE: Final = "/approvals/{approval_id:uuid}"
PAGES: Final = (
    WebPage("/approvals", show_approvals, APPROVALS, "Approvals"),
    WebPage(_ONE, show_approval, APPROVALS),
    WebForm(f"{_ONE}/approve", approve_call, APPROVALS, if_refused=show_approval),
    WebForm(f"{_ONE}/refuse", refuse_request, APPROVALS, if_refused=show_approval),
    WebForm(f"{_ONE}/answer", answer_question, APPROVALS, if_refused=show_approval),
)
