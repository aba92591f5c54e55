"""`core/text/tokens.py` against counts that two real tokenizers gave: never below, and not absurdly above.

`tokens.json` holds texts and their counts under o200k_base and cl100k_base.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.text.tokens import estimate_steps, estimate_tokens, is_estimated, token_ceiling

RECORDED: Final[list[dict[str, Any]]] = json.loads(Path(__file__).with_name("tokens.json").read_text("ascii"))
JOIN: Final = 64
"""How far the whole may be from the sum of its parts: two shorter runs may make one long random one."""
_TEXT = st.text(st.characters(codec="utf-8"), max_size=120)
_LIKELY = st.text(st.sampled_from('aeqzXB09 _-=+/.\n\t\r{}":é字я😀'), max_size=120)


@pytest.mark.parametrize("one", RECORDED, ids=[one["name"] for one in RECORDED])
def test_no_recorded_text_has_more_tokens_than_the_estimate(one: dict[str, Any]) -> None:
    assert estimate_tokens(one["text"]) >= max(one["o200k_base"], one["cl100k_base"])


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("english", 1.4),
        ("german", 1.8),
        ("json", 1.65),
        ("python", 1.6),
        ("email", 1.4),
        ("urls", 1.4),
        ("base64", 1.5),
        ("uuids", 1.3),
        ("chinese", 2.1),
        ("russian", 2.4),
        ("thai", 2.7),
        ("arabic", 2.5),
    ],
)
def test_the_estimate_is_of_use(name: str, most: float) -> None:
    [one] = [one for one in RECORDED if one["name"] == name]
    assert estimate_tokens(one["text"]) <= most * one["o200k_base"]


def test_what_was_recorded_covers_what_people_send() -> None:
    names = {one["name"] for one in RECORDED}
    assert {"english", "german", "chinese", "japanese", "korean", "thai", "arabic", "emoji", "json"} <= names
    assert {"base64", "hex", "python", "javascript", "sql", "urls", "whitespace", "spaces_2000", "jwt"} <= names


def test_no_text_costs_nothing_and_any_text_something() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens(" ") == estimate_tokens("a") == 1


@given(_TEXT | _LIKELY)
def test_a_token_has_at_least_one_byte_and_at_most_eight_characters(text: str) -> None:
    assert len(text) / 8 <= estimate_tokens(text) <= token_ceiling(text) == len(text.encode())


@given(_TEXT | _LIKELY, _TEXT | _LIKELY)
def test_joined_texts_cost_what_they_cost_apart(left: str, right: str) -> None:
    apart, joined = estimate_tokens(left) + estimate_tokens(right), estimate_tokens(left + right)
    assert abs(joined - apart) <= JOIN
    assert joined >= max(estimate_tokens(left), estimate_tokens(right)) - JOIN // 8


@pytest.mark.parametrize("text", ["word ", "aGVsbG8=", "x" * 7, '{"a": 1}, ', "字", "\n", "    ", "=-", "Zq"])
def test_repetition_is_never_free(text: str) -> None:
    costs = [estimate_tokens(text * times) for times in (1, 10, 100, 1000, 10_000)]
    assert costs == sorted(costs)
    assert costs[-1] >= len(text) * 10_000 / 8


@pytest.mark.parametrize("lone", ["\ud800", "a\udfffb"])
def test_a_lone_surrogate_is_counted_too(lone: str) -> None:
    assert 1 <= estimate_tokens(lone) <= token_ceiling(lone)


@pytest.mark.parametrize("text", ["word ", "aGVsbG8=", "Zq", "qz ", "\n"])
def test_a_long_text_is_estimated_in_steps_and_only_once(text: str) -> None:
    long = text * 20_000
    price = estimate_tokens(long[: len(long) // 2]) * 2
    long += text
    assert not is_estimated(long)
    taken = len(list(estimate_steps(long)))
    assert taken >= len(long) // 20_000
    assert is_estimated(long)
    assert abs(estimate_tokens(long) - price) <= JOIN
