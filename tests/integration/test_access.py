"""Tokens and scopes: who comes in, how far, and that every refusal is on record."""

from __future__ import annotations

import asyncio
import json
import stat
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from switchboard.app.access import CACHE_S, Access, Principal, ensure_operator_token
from switchboard.app.messages.blobs import RAW
from switchboard.app.messages.intake import INGEST
from switchboard.domain.errors import ConfigurationError, Conflict, Forbidden, NotFound, Unauthenticated, Unavailable
from switchboard.store.database import Database, Row
from switchboard.store.people import audit, tokens
from tests.lab import envelope_json
from tests.ruling import tool
from tests.servers import AGENT, CONNECTOR, HANDLER, Opened, open_server

OPERATOR = Principal("operator", "boss")


# Tokens --------------------------------------------------------------------------------------------------------------


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_only_the_hash_of_a_token_is_kept(database: Database) -> None:
    issued = await Access(database).issue(OPERATOR, CONNECTOR)
    assert issued.secret.startswith("sb_c_")
    assert len(issued.secret) == 5 + 43
    rows = await database.rows("select t::text as row from token t union all select a::text from audit a")
    assert all(issued.secret not in row["row"] for row in rows)


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic sb_o_x", "Bearer sb_o_wrong", "Bearer \u00e4"]
)
async def test_no_token_or_a_wrong_one_opens_nothing(database: Database, header: str | None) -> None:
    with pytest.raises(Unauthenticated):
        await Access(database).authenticate(header)


async def test_a_token_opens_until_it_is_revoked_elsewhere_plus_two_seconds(database: Database) -> None:
    clock = Clock()
    here, elsewhere = Access(database, clock=clock), Access(database)
    issued = await here.issue(OPERATOR, CONNECTOR)
    header = f"bearer {issued.secret}"
    assert await here.authenticate(header) == CONNECTOR
    await elsewhere.revoke(OPERATOR, CONNECTOR.name)
    clock.now += CACHE_S
    with pytest.raises(Unauthenticated):
        await here.authenticate(header)


class Asked(Database):
    """The database, and how often it was asked for a row."""

    times = 0

    async def row(self, sql: str, *args: object) -> Row | None:
        self.times += 1
        return await super().row(sql, *args)


async def test_of_many_requests_with_one_token_a_single_one_asks_the_database(database: Database) -> None:
    clock, asked = Clock(), Asked(database.url, database.pool)
    issued, access = await Access(database).issue(OPERATOR, CONNECTOR), Access(asked, clock=clock)
    for times in (1, 2):
        callers = await asyncio.gather(*(access.authenticate(f"Bearer {issued.secret}") for _ in range(20)))
        assert callers == [CONNECTOR] * 20
        assert asked.times == times
        clock.now += CACHE_S


class Hanging(Database):
    """A database of which each look-up hangs until `gives_up` is set, and fails then."""

    def __init__(self, database: Database) -> None:
        super().__init__(database.url, database.pool)
        self.times = 0
        self.asked = asyncio.Event()
        self.gives_up = asyncio.Event()

    async def row(self, sql: str, *args: object) -> Row | None:  # noqa: ARG002
        self.times += 1
        self.asked.set()
        await self.gives_up.wait()
        raise Unavailable("the database does not answer")


async def test_requests_with_one_token_wait_for_a_hanging_database_together(database: Database) -> None:
    hanging = Hanging(database)
    access = Access(hanging)
    callers = [asyncio.create_task(access.authenticate("Bearer sb_c_some")) for _ in range(20)]
    await hanging.asked.wait()
    callers[0].cancel()
    hanging.gives_up.set()
    outcomes = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(one) for one in outcomes] == [asyncio.CancelledError, *[Unavailable] * 19]
    assert hanging.times == 1
    with pytest.raises(Unavailable):
        await access.authenticate("Bearer sb_c_some")
    assert hanging.times == 2


async def test_a_token_revoked_here_is_dead_at_once(database: Database) -> None:
    access = Access(database)
    issued = await access.issue(OPERATOR, CONNECTOR)
    await access.authenticate(f"Bearer {issued.secret}")
    await access.revoke(OPERATOR, CONNECTOR.name)
    with pytest.raises(Unauthenticated):
        await access.authenticate(f"Bearer {issued.secret}")
    with pytest.raises(NotFound):
        await access.revoke(OPERATOR, CONNECTOR.name)
    assert [e.action for e in await audit.list_entries(database)] == ["token:revoked", "token:issued"]


