"""Files of messages: stored once, streamed in and out, and read by those who may read a message that has them."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest
from msgspec.structs import replace

from switchboard.app.access import Principal
from switchboard.app.messages.blobs import BlobService
from switchboard.app.settings import BlobSettings, Settings
from switchboard.domain.errors import BlobQuota, TooLarge
from switchboard.domain.message import RequestId
from switchboard.store.messages import blobs
from switchboard.store.messages.spool import PIECE_BYTES
from tests.lab import envelope_json
from tests.servers import AGENT, CONNECTOR, HANDLER, Opened, open_server
from tests.waiting import eventually

OTHER = Principal("connector", "other", "telegram", "bot:other")
LIMITS = BlobSettings(file_bytes=1000, endpoint_bytes_per_day=1500, total_bytes=2500)
WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
LARGE = bytes(range(256)) * (PIECE_BYTES * 3 // 256) + b"the end"


def with_file(blob: str, endpoint: str = "bot:house") -> dict[str, Any]:
    envelope = envelope_json("see the file", endpoint=endpoint)
    file = {"media_type": "text/plain", "size_bytes": 1, "storage_ref": f"blob:{blob}"}
    return {**envelope, "payload": {**envelope["payload"], "attachments": [file]}}


async def upload(server: Opened, content: bytes, header: Mapping[str, str]) -> str:
    answer = await server.http.post("/v1/blobs", content=content, headers=header)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["blob"])


async def pieces(server: Opened) -> int:
    return await server.lab.count("select count(*) from blob_piece")


def refusal(answer: httpx2.Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error.get("field")


async def test_a_file_comes_back_as_it_was_and_is_never_shown_by_a_browser(server: Opened) -> None:
    answer = await server.http.post("/v1/blobs", content=LARGE, headers={"content-type": "text/html"})
    blob, kind = sha256(LARGE).hexdigest(), "application/octet-stream"
    assert answer.json() == {"blob": blob, "size_bytes": len(LARGE), "media_type": kind, "contradicted": "text/html"}
    assert await pieces(server) == 4
    back = await server.http.get(f"/v1/blobs/{blob}")
    assert back.content == LARGE
    shown = ("content-type", "content-disposition", "x-content-type-options", "content-security-policy")
    assert [back.headers[name] for name in shown] == [kind, "attachment", "nosniff", "sandbox"]


async def test_the_same_bytes_at_once_are_one_blob(server: Opened) -> None:
    headers = [await server.token_for(who) for who in (CONNECTOR, OTHER)] * 3
    names = await asyncio.gather(*(upload(server, LARGE, header) for header in headers))
    assert set(names) == {sha256(LARGE).hexdigest()}
    assert await pieces(server) == 4
    assert await server.lab.count("select count(*) from blob_upload") == 2


async def test_an_upload_is_told_the_media_type_that_is_stored(server: Opened) -> None:
    kinds = ["text/csv", "text/markdown"]
    answers = [await server.http.post("/v1/blobs", content=b"a,b", headers={"content-type": kind}) for kind in kinds]
    assert [one.json()["media_type"] for one in answers] == ["text/csv", "text/csv"]
    assert (await server.http.get(f"/v1/blobs/{answers[0].json()['blob']}")).headers["content-type"] == "text/csv"


async def test_a_file_that_could_not_be_had_at_first_makes_no_other_message(server: Opened) -> None:
    header = await server.token_for(CONNECTOR)
    envelope = with_file(await upload(server, b"late", header))
    had = {**envelope["payload"]["attachments"][0], "source_attachment_id": "f-1"}
    missed = {**had, "unavailable": "the platform did not answer within 60 s"}
    del missed["storage_ref"]
    for one, duplicate in ((missed, False), (had, True)):
        body = {**envelope, "payload": {**envelope["payload"], "attachments": [one]}}
        answer = await server.http.post("/v1/ingest", json=body, headers=header)
        assert (answer.status_code, answer.json()["duplicate"]) == (202, duplicate)
    assert await server.lab.count("select count(*) from message_inbox where envelope::text like '%within 60 s%'") == 1


async def test_a_message_names_only_what_its_endpoint_uploaded(server: Opened) -> None:
    own, other = await server.token_for(CONNECTOR), await server.token_for(OTHER)
    blob = await upload(server, b"secret", other)
    refused = (422, "unknown_blob", "payload.attachments.0.storage_ref")
    assert refusal(await server.http.post("/v1/ingest", json=with_file(blob), headers=own)) == refused
    assert refusal(await server.http.post("/v1/ingest", json=with_file("ab" * 32), headers=own)) == refused
    batch = {"envelopes": [with_file(blob), envelope_json("fine", event="2")]}
    results = (await server.http.post("/v1/ingest/batch", json=batch, headers=own)).json()["results"]
    assert [one.get("status") or one["error"]["code"] for one in results] == ["unknown_blob", "accepted"]
    assert await server.lab.count("select count(*) from message_blob") == 0
    mine = with_file(blob, endpoint="bot:other")
    for duplicate in (False, True):
        answer = await server.http.post("/v1/ingest", json=mine, headers=other)
        assert (answer.status_code, answer.json()["duplicate"]) == (202, duplicate)
    assert await server.lab.count("select count(*) from message_blob") == 1


async def test_who_may_read_a_message_may_read_its_files(server: Opened) -> None:
    blob = await upload(server, b"secret", await server.token_for(CONNECTOR))
    path = f"/v1/blobs/{blob}"
    agent, handler, other = [await server.token_for(who) for who in (AGENT, HANDLER, OTHER)]
    assert (await server.http.get(path, headers=agent)).status_code == 404, "no message has it yet"
    assert (await server.submit(with_file(blob))).status_code == 202
    assert (await server.http.get(path, headers=agent)).content == b"secret"
    never = await server.http.get(f"/v1/blobs/{'ab' * 32}", headers=other)
    for header in (handler, other):
        hidden = await server.http.get(path, headers=header)
        assert hidden.status_code == 404
        assert hidden.text.replace(blob, "ab" * 32) == never.text


async def test_what_no_message_names_is_removed_after_a_day(server: Opened) -> None:
    header, database = await server.token_for(CONNECTOR), server.lab.database
    named, unnamed = await upload(server, b"named", header), await upload(server, b"unnamed", header)
    assert (await server.submit(with_file(named))).status_code == 202
    assert await blobs.forget(database, timedelta(days=1), 20) == 0
    await database.run("update blob set used_at = used_at - interval '25 hours'")
    assert await blobs.forget(database, timedelta(days=1), 20) == 1
    assert (await server.http.get(f"/v1/blobs/{unnamed}")).status_code == 404
    assert (await server.http.get(f"/v1/blobs/{named}")).content == b"named"
    assert await pieces(server) == await server.lab.count("select count(*) from blob_upload") == 1


async def body(content: bytes, *, breaks: bool = False) -> AsyncIterator[bytes]:
    yield content
    if breaks:
        raise ConnectionError


async def test_an_upload_that_is_interrupted_leaves_nothing(server: Opened, tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    directory.mkdir()
    service = BlobService(server.lab.database, server.access, Settings(data_dir=directory))
    with pytest.raises(ConnectionError):
        await service.upload(CONNECTOR, body(LARGE, breaks=True), "")
    assert list(directory.iterdir()) == []
    assert await server.lab.count("select count(*) from blob") == await pieces(server) == 0


async def test_who_uploads_slowly_keeps_no_other_endpoint_waiting(server: Opened, tmp_path: Path) -> None:
    service = BlobService(server.lab.database, server.access, Settings(data_dir=tmp_path))
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def slow(n: int) -> AsyncIterator[bytes]:
        begun.release()
        await go_on.wait()
        yield bytes([n])

    uploads = [asyncio.create_task(service.upload(CONNECTOR, slow(n), "")) for n in range(40)]
    for _ in range(4):
        await begun.acquire()
    async with asyncio.timeout(30):
        assert (await service.upload(OTHER, body(b"quick"), "")).size_bytes == 5
    go_on.set()
    assert len({one.blob for one in await asyncio.gather(*uploads)}) == 40


async def test_a_full_disk_refuses_the_file_with_a_reason(server: Opened, tmp_path: Path) -> None:
    service = BlobService(server.lab.database, server.access, Settings(data_dir=tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(LARGE) // 2, hard))  # writes fail there, as on a disk that is full
    try:
        with pytest.raises(BlobQuota, match="disk"):
            await service.upload(CONNECTOR, body(LARGE), "")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert await server.lab.count("select count(*) from blob") == await pieces(server) == 0


async def test_who_asks_is_told_how_large_a_file_may_be_and_whether_it_is_wanted(
    server: Opened, tmp_path: Path
) -> None:
    header, envelope = await server.token_for(CONNECTOR), with_file("ab" * 32)
    answer = await server.http.post("/v1/ingest/files", json=envelope, headers=header)
    assert answer.json() == {"wanted": True, "reason": None, "most_bytes": BlobSettings().file_bytes}
    assert await server.lab.count("select count(*) from message_inbox") == 0, "nothing is stored"
    history = {**envelope, "control": {"ingestion_tier": "history"}}
    assert (await server.http.post("/v1/ingest/files", json=history, headers=header)).json()["reason"] == "history"
    assert (await server.submit({**envelope, "payload": {"raw": None, "normalized_text": "see the file"}})).is_success
    assert (await server.http.post("/v1/ingest/files", json=envelope, headers=header)).json()["reason"] == "known"
    foreign = with_file("ab" * 32, endpoint="bot:other")
    assert (await server.http.post("/v1/ingest/files", json=foreign, headers=header)).status_code == 403
    service = BlobService(server.lab.database, server.access, Settings(data_dir=tmp_path, blobs=LIMITS))
    rooms = [await service.room(CONNECTOR)]
    await service.upload(CONNECTOR, body(b"x" * 1000), "")
    rooms += [await service.room(CONNECTOR), await service.room(OTHER)]
    await service.upload(OTHER, body(b"y" * 1000), "")
    rooms += [await service.room(OTHER), await service.room(Principal("operator", "o"))]
    assert rooms == [1000, 500, 1000, 500, 500]


async def test_quotas(server: Opened, tmp_path: Path) -> None:
    service = BlobService(server.lab.database, server.access, Settings(data_dir=tmp_path, blobs=LIMITS))
    with pytest.raises(TooLarge, match=r"blobs\.file_bytes"):
        await service.upload(CONNECTOR, body(b"x" * 1001), "")
    await service.upload(CONNECTOR, body(b"x" * 1000), "")
    with pytest.raises(BlobQuota, match="a day"):
        await service.upload(CONNECTOR, body(b"y" * 1000), "")
    await service.upload(OTHER, body(b"y" * 1000), "")
    with pytest.raises(BlobQuota, match="all files together"):
        await service.upload(Principal("operator", "o"), body(b"z" * 501), "")
    assert await server.lab.count("select count(*) from blob") == 2


async def test_an_account_cannot_use_up_the_room_of_the_others(server: Opened, tmp_path: Path) -> None:
    limits = BlobSettings(endpoint_bytes=1500, endpoint_bytes_per_day=0, total_bytes=3000)
    service = BlobService(server.lab.database, server.access, Settings(data_dir=tmp_path, blobs=limits))
    await service.upload(CONNECTOR, body(b"x" * 1000), "")
    with pytest.raises(BlobQuota, match="the files of this endpoint may take 1500 bytes"):
        await service.upload(CONNECTOR, body(b"y" * 1000), "")
    assert [await service.room(who) for who in (CONNECTOR, OTHER)] == [500, 1500]
    await service.upload(OTHER, body(b"y" * 1000), "")

    await server.lab.database.run("update blob_upload set uploaded_at = uploaded_at - interval '25 hours'")
    assert await service.room(CONNECTOR) == 1000, "what no message names is not kept of it"


async def everything(server: Opened, who: Principal, content: bytes, kind: str) -> list[object]:
    """What the holder of a token sees of an upload."""
    header = await server.token_for(replace(who, name=f"{who.name} {content[:9].hex()}"))
    up = await server.http.post("/v1/blobs", content=content, headers={**header, "content-type": kind})
    down = await server.http.get(f"/v1/blobs/{up.json()['blob']}", headers=header)
    told = {name: value for name, value in up.json().items() if name != "blob"}
    return [up.status_code, told, down.headers["content-type"]]


async def test_nobody_can_tell_whether_others_have_the_same_file(server: Opened, tmp_path: Path) -> None:
    limits = BlobSettings(total_bytes=3_000_000)
    service = BlobService(server.lab.database, server.access, Settings(data_dir=tmp_path, blobs=limits))
    known, fresh = b"a,b" * PIECE_BYTES, b"b,a" * PIECE_BYTES
    await upload(server, known, {**await server.token_for(CONNECTOR), "content-type": "text/csv"})

    async def written() -> int:
        sql = (
            "select count(*) from blob_piece where xmin::text = (select max(xmin::text::bigint) from blob_piece)::text"
        )
        return await server.lab.count(sql)

    seen, rooms = [], [await service.room(OTHER)]
    for content, n in ((known, 1), (fresh, 2)):
        prober = replace(OTHER, endpoint=f"bot:{n}")
        seen.append([*(await everything(server, prober, content, "text/markdown")), await written()])
        rooms.append(await service.room(prober))
    assert seen[0] == seen[1]
    assert rooms[0] - rooms[1] == rooms[1] - rooms[2] == len(known), "each copy counts"
    assert seen[0][2] == "text/markdown"

    await server.lab.database.run("update blob_upload set uploaded_at = uploaded_at - interval '25 hours'")
    for content, n in ((known, 1), (fresh, 2)):
        header = await server.token_for(replace(OTHER, name=f"later {n}", endpoint=f"bot:{n}"))
        name = sha256(content).hexdigest()
        assert (await server.http.get(f"/v1/blobs/{name}", headers=header)).status_code == 404
        answer = await server.http.post("/v1/ingest", json=with_file(name, f"bot:{n}"), headers=header)
        assert refusal(answer)[:2] == (422, "unknown_blob")
    await blobs.forget(server.lab.database, timedelta(days=1), 20)
    assert await server.lab.count("select count(*) from blob_upload where endpoint <> 'bot:house'") == 0


async def test_what_a_message_has_stays_of_its_endpoint(server: Opened) -> None:
    header = await server.token_for(CONNECTOR)
    name = await upload(server, b"a,b", {**header, "content-type": "text/csv"})
    assert (await server.submit(with_file(name))).is_success
    await server.lab.database.run("update blob_upload set uploaded_at = uploaded_at - interval '25 hours'")
    await server.lab.database.run("update blob set used_at = used_at - interval '25 hours'")
    assert await blobs.forget(server.lab.database, timedelta(days=1), 20) == 0
    back = await server.http.get(f"/v1/blobs/{name}", headers=header)
    assert (back.content, back.headers["content-type"]) == (b"a,b", "text/csv")


@pytest.fixture
async def paired(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """Strangers may not write to the bot of the house."""
    async with open_server(database_url, tmp_path / "data", policies={"telegram/bot:house": "pair"}) as opened:
        yield opened


async def wait_for(server: Opened, waiting: int) -> None:
    """Until so many statements wait for locks of others."""

    async def so_many() -> bool:
        return await server.lab.count(WAITING) == waiting

    await eventually(so_many)


async def deny(server: Opened) -> None:
    [contact] = (await server.http.get("/v1/pairing", params={"state": "stranger"})).json()["contacts"]
    assert (await server.http.post(f"/v1/pairing/{contact['contact_id']}/deny")).json()["messages"] == 1


async def test_a_strangers_forgotten_files_take_no_room_though_others_have_them(paired: Opened, tmp_path: Path) -> None:
    house, other = [await paired.token_for(who) for who in (CONNECTOR, OTHER)]
    name = await upload(paired, b"x" * 1000, other)
    assert (await paired.submit(with_file(name, "bot:other"))).is_success
    assert await upload(paired, b"x" * 1000, house) == name
    assert (await paired.submit(with_file(name))).is_success
    await paired.lab.database.run("update blob_upload set uploaded_at = uploaded_at - interval '25 hours'")
    await paired.lab.database.run("update blob set used_at = used_at - interval '25 hours'")
    limits = BlobSettings(endpoint_bytes=1500, endpoint_bytes_per_day=0)
    service = BlobService(paired.lab.database, paired.access, Settings(data_dir=tmp_path, blobs=limits))
    assert await service.room(CONNECTOR) == 500
    await deny(paired)
    assert [await service.room(who) for who in (CONNECTOR, OTHER)] == [1500, 500]
    await blobs.forget(paired.lab.database, timedelta(days=1), 20)
    assert await paired.lab.count("select count(*) from blob_upload") == 1, "that of the other endpoint"
    assert (await paired.http.get(f"/v1/blobs/{name}", headers=house)).status_code == 404


@pytest.mark.parametrize("first", ["forget", "refer"])
async def test_denying_a_stranger_with_a_file_leaves_it_to_its_endpoint_if_named(paired: Opened, first: str) -> None:
    database = paired.lab.database
    name = await upload(paired, b"x", await paired.token_for(CONNECTOR))
    assert (await paired.submit(with_file(name))).is_success
    other = await paired.submit(envelope_json("from the other", endpoint="bot:house", sender="bob"))
    request_id = RequestId(UUID(other.json()["request_id"]))

    async def step(one: str) -> None:
        if one == "refer":
            await blobs.refer(database, [(bytes.fromhex(name), request_id)])
        else:
            await database.run("select forget_held(contact_id) from contact where identity = 'alice'")

    async with database.transaction() as held:
        await held.run("select from blob_upload for update")
        running = list[asyncio.Task[None]]()
        for one in (first, "forget" if first == "refer" else "refer"):
            running.append(asyncio.create_task(step(one)))
            await wait_for(paired, len(running))
    await asyncio.gather(*running)
    assert await paired.lab.count("select count(*) from blob_upload where named") == 1
    assert await paired.lab.count("select count(*) from message_blob") == 1


async def test_messages_that_name_the_same_files_at_once_keep_to_one_order(server: Opened) -> None:
    database, header = server.lab.database, await server.token_for(CONNECTOR)
    names = sorted([await upload(server, content, header) for content in (b"1", b"2", b"3", b"4")])
    ids = [(await server.submit(envelope_json())).json()["request_id"] for _ in range(2)]
    # Stored in the opposite order, and read by different plans.
    await database.run("update blob_upload set uploaded_at = uploaded_at where blob = $1", bytes.fromhex(names[0]))
    plans = (("enable_hashjoin", "enable_mergejoin"), ("enable_nestloop", "enable_mergejoin", "enable_sort"))

    async def refer(number: int) -> None:
        async with database.transaction() as one:
            for setting in plans[number]:
                await one.run(f"set local {setting} = off")
            await blobs.refer(one, [(bytes.fromhex(name), RequestId(UUID(ids[number]))) for name in names])

    async with database.transaction() as held:
        await held.run("select from blob_upload where blob = $1 for update", bytes.fromhex(names[0]))
        running = list[asyncio.Task[None]]()
        for number in range(2):
            running.append(asyncio.create_task(refer(number)))
            await wait_for(server, number + 1)
    await asyncio.gather(*running)
    assert await server.lab.count("select count(*) from message_blob") == 8
