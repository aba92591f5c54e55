"""What `switchboard doctor` finds in a fixed house is as recorded."""

from __future__ import annotations

from tests.surface import DOCTOR, recorded, render_doctor


async def test_what_doctor_finds_is_as_recorded(empty_database_url: str) -> None:
    found = await render_doctor(empty_database_url)
    assert found.splitlines() == recorded(DOCTOR).splitlines(), "if it is meant: `make surface`, and look at the diff"
