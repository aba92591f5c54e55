"""Query parameters that a route does not know are refused: a misspelt filter would be answered with everything.

A dependency of every route, set up by `app.py`; those that the gate calls at once ask by themselves. In: a request;
out: nothing, or InvalidInput with what was meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import APIRoute

from switchboard.core.channels import near, or_list
from switchboard.domain.errors import InvalidInput


async def only_known_parameters(request: Request) -> None:
    """Raise InvalidInput (code `unknown_parameter`) for the first query parameter that this route does not have."""
    if request.scope["query_string"]:
        route: Any = request.scope["route"]
        require_known(request, _known(route))


def require_known(request: Request, known: Sequence[str]) -> None:
    """Raise InvalidInput (code `unknown_parameter`) for the first query parameter that is not among `known`."""
    if not request.scope["query_string"]:
        return
    for name in request.query_params:
        if name not in known:
            told = name[:100]
            hint = f"did you mean {or_list(near(told, known) or known)}?" if known else "there are none"
            raise InvalidInput(f"there is no parameter {told!r} here; {hint}", code="unknown_parameter", field=told)


def _known(route: APIRoute) -> tuple[str, ...]:
    fields = get_flat_params(route.dependant)
    return tuple(sorted(field.alias for field in fields if isinstance(field.field_info, Query)))
