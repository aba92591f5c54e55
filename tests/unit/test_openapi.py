"""The OpenAPI as foreign developers read it: names written by hand, a valid example of everything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.resources import files
from typing import Any, get_args, get_origin
from unittest.mock import Mock

import pytest
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError

from switchboard.app.runtime import Runtime, Switchboard
from switchboard.app.settings import Settings
from switchboard.server.app import PARTS, create_app
from switchboard.server.contracts.base import Body
from switchboard.server.http.docs import docs_page
from switchboard.server.http.openapi import read_examples
from switchboard.server.http.parameters import only_known_parameters
from switchboard.server.http.schema_names import TAGS

# jsonschema has no type stubs.
JsonSchema: Any = import_module("jsonschema")
Operation = Mapping[str, Any]


@pytest.fixture(scope="module")
def openapi() -> dict[str, Any]:
    """The real one; the parts behind the interfaces are not used."""
    runtime = Runtime(Settings(), Mock(), Mock(), Mock())
    return create_app(Switchboard(runtime, Mock(), Mock(), Mock())).openapi()


def operations(openapi: Mapping[str, Any]) -> Iterator[tuple[str, Operation]]:
    """Each with its method and path."""
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def bodies(operation: Operation) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What it takes and what it answers if all is well: each form, with where it stands."""
    forms = {"request": operation.get("requestBody", {})}
    forms |= {status: answer for status, answer in operation["responses"].items() if status.startswith("2")}
    for where, form in forms.items():
        for media_type, content in form.get("content", {}).items():
            yield f"{where} {media_type}", content


def test_every_operation_has_a_name_a_summary_and_one_described_tag(openapi: Mapping[str, Any]) -> None:
    names = [operation["operationId"] for _, operation in operations(openapi)]
    assert len(names) == len(set(names))
    for place, operation in operations(openapi):
        assert re.fullmatch(r"[a-z]+(_[a-z]+)+", operation["operationId"]), place
        assert not operation["operationId"].endswith(("_get", "_post", "_put", "_patch", "_delete")), place
        assert operation["summary"][0].isupper(), place
        assert operation["description"], place
        [tag] = operation["tags"]
        assert tag in TAGS, place
    assert {tag for _, operation in operations(openapi) for tag in operation["tags"]} == TAGS.keys()
    assert {tag["name"]: tag["description"] for tag in openapi["tags"]} == TAGS


def test_the_name_of_every_operation_is_written_by_hand(openapi: Mapping[str, Any]) -> None:
    written = "".join(
        file.read_text() for file in files("switchboard.server.http").iterdir() if file.name[-3:] == ".py"
    )
    for place, operation in operations(openapi):
        assert f'"{operation["operationId"]}"' in written, place
        assert f'"{operation["summary"]}"' in written, place


def test_every_operation_has_an_example_of_what_it_takes_and_answers(openapi: Mapping[str, Any]) -> None:
    for place, operation in operations(openapi):
        found = dict(bodies(operation))
        assert found, place
        assert {where for where, content in found.items() if "example" not in content} == set(), place
        for parameter in operation.get("parameters", ()):
            assert not parameter["required"] or "example" in parameter, (place, parameter["name"])


def test_every_example_is_valid_and_has_nothing_that_is_not_documented(openapi: Mapping[str, Any]) -> None:
    components = _closed(openapi["components"])
    for place, operation in operations(openapi):
        contents = [*bodies(operation), *((p["name"], p) for p in operation.get("parameters", ()) if "example" in p)]
        for where, content in contents:
            schema = {**_closed(content["schema"]), "components": components}
            validator = JsonSchema.Draft202012Validator(schema, format_checker=JsonSchema.FormatChecker())
            problems = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(content["example"])]
            assert problems == [], (place, where)


def _closed(value: Any) -> Any:
    """The schema, where what is not documented is refused too."""
    if isinstance(value, dict):
        inner = {key: _closed(one) for key, one in value.items() if key != "example"}
        is_schema = value.get("type") == "object" and "properties" in value
        return {"additionalProperties": False, **inner} if is_schema else inner
    return [_closed(one) for one in value] if isinstance(value, list) else value


