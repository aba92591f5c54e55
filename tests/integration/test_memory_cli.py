"""`switchboard memory` against a real server: what it shows, shares, forgets and gives back, and that it is audited."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from switchboard.domain.ledger import LaneKey
from switchboard.domain.routing import SystemId
from switchboard.store.ids import new_uuid7
from switchboard.store.memory import facts
from switchboard.store.memory.facts import NewFact
from tests.commands import Cli
from tests.servers import Opened, open_server

ECHO = SystemId("System1/echo")
ANN = "telegram/bot/ann"
SAID = """
insert into entry (lane, position, request_id, role, person, private, text, created_at, compacted_at)
values ($1, $2, gen_random_uuid(), 'user', $3, true, $4, now(), now())"""
LANE = """
insert into lane (key, kind, system_id, conversation, pool, tier)
select lane_key('turn', $1, enter_conversation($2)), 'turn', $1, enter_conversation($2), 'work', 2 returning key"""


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """With two facts of Ann and a summary."""
    async with open_server(database_url, tmp_path / "data") as opened:
        database = opened.lab.database
        lane = LaneKey(await database.value(LANE, ECHO, ANN))
        for n, text in ((1, "Noor is allergic to walnuts"), (2, "I live in Leeds")):
            await database.run(SAID, lane, n, ANN, f"Well, {text}.")
            await facts.save(database, lane, ECHO, [NewFact(ANN, "self", True, text, (n,))])
        await database.run(
            "insert into summary (lane, position, summary_id, first_position, person, private, text) "
            "values ($1, 20, $2, 1, $3, true, 'of Noor and Leeds')",
            lane,
            uuid4(),
            ANN,
        )
        yield opened


async def said(server: Opened, *path: str, **params: str) -> Any:
    return (await server.http.get("/v1/memory/" + "/".join(path), params=params)).json()


async def test_facts_come_in_pages_and_by_author_and_butler(server: Opened) -> None:
    page = await said(server, "facts", limit="1")
    assert [one["text"] for one in page["facts"]] == ["I live in Leeds"]
    rest = await said(server, "facts", limit="1", cursor=page["next_cursor"])
    assert [(one["text"], one["space"]) for one in rest["facts"]] == [("Noor is allergic to walnuts", f"private:{ANN}")]
    assert (await said(server, "facts", author="telegram/bot/bob"))["facts"] == []
    assert (await said(server, "facts", system_id="System1/other"))["facts"] == []
    fact = await said(server, "facts", rest["facts"][0]["fact_id"])
    assert [one["text"] for one in fact["sources"]] == ["Well, Noor is allergic to walnuts."]


async def test_sharing_forgetting_and_restoring_are_audited_and_say_what_is_gone(server: Opened) -> None:
    leeds, noor = (one["fact_id"] for one in (await said(server, "facts"))["facts"])
    assert (await server.http.post(f"/v1/memory/facts/{leeds}/share")).status_code == 200
    assert (await said(server, "facts", leeds))["fact"]["space"] == "shared"
    assert (await server.http.post(f"/v1/memory/facts/{noor}/forget")).json() == {"fact_id": noor, "forgotten": 1}
    gone = await server.http.post(f"/v1/memory/facts/{noor}/forget")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "not_found")
    [summary] = (await said(server, "summaries"))["summaries"]
    assert (summary["text"], summary["restorable"]) == ("", 1)
    url = f"/v1/memory/summaries/{summary['summary_id']}/restore"
    assert (await server.http.post(url)).json()["restored"] == 1
    assert (await server.http.post(url)).status_code == 409
    done = (await server.http.get("/v1/audit")).json()["entries"]
    assert {"memory:read", "memory:shared", "memory:forgotten", "memory:restored"} <= {one["action"] for one in done}


async def test_a_run_is_undone_as_a_whole(
    server: Opened, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = server.lab.database
    lane, run = LaneKey(await database.value("select lane from entry where position = 1")), new_uuid7()
    await database.run(
        "insert into consolidation_run"
        " (run, lane, system_id, person, first_position, last_position, episodes, tokens, cost_usd)"
        " values ($1, $2, $3, $4, 1, 2, 2, 1234, 0.0021)",
        *(run, lane, ECHO, ANN),
    )
    found = [replace(NewFact(ANN, "self", True, text, (2,)), run=run) for text in ("I keep bees", "I keep hens")]
    assert await facts.save(database, lane, ECHO, found) == 2
    cli = Cli(capsys, monkeypatch, server.environment)
    listed = await asyncio.to_thread(cli.says, "memory", "runs")
    assert re.search(r"1,234 +\$0\.0021", listed)
    said = await asyncio.to_thread(cli.says, "memory", "undo-run", str(run))
    assert said.strip() == f"{run}: 2 facts undone"


async def test_what_an_operator_adds_is_kept_as_its_authors_words_are(
    server: Opened, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = Cli(capsys, monkeypatch, server.environment)

    def add(*words: str, who: str = ANN) -> tuple[int, str, str]:
        return cli.run("memory", "add", "--butler", "echo", "--as", who, *words)

    def commands() -> None:
        assert add("I work at  Acme", "--predicate", "employer")[0] == 0
        again = cli.json("memory", "add", "--butler", "echo", "--as", ANN, "I work at acme.")["fact"]
        assert (again["text"], again["predicate"], again["said_by"]) == ("I work at Acme", "employer", "subject")
        assert (again["space"], len(cli.json("memory", "list")["facts"])) == (f"private:{ANN}", 3)
        assert add("I work at Acme", "--shared")[0] == 0
        assert cli.json("memory", "show", again["fact_id"])["fact"]["space"] == "shared"
        for refused, why in (
            (("My password is hunter2",), "secrets are not kept"),
            (("Does Noor like figs?",), "questions"),
            (("word " * 100,), "at most 300 characters"),
            (("Noor is allergic to figs", "--about", "Noor"), "an owner of the butler"),
            (("I like figs", "--predicate", "liks"), "did you mean dislikes or likes"),
        ):
            assert why in " ".join(add(*refused)[2].split())
        assert "there is no person 'zoe'" in add("I like figs", who="zoe")[2]
        assert "is no author" in add("I like figs", who="telegram/bot")[2]
        assert "there is no channel" in add("I like figs", who="pigeon/a/b")[2]
        assert "there is no agent" in cli.run("memory", "add", "--butler", "zoe", "--as", ANN, "I like figs")[2]
        cli.says("people", "add", "ann")
        assert "proves who writes" in add("I like figs", who="ann")[2]
        cli.says("people", "link", "ann", "telegram", "42")
        figs = cli.json("memory", "add", "--butler", "echo", "--as", "ann", "I like figs")["fact"]
        assert figs["author"] == "telegram//42"
        assert "1 facts" in cli.says("memory", "erase", "ann", "--dry-run")
        cli.says("memory", "forget", figs["fact_id"])
        assert "these words were forgotten" in add("I like figs", who="ann")[2]

    await asyncio.to_thread(commands)
    done = (await server.http.get("/v1/audit")).json()["entries"]
    assert {"memory:added", "memory:shared"} <= {one["action"] for one in done}


async def test_forgetting_tells_how_many_more_said_the_same(
    server: Opened, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = server.lab.database
    lane = LaneKey(await database.value("select lane from entry where position = 1"))
    longer = NewFact(ANN, "self", False, "Since May I live in Leeds, near Noor", (2,))
    assert await facts.save(database, lane, ECHO, [longer]) == 1
    cli = Cli(capsys, monkeypatch, server.environment)

    def commands() -> None:
        listed = {one["text"]: one["fact_id"] for one in cli.json("memory", "list")["facts"]}
        said = cli.says("memory", "forget", listed["I live in Leeds"])
        assert said.strip().endswith(": forgotten, and 1 more that said the same")
        assert [one["text"] for one in cli.json("memory", "list")["facts"]] == ["Noor is allergic to walnuts"]

    await asyncio.to_thread(commands)


async def test_the_commands_show_it_as_tables_and_as_json(
    server: Opened, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = Cli(capsys, monkeypatch, server.environment)

    def commands() -> None:
        listed = cli.json("memory", "list")["facts"]
        assert [one["text"] for one in listed] == ["I live in Leeds", "Noor is allergic to walnuts"]
        [_, leeds, noor] = cli.says("memory", "list", "--author", ANN).splitlines()
        assert re.search(rf"{ECHO} +{ANN} +private +self +other +I live in Leeds", leeds)
        assert "walnuts" in noor
        assert cli.says("memory", "list", "--author", "telegram/bot/bob").strip() == "none"
        assert "of Noor and Leeds" in cli.says("memory", "list", "--summaries")
        assert cli.says("memory", "list", "--butler", "echo") == cli.says("memory", "list", "--butler", ECHO)
        code, _, err = cli.run("memory", "list", "--butler", "nobody")
        assert (code, "there is no agent 'nobody'" in err) == (5, True)
        for command in (("search", "figs"), ("entities",), ("runs",)):
            assert "there is no agent 'nobody'" in cli.run("memory", *command, "--butler", "nobody")[2]
        first = UUID(listed[0]["fact_id"])
        for part in (str(first)[:23], first.hex[-8:]):
            assert cli.json("memory", "show", part)["fact"]["fact_id"] == str(first)
        assert f"`switchboard memory show {first}`" in cli.run("explain", str(first))[2]
        assert "no fact has an id that begins or ends with 00000000" in cli.run("memory", "show", "00000000")[2]
        shown = cli.says("memory", "show", str(first))
        assert "Well, I live in Leeds." in shown
        assert re.search(r"said by +subject", shown)
        [found] = cli.json("memory", "search", "allergies or figs")["facts"]
        assert found["text"] == "Noor is allergic to walnuts"
        assert cli.says("memory", "search", "hazelnuts").strip() == "none"
        [entity] = cli.json("memory", "entities", "--butler", "echo", "ann")["entities"]
        assert (entity["name"], entity["facts"]) == (ANN, 2)
        assert cli.says("memory", "runs").strip() == "none"
        assert "is the id of a fact, not of a run" in cli.run("memory", "undo-run", listed[0]["fact_id"])[2]
        assert f"{listed[0]['fact_id']}: undone" in cli.says("memory", "undo", listed[0]["fact_id"])
        assert "never said already" in cli.run("memory", "undo", listed[0]["fact_id"])[2]
        assert "(undone) I live in Leeds" in cli.says("memory", "list")
        assert "shared" in cli.says("memory", "share", listed[0]["fact_id"])
        assert cli.says("memory", "forget", listed[1]["fact_id"]).strip() == f"{listed[1]['fact_id']}: forgotten"
        assert "there is no fact" in cli.run("memory", "show", listed[1]["fact_id"])[2]
        [summary] = cli.json("memory", "list", "--summaries")["summaries"]
        assert "is the id of a summary, not of a fact" in cli.run("memory", "show", summary["summary_id"])[2]
        assert ": 1 message restored" in cli.says("memory", "restore", summary["summary_id"][-8:])
        assert "a summary has no author" in cli.run("memory", "list", "--summaries", "--author", ANN)[2]
        assert "'noor' is not an id: give the id of a fact, or its first 4" in cli.run("memory", "forget", "noor")[2]
        assert "give the id of a summary, or its first 4" in cli.run("memory", "restore", "noor")[2]

    await asyncio.to_thread(commands)
