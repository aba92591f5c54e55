"""What each role reads: whatever is asked for, and how, no answer has anything of a foreign endpoint or team."""

from __future__ import annotations

import itertools
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from msgspec.structs import replace

from switchboard.app.access import Principal
from switchboard.domain.routing import Rule, Team, TeamId
from tests.lab import ROOT, butler, envelope_json, rule, team_of
from tests.ruling import mcp, tool
from tests.servers import Opened, open_server

OURS, THEIRS = "otter", "badger"
"""Two teams with an endpoint each. Their names are in everything that belongs to them, as `secret of …`."""
CHATS: Final = {OURS: "-100777001", THEIRS: "-100777002"}
DEAD: Final = {OURS: "-100888001", THEIRS: "-100888002"}
OPEN: Final = {"/v1/agents", "/v1/rules/versions", "/v1/rules/versions/{version}", "routing_rules_versions"}
"""Every agent sees every butler with its description, and who changed rules, when and why."""
QUERIES: Final = {
    "/v1/messages": (
        *("", f"?endpoint={THEIRS}", "?state=answered", "?limit=1"),
        *(f"?team_id={THEIRS}", f"?system_id=System1/{THEIRS}", f"?sender={CHATS[THEIRS]}", "?team_id=nowhere"),
    ),
    "/v1/messages/{request_id}/stream": ("?wait_s=0",),
    "/v1/deliveries": ("", f"?system_id=System1/{THEIRS}", "?limit=1"),
    "/v1/quarantine": ("", f"?endpoint={THEIRS}"),
    "/v1/rules": ("", f"?team_id={THEIRS}", "?team_id=root", "?limit=1"),
    "/v1/rules/diff": ("?from=1&to=2", "?from=1&to=3", "?from=2&to=3"),
    "/v1/rules/export": ("", f"?team_id={THEIRS}", "?version=3"),
    "/v1/ids": ("?start=0",),
    "/v1/classifications": ("", f"?team_id={THEIRS}"),
    "/v1/dead-letters": ("", f"?team_id={THEIRS}", "?channel=telegram"),
}


def tree() -> tuple[tuple[Team, ...], tuple[Rule, ...]]:
    """A team for each of the two, which takes one chat, and leaves another one to nobody."""
    teams = [team_of(butler("echo"), "System4/root", purpose="all")]
    rules: list[Rule] = []
    for name in (OURS, THEIRS):
        team = TeamId(name)
        far = butler(f"far-{name}", "mcp", url="https://far.example", announces_endpoint=True, allow_private=True)
        teams.append(team_of(*(f"System{number}/{name}" for number in (1, 3, 4)), far, team_id=team))
        for chat, on, target in (
            (CHATS[name], ROOT, name),
            (DEAD[name], ROOT, name),
            (CHATS[name], team, f"System1/{name}"),
        ):
            one = rule(target, team=on, channel="telegram", telegram_chat_id=chat)
            rules.append(replace(one, name=f"secret of {name}: {one.name}"))
    return tuple(teams), tuple(rules)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: its tokens by role, and the ids of what it has."""

    tokens: Mapping[str, Mapping[str, str]]
    ids: Mapping[str, str]


async def side(server: Opened, name: str) -> Side:
    """Everything that an endpoint and a team may have."""
    secret, account = f"secret of {name}", {"channel": "telegram", "endpoint": name}
    tokens = {
        "connector": await server.token_for(Principal("connector", name, "telegram", name)),
        "far": await server.token_for(Principal("agent", f"far-{name}", system_id=f"System1/far-{name}")),
        **{
            f"s{n}": await server.token_for(Principal("agent", f"s{n}-{name}", system_id=f"System{n}/{name}"))
            for n in (1, 3, 4)
        },
    }

    async def asked(method: str, path: str, role: str, body: object = None, **more: Any) -> Any:
        sent = more or {"json": body}
        answer = await server.http.request(method, path, headers=tokens[role], **sent)
        assert answer.is_success, (path, answer.text)
        return answer.json()

    blob = (await asked("POST", "/v1/blobs", "connector", content=secret.encode()))["blob"]
    message = envelope_json(secret, endpoint=name, thread=CHATS[name], sender=secret, raw={"raw": secret}, event=secret)
    message["payload"]["attachments"] = [
        {"media_type": "text/plain", "size_bytes": 6, "storage_ref": f"blob:{blob}", "filename": secret}
    ]
    message["event"]["reply_address"] = {"to": secret}
    request_id = (await asked("POST", "/v1/ingest", "connector", message))["request_id"]
    [reply] = (await asked("GET", f"/v1/messages/{request_id}/replies?wait_s=20", "connector"))["replies"]
    dead = envelope_json(secret, endpoint=name, thread=DEAD[name], sender=secret)
    await asked("POST", "/v1/ingest", "connector", dead)
    raw = b64encode(secret.encode()).decode()
    event = {**account, "event_id": secret, "reason": secret, "raw": raw}
    kept = await asked("POST", "/v1/quarantine", "connector", event)
    lease = (await asked("POST", "/v1/connectors/lease", "connector", {**account, "instance_id": secret}))["lease"]
    await asked("PUT", "/v1/connectors/cursor", "connector", {**account, "lease": lease, "cursor": secret})
    beat = {**account, "instance_id": secret, "state": "failed", "error_message": secret}
    await asked("POST", "/v1/connectors/heartbeat", "connector", beat)
    await asked("POST", "/v1/agents/heartbeat", "far", {"description": secret, "capabilities": [secret]})
    new = {"team_id": name, "name": secret, "channel": "telegram", "filters": {"thread": secret}, "reason": secret}
    made = await asked("POST", "/v1/rules", "s3", {**new, "targets": [{"system_id": f"System1/{name}"}]})
    [dead_letter] = (await asked("GET", "/v1/dead-letters", "s4"))["dead_letters"]
    ids = {
        "request_id": request_id,
        "outbox_id": reply["outbox_id"],
        "blob": blob,
        "quarantine_id": kept["quarantine_id"],
        "rule_id": made["rule"]["rule_id"],
        "team_id": name,
        "dead_letter_id": dead_letter["dead_letter_id"],
        "version": "3",
        "n": "0",
    }
    return Side(tokens, ids)


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data", worker=True, tree=tree()) as opened:
        yield opened


def urls(paths: Mapping[str, Any], ids: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Every path that is read, and that path with these ids, as often as there are queries for it."""
    for path, methods in paths.items():
        if "get" in methods:
            url = re.sub(r"{(\w+)}", lambda found: ids.get(found[1], str(uuid4())), path)
            yield from ((path, url + asked) for asked in QUERIES.get(path, ("",)))


