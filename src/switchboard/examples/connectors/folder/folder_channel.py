"""A folder as a channel: each text `inbox/WHO/NAME.txt` is a message, each reply a text in `outbox/WHO/`.

The files of a text are beside it, in `NAME.files/`. Write them first, then the text under another name, and rename it,
so that nobody reads half of it. What the switchboard has is moved to `done/`; what is not there yet is read again after
a crash, and is the same message.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel

from switchboard.domain.envelope import Attachment, Envelope, Event, Payload, Sender, Source
from switchboard.ports.connector import (
    Account,
    Batch,
    Capabilities,
    FileIn,
    Identity,
    Inbound,
    Later,
    Manifest,
    Outcome,
    Part,
    Sent,
    Session,
    Unreadable,
)


class Settings(BaseModel):
    """Where the folder is."""

    path: Path


class FolderSession(Session):
    """The folder, open."""

    def __init__(self, root: Path) -> None:
        self.root, self.identity = root, Identity(str(root))
        self._given: dict[Path, int] = {}

    async def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        """All texts that are not done; the cursor only numbers what was given."""
        number, inbox = int(cursor or 0), self.root / "inbox"
        while True:
            texts = sorted(set(inbox.glob("*/*.txt")) - self._given.keys())
            number += 1
            self._given |= dict.fromkeys(texts, number)
            raw = [os.fsencode(text.relative_to(inbox)) + b"\n" + text.read_bytes() for text in texts]
            yield Batch(tuple([await self.read(one) for one in raw]), str(number) if texts else None)
            await asyncio.sleep(0.2)

    async def read(self, raw: bytes) -> Inbound | Unreadable:
        """An event is the name of its text in the first line, and the text below it."""
        name, _, text = raw.partition(b"\n")
        event_id = name.decode(errors="replace")
        places = [(self.root / place / event_id).with_suffix(".files") for place in ("inbox", "done")]
        files = sorted(file for place in places for file in place.glob("*"))
        try:
            envelope = self._envelope(event_id, text.decode(), files)
        except UnicodeDecodeError as error:
            return Unreadable(event_id, raw, str(error))
        fetched = tuple(FileIn(n, {"path": str(file.relative_to(self.root))}) for n, file in enumerate(files))
        return Inbound(envelope=envelope, raw=raw, direct=True, files=fetched)

    def _envelope(self, event_id: str, text: str, files: list[Path]) -> Envelope:
        who, now = event_id.partition("/")[0], datetime.now(UTC)
        named = [(os.fsencode(file.name).decode(), file.lstat().st_size) for file in files]
        kind = "application/octet-stream"  # until its first bytes are seen
        attachments = tuple(Attachment(media_type=kind, filename=name, size_bytes=size) for name, size in named)
        return Envelope(
            schema_version="ingest.v1",
            source=Source(channel="webhook", provider="http", endpoint_identity=self.identity.endpoint),
            event=Event(external_event_id=event_id, external_thread_id=who, observed_at=now, reply_address={"to": who}),
            sender=Sender(identity=who, chat_type="private"),
            payload=Payload(normalized_text=text, attachments=attachments),
        )

    async def fetch(self, file: FileIn) -> AsyncIterator[bytes]:
        """A file that lies beside its text."""
        with (self.root / file.handle["path"]).open("rb") as fetched:
            while piece := fetched.read(65_536):
                yield piece

    async def confirm(self, cursor: str) -> None:
        """The switchboard has these texts and their files."""
        for text in [text for text, number in self._given.items() if number <= int(cursor)]:
            done = self.root / "done" / text.parent.name
            done.mkdir(parents=True, exist_ok=True)
            for one in filter(Path.exists, (text.with_suffix(".files"), text)):
                shutil.rmtree(done / one.name, ignore_errors=True)  # of another text of this name
                one.rename(done / one.name)
            del self._given[text]

    async def send(self, part: Part, key: str) -> Outcome:
        """Write its files, and at last its text: without that it is not sent."""
        file = self._sent(part, key)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            for n, one in enumerate(part.files):
                file.with_suffix(".files").mkdir(exist_ok=True)
                with (file.with_suffix(".files") / f"{n}-{one.filename}").open("wb") as sent:
                    async for piece in one.read():
                        sent.write(piece)
            file.with_suffix(".part").write_text(part.text)
        except OSError as error:
            return Later(5.0, str(error))
        file.with_suffix(".part").rename(file)
        return Sent(file.name)

    async def find(self, part: Part, key: str) -> Sent | None:
        """Whether the file was written."""
        file = self._sent(part, key)
        return Sent(file.name) if file.exists() else None

    def _sent(self, part: Part, key: str) -> Path:
        return self.root / "outbox" / str(part.address["to"]) / f"{key.replace(':', '-')}.txt"


async def open_folder(account: Account) -> FolderSession:
    """The session of an account."""
    return FolderSession(Settings.model_validate(account.settings.model_dump()).path.resolve())


MANIFEST = Manifest(
    name="folder",
    channel="webhook",
    provider="http",
    settings=Settings,
    secrets=(),
    steps=("Make a directory.",),
    capabilities=Capabilities(
        text_limit=4000,
        caption_limit=4000,
        history="window",
        idempotency="lookup",
        max_file_in=1_000_000_000,
        max_file_out=1_000_000_000,
        files_per_part=10,
    ),
    open=open_folder,
)
