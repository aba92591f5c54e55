"""The checks of connectors: the scripted platform passes, and one with a planted defect fails the law it breaks.

That it fails no other law is shown by `make kit`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as with_fields

from switchboard.connectors.kernel.parts import REPEAT_NOTE
from switchboard.domain.envelope import MAX_TEXT, Envelope
from switchboard.ports.connector import (
    Account,
    Batch,
    FileIn,
    FileOut,
    Inbound,
    Later,
    Outcome,
    Part,
    Refused,
    Sent,
    Session,
    SignInRefused,
    Unreadable,
)
from switchboard.testing.connectors import ConnectorCheck, ScriptedPlatform, checks_for, in_no_time
from switchboard.testing.connectors.platform import CAPABILITIES

Defect = Callable[["Planted", Session], Session]
ALL: Final = checks_for(ScriptedPlatform)
SECRET = "scripted-value"


@pytest.mark.parametrize("check", ALL, ids=lambda check: check.__name__)
def test_the_scripted_platform(check: ConnectorCheck) -> None:
    in_no_time(check(ScriptedPlatform()))


@pytest.mark.parametrize("idempotency", ["lookup", "key"])
@pytest.mark.parametrize("check", [one for one in ALL if "five_parts" in one.__name__])
def test_where_the_platform_can_tell_no_part_is_ever_repeated(check: ConnectorCheck, idempotency: Any) -> None:
    platform = ScriptedPlatform(replace(CAPABILITIES, idempotency=idempotency, key_window_s=60.0))
    in_no_time(check(platform))
    sent = [part.text for part in platform.posts]
    assert len(sent) == len(set(sent))
    assert (platform.finds > 0) == (idempotency == "lookup")


# Planted defects -----------------------------------------------------------------------------------------------------


class Around:
    """A session of the scripted platform, for defects to be planted in."""

    def __init__(self, platform: Planted, session: Session) -> None:
        self.platform, self.session, self.identity = platform, session, session.identity
        self.find, self.typing, self.draft = session.find, session.typing, session.draft
        self.latest, self.confirm, self.capabilities = session.latest, session.confirm, session.capabilities

    def fetch(self, file: FileIn) -> AsyncIterator[bytes]:
        return self.session.fetch(file)

    async def close(self) -> None:
        await self.session.close()

    async def read(self, raw: bytes) -> Inbound | Unreadable:
        return await self.session.read(raw)

    def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        return self.session.receive(cursor)

    async def send(self, part: Part, key: str) -> Outcome:
        return await self.session.send(part, key)


def changed(event: Inbound, **fields: Any) -> Inbound:
    envelope: Envelope = event.envelope
    return replace(event, envelope=with_other(envelope, **fields))


def with_other(envelope: Envelope, *, text: str | None = None, event_id: str | None = None, **event: Any) -> Envelope:
    if text is not None:
        envelope = with_fields(envelope, payload=with_fields(envelope.payload, normalized_text=text))
    if event_id is not None:
        event["external_event_id"] = event_id
    return with_fields(envelope, event=with_fields(envelope.event, **event))


class Changing(Around):
    """What arrives is not what was written."""

    def change(self, event: Inbound) -> Inbound | None:
        return event

    async def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        async for batch in self.session.receive(cursor):
            events = [self.change(one) if isinstance(one, Inbound) else one for one in batch.events]
            yield replace(batch, events=tuple(one for one in events if one is not None))

    async def read(self, raw: bytes) -> Inbound | Unreadable:
        event = await self.session.read(raw)
        return (self.change(event) or event) if isinstance(event, Inbound) else event


class Reorders(Around):
    """Gives a large batch backwards."""

    async def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        async for batch in self.session.receive(cursor):
            yield replace(batch, events=batch.events[::-1]) if len(batch.events) > 45 else batch


class Renumbers(Changing):
    """The ids of events are other ones at each sign-in that has no cursor."""

    fresh = False

    def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        self.fresh = cursor is None
        return super().receive(cursor)

    def change(self, event: Inbound) -> Inbound:
        number = event.envelope.event.external_event_id
        return changed(event, event_id=f"{self.platform.opened}-{number}") if self.fresh else event


class Forgets(Around):
    """Confirms what it gives at once: after a crash that is gone."""

    async def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        given, self.platform.forgotten = self.platform.forgotten, set(self.platform.forgotten)
        async for batch in self.session.receive(cursor):
            events = [one for one in batch.events if one.raw not in given]
            self.platform.forgotten.update(one.raw for one in events)
            yield replace(batch, events=tuple(events))


class Garbles(Changing):
    """Odd characters are lost."""

    def change(self, event: Inbound) -> Inbound:
        text = event.envelope.payload.normalized_text
        return changed(event, text=text.encode("latin-1", "replace").decode("latin-1"))


class Cuts(Changing):
    """Long texts are cut off."""

    def change(self, event: Inbound) -> Inbound:
        return changed(event, text=event.envelope.payload.normalized_text[:5000])


class Tells(Changing):
    """The secret stands in what arrives."""

    def change(self, event: Inbound) -> Inbound:
        return changed(event, reply_address={**(event.envelope.event.reply_address or {}), "token": SECRET})


class Repeats(Around):
    """What was sent before a crash is said to be put off once, and so is sent again unmarked."""

    async def send(self, part: Part, key: str) -> Outcome:
        if key.endswith(":2") and key not in self.platform.keys:
            await self.session.send(part, key)
        return await self.session.send(part, key)


class Loses(Around):
    """The last of five parts is said to be sent, and is not."""

    async def send(self, part: Part, key: str) -> Outcome:
        return Sent("lost") if key.endswith(":4") else await self.session.send(part, key)


class GivesUp(Around):
    """A platform that is away is one that refuses."""

    async def send(self, part: Part, key: str) -> Outcome:
        return Refused("it is away") if self.platform.absent else await self.session.send(part, key)


class Hasty(Around):
    """A platform that asks for patience is one that refuses."""

    async def send(self, part: Part, key: str) -> Outcome:
        outcome = await self.session.send(part, key)
        return Refused("busy") if isinstance(outcome, Later) and not self.platform.absent else outcome


class Confines(Around):
    """Takes a limit of the account for one of the conversation."""

    async def send(self, part: Part, key: str) -> Outcome:
        outcome = await self.session.send(part, key)
        return replace(outcome, account=False) if isinstance(outcome, Later) else outcome


class Counts(Around):
    """Gives each attempt a key of its own."""

    async def send(self, part: Part, key: str) -> Outcome:
        self.platform.attempts += 1
        return await self.session.send(part, f"{key} {self.platform.attempts}")


class Muffles(Around):
    """Sends a file with its text, or a text without its file, as if it could have none."""

    async def send(self, part: Part, key: str) -> Outcome:
        return await self.session.send(replace(part, text="") if part.files else part, key)


class Optimist(Around):
    """Passes on no report of what was not delivered."""

    async def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        async for batch in self.session.receive(cursor):
            yield replace(batch, late=())


class Redates(Around):
    """Gives each report the time at which it comes."""

    async def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        async for batch in self.session.receive(cursor):
            yield replace(batch, late=tuple(replace(one, at=datetime.now(UTC)) for one in batch.late))


class Chatters(Around):
    """Asks for something all the time."""

    async def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        async for batch in self.session.receive(cursor):
            self.platform.requests += 1
            yield batch


class Empties(Changing):
    """Says nothing of where files are."""

    def change(self, event: Inbound) -> Inbound:
        return replace(event, files=())


class Halves(Around):
    """Stops in the middle of a file."""

    async def fetch(self, file: FileIn) -> AsyncIterator[bytes]:
        async for piece in self.session.fetch(file):
            yield piece[: len(piece) // 2]


class Pretends(Around):
    """A file that is gone is one of a byte."""

    async def fetch(self, file: FileIn) -> AsyncIterator[bytes]:
        try:
            async for piece in self.session.fetch(file):
                yield piece
        except ValueError:
            yield b"0"


class Drops(Around):
    """The second file is said to be sent, and is not."""

    async def send(self, part: Part, key: str) -> Outcome:
        return await self.session.send(replace(part, files=()) if key.endswith(":2") else part, key)


class Shortens(Around):
    """Of a large file only the beginning is sent."""

    async def send(self, part: Part, key: str) -> Outcome:
        return await self.session.send(replace(part, files=tuple(map(_half, part.files))), key)


def _half(file: FileOut) -> FileOut:
    async def read() -> AsyncIterator[bytes]:
        async for piece in file.read():
            yield piece[: file.size_bytes // 2]

    return replace(file, read=read)


class Doubles(Around):
    """A file is sent twice, and only one of the two is told of."""

    async def send(self, part: Part, key: str) -> Outcome:
        if part.files:
            await self.session.send(part, key)
        return await self.session.send(part, key)


class Swaps(Around):
    """Files have each other's names."""

    async def send(self, part: Part, key: str) -> Outcome:
        swapped = tuple(replace(one, filename=one.filename.replace("-a.", "-b.")) for one in part.files)
        return await self.session.send(replace(part, files=swapped), key)


