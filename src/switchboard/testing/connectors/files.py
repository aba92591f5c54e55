"""The laws of arriving files: fetched once, completely, before their message, and never blocking it.

Called by tests of channels like the other checks. A `FileDriver` lets a person send a file; a `LosingDriver` is for a
platform that may no longer have it. Next: `connectors/kernel/files.py`, which is checked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from switchboard.core.files.blobs import PREFIX
from switchboard.domain.json_values import JsonObject
from switchboard.testing.connectors.driver import FileDriver, LosingDriver
from switchboard.testing.connectors.killing import dies
from switchboard.testing.connectors.running import Death, around, connected, connector, scripted, until
from switchboard.testing.connectors.switchboard import ScriptedSwitchboard

UPLOAD: Final = "POST /v1/blobs"
FILE_DEATHS: Final = (Death("connector_uploaded"), *around("/ingest/files", "/blobs"))


async def check_a_file_is_fetched_once_and_arrives_as_it_was(driver: FileDriver) -> None:
    """A small file, one of arbitrary bytes, and one larger than a piece; if given again, it is not fetched again."""
    sent = [_make_file(number, size) for number, size in enumerate((1, 5_000, 200_000))]
    for number, data in enumerate(sent):
        await driver.brings("t", f"file {number}", data)
    switchboard = scripted()
    async with connector(driver.configured, switchboard) as running:
        await until(lambda: len(switchboard.accepted) == len(sent), "the messages are accepted")
        await running.killed()
    switchboard.cursor = None
    await driver.says("t", "the last")
    async with connector(driver.configured, switchboard):
        await until(lambda: len(switchboard.accepted) == len(sent) + 1, "the last one is accepted")
    _check_arrived(switchboard, switchboard.accepted[:-1], sent)
    uploads = switchboard.requests.count(UPLOAD)
    assert uploads == len(sent), f"{len(sent)} files were sent, and {uploads} uploaded"


async def check_a_kill_while_a_file_is_fetched_loses_and_doubles_nothing(driver: FileDriver) -> None:
    """Killed between upload and message, and around each request: each message arrives once, with its file."""
    switchboard, sent = scripted(), list[bytes]()
    for death in FILE_DEATHS:
        sent.append(_make_file(len(sent), 5_000))
        await driver.brings("t", f"file {len(sent)}", sent[-1])
        await dies(driver, switchboard, death)
    async with connector(driver.configured, switchboard):
        await until(lambda: len(switchboard.accepted) >= len(sent), "all messages are accepted")
    _check_arrived(switchboard, switchboard.accepted, sent)


async def check_a_file_for_which_there_is_no_room_keeps_no_message_back(driver: FileDriver) -> None:
    """The message says why it comes without the file."""
    await driver.brings("t", "a file", _make_file(0, 5_000))
    switchboard = scripted()
    switchboard.no_room = "all places are taken"
    async with connector(driver.configured, switchboard):
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
    [attachment] = switchboard.accepted[0]["payload"]["attachments"]
    assert "all places are taken" in attachment.get("unavailable", ""), f"it does not say why: {attachment}"


async def check_a_file_that_cannot_be_had_keeps_no_message_back(driver: LosingDriver) -> None:
    """Its message arrives in order, and says why it comes without the file."""
    await driver.brings("t", "a file", _make_file(0, 5_000))
    driver.loses_files()
    await driver.says("t", "behind it")
    async with connected(driver.configured) as switchboard:
        await until(lambda: len(switchboard.accepted) == 2, "both messages are accepted")
    [attachment] = switchboard.accepted[0]["payload"]["attachments"]
    assert attachment.get("unavailable"), f"it does not say why: {attachment}"
    assert "storage_ref" not in attachment, "a file that cannot be had was stored"


def _make_file(number: int, size: int) -> bytes:
    """Bytes that are unique for each piece and file."""
    return b"".join(b"%d:%d;" % (number, at) for at in range(size // 4 + 1))[:size]


def _check_arrived(switchboard: ScriptedSwitchboard, accepted: Sequence[JsonObject], sent: Sequence[bytes]) -> None:
    found = [[one.get("storage_ref") for one in message["payload"]["attachments"]] for message in accepted]
    assert all(len(one) == 1 for one in found), f"one file each was sent, and there arrived {found}"
    stored = [switchboard.blobs.get(str(ref).removeprefix(PREFIX)) for [ref] in found]
    differing = [number for number, (one, was) in enumerate(zip(stored, sent, strict=False)) if one != was]
    assert len(stored) == len(sent), f"{len(sent)} files were sent, and {len(stored)} arrived"
    assert not differing, f"these files arrived otherwise than they were sent: {differing}"
