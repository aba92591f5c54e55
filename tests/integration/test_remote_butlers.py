"""Remote butlers in the register: heartbeats, endpoints, who is there, and what becomes of messages when one is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from msgspec.structs import replace
from pydantic import SecretStr

from switchboard.agents.mcp import McpEngine
from switchboard.app.access import Principal
from switchboard.app.ops.doctor import check_database
from switchboard.app.settings import Settings
from switchboard.core.policy.liveness import LivenessPolicy
from switchboard.domain.classification import Candidate
from switchboard.domain.routing import Classified, Member, Route, SystemId, Target
from switchboard.journey.ask import Question
from switchboard.journey.rulebook import RuleBook
from switchboard.journey.turn import TurnLimits
from switchboard.lanes.notifier import RULES, Notifier
from switchboard.ports.engine import Engine, Journal
from switchboard.store.people import audit
from switchboard.store.rules import remote_agents, teams
from switchboard.testing.echo import Echo
from tests.hands import all_dead_letters, assert_balanced, at_work, settled, turns
from tests.lab import ROOT, Lab, butler, lab, rule, submission, team_of
from tests.remotes import TOKEN, Remote, a_remote
from tests.servers import Opened, Tree, open_server
from tests.waiting import eventually

FAR, NEAR = SystemId("System1/far"), SystemId("System1/near")
PUBLIC_URL = "https://93.184.215.14/mcp"
"""A public address by number, so that nobody is asked for it."""
FAR_TOKEN = Principal("agent", "far", system_id=FAR)
NEAR_TOKEN = Principal("agent", "near", system_id=NEAR)


def far(**options: Any) -> Member:
    return butler("far", "mcp", **{"url": PUBLIC_URL, **options})


def far_away(name: str, **options: Any) -> Member:
    return butler(name, "mcp", **{"url": f"{PUBLIC_URL}/{name}", **options})


def tree(*members: Member, classify: bool = False) -> Tree:
    """A root with these butlers; messages from telegram go to the first."""
    rules = () if classify else (rule(members[0].system_id, channel="telegram"),)
    return (team_of(*members, "System4/root", purpose="everything", classify=classify),), rules


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMOTE_TOKEN", TOKEN)


async def silent_for(parts: Lab, seconds: float, system_id: str = FAR, *, promised: bool = True) -> None:
    """As if it had been silent for so long."""
    await parts.database.run(
        """update member set promised = $3, last_seen_at = clock_timestamp() - make_interval(secs => $2)
           where system_id = $1""",
        *(system_id, seconds, promised),
    )
    await parts.rule_book.look_around()


# Heartbeats and endpoints ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def server_with(database_url: str, tmp_path: Path, *members: Member) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data", tree=tree(*members)) as opened:
        yield opened


async def beat(server: Opened, header: Mapping[str, str], **said: Any) -> httpx2.Response:
    return await server.http.post("/v1/agents/heartbeat", json=said, headers=header)


async def agent(server: Opened, system_id: str = FAR) -> dict[str, Any]:
    agents: list[dict[str, Any]] = (await server.http.get("/v1/agents")).json()["agents"]
    return next(one for one in agents if one["system_id"] == system_id)


async def actions(server: Opened) -> list[str]:
    return [entry.action for entry in await audit.list_entries(server.lab.database)][::-1]


async def test_a_butler_announces_itself_and_beats(database_url: str, tmp_path: Path) -> None:
    async with server_with(database_url, tmp_path, far(), far_away("near")) as server:
        header = await server.token_for(FAR_TOKEN)
        assert (await agent(server))["liveness"] == "unwatched"
        first = await beat(server, header, description="knows the sea", capabilities=["tides"], instance_id="a")
        assert first.status_code == 200, first.text
        assert first.json()["liveness"] == "active"
        assert first.json()["interval_s"] == 100
        assert (await beat(server, header)).status_code == 200
        shown = await agent(server)
        assert (shown["description"], shown["capabilities"], shown["liveness"]) == (
            "knows the sea",
            ["tides"],
            "active",
        )
        assert shown["endpoint"] == PUBLIC_URL
        assert shown["last_seen_at"] is not None
        assert (await agent(server, NEAR))["last_seen_at"] is None
        assert [a for a in await actions(server) if a.startswith("agent:")] == ["agent:announced"]


@pytest.fixture
def rung(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that were rung in this process."""
    topics: list[str] = []
    really = Notifier.notify

    def ring(notifier: Notifier, topic: str) -> None:
        topics.append(topic)
        really(notifier, topic)

    monkeypatch.setattr(Notifier, "notify", ring)
    return topics


