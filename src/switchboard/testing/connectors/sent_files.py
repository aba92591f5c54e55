"""The laws of files sent with replies: each once and complete, or marked, and after its text if it can have none.

Next: `checks.py`, all laws.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

from switchboard.connectors.kernel.parts import REPEAT_NOTE, ReplyDestination, plan
from switchboard.ports.connector import FileOut
from switchboard.testing.connectors.driver import CaptionDriver, Named, Received, SentFileDriver
from switchboard.testing.connectors.killing import dies
from switchboard.testing.connectors.running import Death, connected, connector, until


async def check_a_kill_in_a_reply_with_files_loses_and_doubles_none(driver: SentFileDriver) -> None:
    """A text and two files, killed at each point of each part: each is sent once, or again and marked, or uncertain."""
    await driver.says("t", "send me")
    async with connected(driver.configured) as switchboard:
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
    for number, death in enumerate(_deaths_of(driver), 1):
        text, files = f"{number}. Here they are.", _make_files(number)
        outbox_id = switchboard.reply(switchboard.accepted[0], text, files)
        before = len(await driver.received())
        await dies(driver, switchboard, death)
        async with connector(driver.configured, switchboard):
            await until(partial(switchboard.outcome, outbox_id), "the reply has an outcome")
        _check_whole((text, files), list(await driver.received())[before:], switchboard.outcome(outbox_id))


async def check_a_file_without_a_caption_comes_after_its_text(driver: CaptionDriver) -> None:
    """A short text and a file of a kind with which no text can go: two parts, in this order; with another file, one."""
    await driver.says("t", "send me")
    silent, other = (driver.captionless, b"\x01" * 500), ("a.txt", b"a file")
    async with connected(driver.configured) as switchboard:
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        for file in (silent, other):
            outbox_id = switchboard.reply(switchboard.accepted[0], "Here it is.", [file])
            await until(partial(switchboard.outcome, outbox_id), "the reply has an outcome")
            assert switchboard.outcome(outbox_id) == "sent", f"a reply with a file is {switchboard.outcome(outbox_id)}"
    found = [(one.text, [name for name, _ in one.files]) for one in await driver.received()]
    expected = [("Here it is.", []), ("", [silent[0]]), ("Here it is.", [other[0]])]
    assert found == expected, f"expected {expected}, and found {found}"


def _make_files(number: int) -> tuple[Named, Named]:
    return (f"{number}-a.bin", bytes(range(256)) * 300 + b"%d" % number), (f"{number}-b.txt", b"the second %d" % number)


def _deaths_of(driver: SentFileDriver) -> list[Death]:
    """Deaths at each point of each part, and after the requests that only files need."""
    capabilities = driver.configured.manifest.capabilities
    files = [FileOut(name, "application/octet-stream", len(data), _no_bytes) for name, data in _make_files(1)]
    parts = len(plan("1. Here they are.", files, capabilities, ReplyDestination({})))
    points = [Death(f"connector_{at}", n) for n in range(1, parts + 1) for at in ("intended", "sent", "recorded")]
    return [*points, *(Death(path, processed=True) for path in ("/parts", "/files/0", "/files/1", "/receipt"))]


async def _no_bytes() -> AsyncIterator[bytes]:
    yield b""


def _check_whole(reply: tuple[str, Sequence[Named]], received: Sequence[Received], outcome: str) -> None:
    text, files = reply
    assert outcome in {"sent", "uncertain"}, f"the reply is {outcome}"
    seen = set[tuple[str, tuple[Named, ...]]]()
    for one in received:
        plain = one.text.replace(REPEAT_NOTE, "").strip(), one.files
        assert plain not in seen or REPEAT_NOTE in one.text, (
            f"it was repeated without a word: {_describe_files(one.files)}"
        )
        seen.add(plain)
    words = list(dict.fromkeys(filter(None, (one.text.replace(REPEAT_NOTE, "").strip() for one in received))))
    found = list(dict.fromkeys(file for one in received for file in one.files))
    wanted = list(files) if outcome == "sent" else list(files)[: len(found)]
    assert words == [text] or (outcome == "uncertain" and not words), f"other words arrived: {words}"
    assert found == wanted, f"{_describe_files(files)} were sent, and {_describe_files(found)} arrived"


def _describe_files(files: Sequence[Named]) -> list[str]:
    return [f"{name} of {len(data)} bytes" for name, data in files]
