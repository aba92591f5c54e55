"""Refuses unknown query parameters: with a misspelt filter, the answer would be everything.

A dependency of every route, set up by `router_of`; handlers that accept messages check on their own, because
`fastpath/direct.py` calls them without FastAPI. In: a request; out: nothing, or InvalidInput with the probable name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastapi import APIRouter, Depends, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import APIRoute

from switchboard.core.text.words import near, or_list
from switchboard.domain.errors import InvalidInput
from switchboard.server.fastpath.described import DescribedRoute
from switchboard.server.paths import HOOKS


def router_of(tag: str, *, prefix: str = "", needing: Callable[..., object] | None = None) -> APIRouter:
    """A router whose routes refuse unknown parameters, and have the dependency `needing`.

    Its routes are final: including the router would build them again for every app, which takes a third of a second.
    """
    needed = [only_known_parameters] if needing is None else [only_known_parameters, needing]
    return APIRouter(
        prefix=prefix, tags=[tag], dependencies=[Depends(each) for each in needed], route_class=DescribedRoute
    )


async def only_known_parameters(request: Request) -> None:
    """`require_known` with the parameters of the request's route; those of a challenge are the platform's."""
    if request.scope["query_string"] and not (request.method == "GET" and request.scope["path"].startswith(HOOKS)):
        require_known(request, _known_parameters(request.scope["route"]))


def require_known(request: Request, known: Sequence[str]) -> None:
    """Raise InvalidInput for the first query parameter that is not in `known` (`unknown_parameter`) or occurs twice."""
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        told = name[:100]
        if name not in known:
            hint = f"did you mean {or_list(near(told, known) or known)}?" if known else "there are none"
            raise InvalidInput(f"there is no parameter {told!r} here; {hint}", code="unknown_parameter", field=told)
        if names.count(name) > 1:
            raise InvalidInput(f"the parameter {told!r} occurs twice", code="invalid_value", field=told)


def _known_parameters(route: APIRoute) -> tuple[str, ...]:
    fields = get_flat_params(route.dependant)
    return tuple(sorted(field.alias for field in fields if isinstance(field.field_info, Query)))
