"""The example connectors against a real server: a message in, its answer out, the receipt reported."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.documents import HOME
from tests.servers import CONNECTOR, Opened

EXAMPLES: Final = sorted(HOME.glob("src/switchboard/examples/connectors/*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
async def test_an_example_brings_a_message_in_its_answer_out_and_reports_it(answering: Opened, example: Path) -> None:
    told = {"SWITCHBOARD_URL": answering.url, "SWITCHBOARD_TOKEN": await answering.token_of(CONNECTOR)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(example), "telegram", "bot:house"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **told},
    )
    out, err = await asyncio.wait_for(process.communicate(b"anna are you there?\nhello\nbert and you?\n"), 60)
    assert (process.returncode, err.decode()) == (0, "not sent: a line is SENDER TEXT\n")
    anna, bert = out.decode().splitlines()
    assert (anna.startswith("anna "), "are you there?" in anna) == (True, True)
    assert (bert.startswith("bert "), "and you?" in bert) == (True, True)
    replies = (await answering.http.get("/v1/outbox")).json()["replies"]
    assert [reply["state"] for reply in replies] == ["sent", "sent"]
    message = (await answering.http.get(f"/v1/messages/{replies[0]['request_id']}")).json()
    assert message["facts"]["chat_type"] == "private"  # what the rule of the documentation asks for


def test_the_examples_are_about_fifty_lines() -> None:
    assert [path.stem for path in EXAMPLES] == ["over_http", "over_mcp"]
    for example in EXAMPLES:
        lines = [line for line in example.read_text(encoding="utf-8").splitlines() if line.strip()]
        assert len(lines) <= 55, example.name
