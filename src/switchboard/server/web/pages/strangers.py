"""Strangers: who wrote to an endpoint without being let in, what they wrote, and the decisions.

Next: `app/connectors/pairing.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, get_args
from uuid import UUID

from starlette.responses import Response

from switchboard.app.connectors.pairing import PAIRING, HeldMessage
from switchboard.app.people.naming import SenderPlace
from switchboard.domain.shown import ContactState, ShownContact
from switchboard.server.http.pairing import PAIRING_SERVICE
from switchboard.server.web.forms import NOTHING_ENTERED, Entered, Fields, choice_from, reason_from
from switchboard.server.web.naming import name_senders
from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.visit import Visit

_ROWS: Final = 50
_STATES: Final[tuple[ContactState, ...]] = get_args(ContactState)
_OUTCOMES: Final = {
    "approved": "Approved: what was held goes on now. Files of held messages are not kept.",
    "denied": "Denied: what was held is forgotten, and later messages are refused.",
    "stranger": "A stranger again: the next message is held.",
}


async def show_strangers(visit: Visit) -> Response:
    """Newest first; by default those that nobody has decided about."""
    state = visit.asked("state") or "stranger"
    wanted = None if state == "all" else choice_from(state, _STATES, "state")
    found, following = await visit.services.of(PAIRING_SERVICE).contacts(
        wanted, limit=_ROWS, cursor=visit.asked("cursor")
    )
    names = await name_senders(visit, (), others=[(_place_of(one), None) for one in found])
    return visit.page("strangers.html", contacts=found, following=following, state=state, states=_STATES, names=names)


def _place_of(contact: ShownContact) -> SenderPlace:
    return SenderPlace(contact.channel, contact.endpoint, contact.identity)


async def show_stranger(visit: Visit, entered: Entered = NOTHING_ENTERED) -> Response:
    """One, with the messages that are held."""
    service, contact_id = visit.services.of(PAIRING_SERVICE), _contact_id(visit)
    contact = await service.contact(contact_id)
    held, following = await service.held(contact_id, limit=_ROWS, cursor=visit.asked("cursor"))
    return visit.page(
        "stranger.html",
        entered.status,
        contact=contact,
        held=held,
        names=await name_senders(visit, (), others=_writers_of(contact, held)),
        following=following,
        entered=entered,
        outcome=_OUTCOMES.get(visit.asked("done") or ""),
    )


def _writers_of(contact: ShownContact, held: Sequence[HeldMessage]) -> list[tuple[SenderPlace, UUID | None]]:
    """The stranger, and those who wrote what is held: in a group they are others."""
    wrote = [(SenderPlace(contact.channel, contact.endpoint, one.sender), one.request_id) for one in held]
    return [(_place_of(contact), None), *wrote]


def _decision_form(path: str, state: ContactState) -> WebForm:
    """The form by which a stranger gets into this state."""

    async def decide(visit: Visit, fields: Fields) -> Response:
        await visit.services.of(PAIRING_SERVICE).decide(visit.caller, _contact_id(visit), state, reason_from(fields))
        return visit.go(f"/strangers/{_contact_id(visit)}?done={state}")

    return WebForm(path, decide, PAIRING, if_refused=show_stranger)


def _contact_id(visit: Visit) -> UUID:
    return visit.path_id("contact_id")


_ONE: Final = "/strangers/{contact_id:uuid}"
PAGES: Final = (
    WebPage("/strangers", show_strangers, PAIRING, "Strangers"),
    WebPage(_ONE, show_stranger, PAIRING),
    _decision_form(f"{_ONE}/approve", "approved"),
    _decision_form(f"{_ONE}/deny", "denied"),
    _decision_form(f"{_ONE}/revoke", "stranger"),
)
