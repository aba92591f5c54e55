"""The walls of memory: who is told what was said and learned, and that each clause of the wall is needed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import asyncpg
import pytest
from msgspec.structs import replace
from pydantic import SecretStr

from switchboard.app.ops.backup import back_up, restore
from switchboard.app.settings import Settings
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.handle import Handle, handle_at
from switchboard.domain.ledger import LaneKey
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.ports.facts import Reader
from switchboard.ports.history import WantedHistory
from switchboard.store.database import SQL, Database, query
from switchboard.store.memory import facts
from switchboard.store.memory.facts import NewFact
from switchboard.store.memory.history import StoredHistory, StoredReaders
from switchboard.store.memory.readers import handle_columns
from switchboard.store.memory.search import FactSearch
from switchboard.store.migrate import migrate
from switchboard.store.people import people
from tests.lab import lab
from tests.waiting import eventually

NOTES, OTHER = SystemId("System1/notes"), SystemId("System1/other")
ANN, BOB = "telegram/bot/ann", "telegram/bot/bob"
ANN_BY_MAIL, CLAIMED, FORMER = "email/imap%3Abot/ann%40example.org", "api/web/ann", "signal/bot/ann"
HERS, HIS, GROUP, CLUB = map(Conversation, (ANN, BOB, "telegram/bot/group", "telegram/bot/club"))
MAILS, HALL = Conversation("email/imap:bot/<first@x>"), Conversation("email/imap:bot/hall")
LANE: Final = """
insert into lane (key, kind, system_id, conversation, pool, tier)
select lane_key('turn', $1, enter_conversation($2)), 'turn', $1, enter_conversation($2), 'work', 2
on conflict do nothing"""
LEARNED: Final = (
    (NOTES, HERS, ANN, True, "ann private"),
    (NOTES, GROUP, ANN, False, "ann in the group"),
    (NOTES, GROUP, ANN, True, "ann in the group's thread, but in private"),
    (NOTES, GROUP, ANN, False, "an illness, told to many"),
    (NOTES, CLUB, ANN, False, "ann in the club"),
    (NOTES, HERS, ANN, True, "an illness, told to nobody else"),
    (NOTES, HERS, ANN, True, "undone, alone with the butler"),
    (NOTES, HIS, BOB, True, "bob private"),
    (NOTES, HERS, ANN, True, "ann to all"),
    (OTHER, HERS, ANN, True, "ann private, another butler"),
    (OTHER, GROUP, ANN, False, "ann in the group, another butler"),
    (OTHER, HERS, ANN, True, "ann to all, another butler"),
    (NOTES, MAILS, ANN_BY_MAIL, True, "ann by mail"),
    (NOTES, HALL, ANN_BY_MAIL, False, "ann by mail to many"),
    (NOTES, Conversation(CLAIMED), CLAIMED, True, "somebody who says to be ann"),
    (NOTES, Conversation(FORMER), FORMER, True, "ann of an account that was hers"),
)
"""Butler, conversation, author, in private or not, text. What is "to all" is shared, "undone" counts no more."""
ANN_ALONE: Final = Reader(NOTES, HERS, ANN, private=True)
BOB_ALONE: Final = Reader(NOTES, HIS, BOB, private=True)
BOB_IN_GROUP: Final = Reader(NOTES, GROUP, BOB)
LINKED: Final = (
    ("ann", "telegram", "ann"),
    ("ann", "email", "ann@example.org"),
    ("ann", "api", "ann"),
    ("bob", "telegram", "bob"),
    ("bob", "email", "bob@example.org"),
)
"""Person, channel and identity. Nobody vouches for senders of the API."""
HERS_ALONE: Final = {
    *("ann private", "ann in the group's thread, but in private", "ann by mail", "an illness, told to nobody else"),
}
BY_MAIL: Final = replace(ANN_ALONE, conversation=MAILS, person=ANN_BY_MAIL)
EXPECTED: Final = (
    (ANN_ALONE, {*HERS_ALONE, "ann to all"}),
    (BY_MAIL, {*HERS_ALONE, "ann to all"}),
    (replace(BY_MAIL, private=False), {"ann to all"}),
    (replace(BY_MAIL, conversation=HALL, private=False), {"ann by mail to many", "ann to all"}),
    (replace(BY_MAIL, authentic=False), set[str]()),
    (replace(BY_MAIL, person="email/imap%3Abot/bob%40example.org"), {"bob private", "ann to all"}),
    (replace(BY_MAIL, person=CLAIMED), {"somebody who says to be ann", "ann to all"}),
    (replace(BY_MAIL, person=FORMER), {"ann of an account that was hers", "ann to all"}),
    (replace(BY_MAIL, person="telegram/embedded%3ASystem1%2Fnotes/ann"), {"ann to all"}),
    (BOB_ALONE, {"bob private", "ann to all"}),
    (BOB_IN_GROUP, {"ann in the group", "ann to all"}),
    (replace(ANN_ALONE, conversation=GROUP, private=False), {"ann in the group", "ann to all"}),
    (replace(BOB_ALONE, conversation=GROUP), {"bob private", "ann to all"}),
    (replace(BOB_IN_GROUP, conversation=HIS), {"ann to all"}),
    (replace(ANN_ALONE, system_id=OTHER), {"ann private, another butler", "ann to all, another butler"}),
    (Reader(NOTES, GROUP), {"ann to all"}),
    (Reader(NOTES, HERS, private=True), {"ann to all"}),
    *((replace(one, authentic=False), set[str]()) for one in (ANN_ALONE, BOB_ALONE, BOB_IN_GROUP)),
)


@asynccontextmanager
async def served(database_url: str) -> AsyncIterator[Database]:
    """The database as a role that owns our schema, and is no superuser: row security binds only such."""
    role = f"server_{uuid4().hex}"
    place = urlsplit(database_url).path[1:]
    await as_superuser(database_url, f"create role {role} login")
    await as_superuser(database_url, f"grant create on database {place} to {role}")
    await as_superuser(database_url, f"drop schema switchboard cascade; create schema switchboard authorization {role}")
    database = await Database.connect(database_url.replace("postgres@", f"{role}@", 1), size=2)
    try:
        await migrate(database)
        yield database
    finally:
        await database.close()
        await as_superuser(database_url, f"drop owned by {role} cascade; drop role {role}")


async def as_superuser(database_url: str, statement: str) -> None:
    database = await Database.connect(database_url, size=1)
    await database.run(statement)
    await database.close()


async def link(database: Database, person: str, channel: str, identity: str) -> None:
    await people.create(database, person, person.title())
    assert await people.link(database, person, handle_at(CHANNELS[channel], "web", identity), "operator")


async def learn(database: Database) -> dict[str, UUID]:
    """Keep all of LEARNED, and link; the ids by text."""
    for one in (*LINKED, ("ann", "signal", "ann")):
        await link(database, *one)
    for system_id, conversation, author, private, text in LEARNED:
        await database.run(LANE, system_id, conversation)
        lane = await database.value("select lane_key('turn', $1, conversation_key($2))", system_id, conversation)
        predicate = "has_condition" if "illness" in text else "other"
        new = NewFact(author, "figs", private, text, (1,), predicate)
        assert await facts.save(database, LaneKey(lane), system_id, [new]) == 1
    ids = {one.text: one.fact_id for one in await facts.list_facts(database, None, None, None, 100)}
    for text, fact_id in ids.items():
        if "to all" in text:
            assert await facts.share_as_operator(database, fact_id)
        if "undone" in text:
            assert await facts.undo(database, fact_id)
    assert await people.unlink(database, "ann", Handle("signal", "", "ann"))
    return ids


async def told(database: Database, reader: Reader) -> set[str]:
    """The texts of what this reader is told."""
    who = reader.system_id, reader.conversation, reader.person, reader.private, reader.authentic
    rows = await database.rows(query("facts.visible"), *who, 100, *handle_columns(reader))
    return {row["text"] for row in rows}


async def share(database: Database, fact_id: UUID, reader: Reader) -> bool:
    """Whether this reader may share a fact, and has."""
    who = reader.system_id, reader.person, reader.authentic, False
    return bool(await database.value(query("facts.share"), fact_id, *who, *handle_columns(reader)))


async def wall(database: Database) -> list[set[str]]:
    return [await told(database, reader) for reader, _ in EXPECTED]


async def told_among(database: Database, fact_ids: Sequence[UUID]) -> int:
    """How many of these facts Ann is told, alone with the butler."""
    who = ANN_ALONE.system_id, ANN_ALONE.conversation, ANN_ALONE.person, True, True
    return len(await database.rows(query("facts.among"), *who, list(fact_ids), *handle_columns(ANN_ALONE)))


async def test_each_reader_is_told_what_they_may_hear_and_nothing_else(database_url: str) -> None:
    async with served(database_url) as database:
        await learn(database)
        assert await wall(database) == [expected for _, expected in EXPECTED]


CLAUSE = re.compile(r"(?:not )?[\w.]+(?: (?:=|<>|>) (?:any \(\w+\)|[\w.']+)| is null)?")


def clauses(name: str, file: str) -> tuple[str, list[tuple[str, str]]]:
    """The SQL of a function, and per clause of its `where`: the clause, and the function as it would be without it."""
    text = SQL.joinpath(f"functions/{file}.sql").read_text(encoding="utf-8")
    found = re.search(rf"create or replace function {name}\(.*?\$\$;", text, re.DOTALL)
    assert found is not None
    sql = found[0]
    at = sql.index("where") + len("where")
    mutants = []
    for clause in CLAUSE.finditer(sql, at, sql.index(";", at)):
        if clause[0] in ("and", "or"):
            continue
        alone = re.search(r"\(\s*$", sql[: clause.start()]) and sql[clause.end() :].lstrip().startswith("or")
        mutants.append((clause[0], f"{sql[: clause.start()]}{'false' if alone else 'true'}{sql[clause.end() :]}"))
    return sql, mutants


async def test_without_any_one_clause_the_wall_of_facts_is_another(database_url: str) -> None:
    sql, mutants = clauses("visible", "facts")
    assert [clause for clause, _ in mutants] == [
        *(
            "f.system_id = _system_id",
            "f.undone_at is null",
            "_private",
            "not f.special",
            "_authentic",
            "f.space = 'shared'",
        ),
        *("f.space = 'private'", "_private", "f.author = _person"),
        *("f.space = 'private'", "_private", "f.handle = any (_handles)"),
        *("f.space = 'group'", "not _private", "_person <> ''", "f.conversation = _conversation"),
        *("_among is null", "f.fact_id = any (_among)", "f.rivals = any (_rivals)"),
    ]
    async with served(database_url) as database:
        ids = await learn(database)
        asked = ids["ann private"], ids["bob private"]
        assert await told_among(database, asked) == 1
        for clause, mutant in mutants:
            await database.run(mutant)
            seen = await wall(database), await told_among(database, asked)
            assert seen != ([expected for _, expected in EXPECTED], 1), clause
        await database.run(sql)
        assert await wall(database) == [expected for _, expected in EXPECTED]


SAID: Final = (
    "insert into entry (lane, position, request_id, role, person, private, text, created_at, compacted_at) "
    "values ($1, $2, coalesce($7, gen_random_uuid()), 'user', $3, $4, $5, now(), $6::timestamptz)"
)
HEARD: Final[tuple[tuple[tuple[int, str, bool, bool], list[str]], ...]] = (
    ((0, ANN, True, True), ["private", "open"]),
    ((0, BOB, True, True), ["open"]),
    ((0, ANN, False, True), ["open"]),
    ((0, "", False, True), ["open"]),
    ((0, ANN, True, False), []),
    ((2, ANN, True, True), ["open"]),
)
"""Position after which, person, private and authentic; what is read of the lane."""


async def test_without_any_one_clause_the_wall_of_histories_is_another(database_url: str) -> None:
    sql, mutants = clauses("visible_entries", "entries")
    lane, another = uuid4(), uuid4()

    async def heard(database: Database) -> list[list[str]]:
        rows = "select text from visible_entries($1, $2, $3, $4, $5) order by position"
        return [[row["text"] for row in await database.rows(rows, lane, *who)] for who, _ in HEARD]

    async with served(database_url) as database:
        for place, position, person, private, text, request_id in (
            (lane, 1, ANN, True, "compacted", None),
            (lane, 2, ANN, True, "private", None),
            (lane, 3, ANN, False, "open", None),
            (lane, 4, ANN, False, "of before the beginning", UUID(int=0)),
            (another, 5, ANN, True, "elsewhere", None),
        ):
            at = await database.value("select now()") if text == "compacted" else None
            await database.run(SAID, place, position, person, private, text, at, request_id)
        assert await heard(database) == [expected for _, expected in HEARD]
        assert len(mutants) == 8
        for clause, mutant in mutants:
            await database.run(mutant)
            assert await heard(database) != [expected for _, expected in HEARD], clause
        await database.run(sql)


SPOKEN: Final[tuple[tuple[SystemId, Conversation, str, bool, str, str | None], ...]] = (
    (NOTES, HERS, ANN, True, "private", None),
    (NOTES, GROUP, ANN, False, "open", None),
    (NOTES, GROUP, ANN, True, "private in the group's thread", None),
    (NOTES, CLUB, ANN, False, "open elsewhere", None),
    (OTHER, HERS, ANN, True, "private, another butler", None),
    (NOTES, HIS, BOB, True, "bob's", None),
    (NOTES, MAILS, ANN_BY_MAIL, True, "by mail", None),
    (NOTES, HALL, ANN_BY_MAIL, False, "by mail to many", None),
    (NOTES, MAILS, ANN_BY_MAIL, True, "forgotten", "set learn = false"),
    (NOTES, HERS, ANN, True, "behind a summary", "set compacted_at = now()"),
    (NOTES, HERS, ANN, True, "before the beginning", "set request_id = '00000000-0000-0000-0000-000000000000'"),
    (NOTES, GROUP, "", False, "to nobody in particular", None),
)
"""Butler, conversation, person, in private or not, text, and what is done to the entry."""
ANN_SAID: Final = {"private", "private in the group's thread", "by mail", "behind a summary"}
SEARCHED: Final = (
    (ANN_ALONE, ANN_SAID),
    (BY_MAIL, ANN_SAID),
    (replace(ANN_ALONE, conversation=GROUP), ANN_SAID | {"open", "to nobody in particular"}),
    (replace(BY_MAIL, conversation=HALL, private=False), {"by mail to many"}),
    (BOB_IN_GROUP, {"open", "to nobody in particular"}),
    (BOB_ALONE, {"bob's"}),
    (replace(BY_MAIL, person=FORMER), set[str]()),
    (replace(ANN_ALONE, system_id=OTHER), {"private, another butler"}),
    (Reader(NOTES, GROUP), set[str]()),
    *((replace(one, authentic=False), set[str]()) for one in (ANN_ALONE, BOB_ALONE, BOB_IN_GROUP)),
)


async def speak(database: Database) -> None:
    """Say all of SPOKEN."""
    for position, (system_id, conversation, person, private, text, done) in enumerate(SPOKEN, 1):
        await database.run(LANE, system_id, conversation)
        lane = await database.value("select lane_key('turn', $1, conversation_key($2))", system_id, conversation)
        await database.run(SAID, lane, position, person, private, text, None, None)
        columns = handle_columns(Reader(system_id, conversation, person))
        await database.run("update entry set handle = handle_key($2, $3, $4) where text = $1", text, *columns)
        if done is not None:
            await database.run(f"update entry {done} where text = $1", text)


async def test_without_any_one_clause_the_wall_of_searches_is_another(database_url: str) -> None:
    sql, mutants = clauses("visible_history", "entries")
    assert [clause for clause, _ in mutants] == [
        *("l.system_id = _system_id", "_authentic", "_person <> ''", "e.learn", "e.request_id > since"),
        *("not e.private", "l.conversation = _conversation"),
        *("e.private", "_private", "e.person = _person"),
        *("e.private", "_private", "e.handle = any (_handles)"),
    ]

    async def seen(database: Database) -> list[set[str]]:
        stored = StoredHistory(database, StoredReaders(database, CHANNELS))
        found = [await stored.search_for(reader, WantedHistory(limit=100)) for reader, _ in SEARCHED]
        return [{one.text for one in each} for each in found]

    async with served(database_url) as database:
        for one in (*LINKED, ("ann", "signal", "ann")):
            await link(database, *one)
        assert await people.unlink(database, "ann", Handle("signal", "", "ann"))
        await speak(database)
        assert await seen(database) == [expected for _, expected in SEARCHED]
        for clause, mutant in mutants:
            await database.run(mutant)
            assert await seen(database) != [expected for _, expected in SEARCHED], clause
        await database.run(sql)


async def test_a_statement_that_bypasses_the_wall_finds_and_changes_nothing(database_url: str) -> None:
    async with served(database_url) as database:
        await learn(database)
        assert await database.value("select count(*) from fact") == 0
        assert await database.run("update fact set space = 'shared'") == "UPDATE 0"
        assert await database.run("delete from fact") == "DELETE 0"
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await database.run(
                "insert into fact values (gen_random_uuid(), 'a', gen_random_uuid(), 'a', 'a', 'shared', 'a', "
                "gen_random_uuid())"
            )
        assert await told(database, ANN_ALONE)
        assert await database.value("select count(*) from fact") == 0


def test_only_the_functions_that_open_the_table_of_facts_name_it() -> None:
    """Who connects as a superuser is bound by no row security; our statements are bound by this."""
    named = re.compile(r"\b(?:from|join|into|update|only)\s+(?:switchboard\.)?fact\b")
    for folder in ("queries", "functions"):
        for file in SQL.joinpath(folder).iterdir():
            for piece in re.split(r"^(?=create or replace|-- name:)", file.read_text(encoding="utf-8"), flags=re.M):
                if named.search(piece):
                    assert piece.count("facts_open(true)") == piece.count("facts_open(false)") == 1, piece


async def test_only_its_author_or_an_operator_shares_a_fact(database_url: str) -> None:
    async with served(database_url) as database:
        ids = await learn(database)
        hers = ids["ann private"]
        for other in (BOB_ALONE, Reader(NOTES, HERS), replace(ANN_ALONE, system_id=OTHER)):
            assert not await share(database, hers, other)
        assert not await share(database, hers, replace(ANN_ALONE, authentic=False))
        assert "ann private" not in await told(database, BOB_ALONE)
        assert await share(database, hers, ANN_ALONE)
        assert "ann private" in await told(database, BOB_ALONE)


async def test_what_is_forgotten_goes_with_its_copies_and_is_not_learned_again(database_url: str) -> None:
    async with served(database_url) as database:
        ids = await learn(database)
        lane = LaneKey(await database.value("select lane_key('turn', $1, conversation_key($2))", NOTES, GROUP))
        again = NewFact(ANN, "figs", False, "Ann  PRIVATE.", (7,))
        await database.run(SAID, lane, 7, ANN, False, "I am ann private", None, None)
        assert await facts.save(database, lane, NOTES, [again]) == 1
        assert await facts.forget(database, ids["ann private"]) == 2
        assert await facts.forget(database, ids["ann private"]) == 0
        assert await facts.save(database, lane, NOTES, [again]) == 0
        assert await facts.learn(database, ANN_ALONE, replace(again, private=True, positions=())) == 0
        other = replace(again, private=True, text="ann privately", positions=())
        assert await facts.learn(database, ANN_ALONE, other) == 1, "other words are another fact"
        assert "ann private" not in {text.lower() for reader, _ in EXPECTED for text in await told(database, reader)}
        assert not await database.value("select learn from entry where lane = $1 and position = 7", lane)
        assert await database.value("select count(*) from fact_source where fact_id = $1", ids["ann private"]) == 0
        rows = await database.rows("select forgotten::text as row from forgotten")
        assert not [row for row in rows if "ann" in row["row"].lower()]


async def test_only_whole_words_are_forgotten_with_a_fact(database_url: str) -> None:
    kept = ["My steam boiler is new", "I know C#", "a (b", "Grüner Tee"]
    gone = ["I drink TEA, always", "She says (b) again", "That I know C++ is known", "Am Grün."]
    forgotten = ["tea", "I know C++.", "(b)", "Grün"]
    async with served(database_url) as database:
        for text in (".", *kept, *gone, *forgotten):
            await facts.learn(database, ANN_ALONE, NewFact(ANN, "self", True, text, ()))
        ids = {one.text: one.fact_id for one in await facts.list_facts(database, NOTES, ANN, None, 100)}
        assert await facts.forget(database, ids["."]) == 1, "a fact without a word is no part of others"
        for text in forgotten:
            await facts.forget(database, ids[text])
        assert {one.text for one in await facts.list_facts(database, NOTES, ANN, None, 100)} == set(kept)


async def test_a_fact_that_is_said_twice_is_one_with_two_sources(database_url: str) -> None:
    async with served(database_url) as database:
        ids = await learn(database)
        lane = LaneKey(await database.value("select lane_key('turn', $1, conversation_key($2))", NOTES, HERS))
        assert await facts.save(database, lane, NOTES, [NewFact(ANN, "figs", True, "ann private", (9,))]) == 0
        found = await facts.get_fact(database, ids["ann private"])
        assert found is not None
        fact, sources = found
        assert (fact.space, fact.system_id) == (f"private:{ANN}", NOTES)
        assert [one.position for one in sources] == [1, 9]


async def test_what_counted_as_never_said_counts_again_once_it_is_said_anew(database_url: str) -> None:
    async with served(database_url) as database:
        ids = await learn(database)
        said = NewFact(ANN, "figs", True, "ann private", ())
        assert await facts.undo(database, ids["ann private"])
        await facts.learn(database, ANN_ALONE, replace(said, said_at=datetime.now(UTC) - timedelta(days=1)))
        assert "ann private" not in await told(database, ANN_ALONE), "what it was learned from is read once more"
        await facts.learn(database, ANN_ALONE, said)
        assert "ann private" in await told(database, ANN_ALONE)
        found = await FactSearch(database).search_facts(ANN_ALONE, "private", 9, datetime.now(UTC))
        assert "ann private" in {one.fact.text for one in found}


async def test_what_was_forgotten_after_a_backup_stays_forgotten_when_restored(
    database_url: str, tmp_path: Path
) -> None:
    async with served(database_url) as database:
        ids = await learn(database)
        lane = LaneKey(await database.value("select lane_key('turn', $1, conversation_key($2))", NOTES, HERS))
        await database.run(SAID, lane, 1, ANN, True, "I am ann private", None, None)
        settings = Settings(database_url=SecretStr(database.url))
        await back_up(settings, tmp_path / "backup", lambda _: None)
        assert await facts.forget(database, ids["ann private"]) == 1
        await database.close()
        await restore(settings, tmp_path / "backup", lambda _: None, force=True)
        restored = await Database.connect(database.url, size=1)
        try:
            assert "ann private" not in await told(restored, ANN_ALONE)
            assert "ann to all" in await told(restored, ANN_ALONE)
            again = NewFact(ANN, "figs", True, "Ann private", (1,))
            assert await facts.save(restored, lane, NOTES, [again]) == 0
            assert not await restored.value("select learn from entry where lane = $1 and position = 1", lane)
        finally:
            await restored.close()


FORGOTTEN: Final = "insert into forgotten (fact_id, mark) values ($1, $2)"
WAITING: Final = """
select exists (select from pg_locks where not granted and pg_backend_pid() = any (pg_blocking_pids(pid)))"""


async def forgotten_elsewhere(database: Database, *texts: str) -> None:
    """Note as forgotten what the database has, as a restore does."""
    keys = await database.keys()
    for text in texts:
        await database.run(FORGOTTEN, uuid4(), UUID(keys.fact(NOTES, ANN, text)))


async def test_a_restore_that_was_broken_off_forgets_at_the_next_start(database_url: str) -> None:
    async with served(database_url) as database:
        await learn(database)
        await forgotten_elsewhere(database, "ann private")
        await migrate(database)
        assert "ann private" not in await told(database, ANN_ALONE)
        assert "ann to all" in await told(database, ANN_ALONE)


@pytest.mark.parametrize("conversation", [HERS, GROUP])  # whichever lane is the last to be locked
async def test_forgetting_again_and_a_compaction_do_not_lock_each_other_out(
    database_url: str, conversation: Conversation
) -> None:
    async with served(database_url) as database:
        await learn(database)
        await forgotten_elsewhere(database, "ann private", "ann in the group")
        lane = await database.value("select lane_key('turn', $1, conversation_key($2))", NOTES, conversation)
        async with database.connection() as compacting, compacting.transaction():
            await compacting.execute("select from lane where key = $1 for no key update", lane)
            forgetting = asyncio.create_task(database.value(query("facts.forget_again")))
            await eventually(lambda: compacting.fetchval(WAITING))
            await compacting.execute("select alone_with_facts()")
        assert await forgetting == 3, 'with "ann in the group\'s thread"'


async def test_what_is_learned_while_it_is_forgotten_goes_with_its_lane_locked(database_url: str) -> None:
    """A compaction of that lane might otherwise write a summary that says it."""
    async with lab(database_url) as parts, parts.database.connection() as compacting:
        database = parts.database
        ids = await learn(database)
        lane = LaneKey(await database.value("select enter_lane($1, $2)", NOTES, CLUB))
        await database.run(SAID, lane, 7, ANN, True, "I am ann private", None, None)
        async with compacting.transaction():
            async with database.transaction() as learning:
                again = NewFact(ANN, "figs", True, "ann private", (7,))
                assert await facts.save(learning, lane, NOTES, [again]) == 1
                forgetting = asyncio.create_task(facts.forget(database, ids["ann private"]))
                await eventually(lambda: learning.value(WAITING))
                await compacting.execute("select from lane where key = $1 for no key update", lane)
            await eventually(lambda: compacting.fetchval(WAITING))
        assert await forgetting == 2


async def test_a_backup_by_a_role_that_is_no_superuser_has_all_facts(database_url: str, tmp_path: Path) -> None:
    async with served(database_url) as database:
        await learn(database)
        settings = Settings(database_url=SecretStr(database.url))
        await back_up(settings, tmp_path / "backup", lambda _: None)
        await database.close()
        await restore(settings, tmp_path / "backup", lambda _: None, force=True)
        restored = await Database.connect(database.url, size=1)
        try:
            assert await wall(restored) == [expected for _, expected in EXPECTED]
            assert await restored.value("select count(*) from fact") == 0
        finally:
            await restored.close()