async def test_something_new_is_announced_once_in_five_seconds(
    database_url: str, tmp_path: Path, rung: list[str]
) -> None:
    async with server_with(database_url, tmp_path, far(announces_endpoint=True), far_away("near")) as server:
        header, near = await server.token_for(FAR_TOKEN), await server.token_for(NEAR_TOKEN)
        assert (await beat(server, header, description="first", instance_id="a")).status_code == 200
        for said in ({"description": "second"}, {"capabilities": ["x"]}, {"endpoint": "https://1.1.1.1/mcp"}):
            refused = await beat(server, header, **said)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "overloaded"), said
            assert 1 <= int(refused.headers["retry-after"]) <= 5
        shown = await agent(server)
        assert (shown["description"], shown["capabilities"], shown["endpoint"]) == ("first", [], PUBLIC_URL)
        assert rung.count(RULES) == 1
        assert (await beat(server, header, description="first", instance_id="b")).status_code == 200, "without changes"
        assert (await beat(server, near, description="mine")).status_code == 200, "each butler by itself"
        await server.lab.database.run("update member set announced_at = announced_at - interval '5 s'")
        assert (await beat(server, header, description="second")).status_code == 200
        announced = [a for a in await actions(server) if a.startswith("agent:")]
        assert announced == ["agent:announced"] * 3
        assert rung.count(RULES) == 3


async def test_a_mere_heartbeat_rings_only_when_it_brings_him_back(
    database_url: str, tmp_path: Path, rung: list[str]
) -> None:
    async with server_with(database_url, tmp_path, far()) as server:
        header = await server.token_for(FAR_TOKEN)

        async def ringing(**said: Any) -> int:
            before = rung.count(RULES)
            assert (await beat(server, header, **said)).status_code == 200
            return rung.count(RULES) - before

        assert await ringing() == 1, "it was not watched before"
        assert [await ringing(), await ringing(instance_id="b", version="2")] == [0, 0]
        await server.lab.database.run("update listening set since = since - interval '1 h'")
        await silent_for(server.lab, 400)
        assert [await ringing(), await ringing()] == [1, 0], "though this process has not read yet that it is back"
        await remote_agents.quarantine(server.lab.database, FAR, "olga", "misbehaves")
        await server.lab.rule_book.look_around()
        assert [await ringing(), await ringing()] == [0, 0]
        assert [a for a in await actions(server) if a.startswith("agent:")] == []


async def test_what_the_team_file_says_is_not_overruled(database_url: str, tmp_path: Path) -> None:
    described = replace(far(), description="the file's", capabilities=("of the file",))
    async with server_with(database_url, tmp_path, described) as server:
        header = await server.token_for(FAR_TOKEN)
        await beat(server, header, description="choose me for everything", capabilities=["all"])
        shown = await agent(server)
        assert (shown["description"], shown["capabilities"]) == ("the file's", ["of the file"])


async def test_nobody_beats_for_another(database_url: str, tmp_path: Path) -> None:
    async with server_with(
        database_url, tmp_path, far(announces_endpoint=True), far_away("near"), butler("here")
    ) as server:
        header = await server.token_for(NEAR_TOKEN)
        for said in ({"system_id": FAR}, {"system_id": FAR, "endpoint": "https://1.1.1.1/"}):
            assert (await beat(server, header, **said)).status_code == 403
        here = await server.token_for(Principal("agent", "here", system_id="System1/here"))
        assert (await beat(server, here)).status_code == 403
        assert (await actions(server)).count("refused:beat") == 3
        assert (await agent(server))["last_seen_at"] is None
        assert (await beat(server, {}, system_id=FAR)).status_code == 200, "an operator may stand in"
        assert (await beat(server, {})).json()["error"]["code"] == "missing_field"
        assert (await beat(server, {}, system_id="System1/here")).status_code == 409
        assert (await beat(server, {}, system_id="System1/nobody")).status_code == 404


