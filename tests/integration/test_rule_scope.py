"""Who may edit which rules: every token at every interface that edits, in its own teams and in all others.

Allowed is what the table says, and nothing else: after each refusal the rules are what they were, and it is on record.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from switchboard.app.access import Principal
from switchboard.domain.routing import TeamId
from tests.lab import ROOT
from tests.ruling import DESK, LAB, OLD, SALES, agent, error_of, new, refusals, rules_of, table, tool, tree
from tests.servers import CONNECTOR, Opened, open_server

Headers = Mapping[str, str]
EVERYWHERE = (ROOT, SALES, DESK, LAB)

ALLOWED: tuple[tuple[Principal, frozenset[TeamId]], ...] = (
    (Principal("operator", "boss"), frozenset(EVERYWHERE)),
    (CONNECTOR, frozenset()),
    *((agent(number, "root"), frozenset()) for number in (1, 2, 4, 5)),
    (agent(3, "root"), frozenset(EVERYWHERE)),
    *((agent(number, "sales"), frozenset()) for number in (1, 2, 4, 5)),
    (agent(3, "sales"), frozenset((SALES, DESK))),
    (agent(3, "desk"), frozenset((DESK,))),
    (agent(3, "lab"), frozenset((LAB,))),
    (agent(3, "old"), frozenset()),  # not active
    (agent(3, "nowhere"), frozenset()),  # nobody's
)


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data", tree=tree()) as opened:
        yield opened


# The interfaces that edit: each edits something in a team, and says how it was answered ------------------------------

Interface = Callable[[Opened, Headers, TeamId], Awaitable[int]]


async def _by_hand(server: Opened, team_id: TeamId) -> dict[str, Any]:
    """A rule of the team that no SOP owns."""
    return next(rule for rule in await rules_of(server, team_id) if not rule["source"])


async def http_create(server: Opened, headers: Headers, team_id: TeamId) -> int:
    return (await server.http.post("/v1/rules", json=new(team_id), headers=headers)).status_code


async def http_try(server: Opened, headers: Headers, team_id: TeamId) -> int:
    return (await server.http.post("/v1/rules", json=new(team_id, dry_run=True), headers=headers)).status_code


async def http_update(server: Opened, headers: Headers, team_id: TeamId) -> int:
    rule = await _by_hand(server, team_id)
    patch = {"version": rule["version"], "name": f"{rule['name']}!", "reason": "a test"}
    return (await server.http.patch(f"/v1/rules/{rule['rule_id']}", json=patch, headers=headers)).status_code


async def http_restore(server: Opened, headers: Headers, team_id: TeamId) -> int:
    body = {"version": 1, "team_id": team_id, "reason": "a test"}
    return (await server.http.post("/v1/rules/restore", json=body, headers=headers)).status_code


async def http_import(server: Opened, headers: Headers, team_id: TeamId) -> int:
    rules = [{name: new(team_id)[name] for name in ("name", "channel", "targets")}]
    document = {"format": "switchboard.rules.v1", "teams": {team_id: rules}}
    body = {"document": document, "reason": "a test"}
    return (await server.http.post("/v1/rules/import", json=body, headers=headers)).status_code


async def http_load(server: Opened, headers: Headers, team_id: TeamId) -> int:
    needed = [{"team": team_id, "agent": team_id, "channel": "cli"}]
    body = {"document": {"name": f"for {team_id}", "routing_requirements": needed}, "reason": "a test"}
    return (await server.http.put(f"/v1/sops/for {team_id}", json=body, headers=headers)).status_code


async def http_unload(server: Opened, headers: Headers, team_id: TeamId) -> int:
    return (await server.http.delete(f"/v1/sops/for {team_id}?reason=a+test", headers=headers)).status_code


async def _called(server: Opened, name: str, arguments: Mapping[str, Any], headers: Headers) -> int:
    """A tool's answer as a status of HTTP; one that is not offered counts as forbidden."""
    answer = await tool(server, name, arguments, headers)
    if "error" in answer:
        assert "unknown tool" in answer["error"]["message"]
        return 403
    refused = answer["result"].get("isError", False)
    assert not refused or '"forbidden"' in answer["result"]["content"][0]["text"]
    return 403 if refused else 200


async def mcp_create(server: Opened, headers: Headers, team_id: TeamId) -> int:
    return await _called(server, "routing_rules_create", new(team_id), headers)


async def mcp_update(server: Opened, headers: Headers, team_id: TeamId) -> int:
    rule = await _by_hand(server, team_id)
    change = {"rule_id": rule["rule_id"], "version": rule["version"], "priority": 7, "reason": "a test"}
    return await _called(server, "routing_rules_update", change, headers)


