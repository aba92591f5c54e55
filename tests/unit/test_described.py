"""`server/fastpath/described.py` against the standard way: the same OpenAPI document, byte for byte."""

from __future__ import annotations

import json

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from switchboard.server.app import PARTS
from switchboard.server.fastpath.described import DescribedRoute, route_with_responses
from switchboard.server.http import ingest


def test_a_route_is_described_as_fastapi_does() -> None:
    ours = [route for part in (*PARTS, ingest) for route in part.router.routes]
    assert len(ours) > 100
    assert all(isinstance(route, DescribedRoute) for route in ours)
    standard = [whole for route in ours if isinstance(route, DescribedRoute) for whole in [_by_fastapi(route)]]
    assert _document([route_with_responses(route) for route in ours]) == _document(standard)
    assert _document(ours) != _document(standard), "nothing would be left to describe"


def _by_fastapi(route: DescribedRoute) -> APIRoute:
    """The route as its decorator would have made it without our class."""
    router = APIRouter()
    router.add_api_route(
        route.path,
        route.endpoint,
        methods=list(route.methods or ()),
        tags=route.tags,
        dependencies=route.dependencies,
        summary=route.summary,
        description=route.description,
        operation_id=route.operation_id,
        responses=route.responses,
        status_code=route.status_code,
        response_model=route.response_model,
        response_class=route.response_class,
        openapi_extra=route.openapi_extra,
        include_in_schema=route.include_in_schema,
    )
    [made] = router.routes
    assert isinstance(made, APIRoute)
    assert type(made) is not DescribedRoute
    return made


def _document(routes: object) -> str:
    assert isinstance(routes, list)
    return json.dumps(get_openapi(title="t", version="1", routes=routes))
