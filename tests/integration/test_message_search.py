"""Finding messages: every filter finds what it names, page by page in both directions, however little is looked at."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args
from uuid import UUID

import pytest
from msgspec.structs import asdict

from switchboard.app.access import Access, Principal
from switchboard.app.messages import searching
from switchboard.app.messages.searching import WALK, MessageFilter, MessageSearch, MessagesPage, Period, time_of
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.domain.errors import Forbidden, InvalidInput
from switchboard.domain.shown import MessageState
from switchboard.journey.rulebook import RuleBook
from switchboard.lanes.notifier import Notifier
from switchboard.store.database import Database
from switchboard.store.messages import searching as found_texts
from switchboard.store.migrate import migrate
from switchboard.store.rules import teams
from tests.commands import Cli
from tests.integration.test_query_plans import Watched
from tests.postgres import AN_ID
from tests.servers import RULES, TEAMS, Opened, open_server
from tests.width import wide

OPERATOR: Final = Principal("operator", "test")
MANY: Final = 300
FILL: Final = """
insert into conversation
select conversation_key('telegram/bot/' || n), 'telegram/bot/' || n from generate_series(0, 19) n;
insert into message_inbox
select AN_ID, conversation_key('telegram/bot/' || n % 20), case when n % 7 = 0 then 'email' else 'telegram' end,
       'bot' || n % 3, 'sender' || n % 20, null, '{"payload": {"normalized_text": "text", "attachments": []}}',
       'application/json', now() from generate_series(1, MANY) n;
with m as (select request_id, conversation, row_number() over () as n from message_inbox)
insert into delivery (lane, seq, request_id, system_id, team_id, state, error_class, created_at)
select conversation, n, request_id, 'System1/' || n % 4, 'team' || n % 2,
       (array['answered', 'answered', 'pending', 'declined', 'dead', 'cancelled'])[1 + n % 6],
       case when n % 11 = 0 and n % 6 > 2 then 'handed_on' end, now()
from m where n % 10 < 7;
with m as (select request_id, conversation, row_number() over () as n from message_inbox)
insert into dead_letter (dead_letter_id, conversation, request_id, team_id, channel, payload, raw, category, reason,
                         received_at, created_at)
select gen_random_uuid(), conversation, request_id, 'team2', 'telegram', '{}', '', 'no_route', 'x', now(), now()
from m where n % 10 in (3, 7);
with m as (select request_id, conversation, row_number() over () as n from message_inbox)
insert into held (request_id, contact_id, conversation, state, tier, facts, at)
select request_id, gen_random_uuid(), conversation, (array['held', 'forgotten', 'code'])[1 + n % 3], 2, '{}', now()
from m where n % 10 = 8;
with m as (select request_id, row_number() over () as n from message_inbox)
insert into decision (request_id, n, version, branches, trail, decided_at)
select request_id, 1, 1, case when n % 10 = 9 then 0 else 1 end, '[]', now() from m;
"""
FILTERS: Final = (
    MessageFilter(),
    MessageFilter(channel="email"),
    MessageFilter(channel="email", endpoint="bot1"),
    MessageFilter(endpoint="bot2"),
    MessageFilter(sender="sender7"),
    MessageFilter(butler="System1/2"),
    MessageFilter(team="team1"),
    MessageFilter(team="team2", channel="telegram"),
    *(MessageFilter(state=state) for state in get_args(MessageState)),
    MessageFilter(state="dead", sender="sender3"),
)
PARAMETERS: Final = {"butler": "system_id", "team": "team_id"}
"""What the API calls these."""
MEANT: Final = """
select request_id from message_inbox m
where ($1::text is null or channel = $1) and ($2::text is null or endpoint = $2) and ($3::text is null or sender = $3)
  and ($4::text is null or exists (select from delivery d where d.request_id = m.request_id and d.system_id = $4))
  and ($5::text is null or exists (select from delivery d where d.request_id = m.request_id and d.team_id = $5)
       or exists (select from dead_letter d where d.request_id = m.request_id and d.team_id = $5))
  and ($6::text is null or message_state(request_id) = $6)
