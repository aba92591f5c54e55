"""Webhooks over HTTP: what is verified is stored once, or set aside; everything else is refused."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog

from switchboard.app.connectors import hook_accounts, hooks
from switchboard.app.connectors.arriving import Seldom
from switchboard.app.connectors.hook_accounts import HookAccounts
from switchboard.connectors.webhook import bodies
from switchboard.core.posted import decompress_body, is_packed
from switchboard.domain.errors import NotFound, Unavailable
from switchboard.ports.connector import Posted
from tests.documents import HOME, blocks
from tests.lab import envelope_json
from tests.lab import rule as routing
from tests.nginx import NAME, nginx
from tests.servers import TEAMS, Opened, open_server
from tests.webhooks import SECRET, Request, account, form, github, standard, stripe

BODY = b'{"type":"order.paid","order":7}'
TREE = (TEAMS, (routing("System1/echo", channel="webhook"),))
MAPPED = """
[settings.map]
text = "Order {body.order}: {body.type}"
sender = "shop"
thread = "order-{body.order}"
"""
GITHUB = """
verify = "github"
[settings.map]
text = "{headers.x-github-event} {body.action} in {body.repository.full_name}: {body.issue.title}"
sender = "{body.sender.login}"
thread = "{body.issue.html_url}"
"""
STRIPE = """
verify = "stripe"
[settings.map]
text = "{body.type}: {body.data.object.description}, foo was {body.data.previous_attributes.metadata.foo}"
sender = "{body.data.object.customer|body.data.object.id}"
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "channels.d"
    account(directory, "orders", 'verify = "standard"' + MAPPED)
    account(directory, "github", GITHUB, "It's a Secret to Everybody")
    account(directory, "stripe", STRIPE, "whsec_test")
    account(directory, "script", 'verify = "bearer"', "a-long-token")
    return directory


@pytest.fixture
async def server(database_url: str, tmp_path: Path, directory: Path) -> AsyncIterator[Opened]:
    more = {
        "channels_dir": directory,
        "public_url": "https://hooks.example",
        "trusted_proxies": ["127.0.0.1", "127.0.0.2"],
    }
    async with open_server(database_url, tmp_path / "data", worker=True, tree=TREE, more=more) as opened:
        yield opened


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read again for every webhook."""
    monkeypatch.setattr(hook_accounts, "_FRESH_S", 0.0)


@pytest.fixture
def logged() -> Iterator[Sequence[Mapping[str, Any]]]:
    with structlog.testing.capture_logs() as entries:
        yield entries


async def post(server: Opened, name: str, request: Request, **headers: str) -> httpx2.Response:
    """Without our token."""
    sent = {"authorization": "", **request.headers, **headers}
    return await server.http.post(f"/hooks/{name}", content=request.body, headers=sent)


async def announced(server: Opened, size: int) -> int:
    """The answer to a body of which only the first byte arrives."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST /hooks/orders HTTP/1.1\r\nhost: localhost\r\ncontent-length: {size}\r\n\r\n{{".encode())
    status = await reader.readline()
    writer.close()
    return int(status.split()[1])


async def stored(server: Opened) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = (await server.http.get("/v1/messages")).json()["messages"]
    return found


async def test_a_standard_webhook_is_answered_in_the_outbox_of_its_account(server: Opened) -> None:
    answer = await post(server, "orders", standard(BODY))
    assert (answer.status_code, answer.json()["status"]) == (200, "accepted")
    request_id = answer.json()["request_id"]
    shown = (await server.http.get(f"/v1/messages/{request_id}")).json()
    assert (shown["channel"], shown["endpoint"], shown["sender"]) == ("webhook", "orders", "shop")
    raw = (await server.http.get(f"/v1/messages/{request_id}/raw")).json()
    assert raw["payload"]["raw"] == json.loads(BODY)
    assert raw["event"]["external_thread_id"] == "order-7"
    wanted = {"channel": "webhook", "endpoint": "orders", "wait_s": 20}
    [reply] = (await server.http.post("/v1/outbox/next", json=wanted)).json()["replies"]
    assert (reply["text"], reply["reply_to"], reply["recipient"]) == ("Order 7: order.paid", "msg_1", "shop")


