"""Every command of the command line against a real server, in one process of ours: what it says, and its exit code."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from switchboard.cli.client import Client
from switchboard.connectors.kernel.accounts import pause_file
from tests.commands import Cli, ask, envelope, served
from tests.postgres import Postgres
from tests.processes import Server, butler

TEAM = {
    "team": {"name": "root"},
    "purpose": "Everything",
    "systems": [
        butler("memo"),
        butler("loud", ["sed", "-E", r's/.*"normalized_text":"([^"]*)".*/\U\1/']),
        butler("silent", ["true"]),
        butler("stubborn", ["sh", "-c", "echo not my business >&2; exit 65"]),
        {"name": "System1/remote", "engine": "mcp", "config": {"url": "https://1.1.1.1/mcp"}},
        {"type": "intelligence"},
    ],
    "routing_rules": [
        {"name": "shouting", "channel": "cli", "targets": [{"system_id": "System1/loud"}]},
        {"name": "from api", "channel": "api", "targets": [{"system_id": "System1/memo"}], "priority": -1},
        {
            "name": "refused",
            "channel": "api",
            "filters": {"sender": "nuisance"},
            "targets": [{"system_id": "System1/stubborn"}],
        },
        {"name": "chat", "channel": "telegram", "targets": [{"system_id": "System1/memo"}]},
        {"name": "mail", "channel": "email", "targets": [{"system_id": "System1/memo"}]},
    ],
}


@pytest.fixture(scope="module")
def server(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`switchboard up` on a database of its own."""
    with served(postgres, tmp_path_factory.mktemp("cli"), TEAM) as started:
        yield started