def calls(ids: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Tools that read, asked for what is theirs."""
    facts = {"channel": "telegram", "telegram_chat_id": CHATS[THEIRS]}
    document = {"format": "switchboard.rules.v1", "teams": {THEIRS: []}}
    for name in ("routing_rules_versions", "routing_rules_lint", "sops_list", "routing_rules_list"):
        yield name, {}
    for name in ("routing_rules_list", "dead_letters_list"):
        yield name, {"team_id": THEIRS}
    yield "dead_letters_list", {}
    yield "approvals_list", {}
    yield "messages_get", {"request_id": ids["request_id"]}
    yield "messages_raw", {"request_id": ids["request_id"]}
    yield "routing_rules_get", {"rule_id": ids["rule_id"]}
    yield "dead_letters_get", {"dead_letter_id": ids["dead_letter_id"]}
    yield "outbox_next", {"channel": "telegram", "endpoint": THEIRS}
    yield "butler_heartbeat", {"system_id": f"System1/far-{THEIRS}"}
    yield "routing_rules_explain", {"facts": facts}
    yield "routing_rules_test", {"cases": [{"facts": facts, "expect": "System1/echo"}]}
    yield "routing_rules_backtest", {"last": 10, "document": document}
    yield "routing_rules_restore", {"version": 1, "team_id": THEIRS, "reason": "r", "dry_run": True}


def posts(ids: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Requests whose answer shows something, and which change nothing of ours."""
    account = {"channel": "telegram", "endpoint": THEIRS}
    mine = {"team_id": OURS, "name": "n", "channel": "telegram", "targets": [{"system_id": f"System1/{OURS}"}]}
    facts = {"channel": "telegram", "telegram_chat_id": CHATS[THEIRS]}
    yield "/v1/outbox/next", account
    yield "/v1/connectors/written", account
    yield "/v1/connectors/posted/next", account
    yield "/v1/connectors/lease", {**account, "instance_id": "i", "answering": True, "recent_s": 3600}
    yield "/v1/rules", {**mine, "reason": "r", "rule_id": ids["rule_id"], "dry_run": True}
    yield "/v1/rules/explain", {"facts": facts}
    yield "/v1/rules/test", {"cases": [{"facts": facts, "expect": "System1/echo"}]}
    yield "/v1/rules/restore", {"version": 1, "reason": "r", "dry_run": True}
    yield "/v1/dead-letters/bulk", {"filter": {}, "action": "handle", "resolution": "r", "dry_run": True}
    yield f"/v1/messages/{ids['request_id']}/correction", {"to": f"System1/{THEIRS}"}


@pytest.mark.slow
async def test_nobody_reads_what_belongs_to_others(server: Opened) -> None:
    ours, theirs = await side(server, OURS), await side(server, THEIRS)
    paths = (await server.http.get("/openapi.json")).json()["paths"]
    roles = {
        **ours.tokens,
        "metrics": await server.token_for(Principal("metrics", "prometheus")),
        "approver": await server.token_for(Principal("approver", "ann")),
        "nobody": {"authorization": ""},
    }
    own = set[str]()
    for (role, headers), of in itertools.product(roles.items(), (ours.ids, theirs.ids)):
        for path, url in urls(paths, of):
            answer = await server.http.get(url, headers=headers)
            own |= {role} if f"secret of {OURS}" in answer.text else set()
            assert f"secret of {THEIRS}" not in answer.text or (path in OPEN and role != "connector"), (role, url)
            assert answer.status_code < 500, (role, url)
        for path, body in posts(of):
            answer = await server.http.post(path, json=body, headers=headers)
            assert f"secret of {THEIRS}" not in answer.text, (role, path, body)
        for name, arguments in calls(of) if role != "nobody" else ():
            said = str(await tool(server, name, arguments, headers))
            assert f"secret of {THEIRS}" not in said or name in OPEN, (role, name)
        if role != "nobody":
            listed = await mcp(server, {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}, headers)
            assert THEIRS not in str(listed), role
    assert own == {"connector", "far", "s1", "s3", "s4"}, "everybody reads what is its own"