@pytest.mark.parametrize(
    ("name", "signed", "text", "key"),
    [
        (
            "github",
            lambda: github(form("github_issue_opened"), "It's a Secret to Everybody"),
            "issues opened in Codertocat/Hello-World: Spelling error in the README file",
            "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        ),
        (
            "stripe",
            lambda: stripe(form("stripe_customer_updated"), "whsec_test"),
            "customer.updated: Test customer, foo was bar",
            "evt_1DHsSdKCFFPkgtRhy4YMdffC",
        ),
        ("script", lambda: Request(b'{"id":"k"}', {"authorization": "Bearer a-long-token"}), '{"id":"k"}', "k"),
    ],
)
async def test_what_known_senders_post_becomes_a_message_once(
    server: Opened, name: str, signed: Callable[[], Request], text: str, key: str
) -> None:
    request_ = signed()
    first = (await post(server, name, request_)).json()
    again = (await post(server, name, request_)).json()
    assert (first["status"], again["status"]) == ("accepted", "duplicate")
    assert first["request_id"] == again["request_id"]
    raw = (await server.http.get(f"/v1/messages/{first['request_id']}/raw")).json()
    assert (raw["payload"]["normalized_text"], raw["event"]["external_event_id"]) == (text, key)
    assert len(await stored(server)) == 1


@pytest.mark.parametrize(
    "request_",
    [
        Request(BODY, {}),
        Request(BODY + b" ", standard(BODY).headers),
        standard(BODY, secret="whsec_" + "QUFB" * 8),
        standard(BODY, at=datetime.now(UTC) - timedelta(days=1)),
        standard(BODY, at=datetime.now(UTC) + timedelta(days=1)),
    ],
)
async def test_what_is_not_signed_is_refused_and_not_kept(server: Opened, request_: Request) -> None:
    refused = await post(server, "orders", request_)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthenticated")
    assert SECRET not in refused.text
    assert await stored(server) == []
    assert (await server.http.get("/v1/quarantine")).json()["events"] == []


async def test_no_token_of_ours_opens_the_door_and_no_other_path_is_open(server: Opened) -> None:
    assert (await post(server, "orders", Request(BODY, {}), authorization=f"Bearer {server.token}")).status_code == 401
    for name in ("nobody", "..%2Forders", ".orders", "x" * 64, "orders.toml"):
        assert (await post(server, name, standard(BODY))).status_code == 404, name
    assert (await post(server, "x" * 65, standard(BODY))).status_code == 422
    assert (await server.http.get("/hooks/orders")).status_code == 404
    assert (await server.http.post("/hooks", headers={"authorization": ""})).status_code == 401


async def test_an_account_of_a_channel_without_webhooks_is_none(server: Opened, directory: Path) -> None:
    file = account(directory, "bot", "")
    file.write_text('channel = "telegram"\nsecrets.token.file = "bot.secret"\n')
    assert (await post(server, "bot", standard(BODY))).status_code == 404


async def test_25_mib_are_taken_and_one_byte_more_is_too_large(server: Opened) -> None:
    most = 25 * 1024 * 1024
    large = standard(b'{"type":"large","order":1,"x":"' + b"x" * (most - 33) + b'"}')
    assert len(large.body) == most
    taken = (await post(server, "orders", large)).json()
    assert taken["status"] == "accepted", taken
    raw = (await server.http.get(f"/v1/messages/{taken['request_id']}/raw")).json()
    assert (raw["payload"]["normalized_text"], "raw" in raw["payload"]) == ("Order 1: large", False)
    assert await announced(server, most + 1) == 413
    bomb = gzip.compress(b" " * (most + 1))
    assert (await post(server, "orders", Request(bomb, {"content-encoding": "gzip"}))).status_code == 413


async def test_a_body_may_be_packed_after_or_before_it_was_signed(server: Opened) -> None:
    before = standard(BODY, "before")
    packed = Request(gzip.compress(BODY), before.headers)
    assert (await post(server, "orders", packed, **{"content-encoding": "gzip"})).json()["status"] == "accepted"
    body = gzip.compress(b'{"id":"evt_2","type":"x"}')
    after = stripe(Request(body, {"content-encoding": "gzip"}), "whsec_test")
    assert (await post(server, "stripe", after)).json()["status"] == "accepted"
    broken = standard(BODY, "broken")
    assert (await post(server, "orders", broken, **{"content-encoding": "gzip"})).status_code == 422


@pytest.mark.usefixtures("at_once")
async def test_what_cannot_be_made_into_a_message_is_set_aside_and_replayed(server: Opened, directory: Path) -> None:
    account(directory, "orders", 'verify = "standard"\n[settings.map]\ntext = "{body.missing}"')
    answer = (await post(server, "orders", standard(BODY), cookie="sweet-secret")).json()
    assert answer["status"] == "quarantined"
    path = f"/v1/quarantine/{answer['quarantine_id']}"
    event = (await server.http.get(path)).json()
    assert (event["channel"], event["endpoint"], event["event_id"]) == ("webhook", "orders", "msg_1")
    await server.http.post(f"{path}/replay")
    assert (await server.http.get(path)).json()["replay"] is False, "it failed again, and waits for an operator"
    kept = await server.lab.database.value("select count(*) from quarantine")
    assert kept == 1
    account(directory, "orders", 'verify = "standard"' + MAPPED)
    assert (await server.http.post(f"{path}/replay")).status_code == 200
    assert (await server.http.get(path)).status_code == 404
    [message] = await stored(server)
    assert message["endpoint"] == "orders"


async def test_quarantine_holds_nothing_that_proves_who_sent_it(server: Opened) -> None:
    proofs = dict.fromkeys(("cookie", "x-api-key", "x-apikey", "x-auth", "proxy-authorization", "x-password"), "sweet")
    sent = Request(b'""', {**proofs, "authorization": "Bearer a-long-token", "x-kind": "a"})
    answer = (await post(server, "script", sent)).json()
    event = (await server.http.get(f"/v1/quarantine/{answer['quarantine_id']}")).json()
    kept = b64decode(event["raw"])
    assert kept.startswith(b"POST /hooks/script\r\n")
    assert b"x-kind: a\r\n" in kept
    assert b"a-long-token" not in kept
    assert b"sweet" not in kept


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("body", "kind", "status", "text"),
    [
        (b"payload=%7B%22id%22%3A1%7D", FORM, 200, '{"id":1}'),
        (b"from=Noor&text=hello+you&from=Eve", f"{FORM}; charset=utf-8", 200, '{"from":"Noor","text":"hello you"}'),
        (b'{"id":2}', FORM, 200, '{"id":2}'),
        (b'{"id":3}', "text/plain", 200, '{"id":3}'),
        (b'""', "application/json", 200, None),
        (b"<order/>", "application/xml", 422, "'application/xml'"),
        (b"payload=%7B", FORM, 200, '{"payload":"{"}'),
        (b"name=M%FCller", f"{FORM}; charset=windows-1252", 200, '{"name":"M\u00fcller"}'),
        (b"name=M%FCller", FORM, 422, "not a form"),
        (b"name=M", f"{FORM}; charset=hex", 422, "not a form"),
        (b"", FORM, 422, "without fields"),
        (b"%ff=\xff", FORM, 422, "not a form"),
        (b"&".join([b"a=1"] * 1001), FORM, 422, "not a form"),
    ],
)
async def test_forms_are_read_and_what_no_mapping_reads_is_refused_and_not_kept(
    server: Opened, body: bytes, kind: str, status: int, text: str | None
) -> None:
    sent = Request(body, {"authorization": "Bearer a-long-token", "content-type": kind})
    answer = await post(server, "script", sent)
    assert answer.status_code == status, answer.text
    if status == 422:
        assert str(text) in answer.json()["error"]["message"]
        assert await stored(server) == []
        assert (await server.http.get("/v1/quarantine")).json()["events"] == []
    elif text is None:
        assert answer.json()["status"] == "quarantined"
    else:
        assert [one["text"] for one in await stored(server)] == [text]


