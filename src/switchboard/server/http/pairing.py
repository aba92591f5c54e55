"""`/v1/pairing`: which senders may write to an endpoint. Operators only. Next: `app/connectors/pairing.py`."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import Depends, Response

from switchboard.app.access import Principal
from switchboard.app.connectors.pairing import PAIRING, PairingService
from switchboard.core.people.strangers import Contact
from switchboard.domain.shown import ContactState, ShownContact
from switchboard.server.contracts.base import Cursor, Limit
from switchboard.server.contracts.messages import ReasonBody
from switchboard.server.contracts.pairing import (
    AllowedContact,
    CodeBody,
    ContactBody,
    ContactPage,
    DecidedContact,
    HeldPage,
    PairingCode,
)
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation, page
from switchboard.server.services import ServiceFactory

router = router_of("pairing", prefix="/v1/pairing")
PAIRING_SERVICE: Final = ServiceFactory(lambda services: PairingService(services.runtime))

Operator = Annotated[Principal, Depends(needs(PAIRING))]


@router.get("", **operation("list_contacts", "List who wrote or may write", ContactPage, needing=PAIRING))
async def list_contacts(
    parts: Parts, state: ContactState | None = None, limit: Limit = 100, cursor: Cursor | None = None
) -> Response:
    """Newest first, of all restricted endpoints."""
    return answer(page("contacts", await parts.of(PAIRING_SERVICE).contacts(state, limit=limit, cursor=cursor)))


@router.post("", **operation("allow_contact", "Approve a sender who has not written", AllowedContact))
async def allow(caller: Operator, parts: Parts, body: ContactBody) -> Response:
    """Held messages are released, as by approving."""
    contact = Contact(body.channel, body.endpoint, body.scope, body.identity)
    return answer({"contact_id": await parts.of(PAIRING_SERVICE).allow(caller, contact)})


@router.post("/codes", **operation("create_pairing_code", "Create a pairing code", PairingCode, status=201))
async def create_code(caller: Operator, parts: Parts, body: CodeBody) -> Response:
    """Valid for ten minutes, for one person, and five tries. This response is the only one that contains it.

    With `owner_of`, its sender also becomes an owner of that butler, if it is sent in a private chat.
    """
    return answer(await parts.of(PAIRING_SERVICE).code(caller, body.channel, body.endpoint, body.owner_of), 201)


@router.get("/{contact_id}", **operation("get_contact", "Get a contact", ShownContact, 404, needing=PAIRING))
async def get_contact(parts: Parts, contact_id: UUID) -> Response:
    """Who it is, and what was decided."""
    return answer(await parts.of(PAIRING_SERVICE).contact(contact_id))


@router.get(
    "/{contact_id}/messages",
    **operation("list_held_messages", "List a stranger's held messages", HeldPage, 404, needing=PAIRING),
)
async def list_held(parts: Parts, contact_id: UUID, limit: Limit = 50, cursor: Cursor | None = None) -> Response:
    """Newest first; with the beginnings of their texts, which strangers wrote."""
    return answer(page("messages", await parts.of(PAIRING_SERVICE).held(contact_id, limit=limit, cursor=cursor)))


@router.post("/{contact_id}/approve", **operation("approve_contact", "Approve a stranger", DecidedContact, 404))
async def approve(caller: Operator, parts: Parts, contact_id: UUID, body: ReasonBody | None = None) -> Response:
    """What was held is routed now, in order; an `unverified` contact is not approved by that."""
    return answer(await _decide_contact(caller, parts, contact_id, "approved", body))


@router.post("/{contact_id}/deny", **operation("deny_contact", "Deny a stranger", DecidedContact, 404))
async def deny(caller: Operator, parts: Parts, contact_id: UUID, body: ReasonBody | None = None) -> Response:
    """What was held is forgotten, and further messages are refused."""
    return answer(await _decide_contact(caller, parts, contact_id, "denied", body))


@router.post("/{contact_id}/revoke", **operation("revoke_contact", "Revoke a decision", DecidedContact, 404))
async def revoke(caller: Operator, parts: Parts, contact_id: UUID, body: ReasonBody | None = None) -> Response:
    """The next message is held again, whether the contact was approved or denied."""
    return answer(await _decide_contact(caller, parts, contact_id, "stranger", body))


async def _decide_contact(
    caller: Principal, parts: Parts, contact_id: UUID, state: ContactState, body: ReasonBody | None
) -> dict[str, object]:
    reason = None if body is None else body.reason
    decided = await parts.of(PAIRING_SERVICE).decide(caller, contact_id, state, reason)
    return {"contact_id": contact_id, "messages": decided}
