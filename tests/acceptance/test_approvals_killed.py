"""A turn waits for an approval while its workers are killed: four messages, four replies, and the call is made once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from switchboard.domain.shown import ShownApproval
from switchboard.journey.approving import ApprovalDecision, decide
from switchboard.store.work import approvals as store
from switchboard.testing.scripted_llm import Call, Reply, Request, ScriptedLlm
from tests.acceptance.approving_node import TEAM
from tests.forked import Forked, Forks
from tests.hands import assert_balanced
from tests.lab import Lab, lab, rule, submission
from tests.waiting import eventually

pytestmark = pytest.mark.slow

LATER = ("one", "two", "three")


def brain(request: Request) -> Reply:
    last = request.messages[-1]
    said = last.text.splitlines()[-1].removeprefix("> ")
    if last.role == "tool":
        return Reply(text=f"done: {last.text}")
    return Reply(calls=(Call("pay", {"who": "noor"}),)) if said == "pay" else Reply(text=f"heard {said}")


@contextmanager
def living(forks: Forks, place: Path, url: str, llm: ScriptedLlm, crash_at: str = "") -> Iterator[Forked]:
    """A worker, which is killed at the end unless it has killed itself."""
    env = os.environ | {"SWITCHBOARD_CRASH_AT": crash_at}
    words = (url, llm.url, str(place / "trace"))
    process = forks.start("tests.acceptance.approving_node", *words, env=env, errors=place / "errors")
    try:
        yield process
    finally:
        process.kill()


async def say(parts: Lab, *texts: str) -> None:
    for text in texts:
        await parts.accept.accept(submission(text, channel="api", sender="x", event=text))


async def replies(parts: Lab) -> list[str]:
    rows = "select text from outbox where system_id <> 'switchboard' order by created_at, seq"
    return [row["text"] for row in await parts.database.rows(rows)]


async def waiting(parts: Lab) -> list[ShownApproval]:
    """What waits, once its turn holds no worker."""
    if not await parts.count("select count(*) from parked"):
        return []
    return await store.list_approvals(parts.database, "pending", None, 9)


async def heard(parts: Lab, count: int) -> bool:
    return len(await replies(parts)) == count and bool(await waiting(parts))


@pytest.mark.parametrize(
    ("asking", "doing"),
    [
        ("", "before_step:1:tool"),
        ("after_expect:1", "before_journal:1:tool"),
        ("before_park:1", "before_complete:1"),
        ("after_park:1", "after_complete:1"),
    ],
)
async def test_workers_may_die_while_a_person_thinks(
    database_url: str, tmp_path: Path, forks: Forks, asking: str, doing: str
) -> None:
    """`asking`: where the first dies, before the decision; `doing`: where another one dies, after it."""
    async with (
        lab(database_url, [TEAM], [rule("System1/clerk")]) as parts,
        ScriptedLlm(brain, strict=True) as llm,
    ):
        await say(parts, "pay")
        with living(forks, tmp_path, database_url, llm, asking) as first:
            if asking:
                assert await first.wait() == -signal.SIGKILL
            else:
                await eventually(lambda: waiting(parts))
        await say(parts, *LATER)
        with living(forks, tmp_path, database_url, llm):
            await eventually(lambda: heard(parts, len(LATER)))
        [asked] = await waiting(parts)
        await decide(parts.database, parts.notifier, asked, ApprovalDecision("approved", "a test"))
        with living(forks, tmp_path, database_url, llm, doing) as third:
            assert await third.wait() == -signal.SIGKILL
        await say(parts, "last")
        with living(forks, tmp_path, database_url, llm):
            await eventually(lambda: _count(parts, len(LATER) + 2))
        said = [f"heard {text}" for text in LATER]
        assert await replies(parts) == [*said, "done: pay for noor", "heard last"]
        calls = (tmp_path / "trace").read_text().splitlines()
        assert len(set(calls)) == 1, "it has one key, no matter which process repeats it"
        assert len(calls) == (2 if doing.startswith("before_journal") else 1)
        told = "select count(*) from outbox where system_id = 'switchboard'"
        assert await parts.count(told) == 1, "the person hears of it once"
        roles = [said.role for said in llm.requests[-1].messages if said.role != "system"]
        assert roles == ["user", "assistant"] * 3 + ["user", "assistant", "tool", "assistant", "user"]
        assert await parts.count("select count(*) from dead_letter") == 0
        await assert_balanced(parts)


async def _count(parts: Lab, count: int) -> bool:
    return len(await replies(parts)) == count
