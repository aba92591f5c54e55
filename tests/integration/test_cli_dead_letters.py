"""`switchboard dlq` against a real server: what it sends on and closes, asks before, and says afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from switchboard.domain.errors import InvalidInput
from tests.commands import Cli, ask, envelope, served
from tests.postgres import Postgres
from tests.processes import Server, butler

TEAM = {
    "team": {"name": "root"},
    "purpose": "Everything",
    "systems": [butler("memo"), butler("loud", ["echo", "HERE"]), {"type": "intelligence"}],
    "routing_rules": [{"name": "chat", "channel": "telegram", "targets": [{"system_id": "System1/memo"}]}],
}


SOME_ID = "01a20093-b1b4-7ba6-b8ce-1c023e3a87ef"


@pytest.fixture(scope="module")
def server(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`switchboard up` on a database of its own."""
    with served(postgres, tmp_path_factory.mktemp("dlq"), TEAM) as started:
        yield started


@pytest.fixture
def cli(server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli(capsys, monkeypatch, server.environment)


def a_dead_letter(cli: Cli, channel: str = "sms") -> tuple[str, str]:
    """(its id, the request_id) of a message that nobody takes."""
    sent = ask(lambda c: c.post("/v1/ingest", envelope(str(uuid4()), channel=channel)))["request_id"]
    dead_letters: list[dict[str, Any]] = cli.json("dlq", "list", "--channel", channel)["dead_letters"]
    [dead_letter] = [x for x in dead_letters if x["request_id"] == sent]
    return dead_letter["dead_letter_id"], sent


def test_a_message_that_nobody_gets_is_said_to_be_a_dead_letter(cli: Cli) -> None:
    code, out, err = cli.run("send", "x")
    assert (code, err) == (
        0,
        f"note: no butler gets it: it is a dead letter; `switchboard explain {out.strip()}` says why\n",
    )


def test_one_is_sent_on_and_answered(cli: Cli) -> None:
    dead_letter, sent = a_dead_letter(cli)
    said = cli.says("dlq", "reroute", dead_letter, "--to", "System1/loud", "--reason", "loud can")
    assert f"{dead_letter} rerouted to System1/loud (decision 2)" in said
    assert "was already rerouted" in cli.says("dlq", "reroute", dead_letter, "--reason", "again")
    found = ask(lambda c: c.get(f"/v1/messages/{sent}/replies", {"wait_s": 20}))
    assert [reply["text"] for reply in found["replies"]] == ["HERE"]
    shown = cli.says("dlq", "show", dead_letter)
    assert "loud can" in shown
    assert "System1/loud" in shown
    assert "reroute" in cli.says("explain", sent)


def test_a_rule_of_it(cli: Cli) -> None:
    dead_letter, _ = a_dead_letter(cli, "signal")
    order = (
        "dlq",
        "reroute",
        dead_letter,
        "--to",
        "System1/loud",
        "--reason",
        "r",
        "--rule",
        "by signal",
        "--filter",
        "sender",
        "--priority",
        "7",
    )
    said = cli.says(*order)
    assert "1 rule changed:\n+ root  by signal  signal sender=" in said
    assert "→ System1/loud  priority 7" in said
    assert "of the last day" in said
    assert "its id is " in said
    accepted = ask(lambda c: c.post("/v1/ingest", envelope(str(uuid4()), channel="signal")))
    assert (accepted["triage_decision"], accepted["triage_target"]) == ("routed", "System1/loud")


def test_one_is_closed(cli: Cli) -> None:
    dead_letter, _ = a_dead_letter(cli)
    assert f"{dead_letter} is closed\n" == cli.says("dlq", "handle", dead_letter[:22], "--resolution", "spam")
    assert "was already closed" in cli.says("dlq", "handle", dead_letter, "--resolution", "spam")
    code, _, err = cli.run("dlq", "reroute", dead_letter, "--to", "System1/loud", "--reason", "r")
    assert code == 1
    assert "was closed by" in err
    assert cli.json("dlq", "handle", dead_letter, "--resolution", "x")["already"] is True


def test_many_are_looked_at_then_done_and_what_fails_is_named(cli: Cli) -> None:
    dead_letters = [a_dead_letter(cli, "irc")[0] for _ in range(3)]
    looking = ("dlq", "reroute", "--all", "--channel", "irc", "--to", "System1/loud", "--dry-run")
    looked = cli.json(*looking)
    assert (looked["matched"], looked["done"], looked["dry_run"]) == (3, 3, True)
    told = cli.says(*looking)
    assert "would be rerouted: 3 of 3 dead letters" in told
    assert all(f"  {dead_letter} → System1/loud" in told for dead_letter in dead_letters)
    code, out, err = cli.run("dlq", "reroute", "--all", "--channel", "irc", "--reason", "by rules", "--yes")
    assert code == 1
    assert "rerouted: 0 of 3 dead letters; 3 stay pending" in out
    assert all(dead_letter in err for dead_letter in dead_letters)
    assert "lead to no butler" in err
    said = cli.says("dlq", "reroute", *dead_letters[:2], "--to", "System1/loud", "--reason", "r")
    assert "rerouted: 2 of 2 dead letters\n" in said
    assert "closed: 1 of 1 dead letter\n" in cli.says(
        "dlq", "handle", "--all", "--channel", "irc", "--resolution", "old", "--yes"
    )


@pytest.mark.parametrize(
    "order",
    [
        ("dlq", "reroute", "--reason", "r"),
        ("dlq", "reroute", "--channel", "sms", "--reason", "r", "--yes"),
        ("dlq", "reroute", "--all", "--reason", "r"),
        ("dlq", "reroute", SOME_ID, "--all", "--reason", "r"),
        ("dlq", "reroute", SOME_ID),
        ("dlq", "reroute", "--all", "--rule", "n", "--reason", "r", "--yes"),
        ("dlq", "reroute", SOME_ID, "--filter", "sender", "--reason", "r"),
        ("dlq", "reroute", SOME_ID, "--to", "System1/loud", "--rule", "n", "--reason", "r"),
        ("dlq", "reroute", SOME_ID, "--to", "System1/loud", "--rule", "n", "--filter", "sender", "--dry-run"),
        ("dlq", "reroute", SOME_ID, "--priority", "5", "--reason", "r"),
        ("dlq", "reroute", SOME_ID, "--reason", ""),
        ("dlq", "handle", SOME_ID),
        ("dlq", "handle", SOME_ID, "--resolution", " "),
        ("dlq", "list", "--since", "yesterday"),
    ],
    ids=" ".join,
)
def test_what_is_not_said_clearly_is_not_done(cli: Cli, order: tuple[str, ...]) -> None:
    code, out, _ = cli.run(*order, given="")
    assert (code, out) == (2, "")


@pytest.mark.parametrize("filters", [{}, [], ["channel"]], ids=str)
def test_a_rule_of_it_that_would_take_everything(cli: Cli, filters: object) -> None:
    dead_letter, _ = a_dead_letter(cli, "slack")
    body = {"to": {"system_id": "System1/loud"}, "reason": "r", "rule": {"name": "all", "filters": filters}}
    with pytest.raises(InvalidInput, match=r"every message of slack; this one has .*sender") as refused:
        ask(lambda c: c.post(f"/v1/dead-letters/{dead_letter}/reroute", body))
    assert refused.value.field == "rule.filters"
    assert cli.json("dlq", "show", dead_letter)["status"] == "pending"


def test_a_list_says_who_wrote_what_and_which_team_is_unknown(cli: Cli) -> None:
    dead_letter, sent = a_dead_letter(cli, "matrix")
    [line] = [line for line in cli.says("dlq", "list", "--channel", "matrix").splitlines() if dead_letter in line]
    assert "hello" in line
    cli.says("dlq", "handle", dead_letter, "--resolution", "seen")
    assert cli.says("dlq", "list", "--channel", "matrix") == "none\n"
    assert dead_letter in cli.says("dlq", "list", "--channel", "matrix", "--all")
    explained = cli.says("explain", sent)
    assert "closed by operator-1" in explained
    assert "“seen”" in explained
    assert cli.says("dlq", "list", "--team", "root", "--system", "System1/none") == "none\n"
    code, _, err = cli.run("dlq", "list", "--team", "nobody")
    assert (code, "there is no team 'nobody'" in err) == (5, True)


def test_a_receiver_that_is_named_by_half(cli: Cli) -> None:
    dead_letter, _ = a_dead_letter(cli, "xmpp")
    code, _, err = cli.run("dlq", "reroute", dead_letter, "--to", "lout", "--reason", "r")
    assert (code, "neither a team nor a butler 'lout'; did you mean System1/loud?" in err) == (1, True)
    assert "System1/loud" in cli.says("dlq", "reroute", dead_letter[:22], "--to", "loud", "--reason", "r")


def test_one_that_is_not_there(cli: Cli) -> None:
    for order in (("reroute", "--to", "System1/loud", "--reason", "r"), ("handle", "--resolution", "r")):
        code, _, err = cli.run("dlq", order[0], uuid4(), *order[1:])
        assert (code, "there is no dead letter" in err) == (5, True)