def test_every_list_has_pages(openapi: Mapping[str, Any]) -> None:
    lists = [(place, one) for place, one in operations(openapi) if one["operationId"].startswith("list_")]
    assert len(lists) == 31
    for place, operation in lists:
        taken = {parameter["name"] for parameter in operation.get("parameters", ())}
        answered = operation["responses"]["200"]["content"]["application/json"]["example"]
        # the models of the settings, with how the day stands, and the modules of butlers
        is_status = operation["operationId"] in ("list_models", "list_modules")
        assert is_status or {"limit", "cursor"} <= taken, place
        assert is_status or "next_cursor" in answered, place


def test_the_idempotency_key_is_explained_where_it_is_sent(openapi: Mapping[str, Any]) -> None:
    [header] = [p for p in openapi["paths"]["/v1/ingest"]["post"]["parameters"] if p["in"] == "header"]
    for word in ("control.idempotency_key", "duplicate", "idempotency_mismatch", "details.request_id", "Kept"):
        assert word in header["description"]


def test_there_are_examples_of_operations_only(openapi: Mapping[str, Any]) -> None:
    written = {tag: read_examples(tag).keys() for tag in TAGS}
    named = {tag: {one["operationId"] for _, one in operations(openapi) if one["tags"] == [tag]} for tag in TAGS}
    assert written == named


def test_every_schema_has_a_published_name_and_description(openapi: Mapping[str, Any]) -> None:
    published = openapi["components"]["schemas"]
    assert len(published) > 100
    for name, schema in published.items():
        assert schema["title"] == name
        assert re.fullmatch(r"([A-Z][a-z]+)+", name), name
        assert not name.endswith(("View", "Body", "Answer", "List")) or name == "ModelList", name
        assert not name.startswith("Shown"), name
        told = schema["description"]
        assert told.endswith("."), name
        assert not re.search(r"\bNone\b|\bTrue\b|\bFalse\b|\bjournal|^The same\b", told), name
    used = set(re.findall(r"#/components/schemas/(\w+)", str(openapi)))
    assert used <= published.keys()


def test_the_page_links_every_document_for_machines(openapi: Mapping[str, Any]) -> None:
    linked = re.findall(r'<a href="(/[^"]+)"', docs_page(openapi))
    assert linked == ["/openapi.json", *(path for path in openapi["paths"] if path.startswith("/schemas/"))]


def test_code_in_descriptions_is_set_as_code_and_nothing_else_as_html() -> None:
    get = {"tags": ["a"], "description": "Without `payload.raw`, <b>", "responses": {"200": {"description": "Done."}}}
    page = docs_page({"info": {"title": "T", "version": "1"}, "paths": {"/x": {"get": get}}})
    assert "<p>Without <code>payload.raw</code>, &lt;b&gt;</p>" in page


def test_the_page_has_the_groups_in_the_order_of_the_document(openapi: Mapping[str, Any]) -> None:
    shown = re.findall(r"<h2>([^<]*)</h2><p>([^<]*)", docs_page(openapi))
    assert [name for name, _ in shown] == [tag["name"] for tag in openapi["tags"]]
    assert all(description for _, description in shown)


def test_every_route_refuses_parameters_that_it_does_not_know() -> None:
    routes = [route for part in PARTS for route in part.router.routes if isinstance(route, APIRoute)]
    assert routes
    assert not [
        route.path
        for route in routes
        if only_known_parameters not in {each.call for each in route.dependant.dependencies}
    ]


def test_names_in_requests_cannot_hold_what_a_database_refuses() -> None:
    def fields(kind: type[Body]) -> Iterator[tuple[str, Any]]:
        for below in kind.__subclasses__():
            yield from fields(below)
        if kind.__module__.startswith("switchboard."):  # other tests have bodies of their own
            yield from ((f"{kind.__name__}.{name}", field) for name, field in kind.model_fields.items())

    for place, field in fields(Body):
        if get_origin(field.annotation) is dict and get_args(field.annotation)[1] is not Any:
            with pytest.raises(ValidationError):
                pytest.fail(f"{place}: {TypeAdapter(get_args(field.annotation)[0]).validate_python('a' + chr(0))!r}")
