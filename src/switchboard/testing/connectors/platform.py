"""A scripted platform in memory: people write, the account's session receives and sends, and faults are configurable.

It delivers events from a cursor on, again and again until they are confirmed. The checks run against it. Next:
`checks.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace
from pydantic import BaseModel

from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.held import short_key
from switchboard.connectors.kernel.intake import Handling
from switchboard.domain.envelope import Attachment, Control, Envelope, Event, Payload, Sender, Source
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import (
    Account,
    Batch,
    Busy,
    Capabilities,
    CursorRefused,
    FileIn,
    Identity,
    Inbound,
    LateFailure,
    Later,
    Manifest,
    Outcome,
    Part,
    Piece,
    Refused,
    Sent,
    Session,
    SignInRefused,
    Unreadable,
)
from switchboard.tasks import wait_at_most
from switchboard.testing.connectors.driver import Received, Shown

CAPABILITIES: Final = Capabilities(
    text_limit=120,
    caption_limit=120,
    no_caption=("audio/*",),
    history="cursor",
    max_file_in=1_000_000,
    max_file_out=1_000_000,
    buttons=8,
    receive_window_s=1.0,
)
HANDLING: Final = Handling(start="all")
_PIECE: Final = 1000
_KEY: Final = 25
"""Characters of a key."""
_TEXT: Final = 4096
_TOLD: Final = {"token": "scripted-value"}


class Settings(BaseModel, extra="forbid", frozen=True):
    """There are none."""


@dataclass(slots=True)
class ScriptedPlatform:
    """The platform, which is also its own driver."""

    capabilities: Capabilities = CAPABILITIES
    handling: Handling = HANDLING
    events: list[Inbound | Unreadable] = field(default_factory=list)
    posts: list[Part] = field(default_factory=list)
    brought: list[Received] = field(default_factory=list)
    """The posts as people received them."""
    keys: dict[str, str] = field(default_factory=dict)
    outcomes: list[Outcome | Exception] = field(default_factory=list)
    """The outcomes of the next calls of `send`, which send nothing; but an exception is raised after sending."""
    drafts: list[tuple[int, str]] = field(default_factory=list)
    """The drafts that the account tried to show: the number of the answer, and its text."""
    drafting: list[Later | Refused | Exception | None] = field(default_factory=list)
    """What becomes of the next drafts."""
    typing: list[JsonObject] = field(default_factory=list)
    """The addresses where "typing" was shown."""
    files: dict[int, bytes] = field(default_factory=dict)
    """Available files, by 100 times the number of their event plus their position in it."""
    fetching: Callable[[int], AsyncIterator[bytes]] | None = None
    """Supplies files instead of `files`."""
    fetched: list[int] = field(default_factory=list)
    """The keys of the requested files."""
    finds: int = 0
    """How often a session was asked what it has sent."""
    unanswered: int = 0
    """How many of the next such questions get no answer."""
    sending: Callable[[], None] = lambda: None
    """Called at the beginning of each `send`."""
    failures: list[LateFailure] = field(default_factory=list)
    reports: list[LateFailure] = field(default_factory=list)
    """What it reports with its next batch."""
    learned: Capabilities | None = None
    """What it tells a session of its capabilities."""
    captionless: str = "voice.ogg"
    given: list[str] = field(default_factory=list)
    """The keys of all parts that arrived."""
    limit_s: float = 0.0
    """If set, the limit of the account that the next part exceeds."""
    limited_from: float = 0.0
    limited_until: float = 0.0
    early: int = 0
    """How many parts disregarded that limit."""
    confirmed: int = 0
    opened: int = 0
    poll_s: float = 0.2
    """Seconds that a round trip waits for events."""
    silent: bool = False
    absent: bool = False
    rival: str = ""
    """Another receiver for the account, so that we get nothing."""
    refusal: str = ""
    """Why nobody can sign in."""
    requests: int = 0
    """The number of requests, except those that wait for events."""
    generation: int = 0
    """How often cursors have become invalid."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def configured(self) -> Configured:
        """The account, as its file would define it."""
        manifest = Manifest(
            name="scripted",
            channel="api",
            provider="internal",
            settings=Settings,
            secrets=(),
            steps=(),
            capabilities=self.capabilities,
            open=self._open_session,
        )
        return Configured(manifest, Account("scripted", Settings(), _TOLD), self.handling)

    async def says(self, thread: str, text: str) -> None:
        """A person writes in a chat with the account."""
        self.add(thread, text)

    async def splits(self, thread: str, text: str) -> None:
        """A person writes a long text."""
        now, first = datetime.now(UTC), len(self.events) + 1
        starts = range(0, len(text), _TEXT)
        for number, start in enumerate(starts, first):
            piece = Piece(number=number, cut="" if start + _TEXT < len(text) else None)
            self.add(thread, text[start : start + _TEXT], event={"sent_at": now}, piece=piece)

    async def brings(self, thread: str, text: str, data: bytes) -> None:
        """A person sends a file."""
        self.add(thread, text, files=[data])

    def loses_files(self) -> None:
        """Make all files unavailable."""
        self.files.clear()

    @property
    def longest(self) -> int:
        """There is no limit."""
        return 10_000_000

    async def edits(self, thread: str, text: str) -> None:
        """A person changes the last message there."""
        self.add(thread, text, event={"kind": "edit", "refers_to": self._last_event(thread)})

    async def deletes(self, thread: str) -> None:
        """A person deletes the last message there."""
        self.add(thread, "", event={"kind": "delete", "refers_to": self._last_event(thread)})

    async def fails_later(self, *, again: bool = False) -> None:
        """The last post was not delivered."""
        if not again:
            self.failures.append(
                LateFailure(platform_message_id=str(len(self.posts)), reason="nobody is there", at=datetime.now(UTC))
            )
        self.reports.append(self.failures[-1])
        self.changed.set()

    async def own_says(self, thread: str, text: str) -> None:
        """The account writes from another device."""
        self.add(thread, text, own=True)

    async def bot_says(self, thread: str, text: str) -> None:
        """A program writes."""
        self.add(thread, text, by_bot=True)

    async def buttons(self, thread: str) -> Sequence[str]:
        """The labels below the last post there."""
        return [one.label for one in self._last_post(thread).choices or ()]

    async def presses(self, thread: str, label: str) -> None:
        """A person presses a button there."""
        post = self._last_post(thread)
        value = next(one.value for one in post.choices or () if one.label == label)
        self.add(thread, value, event={"kind": "button", "refers_to": str(self.posts.index(post) + 1)})

    def _last_post(self, thread: str) -> Part:
        return next(one for one in reversed(self.posts) if one.address["thread"] == thread)

    async def calls(self, place: str, thread: str, text: str) -> None:
        """A person addresses the account in a channel, as on Slack."""
        event = self.add(thread, text, control={"addressed": True}, direct=False)
        envelope = replace(
            event.envelope,
            source=Source(channel="slack", provider="slack", endpoint_identity="scripted:1"),
            event=replace(event.envelope.event, external_thread_id=f"{place.upper()}:{thread}"),
            sender=Sender(identity="U1", chat_type="group"),
            payload=Payload(raw={"channel": place.upper(), "user": "U1", "text": text}, normalized_text=text),
        )
        self.events[-1] = replace(event, envelope=envelope)

    async def starts_over(self) -> None:
        """Invalidate all cursors, and change the order of the stored events."""
        self.generation += 1
        self.events = [replace(one, raw=b"0" + one.raw) for one in reversed(self.events)]

    def _last_event(self, thread: str) -> str:
        return next(
            one.envelope.event.external_event_id
            for one in reversed(self.events)
            if isinstance(one, Inbound) and one.envelope.event.external_thread_id == thread
        )

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Within this block nobody answers."""
        self.absent = True
        self.changed.set()
        try:
            yield
        finally:
            self.absent = False

    def puts_off(self, times: int, seconds: float) -> None:
        """This many of the next parts must be sent later."""
        self.outcomes += [Later(seconds)] * times

    def given_keys(self) -> Sequence[str]:
        """The keys of all parts that arrived, oldest first."""
        return self.given

    def limits_account(self, seconds: float) -> None:
        """The account may send nothing for so long after its next part."""
        self.limit_s = seconds

    def hasty(self) -> int:
        """The number of parts that came all the same."""
        return self.early

    def refusal_by_limit(self) -> Later | None:
        """The refusal of a part that the limit of the account does not permit."""
        now = asyncio.get_running_loop().time()
        if self.limit_s:
            self.limited_from, self.limited_until, self.limit_s = now, now + self.limit_s, 0.0
        left = self.limited_until - now
        self.early += left > 0 and now - self.limited_from > 1.0
        return Later(left, "too many messages of this account", account=True) if left > 0 else None

    def asked(self) -> int:
        """The number of requests, except those that wait for events."""
        return self.requests

    async def received(self) -> Sequence[Received]:
        """All that the account has sent, with files."""
        return list(self.brought)

    async def shown(self) -> Sequence[Shown]:
        """All that the account has sent."""
        return [Shown(str(part.address["thread"]), part.text) for part in self.posts]

    def add(self, thread: str, text: str, **more: Any) -> Inbound:
        """Add an event; `more` are fields of `Inbound`, `event` and `control` those of the envelope.

        `files` are the bytes of the attachments.
        """
        number = len(self.events) + 1
        data: Sequence[bytes] = more.pop("files", [b"\xff\xd8\xff"] if more.get("album") else [])
        self.files |= {number * 100 + at: one for at, one in enumerate(data)}
        attached = tuple(
            Attachment(
                media_type="application/octet-stream", size_bytes=len(one), source_attachment_id=f"{number}.{at}"
            )
            for at, one in enumerate(data)
        )
        envelope = Envelope(
            schema_version="ingest.v1",
            source=Source(channel="api", provider="internal", endpoint_identity="scripted:1"),
            event=Event(
                external_event_id=str(number),
                external_thread_id=thread,
                observed_at=datetime.now(UTC),
                reply_address={"thread": thread},
                **more.pop("event", {}),
            ),
            sender=Sender(identity=f"person of {thread}", chat_type="private"),
            payload=Payload(normalized_text=text, attachments=attached),
            control=Control(**more.pop("control", {})),
        )
        files = tuple(FileIn(at, {"number": number * 100 + at}) for at in range(len(attached)))
        event = replace(Inbound(envelope=envelope, raw=str(number).encode(), direct=True, files=files), **more)
        self.events.append(event)
        self.changed.set()
        return event

    def take_reports(self) -> tuple[LateFailure, ...]:
        """The reports that are due, once."""
        due = tuple(self.reports)
        self.reports.clear()
        return due

    def asks(self) -> None:
        """A request arrives. Raises OSError if nobody answers."""
        if self.absent:
            raise OSError("the platform is away")
        self.requests += 1

    def break_one(self, event_id: str) -> None:
        """Add an event that cannot be parsed."""
        self.events.append(Unreadable(event_id, b"\x00", "no event"))
        self.changed.set()

    async def _open_session(self, account: Account) -> Session:
        self.opened += 1
        self.asks()
        if self.refusal or account.secrets != _TOLD:
            raise SignInRefused(self.refusal or "the token is not the one of this account")
        return ScriptedSession(self)


class ScriptedSession:
    """The account, signed in."""

    identity = Identity("scripted:1")

    def __init__(self, platform: ScriptedPlatform) -> None:
        self._platform = platform
        self.capabilities = platform.learned

    async def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        at = self._index_of(cursor)
        while True:
            if self._platform.rival:
                raise Busy(self._platform.rival)
            events = self._platform.events[at : at + 50]
            if events and not self._platform.silent:
                at += len(events)
                yield Batch(tuple(events), self._cursor_at(at))
                continue
            await self._round_trip()
            if not self._platform.silent:
                yield Batch((), late=self._platform.take_reports())

    def _cursor_at(self, at: int) -> str:
        generation = self._platform.generation
        return f"{generation}.{at}" if generation else str(at)

    def _index_of(self, cursor: str | None) -> int:
        if cursor is None:
            return 0
        generation, _, at = cursor.rpartition(".")
        if int(generation or 0) != self._platform.generation:
            raise CursorRefused("this cursor is of another time")
        return int(at)

    async def _round_trip(self) -> None:
        if self._platform.absent:
            raise OSError("the platform is away")
        self._platform.changed.clear()
        await wait_at_most(self._platform.poll_s, self._platform.changed)

    async def read(self, raw: bytes) -> Inbound | Unreadable:
        if raw.isdigit():
            return self._platform.events[int(raw) - 1]
        return Unreadable("still", raw, "still no event")

    async def draft(self, part: Part, number: int) -> Later | Refused | None:
        self._platform.drafts.append((number, part.text))
        outcome = self._platform.drafting.pop(0) if self._platform.drafting else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def confirm(self, cursor: str) -> None:
        self._platform.confirmed = max(self._platform.confirmed, self._index_of(cursor))

    async def send(self, part: Part, key: str) -> Outcome:
        self._platform.sending()
        if self._platform.absent:
            return Later(0.1, "the platform is away")
        self._platform.asks()
        self._platform.given.append(short_key(key, _KEY))
        if part.text and any(one.media_type.startswith("audio/") for one in part.files):
            return Refused("no text can go with a file of sound")
        if (later := self._platform.refusal_by_limit()) is not None:
            return later
        outcome = self._platform.outcomes.pop(0) if self._platform.outcomes else None
        if outcome is not None and not isinstance(outcome, Exception):
            return outcome
        if self._platform.capabilities.idempotency == "key" and key in self._platform.keys:
            return Sent(self._platform.keys[key])
        files = [(one.filename, b"".join([piece async for piece in one.read()])) for one in part.files]
        self._platform.posts.append(part)
        self._platform.brought.append(Received(part.text, tuple(files)))
        self._platform.keys[key] = str(len(self._platform.posts))
        if outcome is not None:
            raise outcome
        return Sent(self._platform.keys[key])

    async def find(self, part: Part, key: str) -> Sent | None:
        del part
        self._platform.finds += 1
        if self._platform.unanswered:
            self._platform.unanswered -= 1
            raise ConnectionError("cut while asking")
        return Sent(self._platform.keys[key]) if key in self._platform.keys else None

    async def typing(self, address: JsonObject) -> None:
        self._platform.asks()
        self._platform.typing.append(address)

    async def fetch(self, file: FileIn) -> AsyncIterator[bytes]:
        number = int(file.handle["number"])
        self._platform.fetched.append(number)
        if self._platform.fetching is not None:
            async for piece in self._platform.fetching(number):
                yield piece
            return
        if number not in self._platform.files:
            raise ValueError("the file is gone")
        data = self._platform.files[number]
        for start in range(0, len(data), _PIECE):
            yield data[start : start + _PIECE]

    async def latest(self) -> str | None:
        return self._cursor_at(len(self._platform.events))

    async def close(self) -> None:
        return
