"""`/v1/people` and `switchboard people`: who may link what, what is said when it is wrong, and that it is audited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from switchboard.app.access import Principal
from switchboard.core.people.owners import owns
from switchboard.domain.routing import Owner, SystemId, Team
from tests.commands import Cli
from tests.lab import ROOT, butler, envelope_json
from tests.servers import Opened, open_server

TELEGRAM: Final = {"channel": "telegram", "identity": "5488"}


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """With the persons ann and bob; 5488 of Telegram is ann."""
    async with open_server(database_url, tmp_path / "data") as opened:
        for person in ("ann", "bob"):
            assert (await post(opened, "", person_id=person, name=person.title()))[0] == 201
        assert (await post(opened, "/ann/link", **TELEGRAM))[0] == 200
        yield opened


async def post(server: Opened, path: str, **body: Any) -> tuple[int, Any]:
    answer = await server.http.post(f"/v1/people{path}", json=body)
    found = answer.json()
    return answer.status_code, found.get("person") or found["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("", {"person_id": "Ann", "name": "Ann"}, 422, "lower-case letters"),
        ("", {"person_id": "ann-", "name": "Ann"}, 422, "lower-case letters"),
        ("", {"person_id": "a" * 41, "name": "Ann"}, 422, "at most 40"),
        ("", {"person_id": "ann", "name": "Another"}, 409, "there is a person 'ann' already"),
        ("/cid/link", TELEGRAM, 404, "no person 'cid'"),
        ("/bob/link", TELEGRAM, 409, "'5488' of telegram is a handle of 'ann', and a handle is in one person"),
        ("/bob/link", {"channel": "telegrm", "identity": "1"}, 422, "did you mean telegram"),
        ("/bob/link", {"channel": "slack", "identity": "U1"}, 422, "at one endpoint only; name it"),
        ("/bob/link", {"channel": "email", "identity": "Bob@example.org"}, 422, "write 'bob@example.org'"),
        ("/bob/unlink", TELEGRAM, 404, "no handle of 'bob'"),
        ("/cid/rename", {"name": "Cid"}, 404, "no person 'cid'"),
    ],
)
async def test_what_is_refused_says_what_would_be_right(
    server: Opened, path: str, body: dict[str, str], status: int, told: str
) -> None:
    before = (await server.http.get("/v1/people")).json()
    found, message = await post(server, path, **body)
    assert (found, told in message) == (status, True), message
    assert (await server.http.get("/v1/people")).json() == before


async def test_what_is_linked_is_shown_counts_at_once_and_is_audited(server: Opened) -> None:
    _, ann = await post(server, "/ann/link", **TELEGRAM)
    assert [(one["channel"], one["endpoint"], one["proves"]) for one in ann["handles"]] == [("telegram", None, True)]
    _, ann = await post(server, "/ann/link", channel="api", identity="ann", endpoint="web")
    assert [(one["endpoint"], one["proves"]) for one in ann["handles"]] == [("web", False), (None, True)]
    assert (await server.http.put("/v1/people/ann/groups", json={"groups": ["b", "a", "b"]})).status_code == 200
    grouped = (await server.http.put("/v1/people/ann/groups", json={"groups": ["c", "a"]})).json()
    assert grouped["person"]["groups"] == ["a", "c"]
    book = server.switchboard.runtime.people_book
    await book.refresh()
    assert sorted((one.person, one.groups) for one in book.people.handles.values()) == [("ann", ("a", "c"))] * 2
    await post(server, "/ann/unlink", **TELEGRAM)
    assert (await post(server, "/bob/link", **TELEGRAM))[0] == 200
    assert (await server.http.delete("/v1/people/ann")).json() == {"person_id": "ann"}
    await book.refresh()
    assert [one.person for one in book.people.handles.values()] == ["bob"]
    entries = (await server.http.get("/v1/audit")).json()["entries"]
    done = [one["action"].partition(":")[2] for one in entries if one["action"].startswith("people:")]
    assert done == [*("deleted", "linked", "unlinked", "grouped", "grouped", "linked", "linked"), *done[7:]]
    assert entries[1]["detail"] == {"person_id": "bob", "channel": "telegram", "endpoint": None, "identity": "5488"}


async def test_the_version_of_the_persons_is_kept_with_a_decision(
    server: Opened, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.lab.people_book.refresh()
    sent = (await server.submit(envelope_json("hello", sender="5488"))).json()["request_id"]
    await post(server, "/ann/unlink", **TELEGRAM)
    [decision] = (await server.http.get(f"/v1/messages/{sent}/explain")).json()["decisions"]
    assert (decision["people_version"], decision["facts"]["person"]) == (3, "ann")
    assert "people_version" not in decision["facts"]
    cli = Cli(capsys, monkeypatch, server.environment)
    assert "of the rules and 3 of the persons" in await asyncio.to_thread(cli.says, "explain", sent)


async def test_persons_come_in_pages_and_for_operators_only(server: Opened) -> None:
    page = (await server.http.get("/v1/people", params={"limit": "1"})).json()
    rest = (await server.http.get("/v1/people", params={"limit": "1", "cursor": page["next_cursor"]})).json()
    assert [one["person_id"] for one in (*page["people"], *rest["people"])] == ["ann", "bob"]
    token = await server.token_for(Principal("agent", "clerk", system_id="System1/echo"))
    assert (await server.http.get("/v1/people", headers=token)).status_code == 403


async def test_commands_say_what_is_now_the_case(
    server: Opened, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = Cli(capsys, monkeypatch, server.environment)

    def commands() -> None:
        assert "cid: added; link handles with" in cli.says("people", "add", "cid")
        assert cli.says("people", "link", "cid", "telegram", "77").strip() == "77 of telegram is cid"
        listed = cli.says("people", "link", "cid", "irc", "cid", "--endpoint", "net")
        assert "only listed: on irc whoever writes chooses the name" in listed
        assert cli.says("people", "group", "cid", "family", "work").strip() == "cid: in family, work"
        assert cli.says("people", "group", "cid").strip() == "cid: in no group"
        assert cli.says("people", "rename", "cid", "Cid C.").strip() == "cid: is called Cid C. now"
        assert [one["person_id"] for one in cli.json("people", "list")["people"]] == ["ann", "bob", "cid"]
        assert "irc/net:cid, telegram:77" in cli.says("people", "list")
        shown = cli.says("people", "show", "cid")
        assert ("telegram:77" in shown, "only listed, it proves nothing" in shown) == (True, True)
        assert "is a handle of 'ann'" in cli.run("people", "link", "cid", "telegram", "5488")[2]
        assert cli.says("people", "unlink", "cid", "telegram", "77").strip() == "77 of telegram is cid no longer"
        assert cli.says("people", "remove", "cid").strip() == "cid: removed"
        assert "there is no person 'cid'" in cli.run("people", "show", "cid")[2]

    await asyncio.to_thread(commands)


@pytest.mark.parametrize(
    ("linked", "writes", "owner"),
    [
        (("telegram", None, "5488"), Owner("telegram", "bot:a", "5488"), True),
        (("telegram", None, "5488"), Owner("telegram", "bot:a", "5489"), False),
        (("slack", "team", "U1"), Owner("slack", "team", "U1"), True),
        (("slack", "team", "U1"), Owner("slack", "another", "U1"), False),
        (("api", "web", "ann"), Owner("api", "web", "ann"), False),
        (("irc", "net", "ann"), Owner("person", "net", "ann"), False),
    ],
)
async def test_a_person_owns_a_butler_as_long_as_the_handle_is_linked(
    database_url: str, tmp_path: Path, linked: tuple[str, str | None, str], writes: Owner, owner: bool
) -> None:
    hers = replace(butler("echo"), options={"owners": ["person:ann", "telegram:1"]})
    tree = (Team(ROOT, None, members=(hers, replace(butler("rest"), options={"owners": "person:ann"}))),)
    async with open_server(database_url, tmp_path / "data", tree=(tree, ())) as opened:
        book, handle = opened.lab.rule_book, dict(zip(("channel", "endpoint", "identity"), linked, strict=True))

        async def owns_now() -> list[bool]:
            await book.refresh()
            members = book.rules.members
            return [owns(writes, members[SystemId(f"System1/{name}")]) for name in ("echo", "rest")]

        await post(opened, "", person_id="ann", name="Ann")
        assert await owns_now() == [False, False]
        await post(opened, "/ann/link", **handle)
        assert await owns_now() == [owner, False]
        await post(opened, "/ann/unlink", **handle)
        assert await owns_now() == [False, False]
        await post(opened, "/ann/link", **handle)
        assert await owns_now() == [owner, False]
        await opened.http.delete("/v1/people/ann")
        assert await owns_now() == [False, False]
        history = (await opened.http.get("/v1/rules/versions")).json()["versions"]
        assert [one["reason"] for one in history][:4] == [
            f"person ann was {done}" for done in ("deleted", "linked", "unlinked", "linked")
        ]
