"""What can be done about a message: reroute it, correct a model, try it now, stop it, send its replies again.

`messages.py` shows the message and links here. Next: `app/messages/reroutes.py`, `app/messages/waiting.py`,
`app/classification/corrections.py`, `app/connectors/work.py`.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from msgspec import Struct
from starlette.responses import Response

from switchboard.app.classification.corrections import CORRECT, Wish
from switchboard.app.messages.explain import EXPLAIN, Explanation, explain
from switchboard.app.messages.reroutes import REROUTE, RerouteOrder
from switchboard.app.messages.views import MESSAGES, REPLIES
from switchboard.app.messages.waiting import TRY_NOW, stop_turns, try_now
from switchboard.domain.errors import InvalidInput
from switchboard.domain.ledger import OutboxRow
from switchboard.server.http.messages import REROUTER
from switchboard.server.http.models import CORRECTION_SERVICE
from switchboard.server.http.outbox import CONNECTOR_SERVICE
from switchboard.server.web.forms import NOTHING_ENTERED, Entered, Fields, reason_from, receivers_of, target_from
from switchboard.server.web.naming import name_senders
from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.visit import Visit

_OUTCOMES: Final = {
    "rerouted": "It was sent on.",
    "corrected": "The correction is recorded.",
    "tried": "It goes on now.",
    "stopped": "It ends within a second, with what was written so far.",
    "resent": "The reply is sent again.",
    "nothing": "There was nothing left to do.",
}
_OPEN: Final = frozenset({"pending", "running", "retrying", "waiting"})
_UNSENT: Final = frozenset({"uncertain", "failed", "dead"})


class PossibleActions(Struct, frozen=True):
    """What a message offers to be done about it."""

    butlers: list[str]
    """Those who have it, or have had it and finished with it."""
    is_answered: bool
    is_open: bool
    """Whether turns of it may still be stopped."""
    waits: bool
    """Whether something of it may wait: a turn, or a reply that is to be sent."""
    was_classified: bool
    unsent: list[OutboxRow]


def possible_with(found: Explanation) -> PossibleActions:
    """What can be done about this message now."""
    deliveries = [one.delivery for one in found.deliveries if one.delivery.state != "cancelled"]
    replies = [one.reply for one in found.replies]
    waiting = found.waiting is not None and found.waiting.waiting.state == "pending"
    is_open = waiting or any(one.state in _OPEN for one in deliveries)
    return PossibleActions(
        butlers=sorted({str(one.system_id) for one in deliveries}),
        is_answered=any(one.state == "answered" for one in deliveries),
        is_open=is_open,
        waits=is_open or any(one.state == "pending" for one in replies),
        was_classified=bool(found.classifications),
        unsent=[reply for reply in replies if reply.state in _UNSENT],
    )


async def show_actions(visit: Visit, entered: Entered = NOTHING_ENTERED) -> Response:
    """What is possible now."""
    found = await explain(visit.services.runtime, _message_id(visit))
    return visit.page(
        "message_actions.html",
        entered.status,
        message=found.message,
        names=await name_senders(visit, [found.message]),
        possible=possible_with(found),
        receivers=receivers_of(visit.services.runtime.rule_book.rules),
        entered=entered,
        outcome=_OUTCOMES.get(visit.asked("done") or ""),
    )


async def reroute_message(visit: Visit, fields: Fields) -> Response:
    """Send it to others than those who have it."""
    instead_of = fields.get("instead_of") or None
    order = RerouteOrder(reason_from(fields), target_from(fields), instead_of, again="again" in fields)
    await visit.services.of(REROUTER).reroute(visit.caller, _message_id(visit), order)
    return _go_back(visit, "rerouted")


async def correct_message(visit: Visit, fields: Fields) -> Response:
    """Say which butler a model should have chosen."""
    reason, to = reason_from(fields), fields.get("to", "").strip()
    if not to:
        raise InvalidInput("choose who should have got it", field="to")
    wish = Wish(to, reason, only_note="only_note" in fields)
    done = await visit.services.of(CORRECTION_SERVICE).correct(visit.caller, _message_id(visit), wish)
    return _go_back(visit, "nothing" if done.already else "corrected")


async def try_again(visit: Visit, fields: Fields) -> Response:
    """Do not wait for the next attempt."""
    done = await try_now(visit.services.runtime, visit.caller, _message_id(visit), reason_from(fields))
    return _go_back(visit, "tried" if done.lanes else "nothing")


async def stop_message(visit: Visit, fields: Fields) -> Response:
    """End its turns, with what they have written."""
    done = await stop_turns(
        visit.services.views, visit.services.runtime, visit.caller, _message_id(visit), reason_from(fields)
    )
    return _go_back(visit, "stopped" if done.stopped else "nothing")


async def resend_reply(visit: Visit, fields: Fields) -> Response:
    """Send a reply again that was not sent, or may not have been."""
    outbox_id, reason = visit.path_id("outbox_id"), reason_from(fields)
    await visit.services.of(CONNECTOR_SERVICE).resend(visit.caller, outbox_id, reason)
    return _go_back(visit, "resent")


def _go_back(visit: Visit, done: str) -> Response:
    return visit.go(f"/messages/{_message_id(visit)}/actions?done={done}")


def _message_id(visit: Visit) -> UUID:
    return visit.path_id("request_id")


_ONE: Final = "/messages/{request_id:uuid}"
PAGES: Final = (
    WebPage(f"{_ONE}/actions", show_actions, EXPLAIN),
    WebForm(f"{_ONE}/reroute", reroute_message, REROUTE, if_refused=show_actions),
    WebForm(f"{_ONE}/correct", correct_message, CORRECT, if_refused=show_actions),
    WebForm(f"{_ONE}/try", try_again, TRY_NOW, if_refused=show_actions),
    WebForm(f"{_ONE}/stop", stop_message, MESSAGES, if_refused=show_actions),
    WebForm(f"{_ONE}/replies/{{outbox_id:uuid}}/resend", resend_reply, REPLIES, if_refused=show_actions),
)
