"""`transport/mail_reading.py`: mails are read in processes of their own, and whatever a mail costs, it is kept."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest

from switchboard.core.mail.marks import UNREAD_MARK
from switchboard.core.mail.parse import envelope_from_mail
from switchboard.domain.errors import InvalidInput, Unavailable
from switchboard.transport import mail_reading
from switchboard.transport.mail_frames import ASKED, MailRequest
from switchboard.transport.mail_reading import MailLimits, MailReader, mail_name
from tests.servers import open_server
from tests.strategies import NOW

HEAD = b"From: Ann <ann@example.org>\nMessage-ID: <1@x>\nSubject: =?utf-8?q?caf=C3=A9?=\n"
LARGE = HEAD + b"Content-Type: text/html\n\n" + b"<table><td>" * 80_000
MEGABYTE = 1024 * 1024
NO_TIME, NO_MEMORY = MailLimits(seconds=0.0), MailLimits(memory_bytes=72 * MEGABYTE)


@asynccontextmanager
async def reader(limits: MailLimits | None = None) -> AsyncIterator[MailReader]:
    mails = MailReader(limits)
    try:
        yield mails
    finally:
        await mails.close()


async def text_of(mails: MailReader, raw: bytes) -> str:
    mail = await mails.read(raw, endpoint="me@example.org", provider="imap", now=NOW)
    assert mail.raw is raw
    return mail.envelope.payload.normalized_text


async def test_a_mail_is_read_as_if_it_were_read_here() -> None:
    raw = HEAD + b"\nhow are you?"
    async with reader() as mails:
        for _ in range(3):
            read = await mails.read(raw, endpoint=" me ", provider="imap", now=NOW)
            assert read == envelope_from_mail(raw, endpoint=" me ", provider="imap", now=NOW)


LOADED: Final = """
import sys
from switchboard.transport.mail_process import main

main(512 * 1024 * 1024, 10)
print(*sys.modules, file=sys.stderr)
"""
FOR_FEW: Final = {"pydantic", "pydantic_core", "turbohtml"}
FOR_NONE: Final = {"asyncio", "structlog", "httpx2", "asyncpg", "typer", "fastapi", "mcp"}


@pytest.mark.parametrize(
    ("body", "endpoint", "expected"),
    [
        (b"\nhow are you?", "me@example.org", set()),
        (b"Content-Type: text/html\n\n<p>hi", "me@example.org", {"turbohtml"}),
        (b"Content-Type: text/plain; charset=iso-8859-1\n\nhi", "me@example.org", set()),
        (b"Content-Type: text/plain; charset=koi8-r\n\nhi", "me@example.org", {"turbohtml"}),
        (b"\nhow are you?", " me ", {"pydantic", "pydantic_core"}),
    ],
    ids=["plain", "html", "latin", "other charset", "unusual"],
)
async def test_a_process_imports_only_what_its_mails_need(body: bytes, endpoint: str, expected: set[str]) -> None:
    about, raw = msgspec.json.encode(MailRequest(endpoint, "imap", NOW)), HEAD + body
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LOADED), stdin=pipe, stdout=pipe, stderr=pipe
    )
    answers, told = await process.communicate(ASKED.pack(len(about), len(raw)) + about + raw)
    loaded = {name.partition(".")[0] for name in told.decode().split()}
    assert process.returncode == 0
    assert b"ingest.v1" in answers
    assert loaded & (FOR_FEW | FOR_NONE) == expected


async def test_the_bytes_of_an_attachment_are_read_there_too() -> None:
    raw = HEAD + b"Content-Type: application/pdf\nContent-Transfer-Encoding: base64\n\nAP8=\n"
    async with reader() as mails:
        found = [await mails.file(raw, n) for n in (0, 1)]
        assert (found, await text_of(mails, HEAD + b"\nhi")) == ([b"\x00\xff", None], "café\n\nhi")
    async with reader(NO_TIME) as mails:
        assert await mails.file(raw, 0) is None


async def test_a_mail_is_taken_apart_once_for_all_its_files() -> None:
    bounds = b"Content-Type: multipart/mixed; boundary=b\n"
    parts = (b"--b\nContent-Type: application/pdf\n\n" + some + b"\n" for some in (b"one", b"two", b"three"))
    raw = HEAD + bounds + b"\n" + b"".join(parts) + b"--b--\n"
    other = raw.replace(b"two", b"2nd")
    async with reader(MailLimits(processes=1)) as mails:
        assert await mails.file(raw, 0, mail_name(raw)) == b"one"
        assert await mails.file(b"", 1, mail_name(raw)) == b"two", "its bytes are there"
        assert await mails.file(other, 1, mail_name(other)) == b"2nd"
        assert await mails.file(raw, 1, mail_name(raw)) == b"two"
        assert await text_of(mails, HEAD + b"\nhi") == "café\n\nhi"
        assert await mails.file(raw, 2, mail_name(raw)) == b"three", "and were forgotten with the next mail"
        assert await mails.file(raw, 3, mail_name(raw)) is None
        assert [await mails.file(some, 1) for some in (raw, other)] == [b"two", b"2nd"]


async def test_many_may_ask_for_files_of_many_mails_at_once() -> None:
    mails_ = [HEAD + b"Content-Type: application/pdf\n\n" + str(n).encode() for n in range(5)]
    async with reader() as mails:
        asked = [mails.file(raw, 0, mail_name(raw)) for raw in mails_ * 4]
        assert await asyncio.gather(*asked) == [str(n).encode() for n in range(5)] * 4


async def test_what_is_no_mail_is_refused_with_the_same_reason() -> None:
    async with reader() as mails:
        for endpoint, raw in (("me", b"hello, this is no mail"), ("", HEAD + b"\nhi"), ("x" * 600, HEAD + b"\nhi")):
            with pytest.raises(InvalidInput) as here:
                envelope_from_mail(raw, endpoint=endpoint, now=NOW)
            with pytest.raises(InvalidInput) as there:
                await mails.read(raw, endpoint=endpoint, provider="file", now=NOW)
            assert (there.value.message, there.value.code, there.value.field) == (
                here.value.message,
                here.value.code,
                here.value.field,
            )


async def test_everyone_else_goes_on_while_a_mail_is_read() -> None:
    async with reader() as mails:
        reading = asyncio.create_task(text_of(mails, LARGE))
        turns = 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 1000
        assert await reading == "café"


@pytest.mark.parametrize("limits", [NO_TIME, NO_MEMORY], ids=["time", "memory"])
async def test_a_mail_beyond_the_limits_is_read_without_its_body(limits: MailLimits) -> None:
    async with reader(limits) as mails:
        for _ in range(2):
            assert await text_of(mails, LARGE) == f"café\n\n{UNREAD_MARK}"


async def test_the_next_mail_is_read_as_ever() -> None:
    async with reader(NO_MEMORY) as mails:
        assert UNREAD_MARK in await text_of(mails, LARGE)
        assert await text_of(mails, HEAD + b"\nhi") == "café\n\nhi"


async def test_processor_time_is_limited_mail_by_mail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process is started that needs no time for most mails, and all there is for one."""
    program = tmp_path / "slow_mail_process.py"
    program.write_text(
        "from switchboard.transport import mail_process\n"
        "answer = mail_process._read_mail\n"
        "def slow(raw, asked):\n"
        "    while b'slow' in raw: pass\n"
        "    return answer(raw, asked)\n"
        "mail_process._read_mail = slow\n"
        "main = mail_process.main\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(mail_reading, "_PROGRAM", "slow_mail_process")
    async with reader(MailLimits(cpu_s=1, seconds=120)) as mails:
        assert await text_of(mails, HEAD + b"\nhi") == "café\n\nhi"
        assert UNREAD_MARK in await text_of(mails, HEAD + b"\nslow")
        assert await text_of(mails, HEAD + b"\nhi") == "café\n\nhi"


async def test_stricter_limits_than_ours_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "confined_mail_process.py").write_text(
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({NO_MEMORY.memory_bytes},) * 2)\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (5, 5))\n"
        "from switchboard.transport.mail_process import main\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(mail_reading, "_PROGRAM", "confined_mail_process")
    async with reader() as mails:
        assert await text_of(mails, HEAD + b"\nhi") == "café\n\nhi"
        assert UNREAD_MARK in await text_of(mails, LARGE)


