"""How commands are called: help that names every value, and usage errors that people and scripts can read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import pytest
from rich.markup import render
from typer import Abort, Context
from typer.core import TyperCommand, TyperGroup

from switchboard import __version__
from switchboard.cli.doctor import summary
from switchboard.cli.main import COMMANDS, command_line, main
from switchboard.cli.output import INTERRUPTED, one_of
from switchboard.domain.errors import NotFound

_NAME = re.compile(r"|[A-Z]+(-[A-Z]+)*(\[?=[A-Z]+\]?)?|[a-z0-9_.-]+(\|[a-z0-9_.-]+)+")
"""None for a flag; ID; KEY=VALUE; api|cli."""


def commands(command: object, words: tuple[str, ...]) -> Iterator[tuple[Context, TyperCommand | TyperGroup]]:
    """A command and all below it, as a call of them would see them."""
    assert isinstance(command, TyperCommand | TyperGroup)
    yield Context(command, info_name=" ".join(words), help_option_names=["-h", "--help"]), command
    if isinstance(command, TyperGroup):
        for name, one in command.commands.items():
            yield from commands(one, (*words, name))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr)."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    said = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, said.out, said.err


@pytest.mark.parametrize("how", [KeyboardInterrupt, Abort])
def test_ctrl_c_before_the_command_has_begun_and_at_a_prompt(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, how: type[BaseException]
) -> None:
    def interrupted(*_: object) -> object:
        raise how

    monkeypatch.setattr("switchboard.cli.main.load", interrupted)
    assert run(capsys, "send", "x") == (INTERRUPTED, "", "")


@pytest.mark.parametrize("noun", [entry.name for entry in COMMANDS])
def test_every_value_has_a_name_in_capitals(noun: str) -> None:
    for context, command in commands(command_line([noun]).commands[noun], (noun,)):
        names = {str(parameter.metavar) for parameter in command.get_params(context)}
        assert [name for name in names if not _NAME.fullmatch(name)] == []
        assert not set("<{") & set(context.get_usage())


@pytest.mark.parametrize("noun", [entry.name for entry in COMMANDS])
def test_help_is_shown_as_it_is_written(noun: str) -> None:
    """Words in brackets would be taken as markup, and left out."""
    for context, command in commands(command_line([noun]).commands[noun], (noun,)):
        told = [
            command.help or "",
            *(getattr(parameter, "help", "") or "" for parameter in command.get_params(context)),
        ]
        assert [text for text in told if render(text).plain != text] == []


@pytest.mark.parametrize("noun", [entry.name for entry in COMMANDS])
def test_nothing_of_the_help_is_cut_off_at_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, noun: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for context, _ in commands(command_line([noun]).commands[noun], (noun,)):
        words = str(context.info_name).split()
        code, out, _ = run(capsys, *words, "--help")
        assert (code, max(map(len, out.splitlines()))) == (0, 80)
        assert "…" not in out, words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["send"], "Missing argument 'TEXT'."),
        (
            ["send", "--channel", "telegram", "hi"],
            "Invalid value for '--channel': 'telegram' is not one of 'api', 'cli'.",
        ),
        (["messages", "list", "--no-such-option"], "No such option: --no-such-option"),
        (["nothing"], "No such command 'nothing'."),
        (["rules", "nothing"], "No such command 'nothing'."),
        (["chanels"], "No such command 'chanels'. Did you mean 'channels', 'lanes'?"),
        (["messages", "lst"], "No such command 'lst'. Did you mean 'list'?"),
        (
            ["channels", "add", "telegrm"],
            "Invalid value for CHANNEL: there is no channel 'telegrm' to connect; did you mean telegram?",
        ),
        (["up", "--port", "many"], "Invalid value for '--port': must be a whole number, not 'many'"),
        (["up", "--port", "99999"], "Invalid value for '--port': must be at most 65535, not '99999'"),
        (["work", "--concurrency", "0"], "Invalid value for '--concurrency': must be at least 1, not '0'"),
        (["send", "x", "--wait", "long"], "Invalid value for '--wait': must be a number, not 'long'"),
        (
            ["channels", "add", "webhook", "orders", "--set", "verfy=none"],
            "Invalid value for --set: verfy is not a setting; did you mean verify?",
        ),
        (
            ["channels", "add", "email", "--set", "imap.hots=x"],
            "Invalid value for --set: imap.hots is not a setting; did you mean imap.host?",
        ),
        (
            ["tokens", "create", "x", "--role", "agent"],
            "Missing option '--system': a token with the role agent needs it",
        ),
        (
            ["channels", "add", "webhook", "orders", "--set", "verify=none"],
            "Invalid value for --set: verify must be 'standard', 'github', 'stripe' or 'bearer', not 'none'",
        ),
    ],
)
def test_usage_errors_are_said_plainly_and_as_json(
    capsys: pytest.CaptureFixture[str], words: Sequence[str], message: str
) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}\nUsage: switchboard")
    code, out, err = run(capsys, *words, "--json")
    assert (code, json.loads(out)) == (2, {"error": {"code": "usage", "message": message}})


def test_nothing_to_say_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "chat", "--once", " ")
    assert (code, err) == (1, "error: there is nothing to send: the text is empty\n")


def test_the_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"switchboard {__version__}\n", "")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("dairy", "; did you mean System1/diary?"),
        ("System1/dairy", "; did you mean System1/diary?"),
        ("xyz", "; there are: System1/diary, System4/root"),
    ],
)
def test_a_name_that_is_not_there_gets_those_that_are(name: str, hint: str) -> None:
    rows = [{"system_id": "System1/diary"}, {"system_id": "System4/root"}]
    with pytest.raises(NotFound) as refused:
        one_of(rows, "system_id", name, "agent")
    assert refused.value.message == f"there is no agent '{name}'{hint}"


@pytest.mark.parametrize(
    ("errors", "warnings", "said"),
    [(0, 0, "No errors, no warnings"), (0, 2, "No errors, 2 warnings"), (1, 1, "1 error, 1 warning")],
)
def test_what_doctor_found_in_a_line(errors: int, warnings: int, said: str) -> None:
    assert summary(errors, warnings) == said
