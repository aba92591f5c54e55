"""What commands write is safe on a terminal, readable by machines, and exits with the right code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from rich.text import Text

from switchboard.app.whereabouts import url_of
from switchboard.cli.demo.demonstration import run_demo
from switchboard.cli.main import COMMANDS, CommandEntry, build, load, main
from switchboard.cli.output import (
    NoServer,
    clean,
    details,
    exit_code,
    more,
    one_line,
    out,
    print_json,
    prompt_for,
    report,
    table,
    when,
)
from switchboard.domain.errors import (
    ConfigurationError,
    Forbidden,
    InvalidInput,
    NotFound,
    Overloaded,
    SwitchboardError,
    Unauthenticated,
    Unavailable,
)


def test_strangers_cannot_steer_the_terminal() -> None:
    wicked = "a\x1b]0;title\x07b\x9b31mc\u202ed\r\ne\tf"
    assert clean(wicked) == "a]0;titleb31mcd\ne\tf"
    unseen = "ac\u200bcou\u2060nt\u00ad\ufeff\u061c\u2028\U000e0041"
    assert clean(unseen) == "account"
    assert clean("\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \U0001f469\u200d\U0001f680") == (
        "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \U0001f469\u200d\U0001f680"
    ), "joiners are part of words and of signs"
    assert one_line("x \n  y" + "z" * 300, 10) == "x yzzzzzz…"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInput("x"), 1),
        (ConfigurationError("x"), 1),
        (Unavailable("x"), 1),
        (Overloaded("x", retry_after=2), 1),
        (NoServer("x"), 3),
        (Unauthenticated("x"), 4),
        (Forbidden("x"), 4),
        (NotFound("x"), 5),
    ],
)
def test_exit_codes(error: SwitchboardError, code: int) -> None:
    assert exit_code(error) == code


def test_errors_go_to_stderr_and_as_json_to_stdout_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(InvalidInput("[red]bad\x1b[0m", field="text"), as_json=True) == 1
    said = capsys.readouterr()
    assert json.loads(said.out) == {"error": {"code": "invalid_input", "message": "[red]bad\x1b[0m", "field": "text"}}
    assert said.err == "error: [red]bad[0m\n"


def test_several_problems_of_rules_have_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    error = InvalidInput("all in one; line")
    error.details = {
        "problems": [{"rule": "a", "message": "no such team"}, {"rule": "b", "message": "no such channel"}]
    }
    assert report(error, as_json=True) == 1
    said = capsys.readouterr()
    assert said.err == "error: rule 'a': no such team\n       rule 'b': no such channel\n"
    assert json.loads(said.out)["error"]["details"] == error.details


def test_json_is_one_line_of_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"text": "ü\x9b\n"})
    said = capsys.readouterr().out
    assert said.isascii()
    assert said.count("\n") == 1


def test_tables_keep_what_must_not_be_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    identity = "0199f3c2-0000-7000-8000-000000000000"
    out().print(table("id", "text", rows=[(identity, "x" * 200), (Text(identity), None)], keep=("id",)))
    said = capsys.readouterr().out
    assert said.count(identity) == 2
    assert "…" in said
    assert max(map(len, said.splitlines())) <= 60


def test_times_are_local_and_what_is_none_is_kept() -> None:
    assert len(when("2026-11-21T12:00:00.123Z")) == 19
    assert when(None) == ""
    assert when("soon") == "soon"


def test_all_commands_have_a_place_and_a_summary() -> None:
    assert len({entry.name for entry in COMMANDS}) == len(COMMANDS)
    names = (
        "init up serve work connect demo chat send import messages explain teams agents rules sops dlq memory "
        "models mcp approvals channels connectors pairing quarantine webhooks outbox lanes tokens audit doctor db "
        "people modules tasks bench version spending plans backup restore monitoring service examples upgrade "
        "open web-sessions status conversations setup"
    )
    assert set(names.split()) == {entry.name for entry in COMMANDS}
    assert isinstance(build(["--help"]), typer.Typer)


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_whatever_is_listed_can_be_shown(entry: CommandEntry) -> None:
    found = load(entry.place)
    if isinstance(found, typer.Typer):
        names = {command.name for command in found.registered_commands}
        # Of a session nothing more is known than the list says, and there is one first run.
        assert ("list" in names) == ("show" in names) or entry.name in {"web-sessions", "setup"}


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        ("::", "http://127.0.0.1:1"),
        ("::1", "http://[::1]:1"),
        ("h", "http://h:1"),
    ],
)
def test_the_url_of_a_host(host: str, url: str) -> None:
    assert url_of(host, 1) == url


def test_the_demo_wants_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(ConfigurationError, match="not an empty directory"):
        run_demo(tmp_path, keep=False, console=out())


@pytest.mark.parametrize("sizes", ["", "x", "10,x", "5"])
def test_sizes_of_a_bench_that_are_none(sizes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "route", "--sizes", sizes])
    assert ended.value.code == 2
    assert "at least 10" in capsys.readouterr().err


def test_tables_go_on_in_a_second_line_where_one_is_too_short(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "66")
    identity = "0199f3c2-0000-7000-8000-000000000000"
    rows = [
        (identity, "11-22 00:53:53", "telegram", "someone@a-long-name.example", Text("answered"), "w " * 90),
        (identity, "11-22 00:53:53", "cli", None, Text("dead"), None),
    ]
    out().print(table("id", "received", "channel", "sender", "state", "text", rows=rows, keep=("id", "received")))
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said] == [
        "id",
        "sender",
        identity,
        "someone@a-long-name.exa…",
        identity,
        "dead",
    ]
    assert said[0].split() == ["id", "received", "channel"]
    assert said[1].split() == ["sender", "state", "text"]
    assert said[3].split()[1] == "answered"
    assert said[3].endswith("…")
    assert max(map(len, said)) <= 66


def test_a_row_is_one_line_at_80_columns_if_its_columns_have_eight_cells(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    row = ("0199f3c2-0000-7000-8000-0000000a1b2c", "11-22 00:53:53", "answered", "telegram", "someone@a-long.example")
    names = ("id", "received", "state", "channel", "sender", "went to", "text")
    rows = [(*row, "System1/parrot", "w " * 90), (*row, "System1/clerk, System1/parrot", "")]
    out().print(table(*names, rows=rows, keep=names[:3], room=12))
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["id", "received", "state", "channel", "sender", "went", "to", "text"]
    assert first.split()[:7] == ["000a1b2c", "11-22", "00:53:53", "answered", "telegram", "someone…", "parrot"]
    assert "clerk, …" in second
    assert max(map(len, (head, first, second))) <= 80


def test_the_first_line_of_a_row_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    rows = [("s1", "tool", "https://a.example/a/very/long/address/of/a/page", "r" * 30, "404 " * 20)]
    out().print(table("step", "action", "input", "result", "why", rows=rows, keep=("step",), wrap=True))
    said = capsys.readouterr().out.splitlines()
    assert [len(line) - len(line.lstrip()) for line in said] == [0, 4, 0, 4, 4]
    assert max(map(len, said)) <= 60


@pytest.mark.parametrize("detail", ["", "a word", "many words " * 30])
def test_a_question_leaves_room_for_its_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, detail: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    asked = prompt_for("imap.host", detail)
    said = capsys.readouterr().err
    assert len(asked) <= 60
    assert " ".join((asked + " " + said).split()).count("word") == detail.count("word")
    assert max(map(len, said.splitlines()), default=0) <= 80


def test_no_name_makes_a_row_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    name = "Ann\n0199f3c2 approved  Boss\r\n"
    out().print(table("id", "name", "state", rows=[("1", name, "stranger")]))
    out().print(table("id", "name", rows=[("1", name)], keep=("id",)))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["id", "1", "id", "1"]
    out().print(details([("text", name)]))
    shown = capsys.readouterr().out.splitlines()
    assert [line[:4].strip() for line in shown[:2]] == ["text", ""], "a value may have lines, below one another"


def test_the_next_page_is_the_same_question() -> None:
    assert more("dlq list", cursor="a b", limit=5, team=None) == "more: switchboard dlq list --cursor 'a b' --limit 5"