async def test_what_was_asked_for_is_in_the_audit_trail_whatever_is_in_it(database: Database) -> None:
    """As `GET /v1/blobs/%00` by an agent, which was 500."""
    access, agent = Access(database), Principal("agent", "a", system_id="System1/echo")
    assert str(await access.hide(agent, RAW, "blob \x00\ud800")) == "there is no blob \x00\ud800"
    [entry] = await audit.list_entries(database)
    assert entry.detail == {"role": "agent", "asked_for": "blob ?"}


async def test_an_entry_of_the_audit_trail_is_bounded(database: Database) -> None:
    """Callers choose what is in it."""
    small = {"system_id": "System1/a", "ids": ["x" * 100] * 50}
    await audit.append(database, "a", "refused:small", small)
    await audit.append(database, "a", "refused:large", {"system_id": "y" * 1_000_000, "ids": ["x"] * 100_000, "n": 3})
    large, kept = await audit.list_entries(database)
    assert kept.detail == small
    assert (large.detail["n"], large.detail["system_id"][:4], large.detail["ids"][:4]) == (3, '"yyy', '["x"')
    assert len(json.dumps(large.detail)) < 2000


async def test_an_expired_token_is_dead(database: Database) -> None:
    access = Access(database)
    issued = await access.issue(OPERATOR, CONNECTOR)
    await database.run("update token set expires_at = now() - interval '1 second'")
    with pytest.raises(Unauthenticated):
        await access.authenticate(f"Bearer {issued.secret}")


async def test_a_name_is_free_again_once_its_token_is_revoked(database: Database) -> None:
    access = Access(database)
    await access.issue(OPERATOR, AGENT)
    with pytest.raises(Conflict):
        await access.issue(OPERATOR, AGENT)
    await access.revoke(OPERATOR, AGENT.name)
    await access.issue(OPERATOR, AGENT)


async def test_the_operators_token_is_made_once_and_only_for_him_to_read(database: Database, tmp_path: Path) -> None:
    data_dir = tmp_path / "new"
    await ensure_operator_token(database, data_dir)
    file = data_dir / "operator.token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
    secret = file.read_text().strip()
    assert (await Access(database).authenticate(f"Bearer {secret}")).role == "operator"
    file.chmod(0o644)
    await ensure_operator_token(database, data_dir)
    assert file.read_text().strip() == secret
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [t.name for t in await tokens.list_tokens(database)] == ["operator-1"]


@pytest.mark.parametrize("harm", ["missing", "revoked", "garbled"])
async def test_an_operators_token_that_opens_nothing_is_replaced(database: Database, tmp_path: Path, harm: str) -> None:
    await ensure_operator_token(database, tmp_path)
    file = tmp_path / "operator.token"
    old = file.read_text()
    if harm == "missing":
        file.unlink()
    elif harm == "revoked":
        await tokens.revoke(database, "operator-1")
    else:
        file.write_text("sb_o_half")
    await ensure_operator_token(database, tmp_path)
    new = file.read_text()
    assert new != old
    assert (await Access(database).authenticate(f"Bearer {new.strip()}")).name == "operator-2"
    assert _names(tmp_path) == ["operator.token"]


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_the_token_of_the_directory_works_with_a_new_database(database: Database, tmp_path: Path) -> None:
    await ensure_operator_token(database, tmp_path)
    secret = (tmp_path / "operator.token").read_text()
    await database.run("delete from token")
    await ensure_operator_token(database, tmp_path)
    assert (tmp_path / "operator.token").read_text() == secret
    assert (await Access(database).authenticate(f"Bearer {secret.strip()}")).role == "operator"


async def test_a_directory_that_cannot_be_written_is_named(database: Database, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"operator\.token"):
        await ensure_operator_token(database, tmp_path / "file")


# Scopes --------------------------------------------------------------------------------------------------------------

