"""How many objects and lists some JSON has, and what it costs to know that, whatever it looks like."""

from __future__ import annotations

import json
import time
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchboard.core.envelope.read import split_batch
from switchboard.core.text import json_size
from switchboard.core.text.json_size import check_containers
from switchboard.domain.errors import InvalidInput

_SIZE = 4 * 2**20
_TEXTS = st.text(alphabet='\\"[{]},x', max_size=6)
_VALUES = st.recursive(_TEXTS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4))


def containers(value: object) -> int:
    if isinstance(value, str):
        return 0
    assert isinstance(value, list | dict)
    return 1 + sum(map(containers, value.values() if isinstance(value, dict) else value))


def is_refused(data: bytes) -> bool:
    try:
        check_containers(data)
    except InvalidInput:
        return True
    return False


@settings(max_examples=500)
@given(_VALUES, st.booleans(), st.integers(0, 8))
def test_only_what_is_outside_of_strings_counts(value: object, blanks: bool, most: int) -> None:
    data = json.dumps(value, indent=1 if blanks else None).encode()
    with patch.object(json_size, "MAX_CONTAINERS", most):
        assert is_refused(data) == (len(data) > most and containers(value) > most)


def cost(work: object, data: bytes) -> float:
    assert callable(work)
    began = time.process_time()
    work(data)
    return time.process_time() - began


def test_a_million_strings_with_brackets_cost_no_more_than_one() -> None:
    """25 MB of them, in a webhook, kept the server from answering anybody for more than a second."""
    many = b"[" + b'"[",' * (_SIZE // 4) + b'""]'
    assert cost(is_refused, many) < 6 * cost(is_refused, b'["' + b"[" * _SIZE + b'"]')


def test_a_million_halves_of_pairs_cost_no_more_than_letters() -> None:
    """16 MB of them, in a batch, kept the server from answering anybody for more than a second."""
    one, other = (b'{"envelopes": ["' + what * (_SIZE // 6) + b'"]}' for what in (rb"\ud800", rb"\u0041"))
    assert cost(split_batch, one) < 4 * cost(split_batch, other)


def test_half_of_a_pair_in_a_name_does_not_make_it_another() -> None:
    with pytest.raises(InvalidInput) as refused:
        split_batch(rb'{"\ud065nvelopes": [1]}')
    assert refused.value.code == "unknown_field"
