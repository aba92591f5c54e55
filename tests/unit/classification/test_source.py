"""`core/classification/source.py`, the older way in, and the shape of `RoutingResult`: both as the seeds have them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.classification.source import SourceArguments, identity_of, source_metadata
from switchboard.domain.classification import RoutingResult
from tests.strategies import json_values

ARGUMENTS = (
    "source_channel",
    "source_identity",
    "source_endpoint_identity",
    "sender_identity",
    "external_event_id",
    "external_thread_id",
    "idempotency_key",
)


@pytest.mark.parametrize(
    ("tool_name", "identity"),
    [
        ("user_telegram_get_updates", "user"),
        ("bot_telegram_get_updates", "bot"),
        ("user_", "user"),
        ("telegram_user_get", "unknown"),
        ("users_list", "unknown"),
        ("User_x", "unknown"),
        ("robot_x", "unknown"),
        ("botany", "unknown"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_the_prefix_of_the_tool_tells_who(tool_name: str | None, identity: str) -> None:
    assert identity_of(tool_name) == identity
    assert source_metadata({}, tool_name).source_identity == identity


def test_all_seven_arguments_are_kept() -> None:
    args = {name: f"  value of {name} " for name in ARGUMENTS}
    known = source_metadata(args, "bot_x").known()
    assert known == {name: f"value of {name}" for name in ARGUMENTS} | {"tool_name": "bot_x"}


def test_what_the_arguments_say_wins_over_the_tool() -> None:
    assert source_metadata({"source_identity": "user"}, "bot_x").source_identity == "user"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (5488423581, "5488423581"),
        (-100123, "-100123"),
        ("a\x00b", "ab"),
        (True, None),
        ("  ", None),
        (1.5, None),
        (None, None),
        (["x"], None),
        (10**400, None),
    ],
)
def test_odd_values_are_not_known(value: object, kept: str | None) -> None:
    assert source_metadata({"external_thread_id": value}) == SourceArguments("unknown", external_thread_id=kept)


@given(st.dictionaries(st.sampled_from(ARGUMENTS), json_values()))
def test_it_never_raises_and_never_knows_an_empty_word(args: dict[str, object]) -> None:
    assert all(value.strip() for value in source_metadata(args).known().values())


def test_a_routing_result_has_the_fields_of_the_seeds_and_no_others() -> None:
    assert [field.name for field in fields(RoutingResult)] == [
        "target_butler",
        "route_result",
        "classification_error",
        "routing_error",
        "routed_targets",
        "acked_targets",
        "failed_targets",
    ]
    result = RoutingResult("health", {"status": "ok"}, acked_targets=["health"])
    assert (result.routed_targets, result.acked_targets, result.failed_targets) == ([], ["health"], [])
    assert (result.classification_error, result.routing_error) == (None, None)
    with pytest.raises(FrozenInstanceError):
        setattr(result, "target_butler", "finance")  # noqa: B010 - an assignment would not pass the type check