class HidesEdits(Changing):
    """An edit is a message like any other."""

    def change(self, event: Inbound) -> Inbound:
        return changed(event, kind="message", refers_to=None) if event.envelope.event.kind == "edit" else event


class Scatters(Changing):
    """Says of no event that it is a piece of a message."""

    def change(self, event: Inbound) -> Inbound:
        return replace(event, piece=None)


class Undeletes(Changing):
    """A deletion refers to nothing."""

    def change(self, event: Inbound) -> Inbound:
        return changed(event, refers_to=None) if event.envelope.event.kind == "delete" else event


class Confuses(Changing):
    """Everybody is a person."""

    def change(self, event: Inbound) -> Inbound:
        return replace(event, own=False, by_bot=False)


class Dates(Changing):
    """Events have other ids when the platform has started over."""

    def change(self, event: Inbound) -> Inbound:
        return changed(event, event_id=f"{self.platform.generation}-{event.envelope.event.external_event_id}")


class Stumbles(Changing):
    """Cannot read a message without words."""

    def change(self, event: Inbound) -> Inbound:
        envelope = event.envelope
        if envelope.event.kind == "message" and not envelope.payload.normalized_text:
            raise OSError("a message has words")
        return event


class Chokes(Changing):
    """Cannot read more than a message can hold."""

    def change(self, event: Inbound) -> Inbound:
        if len(event.envelope.payload.normalized_text) > MAX_TEXT:
            raise OSError("that is too much")
        return event