async def test_json_too_deep_for_a_message_goes_without_its_original(server: Opened) -> None:
    deep = b'{"type":"deep","order":2,"x":' + b"[" * 200 + b"]" * 200 + b"}"
    assert (await post(server, "orders", standard(deep))).json()["status"] == "accepted"


async def test_a_full_backlog_is_503_and_says_when_to_come_again(
    database_url: str, tmp_path: Path, directory: Path
) -> None:
    more = {"channels_dir": directory}
    async with open_server(database_url, tmp_path / "data", tree=TREE, more=more, backlog=1) as server:
        answers = [await post(server, "orders", standard(BODY, f"m{n}")) for n in range(3)]
        assert [answer.status_code for answer in answers] == [200, 503, 503]
        assert int(answers[-1].headers["retry-after"]) > 0


async def test_a_database_that_hangs_is_503_in_time_and_the_event_is_stored_once(
    server: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "ANSWER_S", 0.2)
    pool = server.lab.database.pool
    async with pool.acquire() as held, held.transaction():
        await held.execute("lock table message_inbox in access exclusive mode")
        refused = await post(server, "orders", standard(BODY))
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "5"
    monkeypatch.setattr(hooks, "ANSWER_S", 20)
    again = await post(server, "orders", standard(BODY))
    assert again.json()["status"] == "duplicate"
    assert len(await stored(server)) == 1


