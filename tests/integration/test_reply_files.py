"""Files of answers: from butlers into replies, kept as long as these, and given to nobody else."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

import httpx2
import pytest
from msgspec import structs

from switchboard.agents.callback import callbacks_from
from switchboard.agents.command import CommandEngine
from switchboard.agents.http import HttpEngine
from switchboard.app.access import Principal
from switchboard.cli.main import main
from switchboard.cli.messages.screen import LiveScreen, show_whole
from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.intake import Handling
from switchboard.connectors.kernel.runner import Runner
from switchboard.connectors.telegram.manifest import MANIFEST as TELEGRAM
from switchboard.domain.envelope import Attachment
from switchboard.journey.turn import TurnLimits
from switchboard.ports.connector import Account, Identity
from switchboard.ports.engine import Answer, Journal, NoReply, Turn, TurnResult
from switchboard.store.messages import blobs, outbox
from switchboard.store.messages import files as stored_files
from switchboard.store.messages.files import StoredFiles
from switchboard.testing.bot_api import TOKEN, BotApi
from switchboard.testing.engines import MemoryJournal, a_turn
from switchboard.testing.scripted_llm import Call, Reply, ScriptedLlm
from switchboard.tools.registry import build_tools
from switchboard.turns import process_message
from tests.engines import a_hook
from tests.hands import Scripted
from tests.integration.test_embedded_turns import a_host
from tests.integration.test_engine_http import callback as callback_of
from tests.lab import butler, envelope_json, team_of
from tests.servers import CONNECTOR, NO_TLS, Opened, open_server
from tests.turning import OWNER, a_model_engine

PDF: Final = b"%PDF-1.7 a report"
OTHER: Final = Principal("connector", "other", "telegram", "bot:other")
NOBODY: Final = {"authorization": ""}
DAY: Final = timedelta(days=1)
LEAVES: Final = """
import os, sys
from pathlib import Path
out = Path(os.environ["SWITCHBOARD_REPLY_FILES"])
(out / "b.pdf").write_bytes(b"%PDF-1.7 a report")
(out / "a \\x1b[31m\\u202e.txt").write_text("hello")
(out / ".hidden").write_text("no")
(out / "sub").mkdir()
(out / "large.bin").write_bytes(bytes(2000))
(out / "passwd").symlink_to("/etc/passwd")
os.link(sys.argv[1], out / "linked")
os.mkfifo(out / "fifo")
print("See the files.")
"""


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data", more={"turn": {"reply_file_bytes": 1000}}) as opened:
        yield opened


@pytest.fixture
def files(server: Opened) -> StoredFiles:
    return StoredFiles(server.lab.database, server.url, largest=1000)


async def pieces(*some: bytes) -> AsyncIterator[bytes]:
    for one in some:
        yield one


@asynccontextmanager
async def answering(server: Opened, *plays: Scripted, most: int = 10) -> AsyncIterator[None]:
    limits = TurnLimits(attempts=3, timeout=10, backoff_base=0.01, backoff_cap=0.01, reply_files=most)
    worker = server.lab.worker({"echo": plays[0]}, limits=limits)
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running


async def replied(server: Opened, *, attachments: Sequence[Mapping[str, Any]] = (), **more: Any) -> dict[str, Any]:
    """The reply to a message."""
    envelope = envelope_json("hello", **more)
    envelope["payload"]["attachments"] = list(attachments)
    request_id = (await server.submit(envelope)).json()["request_id"]
    got = (await server.http.get(f"/v1/messages/{request_id}/replies", params={"wait_s": 20})).json()
    [reply] = got["replies"]
    return dict(reply)


def sending(files: StoredFiles, *names: str) -> Scripted:
    """A butler that answers with files of these names, each with a content of its own."""

    async def play(turn: Turn, _: Journal) -> TurnResult:
        kept = [await files.keep(turn, name, pieces(PDF, name.encode())) for name in names]
        return Answer("Here.", tuple(kept))

    return Scripted(play)


# Engines ------------------------------------------------------------------------------------------------------------


async def test_what_a_program_leaves_goes_with_its_answer(files: StoredFiles, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    turn, journal = a_turn({"command": [sys.executable, "-c", LEAVES, str(tmp_path / "secret")]}), MemoryJournal()
    answer = await CommandEngine(files=files).run(turn, journal)
    assert isinstance(answer, Answer)
    assert answer.text == "See the files."
    sent = {one.filename: one.media_type for one in answer.attachments if one.storage_ref}
    assert sent == {"a [31m.txt": "text/plain", "b.pdf": "application/pdf"}
    refused = {one.filename: one.unavailable or "" for one in answer.attachments if not one.storage_ref}
    assert set(refused) == {"fifo", "large.bin", "linked", "passwd", "sub"}
    assert "symbolic link" in refused["passwd"]
    assert "hard link" in refused["linked"]
    assert "1 KB" in refused["large.bin"]
    again = MemoryJournal(journal.record)
    assert await CommandEngine(files=files).run(turn, again) == answer, "what is recorded has its files"


@pytest.mark.parametrize(
    ("script", "output", "expected"),
    [
        ("", "text", Answer("", ())),
        ('print("{\\"reply\\": \\"\\"}")', "json", Answer("", ())),
        ('print("{\\"no_reply\\": true}")', "json", NoReply()),
    ],
)
async def test_files_alone_are_an_answer(files: StoredFiles, script: str, output: str, expected: TurnResult) -> None:
    leaves = 'import os; open(os.environ["SWITCHBOARD_REPLY_FILES"] + "/a.txt", "w").write("x")\n'
    turn = a_turn({"command": [sys.executable, "-c", leaves + script], "output": output})
    answer = await CommandEngine(files=files).run(turn, MemoryJournal())
    if isinstance(answer, Answer):
        assert [one.filename for one in answer.attachments] == ["a.txt"]
        answer = structs.replace(answer, attachments=())
    assert answer == expected


async def test_a_service_uploads_by_the_link_of_its_delivery(
    server: Opened, files: StoredFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", "x" * 32)
    async with a_hook() as hook:
        turn = a_turn({"url": hook.url, "secret_env": "HOOK_SECRET", "allow_private": True})
        link = urlsplit(await files.upload_link(turn)).path
        up = await server.http.post(link, content=PDF, headers={**NOBODY, "content-type": "application/pdf"})
        assert (up.status_code, up.json()["media_type"]) == (201, "application/pdf")
        hook.says(body=json.dumps({"reply": "Here.", "files": [{"blob": up.json()["blob"], "filename": "r.pdf"}]}))
        answer = await HttpEngine(files).run(turn, MemoryJournal())
    assert isinstance(answer, Answer)
    [file] = answer.attachments
    assert (file.filename, file.storage_ref) == ("r.pdf", f"blob:{up.json()['blob']}")
    offered = urlsplit(json.loads(hook.bodies[0])["upload_url"]).path
    assert offered.startswith("/v1/files/")
    large = await server.http.post(offered, content=bytes(1001), headers=NOBODY)
    assert large.status_code == 413


async def test_a_link_to_upload_ends_with_its_turn(server: Opened, files: StoredFiles) -> None:
    links = list[str]()

    async def play(turn: Turn, _: Journal) -> TurnResult:
        links.append(urlsplit(await files.upload_link(turn)).path)
        assert (await server.http.post(links[0], content=b"in time", headers=NOBODY)).status_code == 201
        return Answer("Done.")

    async with answering(server, Scripted(play)):
        await replied(server)
    answer = await server.http.post(links[0], content=b"too late", headers=NOBODY)
    assert (answer.status_code, await server.lab.count("select count(*) from blob")) == (404, 1)


async def test_a_butlers_stored_files_are_limited_and_take_no_room_of_others(
    server: Opened, files: StoredFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_files, "MOST_MADE", 3)
    one = a_turn()
    other = replace(one, member=butler("other"))
    kept = [await files.keep(one, f"{n}", pieces(b"%d" % n)) for n in range(5)]
    assert [bool(file.unavailable) for file in kept] == [False, False, False, True, True]
    paths = [urlsplit(await files.upload_link(turn)).path for turn in (one, other)]
    statuses = [(await server.http.post(path, content=b"x", headers=NOBODY)).status_code for path in paths]
    assert statuses == [429, 201]


@pytest.mark.parametrize("change", ["signature", "turn", "file"])
async def test_an_upload_link_cannot_be_changed(server: Opened, files: StoredFiles, change: str) -> None:
    turn = a_turn()
    opens, until, signature = urlsplit(await files.upload_link(turn)).path.rpartition("/")[2].split(".")
    kept = await files.keep(turn, "a", pieces(b"x"))
    changed = {
        "signature": f"{opens}.{until}.{signature[::-1]}",
        "turn": f"{turn.request_id.hex[::-1]}{opens[32:]}.{until}.{signature}",
        "file": urlsplit(await files.link(kept) or "").path.rpartition("/")[2],
    }
    answer = await server.http.post(f"/v1/files/{changed[change]}", content=b"x", headers=NOBODY)
    assert answer.status_code == 404, "a link to read is none to write"
    answer = await server.http.get(f"/v1/files/{opens}.{until}.{signature}", headers=NOBODY)
    assert answer.status_code == 404, "nor is one to write one to read"


async def test_a_model_attaches_files_of_its_workspace(files: StoredFiles, tmp_path: Path) -> None:
    calls = [
        Call("write_file", {"path": "a.txt", "content": "old"}),
        Call("attach_file", {"path": "a.txt", "name": "../list.txt"}),
        Call("write_file", {"path": "a.txt", "content": "new"}),
        Call("attach_file", {"path": "a.txt", "name": "list.txt"}),
        Call("attach_file", {"path": "../etc/passwd"}),
    ]
    async with (
        ScriptedLlm([Reply(calls=tuple(calls)), Reply(text="Done.")]) as llm,
        a_model_engine(llm, build_tools(), workspaces=tmp_path / "w", files=files) as (engine, _),
    ):
        turn, journal = a_turn({"owners": OWNER}), MemoryJournal()
        answer = await engine.run(turn, journal)
        assert isinstance(answer, Answer)
        [file] = answer.attachments
        assert file.filename == "list.txt"
        assert b"".join([one async for one in files.read(file)]) == b"new"
        assert await engine.run(turn, MemoryJournal(journal.record)) == answer


# Replies ------------------------------------------------------------------------------------------------------------


async def test_a_reply_names_its_files_and_gives_them_to_its_endpoint_alone(server: Opened, files: StoredFiles) -> None:
    async with answering(server, sending(files, "re\r\nport \u202e.pdf", "b.pdf")):
        reply = await replied(server)
    [first, second] = reply["files"]
    assert (reply["text"], first["filename"], second["filename"]) == ("Here.", "re port .pdf", "b.pdf")
    assert (second["media_type"], second["size_bytes"]) == ("application/pdf", len(PDF) + 5)
    bot, other = await server.token_for(CONNECTOR), await server.token_for(OTHER)
    path = f"/v1/outbox/{reply['outbox_id']}/files"
    given = await server.http.get(f"{path}/1", headers=bot)
    assert given.content == PDF + b"b.pdf"
    assert given.headers["content-disposition"] == "attachment; filename*=UTF-8''b.pdf"
    assert given.headers["content-type"] == "application/pdf"
    assert (await server.http.get(f"{path}/1", headers=other)).status_code == 404
    assert (await server.http.get(f"{path}/2", headers=bot)).status_code == 404
    assert (await server.http.get(f"/v1/blobs/{second['sha256']}", headers=bot)).status_code == 404
    body = {"channel": "telegram", "endpoint": "bot:house"}
    [leased] = (await server.http.post("/v1/outbox/next", json=body, headers=bot)).json()["replies"]
    shown = (await server.http.get(f"/v1/outbox/{reply['outbox_id']}")).json()
    listed = (await server.http.get("/v1/outbox")).json()["replies"]
    assert leased["files"] == shown["files"] == listed[0]["files"] == reply["files"]


async def test_a_hash_alone_sends_nothing(server: Opened, files: StoredFiles) -> None:
    """A butler may send what it made for this message, and what came with it; not what it has learned to exist."""
    before: list[Attachment] = []

    async def play(turn: Turn, _: Journal) -> TurnResult:
        if not before:
            before.append(await files.keep(turn, "private.pdf", pieces(PDF)))
            return Answer("Yours.", tuple(before))
        return Answer("Look:", (*before, *turn.envelope.payload.attachments))

    token = await server.token_for(CONNECTOR)
    blob = (await server.http.post("/v1/blobs", content=b"a,b", headers=token)).json()["blob"]
    sent = {"media_type": "text/csv", "filename": "a.csv", "size_bytes": 3, "storage_ref": f"blob:{blob}"}
    async with answering(server, Scripted(play)):
        assert [one["filename"] for one in (await replied(server, sender="ann"))["files"]] == ["private.pdf"]
        reply = await replied(server, sender="eve", attachments=[sent])
    assert [one["filename"] for one in reply["files"]] == ["a.csv"]
    assert reply["text"].startswith("Look:\n[private.pdf, 17 bytes: it is neither of this turn nor of its message")


async def test_what_cannot_be_sent_is_told_in_words(server: Opened, files: StoredFiles) -> None:
    async def play(turn: Turn, _: Journal) -> TurnResult:
        large = await files.keep(turn, "big.zip", pieces(bytes(900), bytes(101)))
        kept = [await files.keep(turn, f"{n}.txt", pieces(b"%d" % n)) for n in range(3)]
        kept.append(await files.keep(turn, "0.txt", pieces(b"0")))
        return Answer("", (large, *kept, Attachment(media_type="x/y", size_bytes=0, filename="only a name")))

    async with answering(server, Scripted(play), most=2):
        reply = await replied(server)
    assert [one["filename"] for one in reply["files"]] == ["0.txt", "1.txt"]
    assert reply["text"].splitlines() == [
        "[big.zip: too large: a file of a reply may have 1 KB]",
        "[2.txt, 1 bytes: not sent: a reply has at most 2 files]",
        "[only a name: it is neither of this turn nor of its message, so it is not sent]",
    ]


async def test_an_attempt_that_is_lost_leaves_no_file_and_doubles_none(server: Opened, files: StoredFiles) -> None:
    """What the reply has stays as long as it; what a lost attempt has made is removed after a day, and not before."""

    async def play(turn: Turn, _: Journal) -> TurnResult:
        made = await files.keep(turn, "draft.txt", pieces(b"draft %d" % turn.attempt))
        if turn.attempt == 1:
            await server.lab.database.run("update blob set used_at = used_at - interval '2 days'")
            assert await blobs.forget(server.lab.database, DAY, 20) == 0, "the turn has not ended"
            raise RuntimeError("killed")
        return Answer("Here.", (made,))

    async with answering(server, Scripted(play)):
        reply = await replied(server)
    [file] = reply["files"]
    content = (await server.http.get(f"/v1/outbox/{reply['outbox_id']}/files/0")).content
    assert content == b"draft 2"
    await server.lab.database.run("update blob set used_at = used_at - interval '2 days'")
    assert await blobs.forget(server.lab.database, DAY, 20) == 1
    rows = await server.lab.database.rows("select blob from blob")
    assert [row["blob"].hex() for row in rows] == [file["sha256"]]
    assert await server.lab.count("select count(*) from blob_made") == 1


async def test_a_callback_gets_links(server: Opened, files: StoredFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", "x" * 32)
    async with answering(server, sending(files, "r.pdf")):
        reply = await replied(server, channel="api")
    row = await outbox.get_reply(server.lab.database, UUID(reply["outbox_id"]))
    assert row is not None
    async with a_hook() as hook:
        hook.says()
        callback = callbacks_from([callback_of(hook.url)], files)["shop"]
        assert (await callback.send(row)).outcome == "sent"
    [one] = json.loads(hook.bodies[0])["files"]
    assert one["filename"] == "r.pdf"
    assert (await server.http.get(urlsplit(one["url"]).path, headers=NOBODY)).content == PDF + b"r.pdf"


# To people ----------------------------------------------------------------------------------------------------------


def contents(directory: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in directory.iterdir() if one.is_file()}


async def test_the_command_line_shows_and_saves_files(
    server: Opened,
    files: StoredFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SWITCHBOARD_URL", server.url)
    monkeypatch.setenv("SWITCHBOARD_TOKEN", server.token)
    monkeypatch.setenv("NO_COLOR", "1")

    async def command(*arguments: object) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            await asyncio.to_thread(main, [str(one) for one in arguments])
        assert ended.value.code == 0
        return capsys.readouterr().out

    async with answering(server, sending(files, "a.pdf", "\x1b[31m../../b.pdf")):
        reply = await replied(server)
    outbox_id = reply["outbox_id"]
    detail = (await server.http.get(f"/v1/outbox/{outbox_id}")).json()
    told = "a.pdf, application/pdf, 22 bytes"
    assert told in await command("outbox", "show", outbox_id)
    assert told in await command("explain", detail["request_id"])
    (tmp_path / "a.pdf").write_text("mine")
    assert "1-a.pdf" in await command("outbox", "save", outbox_id, "--to", tmp_path)
    assert contents(tmp_path) == {"a.pdf": b"mine", "1-a.pdf": PDF + b"a.pdf", "b.pdf": PDF + b"\x1b[31m../../b.pdf"}


def test_chat_names_files_and_how_to_get_them(capsys: pytest.CaptureFixture[str]) -> None:
    file = {"filename": "a\x1b[2J.pdf", "media_type": "application/pdf", "size_bytes": 48_213, "sha256": "00"}
    reply = {"system_id": "System1/tides", "text": "", "outbox_id": "01a2", "files": [file]}
    for take in (show_whole, LiveScreen().take):
        take("reply", reply)
        said = capsys.readouterr()
        assert "  a[2J.pdf, application/pdf, 48 KB" in said.out
        assert "switchboard outbox save 01a2" in said.err


# To platforms -------------------------------------------------------------------------------------------------------


async def test_a_connector_gets_them_from_the_server(server: Opened, files: StoredFiles) -> None:
    """From the butler to the phone of a person: a text and two documents, each a part of its own."""
    header = dict(await server.token_for(Principal("connector", "house", "telegram", "bot:123456")))

    async with BotApi() as api, httpx2.AsyncClient(base_url=server.url, headers=header, verify=NO_TLS) as http:

        async def connect(_: Identity) -> httpx2.AsyncClient:
            return http

        quick = structs.replace(TELEGRAM.capabilities, per_account_s=0.0, per_conversation_s=0.0)
        settings = TELEGRAM.settings.model_validate({"api_url": api.url})
        account = Account("house", settings, {"token": TOKEN})
        configured = Configured(structs.replace(TELEGRAM, capabilities=quick), account, Handling(start="all"))
        api.people.say("send me")
        stop = asyncio.Event()
        running = asyncio.create_task(Runner(configured, connect, asyncio.get_running_loop().time).run(stop))
        async with answering(server, sending(files, "a.pdf", "b.pdf")):
            await api.until(lambda: len(api.sent) == 3)
        stop.set()
        await running
    assert api.texts == ["Here.", "", ""]
    names = [one["document"]["file_name"] for one in api.sent[1:]]
    contents = [api.world.files[one["document"]["file_id"]] for one in api.sent[1:]]
    assert dict(zip(names, contents, strict=True)) == {"a.pdf": PDF + b"a.pdf", "b.pdf": PDF + b"b.pdf"}


async def test_an_embedded_turn_returns_its_files(database_url: str, tmp_path: Path) -> None:
    calls = (Call("write_file", {"path": "a.txt", "content": "x"}), Call("attach_file", {"path": "a.txt"}))
    team = team_of(butler("clerk", "model", grants={"others": ["write_file", "attach_file"]}))
    async with (
        ScriptedLlm([Reply(calls=calls), Reply(text="Here.")]) as llm,
        a_host(database_url, llm, team, workspaces=tmp_path / "w") as (_, context),
    ):
        answer = await process_message(context, "s", "discord", "hello")
        [file] = answer.files
        assert (answer.content, file.filename) == ("Here.", "a.txt")
        assert b"".join([piece async for piece in context.read(file)]) == b"x"
