"""Voice messages in a database, and workers that hear them by asking a scripted server, in this process or another.

    python -m tests.speaking URL SERVER   a worker that classifies and answers until nothing is open

In: the database and what the server says; out: messages, and what butlers read. `SWITCHBOARD_CRASH_AT` kills the
worker at a named point (`lanes/faults.py`). Next: `tests/integration/test_voice.py`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import msgspec

from switchboard.app.models.dispatcher import StoredSpending
from switchboard.core.files.blobs import StoredBlob
from switchboard.core.policy.budget import Cap
from switchboard.core.voice.settings import TranscriptionSettings
from switchboard.domain.routing import Classified, Route
from switchboard.journey.ask import Question
from switchboard.journey.hearing import Hearing, HearingPolicy
from switchboard.lanes.worker import Worker
from switchboard.llm.transcription import TranscriptionApi
from switchboard.llm.web import open_client
from switchboard.ports.engine import Answer, Journal, Turn, TurnResult
from switchboard.store.database import Database
from switchboard.store.messages import blobs
from switchboard.store.messages.blobs import PieceStore
from switchboard.store.messages.files import StoredFiles
from switchboard.store.messages.inbox import Acceptance
from tests.hands import at_work, settled
from tests.lab import Lab, butler, lab, rule, submission, team_of
from tests.waiting import eventually

TEAM: Final = team_of(butler("a"), butler("b"), "System4/root", classify=True)
RULES: Final = (rule("System1/b", chat_type="private"),)
"""What is said in private goes to `b`; of all else a model decides."""
QUICK: Final = HearingPolicy(pause=0.02)
NO_CAP: Final = Cap()
RATE: Final = 48_000


def ogg_of(seconds: int, salt: str = "") -> bytes:
    """A file that looks like so much speech in Ogg and Opus, for servers that do not decode it."""
    head = b"OpusHead\x01\x01" + (312).to_bytes(2, "little")
    last = b"OggS\0\x04" + (seconds * RATE + 312).to_bytes(8, "little")
    return b"OggS\0\x02" + bytes(8) + head + salt.encode() + last + bytes(12)


@dataclass
class Reading:
    """A butler that answers with what it reads."""

    read: list[Turn] = field(default_factory=list)

    async def run(self, turn: Turn, _: Journal) -> TurnResult:
        self.read.append(turn)
        return Answer(turn.text)


@dataclass
class FirstChosen:
    """A model that chooses the first candidate; what it was asked is kept."""

    asked: list[str] = field(default_factory=list)

    async def ask(self, question: Question, journal: Journal) -> Classified:
        async def act(_: object) -> Classified:
            self.asked.append(question.text)
            return Classified((Route(question.targets[0]),))

        return msgspec.convert(await journal.step(f"classify {question.team_id}", act), Classified)


def attached(data: bytes, seconds: int | None = 14, media_type: str = "audio/ogg", **more: Any) -> dict[str, Any]:
    """A voice message as a connector describes it."""
    ref = f"blob:{sha256(data).hexdigest()}"
    about = {"media_type": media_type, "size_bytes": len(data), "storage_ref": ref, "voice": True, "seconds": seconds}
    return {**about, **more}


async def store_bytes(database: Database, data: bytes, endpoint: str = "bot:house") -> None:
    """Keep the bytes as an upload of the account does."""
    async with database.transaction() as one:
        blob, about = sha256(data).digest(), StoredBlob(len(data), "audio/ogg")
        if await blobs.claim(one, blob, about):
            await PieceStore(one).write(blob, _pieces(data))
        await blobs.note_upload(one, blob, about, channel="telegram", endpoint=endpoint)


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def say_aloud(parts: Lab, *recordings: dict[str, Any], text: str = "", **more: Any) -> Acceptance:
    """A message with recordings, whose bytes are stored already."""
    payload = {"normalized_text": text, "attachments": list(recordings)}
    given = {"chat_type": "private", "sender": "ann", **more}
    [accepted] = await parts.accept.accept_all([submission(payload=payload, **given)])
    assert isinstance(accepted, Acceptance)
    return accepted


async def speak(parts: Lab, data: bytes, **more: Any) -> Acceptance:
    """A voice message with these bytes."""
    await store_bytes(parts.database, data)
    return await say_aloud(parts, attached(data), **more)


@asynccontextmanager
async def hearing_of(
    parts: Lab, server: str, cap: Cap = NO_CAP, policy: HearingPolicy = QUICK, **settings: Any
) -> AsyncIterator[Hearing]:
    """What asks the server at this URL."""
    given = TranscriptionSettings(**{"url": f"{server}/v1", "timeout": 20.0, **settings})
    api = TranscriptionApi(open_client(), given, {}, StoredSpending(parts.database), cap)
    try:
        yield Hearing(parts.database, StoredFiles(parts.database, ""), given, api, policy)
    finally:
        await api.aclose()


def speaking_lab(url: str) -> Any:
    """Two butlers, between whom a model decides, but for what is said in private."""
    return lab(url, [TEAM], RULES, classifying=True)


async def read_by_butlers(parts: Lab, workers: Sequence[Worker]) -> None:
    """Have workers answer everything."""
    async with at_work(*workers):
        await eventually(lambda: settled(parts))


def main(arguments: Sequence[str]) -> None:
    """A worker until nothing is open."""
    url, server = arguments
    asyncio.run(_work(url, server))


async def _work(url: str, server: str) -> None:
    async with speaking_lab(url) as parts, hearing_of(parts, server) as hearing:
        worker = parts.worker({"echo": Reading()}, classifier=FirstChosen(), hearing=hearing, ttl=2.0)
        await read_by_butlers(parts, [worker])


if __name__ == "__main__":
    main(sys.argv[1:])
