"""A folder as a channel: each file `inbox/WHO/NAME.txt` is a message, each reply a text in `outbox/WHO/`.

Its files are in a directory beside it. Write a file under another name first and rename it, so that nobody reads half
of it. What the switchboard has is moved to `done/`; what is not there yet is read again after a crash, and is the same
message.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from switchboard.domain.envelope import Envelope, Event, Payload, Sender, Source
from switchboard.ports.connector import (
    Account,
    Batch,
    Capabilities,
    Identity,
    Inbound,
    Later,
    Manifest,
    Outcome,
    Part,
    Refused,
    Sent,
    Session,
    Unreadable,
)


class Settings(BaseModel):
    """Where the folder is, and how often to look, in seconds."""

    path: Path
    poll_s: float = 0.2


class FolderSession(Session):
    """The folder, open."""

    def __init__(self, settings: Settings) -> None:
        self.root = settings.path.resolve()
        self.identity = Identity(str(self.root))
        self._poll_s = settings.poll_s
        self._given: dict[str, list[Path]] = {}

    async def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        """All files that are not done; the cursor only numbers what was given."""
        number = int(cursor or 0)
        given: set[Path] = set()
        while True:
            files = sorted(set(self.root.glob("inbox/*/*.txt")) - given)
            given.update(files)
            number += 1
            self._given[str(number)] = files
            events = tuple([await self.read(_raw(file)) for file in files])
            yield Batch(events, str(number) if files else None)
            await asyncio.sleep(self._poll_s)

    async def read(self, raw: bytes) -> Inbound | Unreadable:
        """An event is the name of its file in the first line, and the text below it."""
        name, _, text = raw.partition(b"\n")
        event_id = name.decode(errors="replace")
        try:
            envelope = self._envelope(event_id, event_id.partition("/")[0], text.decode())
        except UnicodeDecodeError as error:
            return Unreadable(event_id, raw, str(error))
        return Inbound(envelope=envelope, raw=raw, direct=True)

    def _envelope(self, event_id: str, who: str, text: str) -> Envelope:
        return Envelope(
            schema_version="ingest.v1",
            source=Source(channel="webhook", provider="http", endpoint_identity=self.identity.endpoint),
            event=Event(
                external_event_id=event_id,
                external_thread_id=who,
                observed_at=datetime.now(UTC),
                reply_address={"who": who},
            ),
            sender=Sender(identity=who, chat_type="private"),
            payload=Payload(normalized_text=text),
        )

    async def confirm(self, cursor: str) -> None:
        """The switchboard has these files."""
        for number in [number for number in self._given if int(number) <= int(cursor)]:
            for file in self._given.pop(number):
                done = self.root / "done" / file.parent.name
                done.mkdir(parents=True, exist_ok=True)
                file.rename(done / file.name)

    async def send(self, part: Part, key: str) -> Outcome:
        """Write its files, and at last its text: without that it is not sent."""
        file = self._sent(part.address, key)
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
        except ValueError as error:  # a file is gone
            return Refused(str(error))
        file.with_suffix(".part").rename(file)
        return Sent(file.name)

    async def find(self, part: Part, key: str) -> Sent | None:
        """Whether the file was written."""
        file = self._sent(part.address, key)
        return Sent(file.name) if file.exists() else None

    def _sent(self, address: dict[str, Any], key: str) -> Path:
        return self.root / "outbox" / str(address["who"]) / f"{key.replace(':', '-')}.txt"


def _raw(file: Path) -> bytes:
    return f"{file.parent.name}/{file.name}".encode() + b"\n" + file.read_bytes()


async def open_folder(account: Account) -> FolderSession:
    """The session of an account."""
    return FolderSession(Settings.model_validate(account.settings.model_dump()))


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
        max_file_out=1_000_000_000,
        files_per_part=10,
        receive_window_s=10.0,
    ),
    open=open_folder,
)
