"""What becomes of an event before the switchboard sees it: left out, history, or a message."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.connectors.kernel.accounts import read_account
from switchboard.connectors.kernel.intake import Handling, LeftOut, conversation_of, prepare_envelope
from switchboard.domain.envelope import Envelope
from switchboard.testing.connectors import ScriptedPlatform

NOW: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)


def outcome(handling: Handling, **more: Any) -> str:
    """In a word."""
    made = prepare_envelope(ScriptedPlatform().add("t", "hello", **more), handling, NOW)
    if isinstance(made, LeftOut):
        return made.why
    assert made.payload.normalized_text == "hello"
    tier = made.control.ingestion_tier
    return tier if tier in {"history", "held"} else made.event.kind


@pytest.mark.parametrize(
    ("handling", "event", "expected"),
    [
        ({}, {}, "message"),
        ({}, {"own": True}, "own"),
        ({}, {"by_bot": True}, "bot"),
        ({"bots": "answer"}, {"by_bot": True}, "message"),
        ({"bots": "answer"}, {"by_bot": True, "own": True}, "own"),
        ({}, {"direct": False}, "history"),
        ({}, {"direct": False, "control": {"addressed": True}}, "message"),
        ({"groups": "all"}, {"direct": False}, "message"),
        ({}, {"event": {"kind": "edit"}}, "edit"),
        ({"on_edit": "again"}, {"event": {"kind": "edit"}}, "message"),
        ({"on_edit": "again"}, {"event": {"kind": "edit"}, "direct": False}, "history"),
        ({"on_edit": "ignore"}, {"event": {"kind": "edit"}}, "edit"),
        ({}, {"event": {"sent_at": NOW - timedelta(hours=7)}}, "held"),
        ({"on_stale": "history"}, {"event": {"sent_at": NOW - timedelta(hours=7)}}, "history"),
        ({}, {"event": {"kind": "edit", "sent_at": NOW - timedelta(hours=7)}}, "edit"),
        ({}, {"direct": False, "event": {"sent_at": NOW - timedelta(days=3)}}, "history"),
        ({}, {"event": {"sent_at": NOW - timedelta(hours=5)}}, "message"),
        ({"groups": "all"}, {"direct": False, "event": {"sent_at": NOW - timedelta(minutes=16)}}, "held"),
        ({"on_stale": "answer"}, {"event": {"sent_at": NOW - timedelta(days=7)}}, "message"),
    ],
)
def test_what_becomes_of_an_event(handling: dict[str, Any], event: dict[str, Any], expected: str) -> None:
    assert outcome(Handling(**handling), **event) == expected


MAIL: Final = """
channel = "email"
secrets.password.env = "HOME"
[settings]
address = "desk@home.example"
imap = {host = "imap.home.example", port = 993}
smtp = {host = "smtp.home.example", port = 465}
[handling]
"""


@pytest.mark.parametrize(
    ("said", "expected"),
    [("", (259_200.0, 259_200.0)), ("stale_direct_s = 60", (60.0, 259_200.0)), ('on_edit = "again"', (259_200.0,) * 2)],
)
def test_mail_is_answered_for_three_days_unless_the_account_says_otherwise(
    said: str, expected: tuple[float, float]
) -> None:
    handling = read_account(Path("desk.toml"), lambda _: MAIL + said).handling
    assert (handling.stale_direct_s, handling.stale_group_s) == expected


def test_an_edit_that_is_left_out_is_told_from_one_that_is_noted() -> None:
    edit = ScriptedPlatform().add("t", "x", event={"kind": "edit"})
    assert prepare_envelope(edit, Handling(on_edit="ignore"), NOW) == LeftOut("edit")
    assert isinstance(prepare_envelope(edit, Handling(), NOW), Envelope)


def test_without_a_thread_a_conversation_is_that_of_its_sender() -> None:
    platform = ScriptedPlatform()
    one, other = platform.add("a", "x").envelope, platform.add("b", "x").envelope
    assert conversation_of(one) != conversation_of(other)