_BULK = {"filter": {}, "action": "handle", "resolution": "r", "dry_run": True}
_BEAT = {"channel": "telegram", "endpoint": "bot:house", "instance_id": "i", "state": "healthy"}
_PULL = {"channel": "telegram", "endpoint": "bot:house"}
_ACCOUNT = {"channel": "telegram", "endpoint": "bot:house"}
_LATE = {"platform_message_id": "7", "outcome": "failed", "reason": "r", "at": "2026-01-31T12:00:00Z"}
_ORDER = {"system_id": "System1/echo", "reason": "r"}
_TOKEN = {"name": "new", "role": "operator"}
_NEW = str(uuid4())
_RULE = {"team_id": "root", "name": "n", "channel": "api", "targets": [{"team_id": "side"}], "reason": "r"}
_FILE = {"format": "switchboard.rules.v1", "teams": {"side": []}}

ROUTES: tuple[tuple[str, str, object, str], ...] = (
    ("POST", "/v1/ingest", envelope_json("x", event="scope"), "connector"),
    ("POST", "/v1/ingest/batch", {"envelopes": [envelope_json("x", event="scope")]}, "connector"),
    ("POST", "/v1/ingest/files", envelope_json("x", event="files"), "connector"),
    ("GET", "/v1/messages", None, "connector"),
    ("GET", "/v1/messages/{own}", None, "connector"),
    ("GET", "/v1/messages/{own}/raw", None, "connector agent"),
    ("GET", "/v1/messages/{own}/replies", None, "connector"),
    ("GET", "/v1/messages/{own}/stream?wait_s=0", None, "connector"),
    ("GET", "/v1/messages/{own}/explain", None, ""),
    ("POST", "/v1/messages/{own}/stop", None, "connector"),
    ("POST", "/v1/messages/{own}/reroute", {"reason": "x", "to": {"system_id": "System1/side"}, "again": True}, ""),
    ("POST", "/v1/messages/{own}/try", None, ""),
    ("GET", "/v1/deliveries", None, "agent handler"),
    ("POST", "/v1/outbox/next", _PULL, "connector"),
    ("POST", f"/v1/outbox/{_NEW}/receipt", {"lease": 1, "outcome": "sent"}, "connector"),
    ("POST", f"/v1/outbox/{_NEW}/parts", {"lease": 1, "part": 0, "of": 1, "state": "intent"}, "connector"),
    ("GET", f"/v1/outbox/{_NEW}/files/0", None, "connector"),
    ("POST", "/v1/blobs", {}, "connector"),
    ("GET", "/v1/blobs/{blob}", None, "connector agent"),
    ("POST", "/v1/connectors/lease", {**_ACCOUNT, "instance_id": "i"}, "connector"),
    ("PUT", "/v1/connectors/cursor", {**_ACCOUNT, "lease": 1, "cursor": "7"}, "connector"),
    ("POST", "/v1/connectors/moves", {**_ACCOUNT, "lease": 1, "old": "-5", "new": "-100"}, "connector"),
    ("POST", "/v1/connectors/written", _ACCOUNT, "connector"),
    ("POST", "/v1/connectors/posted/next", _ACCOUNT, "connector"),
    ("POST", "/v1/connectors/posted", {**_ACCOUNT, "mark": "m", "raw": "e30="}, "connector"),
    ("POST", "/v1/outbox/late", {**_ACCOUNT, **_LATE}, "connector"),
    ("DELETE", "/v1/connectors/posted?channel=telegram&endpoint=bot%3Ahouse&lease=1&upto=7", None, "connector"),
    ("DELETE", "/v1/connectors/lease?channel=telegram&endpoint=bot%3Ahouse&lease=1", None, "connector"),
    ("POST", "/v1/quarantine", {**_ACCOUNT, "event_id": "e", "reason": "r", "raw": "e30="}, "connector"),
    ("GET", "/v1/quarantine", None, "connector"),
    ("GET", f"/v1/quarantine/{_NEW}", None, "connector"),
    ("POST", f"/v1/quarantine/{_NEW}/replay", None, "connector"),
    ("DELETE", f"/v1/quarantine/{_NEW}", None, "connector"),
    ("GET", "/v1/outbox", None, ""),
    ("GET", f"/v1/outbox/{_NEW}", None, ""),
    ("POST", f"/v1/outbox/{_NEW}/resend", None, ""),
    ("GET", "/v1/ids?start=01", None, ""),
    ("GET", "/v1/approvals", None, "approver"),
    ("GET", f"/v1/approvals/{_NEW}", None, "approver"),
    ("POST", f"/v1/approvals/{_NEW}/approve", None, "approver"),
    ("POST", f"/v1/approvals/{_NEW}/refuse", None, "approver"),
    ("POST", f"/v1/approvals/{_NEW}/answer", {"text": "yes"}, "approver"),
    ("GET", "/v1/channels", None, ""),
    ("POST", "/v1/channels", {"channel": "telegram"}, ""),
    ("GET", "/v1/channels/house", None, ""),
    ("POST", "/v1/channels/consents", {"channel": "gmail", "address": "ann@example.org"}, ""),
    ("POST", "/v1/channels/house/login", None, ""),
    ("POST", f"/v1/channels/consents/{_NEW}/finish", None, ""),
    ("POST", "/v1/channels/house/test", None, ""),
    ("POST", "/v1/channels/house/pause", None, ""),
    ("POST", "/v1/channels/house/resume", None, ""),
    ("DELETE", "/v1/channels/house", None, ""),
    ("GET", "/v1/setup", None, ""),
    ("POST", "/v1/setup/models", None, ""),
    ("POST", "/v1/setup/test", {"model": "m", "source": "s"}, ""),
    ("POST", "/v1/setup/files", {"dry_run": True}, ""),
    ("POST", "/v1/setup/cards", {"card": "keep", "state": "skipped"}, ""),
    ("GET", "/v1/pairing", None, ""),
    ("POST", "/v1/pairing", {**_ACCOUNT, "identity": "noor"}, ""),
    ("POST", "/v1/pairing/codes", _ACCOUNT, ""),
    ("GET", f"/v1/pairing/{_NEW}", None, ""),
    ("GET", f"/v1/pairing/{_NEW}/messages", None, ""),
    ("POST", f"/v1/pairing/{_NEW}/approve", None, ""),
    ("POST", f"/v1/pairing/{_NEW}/deny", None, ""),
    ("POST", f"/v1/pairing/{_NEW}/revoke", None, ""),
    ("GET", "/v1/modules", None, ""),
    ("POST", "/v1/modules/none/sync", None, ""),
    ("POST", "/v1/modules/none/release", None, ""),
    ("POST", "/v1/modules/calls?wait_s=0", {"tool": "look"}, "agent"),
    ("GET", f"/v1/modules/calls/{_NEW}", None, "agent handler"),
    ("GET", "/v1/tasks", None, ""),
    ("GET", "/v1/tasks/{rule}", None, ""),
    ("POST", "/v1/tasks/{rule}/cancel", None, ""),
    ("POST", "/v1/tasks/{rule}/pause", None, ""),
    ("POST", "/v1/tasks/{rule}/resume", None, ""),
    ("POST", "/v1/tasks/{rule}/run", None, ""),
    ("GET", "/v1/people", None, ""),
    ("POST", "/v1/people", {"person_id": "none", "name": "None"}, ""),
    ("GET", "/v1/people/none", None, ""),
    ("POST", "/v1/people/none/rename", {"name": "None"}, ""),
    ("POST", "/v1/people/none/link", {"channel": "telegram", "identity": "1"}, ""),
    ("POST", "/v1/people/none/unlink", {"channel": "telegram", "identity": "1"}, ""),
    ("PUT", "/v1/people/none/groups", {"groups": []}, ""),
    ("DELETE", "/v1/people/none", None, ""),
    ("POST", "/v1/people/none/export", None, ""),
    ("POST", "/v1/people/none/erase", {"dry_run": True}, ""),
    ("GET", "/v1/memory/facts", None, ""),
    ("POST", "/v1/memory/facts", {"system_id": "System1/echo", "author": "api/web/ann", "text": "I like figs"}, ""),
    ("GET", f"/v1/memory/facts/{_NEW}", None, ""),
    ("POST", f"/v1/memory/facts/{_NEW}/share", None, ""),
    ("POST", f"/v1/memory/facts/{_NEW}/forget", None, ""),
    ("POST", f"/v1/memory/facts/{_NEW}/undo", None, ""),
    ("GET", "/v1/memory/search?words=figs", None, ""),
    ("GET", "/v1/memory/entities?system_id=System1/echo", None, ""),
    ("GET", "/v1/memory/runs", None, ""),
    ("POST", f"/v1/memory/runs/{_NEW}/undo", None, ""),
    ("GET", "/v1/memory/summaries", None, ""),
    ("POST", f"/v1/memory/summaries/{_NEW}/restore", None, ""),
    ("GET", "/v1/mcp-servers", None, ""),
    ("GET", "/v1/mcp-servers/none", None, ""),
    ("POST", "/v1/mcp-servers/none/accept", {"tools": {"none": "none"}}, ""),
    ("GET", "/v1/teams", None, "agent handler"),
    ("GET", "/v1/teams/root", None, "agent handler"),
    ("GET", "/v1/agents", None, "agent handler"),
    ("POST", "/v1/agents/heartbeat", {}, ""),  # a remote butler's own; these two are none
    ("POST", "/v1/agents/quarantine", _ORDER, ""),
    ("POST", "/v1/agents/release", _ORDER, ""),
    ("POST", "/v1/agents/endpoint", {**_ORDER, "endpoint": None}, ""),
    ("GET", "/v1/dead-letters", None, "handler"),
    ("GET", "/v1/dead-letters/{dead}", None, "handler"),
    ("POST", "/v1/dead-letters/bulk", _BULK, "handler"),
    ("POST", "/v1/dead-letters/{dead}/reroute", {"reason": "r", "to": {"system_id": "System1/echo"}}, "handler"),
    ("POST", "/v1/dead-letters/{spam}/handle", {"resolution": "r"}, "handler"),
    ("GET", "/v1/rules", None, "agent handler"),
    ("POST", "/v1/rules", _RULE, ""),
    ("GET", "/v1/rules/{rule}", None, "agent handler"),
    ("PATCH", "/v1/rules/{rule}", {"version": 1, "active": False, "reason": "r"}, ""),
    ("DELETE", "/v1/rules/{rule}?version=1&reason=r", None, ""),
    ("GET", "/v1/rules/versions", None, "agent handler"),
    ("GET", "/v1/rules/versions/1", None, "agent handler"),
    ("GET", "/v1/rules/diff?from=1&to=1", None, "agent handler"),
    ("GET", "/v1/rules/export", None, "agent handler"),
    ("GET", "/v1/rules/lint", None, "agent handler"),
    ("POST", "/v1/rules/restore", {"version": 1, "reason": "r"}, ""),
    ("POST", "/v1/rules/import", {"document": _FILE, "reason": "r"}, ""),
    ("POST", "/v1/rules/test", {"cases": [{"facts": {"channel": "api"}, "expect": "System1/echo"}]}, "agent handler"),
    ("POST", "/v1/rules/explain", {"facts": {"channel": "api"}}, "agent handler"),
    ("POST", "/v1/rules/backtest", {"document": _FILE}, ""),
    ("GET", "/v1/sops", None, "agent handler"),
    ("PUT", "/v1/sops/x", {"document": {"name": "x"}, "reason": "r"}, ""),
    ("DELETE", "/v1/sops/x?reason=r", None, ""),
    ("GET", "/v1/audit", None, ""),
    ("GET", "/v1/models", None, ""),
    ("GET", "/v1/models/usage", None, ""),
    ("POST", "/v1/plans/try", {"text": "Hello"}, ""),
    ("GET", "/v1/plans", None, ""),
    ("GET", f"/v1/plans/{_NEW}", None, ""),
    ("GET", "/v1/classifications", None, "handler"),
    ("GET", "/v1/classifications/cases", None, ""),
    ("POST", "/v1/messages/{own}/correction", {"to": "System1/echo"}, ""),
    ("GET", "/v1/lanes", None, ""),
    ("POST", "/v1/lanes/resume", {"lane": "turn:x"}, ""),
    ("POST", "/v1/connectors/heartbeat", _BEAT, "connector"),
    ("GET", "/v1/connectors", None, ""),
    ("GET", "/v1/tokens", None, ""),
    ("POST", "/v1/tokens", _TOKEN, ""),
    ("DELETE", "/v1/tokens/nobody", None, ""),
    ("GET", "/v1/status", None, ""),
    ("GET", "/v1/conversations", None, ""),
    ("GET", "/v1/conversations/entries?conversation=x", None, ""),
    ("POST", "/v1/web/links", {"name": "ann"}, ""),
    ("GET", "/v1/web/sessions", None, ""),
    ("DELETE", f"/v1/web/sessions/{_NEW}", None, ""),
    ("DELETE", "/v1/web/sessions?reason=x", None, ""),
    ("GET", "/v1/books", None, ""),
    ("GET", "/metrics", None, "metrics"),
)
"""Every route with a body that is right, and which roles beside the operator may use it."""


