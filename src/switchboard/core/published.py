"""The JSON Schemas that we publish: each names its draft, its place on our servers and the document it describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import make_dataclass
from functools import cached_property
from typing import Any, TypeVar

from switchboard.domain.json_values import JsonMapping, JsonObject

_S = TypeVar("_S")


def published_schema(name: str, schema: JsonMapping) -> JsonObject:
    """The schema of documents with this name, such as `ingest.v1`, as it is published."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"/schemas/{name}.json"}
    return {**head, **schema, "title": name}


class JsonShape:
    """Tells pydantic, within `Annotated`, the fields of JSON that is made from a Struct, which it does not know.

    `name` and `told` are those of the schema; the types of `fields` are looked up when it is first asked for.
    """

    def __init__(self, name: str, told: str, fields: Callable[[], Mapping[str, Any]]) -> None:
        self._name = name
        self._told = told
        self._fields = fields

    @cached_property
    def _shape(self) -> type:
        return make_dataclass(self._name, self._fields().items(), namespace={"__doc__": self._told})

    def __get_pydantic_core_schema__(self, _: object, schema_of: Callable[[type], _S]) -> _S:
        """Called by pydantic."""
        return schema_of(self._shape)