@pytest.fixture
def cli(server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli(capsys, monkeypatch, server.environment)


def test_send_and_wait(cli: Cli) -> None:
    said = cli.json("send", "hello", "--channel", "cli", "--wait", 30)
    assert (said["state"], said["settled"], said["triage_target"]) == ("answered", True, "System1/loud")
    assert [reply["text"] for reply in said["replies"]] == ["HELLO"]
    assert cli.says("send", "-", "--channel", "cli", "--wait", 30, given="from stdin") == "System1/loud: FROM STDIN\n"


def test_send_is_idempotent_by_its_id(cli: Cli) -> None:
    event = str(uuid4())
    first = cli.json("send", "once", "--id", event, "--thread", "t", "--sender", "s", "--endpoint", "e")
    second = cli.json("send", "once", "--id", event, "--thread", "t", "--sender", "s", "--endpoint", "e")
    assert (first["duplicate"], second["duplicate"]) == (False, True)
    assert first["request_id"] == second["request_id"]
    again = ("send", "once", "--id", event, "--thread", "t", "--sender", "s", "--endpoint", "e")
    assert "it was stored before" in cli.says(*again)
    assert f"belongs to message {first['request_id']}" in cli.run(*again[:1], "other", *again[2:])[2]


def test_a_message_that_got_no_answer_can_be_sent_again_by_its_id(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing_connections() as url, monkeypatch.context() as patch:
        patch.setenv("SWITCHBOARD_URL", url)
        patch.setenv("SWITCHBOARD_TOKEN", "sb_o_any")
        code, _, err = cli.run("send", "once", "--id", "heron")
    assert code == 1
    assert "it may have been stored: to have it stored once, send it again with --id heron" in err


@pytest.mark.parametrize("option", ["--endpoint", "--sender", "--thread", "--id"])
def test_an_empty_option_of_send_is_no_default(cli: Cli, option: str) -> None:
    code, _, err = cli.run("send", "once", option, "")
    assert (code, f"{option}: must not be empty" in err) == (2, True)


@contextmanager
def closing_connections() -> Iterator[str]:
    """A server that takes a request and closes the connection."""

    def take(listening: socket.socket) -> None:
        with suppress(OSError):  # the test has ended
            while True:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65536)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        taking = Thread(target=take, args=(listening,))
        taking.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        taking.join()


def test_nothing_to_send_and_a_channel_that_is_not_there(cli: Cli) -> None:
    assert cli.json("send", "   ", code=1)["error"]["code"] == "empty_message"
    code, _, err = cli.run("send", "x", "--channel", "clli")
    assert (code, "'clli' is not one of 'api', 'cli'" in err) == (2, True)


def test_a_message_that_its_butler_refuses(cli: Cli) -> None:
    said = cli.json("send", "buy!", "--sender", "nuisance", "--wait", 30, code=1)
    assert said["state"] in ("dead", "declined")
    assert any("not my business" in reason for reason in said["reasons"])
    code, out, err = cli.run("send", "buy!", "--sender", "nuisance", "--wait", 30)
    assert (code, out) == (1, "")
    assert "dead letter" in err
    assert "not my business" in err


def test_chat_from_a_pipe_and_once(cli: Cli) -> None:
    out = cli.says("chat", "--thread", "s1", given="one\n\ntwo\n")
    assert out == "System1/loud: ONE\nSystem1/loud: TWO\n"
    assert cli.says("chat", "--once", "three") == "System1/loud: THREE\n"
    said = cli.json("chat", "--once", "four", "--thread", "s1")
    assert said["replies"][0]["text"] == "FOUR"
    message = cli.json("messages", "show", said["request_id"])
    assert (message["channel"], message["thread"]) == ("cli", "s1")


def test_bytes_that_are_no_text(cli: Cli) -> None:
    assert cli.run("send", "-", "--channel", "cli", "--wait", 30, given=b"caf\xe9")[1] == "System1/loud: CAF\ufffd\n"
    assert cli.run("chat", given=b"caf\xe9\n")[1] == "System1/loud: CAF\ufffd\n"
    assert cli.says("send", "caf\udce9", "--channel", "cli", "--wait", 30) == "System1/loud: CAF?\n"


def test_a_message_is_shown_with_whose_words_it_has(cli: Cli) -> None:
    mail = Path(__file__).parents[1] / "fixtures/mail/words/m38b_outlook_forward_renamed.eml"
    cli.json("import", mail, "--endpoint", "desk@home.example")
    [sent] = [m["request_id"] for m in cli.json("messages", "list", "--endpoint", "desk@home.example")["messages"]]
    shown = cli.says("messages", "show", sent)
    assert "\nPlease pay this by Friday.\n" in shown
    assert '[forwarded, says it is from "Shop shop@store.example"]\n| From: Shop <shop@store.example>\n' in shown
    passages = cli.json("messages", "show", sent)["envelope"]["payload"]["passages"]
    assert [one["kind"] for one in passages] == ["quoted", "own", "forwarded"]
    assert passages[1]["text"] == "Please pay this by Friday."


def test_messages(cli: Cli) -> None:
    sent = cli.json("send", "find me", "--endpoint", "messages", "--wait", 30)["request_id"]
    listed = cli.json("messages", "list", "--endpoint", "messages", "--channel", "api")
    assert [m["request_id"] for m in listed["messages"]] == [sent]
    assert sent[-8:] in cli.says("messages", "list")
    assert sent[-8:] in cli.says("messages", "list", "--limit", 500)
    assert "find me" in cli.says("messages", "show", sent)
    raw = json.loads(cli.says("messages", "raw", sent))
    assert raw["payload"]["normalized_text"] == "find me"
    assert cli.json("messages", "stop", sent)["stopped"] == 0
    assert cli.says("messages", "stop", sent) == "no turn is running\n"
    assert cli.json("messages", "raw", sent)["media_type"].startswith("application/json")


def test_the_command_to_stop_is_explained(cli: Cli) -> None:
    sent = cli.json("send", "/stop", "--endpoint", "stop", "--wait", 30)["request_id"]
    said = cli.says("explain", sent)
    for part in ("team root command for Switchboard itself, not for a butler", "→ switchboard", "Nothing is running."):
        assert part in said, said


def test_messages_are_listed_by_state_with_where_they_went(cli: Cli) -> None:
    sent = {
        who: cli.json("send", "x", "--endpoint", "states", "--sender", who, "--wait", 30, code=code)["request_id"]
        for who, code in (("nuisance", 1), ("anna", 0))
    }

    def listed(state: str) -> list[tuple[str, list[str]]]:
        page = cli.json("messages", "list", "--endpoint", "states", "--state", state)
        return [(one["request_id"], one["went_to"]) for one in page["messages"]]

    assert listed("answered") == [(sent["anna"], ["System1/memo"])]
    assert listed("dead") == [(sent["nuisance"], ["System1/stubborn"])]
    assert [listed(state) for state in ("in_flight", "declined", "cancelled")] == [[], [], []]
    said = cli.says("messages", "list", "--endpoint", "states")
    assert said.startswith("id ")
    assert re.search(r"dead +api +nuisance +stubborn", said)


def test_a_channel_that_is_not_there_has_no_list(cli: Cli) -> None:
    error = cli.json("messages", "list", "--channel", "telegramm", code=1)["error"]
    assert (error["code"], error["message"]) == (
        "unknown_channel",
        "there is no channel 'telegramm'; did you mean telegram or telegram_bot?",
    )
    said = cli.run("messages", "list", "--channel", "x")[2]
    assert "there is no channel 'x'; known here: activitywatch, api, " in said
    assert cli.says("messages", "list", "--channel", "discord") == "none\n"
    assert cli.json("dlq", "list", "--channel", "telegramm", code=1)["error"]["code"] == "unknown_channel"


def test_a_part_of_an_id_is_enough_if_only_one_has_it(cli: Cli) -> None:
    sent = cli.json("send", "short", "--wait", 30)["request_id"]
    for part in (
        sent,
        sent[:20],
        sent.replace("-", "")[:20],
        sent[:20].upper(),
        sent[-8:],
        sent.replace("-", "")[-14:],
    ):
        assert cli.json("messages", "show", part)["request_id"] == sent
        assert sent in cli.says("explain", part)
    other = cli.json("send", "short too", "--wait", 30)["request_id"]
    assert other[:6] == sent[:6]
    said = cli.json("explain", sent[:6], code=1)["error"]
    assert said["code"] == "ambiguous_id"
    assert "give more of the id" in said["message"]
    code, _, err = cli.run("explain", "ffff")
    assert (code, err) == (
        5,
        "error: no message has an id that begins or ends with ffff; see `switchboard messages list`\n",
    )


def test_an_id_of_something_else_is_said_to_be_that(cli: Cli) -> None:
    sent = cli.json("send", "x", "--sender", "nuisance", "--wait", 30, code=1)["request_id"]
    [dead] = cli.json("messages", "show", sent)["dead_letters"]
    letter = dead["dead_letter_id"]
    for given in (letter, letter[:22]):
        code, _, err = cli.run("explain", given)
        assert (code, err) == (
            5,
            f"error: {letter} is the id of a dead letter, not of a message: `switchboard dlq show {letter}`; "
            f"its message: `switchboard explain {sent}`\n",
        )
    shown = f"`switchboard messages show {sent}`"
    assert cli.run("dlq", "show", sent)[2].endswith(f"{sent} is the id of a message, not of a dead letter: {shown}\n")
    assert cli.json("dlq", "show", letter[:22])["dead_letter_id"] == letter
    assert cli.json("dlq", "handle", letter[:22], "--resolution", "done")["already"] is False
    assert letter not in cli.says("dlq", "list")
    assert letter in cli.says("dlq", "list", "--all")


def test_what_explain_is_asked_wrongly(cli: Cli) -> None:
    assert "'channel' must be KEY=VALUE" in cli.run("explain", "--facts", "channel")[2]
    assert (
        "'sender=b' belongs to no option: write --facts KEY=VALUE"
        in (cli.run("explain", "--facts", "channel=api", "sender=b")[2])
    )
    assert "'a' must be KEY=VALUE" in cli.run("explain", "--facts", "a", "b")[2]
    assert "'nonsense' is not an id: give the id of a message" in cli.run("explain", "nonsense")[2]


def test_a_wrong_contact_event_or_account_is_pointed_to_the_right_ones(cli: Cli) -> None:
    assert "'77' is not an id: give the id of a contact, or" in cli.run("pairing", "approve", "77")[2]
    assert (
        "or its first 4 or last 8 characters, or more, as `switchboard quarantine list`"
        in cli.run("quarantine", "show", "nope")[2]
    )
    assert "no contact has an id that begins or ends with 0000" in cli.run("pairing", "approve", "0000")[2]
    assert "no event in quarantine has an id that begins or ends with 0000" in cli.run("quarantine", "show", "0000")[2]
    assert "such as telegram/bot:123456, as `switchboard channels`" in cli.run("pairing", "code", "telegram")[2]


def test_a_code_is_made_by_account_name_and_warns_if_nobody_serves_it(cli: Cli) -> None:
    token = {"name": "connector-house", "role": "connector", "channel": "telegram", "endpoint": "bot:77"}
    ask(lambda client: client.post("/v1/tokens", token))
    made = cli.json("pairing", "code", "house")
    assert (made["channel"], made["endpoint"]) == ("telegram", "bot:77")
    assert cli.says("pairing", "code", "house").startswith("/start ")
    assert cli.says("pairing", "code", "slack/T1:U9").startswith("!start "), "the app keeps the slash to itself"
    assert "no connector has ever reported for house" in cli.says("pairing", "code", "house")
    assert "there is no account 'hous'; did you mean house?" in cli.run("pairing", "code", "hous")[2]


def test_contacts_and_quarantined_events_are_found_by_an_id_prefix(cli: Cli) -> None:
    contact = cli.json("pairing", "allow", "telegram/bot:house", "5488")["contact_id"]
    assert cli.json("pairing", "show", contact[:8])["identity"] == "5488"
    assert "is the id of a contact, not of a message" in cli.run("messages", "show", contact[:8])[2]
    assert cli.json("pairing", "revoke", contact[:8])["contact_id"] == contact
    event = {"channel": "telegram", "endpoint": "bot:house", "event_id": "7", "reason": "no text", "raw": "eA=="}
    put = ask(lambda c: c.post("/v1/quarantine", event))["quarantine_id"]
    assert cli.json("quarantine", "show", put[:-1])["event_id"] == "7"
    assert f"{put}: its connector" in cli.says("quarantine", "replay", put[:-1])
    assert f"{put}: discarded" in cli.says("quarantine", "discard", put[:-1])
    assert "no event in quarantine" in cli.run("quarantine", "show", put[:-1])[2]


def test_connectors_are_listed_as_they_reported_themselves(cli: Cli) -> None:
    beat: dict[str, Any] = {"channel": "discord", "endpoint": "guild", "instance_id": "one", "version": "1.2"}
    beat |= {"state": "degraded", "error_message": "rate limited", "counters": {"messages_ingested": 7}}
    ask(lambda c: c.post("/v1/connectors/heartbeat", beat))
    assert re.search(r"discord/guild +online +degraded .* 1\.2 rate limited", cli.says("connectors", "list"))
    assert cli.says("connectors") == cli.says("connectors", "list")
    assert re.search(r"messages_ingested +7", cli.says("connectors", "show", "discord/guild"))
    assert "did you mean discord/guild?" in cli.run("connectors", "show", "discord/gild")[2]


def test_pages_go_on_at_the_cursor(cli: Cli) -> None:
    sent = [cli.json("send", "x", "--endpoint", "pages")["request_id"] for _ in range(3)]
    first = cli.json("messages", "list", "--endpoint", "pages", "--limit", 2)
    rest = cli.json("messages", "list", "--endpoint", "pages", "--limit", 2, "--cursor", first["next_cursor"])
    assert [m["request_id"] for page in (first, rest) for m in page["messages"]] == sent[::-1]
    assert f"--cursor {first['next_cursor']}" in cli.says("messages", "list", "--endpoint", "pages", "--limit", 2)


def test_explain_tells_why_and_what_became_of_it(cli: Cli) -> None:
    sent = cli.json("send", "why?", "--wait", 30)["request_id"]
    tree = cli.says("explain", sent)
    rules = ("team root", "✗ refused", "sender should be 'nuisance', it is", "✓ from api", "→ System1/memo")
    became = ("delivery System1/memo", "attempt memo", "step ", "reply of System1/memo", "“why?”")
    for expected in (sent, *rules, *became):
        assert expected in tree, (expected, tree)
    assert cli.json("explain", sent)["message"]["request_id"] == sent


def test_explain_a_dead_letter(cli: Cli) -> None:
    sent = ask(lambda c: c.post("/v1/ingest", envelope("e1", channel="sms")))["request_id"]
    tree = cli.says("explain", sent)
    assert "no route" in tree
    assert "dead letter of team root no_route" in tree
    assert "notified System4/root" in tree
    [dead_letter] = [
        x for x in cli.json("dlq", "list", "--category", "no_route")["dead_letters"] if x["request_id"] == sent
    ]
    assert dead_letter["dead_letter_id"] in cli.says("dlq", "list", "--team", "root", "--state", "pending")
    assert "hello" in cli.says("dlq", "show", dead_letter["dead_letter_id"])
    assert cli.json("dlq", "show", dead_letter["dead_letter_id"])["payload"]["payload"]["normalized_text"] == "hello"


def test_teams_and_agents(cli: Cli) -> None:
    tree = cli.says("teams", "list")
    assert "root  Everything" in tree
    assert tree.index("rule refused  api sender=nuisance → System1/stubborn") < tree.index("rule from api")
    assert cli.json("teams", "list")["teams"][0]["team_id"] == "root"
    assert cli.json("teams", "show", "root")["team_id"] == "root"
    assert "System4/root" in cli.says("teams", "show", "root")
    assert cli.json("teams", "show", "nowhere", code=5)["error"]["code"] == "not_found"
    assert {agent["system_id"] for agent in cli.json("agents", "list")["agents"]} >= {"System1/memo", "System4/root"}
    assert "System1/loud" in cli.says("agents", "list")


def test_remote_butlers_are_kept_from_work_and_moved(cli: Cli) -> None:
    barred = cli.says("agents", "quarantine", "System1/remote", "--reason", "storm damage")
    assert "System1/remote is quarantined (put there by operator-1: storm damage); last seen never" in barred
    assert "quarantined" in cli.says("agents", "list")
    assert cli.json("agents", "release", "System1/remote")["liveness"] == "unwatched"
    moved = cli.says("agents", "endpoint", "System1/remote", "https://1.0.0.1/mcp", "--reason", "new machine")
    assert "called at https://1.0.0.1/mcp" in moved
    assert cli.json("agents", "endpoint", "System1/remote", "--reason", "back")["endpoint"] == "https://1.1.1.1/mcp"
    private = cli.json("agents", "endpoint", "System1/remote", "http://127.0.0.1/", "--reason", "r", code=1)
    assert private["error"]["code"] == "private_endpoint"
    assert cli.json("agents", "quarantine", "System1/loud", "--reason", "r", code=1)["error"]["code"] == "conflict"
    assert cli.json("agents", "release", "System1/nobody", code=5)["error"]["code"] == "not_found"


def test_tokens_open_what_they_are_for_and_nothing_once_revoked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    made = cli.json("tokens", "create", "bot", "--role", "connector", "--channel", "telegram", "--endpoint", "bot")
    assert made["token"].startswith("sb_")
    listed = cli.says("tokens", "list")
    assert "telegram/bot" in listed
    assert made["token"] not in listed + json.dumps(cli.json("tokens", "list"))
    with monkeypatch.context() as patch:
        patch.setenv("SWITCHBOARD_TOKEN", made["token"])
        assert cli.run("messages", "list")[0] == 0
        assert cli.json("tokens", "list", code=4)["error"]["code"] == "forbidden"
        patch.setenv("SWITCHBOARD_TOKEN", "sb_o_wrong")
        assert cli.json("messages", "list", code=4)["error"]["code"] == "unauthenticated"
    cli.json("tokens", "create", "prometheus", "--role", "metrics")
    assert re.search(r"prometheus +metrics +/metrics .* valid", cli.says("tokens", "list"))
    assert cli.json("tokens", "revoke", "bot")["status"] == "revoked"
    assert "revoked" in cli.says("tokens", "list")
    assert cli.run("tokens", "revoke", "bot")[0] == 5
    code, out, err = cli.run("tokens", "create", "plain", "--role", "operator", "--expires-in-days", 1)
    assert (code, out.startswith("sb_"), "not be shown again" in err) == (0, True, True)


def test_quarantine(cli: Cli) -> None:
    event = {"channel": "telegram", "endpoint": "bot", "event_id": "7", "reason": "no chat", "raw": "eyJ1cGRhdGUiOjd9"}
    kept = ask(lambda c: c.post("/v1/quarantine", event))["quarantine_id"]
    assert re.search(r"telegram/bot +7 +waiting +no chat", cli.says("quarantine", "list"))
    assert '{"update":7}' in cli.says("quarantine", "show", kept)
    assert cli.json("quarantine", "replay", kept)["replay"] is True
    assert [e["event_id"] for e in cli.json("quarantine", "list", "--replay")["events"]] == ["7"]
    assert cli.json("quarantine", "discard", kept)["status"] == "discarded"
    assert cli.run("quarantine", "show", kept)[0] == 5


def test_outbox_and_lanes(cli: Cli, server: Server) -> None:
    sent = ask(lambda c: c.post("/v1/ingest", envelope("t1")))["request_id"]
    ask(lambda c: c.get(f"/v1/messages/{sent}/replies", {"wait_s": 30}))
    assert "telegram/bot" in cli.says("outbox", "list", "--state", "pending")
    assert "send:" in cli.says("lanes", "list")

    async def fail(client: Client) -> str:
        [leased] = (await client.post("/v1/outbox/next", {"channel": "telegram", "endpoint": "bot"}))["replies"]
        receipt = {"lease": leased["lease"], "outcome": "failed", "error": "chat not found"}
        await client.post(f"/v1/outbox/{leased['outbox_id']}/receipt", receipt)
        return str(leased["outbox_id"])

    reply = ask(fail)
    shown = cli.says("outbox", "show", reply[:22])
    assert [word for word in (sent, "telegram", "failed  chat not found", "Filed:") if word not in shown] == []
    assert cli.json("outbox", "show", reply)["receipts"][0]["outcome"] == "failed"
    assert "chat not found" in cli.says("outbox", "list", "--state", "failed")
    assert cli.run("outbox", "list", "--state", "lost")[0] == 2
    findings = {f["name"]: f for f in cli.json("doctor", code=1)["findings"]}
    assert findings["failed replies"]["detail"].startswith("1 ")
    assert cli.json("outbox", "resend", reply)["state"] == "pending"
    assert cli.run("outbox", "resend", reply)[0] == 1
    assert cli.run("outbox", "resend", uuid4())[0] == 5

    [lane] = [
        x["lane"]
        for x in cli.json("lanes", "list")["lanes"]
        if x["lane"].startswith("send:") and "telegram" in x["lane"]
    ]
    assert cli.run("lanes", "resume", lane)[0] == 5
    _execute(
        server.environment, "update switchboard.lane set state = 'paused' where switchboard.lane_name(key) = $1", lane
    )
    findings = {f["name"]: f for f in cli.json("doctor", code=1)["findings"]}
    assert (findings["paused lane"]["status"], findings["paused lane"]["detail"]) == ("warning", lane)
    assert "is resumed" in cli.says("lanes", "resume", lane)


def _execute(env: Mapping[str, str], sql: str, *values: object) -> None:
    async def run() -> None:
        path = {"search_path": "switchboard"}
        connection = await asyncpg.connect(env["SWITCHBOARD_DATABASE_URL"], server_settings=path)
        await connection.execute(sql, *values)
        await connection.close()

    asyncio.run(run())


def test_import_of_all_kinds_with_broken_entries(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "mails" / "deep"
    folder.mkdir(parents=True)
    for n in range(3):
        (folder / f"{n}.eml").write_text(f"From: joe@example.org\nMessage-ID: <{n}@eml>\n\nmail {n}\n")
    (folder / "broken.eml").write_bytes(b"\x00\x01 no mail")
    mbox = tmp_path / "box.mbox"
    line = "From joe@example.org Mon Jan  5 10:00:00 2026\n"
    mails = [f"From: joe@example.org\nMessage-ID: <{n}@mbox>\n\nmail {n}\n\n" for n in range(3)]
    mails.insert(1, "Subject: nobody wrote this\n\nhm\n\n")
    mbox.write_text("".join(line + mail for mail in mails))
    lines = [json.dumps(envelope(f"j{n}")) for n in range(150)]
    lines[100:100] = ["not json", '{"schema_version": "ingest.v1", "more": 1}', "[]", '"\\ud800"']
    (tmp_path / "list.jsonl").write_text("\n".join(lines))
    paths = (tmp_path / "mails", mbox, tmp_path / "list.jsonl")

    first = cli.json("import", *paths, "--endpoint", "me@example.org", code=1)
    again = cli.json("import", *paths, "--endpoint", "me@example.org", code=1)

    assert (first["new"], first["duplicates"], first["refused"]) == (156, 0, 6)
    assert (again["new"], again["duplicates"], again["refused"]) == (0, 156, 6)
    places = {(Path(r["file"]).name, r["place"], r["code"]) for r in first["refusals"]}
    assert ("broken.eml", "", "unreadable_mail") in places
    assert ("box.mbox", f"offset {len(line + mails[0])}", "unreadable_mail") in places
    assert ("list.jsonl", "line 101", "invalid_json") in places
    assert {place for name, place, _ in places if name == "list.jsonl"} == {f"line {n}" for n in range(101, 105)}
    table = cli.says("import", *paths, "--endpoint", "me@example.org", code=1)
    assert "duplicates" in table
    assert "line 101" in table


def test_import_keeps_the_order_of_a_thread(cli: Cli, tmp_path: Path) -> None:
    mail = "From joe@example.org Mon Jan  5 10:00:00 2026\nFrom: joe@example.org\nMessage-ID: <{0}@order>\n{1}\n{0}\n\n"
    references = ["References: <0@order>\n"] * 40
    references[0] = ""
    (tmp_path / "box").write_text("".join(mail.format(n, line) for n, line in enumerate(references)))
    assert cli.json("import", tmp_path / "box", "--endpoint", "order@example.org")["new"] == 40
    listed = cli.json("messages", "list", "--endpoint", "order@example.org")["messages"]
    assert [m["text"] for m in listed] == [str(n) for n in reversed(range(40))]


def test_import_says_what_it_needs(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "m.eml").write_text("From: a@b.c\n\nx")
    assert cli.run("import", tmp_path / "m.eml")[0] == 2
    assert cli.run("import", tmp_path / "nowhere")[0] == 5
    assert cli.run("import")[0] == 2
    said = cli.json("import", tmp_path / "m.eml", "--endpoint", "x@y.z", "--kind", "mbox", code=1)
    assert said["refusals"][0]["code"] == "not_mbox"


@pytest.mark.parametrize("size", [1000, 20_000_000])
def test_attachments_of_imported_mails_are_kept_and_can_be_saved(
    cli: Cli, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mail that is too large for one request, too: then what is left of it goes as an envelope."""
    data = Random(size).randbytes(size)
    mail = EmailMessage()
    mail["From"], mail["Message-ID"], mail["Subject"] = "joe@example.org", f"<{uuid4()}@x>", "the plans"
    mail.set_content("see below")
    mail.add_attachment(data, maintype="application", subtype="zip", filename="../plans $1.zip")
    (tmp_path / "m.eml").write_bytes(mail.as_bytes())
    counts = [cli.json("import", tmp_path / "m.eml", "--endpoint", f"{size}@example.org") for _ in range(2)]
    assert [(one["new"], one["duplicates"]) for one in counts] == [(1, 0), (0, 1)]
    [message] = cli.json("messages", "list", "--endpoint", f"{size}@example.org")["messages"]
    request_id = message["request_id"]
    for words in (("messages", "show"), ("explain",)):
        said = cli.says(*words, request_id)
        assert "plans $1.zip" in said
        assert f"{size:,} bytes" in said
    if size == 1000:
        assert base64.b64encode(data)[:40].decode() in cli.says("messages", "raw", request_id)
    monkeypatch.chdir(tmp_path)
    for name in ("plans $1.zip", "1-plans $1.zip"):
        assert cli.says("messages", "save", request_id) == f"{name}\n"
        assert (tmp_path / name).read_bytes() == data
    [made] = cli.json("messages", "save", request_id, "--to", "new/of me")["saved"]
    assert (tmp_path / made).read_bytes() == data
    assert "cannot be written: Not a directory" in cli.run("messages", "save", request_id, "--to", "m.eml/x")[2]


def test_import_of_a_mail_that_is_too_large_goes_on_after_it(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "1.eml").write_text("From: a@b.c\n\n" + "x" * 3_000_000)
    (tmp_path / "2.eml").write_text(f"From: a@b.c\nMessage-ID: <{uuid4()}@x>\n\nsmall")
    said = cli.json("import", tmp_path, "--endpoint", "x@y.z", code=1)
    assert (said["new"], [r["code"] for r in said["refusals"]]) == (1, ["too_large"])


def test_doctor_finds_nothing_wrong(cli: Cli) -> None:
    said = cli.json("doctor", code=1)
    bad = [f["name"] for f in said["findings"] if f["status"] == "error"]
    # The database of the tests is fast and forgetful on purpose.
    assert bad == ["durability"]
    assert "alter system set fsync = on" in cli.says("doctor", code=1)


def test_doctor_tells_of_dead_letters_that_nobody_hears_of(
    cli: Cli, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [f for f in cli.json("doctor", code=1)["findings"] if f["name"] == "notices"]
    [silent] = found
    assert silent["status"] == "warning"
    assert "nobody is told of messages that cannot be delivered" in silent["detail"]
    monkeypatch.setenv("PAGER_SECRET", "canary-secret")
    monkeypatch.setenv("SWITCHBOARD_DEAD_LETTERS__TELL", '{"url": "https://x.example", "secret_env": "PAGER_SECRET"}')
    assert "notices" not in {f["name"] for f in cli.json("doctor", code=1)["findings"]}
    _execute(server.environment, "update switchboard.member set active = false where number = 4")
    try:
        [without] = [f for f in cli.json("doctor", code=1)["findings"] if f["name"] == "notices"]
    finally:
        _execute(server.environment, "update switchboard.member set active = true where number = 4")
    assert (without["status"], "has no member that is told" in without["detail"]) == ("warning", True)


def test_doctor_finds_what_is_broken(cli: Cli, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    token = Path(server.environment["SWITCHBOARD_DATA_DIR"], "operator.token")
    token.chmod(0o644)
    insert = (
        "insert into switchboard.rule select gen_random_uuid(), team_id, 'bad', 'telegramm', filters, targets, "
        "priority, active, '', '', now(), now(), version, '' from switchboard.rule limit 1"
    )
    _execute(server.environment, insert)
    _execute(server.environment, "insert into switchboard.team values ('lonely', 'root', '')")
    _execute(server.environment, "insert into switchboard.member values ('System1/x', 'lonely', 1, 'magic')")
    monkeypatch.setenv("SWITCHBOARD_URL", "http://127.0.0.1:9")
    try:
        said = cli.says("doctor", code=1)
    finally:
        token.chmod(0o600)
        for name in ("rule where name = 'bad'", "member where team_id = 'lonely'", "team where team_id = 'lonely'"):
            _execute(server.environment, f"delete from switchboard.{name}")  # noqa: S608 - a constant
    assert "chmod 600" in said
    assert "did you mean telegram" in said
    assert "the engine 'magic' is not installed" in said
    assert "✗ server  no switchboard is running at http://127.0.0.1:9" in said


def test_doctor_finds_books_that_do_not_balance(cli: Cli, server: Server) -> None:
    sent = cli.json("send", "lost", "--wait", 30)["request_id"]
    _execute(
        server.environment, "create table kept as select * from switchboard.delivery where request_id = $1::uuid", sent
    )
    _execute(server.environment, "delete from switchboard.delivery where request_id = $1::uuid", sent)
    try:
        findings = cli.json("doctor", code=1)["findings"]
        _, _, told = cli.run("doctor", "--full")
    finally:
        _execute(server.environment, "insert into switchboard.delivery select * from kept; drop table kept")
    assert any(f["name"].startswith("books") and f["status"] == "error" for f in findings)
    assert re.search(r"books of \d{4}-\d\d-\d\d: \d+ messages?, they do not balance", told)
    _, _, told = cli.run("doctor", "--full")
    assert re.fullmatch(r"(books of \d{4}-\d\d-\d\d: \d+ messages?, good\s+)+", told)


def test_doctor_says_when_settings_or_database_are_wrong(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("SWITCHBOARD_DATABASE_URL", "postgresql://nobody@127.0.0.1:9/nothing")
        [finding] = [f for f in cli.json("doctor", code=1)["findings"] if f["name"] == "database"]
        assert "no PostgreSQL answers at 127.0.0.1:9/nothing: connection refused; is it" in finding["detail"]
    monkeypatch.setenv("SWITCHBOARD_PORT", "many")
    [finding] = cli.json("doctor", code=1)["findings"]
    assert "SWITCHBOARD_PORT" in finding["detail"]


def test_nobody_answers(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_URL", "http://127.0.0.1:9")
    for command in (
        ("messages", "list"),
        ("send", "x"),
        ("teams", "list"),
        ("chat", "--once", "x"),
        ("tokens", "list"),
    ):
        code, _, err = cli.run(*command)
        assert (code, "switchboard up" in err) == (3, True), command
    assert cli.json("agents", "list", code=3)["error"]["code"] == "no_server"


def test_wrong_places(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("SWITCHBOARD_URL", "localhost:8470")
        wrong = "error: SWITCHBOARD_URL 'localhost:8470' is not a URL; write http://localhost:8470\n"
        assert cli.run("messages", "list") == (1, "", wrong)
    monkeypatch.setenv("SWITCHBOARD_DATA_DIR", str(tmp_path))
    said = cli.json("messages", "list", code=4)
    assert str(tmp_path / "operator.token") in said["error"]["message"]


def test_ids_that_are_none_and_messages_that_are_not_there(cli: Cli) -> None:
    for command in (("explain",), ("messages", "show"), ("messages", "raw"), ("dlq", "show")):
        assert cli.run(*command, "not-an-id")[0] == 2
        assert cli.run(*command, uuid4())[0] == 5


def test_backup_while_it_works_and_no_restore_meanwhile(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "switchboard.backup"
    said = cli.json("db", "backup", file)
    assert said["size_bytes"] == file.stat().st_size > 10_000
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert cli.json("db", "restore", file, "--force", code=1)["error"]["code"] == "conflict"
    assert cli.json("db", "migrate")["applied"] == []
    assert cli.run("db", "backup", tmp_path / "no" / "file")[0] == 1


def test_backup_and_restore_into_an_empty_database(
    cli: Cli, tmp_path: Path, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = cli.json("send", "keep this", "--wait", 30)["request_id"]
    cli.says("db", "backup", tmp_path / "b")
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", empty_database_url)
    assert cli.run("db", "backup", tmp_path / "c")[0] == 1
    assert "restored" in cli.says("db", "restore", tmp_path / "b")
    assert (
        _value(
            empty_database_url,
            "select envelope #>> '{payload,normalized_text}' from switchboard.message_inbox where request_id = $1",
            sent,
        )
        == "keep this"
    )
    assert cli.json("db", "restore", tmp_path / "b", code=1)["error"]["code"] == "conflict"
    assert _value(empty_database_url, "select count(*) from switchboard.process") == 0, "who ran then does not run here"
    damaged = tmp_path / "damaged"
    damaged.write_bytes((tmp_path / "b").read_bytes()[:5000])
    assert cli.run("db", "restore", damaged, "--force")[0] == 1
    assert _value(empty_database_url, "select count(*) > 0 from switchboard.message_inbox") is True
    assert cli.run("db", "restore", tmp_path / "b", "--force")[0] == 0
    assert cli.run("db", "restore", tmp_path / "nowhere")[0] == 5


def test_what_a_restored_database_does_again_is_said_and_can_wait(
    cli: Cli, tmp_path: Path, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.json("send", "keep this", "--wait", 30)
    cli.says("db", "backup", tmp_path / "b")
    house = tmp_path / "channels.d" / "house.toml"
    house.parent.mkdir()
    house.touch(mode=0o600)
    monkeypatch.setenv("SWITCHBOARD_CHANNELS_DIR", str(house.parent))
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", empty_database_url)
    assert cli.run("db", "restore", house, "--paused")[0] == 1
    assert not pause_file(house).exists(), "a restore that fails pauses nothing"
    cli.says("db", "restore", tmp_path / "b")
    _value(empty_database_url, "update switchboard.outbox set state = 'pending'")
    _value(empty_database_url, "update switchboard.lane set state = 'ready', done_seq = 0 where kind = 'send'")
    replies = _value(empty_database_url, "select count(*) from switchboard.outbox")
    cli.says("db", "backup", tmp_path / "waits")
    _, said, told = cli.run("db", "restore", tmp_path / "waits", "--force")
    assert re.search(rf"^{replies} repl(y|ies) may have been sent, and will not be sent again", told, re.MULTILINE)
    assert said.startswith("restored")
    doubted = "select count(*) from switchboard.outbox where state = 'uncertain' and untold = 'uncertain'"
    butlers = _value(empty_database_url, "select count(*) from switchboard.outbox where system_id <> 'switchboard'")
    assert _value(empty_database_url, doubted) == butlers, "an operator is told"
    assert _value(empty_database_url, "select count(*) from switchboard.lane where state <> 'idle'") == 0
    restored = cli.json("db", "restore", tmp_path / "waits", "--force", "--paused")
    assert (restored["paused"], restored["open"]) == (["house"], {"messages": 0, "replies": replies})
    assert pause_file(house).exists()


def _value(url: str, sql: str, *values: object) -> object:
    async def run() -> object:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(sql, *values)
        finally:
            await connection.close()

    return asyncio.run(run())
