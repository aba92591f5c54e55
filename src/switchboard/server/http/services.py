"""What all routes have in common: their services, the caller, and one way to answer.

Routers import it. In: a request; out: a checked `Principal`, a JSON response.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Final, cast

import msgspec
from fastapi import Depends, Request, Response

from switchboard.app.access import Action, Principal
from switchboard.app.reach import Reach
from switchboard.domain.json_values import JsonObject
from switchboard.server.contracts.base import ErrorBody
from switchboard.server.services import Services


def services_of(request: Request) -> Services:
    """The parts behind the interface of this request."""
    return cast(Services, request.scope["app"].services)


def caller_of(request: Request) -> Principal:
    """The caller that the gate has authenticated."""
    return cast(Principal, request.scope["state"]["principal"])  # `request.state` creates an object every time


def needs(action: Action) -> Callable[[Request], Awaitable[Principal]]:
    """A dependency: the caller, if its role may do `action`; else 403."""

    async def check(request: Request) -> Principal:
        caller = caller_of(request)
        await services_of(request).access.check(caller, action)
        return caller

    return check


async def _find_services(request: Request) -> Services:  # FastAPI would run one that is not async in a thread
    return services_of(request)


Parts = Annotated[Services, Depends(_find_services)]


async def _reach_of(request: Request) -> Reach:
    return services_of(request).reach(caller_of(request))


Within = Annotated[Reach, Depends(_reach_of)]
"""The teams whose rules the caller may read."""


def answer(value: object, status: int = 200) -> Response:
    """`value` as JSON, encoded here and not validated again: tests compare it with the OpenAPI."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def page(name: str, found: tuple[Sequence[object], str | None]) -> JsonObject:
    """The body of a page of a list: its rows under their name, and the cursor of the next page."""
    rows, following = found
    return {name: rows, "next_cursor": following}


SENTENCES: Final[Mapping[int, str]] = {
    400: "The body is not JSON.",
    401: "No token, or an unknown, revoked or expired one.",
    403: "The token does not permit this.",
    404: "It does not exist, or this token may not read it.",
    409: "Valid, but in conflict with the current state.",
    413: "Too large.",
    415: "Unsupported Content-Type.",
    422: "The input is invalid; nothing was stored.",
    429: "The backlog is full, or too much is open at a time; retry after Retry-After seconds.",
    503: "The database cannot be reached; retry after Retry-After seconds.",
}
"""What a status means, in the OpenAPI."""


Responses = dict[int | str, JsonObject]


def operation(  # noqa: PLR0913 - the properties of a route
    operation_id: str,
    summary: str,
    model: Any,
    *errors: int,
    needing: Action | None = None,
    status: int = 200,
    description: str = "Done.",
    more: Responses | None = None,
) -> dict[str, Any]:
    """The arguments for the decorator of a route: its names and its responses.

    The responses are `model` at `status`, the given errors besides 401, 403, 413, 422 and 503, and `more`. `needing`:
    what the caller must be permitted to do, if the function itself does not check.
    """
    good: Responses = {status: {"model": model, "description": description}}
    bad = sorted({401, 403, 413, 422, 503, *errors})
    return {
        "operation_id": operation_id,
        "summary": summary,
        "responses": good | {code: {"model": ErrorBody, "description": SENTENCES[code]} for code in bad} | (more or {}),
        "status_code": status,
        "dependencies": [] if needing is None else [Depends(needs(needing))],
    }
