"""What a chat shows: the events of a stream enter, lines on two streams leave."""

from __future__ import annotations

import re
from typing import Any

import pytest

from switchboard.cli.messages.screen import LiveScreen, show_whole
from switchboard.cli.messages.talk import Take

Event = tuple[str, dict[str, Any]]


def delta(offset: int, text: str, system_id: str = "clerk", step: int = 1) -> Event:
    return "delta", {"system_id": system_id, "attempt": 1, "step": step, "offset": offset, "text": text}


def reset(system_id: str = "clerk") -> Event:
    return "reset", {"system_id": system_id, "attempt": 1, "step": 2}


def tool(name: str, **more: str | bool) -> Event:
    kind = "tool_end" if "ok" in more else "tool"
    return kind, {"system_id": "clerk", "attempt": 1, "step": 1, "name": name, **more}


def status(seconds: int) -> Event:
    return "status", {"system_id": "clerk", "attempt": 1, "step": 1, "phase": "reading", "seconds": seconds}


def reply(text: str, system_id: str = "clerk") -> Event:
    return "reply", {"system_id": system_id, "text": text}


def waiting(error_class: str, engine: str = "model") -> Event:
    return "waiting", {"system_id": "clerk", "engine": engine, "error_class": error_class}


def asking(kind: str, name: str) -> Event:
    one = {"approval_id": "1a2b3c4d-0000-5000-8000-000000000000", "kind": kind, "tool": name}
    return "waiting", {"system_id": "clerk", "engine": "", "error_class": "", "asked": [one]}


DONE: Event = ("done", {"settled": True, "state": "answered", "replies": []})


def shown(take: Take, events: tuple[Event, ...], capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    for kind, data in events:
        take(kind, data)
    said = capsys.readouterr()
    return said.out, said.err


@pytest.mark.parametrize(
    ("events", "out", "err"),
    [
        ((delta(0, "Once"), delta(4, " upon"), reply("Once upon"), DONE), "clerk: Once upon\n", ""),
        ((delta(0, "  Once\n"), delta(0, "Once"), reply("Once"), DONE), "clerk: Once\n", ""),
        ((delta(0, "Onze"), delta(2, "ce"), reply("Once"), DONE), "clerk: Onze\nclerk: Once\n", ""),
        (
            (delta(0, "I look."), tool("look"), reset(), delta(0, "There."), reply("There."), DONE),
            "clerk: I look.\nclerk: There.\n",
            "clerk uses look\n",
        ),
        (
            (tool("look", arguments='{"at": "a\nb"}'), tool("look", ok=True), tool("look"), tool("look", ok=False)),
            "",
            'clerk uses look {"at": "a b"}\nlook: done\nclerk uses look\nlook: failed\n',
        ),
        (
            (status(40), ("later", {"system_id": "clerk"}), delta(0, "There."), reply("There."), DONE),
            "clerk: There.\n",
            "clerk is reading, about 40 s\n",
        ),
        (
            (delta(0, "A"), delta(0, "B!", "cook"), reply("B!", "cook"), delta(1, "a"), reply("Aa"), DONE),
            "clerk: Aa\ncook: B!\n",
            "",
        ),
        (
            (
                delta(0, "Y"),
                reset(),
                waiting("timeout"),
                delta(0, "Later.", "switchboard"),
                reply("Later.", "switchboard"),
                DONE,
            ),
            "clerk: Y\nswitchboard: Later.\n",
            "clerk waits: the model does not answer in time; it retries automatically\n",
        ),
        ((reply("whole"), DONE), "clerk: whole\n", ""),
        ((delta(0, "a\x1b[2Jb\u202e"), reply("a\x1b[2Jb\u202e"), DONE), "clerk: a[2Jb\n", ""),
        (
            (delta(0, "Ha"), reset(), waiting("target_unavailable"), DONE),
            "clerk: Ha\n",
            "clerk waits: the model cannot be reached; it retries automatically\n",
        ),
        (
            (delta(0, "Hm. "), reset(), asking("call", "pay"), delta(0, "Paid."), reply("Paid."), DONE),
            "clerk: Hm.\nclerk: Paid.\n",
            "clerk waits for a decision about pay: switchboard approvals show 1a2b3c4d\n",
        ),
        ((asking("question", "ask_user"),), "", "clerk waits for your answer: /answer 1a2b3c4d and your answer\n"),
        ((DONE,), "", ""),
    ],
)
def test_a_reply_appears_while_it_is_written(
    events: tuple[Event, ...], out: str, err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(LiveScreen().take, events, capsys) == (out, err)


def test_half_a_reply_is_on_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    out, _ = shown(LiveScreen().take, (delta(0, "Once **up"), delta(9, "on**")), capsys)
    assert re.sub("\x1b\\[[0-9;]*[mK]", "", out).split("\r") == ["clerk: Once **up", "clerk: Once upon"]


def test_into_a_pipe_a_reply_comes_whole(capsys: pytest.CaptureFixture[str]) -> None:
    events = (delta(0, "On"), waiting("overload", "http"), delta(2, "ce"), reply("Once"), DONE)
    note = "clerk waits: what it works with takes no more at the moment; it retries automatically\n"
    assert shown(show_whole, events, capsys) == ("clerk: Once\n", note)
