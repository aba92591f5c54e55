"""Rules at run time over a real server: edits and what they answer, history, tests, dry runs, backtests, SOPs, MCP."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx2
import pytest
from structlog.testing import capture_logs

from switchboard.app.access import Principal
from switchboard.app.reach import ALL
from switchboard.app.rules.proposals import edit_by, new_one
from switchboard.app.rules.records import RuleRecords
from switchboard.app.rules.replays import Replays
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.core.routing.backtest import Case
from switchboard.core.routing.draft import parse_draft
from switchboard.domain.errors import Unavailable
from switchboard.domain.routing import RuleChange, TeamId
from switchboard.store.database import Database
from switchboard.store.rules import versions as store
from switchboard.store.rules.versions import Authorship
from tests.lab import envelope_json
from tests.ruling import agent, error_of, mcp, new, refusals, rules_of, table, tool, tree
from tests.servers import CONNECTOR, Opened, open_server


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data", tree=tree()) as opened:
        yield opened


async def made(server: Opened, team_id: str = "root", **more: Any) -> dict[str, Any]:
    """A new rule, as it was answered."""
    answer = await server.http.post("/v1/rules", json=new(team_id, **more))
    assert answer.status_code == 201, answer.text
    written: dict[str, Any] = answer.json()
    return written


async def patch(server: Opened, rule: Mapping[str, Any], **more: Any) -> httpx2.Response:
    body = {"version": rule["version"], "reason": "a test", **more}
    return await server.http.patch(f"/v1/rules/{rule['rule_id']}", json=body)


async def goes_to(server: Opened, **more: Any) -> str:
    """Where a new message goes."""
    return str((await server.submit(envelope_json("hello", **more))).json()["triage_target"])


async def version(server: Opened) -> int:
    return int((await server.http.get("/v1/rules?limit=1")).json()["version"])


# Edits ---------------------------------------------------------------------------------------------------------------


async def test_a_new_rule_decides_the_next_message(server: Opened) -> None:
    assert await goes_to(server, channel="email") == "root"  # a dead letter
    written = await made(server, filters={"email_domain": "example.org", "sender": 5})
    assert (written["version"], written["fresh"]) == (2, True)
    assert written["rule"]["filters"] == {"email_domain": "example.org", "sender": "5"}
    assert written["rule"]["created_by"] == "operator-1"
    await made(server)
    assert await goes_to(server, channel="email") == "System1/root"


async def test_a_filter_may_have_several_values(server: Opened) -> None:
    written = await made(server, filters={"email_domain": ["b.example", "a.example"], "sender": ["x@a.example"]})
    assert written["rule"]["filters"] == {"email_domain": ["a.example", "b.example"], "sender": "x@a.example"}
    [rule] = [one for one in await rules_of(server, "root") if one["channel"] == "email"]
    assert rule["filters"] == written["rule"]["filters"]
    question = {"channel": "email", "email_domain": "a.example", "sender": "x@a.example", "email_to": ["q@r", "m@n"]}
    asked = await explain(server, facts=question)
    assert (asked["receivers"]["butlers"], asked["facts"]["email_to"]) == (["System1/root"], ["m@n", "q@r"])
    other = await explain(server, facts=question | {"email_domain": "c.example"})
    [missed] = [one for one in other["trail"][0]["considered"] if one["failed_filter"] == "email_domain"]
    assert missed["expected"] == ["a.example", "b.example"]
    exported = (await server.http.get("/v1/rules/export")).json()
    again = await server.http.post("/v1/rules/import", json={"document": exported, "reason": "the same"})
    assert (again.json()["changed"], await version(server)) == (0, 2)
    changed = await tool(
        server,
        "routing_rules_update",
        {
            "rule_id": rule["rule_id"],
            "version": 2,
            "reason": "one more",
            "filters": {"email_domain": ["c.example", "a.example"]},
        },
    )
    assert changed["result"]["structuredContent"]["rule"]["filters"] == {"email_domain": ["a.example", "c.example"]}
    wrong = await server.http.post("/v1/rules", json=new("root", filters={"email_domain": ["a.example", "@b.example"]}))
    assert error_of(wrong) == (422, "unmatchable_value")
    for values in ([], [True], [["a"]], ["a"] * 1001):
        assert (await server.http.post("/v1/rules", json=new("root", filters={"sender": values}))).status_code == 422


async def test_a_rule_that_copies_delivers_beside_the_one_that_decides(server: Opened) -> None:
    copy = {"name": "archive", "channel": "*", "copy": True}
    written = await made(server, "sales", **copy)
    assert (written["rule"]["copy"], {one["code"] for one in written["warnings"]}) == (
        True,
        {"target_without_live_member"},
    )
    down = await explain(server, envelope=envelope_json("hello", channel="slack"))
    assert down["receivers"]["butlers"] == ["System1/sales"]
    assert [one["team"] for one in down["receivers"]["dead_letters"]] == ["desk"], "not routed by a copy alone"
    assert [(one["team_id"], one["reason"], one["rule_name"]) for one in down["trail"]][-1] == (
        "sales",
        "copy",
        "archive",
    )
    sent = (await server.submit(envelope_json("hello", channel="slack"))).json()
    deliveries = (await server.http.get(f"/v1/messages/{sent['request_id']}")).json()["deliveries"]
    assert [one["system_id"] for one in deliveries] == ["System1/sales"]
    explained = (await server.http.get(f"/v1/messages/{sent['request_id']}/explain")).json()
    assert explained["decisions"][0]["trail"][-1]["reason"] == "copy"
    wrong = await server.http.post("/v1/rules", json=new("sales", **copy | {"targets": [{"team_id": "desk"}]}))
    assert error_of(wrong) == (422, "target_not_for_copies")
    [rule] = [one for one in await rules_of(server, "sales") if one["copy"]]
    tried = (await backtest(server, changes=[{"rule_id": rule["rule_id"], "copy": False}]))[-1]["result"]
    assert tried["changed"] == 1, "then it is a catch-all, which another rule comes before"
    ended = await server.http.patch(
        f"/v1/rules/{rule['rule_id']}", json={"version": rule["version"], "reason": "enough", "active": False}
    )
    assert ended.json()["blast"]["changed"] == 1


async def test_a_rule_is_made_once_however_often_it_is_asked_for(server: Opened) -> None:
    body = new("root", rule_id=str(uuid4()))
    answers = await asyncio.gather(*(server.http.post("/v1/rules", json=body) for _ in range(4)))
    assert sorted(a.status_code for a in answers) == [200, 200, 200, 201]
    assert {a.json()["rule"]["rule_id"] for a in answers} == {body["rule_id"]}
    assert await version(server) == 2
    other = await server.http.post("/v1/rules", json={**body, "priority": 1})
    assert (error_of(other), other.json()["error"]["field"]) == ((409, "conflict"), "rule_id")


async def test_an_edit_of_an_older_rule_is_told_what_has_changed(server: Opened) -> None:
    [rule] = await rules_of(server, "lab")
    headers = await server.token_for(agent(3, "lab"))
    body = {"version": rule["version"], "reason": "the lab moves", "priority": 3}
    changed = await server.http.patch(f"/v1/rules/{rule['rule_id']}", json=body, headers=headers)
    assert (changed.status_code, changed.json()["rule"]["version"]) == (200, 2)
    late = await patch(server, rule, priority=4)
    assert error_of(late) == (409, "conflict")
    for words in ("system3-lab (System3/lab)", "the lab moves", "version 2"):
        assert words in late.json()["error"]["message"]
    assert (await patch(server, changed.json()["rule"], priority=4)).status_code == 200


async def test_of_two_edits_at_once_one_is_done(server: Opened) -> None:
    [rule] = await rules_of(server, "lab")
    answers = await asyncio.gather(*(patch(server, rule, priority=n) for n in range(1, 6)))
    assert sorted(a.status_code for a in answers) == [200, 409, 409, 409, 409]
    assert await version(server) == 2


async def test_an_edit_that_changes_nothing_makes_no_version(server: Opened) -> None:
    [rule] = await rules_of(server, "lab")
    same = await patch(server, rule, name=rule["name"], active=True)
    assert (same.status_code, same.json()["fresh"], await version(server)) == (200, False, 1)
    assert error_of(await patch(server, rule)) == (422, "invalid_rule")


async def test_what_is_wrong_is_said_with_what_would_be_right(server: Opened) -> None:
    before = await table(server)
    key = await server.http.post("/v1/rules", json=new("root", filters={"email_domian": "x"}))
    assert error_of(key) == (422, "unknown_filter_key")
    assert key.json()["error"]["field"] == "filters.email_domian"
    assert "email_domain" in key.json()["error"]["message"]
    target = await server.http.post("/v1/rules", json=new("root", targets=[{"system_id": "System1/rot"}]))
    assert error_of(target) == (422, "unknown_target")
    assert "System1/root" in target.json()["error"]["message"]
    several = new("root", channel="emial", targets=[{"team_id": "desk"}, {"team_id": "sales"}])
    answer = await server.http.post("/v1/rules", json=several)
    problems = answer.json()["error"]["details"]["problems"]
    assert [one["code"] for one in problems] == ["unknown_channel", "target_not_in_team"]
    assert all(one["message"] in answer.json()["error"]["message"] for one in problems)
    for wrong, message in (
        ({"filter": {}}, "filter is not a known field; did you mean filters?"),
        ({"targets": ["System1/root"]}, "targets.0 must be an object, not 'System1/root'"),
        ({"nonsense": 1}, "nonsense is not a known field"),
    ):
        answer = await server.http.post("/v1/rules", json=new("root") | wrong)
        assert answer.json()["error"]["message"] == message
    misspelt = {"reson" if name == "reason" else name: value for name, value in new("root").items()}
    answer = await server.http.post("/v1/rules", json=misspelt)
    assert answer.json()["error"]["message"] == "reson is not a known field; did you mean reason? (and 1 more)"
    for reason in ("", " ", "two\nlines", "x" * 513):
        assert error_of(await server.http.post("/v1/rules", json=new("root", reason=reason))) == (422, "invalid_input")
    assert await table(server) == before


async def test_a_rule_whose_target_has_gone_can_still_be_switched_off(server: Opened) -> None:
    [rule] = await rules_of(server, "lab")
    await server.lab.database.run("update member set active = false where system_id = 'System1/lab'")
    await server.lab.database.run("insert into rule_set (version, author, reason) values (2, 't', 'gone')")
    assert error_of(await patch(server, rule, priority=1)) == (422, "inactive_target")
    off = await patch(server, rule, active=False)
    assert off.status_code == 200
    assert error_of(await patch(server, off.json()["rule"], active=True)) == (422, "inactive_target")


async def test_a_rule_is_deleted_and_comes_back_with_the_version_before(server: Opened) -> None:
    [rule] = await rules_of(server, "lab")
    url = f"/v1/rules/{rule['rule_id']}"
    said = {"version": rule["version"], "reason": "not needed"}
    tried = await server.http.delete(url, params={**said, "dry_run": "true"})
    assert (tried.status_code, len(await rules_of(server, "lab"))) == (200, 1)
    assert error_of(await server.http.delete(url, params={**said, "version": 99})) == (409, "conflict")
    assert error_of(await server.http.delete(url, params={"version": rule["version"]}))[0] == 422
    done = (await server.http.delete(url, params=said)).json()
    assert (done["version"], done["changes"][0]["after"]) == (2, None)
    assert await rules_of(server, "lab") == []
    assert error_of(await server.http.delete(url, params=said)) == (404, "not_found")
    await server.http.post("/v1/rules/restore", json={"version": 1, "reason": "it is"})
    assert [one["rule_id"] for one in await rules_of(server, "lab")] == [rule["rule_id"]]


async def test_rules_of_butlers_that_are_switched_off_are_skipped_and_noted(server: Opened) -> None:
    [rule] = await rules_of(server, "lab")
    await server.lab.database.run("update member set active = false where system_id = 'System1/lab'")
    await server.lab.database.run("insert into rule_set (version, author, reason) values (2, 't', 'retired')")
    await server.lab.rule_book.refresh()
    shown = await explain(server, facts={"channel": "slack"})
    assert "System1/lab" not in str(shown["trail"][0]["targets"])
    findings = (await server.http.get("/v1/rules/lint")).json()["findings"]
    [note] = [one for one in findings if one["rule_id"] == rule["rule_id"]]
    assert (note["code"], note["severity"]) == ("skipped", "note")
    await patch(server, rule, active=False)
    findings = (await server.http.get("/v1/rules/lint")).json()["findings"]
    assert [one for one in findings if one["rule_id"] == rule["rule_id"]] == []


async def test_a_dry_run_says_what_would_happen_and_writes_nothing(server: Opened) -> None:
    for number in range(3):
        await goes_to(server, channel="email", sender=f"s{number}")
    before = await table(server)
    answer = await server.http.post("/v1/rules", json=new("root", filters={"sender": "s1"}, dry_run=True))
    assert (answer.status_code, await table(server)) == (200, before)
    [example] = answer.json()["blast"]["examples"]
    lost = [{"team": "root", "category": "no_route"}]
    assert example["before"] == {"butlers": [], "dead_letters": lost, "models": []}
    assert example["after"] == {"butlers": ["System1/root"], "dead_letters": [], "models": []}
    [rule] = await rules_of(server, "lab")
    tried = await patch(server, rule, active=False, dry_run=True)
    assert (tried.status_code, await table(server)) == (200, before)


async def test_the_blast_radius_counts_the_messages_that_would_go_elsewhere(server: Opened) -> None:
    for number in range(12):
        await goes_to(server, channel="slack", sender=f"s{number}")
    await goes_to(server, channel="telegram")
    written = await made(server, channel="slack", name="all of slack", priority=1)
    blast = written["blast"]
    assert (blast["looked_at"], blast["changed"], len(blast["examples"]), blast["complete"]) == (13, 12, 10, True)
    back = await patch(server, written["rule"], active=False)
    assert back.json()["blast"]["changed"] == 12


async def test_an_edit_is_done_though_its_blast_radius_is_out_of_reach(
    server: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object, **__: object) -> AsyncIterator[list[Case]]:
        raise Unavailable("gone")

    monkeypatch.setattr("switchboard.app.rules.replays.cases_since", lost)
    written = await made(server)
    assert (written["blast"], written["version"], await version(server)) == (None, 2, 2)


async def test_a_defect_after_the_write_does_not_look_like_a_failure(
    server: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("switchboard.app.rules.records.lint_change", defect)
    with capture_logs() as logs:
        written = await made(server)
    assert (written["warnings"], written["version"]) == (None, 2)
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"]


async def test_a_blast_radius_of_other_rules_is_none(server: Opened) -> None:
    runtime = server.switchboard.runtime
    fields = {name: new("root")[name] for name in ("name", "channel", "targets")}
    replays, change = Replays(runtime), new_one(TeamId("root"), parse_draft(fields), edit_by("test"))
    never_there = RuleChange(change.after, None)
    assert await replays.blast(replays.before([never_there]), [never_there]) is None


async def test_an_edit_warns_of_rules_that_never_fire(server: Opened) -> None:
    await made(server, name="wide", channel="email", priority=5)
    hidden = await made(server, name="narrow", channel="email", filters={"sender": "x"})
    assert "shadowed" in {finding["code"] for finding in hidden["warnings"]}
    found = (await server.http.get("/v1/rules/lint")).json()
    assert hidden["rule"]["rule_id"] in {one["rule_id"] for one in found["findings"] if one["code"] == "shadowed"}


async def test_an_edit_warns_of_the_team_to_which_no_rule_leads_any_more(server: Opened) -> None:
    [way] = [rule for rule in await rules_of(server, "root") if rule["targets"] == [{"team_id": "sales"}]]
    off = (await patch(server, way, active=False, dry_run=True)).json()
    assert [(one["code"], one["team_id"]) for one in off["warnings"]] == [("unreachable", "sales")]
    second = await made(server, channel="email", targets=[{"team_id": "sales"}])
    assert (await patch(server, way, active=False)).json()["warnings"] == []
    last = (await patch(server, second["rule"], active=False)).json()
    assert [(one["code"], one["team_id"]) for one in last["warnings"]] == [("unreachable", "sales")]
    found = (await server.http.get("/v1/rules/lint")).json()["findings"]
    assert last["warnings"][0]["message"] in {one["message"].split(";")[0] for one in found}


async def test_an_import_that_leaves_a_team_without_rules_warns_of_it(server: Opened) -> None:
    document = {"format": "switchboard.rules.v1", "teams": {"lab": []}}
    body = {"document": document, "reason": "a test"}
    for dry_run in (True, False):
        answer = (await server.http.post("/v1/rules/import", json={**body, "dry_run": dry_run})).json()
        found = [(one["code"], one["team_id"]) for one in answer["warnings"]]
        assert found == [("dead_letters_everything", "lab")]


# Lists and history ---------------------------------------------------------------------------------------------------


async def test_rules_are_listed_page_by_page(server: Opened) -> None:
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 3}
    while True:
        page = (await server.http.get("/v1/rules", params=query)).json()
        seen += [rule["rule_id"] for rule in page["rules"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert seen == sorted(seen)
    assert len(set(seen)) == 7
    assert error_of(await server.http.get("/v1/rules?cursor=x")) == (422, "invalid_cursor")


async def test_everything_that_was_done_to_a_rule_is_told(server: Opened) -> None:
    rule = (await made(server, reason="first"))["rule"]
    await patch(server, rule, priority=2, reason="second")
    found = (await server.http.get(f"/v1/rules/{rule['rule_id']}")).json()
    assert found.keys() == {"rule", "history"}
    assert [(e["version"], e["reason"], e["author"]) for e in found["history"]] == [
        (3, "second", "operator-1"),
        (2, "first", "operator-1"),
    ]
    assert found["history"][1]["before"] is None
    assert (found["history"][0]["before"]["priority"], found["rule"]["priority"]) == (0, 2)
    versions = (await server.http.get("/v1/rules/versions?limit=2")).json()
    assert [v["version"] for v in versions["versions"]] == [3, 2]
    older = (await server.http.get("/v1/rules/versions", params={"cursor": versions["next_cursor"]})).json()
    assert [one["version"] for one in older["versions"]] == [1]
    one = (await server.http.get("/v1/rules/versions/3")).json()
    assert (one["changed"], one["changes"][0]["fields"]) == (1, {"priority": [0, 2]})
    diff = (await server.http.get("/v1/rules/diff?from=1&to=3")).json()
    assert [(c["before"], c["after"]["priority"]) for c in diff["changes"]] == [(None, 2)]
    way_back = (await server.http.get("/v1/rules/diff?from=3&to=1")).json()
    assert way_back["changes"][0]["after"] is None
    for path in (f"/v1/rules/{uuid4()}", "/v1/rules/versions/99", "/v1/rules/diff?from=1&to=99"):
        assert error_of(await server.http.get(path)) == (404, "not_found")


async def test_a_large_difference_does_not_hold_up_the_server(server: Opened) -> None:
    """That of 20,000 rules did, for more than a second, and every agent may ask for it."""
    await server.lab.database.run(
        "insert into rule_set (version, author, reason, teams) values (2, 'a', 'many', false)"
    )
    await server.lab.database.run(
        "insert into rule_change (version, team_id, rule_id, after) select 2, c.team_id, n.id,"
        " jsonb_set(c.after::jsonb, '{rule_id}', to_jsonb(n.id::text))::json"
        " from (select * from rule_change limit 1) c,"
        " lateral (select gen_random_uuid() as id from generate_series(1, 5000 + c.version)) n"
    )
    turns = [time.thread_time()]
    turning = asyncio.create_task(_turns(turns))
    whole = time.process_time()
    found = await RuleRecords(Runtime(Settings(), server.lab.database, server.lab.notifier, server.lab.rule_book)).diff(
        ALL, 1, 2
    )
    turns.append(time.thread_time())
    whole = time.process_time() - whole
    turning.cancel()
    assert found.changed > 5000
    assert max(after - before for before, after in pairwise(turns)) < whole / 4


async def _turns(seen: list[float]) -> None:
    """What the loop has worked, each time that it comes to us."""
    while True:
        await asyncio.sleep(0.001)
        seen.append(time.thread_time())


async def test_an_export_imported_again_changes_nothing(server: Opened) -> None:
    document = (await server.http.get("/v1/rules/export")).json()
    assert document["teams"].keys() == {"root", "sales", "desk", "lab", "old"}
    body = {"document": document, "reason": "again", "expected_version": 1}
    answer = await server.http.post("/v1/rules/import", json=body)
    assert (answer.status_code, answer.json()["changed"], await version(server)) == (200, 0, 1)
    await made(server, "lab")
    one = (await server.http.get("/v1/rules/export?team_id=lab&version=1")).json()
    assert [len(rules) for rules in one["teams"].values()] == [1]
    stale = await server.http.post("/v1/rules/import", json=body)
    assert error_of(stale) == (409, "conflict")
    assert error_of(await server.http.get("/v1/rules/export?team_id=lob")) == (404, "not_found")
    assert error_of(await server.http.get("/v1/rules/export?version=77")) == (404, "not_found")


async def test_an_export_makes_another_installation_the_same_to_the_last_date(server: Opened) -> None:
    rule = (await made(server, "lab"))["rule"]
    await patch(server, rule, priority=3)
    await load(server)
    document = (await server.http.get("/v1/rules/export")).json()
    await server.lab.database.run("delete from rule")
    await server.lab.database.run(
        "insert into rule_set (version, author, reason, teams) values (99, 't', 'gone', true)"
    )
    body = {"document": document, "reason": "a new house"}
    assert (await server.http.post("/v1/rules/import", json=body)).json()["version"] == 100
    assert (await server.http.get("/v1/rules/export")).json()["teams"] == document["teams"]


# Edits that others overtake ------------------------------------------------------------------------------------------


def overtaken(server: Opened, monkeypatch: pytest.MonkeyPatch, times: int = 1, **rule: Any) -> None:
    """The next to write finds that another process has made a rule of the team lab since it looked, `times` times."""
    write, left = store.write, [None] * times

    async def late(database: Database, changes: Sequence[RuleChange], **order: Any) -> object:
        if left:
            left.pop()
            fields = {name: new("lab", **rule)[name] for name in ("name", "channel", "targets", *rule)}
            other = new_one(TeamId("lab"), parse_draft(fields), edit_by("another"))
            await write(server.lab.database, [other], by=Authorship("another", "in between"))
        return await write(database, changes, **order)

    monkeypatch.setattr(store, "write", late)


SLACK_OF_LAB: dict[str, Any] = {
    "format": "switchboard.rules.v1",
    "teams": {"lab": [{"name": "slack", "channel": "slack", "targets": [{"system_id": "System1/lab"}]}]},
}
LAB_OF_SLACK = {"name": "P", "routing_requirements": [{"team": "lab", "agent": "lab", "channel": "slack", "name": "x"}]}


async def test_an_import_leaves_no_rule_that_came_in_between(server: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    overtaken(server, monkeypatch)
    body = {"document": SLACK_OF_LAB, "reason": "a test"}
    answer = await server.http.post("/v1/rules/import", json=body)
    assert (answer.status_code, answer.json()["changed"], answer.json()["version"]) == (200, 3, 3)
    assert [rule["name"] for rule in await rules_of(server, "lab")] == ["slack"]


async def test_going_back_leaves_no_rule_that_came_in_between(server: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (await server.http.get("/v1/rules/export")).json()["teams"]
    await made(server, "lab")
    overtaken(server, monkeypatch)
    body = {"version": 1, "team_id": "lab", "reason": "a test"}
    assert (await server.http.post("/v1/rules/restore", json=body)).json()["version"] == 4
    assert (await server.http.get("/v1/rules/export")).json()["teams"] == before


async def test_an_sop_is_loaded_although_others_edit(server: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    overtaken(server, monkeypatch)
    answer = await server.http.put("/v1/sops/P", json={"document": LAB_OF_SLACK, "reason": "a test"})
    assert (answer.json()["changed"], answer.json()["version"]) == (1, 3)
    overtaken(server, monkeypatch)
    answer = await server.http.delete("/v1/sops/P?reason=done")
    assert (answer.json()["changed"], answer.json()["version"]) == (1, 5)


async def test_the_rules_that_are_tested_are_those_that_are_written(
    server: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    mail = {"name": "all", "channel": "*", "targets": [{"team_id": "lab"}]}
    document = {"format": "switchboard.rules.v1", "teams": {"root": [mail]}}
    case = {"facts": {"channel": "email"}, "expect": {"dead_letters": [{"team": "lab", "category": "no_route"}]}}
    body = {"document": document, "reason": "a test", "tests": {"cases": [case]}}
    tried = await server.http.post("/v1/rules/import", json={**body, "dry_run": True})
    assert (tried.status_code, await version(server)) == (200, 1)
    overtaken(server, monkeypatch, channel="email")
    assert error_of(await server.http.post("/v1/rules/import", json=body)) == (422, "route_tests_failed")
    assert await version(server) == 2, "only the other one's"


async def test_an_edit_with_an_expected_version_or_overtaken_twice_is_a_conflict(
    server: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"document": SLACK_OF_LAB, "reason": "a test"}
    overtaken(server, monkeypatch)
    seen = await server.http.post("/v1/rules/import", json={**body, "expected_version": 1})
    assert (error_of(seen), await version(server)) == ((409, "conflict"), 2)
    overtaken(server, monkeypatch, times=5)
    twice = await server.http.post("/v1/rules/import", json=body)
    assert (error_of(twice), await version(server)) == ((409, "conflict"), 7)
    assert "slack" not in {rule["name"] for rule in await rules_of(server, "lab")}


async def test_going_back_is_a_version_of_its_own(server: Opened) -> None:
    written = (await made(server))["rule"]
    [lab] = await rules_of(server, "lab")
    await patch(server, lab, priority=9)
    body = {"version": 1, "reason": "it was better before"}
    tried = await server.http.post("/v1/rules/restore", json={**body, "dry_run": True})
    assert (tried.json()["changed"], await version(server)) == (2, 3)
    back = (await server.http.post("/v1/rules/restore", json=body)).json()
    assert (back["version"], back["changed"]) == (4, 2)
    [again] = await rules_of(server, "lab")
    assert (again["priority"], again["version"]) == (0, 4)
    removed = (await server.http.get(f"/v1/rules/{written['rule_id']}")).json()
    assert removed["history"][0]["after"] is None
    assert await goes_to(server, channel="email") == "root"
    assert error_of(await server.http.post("/v1/rules/restore", json={**body, "version": 99})) == (404, "not_found")
    unknown = await server.http.post("/v1/rules/restore", json={**body, "team_id": "x"})
    assert error_of(unknown) == (422, "unknown_team")


async def test_rules_that_fail_their_tests_are_not_imported(server: Opened) -> None:
    rules = [{"name": "all", "channel": "email", "targets": [{"system_id": "System1/lab"}]}]
    document = {"format": "switchboard.rules.v1", "teams": {"lab": rules}}
    case = {"name": "mail", "facts": {"channel": "email"}, "expect": "System1/root"}
    body = {"document": document, "reason": "r", "tests": {"cases": [case]}}
    before = await table(server)
    refused = await server.http.post("/v1/rules/import", json=body)
    assert error_of(refused) == (422, "route_tests_failed")
    [result] = refused.json()["error"]["details"]["results"]
    assert (result["name"], result["got"]["dead_letters"][0]["team"]) == ("mail", "root")
    assert await table(server) == before
    body["tests"] = {"cases": [{**case, "expect": {"dead_letters": [{"team": "root", "category": "no_route"}]}}]}
    assert (await server.http.post("/v1/rules/import", json=body)).json()["changed"] == 2


# Rules tried ---------------------------------------------------------------------------------------------------------


async def test_cases_are_run_on_the_rules_in_force_or_on_those_of_a_file(server: Opened) -> None:
    cases = [
        {"facts": {"channel": "telegram"}, "expect": "System1/root"},
        {"name": "mail", "facts": {"channel": "email"}, "expect": "System1/root"},
    ]
    run = (await server.http.post("/v1/rules/test", json={"cases": cases})).json()
    assert (run["passed"], run["failed"], [r["passed"] for r in run["results"]]) == (1, 1, [True, False])
    rules = [{"name": "all", "channel": "*", "targets": [{"system_id": "System1/root"}]}]
    document = {"format": "switchboard.rules.v1", "teams": {"root": rules}}
    proposed = (await server.http.post("/v1/rules/test", json={"cases": cases, "document": document})).json()
    assert (proposed["passed"], await version(server)) == (2, 1)
    wrong = await server.http.post("/v1/rules/test", json={"cases": [{"facts": {"channel": "x"}, "expect": "y"}]})
    assert (error_of(wrong), wrong.json()["error"]["field"]) == ((422, "unknown_channel"), "cases[0].facts.channel")


async def explain(server: Opened, **question: Any) -> dict[str, Any]:
    answer = await server.http.post("/v1/rules/explain", json=question)
    assert answer.status_code == 200, answer.text
    explained: dict[str, Any] = answer.json()
    return explained


async def test_a_message_that_nobody_sent_is_explained(server: Opened) -> None:
    await made(server, channel="telegram", name="later")
    await made(server, channel="telegram", name="special", filters={"sender": "bob", "chat_type": "group"}, priority=-1)
    said = await explain(server, facts={"channel": "telegram", "sender": "alice"})
    [step] = said["trail"]
    assert said["receivers"]["butlers"] == ["System1/root"]
    assert [one["fired"] for one in step["considered"]] == [False] * (len(step["considered"]) - 1) + [True]
    assert [(one["name"], one["by"]) for one in step["beaten"]] == [("later", "older")]
    down = await explain(server, envelope=envelope_json("hello", channel="slack"))
    assert [one["team_id"] for one in down["trail"]] == ["root", "sales", "desk"]
    assert await server.lab.count("select count(*) from message_inbox") == 0
    pinned = await explain(server, facts={"channel": "slack"}, pinned="System1/desk")
    assert (pinned["trail"][0]["reason"], pinned["receivers"]["butlers"]) == ("pin", ["System1/desk"])
    named = await explain(server, envelope=envelope_json("hello", channel="slack", pinned="System1/lab"))
    assert named["receivers"]["butlers"] == ["System1/lab"]


async def test_when_nothing_matches_the_nearest_rules_are_named(server: Opened) -> None:
    await made(server, channel="email", name="two off", filters={"sender": "x", "email_domain": "y"})
    await made(server, channel="email", name="one off", filters={"sender": "x"})
    said = await explain(server, facts={"channel": "email", "sender": "z"})
    nearest = said["trail"][0]["nearest"]
    assert [(one["name"], one["failed"]) for one in nearest[:1]] == [("one off", 1)]
    assert (nearest[0]["failed_filter"], nearest[0]["expected"], nearest[0]["actual"]) == ("sender", "x", "z")


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ({"facts": {"sender": "x"}}, "unknown_channel"),
        ({"facts": {"channel": "telegrm"}}, "unknown_channel"),
        ({"facts": {"channel": "email", "telegram_chat_id": "5"}}, "unknown_filter_key"),
        ({"facts": {"channel": "email", "email_domain": "Example.org"}}, "unmatchable_value"),
        ({"envelope": {}}, "missing_field"),
        ({"envelope": {**envelope_json("x"), "sender": {"identity": "\ud800"}}}, "invalid_input"),
        ({}, "invalid_input"),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(
    server: Opened, question: Mapping[str, Any], code: str
) -> None:
    headers = {"content-type": "application/json"}
    answer = await server.http.post("/v1/rules/explain", content=json.dumps(question), headers=headers)
    assert error_of(answer) == (422, code)


async def test_the_past_is_explained_by_the_rules_of_the_past(server: Opened) -> None:
    request_id = (await server.submit(envelope_json("hello"))).json()["request_id"]
    root = next(rule for rule in await rules_of(server, "root") if rule["channel"] == "telegram")
    await patch(server, root, channel="email", name="another name")
    await made(server, channel="telegram", priority=9)
    found = (await server.http.get(f"/v1/messages/{request_id}/explain")).json()
    [decision] = found["decisions"]
    [step] = decision["trail"]
    assert (decision["version"], [(one["name"], one["fired"]) for one in step["considered"]]) == (
        1,
        [(root["name"], True)],
    )


# Backtests -----------------------------------------------------------------------------------------------------------


async def backtest(server: Opened, **body: Any) -> list[dict[str, Any]]:
    answer = await server.http.post("/v1/rules/backtest", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson"), answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_a_backtest_shows_only_what_would_change(server: Opened) -> None:
    for number in range(5):
        await goes_to(server, channel="slack", sender=f"s{number}")
    await goes_to(server, channel="telegram")
    before = await table(server)
    one = {**{k: v for k, v in new("root", channel="slack", priority=1).items() if k != "reason"}}
    *progress, last = await backtest(server, changes=[{**one, "filters": {"sender": "s3"}}])
    assert [line["progress"] for line in progress] == [{"looked_at": 0, "of": 6}, {"looked_at": 6, "of": 6}]
    assert (last["result"]["looked_at"], last["result"]["changed"]) == (6, 1)
    [example] = last["result"]["examples"]
    assert (example["before"]["butlers"], example["after"]["butlers"]) == ([], ["System1/root"])
    rules = [{"name": "all", "channel": "*", "targets": [{"system_id": "System1/root"}]}]
    document = {"format": "switchboard.rules.v1", "teams": {"root": rules}}
    newest = (await backtest(server, document=document, last=2))[-1]["result"]
    assert (newest["looked_at"], newest["changed"]) == (2, 1)
    assert (await backtest(server, document=document, days=1))[-1]["result"]["changed"] == 5
    [rule] = await rules_of(server, "desk")
    off = {"rule_id": rule["rule_id"], "active": False}
    assert (await backtest(server, changes=[off]))[-1]["result"]["changed"] == 0
    assert await table(server) == before


async def test_a_proposal_that_makes_no_sense_is_refused_before_the_first_line(server: Opened) -> None:
    wrong = {"team_id": "root", "name": "n", "channel": "slack", "targets": [{"team_id": "desk"}]}
    for body, expected in (
        ({"changes": [wrong]}, (422, "target_not_in_team")),
        ({"changes": [{"rule_id": str(uuid4()), "active": False}]}, (404, "not_found")),
        ({"document": {"format": "x"}}, (422, "invalid_rule_file")),
        ({}, (422, "invalid_input")),
    ):
        assert error_of(await server.http.post("/v1/rules/backtest", json=body)) == expected


async def test_a_backtest_ends_when_nobody_reads_it(server: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = asyncio.Event()

    async def endless(*_: object, **__: object) -> AsyncIterator[list[Case]]:
        try:
            while True:
                yield [Case(uuid4(), {"channel": "slack"})] * 100
        finally:
            ended.set()

    monkeypatch.setattr("switchboard.app.rules.replays.cases_since", endless)
    document = {"format": "switchboard.rules.v1", "teams": {"lab": []}}
    async with server.http.stream("POST", "/v1/rules/backtest", json={"document": document}) as answer:
        lines = answer.aiter_lines()
        assert "progress" in json.loads(await anext(lines))
    async with asyncio.timeout(20):
        await ended.wait()


# SOPs ----------------------------------------------------------------------------------------------------------------

SOP = {
    "name": "First run",
    "routing_requirements": [
        {"team": "root", "target": "lab", "channel": "email"},
        {"team": "lab", "agent": "lab", "channel": "email", "name": "lab mails"},
    ],
}


async def load(server: Opened, document: Mapping[str, Any] = SOP) -> dict[str, Any]:
    answer = await server.http.put("/v1/sops/First run", json={"document": document, "reason": "a test"})
    assert answer.status_code == 200, answer.text
    written: dict[str, Any] = answer.json()
    return written


async def test_an_sop_registers_exactly_its_own_rules(server: Opened) -> None:
    assert (await load(server))["changed"] == 2
    assert await goes_to(server, channel="email") == "System1/lab"
    assert ((await load(server))["changed"], await version(server)) == (0, 2)
    shorter = {**SOP, "routing_requirements": SOP["routing_requirements"][:1]}
    assert (await load(server, shorter))["changed"] == 1
    listed = (await server.http.get("/v1/sops")).json()["sops"]
    assert listed == [{"source": "sop:First run", "rules": 2, "active": 1, "teams": ["lab", "root"]}]
    gone = await server.http.delete("/v1/sops/First run?reason=done")
    assert (gone.json()["changed"], await goes_to(server, channel="email")) == (1, "root")
    assert (await load(server))["changed"] == 2
    assert len(await rules_of(server, "lab", source="sop:First run")) == 1


async def test_an_sop_may_have_any_name(server: Opened) -> None:
    for name in ("a/b", "50 %", "ü?"):
        url = f"/v1/sops/{quote(name, safe='')}"
        body = {"document": {**SOP, "name": name}, "reason": "a test"}
        assert (await server.http.put(url, json=body)).json()["changed"] == 2
        assert (await server.http.delete(f"{url}?reason=done")).json()["changed"] == 2


async def test_the_rules_of_an_sop_are_its_own_to_change(server: Opened) -> None:
    await load(server)
    [rule] = await rules_of(server, "lab", source="sop:First run")
    changed = await patch(server, rule, priority=1)
    assert error_of(changed) == (409, "conflict")
    assert "First run" in changed.json()["error"]["message"]
    assert (await patch(server, rule, active=False)).status_code == 200
    document = (await server.http.get("/v1/rules/export?team_id=lab")).json()
    [exported] = [one for one in document["teams"]["lab"] if one["source"]]
    exported["priority"] = 99
    imported = await server.http.post("/v1/rules/import", json={"document": document, "reason": "a whole file"})
    assert (imported.status_code, imported.json()["changed"]) == (200, 1)
    await load(server)
    [again] = await rules_of(server, "lab", source="sop:First run")
    assert (again["priority"], again["active"]) == (0, True), "its own again"
    other = await server.http.put("/v1/sops/Second", json={"document": SOP, "reason": "r"})
    assert error_of(other) == (422, "invalid_sop")
    assert error_of(await server.http.delete("/v1/sops/Second?reason=r")) == (404, "not_found")


# Audit ---------------------------------------------------------------------------------------------------------------


async def test_operators_read_what_was_refused(server: Opened) -> None:
    headers = await server.token_for(agent(1, "lab"))
    for _ in range(3):
        await server.http.post("/v1/rules", json=new("lab"), headers=headers)
    first = (await server.http.get("/v1/audit?action=refused:rules_edit&limit=2")).json()
    [rest] = (await server.http.get(f"/v1/audit?action=refused:rules_edit&cursor={first['next_cursor']}")).json()[
        "entries"
    ]
    entries = [*first["entries"], rest]
    assert {entry["actor"] for entry in entries} == {"system1-lab"}
    assert entries[0]["detail"] == {"role": "agent", "system_id": "System1/lab", "teams": ["lab"]}
    assert len({entry["audit_id"] for entry in entries}) == 3
    assert datetime.fromisoformat(entries[0]["at"]) >= datetime.fromisoformat(entries[-1]["at"])


# MCP -----------------------------------------------------------------------------------------------------------------

READING = {f"routing_rules_{name}" for name in ("list", "get", "test", "explain", "versions", "lint")}
EDITING = {f"routing_rules_{name}" for name in ("create", "update", "disable", "delete", "restore", "backtest")}


async def tools_of(server: Opened, principal: Principal) -> set[str]:
    headers = await server.token_for(principal)
    listed = await mcp(server, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers)
    return {name for one in listed["result"]["tools"] if (name := one["name"]).startswith("routing_rules_")}


async def test_tools_are_listed_to_those_who_may_call_them(server: Opened) -> None:
    assert await tools_of(server, Principal("operator", "boss")) == READING | EDITING
    assert await tools_of(server, agent(3, "desk")) == READING | EDITING
    for principal in (agent(1, "desk"), agent(4, "root"), agent(3, "old")):
        assert await tools_of(server, principal) == READING
    assert await tools_of(server, CONNECTOR) == set()


async def test_a_system3_edits_by_its_tools(server: Opened) -> None:
    headers = await server.token_for(agent(3, "sales"))

    async def call(name: str, /, **arguments: Any) -> Any:
        answer = await tool(server, f"routing_rules_{name}", arguments, headers)
        assert not answer["result"].get("isError"), answer
        return answer["result"]["structuredContent"]

    rule = (await call("create", **new("desk")))["rule"]
    assert rule["created_by"] == "system3-sales (System3/sales)"
    changed = (await call("update", rule_id=rule["rule_id"], version=rule["version"], name="b", reason="r"))["rule"]
    off = await call("disable", rule_id=rule["rule_id"], version=changed["version"], reason="r")
    assert (off["rule"]["active"], off["blast"]["changed"]) == (False, 0)
    assert [one["name"] for one in (await call("list", team_id="desk", limit=1))["rules"]] != []
    assert len((await call("get", rule_id=rule["rule_id"]))["history"]) == 3
    cases = [{"facts": {"channel": "telegram"}, "expect": "System1/root"}]
    assert (await call("test", cases=cases))["passed"] == 1
    assert (await call("explain", facts={"channel": "slack"}))["trail"][0]["team_id"] == "sales", "not what is above"


async def test_a_system3_has_its_whole_skill_by_its_tools(server: Opened) -> None:
    headers = await server.token_for(agent(3, "sales"))

    async def call(name: str, /, **arguments: Any) -> Any:
        return (await tool(server, name, arguments, headers))["result"].get("structuredContent")

    document = {
        "name": "Fair",
        "routing_requirements": [{"team": "sales", "agent": "sales", "channel": "email", "name": "visitors"}],
    }
    loaded = await call("sops_load", name="Fair", document=document, reason="the fair")
    assert (loaded["version"], loaded["changed"]) == (2, 1)
    assert [one["source"] for one in (await call("sops_list"))["sops"]] == ["sop:Fair"]
    assert [one["version"] for one in (await call("routing_rules_versions", limit=1))["versions"]] == [2]
    assert isinstance((await call("routing_rules_lint"))["findings"], list)
    await server.submit(envelope_json("hello", channel="slack"))
    [rule] = [one for one in await rules_of(server, "desk") if one["channel"] == "telegram"]
    tried = await call("routing_rules_backtest", changes=[{"rule_id": rule["rule_id"], "channel": "slack"}])
    assert (tried["looked_at"], tried["changed"]) == (1, 1)
    assert (await call("sops_unload", name="Fair", reason="it is over"))["changed"] == 1
    restored = await call("routing_rules_restore", version=2, team_id="sales", reason="once more")
    assert restored["changed"] == 1
    [letter] = (await call("dead_letters_list"))["dead_letters"]
    assert letter["team_id"] == "desk", "of a team below"
    sent = await call(
        "dead_letters_reroute",
        dead_letter_id=letter["dead_letter_id"],
        reason="to the desk",
        to={"system_id": "System1/desk"},
    )
    assert sent["dead_letter"]["handled_by_system_id"] == "System3/sales"
    refused = await tool(server, "routing_rules_restore", {"version": 1, "team_id": "lab", "reason": "theirs"}, headers)
    assert refused["result"]["isError"]


async def test_a_refused_edit_is_an_error_with_its_reason_and_on_record(server: Opened) -> None:
    headers = await server.token_for(agent(3, "sales"))
    answer = await tool(server, "routing_rules_create", new("lab"), headers)
    error = json.loads(answer["result"]["content"][0]["text"])["error"]
    assert (answer["result"]["isError"], error["code"]) == (True, "forbidden")
    assert "lab" in error["message"]
    assert await refusals(server) == 1
    wrong = await tool(server, "routing_rules_create", new("desk", filters={"x": "y"}), headers)
    error = json.loads(wrong["result"]["content"][0]["text"])["error"]
    assert (error["code"], error["details"]["problems"][0]["field"]) == ("unknown_filter_key", "filters.x")
    missing = await tool(server, "routing_rules_update", {"rule_id": "x"}, headers)
    assert '"missing_field"' in missing["result"]["content"][0]["text"]


# What an attacker tried -----------------------------------------------------------------------------------------------


async def test_an_id_that_was_another_teams_is_nobodys(server: Opened) -> None:
    """Who took it would stand in the way of that team's restoration."""
    [removed] = await rules_of(server, "lab")
    empty = {"document": {"format": "switchboard.rules.v1", "teams": {"lab": []}}, "reason": "a test"}
    assert (await server.http.post("/v1/rules/import", json=empty)).status_code == 200
    taken = await server.http.post("/v1/rules", json=new("sales", rule_id=removed["rule_id"]))
    assert error_of(taken) == (409, "conflict")
    back = await server.http.post("/v1/rules/restore", json={"version": 1, "reason": "a test"})
    assert back.status_code == 200, back.text
    assert [rule["rule_id"] for rule in await rules_of(server, "lab")] == [removed["rule_id"]]