async def mcp_disable(server: Opened, headers: Headers, team_id: TeamId) -> int:
    rule = await _by_hand(server, team_id)
    switch = {"rule_id": rule["rule_id"], "version": rule["version"], "reason": "a test"}
    return await _called(server, "routing_rules_disable", switch, headers)


INTERFACES: tuple[Interface, ...] = (
    *(http_load, http_create, http_try, http_update, http_unload),
    *(mcp_create, mcp_update, mcp_disable, http_import, http_restore),
)


@pytest.mark.slow
@pytest.mark.parametrize(("caller", "allowed"), ALLOWED, ids=[caller.name for caller, _ in ALLOWED])
async def test_every_token_at_every_door_and_team(
    server: Opened, caller: Principal, allowed: frozenset[TeamId]
) -> None:
    operator = await server.token_for(Principal("operator", "first"))
    for team_id in EVERYWHERE:
        assert await http_load(server, operator, team_id) == 200
    headers = await server.token_for(caller)
    for team_id in EVERYWHERE:
        for interface in INTERFACES:
            before, on_record = await table(server), await refusals(server)
            status = await interface(server, headers, team_id)
            where = (caller.name, interface.__name__, team_id, status)
            if team_id in allowed:
                assert status in (200, 201), where
                assert await refusals(server) == on_record, where
            else:
                assert status == 403, where
                assert await refusals(server) == on_record + 1, where
                assert await table(server) == before, where


async def test_who_may_not_edit_a_rule_is_not_told_what_is_wrong_with_the_edit(server: Opened) -> None:
    operator = await server.token_for(Principal("operator", "first"))
    assert await http_create(server, operator, LAB) == 201
    rule = await _by_hand(server, LAB)
    caller = next(caller for caller, allowed in ALLOWED if allowed and LAB not in allowed)
    answer = await server.http.patch(
        f"/v1/rules/{rule['rule_id']}",
        json={"version": rule["version"], "reason": "a test"},
        headers=await server.token_for(caller),
    )
    assert (error_of(answer), await refusals(server)) == ((403, "forbidden"), 1)


@pytest.mark.slow
@pytest.mark.parametrize(("caller", "allowed"), ALLOWED, ids=[caller.name for caller, _ in ALLOWED])
async def test_messages_of_a_team_are_replayed_by_those_who_may_edit_it(
    server: Opened, caller: Principal, allowed: frozenset[TeamId]
) -> None:
    headers = await server.token_for(caller)
    body = {"document": {"format": "switchboard.rules.v1", "teams": {"lab": []}}}
    answer = await server.http.post("/v1/rules/backtest", json=body, headers=headers)
    if LAB in allowed:
        assert (answer.status_code, await refusals(server)) == (200, 0)
    else:
        assert (error_of(answer), await refusals(server)) == ((403, "forbidden"), 1)


async def test_a_token_that_has_ended_edits_nothing(server: Opened) -> None:
    boss = Principal("operator", "boss")
    ended = await server.access.issue(boss, agent(3, "root"), datetime.now(UTC) - timedelta(seconds=1))
    revoked = await server.access.issue(boss, agent(3, "sales"))
    await server.access.revoke(boss, "system3-sales")
    before = await table(server)
    for secret in (ended.secret, revoked.secret):
        headers = {"authorization": f"Bearer {secret}"}
        for interface in INTERFACES[1:4]:
            assert await interface(server, headers, DESK) == 401
        refused = await server.http.post("/mcp", json={}, headers=headers)
        assert refused.status_code == 401
    assert await table(server) == before


async def test_a_member_that_loses_its_role_loses_the_right_with_the_next_edit(server: Opened) -> None:
    headers = await server.token_for(agent(3, "sales"))
    assert await http_create(server, headers, DESK) == 201
    await server.lab.database.run("update member set active = false where system_id = 'System3/sales'")
    await server.lab.database.run(
        "insert into rule_set (version, author, reason) select max(version) + 1, 't', 'retired' from rule_set"
    )
    before = await table(server)
    assert await http_create(server, headers, DESK) == 403
    assert await table(server) == before


async def test_a_document_that_names_a_team_out_of_scope_is_refused_as_a_whole(server: Opened) -> None:
    headers = await server.token_for(agent(3, "sales"))
    rules = [{"name": "mine", "channel": "*", "targets": [{"system_id": "System1/desk"}]}]
    before = await table(server)
    for other in (ROOT, LAB):
        document = {"format": "switchboard.rules.v1", "teams": {DESK: rules, other: []}}
        body = {"document": document, "reason": "a test"}
        refused = await server.http.post("/v1/rules/import", json=body, headers=headers)
        assert error_of(refused) == (403, "forbidden")
        needed = [{"team": team, "agent": team, "channel": "cli"} for team in (DESK, other)]
        sop = {"document": {"name": "both", "routing_requirements": needed}, "reason": "a test"}
        assert error_of(await server.http.put("/v1/sops/both", json=sop, headers=headers)) == (403, "forbidden")
    assert await table(server) == before
    assert await refusals(server) == 4


