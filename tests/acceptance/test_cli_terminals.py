"""The executable on a real terminal: what it shows, completes and asks."""

from __future__ import annotations

import getpass
import json
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.forked import ForkedCommand, commands_for_shells
from tests.processes import (
    DEADLINE,
    EXECUTABLE,
    butler,
    environment,
    running,
    scripted_llm,
    switchboard,
    told,
    until,
    write_teams,
)
from tests.terminals import on_its_terminal, terminal

pytestmark = pytest.mark.slow


SHELLS = {
    "bash": (("--norc", "-i"), "source <(_SWITCHBOARD_COMPLETE=source_bash switchboard)"),
    "zsh": (
        ("-f", "-i"),
        "autoload -Uz compinit; compinit -u -D; source <(_SWITCHBOARD_COMPLETE=source_zsh switchboard)",
    ),
    "fish": (("--no-config", "-i"), "_SWITCHBOARD_COMPLETE=source_fish switchboard | source"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_complete_below_the_first_word(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    options, load = SHELLS[shell]
    env = environment(tmp_path, URL="http://127.0.0.1:9") | {"HOME": str(tmp_path), "TERM": "xterm", "PS1": "$ "}
    with (
        commands_for_shells() as commands,
        # A terminal that the shell controls.
        terminal(env | {"PATH": f"{commands}:{env['PATH']}"}, "--ctty", shell, *options, program="setsid") as screen,
    ):
        screen.type(f"{load}; echo loa''ded\n")
        screen.expect("loaded")
        screen.type("switchboard chann\tsho\t-h\n")
        screen.expect("Show one account with its counters")
        screen.type("switchboard rules crea\t--prio\t5\n")
        screen.expect("Usage: switchboard rules create")


CLERK_TEAM = {
    "team": {"name": "root"},
    "systems": [{"name": "System1/clerk", "engine": "model"}],
    "routing_rules": [{"name": "all", "channel": "*", "targets": [{"system_id": "System1/clerk"}]}],
}


@contextmanager
def clerk(place: Path, *answers: Mapping[str, Any], timeout: int, **options: object) -> Iterator[Mapping[str, str]]:
    """A server whose butler, with these options, asks a model that gives these answers; its environment."""
    system = {"name": "System1/clerk", "engine": "model", "config": options}
    teams = write_teams(place / "teams", CLERK_TEAM | {"systems": [system]})
    with scripted_llm(list(answers), place) as url:
        model = {"name": "m", "kind": "openai", "model": "scripted-1", "base_url": f"{url}/v1", "timeout": timeout}
        env = environment(place / "data", TEAMS_DIR=str(teams), MODELS=json.dumps([model])) | {"TERM": "xterm"}
        with running(env | {"XDG_STATE_HOME": str(place)}, "up") as server:
            yield server.environment


TALE = {"text": "There was a king. " * 8, "fault": {"kind": "hang", "at": "middle"}}


def test_chat_shows_an_answer_while_it_is_written(place: Path) -> None:
    with clerk(place, *[TALE] * 8, timeout=2) as env, terminal(env, "chat") as screen:
        screen.expect("you: ")
        screen.type("tell me a tale\n")
        screen.expect("System1/clerk:")
        screen.expect("There was a king.")
        screen.expect("System1/clerk waits: the model does not answer in time")


@pytest.mark.parametrize(
    ("keys", "after"), [("and the weather?\n/stop\n", ""), ("\x03", "and the weather?\n")], ids=["stop", "ctrl-c"]
)
def test_chat_stops_an_answer(keys: str, after: str, place: Path) -> None:
    """And goes on: with what was typed meanwhile, and then with the prompt."""
    answers = (TALE, {"text": "The weather is fine."})
    with clerk(place, *answers, timeout=600) as env, on_its_terminal(env, "chat", "--thread", "tales") as screen:
        screen.expect("/stop")
        screen.expect("you: ")
        screen.type("tell me a tale\n")
        screen.expect("There was a king.")
        screen.type(keys)
        screen.expect("stopping; Ctrl-C leaves")
        screen.type(after)
        screen.expect("you: and the weather?")
        screen.expect("The weather is fine.")
        screen.expect("you: ")
        screen.type("/help\n")
        screen.expect("/stop")
        screen.expect("you: ")
        screen.interrupt("switchboard chat --thread tales")
        assert screen.process.wait(DEADLINE) == 130


def test_chat_gives_the_prompt_back_while_a_turn_waits_for_people(place: Path) -> None:
    shopping = {"name": "write_file", "arguments": {"path": "list", "content": "milk"}}
    call, listed, sunny = {"text": "", "calls": [shopping]}, {"text": "Milk is on the list."}, {"text": "It is sunny."}
    options = {"owners": [f"cli:{getpass.getuser()}"], "approve": ["write_file"]}
    with clerk(place, call, sunny, listed, call, sunny, listed, timeout=600, **options) as env:
        _approved_at_the_prompt(env)
        _approved_elsewhere(env)


def _approved_elsewhere(env: Mapping[str, str]) -> None:
    """From a pipe, the next line is said, and at its end the answer is waited for."""
    command = [EXECUTABLE, "chat", "--wait", str(DEADLINE)]
    with ForkedCommand(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write("buy milk\nand the weather?\n")
        process.stdin.close()
        until(lambda: bool(told(env, "approvals", "list")["approvals"]))
        [asked] = told(env, "approvals", "list")["approvals"]
        until(lambda: len(told(env, "messages", "list", "--state", "answered")["messages"]) == 4)
        told(env, "approvals", "approve", asked["approval_id"])
        assert process.stdout is not None
        said = process.stdout.read()
        assert process.wait(DEADLINE) == 0
    assert said.endswith("System1/clerk: It is sunny.\nSystem1/clerk: Milk is on the list.\n")


def _approved_at_the_prompt(env: Mapping[str, str]) -> None:
    with terminal(env, "chat") as screen:
        screen.expect("you: ")
        screen.type("buy milk\n")
        screen.expect("This needs approval first: write_file")
        screen.expect("System1/clerk waits for a decision about write_file: switchboard approvals show ")
        screen.expect("you can continue meanwhile")
        screen.expect("you: ")
        screen.type("and the weather?\n")
        screen.expect("It is sunny.")
        screen.expect("you: ")
        [asked] = told(env, "approvals", "list")["approvals"]
        screen.type(f"/approve {asked['approval_id'][:8]}\n")
        screen.expect("Approved: write_file")
        screen.expect("Milk is on the list.")
        screen.expect("you: ")
        assert screen.left.count("This needs approval first") == 1
        screen.type("\x04")
        assert screen.process.wait(DEADLINE) == 0


def test_chat_leaves_an_answer_that_does_not_end(place: Path) -> None:
    """Programs do not stop in the middle: who does not wait for them leaves, and is told how to come back."""
    team = CLERK_TEAM | {"systems": [butler("clerk", ["sleep", "1000"])]}
    env = environment(place / "data", TEAMS_DIR=str(write_teams(place / "teams", team)), WORKER__DRAIN="0.1")
    with running(env | {"TERM": "xterm", "XDG_STATE_HOME": str(place)}, "up") as server:
        with on_its_terminal(server.environment, "chat", "--thread", "long") as screen:
            screen.expect("you: ")
            screen.type("work\n")
            until(lambda: bool(told(server.environment, "messages", "list")["messages"]))
            screen.type("\x03")
            screen.expect("stopping; Ctrl-C leaves")
            screen.type("\x03")
            screen.expect("switchboard chat --thread long")
            assert screen.process.wait(DEADLINE) == 130
        with on_its_terminal(server.environment, "chat", "--thread", "long") as screen:
            screen.expect("you: ")
            screen.type("more\n")
            until(lambda: len(told(server.environment, "messages", "list")["messages"]) == 2)
            screen.type("/quit\n")
            screen.expect("switchboard chat --thread long")
            assert screen.process.wait(DEADLINE) == 0


def test_chat_on_a_terminal(home: Path, tmp_path: Path) -> None:
    env = environment(home / "data") | {"XDG_STATE_HOME": str(tmp_path), "TERM": "xterm"}
    with running(env, "up") as server:
        with terminal(server.environment, "chat", "--thread", "pty") as screen:
            screen.expect("you: ")
            screen.type("the plumber comes on friday\n")
            screen.expect("System1/memo")
            screen.expect("you: ")
            screen.type("\x1b[A\n")  # the line before, once more: another message
            screen.expect("System1/memo")
            screen.expect("you: ")
            screen.type("/help\n")
            screen.expect("switchboard chat --thread pty")
            screen.expect("you: ")
            screen.type("\x04")
            assert screen.process.wait(DEADLINE) == 0
        with terminal(server.environment, "chat") as screen:
            screen.expect("you: ")
            screen.type("/quit\n")
            assert screen.process.wait(DEADLINE) == 0
        listed = told(server.environment, "messages", "list", "--channel", "cli", "--limit", "2")["messages"]
        assert [m["text"] for m in listed] == ["the plumber comes on friday"] * 2
        assert {m["thread"] for m in listed} == {"pty"}
        history = tmp_path / "switchboard/chat_history"
        assert "plumber" in history.read_text()
        assert stat.S_IMODE(history.stat().st_mode) == 0o600


MANY_TEAM = {
    "team": {"name": "root"},
    "systems": [butler("memo"), {"type": "intelligence"}],
    "routing_rules": [{"name": "chat", "channel": "cli", "targets": [{"system_id": "System1/memo"}]}],
}


def test_rules_and_dead_letters_on_a_terminal(place: Path) -> None:
    """What asks, asks; what takes its time shows how far it is; and nothing is done after a no."""
    env = environment(place / "data", TEAMS_DIR=str(write_teams(place / "teams", MANY_TEAM))) | {"TERM": "xterm"}
    with running(env, "up") as server:
        here = server.environment
        for text in ("one", "two"):
            told(here, "send", text, "--channel", "api")
        [chat] = told(here, "rules", "list")["rules"]
        with terminal(here, "rules", "disable", chat["rule_id"]) as screen:
            screen.expect("Reason for the change?")
            screen.type("no more chat\n")
            screen.expect("active")
            screen.expect("would now be routed differently")
            assert screen.process.wait(DEADLINE) == 0
        assert told(here, "rules", "show", chat["rule_id"])["history"][0]["reason"] == "no more chat"

        changed = ("--rule", chat["rule_id"], "--set", "channel=api", "--set", "active=true")
        with terminal(here, "rules", "backtest", *changed) as screen:
            screen.expect("deciding again")
            screen.expect("2 of 2 messages would be routed differently")
            assert screen.process.wait(DEADLINE) == 0

        close = ("dlq", "handle", "--all", "--channel", "api")
        for answer, left in (("n", 2), ("y", 0)):
            with terminal(here, *close) as screen:
                screen.expect("How was it resolved?")
                screen.type("seen\n")
                screen.expect("Close 2 dead letters?")
                screen.type(f"{answer}\n")
                assert screen.process.wait(DEADLINE) == (1 if left else 0)
            assert len(told(here, "dlq", "list", "--state", "pending")["dead_letters"]) == left
        with terminal(here, *close, "--resolution", "seen") as screen:
            screen.expect("closed: 0 of 0 dead letters")
            assert screen.process.wait(DEADLINE) == 0


@pytest.mark.parametrize("columns", [80, 100])
def test_an_explanation_fits_on_a_terminal(home: Path, columns: int) -> None:
    env = environment(home / "data") | {"TERM": "dumb", "COLUMNS": str(columns)}
    with running(env, "up") as server:
        sent = told(server.environment, "send", "a long story " * 20, "--wait", "30")["request_id"]
        said = switchboard(server.environment, "explain", sent).stdout
        listed = switchboard(server.environment, "rules", "list").stdout
        rules = told(server.environment, "rules", "list")["rules"]
    assert [line for line in (said + listed).splitlines() if len(line) > columns] == []
    assert [rule for rule in rules if rule["rule_id"] not in listed] == []


def test_no_colour_but_on_a_terminal_that_wants_it(home: Path) -> None:
    env = environment(home / "data") | {"TERM": "xterm"}
    plain = env | {"NO_COLOR": "1"}
    for environ, coloured in ((env, True), (plain, False)):
        with terminal(environ, "doctor") as screen:
            screen.expect(" warning")
            assert ("\x1b[32m" in screen.screen) is coloured
    assert "\x1b" not in switchboard(env, "doctor").stdout
