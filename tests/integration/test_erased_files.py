"""Files of an erased person go from the disks of all workers: also of those that were down, and nobody else's do."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
import structlog

from switchboard.app.ops.erased_files import carry_out_orders
from switchboard.core.envelope.read import read_envelope
from switchboard.core.people.readers import directory_of_person, person_named
from switchboard.journey.accept import Submission
from switchboard.store.checks.work import check_erased_files
from switchboard.testing.echo import Echo
from tests.commands import Cli
from tests.hands import at_work, settled
from tests.lab import butler, envelope_json, rule, team_of
from tests.servers import Opened, open_server
from tests.waiting import eventually

TREE: Final = (
    (team_of(butler("own"), butler("[team]"), butler("mine", workspace="/srv/anns"), butler("echo"), "System4/root"),),
    (
        rule("System1/own", "System1/[team]", "System1/mine", channel="telegram", endpoint="bot:own"),
        rule("System1/echo", channel="telegram"),
    ),
)


def digest_of(word: str) -> str:
    return sha256(word.encode()).hexdigest()


ANNS, BOBS, BOTH = (digest_of(word) for word in ("anns", "bobs", "both"))


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """Ann has worked with `own` alone, and both with `echo`, alone and in a group, with files; all has ended."""
    async with open_server(database_url, tmp_path / "data", tree=TREE) as opened:
        await opened.http.post("/v1/people", json={"person_id": "ann", "name": "Ann"})
        await opened.http.post("/v1/people/ann/link", json={"channel": "telegram", "identity": "5488"})
        async with at_work(opened.lab.worker({"echo": Echo()})):
            await say(opened, "5488", endpoint="bot:own", chat_type="private", thread="5488")
            for sender, word in (("5488", "anns"), ("77", "bobs")):
                await say(opened, sender, word, "both", chat_type="private", thread=sender)
                await say(opened, sender, word, "both", chat_type="group", thread="-5")
            await eventually(lambda: settled(opened.lab))
        await opened.lab.database.run("update outbox set state = 'sent'")
        yield opened


async def say(server: Opened, sender: str, *words: str, **more: Any) -> None:
    for word in words:
        assert (await server.http.post("/v1/blobs", content=word)).json()["blob"] == digest_of(word)
    files = [
        {"media_type": "application/pdf", "size_bytes": 4, "storage_ref": f"blob:{digest_of(one)}"} for one in words
    ]
    payload = {"normalized_text": "hello", "attachments": files}
    raw = json.dumps(envelope_json(sender=sender, payload=payload, **more)).encode()
    await server.lab.accept.accept(Submission(read_envelope(raw), raw))


def private(sender: str) -> str:
    return directory_of_person(person_named("telegram", "bot:house", sender))


async def group_of(server: Opened) -> str:
    [row] = await server.lab.database.rows(
        "select distinct c.name from message_inbox m join conversation c using (conversation) where m.thread = '-5'"
    )
    return sha256(f"group:{row['name']}".encode()).hexdigest()[:32]


def fill(disk: Path, group: str) -> tuple[set[str], set[str]]:
    """Files of a worker; those that are to go, and those that stay."""
    going = {
        "own/notes.txt",
        "own/.hidden",
        "own/a/b/deep.txt",
        "%5Bteam%5D/x.txt",
        f".results/echo/{private('5488')}/inbox/{ANNS[:16]}-letter.pdf",
        f".results/own/{private('5488')}/inbox/{'0' * 16}-older.pdf",
        f".results/echo/{group}/inbox/{ANNS[:16]}-letter.pdf",
    }
    staying = {
        "echo/notes.txt",
        "mine/notes.txt",
        "other/notes.txt",
        f".results/echo/{private('77')}/inbox/{BOTH[:16]}-x.pdf",
        f".results/echo/{group}/inbox/{BOBS[:16]}-letter.pdf",
        f".results/echo/{group}/inbox/{BOTH[:16]}-x.pdf",
    }
    for name in going | staying:
        (disk / name).parent.mkdir(parents=True, exist_ok=True)
        (disk / name).write_text("words")
    return going, staying


def files_on(disk: Path) -> set[str]:
    found = (one.relative_to(disk) for one in disk.rglob("*") if one.is_file())
    return {f"{one}" for one in found if one.name != ".disk"}


async def work_on(server: Opened, disk: Path) -> int:
    """What a worker with this disk does from time to time."""
    return await carry_out_orders(server.lab.database, disk, 30)


async def erase(server: Opened, *, dry_run: bool = False) -> dict[str, Any]:
    answer = await server.http.post("/v1/people/ann/erase", json={"dry_run": dry_run})
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["erasure"])


async def test_files_of_a_person_go_from_each_disk_when_its_worker_is_there(server: Opened, tmp_path: Path) -> None:
    group, one, other = await group_of(server), tmp_path / "one", tmp_path / "other"
    going, staying = fill(one, group)
    fill(other, group)
    assert [await work_on(server, disk) for disk in (one, other)] == [0, 0]
    told = await erase(server, dry_run=True)
    assert (told["workspaces"], told["pending"]) == (["[team]", "own"], [])
    erased = await erase(server)
    assert (erased["open"], len(erased["pending"])) == (0, 2)
    assert [text.rpartition(" ")[2] for text in erased["out_of_reach"][-2:]] == ["echo", "/srv/anns"]
    assert await work_on(server, one) > 0
    assert files_on(one) == staying
    assert len((await erase(server))["pending"]) == 2  # ordered again, of both
    await work_on(server, one)
    # The worker of the other disk was down, and comes back.
    (other / "own/a/b/new.txt").write_text("said later")
    assert await work_on(server, other) > 0
    assert files_on(other) == staying | {"own/a/b/new.txt"}
    assert await work_on(server, other) == 0
    assert going & files_on(other) == set()


async def test_a_command_tells_what_is_not_done_yet(
    server: Opened, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".disk").write_text("")  # left by a power cut
    assert await work_on(server, tmp_path) == 0
    cli = Cli(capsys, monkeypatch, server.environment)
    would = await asyncio.to_thread(cli.says, "people", "erase", "ann", "--dry-run")
    said = await asyncio.to_thread(cli.says, "people", "erase", "ann", "--yes")
    butlers = "the workspaces of butlers who worked for nobody else: [team], own"
    assert (f"would empty {butlers}" in would, "not done yet" in would) == (True, False)
    assert (f"empties {butlers}" in said, "not done yet" in said) == (True, True)
    assert f"- {socket.gethostname()}, last seen" in said


async def test_results_of_tools_go_with_the_history_that_has_their_turns(server: Opened, tmp_path: Path) -> None:
    kept = {}
    for sender in ("5488", "77"):
        [row] = await server.lab.database.rows(
            "select d.lane, d.request_id from delivery d join message_inbox m using (request_id)"
            " where m.thread = $1 and m.endpoint = 'bot:house'",
            sender,
        )
        person = person_named("telegram", "bot:house", sender)
        saving = "select save_entry($1, $2, 'user', $3, true, 'words')"
        await server.lab.database.run(saving, row["lane"], row["request_id"], person)
        kept[sender] = f".results/echo/{private(sender)}/tool-results/{row['request_id']}/page.txt"
        (tmp_path / kept[sender]).parent.mkdir(parents=True)
        (tmp_path / kept[sender]).write_text("words")
    await work_on(server, tmp_path)
    await erase(server)
    await work_on(server, tmp_path)
    assert [(tmp_path / kept[sender]).exists() for sender in ("5488", "77")] == [False, True]


async def test_a_turn_that_is_open_keeps_its_files(server: Opened, tmp_path: Path) -> None:
    disk, digest = tmp_path / "disk", digest_of("open")
    await say(server, "5488", "open", endpoint="bot:own", chat_type="private", thread="5488")
    readers = directory_of_person(person_named("telegram", "bot:own", "5488"))
    needed = {"own/notes.txt", f".results/own/{readers}/inbox/{digest[:16]}-plan.pdf"}
    for name in needed:
        (disk / name).parent.mkdir(parents=True)
        (disk / name).write_text("words")
    erased = await erase(server)
    assert (erased["open"], erased["workspaces"]) == (1, [])
    await work_on(server, disk)
    assert files_on(disk) == needed
    async with at_work(server.lab.worker({"echo": Echo()})):
        await eventually(lambda: settled(server.lab))
    await server.lab.database.run("update outbox set state = 'sent'")
    assert (await erase(server))["workspaces"] == ["[team]", "own"]
    await work_on(server, disk)
    assert files_on(disk) == set()


async def test_what_cannot_be_removed_is_told_until_it_is_done(server: Opened, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    (disk / "own").mkdir(parents=True)
    (disk / ".disk").write_text(f"{uuid4()}\n")
    loop = disk / "own" / "x"
    for _ in range(40):
        loop.mkdir()
        loop /= "x"
    later = disk / f".results/echo/{private('5488')}/inbox/{ANNS[:16]}-letter.pdf"
    later.parent.mkdir(parents=True)
    later.write_text("of another order")
    await erase(server)
    loop.parent.joinpath("new.txt").write_text("said later, deep among older ones")
    with structlog.testing.capture_logs() as logged:
        await work_on(server, disk)
        await work_on(server, disk)
    assert (len(logged), later.exists()) == (1, False)
    [pending] = (await erase(server, dry_run=True))["pending"]
    assert "too deep" in pending["problem"]
    await server.lab.database.run("update erased_files set ordered_at = ordered_at - interval '2 hours'")
    await server.lab.database.run("update workspace_disk set erased_until = erased_until - interval '2 hours'")
    [told] = await check_erased_files(server.lab.database)
    assert ("still on a disk" in told.detail, told.remedy) == (True, pending["problem"])
    loop.parent.joinpath("new.txt").unlink()
    await work_on(server, disk)
    assert (await erase(server, dry_run=True))["pending"] == []
