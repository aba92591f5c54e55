"""Whether requests and answers are what Google's discovery documents say: methods, parameters, bodies, types.

The documents are trimmed to what is played (`trim_discovery.py`). They say nothing of what refuses what: that is
in the documentation, and in the strict server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from switchboard.testing.google import GoogleExchange

_DOCUMENTS: Final = {"calendar": "calendar.v3.json", "people": "people.v1.json"}
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "object": dict,
    "array": list,
}


@cache
def discovery_document(api: str) -> Mapping[str, Any]:
    """That of an API."""
    found: Mapping[str, Any] = json.loads((Path(__file__).parent / "fixtures/google" / _DOCUMENTS[api]).read_text())
    return found


def wrong_in(exchanges: Iterable[GoogleExchange]) -> list[str]:
    """All that is not as the documents have it, each once."""
    return [*dict.fromkeys(wrong for one in exchanges for wrong in _wrong_in_one(one))]


def _wrong_in_one(one: GoogleExchange) -> Iterator[str]:
    document, call = discovery_document(one.api), one.call
    method = document["methods"][call.name]
    known = {**document["parameters"], **method["parameters"]}
    given = {**call.path, **call.parameters}
    for name, value in given.items():
        if name not in known:
            yield f"{call.name}: there is no parameter {name}"
        else:
            yield from (f"{call.name}: {name} {why}" for why in _wrong_parameter(known[name], value))
    missing = [name for name, said in known.items() if said.get("required") and name not in given]
    yield from (f"{call.name}: the parameter {name} is missing" for name in missing)
    if ("request" in method) != (call.body is not None):
        yield f"{call.name}: a body is {'missing' if call.body is None else 'too much'}"
    elif call.body is not None:
        yield from _wrong_value(document, method["request"], call.body, f"{call.name} sends")
    if one.status == 200:
        yield from _wrong_value(document, method["response"], one.answer, f"{call.name} answers")
    elif one.status == 204 and "response" in method:
        yield f"{call.name}: there is no answer"


def _wrong_parameter(said: Mapping[str, Any], value: str) -> Iterator[str]:
    if said["type"] == "boolean" and value not in ("true", "false"):
        yield f"is {value!r}, which is neither true nor false"
    if said["type"] == "integer" and not value.isdecimal():
        yield f"is {value!r}, which is no number"
    if said["type"] == "integer" and not int(said.get("minimum", 0)) <= int(value) <= int(said.get("maximum", 2**31)):
        yield f"is {value}, which is too much or too little"
    if "enum" in said and value not in said["enum"]:
        yield f"is {value!r}, which is none of {said['enum']}"
    if "pattern" in said and not re.fullmatch(said["pattern"], value):
        yield f"is {value!r}, which is not of the form {said['pattern']}"
    if said.get("format") == "date-time" and datetime.fromisoformat(value).tzinfo is None:
        yield f"is {value!r}, which has no offset"


def _wrong_value(document: Mapping[str, Any], schema: Mapping[str, Any], value: Any, where: str) -> Iterator[str]:
    if "$ref" in schema:
        yield from _wrong_value(document, document["schemas"][schema["$ref"]], value, where)
        return
    kind = schema.get("type", "any")
    if value is None and " sends." in where:  # a patch removes a field with it
        return
    if kind != "any" and (not isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, bool))):
        yield f"{where} a {type(value).__name__} that should be a {kind}"
        return
    if isinstance(value, dict):
        yield from _wrong_object(document, schema, value, where)
    elif isinstance(value, list):
        for one in value:
            yield from _wrong_value(document, schema["items"], one, f"{where}.[]")
    elif isinstance(value, str):
        yield from (f"{where} {why}" for why in _wrong_text(schema, value))


def _wrong_object(
    document: Mapping[str, Any], schema: Mapping[str, Any], value: Mapping[str, Any], where: str
) -> Iterator[str]:
    properties, other = schema.get("properties", {}), schema.get("additionalProperties")
    for name, one in value.items():
        if (said := properties.get(name, other)) is None:
            yield f"{where}.{name}, which there is not"
        else:
            yield from _wrong_value(document, said, one, f"{where}.{name}")


def _wrong_text(schema: Mapping[str, Any], value: str) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"is {value!r}, which is none of {schema['enum']}"
    read = {"date": date.fromisoformat, "date-time": datetime.fromisoformat}.get(schema.get("format", ""))
    if read is not None:
        try:
            read(value)
        except ValueError:
            yield f"is {value!r}, which is no {schema['format']}"
