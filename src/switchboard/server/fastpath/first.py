"""Answers connectors before FastAPI is there: what they ask before they receive.

`entrance.py` calls it while the API is imported, `http/accounts.py` for the routes of the same names. In: a request
admitted by the gate; out: the same answer as by FastAPI (`test_fastpath.py` compares the bytes), or None: then the
request waits for FastAPI, which also words what is wrong with it. Next: `app/connectors/accounts.py`.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Final, TypeVar

import msgspec
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from switchboard.app.access import Principal
from switchboard.app.connectors.accounts import AccountId, AccountService, Holder, LeaseQuery
from switchboard.app.connectors.posted import PostedService
from switchboard.app.messages.blobs import OUTBOX
from switchboard.server.contracts.base import Body
from switchboard.server.contracts.connectors import AccountLeaseBody, PostedNext
from switchboard.server.fastpath.direct import Handler, whole_body
from switchboard.server.services import ServiceFactory, Services

ACCOUNT_SERVICE: Final = ServiceFactory(lambda s: AccountService(s.runtime.database, s.access, s.runtime.policies.look))
POSTED_SERVICE: Final = ServiceFactory(lambda s: PostedService(s.runtime.database, s.access, s.runtime.notifier))
_B = TypeVar("_B", bound=Body)
_JSON = "application/json"


class FirstAnswers:
    """`handlers` by path, for `Direct`. The body that one of them has read is in `state.body`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.handlers: dict[str, Handler] = {
            "/v1/connectors/lease": self._answer_lease,
            "/v1/connectors/posted/next": self._answer_posted,
        }

    async def _answer_lease(self, request: Request) -> Response | None:
        body = await _read_body(request, AccountLeaseBody)
        return None if body is None else await lease(self._services, await self._find_connector(request), body)

    async def _answer_posted(self, request: Request) -> Response | None:
        body = await _read_body(request, PostedNext)
        if body is None:
            return None
        return await posted(self._services, await self._find_connector(request), body, request.receive)

    async def _find_connector(self, request: Request) -> Principal:
        caller: Principal = request.scope["state"]["principal"]
        await self._services.access.check(caller, OUTBOX)
        return caller


async def lease(services: Services, caller: Principal, body: AccountLeaseBody) -> Response:
    """The answer to a lease."""
    account = AccountId(body.channel, body.endpoint)
    holder = Holder(body.instance_id, body.restarted, body.reconnected, body.heard)
    wanted = LeaseQuery(body.answering, body.recent_s)
    return _answer_json(await services.of(ACCOUNT_SERVICE).lease(caller, account, holder, wanted))


async def posted(services: Services, caller: Principal, body: PostedNext, receive: Receive) -> Response:
    """The answer with posted events, once there are some or the time is up."""
    async with services.polls.watch(receive) as gone:
        account = AccountId(body.channel, body.endpoint)
        found = await services.of(POSTED_SERVICE).next(caller, account, body.after, body.wait_s, gone)
    return _answer_json(
        {"events": [{"posted_id": one.posted_id, "raw": b64encode(one.raw).decode("ascii")} for one in found]}
    )


async def _read_body(request: Request, model: type[_B]) -> _B | None:
    """The body, if it is as our connectors send it."""
    if request.scope["query_string"] or request.headers.get("content-type") != _JSON:
        return None
    raw = request.scope["state"]["body"] = await whole_body(request)
    try:
        return model.model_validate_json(raw)
    except ValidationError:
        return None


def _answer_json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type=_JSON)