async def test_nobody_takes_over_the_sop_of_a_team_that_is_not_his(server: Opened) -> None:
    operator = await server.token_for(Principal("operator", "boss"))
    assert await http_load(server, operator, LAB) == 200
    before = await table(server)
    headers = await server.token_for(agent(3, "sales"))
    needed = [{"team": "desk", "agent": "desk", "channel": "cli"}]
    body = {"document": {"name": "for lab", "routing_requirements": needed}, "reason": "a test"}
    assert error_of(await server.http.put("/v1/sops/for lab", json=body, headers=headers)) == (403, "forbidden")
    assert await table(server) == before


async def test_going_back_is_refused_when_it_would_touch_other_teams(server: Opened) -> None:
    operator = await server.token_for(Principal("operator", "boss"))
    sales = await server.token_for(agent(3, "sales"))
    assert await http_create(server, operator, LAB) == 201
    assert await http_create(server, sales, DESK) == 201
    before = await table(server)
    whole = {"version": 1, "reason": "a test"}
    assert error_of(await server.http.post("/v1/rules/restore", json=whole, headers=sales)) == (403, "forbidden")
    assert await table(server) == before
    own = await server.http.post("/v1/rules/restore", json={**whole, "team_id": "desk"}, headers=sales)
    assert (own.status_code, own.json()["changed"]) == (200, 1)
    assert len(await rules_of(server, "lab")) == 2


async def test_no_rule_moves_to_another_team(server: Opened) -> None:
    sales = await server.token_for(agent(3, "sales"))
    operator = await server.token_for(Principal("operator", "boss"))
    theirs = await _by_hand(server, LAB)
    before = await table(server)
    moved = {"version": theirs["version"], "team_id": "desk", "reason": "a test"}
    patched = await server.http.patch(f"/v1/rules/{theirs['rule_id']}", json=moved, headers=operator)
    assert error_of(patched) == (422, "unknown_field")
    made = await server.http.post("/v1/rules", json=new("desk", rule_id=theirs["rule_id"]), headers=sales)
    assert error_of(made) == (409, "conflict")
    taken = {"rule_id": theirs["rule_id"], **{name: new("desk")[name] for name in ("name", "channel", "targets")}}
    for headers, teams, expected in (
        (sales, {"desk": [taken]}, (409, "conflict")),
        (operator, {"desk": [taken]}, (409, "conflict")),
        (operator, {"desk": [taken], "lab": []}, (422, "invalid_rule_file")),
    ):
        document = {"format": "switchboard.rules.v1", "teams": teams}
        body = {"document": document, "reason": "a test"}
        assert error_of(await server.http.post("/v1/rules/import", json=body, headers=headers)) == expected
    assert await table(server) == before


async def test_no_argument_says_who_the_caller_is(server: Opened) -> None:
    headers = await server.token_for(agent(1, "sales"))
    before = await table(server)
    for claim in ("system_id", "created_by", "author", "role"):
        refused = await server.http.post("/v1/rules", json=new("sales", **{claim: "System3/root"}), headers=headers)
        assert refused.status_code in (403, 422)
    answer = await tool(server, "routing_rules_create", new("sales", system_id="System3/root"), headers)
    assert answer["result"]["isError"]
    assert await table(server) == before


async def test_what_is_not_there_is_nobodys_to_edit(server: Opened) -> None:
    headers = await server.token_for(agent(3, "root"))
    gone = await server.http.patch(
        f"/v1/rules/{uuid4()}", json={"version": 1, "active": False, "reason": "r"}, headers=headers
    )
    assert error_of(gone) == (404, "not_found")
    assert error_of(await server.http.post("/v1/rules", json=new("nowhere"), headers=headers)) == (403, "forbidden")
    assert error_of(await server.http.post("/v1/rules", json=new("nowhere"))) == (422, "unknown_team")
    assert OLD in {rule["team_id"] for rule in await rules_of(server, "old")}


