"""`switchboard rules`, `sops`, `audit` and dry runs against a real server: what they say, do, and exit with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.commands import Cli, ask, envelope, served
from tests.postgres import Postgres
from tests.processes import Server, butler, write_teams

ROOT = {
    "team": {"name": "root"},
    "systems": [butler("memo"), butler("diary"), {"type": "control"}, {"type": "intelligence"}],
    "routing_rules": [
        {"name": "chat", "channel": "telegram", "targets": [{"system_id": "System1/memo"}]},
        {"name": "money", "channel": "email", "targets": [{"team_id": "finance"}]},
    ],
}
FINANCE = {
    "team": {"name": "finance", "parent": "root"},
    "systems": [butler("accountant") | {"capabilities": ["books"]}, {"type": "control"}, {"type": "intelligence"}],
    "routing_rules": [{"name": "all", "channel": "*", "targets": [{"system_id": "System1/accountant"}]}],
}
EXAMPLES = Path(__file__).parents[2] / "src/switchboard/examples"
WHY = ("--reason", "a test")


@pytest.fixture(scope="module")
def server(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`switchboard up` on a database of its own, with some messages in it."""
    with served(postgres, tmp_path_factory.mktemp("cli-rules"), ROOT, FINANCE) as started:
        yield started


@pytest.fixture
def cli(server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """Commands of the operator. Afterwards the rules are again those that were seeded."""
    made = Cli(capsys, monkeypatch, server.environment)
    yield made
    made.json("rules", "restore", 1, "--reason", "after a test")


def create(cli: Cli, *more: object, name: str = "new", channel: str = "slack") -> dict[str, Any]:
    """Make a rule of root."""
    wanted = ("--team", "root", "--name", name, "--channel", channel, "--to", "System1/diary", *WHY)
    return cli.json("rules", "create", *wanted, *more)


def rules(cli: Cli) -> dict[str, dict[str, Any]]:
    """The rules of root by name."""
    return {one["name"]: one for one in cli.json("rules", "list", "--team", "root")["rules"]}


def heard(number: str, **source: str) -> str:
    """A message arrives; its id."""
    return str(ask(lambda c: c.post("/v1/ingest", envelope(number, **source)))["request_id"])


def write(path: Path, document: Mapping[str, Any] | str) -> Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


# Edit ---------------------------------------------------------------------------------------------------------------


def test_a_rule_from_its_making_to_its_end(cli: Cli) -> None:
    heard("life", channel="slack")
    said = cli.says(
        *("rules", "create", "--team", "root", "--name", "slack", "--channel", "slack", "--to", "System1/diary"),
        *("--filter", "sender=alice", "--priority", 3, "--reason", "somebody asked"),
    )
    assert "1 rule changed:" in said
    assert "+ root  slack  slack sender=alice → System1/diary  priority 3" in said
    assert "would now be routed differently" in said
    assert "dead letter of root (no_route) → System1/diary" in said
    made = rules(cli)["slack"]
    assert made["rule_id"] in said
    assert (made["filters"], made["priority"], made["active"]) == ({"sender": "alice"}, 3, True)

    identity = made["rule_id"]
    said = cli.says("rules", "update", identity, "--priority", 9, "--no-filters", "--to", "System1/memo", *WHY)
    for line in ("filters  sender=alice → none", "targets  System1/diary → System1/memo", "priority  3 → 9"):
        assert line in said
    several = ("--filter", "sender=alice", "--filter", "sender=bob", "--filter", "thread=t")
    assert "filters  none → sender=alice sender=bob thread=t" in cli.says("rules", "update", identity, *several, *WHY)
    assert rules(cli)["slack"]["filters"] == {"sender": ["alice", "bob"], "thread": "t"}
    facts = ("--facts", "channel=slack", "--facts", "sender=carl", "--facts", "thread=t")
    assert "sender should be 'alice' or 'bob', it is 'carl'" in cli.says("explain", *facts)
    assert "active  true → false" in cli.says("rules", "disable", identity, *WHY)
    assert rules(cli)["slack"]["active"] is False
    assert "active  false → true" in cli.says("rules", "enable", identity, *WHY)

    shown = cli.says("rules", "show", identity)
    assert "somebody asked" in shown
    assert shown.count("\n\nversion ") == 5
    history = cli.json("rules", "show", identity)["history"]
    assert sorted(entry["reason"] for entry in history) == ["a test"] * 4 + ["somebody asked"]


def test_rules_are_listed_in_the_order_of_looking(cli: Cli) -> None:
    create(cli, "--priority", 50, name="first of all")
    create(cli, name="default", channel="*")
    lines = cli.says("rules", "list", "--team", "root").splitlines()
    places = [next(n for n, line in enumerate(lines) if f" {name} " in line) for name in
              ("first of all", "chat", "default")]  # fmt: skip
    assert places == sorted(places)
    page = cli.json("rules", "list", "--limit", 1)
    assert len(page["rules"]) == 1
    assert f"--cursor {page['next_cursor']}" in cli.says("rules", "list", "--limit", 1)


def test_a_dry_run_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    version = cli.json("rules", "list")["version"]
    wanted = ("--team", "root", "--name", "x", "--channel", "slack", "--to", "System1/diary", "--dry-run")
    assert "nothing is written; it would change 1 rule" in cli.says("rules", "create", *wanted)
    chat = rules(cli)["chat"]["rule_id"]
    assert "active  true → false" in cli.says("rules", "disable", chat, "--dry-run")
    assert "priority  0 → 4" in cli.says("rules", "update", chat, "--priority", 4, "--dry-run")
    empty = write(tmp_path / "empty.json", {"format": "switchboard.rules.v1", "teams": {"root": []}})
    said = cli.says("rules", "import", empty, "--dry-run")
    assert "nothing is written; it would change 2 rules" in said
    assert "- root  chat" in said
    assert cli.json("rules", "list")["version"] == version
    assert rules(cli)["chat"]["active"]


def test_a_rule_that_somebody_else_changed_meanwhile(cli: Cli) -> None:
    made = create(cli)["rule"]
    cli.json("rules", "update", made["rule_id"], "--priority", 1, "--reason", "the other one")
    never = cli.json("rules", "update", made["rule_id"], "--priority", 2, "--version", 10_000, *WHY, code=1)["error"]
    assert "never had version 10000" in never["message"]
    stale = ("rules", "update", made["rule_id"], "--priority", 2, "--version", made["version"], *WHY)
    error = cli.json(*stale, code=1)["error"]
    assert error["code"] == "conflict"
    assert "the other one" in error["message"]
    assert rules(cli)["new"]["priority"] == 1
    assert "nothing to change" in cli.says("rules", "update", made["rule_id"], "--priority", 1, *WHY)


def test_what_makes_no_sense_is_refused_with_what_would(cli: Cli) -> None:
    wrong = ("--team", "root", "--name", "x", "--channel", "telegrm", "--to", "System1/diry", *WHY)
    code, out, err = cli.run("rules", "create", *wrong)
    assert (code, out) == (1, "")
    assert "telegram" in err
    assert "System1/diary" in err
    assert cli.run("rules", "create", *wrong[:6], "--to", "System1/diary", "--filter", "sender", *WHY)[0] == 2


@pytest.mark.parametrize("command", ["disable", "enable", "show"])
def test_a_rule_that_is_not_there(cli: Cli, command: str) -> None:
    why = () if command == "show" else WHY
    assert cli.json("rules", command, uuid4(), *why, code=5)["error"]["code"] == "not_found"
    assert "no rule has the name no-id" in cli.run("rules", command, "no-id", *why)[2]


def test_an_edit_without_a_reason_or_without_a_change_is_a_usage_error(cli: Cli) -> None:
    chat = rules(cli)["chat"]["rule_id"]
    code, _, err = cli.run("rules", "disable", chat, given="")
    assert code == 2
    assert "--reason" in err
    assert cli.run("rules", "update", chat, *WHY)[0] == 2
    assert cli.run("rules", "update", chat, "--filter", "sender=a", "--no-filters", *WHY)[0] == 2
    assert cli.run("rules", "disable", chat, "--reason", "")[0] == 2


def test_half_a_name_and_an_unknown_team(cli: Cli) -> None:
    code, _, err = cli.run(
        *("rules", "create", "--team", "root", "--name", "x", "--channel", "sms"), "--to", "diry", *WHY
    )
    assert (code, "System1/diary" in err) == (1, True)
    assert cli.run("rules", "list", "--team", "financ")[0] != 0
    cli.json("rules", "disable", rules(cli)["chat"]["rule_id"], *WHY)
    [line] = [line for line in cli.says("teams", "list").splitlines() if "rule chat" in line]
    assert line.endswith("  off")


def test_a_token_for_nobody_warns_and_an_unbound_one_is_a_usage_error(cli: Cli) -> None:
    agent = ("tokens", "create", "--role", "agent")
    code, out, err = cli.run(*agent, "typo", "--system", "System1/diry")
    assert (code, out.startswith("sb_")) == (0, True)
    assert "warning: no team has an active member System1/diry; did you mean System1/diary" in err
    assert "warning" not in cli.run(*agent, "right", "--system", "System1/diary")[2]
    connector = ("tokens", "create", "--role", "connector", "--endpoint", "bot")
    code, out, err = cli.run(*connector, "nowhere", "--channel", "telegramm")
    assert (code, out.startswith("sb_")) == (0, True)
    assert "warning: there is no channel 'telegramm'; did you mean telegram" in err
    assert "warning" not in cli.run(*connector, "somewhere", "--channel", "telegram")[2]
    code, _, err = cli.run(*agent, "unbound")
    assert (code, "--system" in err) == (2, True)
    assert cli.run("tokens", "create", "o", "--role", "operator", "--system", "System1/diary")[0] == 2


def test_only_who_may_edits_and_refusals_are_on_record(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = {
        system: cli.json("tokens", "create", name, "--role", "agent", "--system", system)["token"]
        for name, system in (("control", "System3/finance"), ("outlook", "System4/root"))
    }
    for system, token in tokens.items():
        with monkeypatch.context() as patch:
            patch.setenv("SWITCHBOARD_TOKEN", token)
            chat = ("rules", "create", "--name", "x", "--channel", "sms", "--to", "System1/diary", *WHY)
            assert cli.json(*chat, "--team", "root", code=4)["error"]["code"] == "forbidden"
            assert cli.json("audit", "list", code=4)["error"]["code"] == "forbidden"
            if system == "System3/finance":
                own = ("--name", "x", "--channel", "sms", "--to", "System1/accountant", *WHY)
                made = cli.json("rules", "create", "--team", "finance", *own)
                assert made["rule"]["created_by"] == "control (System3/finance)"
    said = cli.says("audit", "list", "--limit", 200)
    assert "outlook" in said
    assert "control" in said
    entries = cli.json("audit", "list", "--limit", 200)["entries"]
    [kind] = {entry["action"] for entry in entries if entry["actor"] == "outlook"
              and "rules_edit" in json.dumps(entry)}  # fmt: skip
    assert {e["action"] for e in cli.json("audit", "list", "--action", kind)["entries"]} == {kind}
    for entry in (entries[0], entries[len(entries) // 2], entries[-1]):
        assert entry["audit_id"] in said
        assert cli.json("audit", "show", entry["audit_id"]) == entry
        assert cli.json("audit", "show", entry["audit_id"][:35]) in entries
        shown = cli.says("audit", "show", entry["audit_id"])
        assert [word for word in (entry["actor"], entry["action"], entry["audit_id"]) if word not in shown] == []
    assert cli.json("audit", "show", entries[0]["audit_id"][:4], code=1)["error"]["code"] == "ambiguous_id"
    assert cli.run("audit", "show", "00000000")[0] == 5
    assert cli.run("audit", "show", "everything")[0] == 2


# Try ----------------------------------------------------------------------------------------------------------------

CASES = """
cases:
  - name: mail goes to the accountant
    facts: {channel: email, email_domain: tax.example}
    expect: System1/accountant
  - name: a chat goes to the diary
    facts: {channel: telegram, telegram_chat_id: 5}
    expect: System1/diary
"""


def test_cases_that_fail_say_why(cli: Cli, tmp_path: Path) -> None:
    file = write(tmp_path / "cases.yaml", CASES)
    said = cli.says("rules", "test", file, code=1)
    assert "✗ a chat goes to the diary" in said
    assert "expected  System1/diary" in said
    assert "got       System1/memo" in said
    assert "team root: rule 'chat'" in said
    assert said.endswith("1 of 2 cases failed\n")
    outcomes = cli.json("rules", "test", file, code=1)
    assert (outcomes["passed"], outcomes["failed"]) == (1, 1)
    cli.json("rules", "update", rules(cli)["chat"]["rule_id"], "--to", "System1/diary", *WHY)
    assert cli.says("rules", "test", file) == "all 2 cases passed\n"
    assert cli.json("rules", "test", write(tmp_path / "bad.yaml", "cases: 1"), code=1)["error"]["field"]
    assert "other.yaml has no cases" in cli.run("rules", "test", write(tmp_path / "other.yaml", "systems: []"))[2]
    rule_file = write(tmp_path / "rules.json", {"format": "switchboard.rules.v1", "teams": {}})
    assert "is a rule file" in cli.json("rules", "test", rule_file, code=1)["error"]["message"]


def test_lint_finds_what_never_fires(cli: Cli) -> None:
    assert cli.run("rules", "lint")[0] == 0
    made = cli.says(*("rules", "create", "--team", "root", "--name", "never", "--channel", "telegram"),
                    *("--filter", "sender=a", "--priority", -5, "--to", "System1/diary", *WHY))  # fmt: skip
    assert "never" in made
    assert "warning" in made
    said = cli.says("rules", "lint")
    assert "never" in said
    found = {(one["rule_name"], one["code"]) for one in cli.json("rules", "lint")["findings"]}
    assert ("never", "shadowed") in found


def test_a_backtest_shows_what_would_go_elsewhere(cli: Cli, tmp_path: Path) -> None:
    sent = heard("backtest")
    chat = rules(cli)["chat"]["rule_id"]
    said = cli.says("rules", "backtest", "--last", 500, "--rule", chat, "--set", "to=System1/diary")
    assert "would be routed differently" in said
    assert f"{sent}  System1/memo  System1/diary" in said
    nothing = cli.json("rules", "backtest", "--days", 1, "--rule", chat, "--set", "name=other")
    assert nothing["changed"] == 0
    assert nothing["looked_at"] > 0
    only_mail = {"name": "money", "channel": "email", "targets": [{"team_id": "finance"}]}
    file = write(tmp_path / "r.json", {"format": "switchboard.rules.v1", "teams": {"root": [only_mail]}})
    example = cli.json("rules", "backtest", "--file", file)["examples"][0]
    assert example["after"] == {"butlers": [], "dead_letters": [{"team": "root", "category": "no_route"}], "models": []}
    assert cli.json("rules", "backtest", "--rule", chat, "--set", "to=nowhere", code=1)["error"]["code"]
    for usage in ((), ("--rule", chat, "--file", file), ("--file", file, "--last", 1, "--days", 1)):
        assert cli.run("rules", "backtest", *usage)[0] == 2


def test_explain_a_message_that_does_not_exist(cli: Cli, tmp_path: Path) -> None:
    said = cli.says("explain", "--facts", "channel=telegram", "--facts", "telegram_chat_id=5")
    assert "it would go to System1/memo" in said
    assert "✓ chat" in said
    file = write(tmp_path / "e.json", envelope("never", channel="sms"))
    found = cli.json("explain", "--dry-run", file)
    assert found["receivers"]["dead_letters"] == [{"team": "root", "category": "no_route"}]
    assert found["facts"]["channel"] == "sms"
    said = cli.says("explain", "--dry-run", file)
    assert "≈ nearest: " in said
    assert "it would become a dead letter of root (no_route)" in said
    given = cli.json("explain", "--facts", "channel=email", "--facts", "email_domain=a.example")["facts"]
    assert list(given) == ["channel", "email_domain", "email_parent_domain"]
    mail = cli.json("explain", "--facts", "channel=email", "--facts", "email_sender=a@tax.example")
    assert mail["facts"]["email_domain"] == "tax.example"
    assert cli.json("explain", "--facts", "chanel=sms", code=1)["error"]["code"]
    assert cli.run("explain", "--facts", "channel")[0] == 2
    for usage in ((), ("--facts", "channel=sms", "--dry-run", file), (uuid4(), "--facts", "channel=sms")):
        assert cli.run("explain", *usage)[0] == 2


def test_explain_where_a_mail_would_go(cli: Cli) -> None:
    said = cli.json("explain", "--dry-run", EXAMPLES / "inbox/eml/tax.eml", "--endpoint", "us@home.example")
    assert (said["facts"]["email_domain"], said["facts"]["endpoint"]) == ("tax.example", "us@home.example")
    assert said["receivers"]["butlers"] == ["System1/accountant"]


def test_a_butler_is_known_by_its_name_alone(cli: Cli) -> None:
    made = create(cli, "--to", "System1/memo", name="alias")["rule"]
    changed = cli.json("rules", "update", made["rule_id"], "--to", "diary", *WHY)
    assert changed["rule"]["targets"] == [{"system_id": "System1/diary"}]
    assert cli.json("rules", "update", made["rule_id"], "--to", "finance", *WHY)["rule"]["targets"] == [
        {"team_id": "finance"}
    ]
    assert cli.run("rules", "update", made["rule_id"], "--to", "nobody", *WHY)[0] == 1
    changed = cli.json("rules", "backtest", "--rule", made["rule_id"], "--set", "to=memo", "--set", "name=x")
    assert {to for one in changed["examples"] for to in one["after"]["butlers"]} <= {"System1/memo"}
    assert cli.json("agents", "show", "accountant")["system_id"] == "System1/accountant"
    assert "warning" not in cli.run("tokens", "create", "d", "--role", "agent", "--system", "diary")[2]


def test_no_cases_are_no_mistake_but_no_test_of_an_import(cli: Cli, tmp_path: Path) -> None:
    cases = write(tmp_path / "cases.json", cli.json("models", "log", "--corrected", "--as-cases"))
    assert cli.says("rules", "test", cases) == "there are no cases\n"
    rules_file = tmp_path / "rules.yaml"
    cli.says("rules", "export", rules_file)
    code, _, err = cli.run("rules", "import", rules_file, "--tests", cases, *WHY)
    assert (code, "at least one case" in err) == (1, True)


def test_rules_of_no_team_and_of_an_empty_one_can_be_exported_and_imported(cli: Cli, tmp_path: Path) -> None:
    for suffix in ("json", "yaml"):
        file = tmp_path / f"empty.{suffix}"
        document = cli.json("rules", "export", "--team", "finance")
        file.write_text(json.dumps({**document, "teams": {"finance": []}}))
        cli.says("rules", "import", file, *WHY)
        cli.says("rules", "export", file, "--team", "finance")
        assert "nothing to change" in cli.says("rules", "import", file, *WHY)


# Versions and files -------------------------------------------------------------------------------------------------


def test_versions_can_be_looked_at_compared_and_restored(cli: Cli) -> None:
    before = cli.json("rules", "list")["version"]
    first = create(cli, name="one")["version"]
    made = create(cli, name="two")
    second, gone = made["version"], made["rule"]["rule_id"]
    assert before < first < second
    listed = cli.json("rules", "versions", "--limit", 2)["versions"]
    assert [one["version"] for one in listed] == [second, first]
    assert "a test" in cli.says("rules", "versions")
    assert "more: switchboard rules versions --cursor" in cli.says("rules", "versions", "--limit", 2)
    assert "+ root  two" in cli.says("rules", "versions", second)
    assert cli.says("rules", "diff", before, first).splitlines()[1:] == ["+ root  one  slack → System1/diary"]
    said = cli.says("rules", "diff", first)
    assert "+ root  two" in said
    assert "one" not in said
    assert "no rule differs" in cli.says("rules", "diff", second)
    cli.says("rules", "disable", gone, *WHY)
    last = cli.json("rules", "enable", gone, *WHY)["version"]
    assert cli.says("rules", "diff", second).splitlines()[1:] == ["no rule differs"]
    assert last > second
    assert "- root  two" in cli.says("rules", "restore", first, *WHY)
    assert {"one", "chat", "money"} == rules(cli).keys()
    assert "state     removed" in cli.says("rules", "show", gone)
    code, _, err = cli.run("rules", "enable", gone, *WHY)
    assert (code, f"rules restore {last}" in err) == (5, True)
    assert cli.json("rules", "restore", 10_000, *WHY, code=5)["error"]["code"] == "not_found"
    assert cli.json("rules", "restore", 1, "--expect", 1, *WHY, code=1)["error"]["code"] == "conflict"


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_what_is_exported_can_be_imported_again(cli: Cli, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"rules.{suffix}"
    create(cli, "--filter", "sender=0123", name="yes")
    assert "rules of version" in cli.says("rules", "export", file)
    assert "nothing to change" in cli.says("rules", "import", file, *WHY)
    cli.json("rules", "disable", rules(cli)["yes"]["rule_id"], *WHY)
    assert "active  false → true" in cli.says("rules", "import", file, "--dry-run")
    assert "active  false → true" in cli.says("rules", "import", file, *WHY)
    assert rules(cli)["yes"]["filters"] == {"sender": "0123"}
    assert json.loads(cli.says("rules", "export", "--team", "finance"))["teams"].keys() == {"finance"}
    assert {one["name"] for one in cli.json("rules", "export", "--version", 1)["teams"]["root"]} == {"chat", "money"}


def test_a_team_file_is_no_rule_file(cli: Cli, tmp_path: Path) -> None:
    file = write_teams(tmp_path, ROOT) / "root.json"
    for command in (("import", file, *WHY), ("backtest", "--file", file)):
        code, _, err = cli.run("rules", *command)
        assert code == 1
        assert err.startswith(f"error: {file} is a team file: its rules only seed a new team.")
        assert "switchboard rules export" in err


def test_an_import_whose_cases_fail_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    cases = write(tmp_path / "cases.yaml", CASES)
    diary = [{"name": "chat", "channel": "telegram", "targets": [{"system_id": "System1/diary"}]}]
    money = {"name": "money", "channel": "email", "targets": [{"team_id": "finance"}]}
    without = write(tmp_path / "without.json", {"format": "switchboard.rules.v1", "teams": {"root": diary}})
    version = cli.json("rules", "list")["version"]
    code, out, err = cli.run("rules", "import", without, "--tests", cases, *WHY)
    assert code == 1
    assert "✗ mail goes to the accountant" in out
    assert "nothing was written" in err
    error = cli.json("rules", "import", without, "--tests", cases, *WHY, code=1)["error"]
    assert (error["code"], error["details"]["failed"]) == ("route_tests_failed", 1)
    assert cli.json("rules", "list")["version"] == version
    good = write(tmp_path / "good.json", {"format": "switchboard.rules.v1", "teams": {"root": [*diary, money]}})
    said = cli.says("rules", "import", good, "--tests", cases, *WHY)
    assert "targets  System1/memo → System1/diary" in said
    assert cli.says("rules", "test", cases) == "all 2 cases passed\n"


# SOPs ---------------------------------------------------------------------------------------------------------------

SOP = """
name: First run
routing_requirements:
  - {name: letters, team: root, target: finance, channel: signal}
  - {name: books, team: finance, role: books, channel: signal, filters: {signal_user_id: 7}}
"""


def test_an_sop_registers_and_takes_out_its_own_rules(cli: Cli, tmp_path: Path) -> None:
    file = write(tmp_path / "sop.yaml", SOP)
    assert "nothing is written; it would change 2 rules" in cli.says("sops", "load", file, "--dry-run")
    said = cli.says("sops", "load", file, *WHY)
    assert "2 rules changed" in said
    assert "+ finance  books  signal signal_user_id=7 → System1/accountant" in said
    assert "nothing to change" in cli.says("sops", "load", file, *WHY)
    assert {one["name"] for one in cli.json("rules", "list", "--source", "sop:First run")["rules"]} == {
        "letters",
        "books",
    }
    assert "sop:First run" in cli.says("rules", "list")
    assert "First run" in cli.says("sops", "list")
    assert [one["source"] for one in cli.json("sops", "list")["sops"]] == ["sop:First run"]
    shown = cli.says("sops", "show", "First run")
    assert [word for word in ("2 of 2 rules", "finance", "letters", "books") if word not in shown] == []
    assert {one["name"] for one in cli.json("sops", "show", "First run")["rules"]} == {"letters", "books"}
    code, _, err = cli.run("sops", "show", "First rum")
    assert (code, "did you mean First run?" in err) == (5, True)
    assert cli.says("sops", "unload", "First run", *WHY).count("active  true → false") == 2
    assert not any(one["active"] for one in cli.json("rules", "list", "--source", "sop:First run")["rules"])
    assert cli.run("sops", "unload", "nobody", *WHY)[0] == 5
    assert cli.run("sops", "load", write(tmp_path / "x.yaml", "routing_requirements: []"), *WHY)[0] == 1