class Illiterate(Around):
    """Does not understand an event that comes back from quarantine."""

    async def read(self, raw: bytes) -> Inbound | Unreadable:
        return Unreadable("unknown", raw, "what is this?")


class Expires(Around):
    """What was said 80 s ago is not given any more; nobody waits for so long to connect again."""

    async def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        clock = asyncio.get_running_loop().time
        async for batch in self.session.receive(cursor):
            fresh = [one for one in batch.events if clock() - self.platform.said.get(one.raw, clock()) < 80.0]
            yield replace(batch, events=tuple(fresh))


class Sleeps(Around):
    """Signed in beside another one, it hears nothing, also later."""

    def __init__(self, platform: Planted, session: Session) -> None:
        super().__init__(platform, session)
        self._asleep = bool(platform.awake)
        platform.awake += 1

    async def close(self) -> None:
        self.platform.awake -= 1

    async def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        async for batch in self.session.receive(cursor):
            yield Batch(()) if self._asleep else batch


class Narrows(Around):
    """Odd characters are not sent."""

    async def send(self, part: Part, key: str) -> Outcome:
        text = part.text.encode("latin-1", "replace").decode("latin-1")
        return await self.session.send(replace(part, text=text), key)


class Trims(Around):
    """The last words of a full part are not sent."""

    async def send(self, part: Part, key: str) -> Outcome:
        text = part.text if REPEAT_NOTE in part.text else part.text[:85]
        return await self.session.send(replace(part, text=text), key)


class Groups(Changing):
    """All people share one conversation."""

    def change(self, event: Inbound) -> Inbound:
        return changed(event, external_thread_id="one")


class Mumbles(Changing):
    """Of a press, only the label of the button is known."""

    def change(self, event: Inbound) -> Inbound:
        return changed(event, text="Yes") if event.envelope.event.kind == "button" else event


class Talks(Changing):
    """A press is a message."""

    def change(self, event: Inbound) -> Inbound:
        return changed(event, kind="message") if event.envelope.event.kind == "button" else event


class Uproots(Changing):
    """Of what is said in a thread, only the thread is known."""

    def change(self, event: Inbound) -> Inbound:
        envelope = event.envelope
        if event.direct or envelope.event.external_thread_id is None:
            return event
        bare = with_fields(envelope, payload=with_fields(envelope.payload, raw=None))
        thread = envelope.event.external_thread_id.partition(":")[2]
        return changed(replace(event, envelope=bare), external_thread_id=thread)


