"""The checks of connectors: the scripted platform passes, and one with a planted defect fails the law it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from switchboard.connectors.kernel import runner
from switchboard.domain.envelope import Envelope
from switchboard.ports.connector import Account, Batch, Inbound, Later, Outcome, Part, Refused, Sent, Session
from switchboard.testing.connectors import (
    CHECKS,
    EDITING_CHECKS,
    NETWORK_CHECKS,
    ConnectorCheck,
    ScriptedPlatform,
    running,
)
from switchboard.testing.connectors.platform import CAPABILITIES

Check = Callable[[ScriptedPlatform], Awaitable[None]]
Defect = Callable[[ScriptedPlatform, Session], Session]
ALL: tuple[Check, ...] = (*CHECKS, *NETWORK_CHECKS, *EDITING_CHECKS)
SECRET = "scripted-value"


@pytest.mark.parametrize("check", ALL, ids=lambda check: check.__name__)
async def test_the_scripted_platform(check: Check) -> None:
    await check(ScriptedPlatform())


@pytest.mark.parametrize("check", [one for one in CHECKS if "five_parts" in one.__name__])
async def test_with_keys_no_part_is_ever_repeated(check: ConnectorCheck) -> None:
    platform = ScriptedPlatform(replace(CAPABILITIES, idempotency="lookup"))
    await check(platform)
    sent = [part.text for part in platform.posts]
    assert len(sent) == len(set(sent))


# Planted defects -----------------------------------------------------------------------------------------------------


class Around:
    """A session of the scripted platform, for defects to be planted in."""

    def __init__(self, platform: ScriptedPlatform, session: Session) -> None:
        self.platform, self.session, self.identity = platform, session, session.identity
        self.find, self.typing, self.fetch = session.find, session.typing, session.fetch
        self.latest, self.close, self.confirm, self.read = session.latest, session.close, session.confirm, session.read

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


class Reorders(Around):
    """Gives a large batch backwards."""

    async def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        async for batch in self.session.receive(cursor):
            yield replace(batch, events=batch.events[::-1]) if len(batch.events) > 45 else batch


class Renumbers(Changing):
    """The ids of events are other ones at each sign-in that has no cursor."""

    def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        self.fresh = cursor is None
        return super().receive(cursor)

    def change(self, event: Inbound) -> Inbound:
        number = event.envelope.event.external_event_id
        return changed(event, event_id=f"{self.platform.opened}-{number}") if self.fresh else event


class Forgets(Around):
    """Confirms what it gives at once: after a crash that is gone."""

    async def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        at = max(int(cursor or 0), self.platform.forgotten if isinstance(self.platform, Planted) else 0)
        async for batch in self.session.receive(str(at)):
            if isinstance(self.platform, Planted) and batch.cursor:
                self.platform.forgotten = int(batch.cursor)
            yield batch


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
    """A platform that is away, or asks for patience, is one that refuses."""

    def __init__(self, platform: ScriptedPlatform, session: Session, *, later: bool) -> None:
        super().__init__(platform, session)
        self._later = later

    async def send(self, part: Part, key: str) -> Outcome:
        if self.platform.absent and not self._later:
            return Refused("it is away")
        outcome = await self.session.send(part, key)
        return Refused("busy") if self._later and isinstance(outcome, Later) and not self.platform.absent else outcome


class Chatters(Around):
    """Asks for something all the time."""

    async def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        async for batch in self.session.receive(cursor):
            self.platform.requests += 1
            yield batch


class HidesEdits(Changing):
    """An edit is a message like any other."""

    def change(self, event: Inbound) -> Inbound:
        return changed(event, kind="message", refers_to=None)


class Filters(Changing):
    """Says nothing of the second of several messages while it may go wrong."""

    def change(self, event: Inbound) -> Inbound | None:
        return None if event.envelope.payload.normalized_text == "message 3" and self.platform.opened > 1 else event


class Groups(Changing):
    """All people share one conversation."""

    def change(self, event: Inbound) -> Inbound:
        return changed(event, external_thread_id="one")


class Blurts(Around):
    """Sends a text of nothing as something."""

    async def send(self, part: Part, key: str) -> Outcome:
        return await self.session.send(replace(part, text=f"{part.text}!") if part.text == "after it" else part, key)


@dataclass(slots=True)
class Planted(ScriptedPlatform):
    """The scripted platform with a defect."""

    defect: Defect = Around
    forgotten: int = 0

    async def _open(self, account: Account) -> Session:
        return self.defect(self, await ScriptedPlatform._open(self, account))


async def failed_by(defect: Defect) -> set[str]:
    """The laws that it fails."""
    alone = [one for one in ALL if "a_kill" in one.__name__]  # named points belong to the whole process
    together = [one for one in ALL if one not in alone]
    failed = [await fails(one, defect) for one in alone]
    failed += await asyncio.gather(*(fails(one, defect) for one in together))
    return {one.__name__.removeprefix("check_") for one, bad in zip((*alone, *together), failed, strict=True) if bad}


async def fails(check: Check, defect: Defect) -> bool:
    try:
        await check(Planted(defect=defect))
    except AssertionError:
        return True
    return False


ORDER = "order_is_kept_within_each_conversation"
AGAIN = "what_is_given_again_is_no_second_message"
RECEIVING = "a_kill_while_receiving_loses_and_doubles_nothing"
SENDING = "a_kill_in_a_reply_of_five_parts_repeats_none_unmarked"
OUTAGE = "an_outage_of_the_switchboard_loses_nothing"
REFUSED = "what_is_refused_is_quarantined_and_the_rest_goes_on"
ALONE = "one_that_always_fails_holds_back_nobody_else"
ODD = "odd_texts_arrive_as_they_were_written"
NOTHING = "a_text_of_nothing_disturbs_nobody"
STANDBY = "a_second_process_stands_by_and_takes_over"
SECRETS = "secrets_are_told_to_nobody"
AWAY = "an_outage_of_the_platform_loses_nothing"
PATIENCE = "patience_is_shown_and_costs_nothing"
IDLE = "an_idle_account_asks_for_nothing"
EDIT = "an_edit_is_no_second_message"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("defect", "laws"),
    [
        (Around, set()),
        (Reorders, {ORDER}),
        (Renumbers, {AGAIN, RECEIVING}),
        (Forgets, {RECEIVING}),
        (Garbles, {ODD}),
        (Cuts, {ODD}),
        (Tells, {SECRETS}),
        (Repeats, {SENDING, PATIENCE}),
        (Loses, {SENDING, PATIENCE}),
        (lambda platform, session: GivesUp(platform, session, later=False), {AWAY}),
        (lambda platform, session: GivesUp(platform, session, later=True), {PATIENCE}),
        (Chatters, {IDLE}),
        (HidesEdits, {EDIT}),
        (Groups, {ALONE}),
        (Blurts, {NOTHING}),
    ],
)
async def test_a_planted_defect_fails_its_law_and_no_other(
    defect: Defect, laws: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_WITHIN_S", 20.0)
    monkeypatch.setattr(runner, "_RENEW_S", 1.0)  # an idle account is watched for three renewals
    assert await failed_by(defect) == laws
