"""A house with something for each form of the page to act on, and a visitor who is signed in. It is copied."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from switchboard.app.web_sessions import WebSessions
from switchboard.ports.engine import Answer, EngineFailure, Journal, Turn, TurnResult
from switchboard.testing.bot_api import TOKEN
from tests.hands import Scripted, at_work
from tests.integration.test_approvals_interfaces import asking
from tests.lab import envelope_json
from tests.routing import butler, rule, team_of
from tests.servers import Opened, open_server
from tests.waiting import eventually
from tests.web_filling import add_memory, add_person, add_sync, add_tasks
from tests.web_house import CHATTING, DOOR, OPERATOR, write_accounts

_TREE: Final = (
    (
        team_of(
            butler("house", "scripted", modules=["schedule", "calendar"]),
            butler("post", "scripted"),
            butler("garden", "scripted"),
            "System4/root",
            purpose="The household",
        ),
        team_of(
            butler("courier", "mcp", url="https://courier.example.org/mcp"),
            team_id="errands",
            purpose="What is done outside the house",
        ),
    ),
    tuple(
        rule("System1/house", channel=channel, number=n) for n, channel in enumerate(("api", "telegram", "dashboard"))
    ),
)
_CLASSIFIED: Final = """
insert into classification (request_id, conversation, team_id, n, candidates, result, tokens_in, tokens_out, ms)
select request_id, conversation, 'root', 1, '{System1/house,System1/post}', '["System1/house"]', 100, 10, 200
from message_inbox where request_id = $1"""
_UNSENT: Final = "update outbox set state = 'uncertain' where request_id = $1 returning outbox_id"
_LATER: Final = """
update lane l set ready_at = clock_timestamp() + interval '1 day', delayed = true
from delivery d where d.lane = l.key and d.request_id = $1"""
_QUARANTINED: Final = "insert into module_quarantine (module, why) values ('calendar', 'it held the event loop')"
_ACCOUNT: Final = """\
channel = "telegram"
endpoint = "telegram/bot:{bot}"
strangers = "{strangers}"
settings = {{api_url = "{url}"}}
secrets.token.file = "{name}.token"
"""


async def fill(database_url: str, data_dir: Path, accounts: Path, bot_url: str) -> Mapping[str, str]:
    """Write all of it; what stands for the names in the paths of forms, and the `secret` of the visitor's cookie."""
    write_accounts(accounts)
    for name, bot, strangers in (("phone", "123456", "pair"), ("listed", "777", "listed")):
        (accounts / f"{name}.token").touch(mode=0o600)
        (accounts / f"{name}.token").write_text(TOKEN)
        (accounts / f"{name}.toml").write_text(_ACCOUNT.format(bot=bot, strangers=strangers, url=bot_url, name=name))
    more = {"channels_dir": accounts}
    async with open_server(database_url, data_dir, tree=_TREE, policies=DOOR, more=more) as server:
        async with at_work(server.lab.worker({"scripted": Scripted(_play)})):
            ids = await _fill_with_worker(server)
        return {name: str(one) for name, one in (ids | await _fill_without_worker(server, ids)).items()}


async def _play(turn: Turn, journal: Journal) -> TurnResult:
    if turn.text.startswith(("ask ", "pay ")):
        return await asking(turn, journal)
    if turn.text == "fail":
        raise EngineFailure("400 Bad Request", error_class="internal", retryable=False)
    return Answer(f"Noted: {turn.text}")


async def _say(server: Opened, text: str, **more: Any) -> UUID:
    answer = await server.submit(envelope_json(text, **more))
    assert answer.is_success, answer.text
    return UUID(answer.json()["request_id"])


async def _fill_with_worker(server: Opened) -> dict[str, UUID | str]:
    ids: dict[str, UUID | str] = {}
    for name, text, more in (
        ("answered", "The washing machine has finished", {"channel": "api", "endpoint": "sensors", "sender": "washer"}),
        ("unsent", "When is the bin emptied?", {"sender": "ann", "thread": "ann"}),
        ("moved", "I have moved to York", {"sender": "ann", "thread": "ann"}),
        ("lost", "Order 4711 was shipped", {"channel": "webhook", "provider": "http", "sender": "shop"}),
        ("lost_too", "Order 4712 was shipped", {"channel": "webhook", "provider": "http", "sender": "shop"}),
        ("pay", "pay the plumber", {**CHATTING, "thread": "pay"}),
        ("ask", "ask which colour", {**CHATTING, "thread": "ask"}),
        ("noor", "Hello, it is Noor", {"endpoint": "bot:door", "sender": "noor", "thread": "noor"}),
    ):
        ids[name] = await _say(server, text, **more)
    await eventually(lambda: _all_is_settled(server))
    return ids


async def _all_is_settled(server: Opened) -> bool:
    approvals = (await server.http.get("/v1/approvals")).json()["approvals"]
    replies = await server.lab.count("select count(*) from outbox where system_id = 'System1/house'")
    return len(approvals) == 2 and replies == 3


async def _fill_without_worker(server: Opened, ids: Mapping[str, UUID | str]) -> dict[str, UUID | str]:
    """What is open stays so."""
    more: dict[str, UUID | str] = {
        "open": await _say(server, "Water the plants", channel="api", endpoint="sensors", sender="soil"),
        "later": await _say(server, "Order seeds", channel="api", endpoint="sensors", sender="shelf"),
        "chat": await _say(server, "What is for dinner?", **{**CHATTING, "thread": "noon"}),
    }
    database = server.lab.database
    await database.run(_CLASSIFIED, ids["answered"])
    await database.run(_LATER, more["later"])
    await database.run(_QUARANTINED)
    more["reply"] = await database.value(_UNSENT, ids["unsent"])
    await add_person(server)
    [task, *_] = await add_tasks(server)
    await add_sync(server)
    await add_memory(server, UUID(str(ids["moved"])), "I have moved to York")
    answer = await server.http.post("/v1/rules", json=_RULE)
    assert answer.is_success, answer.text
    more |= {"task": task, "rule": answer.json()["rule"]["rule_id"]}
    for name, path, key in (("letter", "dead-letters", "dead_letter_id"), ("stranger", "pairing", "contact_id")):
        more[name] = next(iter((await server.http.get(f"/v1/{path}")).json().values()))[0][key]
    for one in (await server.http.get("/v1/approvals")).json()["approvals"]:
        more["question" if one["kind"] == "question" else "call"] = one["approval_id"]
    for name, sql in (
        ("fact", "select fact_id from fact where text like 'Noor%'"),
        ("run", "select run from consolidation_run"),
        ("summary", "select summary_id from summary"),
    ):
        more[name] = await database.value(sql)
    sessions = WebSessions(database, server.access)
    for name in ("other", "secret"):
        link = await sessions.make_link(OPERATOR)
        more[name] = await sessions.enter_by_link(link.path.rpartition("/")[2], "Firefox on Linux") or ""
    more["session"] = (await sessions.sessions(limit=9))[-1].session_id
    return more


_RULE: Final = {
    "team_id": "root",
    "name": "shop",
    "channel": "webhook",
    "filters": {"sender": "nobody"},
    "targets": [{"system_id": "System1/post"}],
    "reason": "a shop of another name",
}