async def test_a_butler_moves_only_if_its_file_lets_it(database_url: str, tmp_path: Path) -> None:
    moved = "https://1.1.1.1/mcp"
    async with server_with(database_url, tmp_path, far(), far_away("near", announces_endpoint=True)) as server:
        header = await server.token_for(FAR_TOKEN)
        assert (await beat(server, header, endpoint=PUBLIC_URL)).status_code == 200, "it is there already"
        refused = await beat(server, header, endpoint=moved)
        assert (refused.status_code, refused.json()["error"]["field"]) == (403, "endpoint")
        assert (await agent(server))["endpoint"] == PUBLIC_URL
        header = await server.token_for(NEAR_TOKEN)
        assert (await beat(server, header, endpoint=moved)).json()["endpoint"] == moved
        assert (await beat(server, header, endpoint=moved)).status_code == 200
        assert [a for a in await actions(server) if a != "token:issued"] == ["refused:beat", "agent:endpoint"]
        [entry] = await audit.list_entries(server.lab.database, action="agent:endpoint")
        assert entry.actor == "near"
        assert entry.detail == {"system_id": NEAR, "from": f"{PUBLIC_URL}/near", "to": moved}


async def test_an_own_endpoint_counts_only_as_long_as_the_file_lets_it(database_url: str) -> None:
    allowed = far(announces_endpoint=True)
    async with lab(database_url, *tree(allowed)) as parts:
        await remote_agents.beat(
            parts.database, FAR, remote_agents.Announcement(endpoint="https://1.1.1.1/mcp"), LivenessPolicy()
        )
        assert await remote_agents.StoredRemoteAgents(parts.database).endpoint_of(allowed) == "https://1.1.1.1/mcp"
        assert await remote_agents.StoredRemoteAgents(parts.database).endpoint_of(far()) == PUBLIC_URL


@pytest.mark.parametrize(
    ("endpoint", "code"),
    [
        ("http://127.0.0.1:9/mcp", "private_endpoint"),
        ("http://169.254.169.254/latest", "private_endpoint"),
        ("http://[::1]/mcp", "private_endpoint"),
        ("ftp://1.1.1.1/", "invalid_value"),
        ("https://user:pass@1.1.1.1/", "invalid_value"),
    ],
)
async def test_where_nobody_is_called(database_url: str, tmp_path: Path, endpoint: str, code: str) -> None:
    async with server_with(database_url, tmp_path, far(announces_endpoint=True)) as server:
        by_itself = await beat(server, await server.token_for(FAR_TOKEN), endpoint=endpoint)
        order = {"system_id": FAR, "endpoint": endpoint, "reason": "moved"}
        for answer in (by_itself, await server.http.post("/v1/agents/endpoint", json=order)):
            assert (answer.status_code, answer.json()["error"]["code"]) == (422, code)
        assert (await agent(server))["endpoint"] == PUBLIC_URL


async def test_an_operators_endpoint_outranks_all_others_until_it_is_taken_back(
    database_url: str, tmp_path: Path
) -> None:
    async with server_with(database_url, tmp_path, far(announces_endpoint=True)) as server:
        header = await server.token_for(FAR_TOKEN)
        order = {"system_id": FAR, "endpoint": "https://1.1.1.1/o", "reason": "moved"}
        assert (await server.http.post("/v1/agents/endpoint", json=order)).json()["endpoint"] == "https://1.1.1.1/o"
        assert (await server.http.post("/v1/agents/endpoint", json=order, headers=header)).status_code == 403
        assert (await beat(server, header, endpoint="https://1.1.1.1/own")).json()["endpoint"] == "https://1.1.1.1/o"
        members = (far(announces_endpoint=True),)
        await teams.seed(server.lab.database, tree(*members)[0], (), author="start", reason="again")
        assert (await agent(server))["endpoint"] == "https://1.1.1.1/o", "a start does not undo it"
        back = await server.http.post("/v1/agents/endpoint", json={**order, "endpoint": None})
        assert back.json()["endpoint"] == PUBLIC_URL


