"""Spans: what models and engines have named is in none."""

from __future__ import annotations

import pytest

from switchboard.core.traces import step_kind


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("request:2", "request"),
        ("tool:2:call_7", "tool"),
        ("tool:2:a/request:secret", "tool"),
        ("s3", "step"),
        ("s3/tool:1:secret", "tool"),
        ("my-secret/secret:1", "step"),
        ("secret/", "step"),
        ("classify house 0a1b", "classify"),
        ("geheim", "step"),
        ("", "step"),
    ],
)
def test_of_the_path_of_a_step_only_a_known_word_is_shown(path: str, kind: str) -> None:
    assert step_kind(path) == kind