@pytest.fixture
def one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of bodies on their way."""
    monkeypatch.setattr(hooks, "_MOST_AT_ONCE", 1)


@pytest.mark.usefixtures("one_place")
async def test_slow_strangers_take_no_places_of_those_who_post(server: Opened) -> None:
    held, arrived = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield BODY[:5]
        arrived.set()
        await held.wait()
        yield BODY[5:]

    async def slow_one() -> int:
        answer = await server.http.post("/hooks/orders", content=slowly(), headers={"authorization": ""})
        return answer.status_code

    slow = asyncio.create_task(slow_one())
    await arrived.wait()
    for number in range(3):
        assert (await post(server, "orders", standard(BODY, f"quick-{number}"))).status_code == 200
    held.set()
    assert await slow == 503, "the slowest gives way"


async def test_large_bodies_of_strangers_take_no_places_of_those_with_a_token(
    database_url: str, tmp_path: Path, directory: Path
) -> None:
    async with open_server(
        database_url, tmp_path / "data", tree=TREE, more={"channels_dir": directory}, message_bytes=4000
    ) as server:
        host, _, port = server.url.removeprefix("http://").partition(":")
        writers = []
        for number in range(8):
            account(directory, f"many-{number}", 'verify = "bearer"', "a-long-token")
            _, writer = await asyncio.open_connection(host, int(port))
            head = f"POST /hooks/many-{number} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9000\r\n\r\n"
            writer.write(head.encode() + b" " * 5000)
            await writer.drain()
            writers.append(writer)
        large = {"envelopes": [envelope_json("x" * 3000, event=f"e{number}") for number in range(2)]}
        taken = await server.http.post("/v1/ingest/batch", json=large, timeout=8)
        assert taken.status_code == 200
        for writer in writers:
            writer.close()


async def test_nobody_waits_while_a_packed_body_is_unpacked(server: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly(posted: Posted, most: int) -> Posted:
        begun.set()
        go_on.wait(20)
        return decompress_body(posted, most)

    monkeypatch.setattr(hooks, "decompress_body", slowly)
    headers = {"authorization": "", "content-encoding": "gzip"}
    packed = asyncio.create_task(server.http.post("/hooks/orders", content=gzip.compress(bytes(9)), headers=headers))
    assert await asyncio.to_thread(begun.wait, 20)
    assert (await server.http.get("/v1/books")).status_code == 200
    assert not packed.done()
    go_on.set()
    assert (await packed).status_code == 401


async def test_nobody_waits_while_a_large_body_is_read(server: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly(body: bytes) -> object:
        begun.set()
        go_on.wait(20)
        return json.loads(body)

    monkeypatch.setattr(bodies, "_parse_json", slowly)
    large = Request(b'{"order": "%b"}' % (b"7" * 100_000), {"authorization": "Bearer a-long-token"})
    posted = asyncio.create_task(post(server, "script", large))
    assert await asyncio.to_thread(begun.wait, 20)
    assert (await server.http.get("/v1/books")).status_code == 200
    assert not posted.done()
    go_on.set()
    assert (await posted).json()["status"] == "accepted"


async def test_packed_bodies_that_wait_for_their_turn_are_503_in_time(
    server: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slowly(posted: Posted, most: int) -> Posted:
        if is_packed(posted):
            begun.release()
            go_on.wait(20)
        return decompress_body(posted, most)

    monkeypatch.setattr(hooks, "decompress_body", slowly)
    headers = {"authorization": "", "content-encoding": "gzip"}

    async def packed() -> int:
        return (await server.http.post("/hooks/orders", content=gzip.compress(bytes(9)), headers=headers)).status_code

    first = [asyncio.create_task(packed()) for _ in range(2)]
    for _ in first:
        assert await asyncio.to_thread(begun.acquire, timeout=20)
    monkeypatch.setattr(hooks, "ANSWER_S", 0.2)
    assert await packed() == 503
    assert (await post(server, "orders", Request(BODY, {}))).status_code == 401, "what is not packed has no turn"
    go_on.set()
    assert await asyncio.gather(*first) == [401, 401]


async def test_strangers_who_post_a_lot_fill_no_log(server: Opened, logged: Sequence[Mapping[str, Any]]) -> None:
    for number in range(70):
        assert (await post(server, "orders", Request(BODY, {}))).status_code == 401, number
    assert len([entry for entry in logged if entry["event"] == "a webhook was refused"]) == 60
    told = Seldom(1, 60.0)
    assert [told.turn(now) for now in (0.0, 1.0, 59.9, 60.0, 61.0)] == [0, None, None, 2, None]


async def test_strangers_who_hang_up_in_the_middle_fill_no_log(
    server: Opened, logged: Sequence[Mapping[str, Any]]
) -> None:
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /hooks/orders HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{")
    await server.http.get("/v1/books")  # by now the other request is waiting for the rest of its body
    writer.close()
    await reader.read()
    await server.http.get("/v1/books")
    assert [entry for entry in logged if entry["log_level"] in ("error", "warning")] == []


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """With bodies."""
    monkeypatch.setattr(hooks, "_BODY_S", 0.2)


@pytest.mark.usefixtures("impatient")
async def test_a_body_that_never_ends_is_given_up(server: Opened) -> None:
    assert await announced(server, 9) == 503


async def test_only_what_a_trusted_proxy_says_of_the_client_is_believed(
    server: Opened, logged: Sequence[Mapping[str, Any]]
) -> None:
    await post(server, "orders", Request(BODY, {"x-forwarded-for": "6.6.6.6, 203.0.113.9, 127.0.0.2"}))
    [refused] = [entry for entry in logged if entry["event"] == "a webhook was refused"]
    assert refused["client"] == "203.0.113.9"


async def test_the_server_answers_by_the_name_of_its_public_url(server: Opened) -> None:
    for host, status in (("hooks.example", 200), ("other.example", 421)):
        assert (await post(server, "orders", standard(BODY, host), host=host)).status_code == status


def rules_for(server: Opened) -> str:
    """What the page of webhooks says for nginx, for this server."""
    [block] = [one for one in blocks(HOME / "docs/channels/webhook.md") if one.name.endswith("nginx.conf")]
    return block.text.replace("http://127.0.0.1:8470", server.url)


async def test_through_nginx_with_tls_webhooks_arrive_as_they_were_sent(
    server: Opened, logged: Sequence[Mapping[str, Any]]
) -> None:
    with nginx(rules_for(server)) as proxy:
        transport = httpx2.AsyncHTTPTransport(verify=proxy.tls, local_address="127.0.0.3")
        async with httpx2.AsyncClient(transport=transport, base_url=f"https://127.0.0.1:{proxy.port}") as outside:

            async def sent(request: Request, body: object = None, **headers: str) -> httpx2.Response:
                given = {"host": NAME, **request.headers, **headers}
                content: Any = request.body if body is None else body
                return await outside.post(
                    "/hooks/orders", content=content, headers=given, extensions={"sni_hostname": NAME}
                )

            async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
                for at in range(0, len(body), 7):
                    yield body[at : at + 7]

            whole = await sent(standard(BODY, "whole"))
            assert (whole.status_code, whole.json()["status"]) == (200, "accepted")
            chunked = standard(BODY, "chunked")
            answer = await sent(chunked, in_pieces(chunked.body))
            assert "transfer-encoding" in answer.request.headers
            assert answer.json()["status"] == "accepted"
            packed = Request(gzip.compress(BODY), standard(BODY, "packed").headers)
            assert (await sent(packed, **{"content-encoding": "gzip"})).json()["status"] == "accepted"
            most = 25 * 1024 * 1024
            large = standard(b'{"type":"large","order":1,"x":"' + b"x" * (most - 33) + b'"}', "large")
            assert (await sent(large)).json()["status"] == "accepted"
            assert (await sent(Request(large.body + b" ", large.headers))).status_code == 413

            elsewhere = await sent(standard(BODY, "host"), host="other.example")
            assert (elsewhere.status_code, elsewhere.json()["error"]["code"]) == (421, "unknown_host")
            forged = Request(BODY, {"x-forwarded-for": "203.0.113.9"})
            assert (await sent(forged)).status_code == 401
            assert (await outside.get("/v1/messages", headers={"host": NAME})).status_code == 404, "by nginx"
    [refused] = [entry for entry in logged if entry["event"] == "a webhook was refused"]
    assert refused["client"] == "127.0.0.3", "what the client says of itself does not count"
    assert len(await stored(server)) == 4


@pytest.mark.usefixtures("at_once")
async def test_a_change_of_the_secret_holds_without_a_restart(server: Opened, directory: Path) -> None:
    new = "whsec_" + "QUFB" * 8
    assert (await post(server, "orders", standard(BODY, "a"))).status_code == 200
    file = account(directory, "orders", 'verify = "standard"' + MAPPED, new)
    (directory / "old.secret").write_text(SECRET)
    file.write_text('secrets.second.file = "old.secret"\n' + file.read_text())
    for name, secret in (("b", new), ("c", SECRET)):
        assert (await post(server, "orders", standard(BODY, name, secret=secret))).status_code == 200
    (directory / "orders.secret").unlink()
    assert (await post(server, "orders", standard(BODY, "d", secret=new))).status_code == 200, "as it was"
    file.unlink()
    assert (await post(server, "orders", standard(BODY, "e", secret=new))).status_code == 404


def test_an_account_whose_file_was_never_valid_is_away(directory: Path) -> None:
    file, seconds = account(directory, "broken", 'verify = "never"'), [0.0]
    accounts = HookAccounts(directory, lambda: seconds[0])
    with structlog.testing.capture_logs() as logged:
        for _ in range(5):
            with pytest.raises(Unavailable):
                accounts.find("broken")
    assert len(logged) == 1, "anybody may ask for it, and fills no log"
    account(directory, "broken", 'verify = "bearer"')
    seconds[0] = 10.0
    assert accounts.find(file.stem).name == "broken"
    with pytest.raises(NotFound):
        accounts.find("../channels.d/orders")