async def test_a_file_of_a_system3_does_not_say_whose_its_rules_are(server: Opened) -> None:
    """An operator restores exports as they were; of anybody else's file the history must not be a forgery."""
    long_ago = "2001-01-01T00:00:00+00:00"
    forged = {"source": "sop:trusted", "created_by": "boss", "updated_by": "boss", "updated_at": long_ago}
    rule = {name: new(SALES)[name] for name in ("name", "channel", "targets")}
    body = {"document": {"format": "switchboard.rules.v1", "teams": {SALES: [rule | forged]}}, "reason": "a test"}
    imported = await server.http.post("/v1/rules/import", json=body, headers=await server.token_for(agent(3, "sales")))
    assert imported.status_code == 200, imported.text
    [kept] = await rules_of(server, SALES)
    author = "system3-sales (System3/sales)"
    assert (kept["source"], kept["created_by"], kept["updated_by"]) == ("", author, author)
    assert kept["updated_at"] > forged["updated_at"]
    again = await server.http.post("/v1/rules/import", json=body)
    assert again.status_code == 200, again.text
    [kept] = await rules_of(server, SALES)
    assert (kept["source"], kept["created_by"]) == ("sop:trusted", "boss")


# Reading: an agent sees the rules of its team and of those below, by every interface ---------------------------------

READABLE: tuple[tuple[Principal, frozenset[TeamId]], ...] = (
    (Principal("operator", "reader"), frozenset((*EVERYWHERE, OLD))),
    *((agent(number, "root"), frozenset((*EVERYWHERE, OLD))) for number in (1, 4)),
    *((agent(number, "sales"), frozenset((SALES, DESK))) for number in (1, 2, 3, 4, 5)),
    (agent(1, "desk"), frozenset((DESK,))),
    (agent(3, "old"), frozenset()),  # not active
    (agent(3, "nowhere"), frozenset()),  # nobody's
)


def teams_in(value: Any) -> set[str]:
    """The teams whose rules are shown anywhere in an answer."""
    found: set[str] = set()
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        found |= teams_in(inner)
    if isinstance(value, dict) and ("rule_id" in value or "reason" in value) and "team_id" in value:
        found.add(value["team_id"])
    return found


async def everything_read(server: Opened, headers: Headers) -> dict[str, set[str]]:
    """By interface, the teams whose rules were seen."""
    cases = [{"name": "one", "facts": {"channel": "slack"}, "expect": "System1/echo"}]
    telegram = {"facts": {"channel": "telegram"}}
    answers = {
        path: (await server.http.get(path, headers=headers)).json()
        for path in ("/v1/rules", "/v1/rules/versions/2", "/v1/rules/diff?from=1&to=2", "/v1/rules/lint", "/v1/sops")
    }
    answers["test"] = (await server.http.post("/v1/rules/test", json={"cases": cases}, headers=headers)).json()
    answers["explain"] = (await server.http.post("/v1/rules/explain", json=telegram, headers=headers)).json()
    for name, arguments in (
        ("routing_rules_list", {}),
        ("routing_rules_lint", {}),
        ("sops_list", {}),
        ("routing_rules_test", {"cases": cases}),
        ("routing_rules_explain", {"facts": {"channel": "slack"}}),
    ):
        answers[name] = (await tool(server, name, arguments, headers))["result"].get("structuredContent", {})
    seen = {name: teams_in(answer) for name, answer in answers.items()}
    exported = (await server.http.get("/v1/rules/export", headers=headers)).json()
    teams = (await server.http.get("/v1/teams", headers=headers)).json()["teams"]
    return seen | {"export": set(exported["teams"]), "teams": {team["team_id"] for team in teams if team["rules"]}}


@pytest.mark.parametrize(("principal", "readable"), READABLE, ids=lambda value: getattr(value, "name", ""))
async def test_agents_read_the_rules_of_their_own_team_and_below(
    server: Opened, principal: Principal, readable: frozenset[TeamId]
) -> None:
    edited = {team_id: await _by_hand(server, team_id) for team_id in (*EVERYWHERE, OLD)}
    document = (await server.http.get("/v1/rules/export")).json()
    for rules in document["teams"].values():
        rules[0]["name"] += " (edited)"
    written = await server.http.post("/v1/rules/import", json={"document": document, "reason": "all of them"})
    assert written.json()["changed"] == 5
    headers = await server.token_for(principal)
    seen = await everything_read(server, headers)
    assert {name: teams - readable for name, teams in seen.items() if teams - readable} == {}
    for name in ("/v1/rules", "/v1/rules/versions/2", "/v1/rules/diff?from=1&to=2", "export", "teams"):
        assert seen[name] == readable, name
    for team_id, rule in edited.items():
        status = 200 if team_id in readable else 404
        for path in (f"/{rule['rule_id']}", f"?team_id={team_id}", f"/export?team_id={team_id}"):
            assert (await server.http.get(f"/v1/rules{path}", headers=headers)).status_code == status, path
        one = await server.http.get(f"/v1/teams/{team_id}", headers=headers)
        assert bool(one.json()["rules"]) == (team_id in readable)
        found = await tool(server, "routing_rules_get", {"rule_id": rule["rule_id"]}, headers)
        assert found["result"]["isError"] == (team_id not in readable)