order by request_id desc
"""


def search_of(server: Opened) -> MessageSearch:
    return MessageSearch(server.switchboard.runtime, server.access)


def statements(sql: str, messages: int) -> str:
    return sql.replace("AN_ID", AN_ID).replace("MANY", str(messages))


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """With messages of all kinds."""
    async with open_server(database_url, tmp_path / "data") as opened:
        await opened.lab.database.run(statements(FILL, MANY))
        yield opened


async def all_pages(search: MessageSearch, wanted: MessageFilter) -> tuple[list[UUID], list[UUID]]:
    """The ids of all pages from the newest on, and of all pages back from the last one."""
    down: list[UUID] = []
    page, seen = MessagesPage((), older=""), 0
    while page.older is not None:
        page = await search.find(OPERATOR, wanted, Period(), cursor=page.older or None, limit=7)
        down += [one.request_id for one in page.messages]
        assert (page.looked_until is None) or page.older is not None
        seen += 1
        assert seen <= MANY
    up: list[UUID] = [one.request_id for one in page.messages]
    first = page.newer is None
    while not first and page.newer is not None:
        page = await search.find(OPERATOR, wanted, Period(), cursor=page.newer, limit=7)
        known = set(up)
        up = [*(one.request_id for one in page.messages if one.request_id not in known), *up]
    return down, up


@pytest.mark.parametrize("steps", [(4, 9, 20), (WALK,)], ids=["little at a time", "all at once"])
async def test_every_filter_finds_what_it_names_in_both_directions(
    server: Opened, monkeypatch: pytest.MonkeyPatch, steps: tuple[int, ...]
) -> None:
    monkeypatch.setattr(searching, "_STEPS", steps)
    search = search_of(server)
    found: dict[str, int] = {}
    for one in FILTERS:
        rows = await server.lab.database.rows(
            MEANT, one.channel, one.endpoint, one.sender, one.butler, one.team, one.state
        )
        meant = [row["request_id"] for row in rows]
        down, up = await all_pages(search, one)
        assert down == meant, one
        assert up == meant, one
        found[str(one)] = len(meant)
    assert min(found.values()) > 0, "each has something to find"


async def test_a_period_is_found_by_ids(server: Opened) -> None:
    search = search_of(server)
    now = datetime.now(UTC)
    for period, found in (
        (Period(now - timedelta(minutes=5)), True),
        (Period(until=now - timedelta(minutes=5)), False),
        (Period(now + timedelta(minutes=5)), False),
        (Period(now, now - timedelta(days=1)), False),
    ):
        page = await search.find(OPERATOR, MessageFilter(), period, cursor=None, limit=5)
        assert bool(page.messages) is found, period
        for one in page.messages:
            assert abs(time_of(one.request_id) - now) < timedelta(minutes=5)


async def test_what_is_refused(server: Opened) -> None:
    search, member = search_of(server), Principal("connector", "a", "api", "a")
    wrong: Mapping[str, tuple[Principal, MessageFilter, str | None, type[Exception]]] = {
        "a channel that is none": (OPERATOR, MessageFilter(channel="telegrm"), None, InvalidInput),
        "a butler that is none": (OPERATOR, MessageFilter(butler="System1/ecko"), None, InvalidInput),
        "a team that is none": (OPERATOR, MessageFilter(team="sight"), None, InvalidInput),
        "a cursor of nobody": (OPERATOR, MessageFilter(), "older:x", InvalidInput),
        "a direction of nobody": (OPERATOR, MessageFilter(), f"up:{UUID(int=1)}", InvalidInput),
        "an account of others": (member, MessageFilter(channel="telegram", endpoint="bot1"), None, Forbidden),
    }
    for caller, wanted, cursor, error in wrong.values():
        with pytest.raises(error):
            await search.find(caller, wanted, Period(), cursor=cursor, limit=5)


async def listed(server: Opened, **asked: object) -> dict[str, Any]:
    answer = await server.http.get("/v1/messages", params={name: str(value) for name, value in asked.items()})
    assert answer.status_code == 200, (asked, answer.text)
    return dict(answer.json())


def ids_in(page: Mapping[str, Any]) -> list[str]:
    return [one["request_id"] for one in page["messages"]]


async def test_the_api_finds_the_same_and_has_pages_both_ways(server: Opened) -> None:
    search = search_of(server)
    for one in FILTERS:
        asked = {PARAMETERS.get(name, name): value for name, value in asdict(one).items() if value is not None}
        first = await listed(server, limit=3, **asked)
        meant = await search.find(OPERATOR, one, Period(), cursor=None, limit=3)
        assert ids_in(first) == [str(message.request_id) for message in meant.messages], one
        second = await listed(server, limit=3, **asked, cursor=first["next_cursor"])
        assert not set(ids_in(first)) & set(ids_in(second))
        assert ids_in(await listed(server, limit=3, **asked, cursor=second["newer_cursor"])) == ids_in(first)
        assert (first["newer_cursor"], first["looked_until"]) == (None, None)
    for name, found in (("since", MANY), ("until", 0)):
        hour_ago = datetime.now(UTC) - timedelta(hours=1)
        assert len(ids_in(await listed(server, limit=500, **{name: hour_ago.isoformat()}))) == found


async def test_the_api_refuses_what_it_cannot_look_for(server: Opened) -> None:
    for asked, code, told in (
        ({"since": "2026-01-31T12:00:00"}, "invalid_input", "2026-01-31T12:00:00Z"),
        ({"until": "yesterday"}, "invalid_input", "until"),
        ({"butler": "echo"}, "unknown_parameter", "there is no parameter 'butler'"),
        ({"system_id": "System1/ecko"}, "unknown_butler", "did you mean System1/echo"),
        ({"team_id": "sid"}, "unknown_team", "did you mean side?"),
        ({"state": "lost"}, "invalid_input", "state"),
    ):
        answer = await server.http.get("/v1/messages", params=asked)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (422, code), error
        assert told in str(error), error


async def test_texts_are_whole_in_the_api_and_a_page_has_room_for_some(
    server: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = """update message_inbox set envelope = jsonb_set(envelope::jsonb, '{payload,normalized_text}',
              to_jsonb(repeat('word ', 200)))"""
    await server.lab.database.run(long)
    page = await listed(server, limit=4)
    assert {one["text"] for one in page["messages"]} == {"word " * 200}
    monkeypatch.setattr(searching, "PAGE_CHARACTERS", 2500)
    fetched: list[Sequence[UUID]] = []
    whole_texts = found_texts.whole_texts

    async def watched(database: Database, request_ids: Sequence[UUID]) -> Mapping[UUID, str]:
        fetched.append(request_ids)
        return await whole_texts(database, request_ids)

    monkeypatch.setattr(found_texts, "whole_texts", watched)
    short = await listed(server, limit=4)
    assert ids_in(short) == ids_in(page)[:3]
    following = await listed(server, limit=4, cursor=short["next_cursor"])
    assert ids_in(following)[0] == ids_in(page)[3]
    older = await listed(server, limit=4, cursor=following["next_cursor"])
    assert ids_in(await listed(server, limit=4, cursor=older["newer_cursor"])) == ids_in(following)
    assert [len(ids) for ids in fetched] == [3] * 4, "what is not shown is not held in memory"


async def test_the_command_line_finds_the_same(
    server: Opened, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "_STEPS", (10,))
    cli = Cli(capsys, monkeypatch, server.environment)
    everything = ("--sender", "sender3", "--state", "dead", "--since", "2026-01-31", "--until", "2100-01-01")

    def look() -> None:
        told = cli.says("messages", "list", *everything, "--limit", "2", "--channel", "telegram")
        assert "looked through 10,000 messages, as far as" in told
        [again] = [line.partition("switchboard ")[2] for line in told.splitlines() if line.startswith("more: ")]
        assert set(everything) < set(again.split())
        assert "newer: switchboard messages list --cursor newer:" in cli.says(*shlex.split(again))
        assert cli.json("messages", "list", "--butler", "System1/2")["messages"]
        assert "there is no butler 'ecko'" in cli.run("messages", "list", "--butler", "ecko")[2]
        assert "is not a time" in cli.run("messages", "list", "--since", "yesterday")[2]

    await asyncio.to_thread(look)


LARGE: Final = """
insert into conversation values (conversation_key('telegram/bot/1'), 'telegram/bot/1');
insert into message_inbox
select AN_ID, conversation_key('telegram/bot/1'), 'telegram', 'bot', 'ann', null, '{}', 'x', now()
from generate_series(1, MANY) n;
insert into delivery (lane, seq, request_id, system_id, team_id, state, created_at)
select conversation, row_number() over (), request_id, 'System1/a', 'root', 'answered', now() from message_inbox;
insert into decision (request_id, n, version, branches, trail, decided_at)
select request_id, 1, 1, 1, '[]', now() from message_inbox;
analyze;
"""
GROWN: Final = ("message_inbox", "delivery", "decision", "dead_letter", "held", "routing")
NOWHERE: Final = (
    MessageFilter(),
    MessageFilter(channel="email"),
    MessageFilter(channel="telegram", endpoint="nowhere"),
    MessageFilter(endpoint="nowhere"),
    MessageFilter(sender="nobody"),
    MessageFilter(butler="System1/nobody"),
    MessageFilter(team="nowhere"),
    MessageFilter(channel="telegram", sender="nobody", state="held"),
    *(MessageFilter(state=state) for state in get_args(MessageState)),
)


async def find_nothing(search: MessageSearch, wanted: MessageFilter, cursor: str | None) -> None:
    with suppress(InvalidInput):  # after it was looked for
        await search.find(OPERATOR, wanted, Period(), cursor=cursor, limit=50)


@pytest.mark.slow
async def test_what_is_nowhere_is_looked_for_no_further_than_a_page_may(database_url: str) -> None:
    """Whatever is asked, each table is read about as far as one looks, and none from end to end."""
    database = await Database.connect(database_url, size=1)
    try:
        await migrate(database)
        await database.run(statements(LARGE, wide(1_000_000, 100_000)))
        watched = Watched(database, 0)
        notifier = Notifier(database)
        await teams.seed(database, TEAMS, RULES, author="test", reason="to have a root")
        runtime = Runtime(Settings(), database, notifier, await RuleBook.open(database, notifier))
        search = MessageSearch(runtime, Access(database))
        for wanted in NOWHERE:
            for cursor in (None, f"newer:{UUID(int=1)}"):
                act = partial(find_nothing, search, wanted, cursor)
                for table in GROWN:
                    assert await watched.rows_read(table, act) <= 3 * WALK, (wanted, cursor, table)
    finally:
        await database.close()
