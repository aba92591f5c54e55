"""The JSON Schemas that we publish: each names its draft, its place on our servers and the document it describes."""

from __future__ import annotations

from switchboard.domain.json_values import JsonMapping, JsonObject


def published_schema(name: str, schema: JsonMapping) -> JsonObject:
    """The schema of documents with this name, such as `ingest.v1`, as it is published."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"/schemas/{name}.json"}
    return {**head, **schema, "title": name}
