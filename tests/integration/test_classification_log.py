"""What models chose: logged, accounted for, corrected, and shown only to those who may see it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from switchboard.app.access import Access, Principal
from switchboard.app.ops.doctor import check_database
from switchboard.app.ops.maintenance import Retention
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.app.wiring import make_worker, open_runtime, open_switchboard
from switchboard.core.policy.budget import Amount
from switchboard.domain.ledger import Item, LaneKey
from switchboard.journey.classify import RouteLimits
from switchboard.llm.dispatch import DispatchLimits
from switchboard.server.listener import bind
from switchboard.server.serve import run_server
from switchboard.store.books import audit_books
from switchboard.store.ids import IdSequence, new_uuid7
from switchboard.store.models import classification
from switchboard.store.models import usage as model_usage
from switchboard.store.models.classification import NewSession, Reservation
from switchboard.store.work import routing
from switchboard.store.work.lanes import load_work
from switchboard.testing.scripted_llm import Call, Reply, Request, Script, ScriptedLlm, Status
from switchboard.testing.scripted_llm.script import Usage
from tests.hands import at_work
from tests.lab import envelope_json
from tests.waiting import eventually


def system(name: str, text: str = "") -> dict[str, str]:
    return {"name": name, "engine": "echo", "description": text}


TEAMS: tuple[dict[str, Any], ...] = (
    {
        "team": {"name": "root"},
        "purpose": "the house",
        "classify": True,
        "systems": [
            *(system("System1/health", "Doctors and pills"), system("System1/finance", "Money")),
            *(system("System3/root"), system("System4/root")),
        ],
        "routing_rules": [{"name": "mail", "channel": "email", "targets": [{"system_id": "System1/finance"}]}],
    },
    {
        "team": {"name": "care", "parent": "root"},
        "purpose": "Nursing",
        "classify": True,
        "systems": [system("System1/nurse"), system("System1/doctor"), system("System3/care"), system("System4/care")],
    },
)
SPENT = Usage(100, 11)


def to(*butlers: str, **more: Any) -> Reply:
    """The model calls the tool for each; 111 tokens."""
    return Reply(calls=tuple(Call("route_to_butler", {"butler": one, **more}) for one in butlers), usage=SPENT)


@dataclass(frozen=True)
class House:
    """A server, a worker and a database; `http` sends the operator's token."""

    runtime: Runtime
    http: httpx2.AsyncClient
    settings: Settings

    async def message(self, text: str, **more: Any) -> str:
        """Submit it and wait until it is settled; its id."""
        request_id = str((await self.http.post("/v1/ingest", json=envelope_json(text, **more))).json()["request_id"])
        await eventually(lambda: self.over(request_id), within=30)
        return request_id

    async def over(self, request_id: str) -> bool:
        return bool((await self.http.get(f"/v1/messages/{request_id}")).json()["state"] != "in_flight")

    async def token(self, role: Any, name: str, **more: Any) -> Mapping[str, str]:
        issued = await Access(self.runtime.database).issue(Principal("operator", "t"), Principal(role, name, **more))
        return {"authorization": f"Bearer {issued.secret}"}

    async def agent(self, system_id: str) -> Mapping[str, str]:
        return await self.token("agent", system_id.replace("/", "."), system_id=system_id)

    async def correct(self, request_id: str, to: str, headers: Mapping[str, str] | None = None, **more: Any) -> Any:
        body = {"to": to, **more}
        return await self.http.post(f"/v1/messages/{request_id}/correction", json=body, headers=headers)

    async def deliveries(self, request_id: str) -> list[tuple[str, int]]:
        """(butler, number of the decision) of each."""
        sql = "select system_id, n from delivery where request_id = $1 order by n, system_id"
        return [(row["system_id"], row["n"]) for row in await self.runtime.database.rows(sql, UUID(request_id))]

    async def log(self, headers: Mapping[str, str] | None = None, **wanted: Any) -> list[dict[str, Any]]:
        answer = await self.http.get("/v1/classifications", params=wanted, headers=headers)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["classifications"])

    async def usage(self, **wanted: str) -> dict[str, Any]:
        answer = await self.http.get("/v1/models/usage", params=wanted)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def usage_in_pages(self, by: str) -> list[dict[str, Any]]:
        """The rows, asked for one by one."""
        page = await self.usage(by=by, limit="1")
        rows = list(page["rows"])
        while page["next_cursor"] is not None:
            page = await self.usage(by=by, limit="1", cursor=page["next_cursor"])
            rows += page["rows"]
        return rows

    async def balanced(self) -> None:
        books = await audit_books(self.runtime.database)
        assert (books.balanced, list(books.problems)) == (True, [])


Open = Callable[..., AbstractAsyncContextManager[House]]


@pytest.fixture
def opened(database_url: str, tmp_path: Path) -> Open:
    @asynccontextmanager
    async def opened(
        llm: ScriptedLlm, spending: Mapping[str, float] = MappingProxyType({}), **classify: Any
    ) -> AsyncIterator[House]:
        names = classify.pop("models", ("first",))
        known = [
            {"name": name, "kind": "openai", "model": name, "base_url": f"{llm.url}/v1", "price_in": 1.0}
            for name in classify.pop("known", names)
        ]
        teams = classify.pop("teams", TEAMS)
        settings = Settings.model_validate(
            {
                "database_url": database_url,
                "data_dir": tmp_path,
                "teams": teams,
                "worker": {"ttl": 60},  # where the machine stands still, nobody is to be taken for dead
                "models": known,
                "classify": {"models": names, "attempts": 1, **classify},
                "spending": dict(spending),
            }
        )
        async with open_runtime(settings) as runtime, at_work(make_worker(runtime)), _served(runtime, tmp_path) as http:
            yield House(runtime, http, settings)

    return opened


