"""What users and other programs see is as recorded. What `doctor` finds: `tests/integration/test_surface.py`."""

from __future__ import annotations

import pytest

from tests.surface import FILES, recorded


@pytest.mark.parametrize("name", FILES)
def test_what_others_see_is_as_recorded(name: str) -> None:
    now, before = FILES[name]().splitlines(), recorded(name).splitlines()
    changed = [line[:200] for line in now if line not in set(before)] or [
        line[:200] for line in before if line not in now
    ]
    assert changed == [], "if it is meant: `make surface`, and look at the diff"
    assert now == before, "if it is meant: `make surface`, and look at the diff"
