"""`plans list`, `show` and `cancel`, and what `explain` says of plans: over HTTP and the command line."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from switchboard.app.messages.planned import plans_of
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.planning import Review
from switchboard.ports.tools import ToolOutcome, ToolScope
from switchboard.store.messages.inbox import Acceptance
from switchboard.store.work.approvals import StoredApprovals
from switchboard.store.work.stopping import stop_message
from switchboard.testing.scripted_llm import Call, Reply, ScriptedLlm
from tests.asking import spec
from tests.commands import Cli
from tests.hands import at_work, settled
from tests.lab import butler, lab, rule, submission, team_of
from tests.servers import Opened, open_server
from tests.trios import Given, plan, review, tool, trio_engine, writes
from tests.turning import Asked, Noting
from tests.waiting import SOON, eventually

PLAN = plan(
    tool("s1", "look", text="a"),
    tool("s2", "send", "s1", text="it \x1b[31mnow"),
    writes("s3", "s1"),
    review("s4", "s3"),
)
TAKES_S = 0.2
"""How long the tool that fails works."""
MORE = Review("extend", (tool("new", "look", text="b"),))


async def look(arguments: JsonMapping, _: ToolScope) -> ToolOutcome:
    if arguments["text"] == "b":
        await asyncio.sleep(TAKES_S)
        return ToolOutcome("the whole page says that it is gone", ok=False, why="status 404")
    return ToolOutcome("page a")


@dataclass(frozen=True)
class House:
    """A server whose clerk plans, and a worker."""

    server: Opened
    request_id: str

    async def got(self, path: str, status: int = 200, **params: Any) -> Any:
        answer = await self.server.http.get(path, params=params)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def plan(self) -> Any:
        [found] = (await self.got(f"/v1/plans/{self.request_id}"))["plans"]
        return found

    async def is_in(self, state: str) -> bool:
        found = (await self.got("/v1/plans"))["plans"]
        return bool(found) and found[0]["state"] == state


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[House]:
    team = team_of(butler("clerk", "trio", owners=["api:ann"]))
    async with (
        ScriptedLlm(lambda _: Reply(text="Written.")) as llm,
        open_server(database_url, tmp_path, tree=((team,), (rule("System1/clerk"),))) as server,
    ):
        models = Asked([spec("openai", llm.url, "m", timeout=20.0)])
        tools = [Noting("look", act=look), Noting("send", "effectful")]
        approvals = StoredApprovals(server.lab.database)
        given = Given(PLAN, [MORE] * 9, notes=("the router was not told of send: there was no space",))
        engine = trio_engine(models, given, tools, workspaces=tmp_path / "w", approvals=approvals)
        async with at_work(server.lab.worker({"trio": engine})):
            accepted = await server.lab.accept.accept(submission("do \x1b[31mit", channel="api", sender="ann"))
            assert isinstance(accepted, Acceptance)
            house = House(server, str(accepted.request_id))
            await eventually(lambda: house.is_in("waiting"))
            yield house
        await models.aclose()


def assert_timed(found: Any) -> None:
    """A failed call took its time although only its end was recorded, and waiting for people is told apart."""
    for one in (found, *found["steps"]):
        began, ended = (datetime.fromisoformat(one[name]) for name in (STARTS[one is found], "ended_at"))
        assert 0 <= one["seconds"] <= (ended - began).total_seconds() - one["waited"] + 0.001, one
    [late] = [one for one in found["steps"] if one["id"] == "s5"]
    assert late["seconds"] >= TAKES_S
    assert (found["waited"] > 0, late["waited"]) == (True, 0)


STARTS = {True: "began_at", False: "started_at"}


async def test_a_waiting_plan_resumes_when_approved_and_is_shown_throughout(house: House) -> None:
    found = await house.plan()
    assert (found["state"], found["action"], found["source"], found["ended_at"]) == (
        "waiting",
        "pipeline",
        "exact",
        None,
    )
    states = {one["id"]: one["state"] for one in found["steps"]}
    assert states == {"s1": "done", "s2": "waiting", "s3": "done", "s4": "done", "s5": "failed"}
    [late] = [one for one in found["steps"] if one["id"] == "s5"]
    assert (late["target"], late["args"], late["why"]) == ("look", {"text": "b"}, "status 404")
    assert found["notes"] == ["s4: the router was not told of send: there was no space"]
    assert 0 < found["tokens"] <= found["token_budget"] == 20_000
    [asked] = (await house.got("/v1/approvals"))["approvals"]
    assert (await house.server.http.post(f"/v1/approvals/{asked['approval_id']}/approve")).status_code == 200
    await eventually(lambda: house.is_in("answered"))
    found = await house.plan()
    assert {one["id"]: one["state"] for one in found["steps"]}["s2"] == "done"
    assert found["ended_at"] is not None
    assert_timed(found)
    explained = await house.got(f"/v1/messages/{house.request_id}/explain")
    assert explained["plans"] == [found]
    assert [one["reply"]["text"].splitlines()[0] for one in explained["replies"]][-1] == "Written."
    assert (await house.got("/v1/plans", running=True))["plans"] == []
    [listed] = (await house.got("/v1/plans", limit=1))["plans"]
    assert (listed["done"], listed["ended"], listed["steps"]) == (4, 5, [])
    assert (await house.got("/v1/plans/00000000-0000-7000-8000-000000000000", 404))["error"]["code"] == "not_found"


async def test_the_commands_show_a_plan_and_end_it(
    house: House, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(cli: Cli) -> None:
        said = cli.says("plans", "list")
        assert "waiting" in said
        assert "\x1b[31m" not in said
        said = cli.says("plans", "show", house.request_id)
        assert re.search(r"\+\d+\.\d s, 0\.[2-9] s", said), "the failed call"
        for part in ("System1/clerk: pipeline", "3/5", "of 20000 tokens", "s5: status 404", "s1", "synthesize"):
            assert part in said, part
        assert "\x1b[31m" not in said
        monkeypatch.setenv("COLUMNS", "100")
        assert '    {"text": "it \\u001b[31mnow"}' in cli.says("plans", "show", house.request_id).splitlines()
        monkeypatch.setenv("COLUMNS", "200")
        assert all(part in cli.says("explain", house.request_id) for part in ("plan of", "✓ step s1", "✗ step s5"))
        assert cli.says("plans", "cancel", house.request_id).strip() == "stop requested"
        said = cli.says("plans", "show", house.request_id, "--follow")
        assert "answered" in said
        assert "cancelled" in said
        assert [one["state"] for one in cli.json("plans", "show", house.request_id)["plans"]] == ["answered"]
        assert cli.json("plans", "list", "--running")["plans"] == []

    await asyncio.to_thread(work, Cli(capsys, monkeypatch, house.server.environment))
    attempts = (await house.got(f"/v1/messages/{house.request_id}/explain"))["deliveries"][0]["attempts"]
    assert attempts[-1]["stop_reason"] == "aborted"


async def test_a_specialist_whose_call_awaits_approval_is_shown_as_waiting(database_url: str, tmp_path: Path) -> None:
    team = team_of(butler("clerk", "trio", owners=["api:ann"], approve=["send"]))
    steps = plan(writes("s1", action="specialist_with_tools"), tool("s10", "look", text="a"))
    async with (
        ScriptedLlm([Reply(calls=(Call("send", {"text": "it"}),))]) as llm,
        lab(database_url, [team], [rule("System1/clerk")]) as parts,
    ):
        models, approvals = Asked([spec("openai", llm.url, "m")]), StoredApprovals(parts.database)
        tools = [Noting("look", act=look), Noting("send", "effectful")]
        engine = trio_engine(models, Given(steps), tools, workspaces=tmp_path / "w", approvals=approvals)
        async with at_work(parts.worker({"trio": engine})):
            accepted = await parts.accept.accept(submission("look", channel="api", sender="ann"))
            assert isinstance(accepted, Acceptance)

            async def waits() -> bool:
                return [one.state for one in await plans_of(parts.database, accepted.request_id)] == ["waiting"]

            await eventually(waits)
            [found] = await plans_of(parts.database, accepted.request_id)
            assert [(one.id, one.state) for one in found.steps] == [("s1", "waiting"), ("s10", "done")]
        await models.aclose()


async def test_a_plan_that_runs_ends_though_its_worker_is_not_told(database_url: str, tmp_path: Path) -> None:
    team, begun = team_of(butler("clerk", "trio", owners=["api:ann"])), asyncio.Event()

    async def hangs(arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        if arguments["text"] == "a":
            return await look(arguments, scope)
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    steps = plan(tool("s1", "look", text="a"), tool("s2", "look", text="c"), writes("s3", "s1 s2"))
    async with (
        ScriptedLlm([]) as llm,
        lab(database_url, [team], [rule("System1/clerk")]) as parts,
    ):
        models = Asked([spec("openai", llm.url, "m")])
        engine = trio_engine(models, Given(steps), [Noting("look", act=hangs)], workspaces=tmp_path / "w")
        async with at_work(parts.worker({"trio": engine})):
            accepted = await parts.accept.accept(submission("look", channel="api", sender="ann"))
            assert isinstance(accepted, Acceptance)
            await asyncio.wait_for(begun.wait(), SOON)
            assert len(await stop_message(parts.database, accepted.request_id)) == 1
            await eventually(lambda: settled(parts))
        await models.aclose()
        [reply] = await parts.replies_to(accepted.request_id)
        assert reply.startswith("page a\n\nI was stopped before I was done. Not done:\n- look c (cancelled: stopped)")
        [found] = await plans_of(parts.database, accepted.request_id)
        assert [(one.id, one.state) for one in found.steps] == [
            ("s1", "done"),
            ("s2", "cancelled"),
            ("s3", "cancelled"),
        ]
        assert await parts.count("select count(*) from attempt where stop_reason = 'aborted'") == 1


@pytest.mark.parametrize(
    ("path", "why"), [("plan:route", "its format is 99"), ("plan:start", "missing required field")]
)
async def test_a_plan_of_another_release_is_called_unreadable_and_hides_no_other(
    house: House, path: str, why: str
) -> None:
    odd = {"format": 99, "action": "dream"} if path == "plan:route" else {}
    await house.server.lab.database.run(
        "update step set result = $2::text::json where path = $1", path, json.dumps(odd)
    )
    assert len((await house.got("/v1/plans"))["plans"]) == 1
    [note] = (await house.plan())["notes"]
    assert note.startswith("this release cannot read what is on record of the plan: ")
    assert why in note
    assert (await house.got(f"/v1/messages/{house.request_id}/explain"))["plans"] == [await house.plan()]