async def _places(server: Opened) -> Mapping[str, str]:
    blob = (await server.http.post("/v1/blobs", content=b"a file")).json()["blob"]
    mine = envelope_json("mine", event="own")
    mine["payload"]["attachments"] = [{"media_type": "text/plain", "size_bytes": 6, "storage_ref": f"blob:{blob}"}]
    own = (await server.submit(mine)).json()["request_id"]
    envelope = envelope_json("lost", channel="webhook")
    envelope["source"] = {"channel": "webhook", "provider": "http", "endpoint_identity": "hook"}
    await server.submit(envelope)
    spam = (await server.submit({**envelope, "event": {**envelope["event"], "external_event_id": "spam"}})).json()
    spam_dead_letter = await server.lab.database.value(
        "select dead_letter_id from dead_letter where request_id = $1", UUID(spam["request_id"])
    )
    dead = await server.lab.database.value("select dead_letter_id from dead_letter where team_id = 'root'")
    rule = await server.lab.database.value("select rule_id from rule limit 1")
    return {"own": own, "blob": blob, "dead": str(dead), "spam": str(spam_dead_letter), "rule": str(rule)}


async def test_every_role_at_every_route(server: Opened) -> None:
    """Who is not named gets 401 (nobody) or 403 or 404 (somebody else), and is on record."""
    places = await _places(server)
    headers = {
        "connector": await server.token_for(CONNECTOR),
        "agent": await server.token_for(AGENT),
        "handler": await server.token_for(HANDLER),
        "metrics": await server.token_for(Principal("metrics", "prometheus")),
        "approver": await server.token_for(Principal("approver", "ann")),
    }
    for method, path, body, allowed in ROUTES:
        url = path.format(**places)
        nobody = await server.http.request(method, url, json=body, headers={"authorization": ""})
        assert nobody.status_code == 401, (method, path)
        assert nobody.headers["www-authenticate"] == "Bearer"
        for role, header in headers.items():
            before = await server.lab.count("select count(*) from audit where action like 'refused:%'")
            answer = await server.http.request(method, url, json=body, headers=header)
            after = await server.lab.count("select count(*) from audit where action like 'refused:%'")
            if role in allowed.split():
                assert answer.status_code in (200, 201, 202) or _NEW in path, (role, method, path, answer.text)
                assert after == before, (role, method, path)
            else:
                assert answer.status_code in (403, 404), (role, method, path, answer.text)
                assert after == before + 1, (role, method, path)


