"""What comes back from remote butlers, and how long they may be silent: without I/O."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from switchboard.core.policy.liveness import LivenessPolicy, liveness
from switchboard.core.remote_agents import RouteResponse, read_response, response_schema, route_schema
from switchboard.domain.errors import InvalidInput
from switchboard.domain.remote_agents import RemoteAgent, self_description
from switchboard.domain.routing import SystemId
from tests.routing import butler

# jsonschema has no type stubs.
Validator: Any = import_module("jsonschema").Draft202012Validator
GOOD: dict[str, Any] = {"schema_version": "route_response.v1", "status": "ok", "result": {"reply": "hi"}}
BAD: dict[str, Any] = {
    "schema_version": "route_response.v1",
    "status": "error",
    "error": {"class": "overload", "message": "no", "retryable": True},
}


@pytest.mark.parametrize(
    ("structured", "texts"),
    [
        (GOOD, ()),
        ({"result": GOOD}, ()),
        ({"result": json.dumps(GOOD)}, ()),
        (None, (json.dumps(GOOD),)),
        (None, ("one moment", json.dumps(GOOD))),
        ({"something": "else"}, (json.dumps(GOOD),)),
        ({**GOOD, "of_a_later_version": 1}, ()),
    ],
)
def test_where_a_response_may_stand(structured: object, texts: tuple[str, ...]) -> None:
    assert read_response(structured, texts) == RouteResponse.model_validate(GOOD)


def test_an_error_has_its_class() -> None:
    error = read_response(BAD, ()).error
    assert error is not None
    assert (error.error_class, error.message, error.retryable) == ("overload", "no", True)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({**GOOD, "schema_version": "route_response.v2"}, "schema_version"),
        ({**GOOD, "status": "accepted"}, "status"),
        ({**GOOD, "status": "error"}, "status error needs an error and no result"),
        ({**GOOD, "error": BAD["error"]}, "status ok needs a result and no error"),
        ({**GOOD, "result": {}}, "exactly one of"),
        ({**GOOD, "result": {"replay": "hi"}}, "exactly one of"),
        ({**GOOD, "result": {"reply": "hi", "refuse": "no"}}, "exactly one of"),
        ({**GOOD, "result": {"reply": 7}}, "result.reply"),
        ({**BAD, "error": {"message": "no"}}, "error.class"),
        ({**BAD, "error": {**BAD["error"], "class": "classification_error"}}, "error.class"),
        ({**GOOD, "request_context": {"request_id": "x"}}, "request_context.request_id"),
    ],
)
def test_what_is_wrong_with_a_response_is_named(said: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_response(said, ())
    assert told in caught.value.message


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_whatever_comes_is_a_response_or_invalid_input(said: object) -> None:
    with pytest.raises(InvalidInput):
        read_response(said, (str(said), json.dumps(said)))


@pytest.mark.parametrize("schema", [route_schema(), response_schema()], ids=["route", "route_response"])
def test_the_published_schemas_are_schemas(schema: dict[str, Any]) -> None:
    Validator.check_schema(schema)


@pytest.mark.parametrize("said", [GOOD, BAD])
def test_the_published_schema_takes_what_we_take(said: dict[str, Any]) -> None:
    Validator(response_schema()).validate(said)


@pytest.mark.parametrize(
    ("silence", "promised", "quarantined", "wanted"),
    [
        (0.0, True, False, "active"),
        (300.0, True, False, "active"),
        (300.1, True, False, "stale"),
        (600.0, True, False, "stale"),
        (600.1, True, False, "quarantined"),
        (1e9, False, False, "unwatched"),
        (0.0, True, True, "quarantined"),
        (0.0, False, True, "quarantined"),
    ],
)
def test_how_silence_is_judged(silence: float, promised: bool, quarantined: bool, wanted: str) -> None:
    assert liveness(silence, LivenessPolicy(), promised=promised, quarantined=quarantined) == wanted


def test_two_heartbeats_may_get_lost() -> None:
    assert LivenessPolicy().interval * 3 <= 300
    assert LivenessPolicy(stale_after=0.5).interval == 1


def test_what_the_file_leaves_open_is_as_announced() -> None:
    announced = RemoteAgent(SystemId("System1/x"), "active", "", None, None, "its own", ("own",))
    bare = butler("x", "mcp")
    described = replace(bare, description="the file's")
    assert self_description(bare, None) == ("", ())
    assert self_description(bare, announced) == ("its own", ("own",))
    assert self_description(described, announced) == ("the file's", ("own",))
