"""The command that stops a turn: what is one, and what is said to it."""

from __future__ import annotations

import pytest

from switchboard.core.turns.stop import answer, is_stop
from switchboard.ports.channel import Channel
from tests.lab import envelope


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("/stop", True),
        (" /STOP\n", True),
        ("/stop it", False),
        ("stop", False),
        ("/stop@house_bot", True),
        ("/Stop@House_Bot ", True),
        ("/stop@house_bot now", False),
        ("/stop@other_bot", False),
        ("/stop@", False),
        ("/stop@" + "house_bot" * 9, False),
    ],
)
def test_the_command_is_the_whole_message(text: str, is_one: bool) -> None:
    assert is_stop(envelope(text, endpoint="bot:house_bot"), Channel(name="telegram")) is is_one


def test_a_machine_or_a_stranger_commands_nothing() -> None:
    machine = Channel(name="telegram", automatic=lambda _: "precedence: bulk")
    stranger = Channel(name="telegram", authentic=lambda facts: facts["sender"] == "bob")
    assert not is_stop(envelope("/stop"), machine)
    assert not is_stop(envelope("/stop", sender="alice"), stranger)
    assert is_stop(envelope("/stop", sender="bob"), stranger)


@pytest.mark.parametrize(
    ("stopped", "said"),
    [((), "Nothing is running."), ((True, False), "Stopped."), ((False,), "This cannot be stopped")],
)
def test_what_is_said_is_what_happened(stopped: tuple[bool, ...], said: str) -> None:
    assert answer(stopped).startswith(said)
