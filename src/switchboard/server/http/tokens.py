"""`/v1/tokens`: access tokens. Operators only. Next: `app/access.py`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Depends, Response

from switchboard.app.access import TOKENS, Principal
from switchboard.app.cursors import uuid_cursor
from switchboard.server.contracts.base import Cursor, Limit, Word
from switchboard.server.contracts.operations import NewToken, Revoked, TokenIssued, TokenList
from switchboard.server.http.parameters import router_of
from switchboard.server.http.people import PEOPLE_SERVICE
from switchboard.server.http.services import Parts, answer, needs, operation

router = router_of("tokens", prefix="/v1/tokens")

Operator = Annotated[Principal, Depends(needs(TOKENS))]


@router.get("", **operation("list_tokens", "List tokens", TokenList, needing=TOKENS))
async def list_tokens(parts: Parts, limit: Limit = 100, cursor: Cursor | None = None) -> Response:
    """All tokens, also revoked and expired ones, oldest first, without their secrets."""
    page = await parts.access.tokens(limit, uuid_cursor(cursor))
    following = str(page[-1].token_id) if len(page) == limit else None
    return answer({"tokens": page, "next_cursor": following})


@router.post("", **operation("create_token", "Create a token", TokenIssued, 404, 409, status=201))
async def create_token(caller: Operator, parts: Parts, body: NewToken) -> Response:
    """This response is the only one that contains the secret."""
    wanted = Principal(body.role, body.name, body.channel, body.endpoint, body.system_id, person=body.person)
    if body.person is not None:
        await parts.of(PEOPLE_SERVICE).link_calls(caller, body.person)
    days = body.expires_in_days
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    issued = await parts.access.issue(caller, wanted, expires_at)
    return answer({**asdict(issued.token), "token": issued.secret}, 201)


@router.delete("/{name}", **operation("revoke_token", "Revoke a token", Revoked, 404))
async def revoke_token(caller: Operator, parts: Parts, name: Word) -> Response:
    """It becomes invalid in this process at once, in others within two seconds."""
    await parts.access.revoke(caller, name)
    return answer({"name": name, "status": "revoked"})
