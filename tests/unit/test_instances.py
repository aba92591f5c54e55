"""A connector is the same instance as the process before it, once that has ended; a second one is another."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from switchboard.cli.channels.instances import instance_of


def test_the_next_process_is_the_same_instance_and_one_beside_it_is_not(tmp_path: Path) -> None:
    file = tmp_path / "connectors/house.instance"
    with instance_of(file) as first, instance_of(file) as beside:
        assert not first.restarted
        assert not beside.restarted
        assert first.instance_id != beside.instance_id
    with instance_of(file) as second:
        assert second.restarted
        assert second.instance_id == first.instance_id
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kept", ["", "half", "\udcff", "11111111-1111-4111-8111-111111111111 elsewhere"])
def test_an_instance_of_another_machine_or_of_nobody_is_not_taken_over(tmp_path: Path, kept: str) -> None:
    file = tmp_path / "house.instance"
    file.write_bytes(kept.encode(errors="surrogateescape"))
    with instance_of(file) as found:
        assert not found.restarted
    with instance_of(file) as again:
        assert again.instance_id == found.instance_id
    assert file.read_text() == f"{found.instance_id} {platform.node()}\n"
