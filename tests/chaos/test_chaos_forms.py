"""The forms of the page while their server is killed: `python -m tests.chaos.forms_run` is all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.form_table import missing_forms
from tests.chaos.forms_run import FormsPlan, run
from tests.width import wide

SAMPLE = "/tasks/{task}/cancel,phone/pause"
"""One that changes tables, also those of a module, and one that changes files."""


def test_each_form_of_the_page_is_in_the_table() -> None:
    assert missing_forms() == set()


@pytest.mark.chaos
async def test_forms_are_carried_out_once_while_their_server_is_killed(place: Path) -> None:
    report = await run(FormsPlan(only="" if wide(1, 0) else SAMPLE, moments=wide(2, 0)), place)
    assert report.clean, report
    assert report.kills > report.forms