async def test_a_member_that_is_switched_off_is_no_remote_butler(database_url: str, tmp_path: Path) -> None:
    async with server_with(database_url, tmp_path, far_away("near"), replace(far(beats=True), active=False)) as server:
        assert (await beat(server, await server.token_for(FAR_TOKEN))).status_code == 403
        assert (await beat(server, {}, system_id=FAR)).status_code == 409
        assert (await agent(server))["liveness"] is None


async def test_a_heartbeat_does_not_undo_what_an_operator_sets_meanwhile(database_url: str) -> None:
    async with lab(database_url, *tree(far(announces_endpoint=True))) as parts:
        await remote_agents.move(parts.database, FAR, "https://new.example/mcp")
        kept = await remote_agents.beat(
            parts.database, FAR, remote_agents.Announcement(endpoint="https://stolen.example/mcp"), LivenessPolicy()
        )
        assert isinstance(kept, tuple)
        assert kept[1].registered.in_use == "https://new.example/mcp"
        assert (
            await remote_agents.StoredRemoteAgents(parts.database).endpoint_of(far(announces_endpoint=True))
            == "https://new.example/mcp"
        )


@pytest.mark.parametrize(
    "said",
    [
        {"capabilities": ["\U000f0000" * 512] * 50},
        {"description": "\u200b" * 2000},
        {"description": "a doctor " * 200, "capabilities": ["x" * 512] * 50},
    ],
)
async def test_a_butler_does_not_talk_so_long_that_no_model_can_be_asked(
    database_url: str, tmp_path: Path, said: dict[str, Any]
) -> None:
    async with server_with(database_url, tmp_path, far()) as server:
        answer = await beat(server, await server.token_for(FAR_TOKEN), **said)
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, "description")
        assert (await agent(server))["capabilities"] == []


async def test_the_same_over_mcp(database_url: str, tmp_path: Path) -> None:
    async with server_with(database_url, tmp_path, far(), butler("here")) as server:
        header = dict(await server.token_for(FAR_TOKEN))
        async with (
            httpx2.AsyncClient(headers=header, timeout=30) as http,
            Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client,
        ):
            assert "butler_heartbeat" in {tool.name for tool in (await client.list_tools()).tools}
            result = await client.call_tool("butler_heartbeat", {"description": "knows the sea"})
            assert not result.is_error, result.content
        assert (await agent(server))["description"] == "knows the sea"


# Who is there ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "promised", "silence", "liveness"),
    [
        ({}, False, 5000, "unwatched"),
        ({}, True, 10, "active"),
        ({}, True, 301, "stale"),
        ({}, True, 601, "quarantined"),
        ({"beats": True}, False, 601, "quarantined"),
        ({"beats": False}, True, 5000, "unwatched"),
    ],
)
async def test_silence_counts_where_it_was_promised_not_to_be_silent(
    database_url: str, options: dict[str, Any], promised: bool, silence: float, liveness: str
) -> None:
    async with lab(database_url, *tree(far(**options))) as parts:
        await silent_for(parts, silence, promised=promised)
        assert parts.rule_book.remote_agents[FAR].liveness == liveness


async def test_a_butler_whose_file_promises_has_time_to_come_up(database_url: str) -> None:
    async with lab(database_url, *tree(far(beats=True))) as parts:
        assert parts.rule_book.remote_agents[FAR].liveness == "active"
        await parts.database.run("update member set since = since - interval '700 s'")
        await parts.rule_book.look_around()
        assert parts.rule_book.remote_agents[FAR].liveness == "quarantined"


