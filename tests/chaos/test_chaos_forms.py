"""The forms of the page while their server is killed: a sample of `python -m tests.chaos.forms_run`."""

from __future__ import annotations

from tests.chaos.form_table import missing_forms


def test_each_form_of_the_page_is_sent_while_its_server_is_killed() -> None:
    assert missing_forms() == set()
