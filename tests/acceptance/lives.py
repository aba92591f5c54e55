"""Processes that run ten turns of three calls and are killed: what the model is asked in each, what is on record after.

`test_crash_points_turns.py` judges it; `tests/chaos/turns_run.py` measures how long the rest takes.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from switchboard.store.messages.inbox import Acceptance
from switchboard.testing.scripted_llm import Call, Hang, Reply, Request, ScriptedLlm
from tests.acceptance.model_node import CONVERSATIONS
from tests.forked import Forks
from tests.lab import Lab, submission

CALLS: Final = ("look", "pay", "look")
REQUESTS: Final = range(1, len(CALLS) + 2)
COMPACTION: Final = 0
PEOPLE: Final = [f"c{n}" for n in range(CONVERSATIONS)]
Asked = tuple[str, int]
"""Whom a request was for, and which of the turn it was, or that it was for compaction."""


def asked(request: Request) -> Asked:
    if request.system.startswith("You condense"):
        return re.findall(r"bees of (c\d)", request.prompt)[0], COMPACTION
    who = request.prompt.splitlines()[-1].removeprefix("> ").removeprefix("for ")
    return who, 1 + sum(said.role == "tool" for said in request.messages)


def brain(request: Request) -> Reply:
    who, n = asked(request)
    if n == COMPACTION:
        fact = {"text": f"I keep the bees of {who}", "value": f"the bees of {who}", "entry": 3, "subject": "self"}
        return Reply(text=json.dumps({"summary": f"Keeps the bees of {who}.", "facts": [fact]}))
    if n <= len(CALLS):
        return Reply(thinking=f"Request {n}.", calls=(Call(CALLS[n - 1], {"who": who}),))
    return Reply(text=f"done for {who}")


class Lives:
    """Processes that work, one after the other; what the model is asked in each, and what is on record after it."""

    def __init__(
        self,
        forks: Forks,
        parts: Lab,
        url: str,
        place: Path,
        *,
        hang_at: int | None = None,
        latency: float = 0.0,
    ) -> None:
        """With `hang_at`, an answer to that request of a turn hangs once in each life, and the process is killed.

        `latency`: the seconds before every answer.
        """
        self.forks, self.parts, self.url, self.place = forks, parts, url, place
        self.llm = ScriptedLlm(self._reply, strict=True)
        self.asked: list[Counter[Asked]] = []
        self.known: set[Asked] = set()
        """What is on record."""
        self._latency = latency
        self._hang_at = hang_at
        self._hung: str | None = None
        self._variant = ""

    def _reply(self, request: Request) -> Reply:
        gate = f"request {request.number}"
        asyncio.get_running_loop().call_later(self._latency, self.llm.release, gate)
        reply = replace(brain(request), gate=gate if self._latency else "")
        if asked(request)[1] != self._hang_at or self._hung in {None, self._variant}:
            return reply
        self._hung = self._variant
        return replace(reply, fault=Hang(gate=self._variant, at="middle"))

    async def live(self, variant: str, *, crash_at: str = "", hang: bool = False) -> int:
        """Until it has ended. With `crash_at` it kills itself there; with `hang` it is killed in an answer."""
        before = len(self.llm.requests)
        self._variant, self._hung = variant, "" if hang else None
        words = (self.url, self.llm.url, str(self.place / "trace"), variant)
        env, errors = os.environ | {"SWITCHBOARD_CRASH_AT": crash_at}, self.place / "errors"
        process = self.forks.start("tests.acceptance.model_node", *words, env=env, errors=errors)
        try:
            if hang:
                await asyncio.wait_for(self.llm.waiting(variant), 100)
                process.kill()
            code = await process.wait()
        finally:
            process.kill()
        assert code in (0, -signal.SIGKILL), errors.read_text()[-3000:]
        new = Counter(map(asked, self.llm.requests[before:]))
        assert not set(new) & self.known, "what is on record is asked again"
        self.known |= await self._on_record()
        self.asked.append(new)
        return code

    async def _on_record(self) -> set[Asked]:
        """Requests that are in the journal, and compactions that are stored."""
        rows = await self.parts.database.rows(
            "select m.sender, split_part(s.path, ':', 2)::int as n from step s join message_inbox m using (request_id) "
            "where s.path like 'request:%' and s.state = 'done' "
            "union all select m.sender, 0 from summary y join delivery d using (lane) "
            "join message_inbox m using (request_id)"
        )
        return {(row["sender"], row["n"]) for row in rows}


async def fill(parts: Lab) -> None:
    given = [submission(f"for {who}", channel="api", sender=who, event=who) for who in PEOPLE]
    assert all(isinstance(one, Acceptance) for one in await parts.accept.accept_all(given))