async def test_a_team_filters_by_so_many_sets_of_keys_and_no_more(server: Opened) -> None:
    """A decision looks up each of them."""
    keys = (
        "channel",
        "endpoint",
        "sender",
        "thread",
        "chat_type",
        "email_to",
        "email_sender",
        "email_domain",
        "email_auth",
    )
    values = {"channel": "email", "chat_type": "private", "email_auth": "pass", "email_domain": "x.org"}
    values |= dict.fromkeys(("email_to", "email_sender"), "a@x.org")
    sets = [[key for at, key in enumerate(keys) if n >> at & 1] for n in range(1, 300)]
    rules = [
        {"name": f"{n}", "channel": "*", "filters": {key: values.get(key, "x") for key in chosen}, "targets": TO_LAB}
        for n, chosen in enumerate(sets)
    ]
    body = {"document": {"format": "switchboard.rules.v1", "teams": {"lab": rules}}, "reason": "a test"}
    assert error_of(await server.http.post("/v1/rules/import", json=body)) == (422, "too_many_key_sets")
    body["document"] = {"format": "switchboard.rules.v1", "teams": {"lab": rules[:200]}}
    assert (await server.http.post("/v1/rules/import", json=body)).status_code == 200


TO_LAB = [{"system_id": "System1/lab"}]


async def test_a_backtest_names_messages_of_ones_own_teams_only(server: Opened) -> None:
    headers = await server.token_for(agent(3, "desk"))
    fields = {key: value for key, value in new("root", filters={"sender": "victim"}).items() if key != "reason"}
    before = await refusals(server)
    refused = await server.http.post("/v1/rules/backtest", json={"changes": [fields]}, headers=headers)
    assert (refused.status_code, await refusals(server)) == (403, before + 1)
    own = {key: value for key, value in new("desk").items() if key != "reason"}
    assert (await server.http.post("/v1/rules/backtest", json={"changes": [own]}, headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/rules?team_id=sale", "there is no team 'sale'; did you mean sales?"),
        ("/v1/teams/sale", "there is no team 'sale'; did you mean sales?"),
        ("/v1/rules/export?team_id=sale", "there is no team 'sale'; did you mean sales?"),
        ("/v1/rules?source=sop:typo", "no rule has ever been registered by 'sop:typo'; known here: none"),
    ],
)
async def test_rules_of_what_does_not_exist_are_not_found(server: Opened, path: str, said: str) -> None:
    answer = await server.http.get(path)
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, said)