async def test_the_table_above_has_every_route(server: Opened) -> None:
    paths = (await server.http.get("/openapi.json")).json()["paths"]
    public = {
        "/health",
        "/v1/files/{link}",
        "/hooks/{account}",
        *(
            f"/schemas/{name}.json"
            for name in ("ingest.v1", "gateway.v1", "route.v1", "route_response.v1", "pipeline.v1", "route_decision.v1")
        ),
    }
    known = {(method.upper(), path.count("/")) for path in paths if path not in public for method in paths[path]}
    assert {(method, path.partition("?")[0].count("/")) for method, path, _, _ in ROUTES} == known
    assert len(ROUTES) == sum(len(paths[path]) for path in paths if path not in public)


async def test_a_connector_reaches_only_its_own_endpoint(server: Opened) -> None:
    header = await server.token_for(CONNECTOR)
    foreign = envelope_json("x", endpoint="bot:other")
    answer = await server.http.post("/v1/ingest", json=foreign, headers=header)
    assert (answer.status_code, answer.json()["error"]["field"]) == (403, "source.endpoint_identity")
    batch = {"envelopes": [foreign, envelope_json("y"), foreign]}
    results = (await server.http.post("/v1/ingest/batch", json=batch, headers=header)).json()["results"]
    assert [r.get("status") or r["error"]["code"] for r in results] == ["forbidden", "accepted", "forbidden"]
    for path, body in (
        ("/v1/outbox/next", {"channel": "telegram", "endpoint": "bot:other"}),
        ("/v1/outbox/next", {"channel": "email", "endpoint": "bot:house"}),
        ("/v1/connectors/heartbeat", {**_BEAT, "endpoint": "bot:other"}),
    ):
        assert (await server.http.post(path, json=body, headers=header)).status_code == 403
    foreign_account = {**_ACCOUNT, "endpoint": "bot:other"}
    for method, path, account in (
        ("POST", "/v1/connectors/lease", {**foreign_account, "instance_id": "i"}),
        ("PUT", "/v1/connectors/cursor", {**foreign_account, "lease": 1, "cursor": "7"}),
        ("DELETE", "/v1/connectors/lease?channel=telegram&endpoint=bot%3Aother&lease=1", None),
        ("POST", "/v1/connectors/moves", {**foreign_account, "lease": 1, "old": "-5", "new": "-100"}),
        ("POST", "/v1/connectors/written", foreign_account),
        ("POST", "/v1/connectors/posted/next", foreign_account),
        ("POST", "/v1/connectors/posted", {**foreign_account, "mark": "m", "raw": "e30="}),
        ("POST", "/v1/outbox/late", {**foreign_account, **_LATE}),
        ("DELETE", "/v1/connectors/posted?channel=telegram&endpoint=bot%3Aother&lease=1&upto=7", None),
    ):
        assert (await server.http.request(method, path, json=account, headers=header)).status_code == 403
    other = (await server.submit(foreign)).json()["request_id"]
    for path in ("", "/raw", "/replies", "/stream"):
        hidden = await server.http.get(f"/v1/messages/{other}{path}", headers=header)
        never = await server.http.get(f"/v1/messages/{_NEW}{path}", headers=header)
        assert hidden.status_code == never.status_code == 404
        assert hidden.text.replace(other, _NEW) == never.text
    seen = (await server.http.get("/v1/messages", headers=header)).json()["messages"]
    assert {m["endpoint"] for m in seen} == {"bot:house"}
    assert (await server.http.get("/v1/messages?endpoint=bot:other", headers=header)).status_code == 403
    refused = [e for e in await audit.list_entries(server.lab.database) if e.action.startswith("refused")]
    assert len(refused) == 1 + 1 + 3 + 9 + 4 + 1
    assert {"foreign_envelopes": 2, "role": "connector"} in [e.detail for e in refused]


