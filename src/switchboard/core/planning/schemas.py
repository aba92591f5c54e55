"""The published JSON Schemas of plans. The server serves them; the types are those of `domain/planning.py`."""

from __future__ import annotations

from typing import Final

from msgspec.json import schema

from switchboard.domain.json_values import JsonObject
from switchboard.domain.planning import Pipeline, RouteDecision

PIPELINE: Final = "pipeline.v1"
ROUTE_DECISION: Final = "route_decision.v1"
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def pipeline_schema() -> JsonObject:
    """The JSON Schema of a plan. It cannot express that ids are unique, and needs known and without circles."""
    return _published(PIPELINE, Pipeline)


def route_decision_schema() -> JsonObject:
    """The JSON Schema of what a router decides, as it is kept; a model fills in a smaller form."""
    return _published(ROUTE_DECISION, RouteDecision)


def _published(name: str, kind: type[Pipeline | RouteDecision]) -> JsonObject:
    return {"$schema": _DRAFT, "$id": f"/schemas/{name}.json"} | schema(kind) | {"title": name}
