"""Routes whose responses are described only on request.

FastAPI builds a validator for every response of every operation, which took a sixth of the server's loading time; our
handlers return finished JSON, so only the OpenAPI document needs them. The app has the routes themselves, not routers
that include them.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import BaseRoute


class DescribedRoute(APIRoute):
    """A route that keeps the models of its responses for `route_with_responses`."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        responses: dict[int | str, dict[str, Any]] | None = None,
        **more: Any,
    ) -> None:
        whole = responses or {}
        bare = {status: {k: v for k, v in one.items() if k != "model"} for status, one in whole.items()}
        super().__init__(path, endpoint, responses=bare, **more)
        self.responses = whole


def route_with_responses(route: BaseRoute) -> BaseRoute:
    """The route as FastAPI would have made it."""
    if not isinstance(route, DescribedRoute):
        return route
    whole = copy(route)
    whole.response_fields = APIRoute(
        route.path,
        route.endpoint,
        methods=route.methods,
        operation_id=route.operation_id,
        response_model=None,
        responses=route.responses,
    ).response_fields
    return whole