async def test_a_connector_cannot_settle_the_reply_of_another(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path / "data", worker=True) as server:
        request_id = (await server.submit(envelope_json("x", endpoint="bot:other"))).json()["request_id"]
        await server.http.get(f"/v1/messages/{request_id}/replies?wait_s=20")
        request = {"channel": "telegram", "endpoint": "bot:other"}
        [reply] = (await server.http.post("/v1/outbox/next", json=request)).json()["replies"]
        receipt = {"lease": reply["lease"], "outcome": "sent"}
        url = f"/v1/outbox/{reply['outbox_id']}/receipt"
        header = await server.token_for(CONNECTOR)
        assert (await server.http.post(url, json=receipt, headers=header)).status_code == 404
        part = {"lease": reply["lease"], "part": 0, "of": 1, "state": "intent"}
        parts = url.replace("receipt", "parts")
        assert (await server.http.post(parts, json=part, headers=header)).status_code == 404
        assert (await server.http.post(parts, json=part)).json() == {"state": "intent", "lease_s": 60.0}
        assert (await server.http.post(parts, json={**part, "lease": 0})).status_code == 409
        assert (await server.http.post(parts, json={**part, "part": 1})).status_code == 422
        assert (await server.http.post(url, json=receipt)).json() == {"state": "sent"}


