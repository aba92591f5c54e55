"""Trim the discovery documents of Google's APIs to what is played here: `trim_discovery.py DOCUMENTS`, the folder
`googleapiclient/discovery_cache/documents` of the package google-api-python-client. Writes `fixtures/google`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_METHODS: Final = {
    "calendar.v3": (
        ("calendarList", "list"),
        ("events", "delete"),
        ("events", "get"),
        ("events", "insert"),
        ("events", "instances"),
        ("events", "list"),
        ("events", "patch"),
        ("events", "update"),
    ),
    "people.v1": (
        ("contactGroups", "list"),
        ("people", "connections", "list"),
        ("people", "createContact"),
        ("people", "deleteContact"),
        ("people", "get"),
        ("people", "updateContact"),
    ),
}
_WORDS: Final = frozenset({"description", "enumDescriptions", "annotations", "enumDeprecated", "readOnly"})
_NAMES: Final = frozenset({"properties", "schemas", "parameters", "methods"})
"""Objects whose keys are names, which may be such words."""


def trim(document: dict[str, Any]) -> dict[str, Any]:
    """The methods with all that they refer to, without the prose."""
    names = _METHODS[f"{document['name']}.{document['version']}"]
    methods = {".".join(name): _method_in(document, name) for name in names}
    schemas: dict[str, Any] = {}
    wanted = list(_references_in(methods))
    while wanted:
        name = wanted.pop()
        if name not in schemas:
            schemas[name] = _without_words(document["schemas"][name])
            wanted += _references_in(schemas[name])
    return {
        "origin": "google-api-python-client 2.202.0 (Apache-2.0), discovery_cache, trimmed by trim_discovery.py",
        "revision": document["revision"],
        "servicePath": document["servicePath"],
        "parameters": _without_words(document["parameters"]),
        "methods": methods,
        "schemas": dict(sorted(schemas.items())),
    }


def _method_in(document: dict[str, Any], name: tuple[str, ...]) -> Any:
    found: Any = document
    for part in name[:-1]:
        found = found["resources"][part]
    method = _without_words(found["methods"][name[-1]])
    kept = ("httpMethod", "path", "parameters", "request", "response")
    return {key: method[key] for key in kept if key in method}


def _without_words(value: Any, *, named: bool = False) -> Any:
    if isinstance(value, list):
        return [_without_words(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _without_words(one, named=name in _NAMES and not named)
        for name, one in value.items()
        if named or name not in _WORDS
    }


def _references_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for one in value.values():
            yield from _references_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from _references_in(one)


if __name__ == "__main__":
    for api in _METHODS:
        read = json.loads((Path(sys.argv[1]) / f"{api}.json").read_text())
        text = json.dumps(trim(read), indent=1, sort_keys=True)
        (Path(__file__).parent / "fixtures/google" / f"{api}.json").write_text(f"{text}\n")
