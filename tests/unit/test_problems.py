"""What people are told of input that pydantic has checked: which field, what would be right, and what was given."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
from pydantic import BaseModel, ValidationError

from switchboard.app.settings import Settings
from switchboard.core.text.problems import abbreviate_value, after, path_of, wrong
from switchboard.server.app import PARTS
from switchboard.server.contracts.base import Body, ResponseBody
from switchboard.server.contracts.connectors import AccountLeaseBody, OutboxNext
from switchboard.server.contracts.gateway import SendParams
from tests.capabilities import manifests

assert PARTS  # with them all bodies are defined
ACCOUNTS: Final = [one.settings for one in manifests()]
"""The settings of an account of each channel."""
_THEIRS: Final = re.compile(
    r"(?i)(input|string|list|tuple|value|field) should|field required|extra input|value error|valid "
)
_ODD: Final[tuple[object, ...]] = (
    *(None, True, -1, 1.5, 10**50, 10**5000, math.nan, math.inf),
    *("", "x", "a\x00b", "a\nb", "\ud800", "x" * 70_000, [], [1], {}, {"x": 1}, object()),
)
"""Some of them are wrong in every field."""


def models(above: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Ours, at whatever depth."""
    for model in above.__subclasses__():
        if model.__module__.startswith("switchboard.") and not issubclass(model, ResponseBody):
            yield model
        yield from models(model)


def problem(model: type[BaseModel], **values: Any) -> str:
    """What is said of the first one."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(values)
    first = caught.value.errors(include_url=False)[0]
    return after(path_of(first["loc"]), wrong(first))


def test_no_sentence_is_pydantics() -> None:
    asked, told = {*models(BaseModel)}, set()
    assert {SendParams, OutboxNext, Settings, *ACCOUNTS} <= asked
    for model in asked:
        for field in model.model_fields:
            for value in _ODD:
                try:
                    model.model_validate({field: value})
                except ValidationError as error:
                    told |= {wrong(one) for one in error.errors(include_url=False)}
    assert len(told) > 200
    assert {one for one in told if _THEIRS.search(one) or "must match" in one} == set()
    assert {one for one in told if not one.isprintable() or len(one) > 1000} == set()


class Typed(Body):
    """Beside the fields of real bodies."""

    token: int = 0
    names: dict[str, str]


@pytest.mark.parametrize(
    ("model", "values", "said"),
    [
        (OutboxNext, {"channel": 5}, "channel must be a string, not 5"),
        (OutboxNext, {"channel": ""}, "channel must not be empty"),
        (OutboxNext, {"channel": "x" * 600}, "channel must have at most 512 characters, not 600"),
        (OutboxNext, {"channel": "a\x00"}, "channel must not hold NUL"),
        (OutboxNext, {"channel": "a"}, "endpoint is required"),
        (OutboxNext, {"channel": "a", "endpoint": "b", "limit": "5"}, "limit must be a whole number, not '5'"),
        (OutboxNext, {"channel": "a", "endpoint": "b", "limit": 101}, "limit must be at most 100, not 101"),
        (OutboxNext, {"channel": "a", "endpoint": "b", "lease_s": 1}, "lease_s must be at least 5, not 1"),
        (OutboxNext, {"channel": "a", "endpoint": "b", "parts": "no"}, "parts must be true or false, not 'no'"),
        (OutboxNext, {"channel": "a", "endpoint": "b", "part": True}, "part is not a known field"),
        (AccountLeaseBody, {"channel": ["a"]}, "channel must be a string, not a list"),
        (Typed, {"token": "sb_o_5", "names": {}}, "token must be a whole number"),
        (Typed, {"names": {"a": None}}, "names.a must be a string, not null"),
    ],
)
def test_it_says_which_field_what_would_be_right_and_what_was_given(
    model: type[BaseModel], values: dict[str, Any], said: str
) -> None:
    assert problem(model, **values) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("it's", '"it\'s"'),
        ("x" * 61, f"'{'x' * 60}…'"),
        (False, "false"),
        (2.5, "2.5"),
        (-(10**50), "so large a number"),
        (math.nan, "nan"),
        ({}, "an object"),
        ((), "a list"),
        (b"", "something else"),
    ],
)
def test_a_value_in_a_few_words(value: object, said: str) -> None:
    assert abbreviate_value(value) == said
