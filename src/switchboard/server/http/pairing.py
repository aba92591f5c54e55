"""`/v1/pairing`: which senders may write to an endpoint. Operators only. Next: `app/connectors/pairing.py`."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import Depends, Response

from switchboard.app.access import Principal
from switchboard.app.connectors.pairing import PAIRING, PairingService
from switchboard.core.people.strangers import Contact
from switchboard.domain.shown import ContactState
from switchboard.server.contracts.base import Cursor, Limit
from switchboard.server.contracts.pairing import (
    AllowedContact,
    CodeBody,
    ContactBody,
    ContactPage,
    DecidedContact,
    PairingCode,
)
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation, page
from switchboard.server.services import ServiceFactory

router = router_of("pairing", prefix="/v1/pairing")
_SERVICE: Final = ServiceFactory(lambda services: PairingService(services.runtime))

Operator = Annotated[Principal, Depends(needs(PAIRING))]


@router.get("", **operation("list_contacts", "List who wrote or may write", ContactPage, needing=PAIRING))
async def list_contacts(
    parts: Parts, state: ContactState | None = None, limit: Limit = 100, cursor: Cursor | None = None
) -> Response:
    """Newest first, of all restricted endpoints."""
    return answer(page("contacts", await parts.of(_SERVICE).contacts(state, limit=limit, cursor=cursor)))


@router.post("", **operation("allow_contact", "Approve a sender who has not written", AllowedContact))
async def allow(caller: Operator, parts: Parts, body: ContactBody) -> Response:
    """Held messages are released, as by approving."""
    contact = Contact(body.channel, body.endpoint, body.scope, body.identity)
    return answer({"contact_id": await parts.of(_SERVICE).allow(caller, contact)})


@router.post("/codes", **operation("create_pairing_code", "Create a pairing code", PairingCode, status=201))
async def create_code(caller: Operator, parts: Parts, body: CodeBody) -> Response:
    """Valid for ten minutes, for one person, and five tries. This response is the only one that contains it.

    With `owner_of`, its sender also becomes an owner of that butler, if it is sent in a private chat.
    """
    return answer(await parts.of(_SERVICE).code(caller, body.channel, body.endpoint, body.owner_of), 201)


@router.post("/{contact_id}/approve", **operation("approve_contact", "Approve a stranger", DecidedContact, 404))
async def approve(caller: Operator, parts: Parts, contact_id: UUID) -> Response:
    """What was held is routed now, in order; an `unverified` contact is not approved by that."""
    return answer(await _decide_contact(caller, parts, contact_id, "approved"))


@router.post("/{contact_id}/deny", **operation("deny_contact", "Deny a stranger", DecidedContact, 404))
async def deny(caller: Operator, parts: Parts, contact_id: UUID) -> Response:
    """What was held is forgotten, and further messages are refused."""
    return answer(await _decide_contact(caller, parts, contact_id, "denied"))


@router.post("/{contact_id}/revoke", **operation("revoke_contact", "Revoke a decision", DecidedContact, 404))
async def revoke(caller: Operator, parts: Parts, contact_id: UUID) -> Response:
    """The next message is held again, whether the contact was approved or denied."""
    return answer(await _decide_contact(caller, parts, contact_id, "stranger"))


async def _decide_contact(caller: Principal, parts: Parts, contact_id: UUID, state: ContactState) -> dict[str, object]:
    return {"contact_id": contact_id, "messages": await parts.of(_SERVICE).decide(caller, contact_id, state)}
