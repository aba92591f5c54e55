"""A whole installation is saved while it works, and works elsewhere: same people, same messages, same answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from switchboard.testing.bot_api import TOKEN, BotApi
from tests.processes import environment, running, switchboard

pytestmark = pytest.mark.slow
BEN: dict[str, Any] = {"id": 41, "is_bot": False, "first_name": "Ben"}


async def run(env: Mapping[str, str], place: Path, *arguments: str | Path, given: str | None = None) -> dict[str, Any]:
    """What a command says with --json, given in a directory."""
    done = await asyncio.to_thread(switchboard, env, *arguments, "--json", given=given, cwd=place)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


async def answer(api: BotApi, text: str, *, parts: int = 1) -> str:
    """What is answered in Telegram, in so many messages; the last of them."""
    before = len(api.texts)
    api.people.say(text, user=BEN)
    await asyncio.wait_for(api.until(lambda: len(api.texts) >= before + parts), 60)
    return api.texts[-1]


@asynccontextmanager
async def at_work(env: Mapping[str, str], place: Path) -> AsyncIterator[Mapping[str, str]]:
    """`switchboard up` in a directory; the environment of its clients."""
    starting = running(env, "up", cwd=place)
    server = await asyncio.to_thread(starting.__enter__)
    try:
        yield server.environment
    finally:
        await asyncio.to_thread(starting.__exit__, None, None, None)


async def test_an_installation_moves(place: Path) -> None:
    env = {name: value for name, value in environment(place).items() if name != "SWITCHBOARD_DATA_DIR"}
    old, new, file, passphrase = place / "old", place / "new house", place / "all.tar", place / "passphrase"
    passphrase.write_text("correct horse battery\n")
    await run(env, place, "init", old, "--yes", "--model", "none")
    async with BotApi() as api:
        async with at_work(env, old) as client:
            options = ("--set", f"api_url={api.url}", "--set", "poll_s=1", "--secret-file", "-")
            added = await run(client, old, "channels", "add", "telegram", "bot", *options, given=TOKEN)
            await asyncio.wait_for(api.until(lambda: api.polling), 60)
            assert "operator must approve" in await answer(api, "The heron is in the pond")
            code = f"/start {added['pairing']['code']}"
            assert (await answer(api, code, parts=2)).startswith("Filed"), "the code is confirmed, then what waited"
            assert "The heron is in the pond" in await answer(api, "Where is the heron?")
            note = old / "data/workspaces/butler/note.txt"
            note.parent.mkdir(parents=True)
            note.write_text("kept")
            saved = await run(client, old, "backup", file, "--passphrase-file", passphrase)
            assert (saved["secrets"], saved["left_out"]) == ("encrypted", [])
        assert TOKEN.encode() not in file.read_bytes()
        old.rename(place / "gone")
        restored = await run(env, place, "restore", file, new, "--passphrase-file", passphrase)
        assert (restored["give_again"], restored["left_out"]) == ([], [])
        assert restored["open"] == {"messages": 0, "replies": 0}
        async with at_work(env, new) as client:
            await asyncio.wait_for(api.until(lambda: api.polling), 60)
            found = await answer(api, "And where is the heron now?")
            assert (found.startswith("Filed"), "The heron is in the pond" in found) == (True, True), "no stranger"
            assert (await run(client, new, "doctor"))["healthy"] is True
            listed = await run(client, new, "messages", "list")
            assert "The heron is in the pond" in json.dumps(listed)
        assert (new / "data/workspaces/butler/note.txt").read_text() == "kept"
