"""Files of replies on their way to platforms: the law of the kit, and the kernel."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest
from msgspec.structs import replace

from switchboard.connectors.kernel import sending
from switchboard.connectors.kernel.api import AccountPlace, Api
from switchboard.connectors.kernel.health import Health
from switchboard.connectors.kernel.held import LEASE_S
from switchboard.connectors.kernel.intake import Handling
from switchboard.ports.connector import Idempotency, Later, Outcome, Part, Refused, Uncertain
from switchboard.testing.connectors import Received, ScriptedPlatform, checks_for, in_no_time
from switchboard.testing.connectors.platform import CAPABILITIES
from switchboard.testing.connectors.running import connector, scripted, until
from tests.integration.test_connector_conformance import Around, Planted
from tests.integration.test_connector_kernel import outcome_of_one

WITH_FILES: Final = replace(CAPABILITIES, caption_limit=120, max_file_out=1_000_000)
HANDLING: Final = Handling(start="all", on_uncertain="resend_marked")
[LAW] = [one for one in checks_for(ScriptedPlatform) if "reply_with_files" in one.__name__]


# The law ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("files_per_part", [1, 5])
@pytest.mark.parametrize("idempotency", ["none", "lookup"])
def test_the_scripted_platform(files_per_part: int, idempotency: Idempotency) -> None:
    capabilities = replace(WITH_FILES, files_per_part=files_per_part, idempotency=idempotency)
    platform = ScriptedPlatform(capabilities, HANDLING)
    in_no_time(LAW(platform))
    if idempotency == "lookup":
        assert len(platform.brought) == len(set(platform.brought)), "what can be asked for is never repeated"


# The kernel ---------------------------------------------------------------------------------------------------------


async def answered(platform: ScriptedPlatform, text: str, *files: tuple[str, bytes]) -> str:
    """The outcome of a reply to the message of a person."""
    await platform.says("t", "send me")
    return await outcome_of_one(platform, scripted(), text, *files)


async def test_a_file_that_is_too_large_becomes_a_line_and_the_others_go() -> None:
    platform = ScriptedPlatform(replace(WITH_FILES, max_file_out=10))
    assert await answered(platform, "Here.", ("large.bin", b"x" * 11), ("small.txt", b"small")) == "sent"
    [one] = platform.brought
    assert one.files == (("small.txt", b"small"),)
    assert one.text == "Here.\n\n[large.bin, 11 bytes: too large for api]"


async def test_a_file_that_the_platform_refuses_becomes_a_line() -> None:
    platform = ScriptedPlatform(WITH_FILES)
    platform.outcomes = [Refused("400 not this kind")]
    assert await answered(platform, "Here.", ("a.exe", b"MZ")) == "sent"
    [one] = platform.brought
    assert (one.text, one.files) == ("Here.\n\n[a.exe, 2 bytes: api does not take it: 400 not this kind]", ())


async def test_a_file_that_is_gone_becomes_a_line() -> None:
    platform, switchboard = ScriptedPlatform(WITH_FILES), scripted()
    await platform.says("t", "send me")
    async with connector(platform.configured, switchboard):
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        outbox_id = switchboard.reply(switchboard.accepted[-1], "Here.", [("a.txt", b"a")])
        switchboard.lose_files(outbox_id)
        await until(lambda: bool(switchboard.outcome(outbox_id)), "the reply has an outcome")
    [one] = platform.brought
    assert one.text == "Here.\n\n[a.txt, 1 bytes: the file is not there any more]"


def test_what_cannot_be_read_now_is_sent_later_without_a_doubt() -> None:
    async def checked() -> None:
        platform, switchboard = ScriptedPlatform(WITH_FILES), scripted()
        await platform.says("t", "send me")
        async with connector(platform.configured, switchboard):
            await until(lambda: bool(switchboard.accepted), "the message is accepted")
            outbox_id = switchboard.reply(switchboard.accepted[-1], "Here.", [("a.txt", b"a")])
            switchboard.closed = {f"/v1/outbox/{outbox_id}/files/0"}
            await until(lambda: "later" in switchboard.receipts, "it is given back", more_s=60.0)
            switchboard.closed = set()
            await until(lambda: switchboard.outcome(outbox_id) == "sent", "it is sent", more_s=60.0)
        assert platform.brought == [Received("Here.", (("a.txt", b"a"),))]
        assert not {"uncertain", "repeats", "files_refused"} & switchboard.heartbeats[-1]["counters"].keys()

    in_no_time(checked())


@pytest.mark.parametrize("size", [1, 3])
async def test_a_file_that_is_another_one_by_now_becomes_a_line(size: int) -> None:
    platform, switchboard = ScriptedPlatform(WITH_FILES), scripted()
    await platform.says("t", "send me")
    async with connector(platform.configured, switchboard):
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        outbox_id = switchboard.reply(switchboard.accepted[-1], "Here.", [("a.txt", b"aa")])
        switchboard.lose_files(outbox_id, b"b" * size)
        await until(lambda: bool(switchboard.outcome(outbox_id)), "the reply has an outcome")
    assert platform.brought == [Received("Here.\n\n[a.txt, 2 bytes: the file is another one by now]", ())]


async def test_a_session_that_hides_that_a_file_cannot_be_read_leaves_no_doubt() -> None:
    class Hides(Around):
        async def send(self, part: Part, key: str) -> Outcome:
            try:
                return await self.session.send(part, key)
            except ValueError:
                return Uncertain("something went wrong")

    platform, switchboard = Planted(WITH_FILES, HANDLING, defect=Hides), scripted()
    await platform.says("t", "send me")
    async with connector(platform.configured, switchboard):
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        outbox_id = switchboard.reply(switchboard.accepted[-1], "Here.", [("a.txt", b"a")])
        switchboard.lose_files(outbox_id)
        await until(lambda: bool(switchboard.outcome(outbox_id)), "the reply has an outcome")
    assert [one.text for one in platform.brought] == ["Here.\n\n[a.txt, 1 bytes: the file is not there any more]"]


async def test_the_lease_is_renewed_while_a_file_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "RENEW_S", 0.01)
    switchboard = scripted()

    class Slow(Around):
        async def send(self, part: Part, key: str) -> Outcome:
            before = switchboard.requests.count(parts[0])
            await until(lambda: switchboard.requests.count(parts[0]) >= before + 2, "the intent is recorded again")
            return await self.session.send(part, key)

    platform, parts = Planted(WITH_FILES, HANDLING, defect=Slow), list[str]()
    await platform.says("t", "send me")
    async with connector(platform.configured, switchboard):
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        outbox_id = switchboard.reply(switchboard.accepted[-1], "", [("a.txt", b"a")])
        parts.append(f"POST /v1/outbox/{outbox_id}/parts")
        await until(lambda: bool(switchboard.outcome(outbox_id)), "the reply has an outcome")
    assert [one.files for one in platform.brought] == [(("a.txt", b"a"),)]


async def test_who_has_lost_the_lease_sends_no_further_byte() -> None:
    """The process was stopped for longer than its lease while it sent: what it reads then is no file."""
    read, late = list[bytes](), [0.0]

    def clock() -> float:
        return asyncio.get_running_loop().time() + sum(late)

    class Stopped(Around):
        async def send(self, part: Part, key: str) -> Outcome:
            late.append(LEASE_S + 1)
            try:
                read.extend([piece async for piece in part.files[0].read()])
            except OSError as error:
                return Later(3600, str(error))
            return await self.session.send(part, key)

    platform, switchboard = Planted(WITH_FILES, HANDLING, defect=Stopped), scripted()
    event = {"external_event_id": "1", "external_thread_id": "t", "reply_address": {"thread": "t"}}
    outbox_id = switchboard.reply({"event": event, "sender": {"identity": "p"}}, "", [("a.txt", b"a")])
    async with switchboard.client() as http:
        api = Api(http, AccountPlace("api", "scripted:1", "i"))
        await api.lease()
        session = await platform.configured.manifest.open(platform.configured.account)
        sender = sending.ReplySender(session, api, WITH_FILES, "resend_marked", Health(clock), clock)
        running = asyncio.create_task(sender.run())
        await until(lambda: f"POST /v1/outbox/{outbox_id}/receipt" in switchboard.requests, "it gives the reply back")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert read == []
    assert platform.brought == []
