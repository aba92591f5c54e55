"""The OpenAPI document, completed with what FastAPI cannot see.

`app.py` calls `complete_document` when the document is first asked for. In: FastAPI's document; out: the same with the
envelope, the token, one tag per operation, an example of each, and names for readers who do not know the code. Next:
`docs.py`.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from switchboard.core.envelope.read import json_schema
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.server.http.schema_names import TAGS, published_name
from switchboard.server.http.services import SENTENCES
from switchboard.server.paths import is_public

_REF: Final = "#/components/schemas/"
_ERROR: Final = {"error": {"code": "missing_field", "message": "source is required (and 3 more)", "field": "source"}}


def complete_document(document: JsonObject) -> JsonObject:
    """The published form of `document`."""
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(_envelope_schemas())
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    document["tags"] = [{"name": name, "description": told} for name, told in TAGS.items()]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["tags"] = operation["tags"][-1:]  # the router's, unless the operation has its own
            _complete_operation(operation, read_examples(operation["tags"][0]).get(operation["operationId"], {}))
            if is_public(path):
                operation["security"] = []
    document["paths"] = _publish_value(document["paths"])
    components["schemas"] = _name_schemas(_publish_value(components["schemas"]))
    return document


@cache
def read_examples(tag: str) -> JsonObject:
    """The examples of a tag's operations, by their ids."""
    file = files(__package__).joinpath("examples", f"{tag.replace(' ', '_')}.json")
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])


def _complete_operation(operation: JsonObject, example: JsonMapping) -> None:
    if "requestBody" in operation:
        operation["responses"]["400"] = {**operation["responses"]["422"], "description": SENTENCES[400]}
        _illustrate_body(operation["requestBody"], example.get("request", {}))
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            _illustrate_body(response, example.get("response", {}))
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in example.get("parameters", {}):
            parameter["example"] = example["parameters"][parameter["name"]]


def _illustrate_body(body: JsonMapping, by_media_type: JsonMapping) -> None:
    for media_type, example in by_media_type.items():
        body["content"][media_type]["example"] = example


def _envelope_schemas() -> JsonObject:
    """`Envelope` and its parts as components: JSON Schema keeps them under $defs, OpenAPI under components."""
    schema = json_schema()
    parts = schema.pop("$defs", {})
    for key in ("$schema", "$id"):
        schema.pop(key, None)
    return {**parts, "Envelope": schema}


def _name_schemas(schemas: JsonMapping) -> JsonObject:
    """The schemas under their published names, in order."""
    named = {}
    for key, schema in schemas.items():
        name, told = published_name(key), " ".join(schema["description"].split())
        named[name] = {**schema, "title": name, "description": told}
    named["Error"]["example"] = _ERROR
    return dict(sorted(named.items()))


def _publish_value(value: Any) -> Any:
    """References by published name, without the titles that pydantic derives from field names."""
    if isinstance(value, dict):
        return {
            key: _publish_inner(key, inner) for key, inner in value.items() if key != "title" or isinstance(inner, dict)
        }
    return [_publish_value(inner) for inner in value] if isinstance(value, list) else value


def _publish_inner(key: str, value: Any) -> Any:
    if key == "$ref":
        return _REF + published_name(value.rpartition("/")[2])
    return value if key == "example" else _publish_value(value)