@asynccontextmanager
async def _served(runtime: Runtime, data_dir: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with open_switchboard(runtime) as switchboard:
        stop, at = asyncio.Event(), asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(
            run_server(
                switchboard, bind("127.0.0.1", 0), stop, lambda host, port: at.set_result(f"http://{host}:{port}")
            )
        )
        url = await at
        header = {"authorization": f"Bearer {(data_dir / 'operator.token').read_text().strip()}"}
        try:
            async with httpx2.AsyncClient(base_url=url, headers=header, timeout=30) as http:
                yield http
        finally:
            stop.set()
            await serving


# The log and the account ---------------------------------------------------------------------------------------------


async def test_what_a_model_chose_is_on_record_wherever_one_looks(opened: Open) -> None:
    async with ScriptedLlm([to("System1/health", reason="it hurts")]) as llm, opened(llm) as house:
        request_id = await house.message("my head hurts")
        [row] = await house.log()
        shown = (await house.http.get(f"/v1/messages/{request_id}")).json()["classifications"]
        explained = (await house.http.get(f"/v1/messages/{request_id}/explain")).json()["classifications"]
    assert (row["request_id"], row["team_id"], row["model"], row["n"]) == (request_id, "root", "first", 1)
    assert set(row["candidates"]) == {"System1/health", "System1/finance", "care"}
    assert row["result"]["routed"] == [{"butler": "System1/health", "segment": None, "reason": "it hurts"}]
    assert (row["tokens_in"], row["tokens_out"], row["cost_usd"], row["error"]) == (100, 11, 0.0001, None)
    assert (row["corrected_to"], row["seen"], row["text"]) == (None, True, "my head hurts")
    without = {name: value for name, value in row.items() if name not in {"seen", "text"}}
    assert shown == explained == [without]


async def test_the_log_has_pages_and_filters(opened: Open) -> None:
    replies = [to("System1/health"), to("ghost"), to("System1/finance"), to("care"), to("System1/nurse")]
    async with ScriptedLlm(replies) as llm, opened(llm) as house:
        ids = [await house.message(text, sender=text) for text in ("a", "b", "c", "d")]
        names = [(row["request_id"], row["team_id"]) for row in await house.log()]
        assert names == [(ids[3], "root"), (ids[3], "care"), (ids[2], "root"), (ids[1], "root"), (ids[0], "root")]
        assert [row["request_id"] for row in await house.log(failed=True)] == [ids[1]]
        assert [row["request_id"] for row in await house.log(butler="System1/finance")] == [ids[2]]
        assert [row["team_id"] for row in await house.log(team_id="care")] == ["care"]
        assert await house.log(corrected=True) == []
        await house.correct(ids[2], "System1/health", only_note=True)
        assert [row["request_id"] for row in await house.log(corrected=True)] == [ids[2]]
        pages, cursor = [], None
        while True:
            given = {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
            page = (await house.http.get("/v1/classifications", params=given)).json()
            pages += [(row["request_id"], row["team_id"]) for row in page["classifications"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert pages == names
        bad = await house.http.get("/v1/classifications", params={"cursor": "nonsense"})
        assert bad.json()["error"]["code"] == "invalid_cursor"


async def test_the_account_by_everything_adds_up(opened: Open) -> None:
    both = Reply(
        calls=(
            Call("route_to_butler", {"butler": "System1/health", "segment": "My head hurts."}),
            Call("route_to_butler", {"butler": "System1/finance", "segment": "Pay the rent."}),
        ),
        usage=SPENT,
    )
    replies = [both, to("care"), to("System1/nurse"), to("ghost")]
    async with ScriptedLlm(replies) as llm, opened(llm) as house:
        two = await house.message("My head hurts. Pay the rent.", sender="a")
        deep = await house.message("a plaster", sender="b")
        lost = await house.message("what?", sender="c")
        for by in ("day", "model", "butler", "team", "message", "asker"):
            assert await house.usage_in_pages(by) == (await house.usage(by=by))["rows"]
        found = {by: await house.usage(by=by) for by in ("day", "model", "butler", "team", "message", "asker")}
        rows = {by: {one["key"]: one for one in answer["rows"]} for by, answer in found.items()}
        assert found["day"]["total"] == {
            "messages": 3,
            "attempts": 4,
            "failed": 1,
            "tokens_in": 400,
            "tokens_out": 44,
            "cost_usd": 0.0004,
        }
        for by, answer in found.items():
            summed = {
                name: sum(one[name] for one in answer["rows"]) for name in ("tokens_in", "tokens_out", "cost_usd")
            }
            assert summed == {"tokens_in": 400, "tokens_out": 44, "cost_usd": pytest.approx(0.0004)}, by
        assert rows["day"].keys() == {datetime.now(UTC).date().isoformat()}
        assert rows["model"].keys() == {"first"}
        [asked] = found["asker"]["rows"]
        assert (asked["key"], asked["messages"], asked["attempts"], asked["failed"]) == ("classification", 3, 4, 1)
        assert {key: one["tokens_in"] for key, one in rows["team"].items()} == {"root": 300, "care": 100}
        assert {key: one["tokens_in"] for key, one in rows["message"].items()} == {two: 100, deep: 200, lost: 100}
        assert {key: (one["tokens_in"], one["tokens_out"]) for key, one in rows["butler"].items()} == {
            "System1/finance": (50, 6),  # 11 tokens are shared to the last one
            "System1/health": (50, 5),
            "System1/nurse": (200, 22),
            None: (100, 11),
        }
        later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        assert (await house.usage(**{"from": later, "to": later}))["rows"] == []
        assert (await house.usage(to=(datetime.now(UTC) - timedelta(days=1)).isoformat()))["rows"] == []


async def test_the_account_has_turns_too(opened: Open) -> None:
    """A message that one model has routed and another one has answered, apart by what they were asked for."""
    clerk = {"name": "System1/health", "engine": "model", "config": {"models": ["second"]}}
    team = TEAMS[0] | {"systems": [clerk, *TEAMS[0]["systems"][1:]]}
    replies = [to("System1/health"), Reply(text="Rest.", usage=Usage(70, 7))]
    async with ScriptedLlm(replies) as llm, opened(llm, teams=(team,), known=("first", "second")) as house:
        request_id = await house.message("my head hurts")
        found = {by: await house.usage(by=by) for by in ("day", "model", "butler", "team", "message", "asker")}
        rows = {by: {one["key"]: one for one in answer["rows"]} for by, answer in found.items()}
        for by, answer in found.items():
            assert answer["total"] == {
                "messages": 1,
                "attempts": 2,
                "failed": 0,
                "tokens_in": 170,
                "tokens_out": 18,
                "cost_usd": pytest.approx(0.00017),
            }, by
        assert {key: (one["messages"], one["tokens_in"]) for key, one in rows["asker"].items()} == {
            "classification": (1, 100),
            "turn": (1, 70),
        }
        assert {key: (one["messages"], one["tokens_in"]) for key, one in rows["model"].items()} == {
            "first": (1, 100),
            "second": (1, 70),
        }
        assert {key: one["tokens_in"] for key, one in rows["team"].items()} == {"root": 170}
        assert {key: one["tokens_in"] for key, one in rows["message"].items()} == {request_id: 170}
        assert {key: (one["messages"], one["tokens_in"]) for key, one in rows["butler"].items()} == {
            "System1/health": (1, 170)
        }


async def test_models_are_listed_in_their_order_with_what_is_left_of_the_day(opened: Open) -> None:
    def brain(request: Request) -> Reply:
        return Reply(fault=Status(500)) if request.model == "first" else to("System1/health")

    caps = {"tokens_per_day": 100_000, "cost_per_day": 1.0}
    async with ScriptedLlm(brain) as llm, opened(llm, models=("first", "second"), spending=caps) as house:
        for number in range(3):
            await house.message("x", sender=str(number))
        found = (await house.http.get("/v1/models")).json()
        first, second = found["models"]
        assert (first["name"], first["order"], first["kind"], first["model"]) == ("first", 1, "openai", "first")
        assert (first["state"], first["failed"]) == ("cooldown", 3)
        assert "status 500" in first["why"]
        assert datetime.fromisoformat(first["until"]) > datetime.now(UTC)
        assert (second["order"], second["state"], second["attempts"]) == (2, "ready", 3)
        assert (second["tokens_in"], second["tokens_out"], second["cost_usd"]) == (300, 33, 0.0003)
        tokens, cost, newcomers = found["caps"]
        assert (tokens["cap"], tokens["left"] + tokens["spent"]) == (100_000, 100_000)
        assert tokens["spent"] == found["tokens"] >= 333
        assert (cost["name"], cost["cap"], cost["reached"]) == ("cost_usd_per_day", 1.0, False)
        assert (newcomers["name"], newcomers["spent"], newcomers["left"]) == ("newcomer_tokens_per_day", 333, 1_999_667)
        assert (found["sender_per_minute"], found["sender_tokens_per_day"]) == (30, 1_000_000)
        [finding] = [one for one in await check_database(house.settings) if one.name == "model in cooldown"]
        assert (finding.status, "first, until" in finding.detail) == ("warning", True)
        assert "switchboard_models_in_cooldown 1.0" in (await house.http.get("/metrics")).text


async def test_after_a_rule_change_a_part_is_not_classified_as_the_whole(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were on record; before they were settled, a rule was added that gives the whole to the sub-team."""
    parts = (
        Call("route_to_butler", {"butler": "System1/health", "segment": "My head hurts."}),
        Call("route_to_butler", {"butler": "care", "segment": "Wash grandmother."}),
    )
    replies = [Reply(calls=parts, usage=SPENT), to("System1/nurse"), to("System1/doctor")]
    rule = {"name": "r", "channel": "*", "priority": 5, "filters": {"chat_type": "private"}, "reason": "r"}
    async with ScriptedLlm(replies) as llm, opened(llm, attempts=2) as house:
        really, failed = routing.settle_route, asyncio.Event()

        async def fails_once(*given: Any) -> Any:
            if not failed.is_set():
                failed.set()
                body = {**rule, "team_id": "root", "targets": [{"team_id": "care"}]}
                made = await house.http.post("/v1/rules", json=body)
                assert made.status_code < 300, made.text
                raise OSError("out of order")
            return await really(*given)

        monkeypatch.setattr(routing, "settle_route", fails_once)
        request_id = await house.message("My head hurts. Wash grandmother.", chat_type="private")
        assert await house.deliveries(request_id) == [("System1/doctor", 1)]
        assert "My head hurts. Wash grandmother." in llm.requests[2].prompt


async def test_a_reached_cap_is_seen_by_doctor_metrics_list_and_trail(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard.app.wiring._route_limits", lambda _: RouteLimits(attempts=1, patience=0.0))
    async with ScriptedLlm([to("System1/health")]) as llm, opened(llm, spending={"tokens_per_day": 5000}) as house:
        await house.message("my head hurts", sender="a")
        await house.runtime.database.run("update model_day set tokens = 5000")
        request_id = await house.message("my foot hurts", sender="b")
        assert len(llm.requests) == 1
        [dead_letter] = (await house.http.get("/v1/dead-letters")).json()["dead_letters"]
        assert (dead_letter["request_id"], dead_letter["category"]) == (request_id, "classification_failed")
        [decision] = (await house.http.get(f"/v1/messages/{request_id}/explain")).json()["decisions"]
        assert "would exceed the 5000 of a day" in decision["trail"][0]["detail"]
        found = (await house.http.get("/v1/models")).json()
        assert (found["caps"][0]["left"], found["caps"][0]["reached"], found["refused"]) == (0, True, 1)
        metrics = (await house.http.get("/metrics")).text
        assert "switchboard_model_refused_today 1.0" in metrics
        assert "switchboard_model_tokens_today 5000.0" in metrics
        assert 'switchboard_outcomes_today{outcome="classified"} 0.0' in metrics, "as a worker counted them last"
        await house.http.get("/v1/books", params={"now": True})
        outcomes = re.findall(r'outcomes_today{outcome="(\w+)"} (\d)', (await house.http.get("/metrics")).text)
        assert dict(outcomes) == {"routed": "0", "classified": "1", "dead": "1"}
        found = {one.name: one for one in await check_database(house.settings)}
        assert found["spending.tokens_per_day"].detail.startswith("5000 tokens of 5000 are spent")
        assert found["refused today"].status == "warning"


async def test_what_a_sender_may_use_is_seen_by_doctor_list_and_trail(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard.app.wiring._route_limits", lambda _: RouteLimits(attempts=1, patience=0.0))
    caps = {"sender_tokens_per_day": 100, "newcomer_tokens_per_day": 200}
    async with ScriptedLlm(lambda _: to("System1/health")) as llm, opened(llm, **caps) as house:
        await house.message("my head hurts", sender="a")
        request_id = await house.message("my head hurts", sender="a")
        assert len(llm.requests) == 1
        [dead_letter] = (await house.http.get("/v1/dead-letters")).json()["dead_letters"]
        assert (dead_letter["request_id"], dead_letter["category"]) == (request_id, "classification_failed")
        assert "may use for one in a day (classify.sender_tokens_per_day)" in dead_letter["reason"]
        await house.message("my foot hurts", sender="b")
        found = (await house.http.get("/v1/models")).json()
        [cap] = [one for one in found["caps"] if one["name"] == "newcomer_tokens_per_day"]
        assert (cap["spent"], cap["left"], cap["reached"]) == (222, 0, True)
        assert (found["senders_refused"], found["refused"]) == (1, 0)
        findings = {one.name: one for one in await check_database(house.settings)}
        assert "for senders who are new today" in findings["classify.newcomer_tokens_per_day"].detail
        assert findings["senders refused today"].detail.startswith("1 calls prevented")


async def test_doctor_hints_at_teams_that_would_ask_a_model_where_there_is_none(opened: Open) -> None:
    async with ScriptedLlm([]) as llm, opened(llm) as house:
        names = [one.name for one in await check_database(house.settings)]
        assert "classification" not in names
        without = house.settings.model_copy(update={"classify": Settings().classify})
        [finding] = [one for one in await check_database(without) if one.name == "classification"]
        assert (finding.status, finding.detail.startswith("care, root:")) == ("warning", True)


# Corrections ---------------------------------------------------------------------------------------------------------


async def test_a_correction_is_recorded_and_brings_it_to_the_right_butler(opened: Open) -> None:
    async with ScriptedLlm([to("System1/health")]) as llm, opened(llm) as house:
        request_id = await house.message("pay the doctor")
        done = (await house.correct(request_id, "System1/finance", reason="it is about money")).json()
        assert (done["already"], done["decision_n"], done["corrected_by"]) == (False, 2, "operator-1")
        assert [made["system_id"] for made in done["deliveries"]] == ["System1/finance"]
        await eventually(lambda: house.over(request_id))
        again = (await house.correct(request_id, "System1/finance")).json()
        assert (again["already"], again["decision_n"], again["deliveries"]) == (True, None, [])
        assert await house.deliveries(request_id) == [("System1/health", 1), ("System1/finance", 2)]
        replies = (await house.http.get(f"/v1/messages/{request_id}/replies")).json()["replies"]
        assert {one["system_id"]: one["text"] for one in replies} == {
            "System1/health": "pay the doctor",
            "System1/finance": "pay the doctor",
        }
        [row] = await house.log(corrected=True)
        assert (row["corrected_to"], row["corrected_by"], row["correction"]) == (
            *("System1/finance", "operator-1", "it is about money"),
        )
        explained = (await house.http.get(f"/v1/messages/{request_id}/explain")).json()
        [step] = explained["decisions"][1]["trail"]
        assert (step["reason"], step["team_id"], step["detail"]) == (
            *("correction", "root", "by operator-1: it is about money"),
        )
        [entry] = (await house.http.get("/v1/audit", params={"action": "message:corrected"})).json()["entries"]
        assert (entry["detail"]["to"], entry["detail"]["decision_n"]) == ("System1/finance", 2)
        await house.balanced()


async def test_corrections_at_once_bring_it_to_nobody_twice(opened: Open) -> None:
    async with ScriptedLlm([to("System1/health")]) as llm, opened(llm) as house:
        request_id = await house.message("pay the doctor")
        butlers = ("System1/finance", "System1/nurse", "System1/doctor")
        await asyncio.gather(*(house.correct(request_id, one) for one in butlers * 6))
        await eventually(lambda: house.over(request_id))
        made = await house.deliveries(request_id)
        assert sorted(name for name, _ in made) == [
            "System1/doctor",
            "System1/finance",
            "System1/health",
            "System1/nurse",
        ]
        assert sorted(n for _, n in made) == [1, 2, 3, 4]
        await house.balanced()


async def test_a_correction_waits_for_another_that_has_begun(opened: Open) -> None:
    """Both make a further decision; without waiting they would give it the same number."""
    async with ScriptedLlm([to("System1/health")]) as llm, opened(llm) as house:
        request_id = await house.message("pay the doctor")
        await house.correct(request_id, "System1/nurse", only_note=True)  # so that the first has no row to write there
        first = (
            "select n from correct_decision($1, 'System1/nurse', 'x', null, null, null, 1, '[]', 2::smallint,"
            " array['System1/nurse'], array['care'], '{}', '{}', '{}', '{}', '{}')"
        )
        waiting = (
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and wait_event_type = 'Lock' and query like '%correct_decision%'"
        )

        async def waits() -> bool:
            return bool(await house.runtime.database.value(waiting) == 1)

        async with house.runtime.database.connection() as connection:
            async with connection.transaction():
                assert await connection.fetchval(first, UUID(request_id)) == 2
                second = asyncio.create_task(house.correct(request_id, "System1/finance"))
                await eventually(waits)
            assert (await second).json()["decision_n"] == 3
        await eventually(lambda: house.over(request_id))


async def test_a_correction_to_a_butler_that_has_it_or_may_not_delivers_nothing(opened: Open) -> None:
    async with (
        ScriptedLlm([to("System1/health", "System1/finance"), to("System1/health")]) as llm,
        opened(llm) as house,
    ):
        both = await house.message("x", sender="a")
        done = (await house.correct(both, "System1/finance")).json()
        assert (done["already"], done["decision_n"]) == (False, None)
        one = await house.message("y", sender="b")
        noted = (await house.correct(one, "System1/finance", only_note=True)).json()
        assert (noted["already"], noted["decision_n"]) == (False, None)
        assert await house.deliveries(one) == [("System1/health", 1)]
        assert {row["corrected_to"] for row in await house.log()} == {"System1/finance"}
        later = (await house.correct(one, "System1/finance")).json()  # the note was there; now it is sent as well
        assert (later["already"], later["decision_n"]) == (False, 2)
        await eventually(lambda: house.over(one))
        await house.balanced()


async def test_a_correction_to_a_team_goes_down_its_tree(opened: Open) -> None:
    async with ScriptedLlm([to("System1/health"), to("System1/finance")]) as llm, opened(llm) as house:
        request_id = await house.message("nurse, my head hurts")
        empty = await house.correct(request_id, "care")
        assert (empty.status_code, empty.json()["error"]["code"]) == (409, "nobody_takes_it")
        assert await house.log(corrected=True) == []
        rule = {"team_id": "care", "name": "chats", "channel": "telegram"}
        both = {"targets": [{"system_id": "System1/nurse"}, {"system_id": "System1/doctor"}]}
        assert (await house.http.post("/v1/rules", json={**rule, **both, "reason": "x"})).status_code == 201
        done = (await house.correct(request_id, "care", reason="it is nursing")).json()
        assert (done["corrected_to"], done["decision_n"], done["already"]) == ("care", 2, False)
        await eventually(lambda: house.over(request_id))
        again = (await house.correct(request_id, "care")).json()
        assert (again["already"], again["decision_n"], again["deliveries"]) == (True, None, [])
        taken = [("System1/health", 1), ("System1/nurse", 2), ("System1/doctor", 2)]
        assert sorted(await house.deliveries(request_id)) == sorted(taken)
        explained = (await house.http.get(f"/v1/messages/{request_id}/explain")).json()
        steps = [(step["reason"], step["team_id"]) for step in explained["decisions"][1]["trail"]]
        assert steps == [("correction", "root"), ("rule", "care")]
        [case] = (await house.http.get("/v1/classifications/cases")).json()["cases"]
        assert case["expect"] == ["System1/nurse", "System1/doctor"]

        other = await house.message("and my foot")
        care3 = await house.agent("System3/care")
        assert (await house.correct(other, "care", care3)).status_code == 404, "its team was not asked"
        assert (await house.correct(other, "root", await house.agent("System3/root"))).status_code == 409
        await house.balanced()


async def test_a_correction_settles_the_dead_letter_of_a_failed_choice(opened: Open) -> None:
    async with ScriptedLlm([to("ghost")]) as llm, opened(llm) as house:
        request_id = await house.message("my head hurts")
        [dead_letter] = (await house.http.get("/v1/dead-letters", params={"status": "pending"})).json()["dead_letters"]
        await house.correct(request_id, "System1/health", reason="a head")
        await eventually(lambda: house.over(request_id))
        shown = (await house.http.get(f"/v1/dead-letters/{dead_letter['dead_letter_id']}")).json()
        assert (shown["status"], shown["rerouted_n"], shown["resolution"]) == ("handled", 2, "a head")
        assert (await house.http.get(f"/v1/messages/{request_id}")).json()["state"] == "answered"
        await house.balanced()


async def test_what_cannot_be_corrected(opened: Open) -> None:
    async with ScriptedLlm([to("System1/health")]) as llm, opened(llm) as house:
        classified = await house.message("x", sender="a")
        ruled = await house.message("x", channel="email", sender="b@example.org")
        for request_id, butler, status, code in (
            (str(uuid4()), "System1/health", 404, "not_found"),
            (ruled, "System1/health", 409, "not_classified"),
            (classified, "System1/helth", 404, "not_found"),
            (classified, "System4/root", 422, "unknown_target"),
        ):
            answer = await house.correct(request_id, butler)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
        assert "did you mean System1/doctor, System1/health" in (await house.correct(classified, "System1/helth")).text
        assert await house.log(corrected=True) == []
        assert await house.deliveries(classified) == [("System1/health", 1)]


async def test_while_a_message_waits_for_a_model_there_is_nothing_to_correct(opened: Open) -> None:
    down = Script(otherwise=Reply(fault=Status(500)))
    async with ScriptedLlm(down) as llm, opened(llm, attempts=30) as house:
        sent = await house.http.post("/v1/ingest", json=envelope_json("x"))
        request_id = sent.json()["request_id"]

        async def tried() -> bool:
            return bool(await house.log())

        await eventually(tried)
        answer = await house.correct(request_id, "System1/health")
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not_decided")
        assert {row["corrected_to"] for row in await house.log()} == {None}


async def test_who_may_correct(opened: Open) -> None:
    """The System3 of the team that asked, and those above it, to butlers of their own; each refusal is on record."""
    replies = [to("System1/health"), to("care"), to("System1/nurse")]
    async with ScriptedLlm(replies) as llm, opened(llm) as house:
        above = await house.message("x", sender="a")
        below = await house.message("y", sender="b")
        root3, care3 = await house.agent("System3/root"), await house.agent("System3/care")
        strangers = {
            "System1": await house.agent("System1/health"),
            "System4": await house.agent("System4/root"),
            "connector": await house.token("connector", "bot", channel="telegram", endpoint="bot:house"),
        }
        refused = "select count(*) from audit where action = 'refused:correct'"
        for name, header in strangers.items():
            before = await house.runtime.database.value(refused)
            answer = await house.correct(above, "System1/finance", header)
            assert answer.status_code == (403 if name == "connector" else 404), name
            assert await house.runtime.database.value(refused) == before + 1
        never = await house.correct(str(uuid4()), "System1/nurse", care3)
        foreign = await house.correct(above, "System1/nurse", care3)
        assert never.status_code == foreign.status_code == 404
        assert never.json()["error"]["code"] == foreign.json()["error"]["code"]
        beyond = await house.correct(below, "System1/health", care3)
        assert (beyond.status_code, beyond.json()["error"]["field"]) == (403, "to")
        assert await house.log(corrected=True) == []
        own = (await house.correct(below, "System1/doctor", care3, reason="a doctor")).json()
        assert (own["corrected_by"], own["decision_n"]) == ("System3/care", 2)
        rows = {row["team_id"]: row["corrected_to"] for row in await house.log() if row["request_id"] == below}
        assert rows == {"care": "System1/doctor", "root": None}, "what root chose is none of the System3 of care"
        higher = (await house.correct(below, "System1/finance", root3)).json()
        assert (higher["corrected_by"], higher["decision_n"]) == ("System3/root", 3)
        await eventually(lambda: house.over(below))
        await house.balanced()


async def test_agents_see_the_log_of_their_teams_and_of_others_messages_no_word(opened: Open) -> None:
    replies = [to("System1/health", reason="pills"), to("care"), to("System1/nurse", reason="a secret"), to("ghost")]
    async with ScriptedLlm(replies) as llm, opened(llm) as house:
        await house.message("top", sender="a")
        below = await house.message("a secret", sender="b")
        lost = await house.message("nobody knows", sender="c")
        for name in ("System3/care", "System4/care"):
            [row] = await house.log(await house.agent(name))
            assert (row["request_id"], row["team_id"], row["seen"], row["text"]) == (below, "care", False, None)
            assert row["result"] == {"routed": [{"butler": "System1/nurse"}], "inferred": False}
            assert "secret" not in str(row)
        third = await house.log(await house.agent("System3/root"))
        assert len(third) == 4
        assert {row["text"] for row in third} == {"nobody knows", None}, "of the dead letter, too"
        assert not [row for row in third if "ghost" in str(row["error"]) and row["request_id"] != lost]
        header = await house.agent("System4/root")
        fourth = {row["request_id"]: row for row in await house.log(header) if row["team_id"] == "root"}
        assert fourth[lost]["text"] == "nobody knows", "its dead letter may be read there"
        assert "ghost" in fourth[lost]["error"]
        assert {row["text"] for row in fourth.values()} == {"nobody knows", None}
        care = await house.agent("System1/nurse")
        for path, params in (("/v1/classifications", {}), ("/v1/classifications", {"team_id": "root"})):
            assert (await house.http.get(path, params=params, headers=care)).status_code == 403
        beyond = await house.http.get(
            "/v1/classifications?team_id=root", headers=await house.token("agent", "z", system_id="System4/care")
        )
        assert beyond.status_code == 403
        for path in ("/v1/models", "/v1/models/usage", "/v1/classifications/cases"):
            assert (await house.http.get(path, headers=header)).status_code == 403
        bot = await house.token("connector", "bot", channel="telegram", endpoint="bot:house")
        assert (await house.http.get(f"/v1/messages/{below}", headers=bot)).json()["classifications"] == []


async def test_what_was_corrected_can_be_tried_against_rules(opened: Open) -> None:
    async with ScriptedLlm([to("System1/health"), to("System1/health")]) as llm, opened(llm) as house:
        await house.message("fine", sender="a")
        request_id = await house.message("rent", sender="landlord")
        await house.correct(request_id, "System1/finance", only_note=True, reason="rent")
        found = (await house.http.get("/v1/classifications/cases")).json()
        [case] = found["cases"]
        assert (case["name"], case["expect"]) == (f"{request_id}: rent", "System1/finance")
        assert case["facts"]["channel"] == "telegram"
        assert (await house.http.get("/v1/classifications/cases?team_id=care")).json()["cases"] == []
        tried = (await house.http.post("/v1/rules/test", json={"cases": found["cases"]})).json()
        assert (tried["passed"], tried["failed"]) == (0, 1)
        rule = {"team_id": "root", "name": "rent", "channel": "telegram", "filters": {"sender": "landlord"}}
        made = {**rule, "targets": [{"system_id": "System1/finance"}], "reason": "corrected"}
        assert (await house.http.post("/v1/rules", json=made)).status_code == 201
        assert (await house.http.post("/v1/rules/test", json={"cases": found["cases"]})).json()["failed"] == 0


# What is forgotten ---------------------------------------------------------------------------------------------------


async def test_what_is_old_goes_but_for_corrections_and_the_account_of_days(opened: Open) -> None:
    replies = [to("System1/health"), to("System1/health"), to("System1/health")]
    async with ScriptedLlm(replies) as llm, opened(llm) as house:
        old, corrected, new = [await house.message(text, sender=text) for text in ("a", "b", "c")]
        await house.correct(corrected, "System1/finance", only_note=True)
        database = house.runtime.database
        await database.run("update classification set at = at - interval '40 days' where request_id <> $1", UUID(new))
        await database.run("update route_call set at = at - interval '60 days' where request_id = $1", UUID(old))
        retention_tasks = Retention(database)
        assert await retention_tasks.classifications(50) == 1  # the call alone is older
        assert await retention_tasks.classifications(30) == 1
        assert {row["request_id"] for row in await house.log()} == {corrected, new}
        kept = {row["request_id"] for row in await database.rows("select request_id from route_call")}
        assert kept == {UUID(corrected), UUID(new)}
        await database.run("insert into model_flow select 1, current_date - n, true from unnest(array[29, 31]) n")
        assert await retention_tasks.classifications(30) == 1
        assert await retention_tasks.classifications(30) == 0
        assert await retention_tasks.sessions() == 0, "they may still be looked at"
        await database.run(
            "update session_token set expires_at = now() - interval '61 minutes' where request_id = $1", UUID(old)
        )
        today = datetime.now(UTC).date()
        held = await classification.reserve_day(
            database, Reservation(new_uuid7(), today, Amount(5)), DispatchLimits().day, timedelta(hours=1)
        )
        gone = await classification.reserve_day(
            database, Reservation(new_uuid7(), today, Amount(5)), DispatchLimits().day, timedelta(seconds=-1)
        )
        await model_usage.cooldown(database, new_uuid7(), "first", -1, "it failed")
        await model_usage.cooldown(database, new_uuid7(), "first", 60, "it fails")
        assert held != gone
        assert await retention_tasks.sessions() == 3
        assert await database.value("select count(*) from session_token") == 2
        assert await database.value("select count(*) from model_reservation") == 1
        assert await database.value("select count(*) from model_cooldown") == 1
        assert (await model_usage.spending_of(database, today)).tokens >= 333


async def test_keys_of_long_ago_are_forgotten(opened: Open) -> None:
    async with ScriptedLlm([]) as llm, opened(llm) as house:
        database, now = house.runtime.database, time.time()
        old, young = uuid4(), uuid4()
        for key, days in ((old, 31), (young, 29)):
            id_then = IdSequence().next(1, now - days * 86_400)[0]
            assert await classification.claim_key(database, key.hex, id_then) is None
            await classification.keep_key(database, key.hex, uuid4().hex, id_then)
        assert await Retention(database).classifications(30) == 1
        assert [row["key"] for row in await database.rows("select key from pipeline_key")] == [young]


async def test_open_sessions_are_never_forgotten(opened: Open) -> None:
    async with ScriptedLlm([]) as llm, opened(llm) as house:
        new = NewSession("c", new_uuid7(), "root", (), timedelta(minutes=5))
        await classification.open_session(house.runtime.database, new, b"digest")
        assert await Retention(house.runtime.database).sessions() == 0
        assert await classification.find_session(house.runtime.database, b"digest") is not None


# Messages that a model split ------------------------------------------------------------------------------------------

SPLIT = "my HIV test is positive. please wash grandmother"
SECRET, WASH = "my HIV test is positive.", "please wash grandmother"


def parts(*given: tuple[str, str]) -> Reply:
    """The model brings to each butler its part."""
    calls = (Call("route_to_butler", {"butler": butler, "segment": part}) for butler, part in given)
    return Reply(calls=tuple(calls), usage=SPENT)


async def texts(house: House, request_id: str) -> list[tuple[str, int, str | None]]:
    """(butler, number of the decision, its part) of each delivery."""
    sql = "select system_id, n, text from delivery where request_id = $1 order by n, system_id"
    return [tuple(row) for row in await house.runtime.database.rows(sql, UUID(request_id))]


def with_refuser(team: int) -> tuple[dict[str, Any], ...]:
    """The teams, with a butler that refuses in one of them."""
    refuses = {"command": ["sh", "-c", "cat > /dev/null; exit 65"]}
    refuser = {"name": "System1/refuser", "engine": "command", "config": refuses}
    return tuple({**one, "systems": [*one["systems"], *[refuser] * (n == team)]} for n, one in enumerate(TEAMS))


async def test_a_correction_below_a_split_brings_on_what_came_there_and_no_more(opened: Open) -> None:
    replies = [parts(("System1/health", SECRET), ("care", WASH)), to("System1/nurse")]
    async with ScriptedLlm(replies) as llm, opened(llm) as house:
        request_id = await house.message(SPLIT)
        first = [("System1/health", 1, SECRET), ("System1/nurse", 1, WASH)]
        assert await texts(house, request_id) == first
        care = await house.agent("System3/care")
        assert (await house.correct(request_id, "System1/nurse", care)).json()["decision_n"] is None, "she has it"
        assert (await house.correct(request_id, "System1/doctor", care)).json()["decision_n"] == 2
        assert (await house.correct(request_id, "System1/doctor", care)).json()["already"]
        second = [*first, ("System1/doctor", 2, WASH)]
        assert await texts(house, request_id) == second
        above = await house.agent("System3/root")
        assert (await house.correct(request_id, "System1/doctor", above)).json()["decision_n"] == 3
        assert (await house.correct(request_id, "System1/nurse")).json()["decision_n"] == 4, (
            "an operator's is the whole"
        )
        assert await texts(house, request_id) == [*second, ("System1/doctor", 3, None), ("System1/nurse", 4, None)]
        await eventually(lambda: house.over(request_id))
        await house.balanced()


async def test_a_butler_that_got_a_part_gets_the_whole_message_once(opened: Open) -> None:
    async with ScriptedLlm([parts(("System1/health", SECRET), ("System1/finance", WASH))]) as llm, opened(llm) as house:
        request_id = await house.message(SPLIT)
        done = await asyncio.gather(*(house.correct(request_id, "System1/health") for _ in range(4)))
        assert sorted(str(one.json()["decision_n"]) for one in done) == ["2", "None", "None", "None"]
        assert [one for one in await texts(house, request_id) if one[1] > 1] == [("System1/health", 2, None)]
        await eventually(lambda: house.over(request_id))
        await house.balanced()


async def test_a_dead_letter_below_a_split_is_told_shown_and_sent_on_as_its_part(opened: Open) -> None:
    replies = [parts(("System1/health", SECRET), ("care", WASH)), to("ghost")]
    async with ScriptedLlm(replies) as llm, opened(llm) as house:
        request_id = await house.message(SPLIT)
        care, above = await house.agent("System4/care"), await house.agent("System4/root")
        [row] = (await house.http.get("/v1/dead-letters", headers=care)).json()["dead_letters"]
        path = f"/v1/dead-letters/{row['dead_letter_id']}"
        shown = await house.http.get(path, headers=care)
        log = await house.log(care)
        assert (row["text"], row["part"], log[0]["text"], log[0]["seen"]) == (WASH, WASH, WASH, True)
        assert shown.json()["payload"]["payload"]["normalized_text"] == WASH
        assert shown.json()["raw_base64"] == ""
        assert "HIV" not in f"{row}{log}{shown.text}"
        assert (await house.http.get(path, headers=above)).status_code == 404
        whole = (await house.http.get(path)).json()
        assert (whole["text"], whole["part"]) == (SPLIT, WASH), "operators see all"
        assert whole["raw_base64"]
        sql = "select lane, seq from notice where request_id = $1"
        [notice] = await house.runtime.database.rows(sql, UUID(request_id))
        item = Item(LaneKey(notice["lane"]), "notice", 3, notice["seq"], 1, 1)
        [work] = await load_work(house.runtime.database, [item])
        assert work.envelope.payload.normalized_text == WASH
        order = {"to": {"system_id": "System1/nurse"}, "reason": "she washes"}
        sent = await house.http.post(f"{path}/reroute", json=order, headers=care)
        assert sent.json()["dead_letter"]["text"] == WASH
        assert await texts(house, request_id) == [("System1/health", 1, SECRET), ("System1/nurse", 2, WASH)]
        await eventually(lambda: house.over(request_id))
        await house.balanced()


async def test_what_dies_again_after_a_reroute_is_still_but_the_part(opened: Open) -> None:
    replies = [parts(("System1/health", SECRET), ("care", WASH)), to("ghost")]
    async with ScriptedLlm(replies) as llm, opened(llm, teams=with_refuser(1)) as house:
        request_id = await house.message(SPLIT)
        [row] = (await house.http.get("/v1/dead-letters")).json()["dead_letters"]
        order = {"to": {"system_id": "System1/refuser"}, "reason": "try"}
        sent = await house.http.post(f"/v1/dead-letters/{row['dead_letter_id']}/reroute", json=order)
        assert sent.json()["decision_n"] == 2, sent.text
        await eventually(lambda: house.over(request_id))
        care = await house.agent("System4/care")
        listed = (await house.http.get("/v1/dead-letters", params={"status": "pending"}, headers=care)).json()
        [again] = listed["dead_letters"]
        assert (again["system_id"], again["text"], again["part"]) == ("System1/refuser", WASH, WASH)
        whole = await house.correct(request_id, "System1/nurse")
        assert whole.json()["decision_n"] == 3
        await eventually(lambda: house.over(request_id))
        await house.balanced()


async def test_the_splitting_team_sees_all_of_what_its_own_butler_did_not_take(opened: Open) -> None:
    replies = [parts(("System1/health", SECRET), ("System1/refuser", WASH))]
    async with ScriptedLlm(replies) as llm, opened(llm, teams=with_refuser(0)) as house:
        request_id = await house.message(SPLIT)
        root = await house.agent("System4/root")
        [row] = (await house.http.get("/v1/dead-letters", headers=root)).json()["dead_letters"]
        assert (row["system_id"], row["text"], row["part"]) == ("System1/refuser", SPLIT, WASH)
        path, order = f"/v1/dead-letters/{row['dead_letter_id']}", {"to": {"system_id": "System1/health"}}
        assert (await house.http.get(path, headers=root)).json()["raw_base64"]
        sent = await house.http.post(f"{path}/reroute", json={**order, "reason": "the owl, too"}, headers=root)
        assert sent.json()["decision_n"] == 2, "another part is there already"
        assert [one for one in await texts(house, request_id) if one[1] > 1] == [("System1/health", 2, WASH)]
