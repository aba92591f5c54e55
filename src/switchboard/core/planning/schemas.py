"""The published JSON Schemas of plans. The server serves them; the types are those of `domain/planning.py`."""

from __future__ import annotations

from typing import Final

from msgspec.json import schema

from switchboard.core.published import published_schema
from switchboard.domain.json_values import JsonObject
from switchboard.domain.planning import Pipeline, RouteDecision

PIPELINE: Final = "pipeline.v1"
ROUTE_DECISION: Final = "route_decision.v1"


def pipeline_schema() -> JsonObject:
    """The JSON Schema of a plan. It cannot express that ids are unique, and that needs are known and form no cycles."""
    return published_schema(PIPELINE, schema(Pipeline))


def route_decision_schema() -> JsonObject:
    """The JSON Schema of a router's decision as it is stored; a model fills in a smaller form."""
    return published_schema(ROUTE_DECISION, schema(RouteDecision))