class Strays(Around):
    """Answers at the top of a place, in none of its threads."""

    async def send(self, part: Part, key: str) -> Outcome:
        strays = part.address["thread"] in {"a", "b", "c"}
        return await self.session.send(replace(part, address={"thread": ""}) if strays else part, key)


class Blurts(Around):
    """Sends a text of nothing as something."""

    async def send(self, part: Part, key: str) -> Outcome:
        return await self.session.send(replace(part, text=f"{part.text}!") if part.text == "after it" else part, key)


@dataclass(slots=True)
class Planted(ScriptedPlatform):
    """The scripted platform with a defect."""

    defect: Defect = Around
    blurts: bool = False
    """It names a secret that it refuses."""
    forgotten: set[bytes] = field(default_factory=set)
    said: dict[bytes, float] = field(default_factory=dict)
    awake: int = 0
    attempts: int = 0

    async def says(self, thread: str, text: str) -> None:
        self.said[self.add(thread, text).raw] = asyncio.get_running_loop().time()

    async def _open_session(self, account: Account) -> Session:
        try:
            return self.defect(self, await ScriptedPlatform._open_session(self, account))
        except SignInRefused as error:
            raise SignInRefused(f"{error} {account.secrets if self.blurts else ''}") from None


def broken_by(make: Callable[[], Planted], checks: Iterable[ConnectorCheck] = ALL) -> set[str]:
    """Which of these laws it breaks."""
    return {check.__name__.removeprefix("check_") for check in checks if _fails(check, make())}


def _fails(check: ConnectorCheck, platform: Planted) -> bool:
    try:
        in_no_time(check(platform))
    except AssertionError:
        return True
    return False


ORDER = "order_is_kept_within_each_conversation"
AGAIN = "what_is_given_again_is_no_second_message"
RECEIVING = "a_kill_while_receiving_loses_and_doubles_nothing"
REFUSED = "what_is_refused_is_quarantined_and_the_rest_goes_on"
ALONE = "one_that_always_fails_holds_back_nobody_else"
ODD = "odd_texts_arrive_as_they_were_written"
MUCH = "more_than_a_message_can_hold_disturbs_nobody"
EMPTY = "a_message_of_nothing_disturbs_nobody"
SENDING = "a_kill_in_a_reply_of_five_parts_repeats_none_unmarked"
ODD_OUT = "odd_texts_leave_as_they_were_written"
NOTHING = "a_text_of_nothing_disturbs_nobody"
OUTAGE = "an_outage_of_the_switchboard_loses_nothing"
STANDBY = "a_second_process_stands_by_and_takes_over"
SECRETS = "secrets_are_told_to_nobody"
OVER = "a_platform_that_starts_over_brings_no_second_message"
OTHERS = "what_we_or_programs_say_is_answered_by_nobody"
FILE = "a_file_is_fetched_once_and_arrives_as_it_was"
FILE_KILL = "a_kill_while_a_file_is_fetched_loses_and_doubles_nothing"
FILE_ROOM = "a_file_for_which_there_is_no_room_keeps_no_message_back"
FILE_GONE = "a_file_that_cannot_be_had_keeps_no_message_back"
SENT_FILES = "a_kill_in_a_reply_with_files_loses_and_doubles_none"
EDIT = "an_edit_is_no_second_message"
SPLIT = "a_text_that_was_split_is_one_message"
SPLIT_KILL = "a_kill_while_pieces_of_a_text_arrive_loses_and_doubles_nothing"
DELETE = "a_deletion_is_no_second_message"
PRESS = "a_press_brings_back_what_its_button_stands_for"
THREADS = "a_place_is_approved_once_and_each_thread_gets_its_answers"
PATIENCE = "patience_is_shown_and_costs_nothing"
LATE = "a_failure_after_sending_is_told_once"
LATE_FIRST = "a_failure_before_our_receipt_counts"
KEYS = "a_part_keeps_a_key_of_its_own"
CAPTION = "a_file_without_a_caption_comes_after_its_text"
QUOTA = "a_limit_of_the_account_pauses_all_of_it"
AWAY = "an_outage_of_the_platform_loses_nothing"
IDLE = "an_idle_account_asks_for_nothing"

