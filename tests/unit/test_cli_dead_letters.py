"""Words of `dlq` become requests or usage errors, and what the API says of dead letters becomes lines for people."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
import typer

from switchboard.cli.dead_letters.commands import _rule_wish
from switchboard.cli.dead_letters.views import dead_letter_table, print_dead_letter, print_outcome
from switchboard.cli.output import out
from switchboard.cli.rules.options import moment

ID = str(UUID(int=7))
ENVELOPE = {
    "source": {"channel": "email", "endpoint_identity": "house@home.example"},
    "event": {"external_thread_id": "<t@x>"},
    "sender": {"identity": "a@x.example", "display_name": "Ann\x1b[2J"},
    "payload": {
        "normalized_text": "the bill",
        "attachments": [{"filename": "bill.pdf", "media_type": "application/pdf", "size_bytes": 12345}],
    },
}


def dead_letter(**more: Any) -> dict[str, Any]:
    """A dead letter as the API shows it."""
    made: dict[str, Any] = {
        "dead_letter_id": ID,
        "request_id": ID,
        "status": "pending",
        "team_id": "root",
        "category": "no_route",
    }
    made |= {"reason": "no rule matches", "channel": "email", "emptied_at": None, "created_at": "2026-01-31T12:00:00Z"}
    return made | {"sender": "a@x.example", "text": "the bill", "payload": ENVELOPE} | more


# Words --------------------------------------------------------------------------------------------------------------


def test_times_may_be_dates_and_are_local_without_a_zone() -> None:
    assert moment("2026-01-31T12:00:00Z", "--since") is not None
    told = moment("2026-01-31", "--since")
    assert told is not None
    assert datetime.fromisoformat(told) == datetime(2026, 1, 31).astimezone()
    assert moment(None, "--since") is None
    with pytest.raises(typer.BadParameter, match="'yesterday' is not a time") as refused:
        moment("yesterday", "--since")
    assert refused.value.param_hint == "--since"


def test_a_rule_of_a_dead_letter_names_what_is_special_about_it() -> None:
    assert _rule_wish(None, (), None) == {}
    assert _rule_wish("n", ["sender"], None) == {"rule": {"name": "n", "filters": ["sender"], "priority": 0}}
    assert _rule_wish("n", ["sender=a=b"], 5) == {"rule": {"name": "n", "filters": {"sender": "a=b"}, "priority": 5}}


@pytest.mark.parametrize(
    ("name", "filters", "priority", "at_fault"),
    [
        (None, ["sender"], None, "--filter"),
        (None, [], 3, "--priority"),
        ("n", [], None, "--filter"),
        ("n", ["sender", "thread=x"], None, "--filter"),
        ("n", ["=x"], None, "--filter"),
    ],
)
def test_what_is_no_rule_of_a_dead_letter(
    name: str | None, filters: list[str], priority: int | None, at_fault: str
) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        _rule_wish(name, filters, priority)
    assert refused.value.param_hint == at_fault


# Lines --------------------------------------------------------------------------------------------------------------


def test_a_dead_letter_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_dead_letter(dead_letter())
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert not [line for line in lines if re.match("[a-z]+_", line)], "words, not names of fields"
    for line in (
        "endpoint house@home.example",
        "sender Ann[2J (a@x.example)",
        "thread <t@x>",
        "attachment bill.pdf, application/pdf, 12,345 bytes",
        "the bill",
    ):
        assert line in lines


def test_an_emptied_dead_letter_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    gone = dead_letter(status="handled", emptied_at="2026-05-01T12:00:00Z", payload={}, resolution="spam")
    print_dead_letter(gone | {"handled_at": "2026-02-01T12:00:00Z", "handled_by_system_id": "System4/root"})
    said = capsys.readouterr().out
    assert "its message has been erased" in said
    assert "by System4/root" in said
    out().print(dead_letter_table([gone]))
    assert "(emptied)" in capsys.readouterr().out


def test_a_list_shows_who_and_what(capsys: pytest.CaptureFixture[str]) -> None:
    out().print(dead_letter_table([dead_letter(text="line one\nline two " + "x" * 500)]))
    said = capsys.readouterr().out
    assert "a@x.example" in said
    assert "line one line t" in said


@pytest.mark.parametrize(
    ("matched", "done", "failed", "said"),
    [
        (3, 3, 0, "closed: 3 of 3 dead letters"),
        (1, 1, 0, "closed: 1 of 1 dead letter"),
        (1200, 1199, 1, "closed: 1,199 of 1,200 dead letters; 1 stays pending"),
        (3, 1, 2, "closed: 1 of 3 dead letters; 2 stay pending"),
    ],
)
def test_what_became_of_many(
    capsys: pytest.CaptureFixture[str], matched: int, done: int, failed: int, said: str
) -> None:
    failures = [{"dead_letter_id": ID, "error": "nobody takes it"}] * failed
    outcome = {"matched": matched, "done": done, "failed": failures, "dry_run": False}
    print_outcome(outcome, "closed")
    shown = capsys.readouterr()
    assert shown.out == f"{said}\n"
    assert shown.err.count("nobody takes it") == failed
    print_outcome(outcome | {"dry_run": True}, "closed")
    assert capsys.readouterr().out == f"would be {said}\n"


def test_a_dry_run_says_to_whom(capsys: pytest.CaptureFixture[str]) -> None:
    would = [{"dead_letter_id": ID, "to": ["System1/a", "System1/b"]}]
    print_outcome({"matched": 30, "done": 30, "failed": [], "dry_run": True, "would": would * 30}, "rerouted")
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1] == f"  {ID} → System1/a, System1/b"
    assert shown.err == "and 10 more\n"