async def test_a_butler_reads_the_original_of_what_was_delivered_to_it_whole(server: Opened) -> None:
    sent = envelope_json("to echo")
    own = (await server.submit(sent)).json()["request_id"]
    source = {"channel": "slack", "provider": "slack", "endpoint_identity": "team"}
    other = (await server.submit({**envelope_json("to side"), "source": source})).json()["request_id"]
    echo = await server.token_for(AGENT)
    assert (await server.http.get(f"/v1/messages/{own}/raw", headers=echo)).json() == sent
    read = await tool(server, "messages_raw", {"request_id": own}, echo)
    assert json.loads(b64decode(read["result"]["structuredContent"]["raw_base64"])) == sent
    for header in (await server.token_for(HANDLER), {}):
        assert (await server.http.get(f"/v1/messages/{own}", headers=header)).status_code == (403 if header else 200)
    hidden = [await server.http.get(f"/v1/messages/{one}/raw", headers=echo) for one in (other, _NEW)]
    assert [one.status_code for one in hidden] == [404, 404]
    assert hidden[0].text.replace(other, _NEW) == hidden[1].text
    assert (await tool(server, "messages_raw", {"request_id": other}, echo))["result"]["isError"]
    assert "error" in await tool(server, "messages_get", {"request_id": own}, echo)
    await server.lab.database.run("update delivery set text = 'a part' where request_id = $1", UUID(own))
    assert (await server.http.get(f"/v1/messages/{own}/raw", headers=echo)).status_code == 404


