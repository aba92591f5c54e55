"""Files of messages on their way to butlers: as copies in a directory, as links, and in `inbox/` of a model."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from msgspec import structs

from switchboard.agents.command import CommandEngine
from switchboard.agents.files import link_files, upload_url
from switchboard.agents.http import HttpEngine
from switchboard.agents.mcp import Carried, route_request
from switchboard.core.uuid7 import first_uuid7
from switchboard.domain.envelope import Attachment
from switchboard.ports.engine import Answer, Turn
from switchboard.store.memory.history import awaited_files
from switchboard.store.messages.files import StoredFiles
from switchboard.testing.engines import MemoryJournal, a_turn
from switchboard.testing.scripted_llm import Reply, ScriptedLlm
from tests.engines import a_hook
from tests.lab import envelope_json
from tests.servers import CONNECTOR, Opened
from tests.turning import a_model_engine

PNG: Final = b"\x89PNG\r\n\x1a\n a cat"
Validator: Any = import_module("jsonschema").Draft202012Validator
NOBODY: Final = {"authorization": ""}
SHOWS: Final = """
import json, sys
from pathlib import Path
files = json.load(sys.stdin).get("files", [])
print(json.dumps([[one["attachment"], one["path"], Path(one["path"]).read_text()] for one in files]))
"""


@pytest.fixture
def files(server: Opened) -> StoredFiles:
    return StoredFiles(server.lab.database, server.url)


async def stored(server: Opened, content: bytes, name: str, media_type: str = "text/plain") -> Attachment:
    header = {**await server.token_for(structs.replace(CONNECTOR, name=name)), "content-type": media_type}
    answer = await server.http.post("/v1/blobs", content=content, headers=header)
    ref = f"blob:{answer.json()['blob']}"
    return Attachment(media_type=media_type, filename=name, size_bytes=len(content), storage_ref=ref)


def turn_with(*attachments: Attachment, **options: Any) -> Turn:
    turn = a_turn(options)
    payload = structs.replace(turn.envelope.payload, attachments=attachments)
    return replace(turn, envelope=structs.replace(turn.envelope, payload=payload))


async def test_a_program_finds_files_in_a_directory_of_the_turn(server: Opened, files: StoredFiles) -> None:
    metadata = Attachment(media_type="image/png", size_bytes=9)
    turn = turn_with(metadata, await stored(server, b"a,b", "../../etc/pass wd"), command=[sys.executable, "-c", SHOWS])
    answer = await CommandEngine(files=files).run(turn, MemoryJournal())
    assert isinstance(answer, Answer)
    [[n, path, text]] = json.loads(answer.text)
    assert (n, Path(path).name, text) == (1, "1-pass_wd", "a,b")
    assert not Path(path).parent.exists(), "it is removed with the turn"


async def test_a_service_gets_links_that_need_no_token(
    server: Opened, files: StoredFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", "x" * 32)
    async with a_hook() as hook:
        hook.says(body='{"reply": "ok"}')
        turn = turn_with(
            await stored(server, b"a,b", "a.csv"), url=hook.url, secret_env="HOOK_SECRET", allow_private=True
        )
        await HttpEngine(files).run(turn, MemoryJournal())
    [one] = json.loads(hook.bodies[0])["files"]
    known = {"attachment": 0, "filename": "a.csv", "media_type": "text/plain", "size_bytes": 3}
    assert {name: one[name] for name in known} == known
    path = urlsplit(one["url"]).path
    given = await server.http.get(path, headers=NOBODY)
    assert (given.content, given.headers["content-disposition"]) == (b"a,b", "attachment")


@pytest.mark.parametrize("change", ["0", "", "x.y.z", "é", "..", "a" * 5000])
async def test_a_link_that_was_not_made_here_opens_nothing(server: Opened, change: str) -> None:
    answer = await server.http.get(f"/v1/files/{change}", headers=NOBODY)
    assert answer.status_code in (401, 404), answer.text


async def test_a_link_is_over_after_an_hour_and_its_time_cannot_be_changed(
    server: Opened, files: StoredFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = urlsplit(await files.link(await stored(server, b"a,b", "a.csv")) or "").path
    blob, until, signature = link.rpartition("/")[2].split(".")
    longer = f"/v1/files/{blob}.{int(until) + 1}.{signature}"
    assert (await server.http.get(longer, headers=NOBODY)).status_code == 404
    monkeypatch.setattr("switchboard.store.messages.files.time.time", lambda: float(until) + 1)
    assert (await server.http.get(link, headers=NOBODY)).status_code == 404


async def test_a_remote_butler_gets_links(server: Opened, files: StoredFiles) -> None:
    turn = turn_with(await stored(server, b"a,b", "a.csv"))
    carried = Carried(await link_files(files, turn), await upload_url(files, turn))
    route = route_request(turn, turn.request_id, "t", carried).model_dump(mode="json", exclude_none=True)
    schema = (await server.http.get("/schemas/route.v1.json", headers=NOBODY)).json()
    Validator(schema).validate(route)
    link = urlsplit(route["input"]["files"][0]["url"]).path
    assert (await server.http.get(link, headers=NOBODY)).content == b"a,b"


async def test_a_model_sees_images_and_its_tools_read_other_files(
    server: Opened, files: StoredFiles, tmp_path: Path
) -> None:
    cat, bill = await stored(server, PNG, "cat.png", "image/png"), await stored(server, b"12 EUR", "bill.txt")
    false = structs.replace(cat, storage_ref=bill.storage_ref)
    async with (
        ScriptedLlm([Reply(text="Hm."), Reply(text="Hm.")]) as llm,
        a_model_engine(llm, workspaces=tmp_path / "w", files=files) as (engine, _),
    ):
        turn, journal, named = turn_with(cat, bill, false), MemoryJournal(), MemoryJournal()
        await engine.run(turn, journal)
        await engine.run(turn_with(bill), named)
    start = journal.record.ended["start"]
    kept = engine.kept_for(turn.member, start["readers"])
    assert kept is not None
    [image] = start["images"]
    assert (kept / image["name"]).read_bytes() == PNG
    [text] = (kept / "inbox").glob("*-bill.txt")
    assert text.read_bytes() == b"12 EUR"
    assert f"[attachment bill.txt, text/plain, 6 bytes; the file inbox/{text.name}]" in start["opening"]
    assert "not available any more" in start["opening"], "what is called an image and is none"
    assert named.record.ended["start"]["told"], "a name is a text that anybody may have written"


async def test_images_of_turns_that_have_not_ended_are_kept(server: Opened) -> None:
    cat = await stored(server, PNG, "cat.png", "image/png")
    envelope = envelope_json("look")
    envelope["payload"]["attachments"] = [structs.asdict(cat)]
    assert (await server.submit(envelope)).status_code == 202
    since = first_uuid7(datetime.now(UTC) - timedelta(days=1))
    assert await awaited_files(server.lab.database, since) == {f"inbox/{(cat.storage_ref or '')[5:21]}.png"}