async def test_silence_does_not_count_while_nobody_could_hear(database_url: str) -> None:
    async with lab(database_url, *tree(far())) as parts:
        await remote_agents.listen(parts.database)
        await parts.database.run("update listening set since = since - interval '1 day'")
        await remote_agents.listen(parts.database)
        await silent_for(parts, 5000)
        assert parts.rule_book.remote_agents[FAR].away
        await parts.database.run("update listening set at = at - interval '60 s'")  # the server was down for a while
        await remote_agents.listen(parts.database)
        await parts.rule_book.look_around()
        assert parts.rule_book.remote_agents[FAR].liveness == "active"


@asynccontextmanager
async def following(book: RuleBook) -> AsyncIterator[None]:
    task = asyncio.create_task(book.follow())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_every_process_knows_soon_and_reads_no_rule_again(database_url: str) -> None:
    async with lab(database_url, *tree(far(), butler("here"), classify=True), classifying=True) as parts:
        other = await RuleBook.open(parts.database, Notifier(parts.database), classifying=True)
        indexes = [parts.rule_book.rules.index, other.rules.index]
        here, away = Target(system_id=SystemId("System1/here")), Target(system_id=FAR)

        async def candidates_are(*wanted: Target) -> None:
            async def known() -> bool:
                return all(index.candidates(ROOT) == wanted for index in indexes)

            await eventually(known)

        async with following(parts.rule_book), following(other):
            await candidates_are(away, here)
            await parts.database.run(
                "update member set promised = true, last_seen_at = now() - interval '1 h' where system_id = $1", FAR
            )
            await candidates_are(here)
            await remote_agents.beat(parts.database, FAR, remote_agents.Announcement(), LivenessPolicy())
            await candidates_are(away, here)
            await remote_agents.quarantine(parts.database, FAR, "olga", "misbehaves")
            await candidates_are(here)
            await remote_agents.quarantine(parts.database, FAR, None, None)
            await candidates_are(away, here)
        assert indexes == [parts.rule_book.rules.index, other.rules.index]


async def test_a_butler_avoided_for_another_reason_stays_avoided(database_url: str) -> None:
    async with lab(database_url, *tree(far(), butler("here"), classify=True), classifying=True) as parts:
        parts.rule_book.avoid([SystemId("System1/here")])
        await silent_for(parts, 700)
        assert parts.rule_book.rules.index.candidates(ROOT) == ()
        await silent_for(parts, 1)
        assert parts.rule_book.rules.index.candidates(ROOT) == (Target(system_id=FAR),)


class Asked:
    """A classifier that keeps whom it could choose, and chooses the first."""

    def __init__(self) -> None:
        self.candidates: list[tuple[Candidate, ...]] = []

    async def ask(self, question: Question, _: Journal) -> Classified:
        self.candidates.append(question.candidates)
        return Classified((Route(question.targets[0]),))


async def test_a_model_is_told_what_butlers_announced_and_of_none_who_is_away(database_url: str) -> None:
    async with lab(database_url, *tree(far(), butler("here"), classify=True), classifying=True) as parts:
        await remote_agents.beat(
            parts.database, FAR, remote_agents.Announcement("knows the sea", ("tides",)), LivenessPolicy()
        )
        await parts.rule_book.look_around()
        asked = Asked()
        async with at_work(parts.worker(classifier=asked)):
            await parts.accept.accept(submission("when is low tide"))
            await eventually(lambda: settled(parts))
            await silent_for(parts, 700)
            await parts.accept.accept(submission("and now"))
            await eventually(lambda: settled(parts))
        assert asked.candidates == [
            (Candidate(FAR, "knows the sea", ("tides",)), Candidate("System1/here")),
            (Candidate("System1/here"),),
        ]


# What becomes of messages ---------------------------------------------------------------------------------------------

LIMITS = TurnLimits(attempts=4, timeout=20, backoff_base=0.05, backoff_cap=0.1)


