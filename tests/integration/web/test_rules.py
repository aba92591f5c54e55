"""Rules on the page: in true order, with hits, changed after their effect was shown, and undone."""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import httpx2
import pytest

from switchboard.store.work.ledger import rule_hits
from tests.browser import DESK, PHONE
from tests.chaos.forms_browser import FormSender
from tests.lab import envelope_json
from tests.routing import rule, team_of
from tests.servers import NO_TLS, Opened, open_server
from tests.web_forms import enter, follow
from tests.web_house import link_of, signed_in

SIZES = pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """A server with three messages that a rule has decided."""
    async with open_server(database_url, tmp_path / "data") as opened:
        for n in range(3):
            answer = await opened.submit(envelope_json(f"hello {n}", channel="telegram", sender="noor", thread="noor"))
            assert answer.is_success, answer.text
        yield opened


@SIZES
async def test_a_rule_is_made_after_its_effect_and_undone(chromium: str, server: Opened, size: tuple[int, int]) -> None:
    async with signed_in(chromium, server, size, script=False) as tab:
        await tab.open(f"{server.url}/ui/rules")
        text = await tab.text()
        assert "3 hits" in text
        assert "no hit" in text
        await follow(tab, "a.button[href*='/rules/new']")
        await enter(tab, "#name", "Noor to side")
        await enter(tab, "#filters", "sender: noor")
        await enter(tab, "#targets", "side")
        await follow(tab, "form[action='/ui/rules/new'] button")
        assert "A condition is written as KEY = VALUE" in await tab.text()
        await enter(tab, "#filters", "sender = noor")
        await follow(tab, "form[action='/ui/rules/new'] button")
        text = await tab.text()
        assert "3 of 3 messages of the last day would go elsewhere" in text
        assert "System1/echo" in text
        assert [one["name"] for one in await _list_rules(server) if one["name"] == "Noor to side"] == []
        await enter(tab, "#reason", "she asked for it")
        await follow(tab, "form:has([value='save']) button")
        assert "It is in force." in await tab.text()
        [made] = [one for one in await _list_rules(server) if one["name"] == "Noor to side"]
        assert (made["filters"], made["targets"]) == ({"sender": "noor"}, [{"team_id": "side"}])

        await follow(tab, "a[href*='/rules/versions/']")
        await follow(tab, "form:has([name='to']) button")
        assert "1 rule would change." in await tab.text()
        await enter(tab, "#reason", "she did not")
        await follow(tab, "form:has([value='save']) button")
        assert "The rules are what they were" in await tab.text()
    assert "Noor to side" not in [one["name"] for one in await _list_rules(server)]
    versions = (await server.http.get("/v1/rules/versions")).json()["versions"]
    assert [(one["author"], one["reason"]) for one in versions[:2]] == [
        ("operator-1 (web: Chrome on Linux)", "she did not"),
        ("operator-1 (web: Chrome on Linux)", "she asked for it"),
    ]


async def test_a_rule_that_was_changed_meanwhile_is_not_overwritten(chromium: str, server: Opened) -> None:
    first = (await _list_rules(server))[0]
    async with signed_in(chromium, server, DESK, script=False) as tab:
        await tab.open(f"{server.url}/ui/rules/{first['rule_id']}")
        changed = await server.http.patch(
            f"/v1/rules/{first['rule_id']}", json={"version": first["version"], "reason": "x", "name": "other"}
        )
        assert changed.is_success, changed.text
        await enter(tab, "#name", "mine")
        await follow(tab, f"form[action='/ui/rules/{first['rule_id']}/change'] button")
        assert "changed" in await tab.text()
        assert await tab.evaluate("document.querySelector('#name').value") == "mine"
    assert "other" in [one["name"] for one in await _list_rules(server)]


async def test_a_form_makes_one_rule_and_undoes_only_what_it_showed(server: Opened) -> None:
    async with httpx2.AsyncClient(base_url=server.url, verify=NO_TLS, headers={"origin": server.url}) as http:
        await http.post((await link_of(server)).removeprefix(server.url))
        new = hidden_in((await http.get("/ui/rules/new?team=root")).text, "/rules/new")
        new |= {"step": "save", "reason": "twice", "name": "twice", "channel": "api", "targets": "side", "active": "on"}
        made = await asyncio.gather(*(http.post("/ui/rules/new", data=new) for _ in range(3)))
        assert {one.status_code for one in made} == {303}
        [rule] = [one for one in await _list_rules(server) if one["name"] == "twice"]

        versions = (await http.get("/ui/rules/versions")).text
        newest = max(map(int, re.findall(r"/ui/rules/versions/(\d+)", versions)))
        path = f"/rules/versions/{newest}/restore"
        effect = await http.post(
            f"/ui{path}", data=hidden_in((await http.get(f"/ui/rules/versions/{newest}")).text, path)
        )
        changed = await server.http.patch(
            f"/v1/rules/{rule['rule_id']}", json={"version": rule["version"], "reason": "x", "name": "kept"}
        )
        assert changed.is_success, changed.text
        refused = await http.post(f"/ui{path}", data={**hidden_in(effect.text, path), "reason": "undo"})
        assert (refused.status_code, "moved on" in refused.text) == (409, True)
    assert "kept" in [one["name"] for one in await _list_rules(server)]


