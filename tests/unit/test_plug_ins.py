"""What packages add is read once, however often it is looked at."""

from __future__ import annotations

from importlib.metadata import EntryPoints, entry_points

import pytest

from switchboard.app.rules import seed
from switchboard.domain.routing import TeamId
from switchboard.transport import plug_ins
from tests.lab import butler


def test_the_engines_of_many_butlers_are_looked_for_and_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def reading(group: str) -> EntryPoints:
        read.append(group)
        return entry_points(group=group)

    monkeypatch.setattr(plug_ins, "entry_points", reading)
    plug_ins.plug_ins.cache_clear()
    butlers = [butler(f"b{n}", team=TeamId("root")) for n in range(100)]
    assert {seed._no_engine(one) for one in butlers} == {None}
    assert read == ["switchboard.engines"]