async def test_a_message_is_shown_with_its_facts(server: Opened) -> None:
    own = (await server.submit(envelope_json("/start"))).json()["request_id"]
    shown = (await server.http.get(f"/v1/messages/{own}")).json()
    assert {"channel": "telegram", "command": "/start", "has_attachment": "no"}.items() <= shown["facts"].items()
    read = await tool(server, "messages_get", {"request_id": own})
    assert read["result"]["structuredContent"]["facts"] == shown["facts"]
    explained = (await server.http.get(f"/v1/messages/{own}/explain")).json()
    assert explained["decisions"][0]["facts"] == shown["facts"]


async def test_an_agent_sees_only_its_own(server: Opened) -> None:
    await server.submit(envelope_json("to echo"))
    source = {"channel": "slack", "provider": "slack", "endpoint_identity": "team"}
    await server.submit({**envelope_json("to side"), "source": source})
    echo, handler = await server.token_for(AGENT), await server.token_for(HANDLER)
    side = await server.token_for(Principal("agent", "side4", system_id="System4/side"))
    assert len((await server.http.get("/v1/deliveries")).json()["deliveries"]) >= 1
    own = (await server.http.get("/v1/deliveries", headers=echo)).json()["deliveries"]
    assert {d["system_id"] for d in own} == {"System1/echo"}
    assert (await server.http.get("/v1/deliveries?system_id=System1/side", headers=echo)).status_code == 403
    places = await _places(server)
    dead_letters = (await server.http.get("/v1/dead-letters", headers=handler)).json()["dead_letters"]
    assert {dead_letter["team_id"] for dead_letter in dead_letters} == {"root"}
    assert (await server.http.get("/v1/dead-letters?team_id=side", headers=handler)).status_code == 403
    side_sees = (await server.http.get("/v1/dead-letters", headers=side)).json()["dead_letters"]
    assert {dead_letter["team_id"] for dead_letter in side_sees} == {"side"}
    assert (await server.http.get(f"/v1/dead-letters/{places['dead']}", headers=side)).status_code == 404
    assert (await server.http.get(f"/v1/dead-letters/{UUID(int=0)}", headers=handler)).status_code == 404


async def test_tokens_are_made_listed_and_revoked_over_http(server: Opened) -> None:
    body = {"name": "bot", "role": "connector", "channel": "telegram", "endpoint": "bot:house", "expires_in_days": 1}
    made = await server.http.post("/v1/tokens", json=body)
    assert made.status_code == 201
    header = {"authorization": f"Bearer {made.json()['token']}"}
    assert (await server.http.get("/v1/messages", headers=header)).status_code == 200
    assert (await server.http.post("/v1/tokens", json=body)).status_code == 409
    listed = (await server.http.get("/v1/tokens")).json()["tokens"]
    assert [t["name"] for t in listed] == ["operator-1", "bot"]
    assert all("token" not in t and "hash" not in t for t in listed)
    assert (await server.http.delete("/v1/tokens/bot")).json() == {"name": "bot", "status": "revoked"}
    assert (await server.http.get("/v1/messages", headers=header)).status_code == 401
    assert (await server.http.delete("/v1/tokens/bot")).status_code == 404


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "connector"},
        {"role": "connector", "channel": "telegram"},
        {"role": "agent"},
        {"role": "operator", "channel": "telegram"},
        {"role": "metrics", "system_id": "System1/x"},
        {"role": "agent", "system_id": "System1/x", "channel": "telegram"},
        {"role": "root"},
        {"role": "operator", "name": "a b"},
    ],
)
async def test_a_token_is_bound_as_its_role_needs(server: Opened, wrong: Mapping[str, str]) -> None:
    assert (await server.http.post("/v1/tokens", json={"name": "x", **wrong})).status_code == 422


async def test_refusing_works_without_the_audit_trail(database: Database) -> None:
    access = Access(database)
    await database.close()
    with pytest.raises(Forbidden):
        await access.check(AGENT, INGEST)