async def test_what_no_database_holds_is_refused(server: Opened) -> None:
    async with httpx2.AsyncClient(base_url=server.url, verify=NO_TLS, headers={"origin": server.url}) as http:
        await http.post((await link_of(server)).removeprefix(server.url))
        [secret] = http.cookies.values()

        async def post(path: str, **fields: str) -> int:
            token = hmac.new(secret.encode(), f"form {path}".encode(), sha256).hexdigest()
            return (await http.post(f"/ui{path}", data={**fields, "form_token": token, "reason": "x"})).status_code

        assert (await http.get(f"/ui/rules/versions/{10**30}")).status_code == 404
        assert await post("/rules/versions/1/restore", to=str(10**30), step="save") == 422
        for path, name in (("/butlers/quarantine", "system_id"), ("/butlers/modules/release", "module")):
            assert await post(path, **{name: "a\x00b"}) == 422


def hidden_in(page: str, action: str) -> dict[str, str]:
    """What is hidden in the first form that is posted there."""
    form = page.partition(f'action="/ui{action}"')[2].partition("</form>")[0]
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))


async def test_a_rule_is_removed_after_its_effect(chromium: str, server: Opened) -> None:
    [rule] = [one for one in await _list_rules(server) if one["channel"] == "telegram"]
    async with signed_in(chromium, server, PHONE, script=False) as tab:
        await tab.open(f"{server.url}/ui/rules/{rule['rule_id']}")
        await follow(tab, f"form[action='/ui/rules/{rule['rule_id']}/delete'] button")
        assert "3 of 3 messages" in await tab.text()
        await enter(tab, "#reason", "no longer")
        await follow(tab, "form:has([value='save']) button")
        assert "The rule is gone." in await tab.text()
    assert rule["rule_id"] not in [one["rule_id"] for one in await _list_rules(server)]


async def test_what_is_sent_twice_is_done_once_and_is_no_conflict(server: Opened) -> None:
    [rule] = [one for one in await _list_rules(server) if one["channel"] == "telegram"]
    async with httpx2.AsyncClient(base_url=server.url, verify=NO_TLS, headers={"origin": server.url}) as http:
        await http.post((await link_of(server)).removeprefix(server.url))
        [secret] = http.cookies.values()
    sender = FormSender(int(server.url.rpartition(":")[2]), secret)

    async def send_twice(path: str, page: str, **fields: str) -> set[tuple[int, str]]:
        """The form that saves, once its effect was shown."""
        shown = await sender.send(sender.fill_in(await sender.open(page), path, fields, files=False))
        saves = sender.fill_in(shown.html, path, {"reason": "so"}, files=False)
        return {(answer.status, answer.place) for answer in [await sender.send(saves) for _ in range(2)]}

    one = f"/rules/{rule['rule_id']}"
    assert await send_twice(f"{one}/change", one, priority="9") == {(303, f"/ui{one}?done=saved")}
    back = "/rules/versions/2"
    assert await send_twice(f"{back}/restore", back, to="1") == {(303, "/ui/rules/versions?done=restored")}
    await sender.aclose()
    versions = (await server.http.get("/v1/rules/versions")).json()["versions"]
    assert [version["version"] for version in versions] == [3, 2, 1]


async def _list_rules(server: Opened) -> list[dict[str, object]]:
    answer = await server.http.get("/v1/rules", params={"team_id": "root"})
    return list(answer.json()["rules"])


async def test_a_rule_that_leads_to_dead_letters_counts_once(database_url: str, tmp_path: Path) -> None:
    """Such a rule is in two steps of a trail: it matches, and then it says where the dead letter goes."""
    tree = (team_of("System4/root"),), (rule("System4/root", channel="telegram", number=1),)
    async with open_server(database_url, tmp_path / "data", tree=tree) as opened:
        answer = await opened.submit(envelope_json("an offer", channel="telegram", sender="noor", thread="noor"))
        assert answer.is_success, answer.text
        assert list((await rule_hits(opened.lab.database, 100)).values()) == [1]