PLANTED: Final[Mapping[str, tuple[Callable[[], Planted], frozenset[str]]]] = {
    name: (made, frozenset(laws))
    for name, made, *laws in (
        ("none", lambda: Planted(defect=Around)),
        ("reorders", lambda: Planted(defect=Reorders), ORDER),
        ("renumbers", lambda: Planted(defect=Renumbers), AGAIN, RECEIVING, REFUSED, OUTAGE, OVER, FILE, SPLIT_KILL),
        ("forgets", lambda: Planted(defect=Forgets), RECEIVING, OUTAGE, FILE_KILL, SPLIT_KILL),
        ("cannot read its own events", lambda: Planted(defect=Illiterate), REFUSED),
        ("makes one conversation of all", lambda: Planted(defect=Groups), ALONE, THREADS),
        ("knows threads and no places", lambda: Planted(defect=Uproots), THREADS),
        ("tells the label of a press", lambda: Planted(defect=Mumbles), PRESS),
        ("takes a press for a message", lambda: Planted(defect=Talks), PRESS),
        ("answers beside the thread", lambda: Planted(defect=Strays), THREADS),
        ("garbles", lambda: Planted(defect=Garbles), ODD),
        ("cuts", lambda: Planted(defect=Cuts), ODD),
        ("chokes", lambda: Planted(defect=Chokes), MUCH),
        ("stumbles over nothing", lambda: Planted(defect=Stumbles), EMPTY),
        ("repeats", lambda: Planted(defect=Repeats), SENDING, PATIENCE, ODD_OUT, SENT_FILES),
        ("loses the last part", lambda: Planted(defect=Loses), SENDING, PATIENCE, ODD_OUT),
        ("sends odd characters as others", lambda: Planted(defect=Narrows), ODD_OUT),
        ("sends less", lambda: Planted(defect=Trims), ODD_OUT),
        ("changes a word", lambda: Planted(defect=Blurts), NOTHING),
        ("forgets after 80 s", lambda: Planted(defect=Expires), OUTAGE),
        ("sleeps beside another one", lambda: Planted(defect=Sleeps), STANDBY),
        ("tells a secret", lambda: Planted(defect=Tells), SECRETS),
        ("tells a secret that it refuses", lambda: Planted(blurts=True), SECRETS),
        ("numbers by date", lambda: Planted(defect=Dates), OVER),
        ("takes all for persons", lambda: Planted(defect=Confuses), OTHERS),
        ("has no files", lambda: Planted(defect=Empties), FILE, FILE_KILL, FILE_ROOM, FILE_GONE),
        ("gives half a file", lambda: Planted(defect=Halves), FILE, FILE_KILL),
        ("gives nothing for a file", lambda: Planted(defect=Pretends), FILE_GONE),
        ("does not send the second file", lambda: Planted(defect=Drops), SENT_FILES),
        ("sends half a file", lambda: Planted(defect=Shortens), SENT_FILES),
        ("sends files twice", lambda: Planted(defect=Doubles), SENT_FILES),
        ("swaps the names of files", lambda: Planted(defect=Swaps), SENT_FILES),
        ("leaves pieces apart", lambda: Planted(defect=Scatters), SPLIT),
        ("hides edits", lambda: Planted(defect=HidesEdits), EDIT),
        ("deletes nothing in particular", lambda: Planted(defect=Undeletes), DELETE),
        ("refuses for now", lambda: Planted(defect=Hasty), PATIENCE, QUOTA),
        ("takes the account for a conversation", lambda: Planted(defect=Confines), QUOTA),
        ("gives each attempt a key", lambda: Planted(defect=Counts), KEYS),
        ("sends files without texts", lambda: Planted(defect=Muffles), CAPTION),
        ("passes on no late failure", lambda: Planted(defect=Optimist), LATE, LATE_FIRST),
        ("gives late failures new times", lambda: Planted(defect=Redates), LATE),
        ("gives up", lambda: Planted(defect=GivesUp), AWAY),
        ("chatters", lambda: Planted(defect=Chatters), IDLE),
    )
}
"""By what is wrong, a platform, and the laws that it breaks."""


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_a_planted_defect_fails_its_law(planted: tuple[Callable[[], Planted], frozenset[str]]) -> None:
    make, laws = planted
    assert broken_by(make, [one for one in ALL if one.__name__.removeprefix("check_") in laws]) == laws


def test_every_law_has_a_defect_that_breaks_it() -> None:
    laws = {one.__name__.removeprefix("check_") for one in ALL}
    assert laws == {law for _, laws in PLANTED.values() for law in laws}
