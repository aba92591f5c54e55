"""Files that arrive through the kernel, and what goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from switchboard.connectors.kernel import files
from switchboard.connectors.kernel.intake import Handling
from switchboard.domain.json_values import JsonObject
from switchboard.testing.connectors import ScriptedPlatform, ScriptedSwitchboard
from switchboard.testing.connectors.platform import CAPABILITIES
from switchboard.testing.connectors.running import Death, connector, scripted, texts, until

UPLOAD = "POST /v1/blobs"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(5000)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_AGAIN_S", 0.001)


# What goes wrong -----------------------------------------------------------------------------------------------------


def attachments(switchboard: ScriptedSwitchboard) -> list[JsonObject]:
    return [one for message in switchboard.accepted for one in message["payload"]["attachments"]]


async def received(platform: ScriptedPlatform, switchboard: ScriptedSwitchboard, count: int = 1) -> None:
    async with connector(platform.configured, switchboard):
        await until(lambda: len(switchboard.accepted) == count, "the messages are accepted")
        await until(lambda: switchboard.cursor == str(len(platform.events)), "the cursor is behind them")


async def test_while_a_file_is_slow_its_conversation_waits_and_the_others_go_on() -> None:
    platform, switchboard, released = ScriptedPlatform(), scripted(), asyncio.Event()

    async def slow(number: int) -> AsyncIterator[bytes]:
        await released.wait()
        yield platform.files[number]

    platform.fetching = slow
    await platform.brings("a", "slow", PNG)
    await platform.says("a", "behind it")
    await platform.says("b", "elsewhere")
    async with connector(platform.configured, switchboard):
        await until(lambda: bool(platform.fetched and switchboard.accepted), "the other conversation goes on")
        await platform.says("b", "elsewhere again")
        await until(lambda: len(switchboard.accepted) == 2, "and on")
        assert (texts(switchboard.accepted), switchboard.cursor) == (["elsewhere", "elsewhere again"], None)
        released.set()
        await until(lambda: switchboard.cursor == "4", "all is settled")
    assert texts(switchboard.accepted) == ["elsewhere", "elsewhere again", "slow", "behind it"]
    assert attachments(switchboard)[0]["media_type"] == "image/png", "as the server has found"


async def test_a_file_is_tried_three_times_and_then_its_message_says_why() -> None:
    platform, switchboard = ScriptedPlatform(), scripted()

    async def broken(number: int) -> AsyncIterator[bytes]:
        yield platform.files[number][:10]
        raise OSError("cut\noff")

    platform.fetching = broken
    await platform.brings("t", "broken", PNG)
    await received(platform, switchboard)
    [attachment] = attachments(switchboard)
    assert attachment["unavailable"] == "it could not be fetched: OSError cut off"
    assert (len(platform.fetched), switchboard.blobs) == (3, {})


async def test_what_does_not_come_within_a_minute_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WITHIN_S", 0.1)
    platform, switchboard = ScriptedPlatform(), scripted()

    async def silent(number: int) -> AsyncIterator[bytes]:
        yield platform.files[number][:10]
        await asyncio.Event().wait()

    platform.fetching = silent
    await platform.brings("t", "silent", PNG)
    await received(platform, switchboard)
    assert "within" in attachments(switchboard)[0]["unavailable"]


async def endless(pieces: list[int]) -> AsyncIterator[bytes]:
    while True:
        pieces.append(1)
        yield bytes(10_000)


async def test_a_file_that_is_larger_than_it_says_is_cut_off_where_the_limit_is() -> None:
    platform = ScriptedPlatform(replace(CAPABILITIES, max_file_in=100_000))
    switchboard, pieces = scripted(), list[int]()
    platform.fetching = lambda _: endless(pieces)
    await platform.brings("t", "endless", b"x")
    await received(platform, switchboard)
    assert "more than 100000 bytes" in attachments(switchboard)[0]["unavailable"]
    assert (len(pieces), switchboard.blobs) == (11, {})


@pytest.mark.parametrize(
    ("handling", "most_bytes", "why"),
    [
        (Handling(start="all", file_bytes=100), 10_000_000, "at most 100 are taken"),
        (Handling(start="all"), 50, "at most 50 are taken"),
        (Handling(start="all", file_types=("image/*",)), 10_000_000, "application/octet-stream are not taken"),
    ],
)
async def test_what_is_known_to_be_unwanted_is_never_asked_for(handling: Handling, most_bytes: int, why: str) -> None:
    platform, switchboard = ScriptedPlatform(handling=handling), scripted()
    switchboard.most_bytes = most_bytes
    await platform.brings("t", "large", bytes(1000))
    await received(platform, switchboard)
    assert why in attachments(switchboard)[0]["unavailable"]
    assert (platform.fetched, UPLOAD in switchboard.requests) == ([], False)


async def test_a_file_claiming_a_wanted_type_is_inspected_before_its_upload() -> None:
    handling = Handling(start="all", file_types=("application/octet-stream",))
    platform, switchboard = ScriptedPlatform(handling=handling), scripted()
    await platform.brings("t", "an image", PNG)
    await received(platform, switchboard)
    assert attachments(switchboard)[0]["unavailable"] == "files of the type image/png are not taken"
    assert switchboard.blobs == {}


async def test_with_no_bytes_allowed_attachments_stay_as_the_platform_gave_them() -> None:
    platform, switchboard = ScriptedPlatform(handling=Handling(start="all", file_bytes=0)), scripted()
    await platform.brings("t", "a file", PNG)
    await received(platform, switchboard)
    assert attachments(switchboard)[0].keys() & {"unavailable", "storage_ref"} == set()
    assert "POST /v1/ingest/files" not in switchboard.requests


async def test_files_of_strangers_are_not_fetched_and_the_message_says_so() -> None:
    platform, switchboard = ScriptedPlatform(), scripted()
    switchboard.strangers.add("person of t")
    await platform.brings("t", "from a stranger", PNG)
    await received(platform, switchboard)
    assert "had not been approved" in attachments(switchboard)[0]["unavailable"]
    assert platform.fetched == []


async def test_what_is_kept_as_history_is_not_fetched() -> None:
    platform, switchboard = ScriptedPlatform(), scripted()
    platform.add("t", "overheard", files=[PNG], direct=False)
    platform.add("t", "edited", files=[PNG], event={"kind": "edit", "refers_to": "1"})
    await received(platform, switchboard, 2)
    assert platform.fetched == []


async def test_an_edit_answered_again_has_its_file_without_another_download() -> None:
    platform, switchboard = ScriptedPlatform(handling=Handling(start="all", on_edit="again")), scripted()
    first = platform.add("t", "a file", files=[PNG])
    edit = platform.add("t", "the file", files=[PNG], event={"kind": "edit", "refers_to": "1"})
    platform.events[1] = replace(edit, files=first.files)
    await received(platform, switchboard, 2)
    one, other = attachments(switchboard)
    assert one["storage_ref"] == other["storage_ref"]
    assert (platform.fetched, switchboard.requests.count(UPLOAD)) == ([100], 1)


async def test_an_album_cut_off_after_its_first_file_is_one_message_with_three() -> None:
    platform, switchboard = ScriptedPlatform(), scripted()
    for number in range(3):
        platform.add("t", "look", album="a", files=[b"photo %d" % number])
    death = Death("connector_uploaded")
    async with connector(platform.configured, switchboard, death) as dying:
        await until(dying.dead.is_set, "it dies")
        await dying.killed()
    assert switchboard.accepted == []
    await received(platform, switchboard)
    [message] = switchboard.accepted
    assert message["event"]["also"] == ["2", "3"]
    stored = [switchboard.blobs[one["storage_ref"].removeprefix("blob:")] for one in attachments(switchboard)]
    assert stored == [b"photo 0", b"photo 1", b"photo 2"]


async def test_a_message_in_quarantine_is_replayed_with_its_file() -> None:
    platform, switchboard = ScriptedPlatform(), scripted()
    await platform.brings("t", "refused", PNG)
    switchboard.refusal = lambda _: "invalid_value"
    async with connector(platform.configured, switchboard):
        await until(lambda: switchboard.cursor == "1", "it is settled")
    switchboard.refusal, switchboard.blobs = lambda _: None, {}
    switchboard.replays = ["1"]
    async with connector(platform.configured, switchboard):
        await until(lambda: not switchboard.replays, "it is replayed")
    assert list(switchboard.blobs.values()) == [PNG]
    assert attachments(switchboard)[0]["storage_ref"] == f"blob:{next(iter(switchboard.blobs))}"


async def test_an_outage_of_the_switchboard_costs_no_file() -> None:
    platform, switchboard = ScriptedPlatform(), scripted()
    switchboard.closed = {"/v1/blobs", "/v1/ingest/files"}
    await platform.brings("t", "a file", PNG)
    async with connector(platform.configured, switchboard):
        await until(lambda: switchboard.requests.count("POST /v1/ingest/files") > 5, "it waits")
        switchboard.closed = set()
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
    assert attachments(switchboard)[0]["storage_ref"]