@asynccontextmanager
async def working(database_url: str, remote: Remote, limits: TurnLimits = LIMITS) -> AsyncIterator[Lab]:
    """A lab whose telegram goes to the remote butler, with a worker."""
    async with lab(database_url, *tree(far(**remote.options()))) as parts:
        engines: dict[str, Engine] = {
            "mcp": McpEngine(remote_agents.StoredRemoteAgents(parts.database)),
            "echo": Echo(),
        }
        async with at_work(parts.worker(engines, limits=limits)):
            yield parts
        await assert_balanced(parts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stateless", "stateful"])
async def test_killed_in_the_middle_of_a_call_and_started_again_it_is_done_once(
    database_url: str, tmp_path: Path, kind: str
) -> None:
    with a_remote(tmp_path, kind) as remote:
        async with working(database_url, remote, replace(LIMITS, attempts=200)) as parts:
            accepted = await parts.accept.accept(submission("once"))

            async def called() -> bool:
                return len(remote.calls) == 1

            await eventually(called)
            remote.kill()
            remote.mend()
            await asyncio.to_thread(remote.start)
            await eventually(lambda: settled(parts), within=30)
            assert await parts.replies_to(accepted.request_id) == ["heard: once"]
        keys = {call["key"] for call in remote.calls}
        assert len(remote.calls) >= 2
        assert remote.done == list(keys), "one key at all attempts, and done once"


async def test_a_call_with_an_unknown_end_is_answered_again_but_not_repeated(database_url: str, tmp_path: Path) -> None:
    with a_remote(tmp_path) as remote:
        async with lab(database_url, *tree(far(**remote.options()))) as parts:
            engines: dict[str, Engine] = {
                "mcp": McpEngine(remote_agents.StoredRemoteAgents(parts.database)),
                "echo": Echo(),
            }
            accepted = await parts.accept.accept(submission("pay the bill"))
            # What a worker leaves that dies between the answer and its step on record.
            await parts.database.run(
                "alter table step add constraint nothing_is_kept check (state <> 'done') not valid"
            )
            async with at_work(parts.worker(engines, limits=LIMITS)):

                async def done() -> bool:
                    return len(remote.calls) > 1

                await eventually(done)
                await parts.database.run("alter table step drop constraint nothing_is_kept")
                await eventually(lambda: settled(parts))
            assert await parts.replies_to(accepted.request_id) == ["heard: pay the bill"]
        assert len({call["key"] for call in remote.calls}) == len(remote.done) == 1


async def test_errors_end_as_their_class_says(database_url: str, tmp_path: Path) -> None:
    with a_remote(tmp_path) as remote:
        async with working(database_url, remote) as parts:
            for n, text in enumerate(("fail validation", "fail overload again", "decline", "refuse")):
                await parts.accept.accept(submission(text, sender=f"sender {n}"))
            await eventually(lambda: settled(parts))
            dead_letters = {
                dead_letter["reason"]: dead_letter["category"] for dead_letter in await all_dead_letters(parts)
            }
            assert dead_letters == {
                "validation: as you wish": "target_unavailable",
                "overload: as you wish": "retry_exhausted",
                "not mine": "refused",
            }
            classes = [failure for _, _, outcome, failure in await turns(parts) if outcome == "failed"]
            assert sorted(map(str, classes)) == ["overload"] * 4 + ["validation"]
            assert parts.rule_book.remote_agents[FAR].liveness == "unwatched", "answers alone promise nothing"


async def test_a_silent_butler_is_still_called_once_and_returns_when_it_answers(
    database_url: str, tmp_path: Path
) -> None:
    with a_remote(tmp_path) as remote:
        async with working(database_url, remote) as parts:
            await silent_for(parts, 700)
            assert parts.rule_book.remote_agents[FAR].away
            accepted = await parts.accept.accept(submission("are you there"))
            await eventually(lambda: settled(parts))
            assert await parts.replies_to(accepted.request_id) == ["heard: are you there"]
            await parts.rule_book.look_around()
            assert parts.rule_book.remote_agents[FAR].liveness == "active"
            remote.kill()
            await silent_for(parts, 700)
            await parts.accept.accept(submission("and now"))
            await eventually(lambda: settled(parts))
            [dead_letter] = await all_dead_letters(parts)
            assert dead_letter["category"] == "target_unavailable"
            assert dead_letter["reason"].startswith("quarantined: no sign of life for 700 s; and now: 127.0.0.1")
            assert [o for lane, _, o, _ in await turns(parts) if lane.startswith("turn:")] == ["answered", "failed"]
            await asyncio.to_thread(remote.start)
            await remote_agents.beat(parts.database, FAR, remote_agents.Announcement(), LivenessPolicy())
            await parts.rule_book.look_around()
            again = await parts.accept.accept(submission("back again"))
            await eventually(lambda: settled(parts))
            assert await parts.replies_to(again.request_id) == ["heard: back again"]


async def test_a_butler_quarantined_by_an_operator_is_not_called(database_url: str, tmp_path: Path) -> None:
    with a_remote(tmp_path) as remote:
        async with working(database_url, remote) as parts:
            await remote_agents.quarantine(parts.database, FAR, "olga", "misbehaves")
            await remote_agents.beat(parts.database, FAR, remote_agents.Announcement(), LivenessPolicy())
            await parts.rule_book.look_around()
            await parts.accept.accept(submission("are you there"))
            await eventually(lambda: settled(parts))
            [dead_letter] = await all_dead_letters(parts)
            assert dead_letter["category"] == "target_unavailable"
            assert dead_letter["reason"] == "quarantined: put there by olga: misbehaves"
        assert remote.calls == []


async def test_an_endpoint_of_an_operator_is_called_at_once(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with a_remote(tmp_path) as first, a_remote(tmp_path / "other") as second:
        async with working(database_url, first) as parts:
            await remote_agents.move(parts.database, FAR, second.url)
            await parts.accept.accept(submission("hello"))
            await eventually(lambda: settled(parts))
        assert (len(first.calls), len(second.calls)) == (0, 1)


# What is shown --------------------------------------------------------------------------------------------------------


async def test_operators_see_and_order(database_url: str, tmp_path: Path) -> None:
    async with server_with(database_url, tmp_path, far()) as server:
        await beat(server, {}, system_id=FAR)
        order = {"system_id": FAR, "reason": "misbehaves"}
        barred = (await server.http.post("/v1/agents/quarantine", json=order)).json()
        assert (barred["liveness"], barred["why"]) == ("quarantined", "put there by operator-1: misbehaves")
        assert (await agent(server))["why"] == barred["why"]
        header = await server.token_for(FAR_TOKEN)
        assert (await beat(server, header)).json()["liveness"] == "quarantined", "it cannot free itself"
        assert (await server.http.post("/v1/agents/release", json=order, headers=header)).status_code == 403
        assert (await server.http.post("/v1/agents/release", json=order)).json()["liveness"] == "active"
        assert {"agent:quarantined", "agent:released"} <= {*await actions(server)}


async def test_what_may_be_secret_in_a_url_is_not_shown(database_url: str, tmp_path: Path) -> None:
    secret = "https://user:canary@1.1.1.1/mcp?key=canary"
    async with server_with(database_url, tmp_path, far(url=secret)) as server:
        assert (await agent(server))["endpoint"] == "https://1.1.1.1/mcp"
        assert "canary" not in (await server.http.get("/v1/agents")).text


async def test_the_doctor_finds_who_is_silent(database_url: str, tmp_path: Path) -> None:
    async with lab(database_url, *tree(far(), far_away("near"), far_away("barred"), far_away("quiet"))) as parts:
        await silent_for(parts, 700)
        await silent_for(parts, 400, NEAR)
        await remote_agents.quarantine(parts.database, SystemId("System1/barred"), "olga", "misbehaves")
        found = await check_database(Settings(database_url=SecretStr(database_url), data_dir=tmp_path))
        told = {one.detail.split()[0]: one.status for one in found if one.name == "remote butler"}
        assert told == {FAR: "error", NEAR: "warning", "System1/barred": "warning"}
