"""The answer of a remote butler read, and the JSON Schemas of what goes there and comes back.

`agents/mcp.py` hands in what a tool gave; a `RouteResponse` leaves, or InvalidInput that says what is wrong with it.
`server/http/agents.py` publishes the schemas. Next: `journey/turn.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from switchboard.domain.errors import InvalidInput
from switchboard.domain.remote import ROUTE, ROUTE_RESPONSE, Route, RouteResponse

ROUTE_SCHEMA_ID: Final = "/schemas/route.v1.json"
RESPONSE_SCHEMA_ID: Final = "/schemas/route_response.v1.json"
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_SHOWN: Final = 200


def route_schema() -> dict[str, Any]:
    """The published JSON Schema of `route.v1`."""
    head = {"$schema": _DRAFT, "$id": ROUTE_SCHEMA_ID}
    return head | Route.model_json_schema() | {"title": ROUTE}


def response_schema() -> dict[str, Any]:
    """The published JSON Schema of `route_response.v1`. What it cannot say: which of the parts exclude each other."""
    head = {"$schema": _DRAFT, "$id": RESPONSE_SCHEMA_ID}
    return head | RouteResponse.model_json_schema() | {"title": ROUTE_RESPONSE}


def read_response(structured: object, texts: Sequence[str]) -> RouteResponse:
    """The response in what a tool gave: its structured content, `{"result": …}` around it, or a text that is JSON.

    Raises InvalidInput that quotes what came instead.
    """
    said = next((one for one in _objects(structured, texts) if "schema_version" in one), None)
    if said is None:
        came = " ".join(texts)[:_SHOWN] or ("nothing" if structured is None else "an object without schema_version")
        raise InvalidInput(f"the answer is no {ROUTE_RESPONSE}: {came}")
    try:
        return RouteResponse.model_validate(said)
    except ValidationError as error:
        raise InvalidInput(f"the {ROUTE_RESPONSE} is wrong: {_problems(error)}") from None


def _objects(structured: object, texts: Sequence[str]) -> Iterator[Mapping[str, object]]:
    for value in (structured, *map(_decoded, texts)):
        inner = value.get("result") if isinstance(value, Mapping) and "schema_version" not in value else None
        for one in (value, _decoded(inner) if isinstance(inner, str) else inner):
            if isinstance(one, Mapping):
                yield one


def _decoded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _problems(error: ValidationError) -> str:
    """The first few; the names in the path are a stranger's."""
    found = error.errors(include_url=False, include_input=False)
    told = (f"{'.'.join(map(str, one['loc']))[:_SHOWN]}: {one['msg'][:_SHOWN]}".removeprefix(": ") for one in found[:3])
    return "; ".join(told)