async def test_a_mail_nobody_waits_for_any_more_is_given_up() -> None:
    async with reader(MailLimits(processes=1)) as mails:
        reading = asyncio.create_task(text_of(mails, LARGE))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert await text_of(mails, HEAD + b"\nhi") == "café\n\nhi"


async def test_without_processes_mails_are_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail_reading, "_PROGRAM", "switchboard.no_such_module")
    async with reader() as mails:
        with pytest.raises(Unavailable, match="no process can be started to read mails"):
            await text_of(mails, HEAD + b"\nhi")


async def test_what_a_process_lacks_is_no_fault_of_the_mail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mail_process_without_html.py").write_text(
        "import sys\nsys.modules['turbohtml'] = None\nfrom switchboard.transport.mail_process import main\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(mail_reading, "_PROGRAM", "mail_process_without_html")
    async with reader() as mails:
        assert await text_of(mails, HEAD + b"\nhi") == "café\n\nhi"
        with pytest.raises(Unavailable, match="no process can be started to read mails: import of turbohtml halted"):
            await text_of(mails, HEAD + b"Content-Type: text/html\n\n<p>hi")
        monkeypatch.undo()
        assert await text_of(mails, HEAD + b"Content-Type: text/html\n\n<p>hi") == "café\n\nhi"


async def test_modules_of_the_directory_that_we_are_in_are_not_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "turbohtml.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    async with reader() as mails:
        assert await text_of(mails, HEAD + b"Content-Type: text/html\n\n<p>hi") == "café\n\nhi"


async def test_what_cannot_be_read_is_stored_and_answered(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path, mail_limits=NO_TIME, message_bytes=2 * MEGABYTE) as server:
        headers = {"content-type": "message/rfc822"}
        answer = await server.http.post("/v1/ingest?endpoint=me@example.org", content=LARGE, headers=headers)
        assert answer.status_code == 202
        assert answer.json()["triage_target"] == "System1/echo"
        url = f"/v1/messages/{answer.json()['request_id']}"
        assert (await server.http.get(f"{url}/raw")).content == LARGE
        message = (await server.http.get(url)).json()
        assert UNREAD_MARK in message["text"]
        assert message["sender"] == "ann@example.org"
        again = await server.http.post("/v1/ingest?endpoint=me@example.org", content=LARGE, headers=headers)
        assert again.json()["duplicate"]
