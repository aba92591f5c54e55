"""What is kept of a person is handed out and erased, wherever it is kept, and nothing of anybody else."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from switchboard.agents.memo import MemoEngine
from switchboard.app.access import Principal
from switchboard.app.people.personal import PersonalDataService, list_keepers
from switchboard.core.envelope.read import read_envelope
from switchboard.core.people.strangers import Policy
from switchboard.domain.message import Conversation
from switchboard.domain.routing import Owner, SystemId
from switchboard.journey.accept import Submission
from switchboard.journey.reply import PullRequest
from switchboard.ports.channel import Receipt
from switchboard.ports.engine import Engine
from switchboard.ports.facts import Reader
from switchboard.ports.people import PersonalScope
from switchboard.store.database import query
from switchboard.store.ids import new_uuid7
from switchboard.store.memory import aliases, facts
from switchboard.store.messages.inbox import Acceptance
from switchboard.store.models.memos import StoredMemos
from switchboard.testing.echo import Echo
from tests.commands import Cli
from tests.hands import assert_balanced, at_work, settled
from tests.integration.test_memory_walls import WAITING
from tests.kept_words import find_in_tables
from tests.lab import butler, envelope_json, lab, rule, team_of
from tests.servers import Opened, open_server
from tests.waiting import eventually

WORD: Final = "zebrafinch"
"""In everything that Ann says and is called, and in nothing else."""
BOBS: Final = "cockatoo"
FACT: Final = '{} is a "bird" (of [sorts]) \\o/ $^.*+?|'
BUTLERS: Final = (butler("echo"), butler("memo", "memo"))
TREE: Final = ((team_of(*BUTLERS, "System4/root"),), (rule("System1/echo", "System1/memo", channel="telegram"),))
ANN: Final = "telegram/bot%3Ahouse/5488"
BOB: Final = "telegram/bot%3Ahouse/77"


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """The person ann is 5488 of Telegram, and a mailbox; she and Bob have said something everywhere."""
    policies: Mapping[str, Policy] = {"telegram/bot:locked": "pair"}
    async with open_server(database_url, tmp_path / "data", tree=TREE, policies=policies) as opened:
        await opened.http.post("/v1/people", json={"person_id": "ann", "name": "Ann"})
        for channel, identity in (("telegram", "5488"), ("email", "ann@example.org")):
            body = {"channel": channel, "identity": identity}
            assert (await opened.http.post("/v1/people/ann/link", json=body)).status_code == 200
        engines: dict[str, Engine] = {"echo": Echo(), "memo": MemoEngine(StoredMemos(opened.lab.database))}
        async with at_work(opened.lab.worker(engines)):
            await say_everywhere(opened)
            await eventually(lambda: settled(opened.lab))
        await send_replies(opened)
        yield opened


async def say(server: Opened, text: str, sender: str = "5488", **more: Any) -> Acceptance:
    body = envelope_json(text, sender=sender, **more)
    body["sender"] |= {
        "display_name": text.title(),
        "participants": {sender: text.title()} if "thread" in more else None,
    }
    raw = json.dumps(body).encode()
    return await server.lab.accept.accept(Submission(read_envelope(raw), raw))


async def say_everywhere(server: Opened) -> None:
    for sender, word, more in (("5488", WORD, "among others"), ("77", BOBS, "with friends")):
        await say(server, f"{word} alone", sender, thread=sender, chat_type="private")
        await say(server, f"{word} {more}", sender, thread="-5", chat_type="group")
        await say(server, f"{word} at the door", sender, endpoint="bot:locked", chat_type="private")
        await server.lab.database.run(
            "insert into transcription (request_id, n, blob, model, language, host, seconds, state, text)"
            " select request_id, 0, '\\x00', 'm', 'de', 'h', 3, 'done', $2 from message_inbox"
            " where sender = $1 and endpoint = 'bot:house'",
            *(sender, f"{word} aloud"),
        )
    await say(server, f"{WORD} by mail", "Ann <Ann@Example.org>", channel="email", endpoint="me@example.net")


async def send_replies(server: Opened) -> None:
    for endpoint in ("bot:house", "bot:locked"):
        while replies := await server.lab.replies.pull(PullRequest("telegram", endpoint, limit=100)):
            for one in replies:
                await server.lab.replies.receipt(one.outbox_id, one.lease, Receipt("sent", str(one.outbox_id)))


async def remember(server: Opened) -> None:
    """What models would have made of it."""
    group = await server.lab.database.value(
        "select d.lane from delivery d join message_inbox m using (request_id)"
        " where m.thread = '-5' and d.system_id = 'System1/echo' limit 1"
    )
    for key, word, sender in ((ANN, WORD, "5488"), (BOB, BOBS, "77")):
        await enter(server, group, new_uuid7(), "user", key, f"{word} said")
        await remember_alone(server, key, word, sender)
    await summarize(server, group, "", f"{WORD} and others in short")
    await tell_bob(server)


async def tell_bob(server: Opened) -> None:
    """What Bob's turns were shown of Ann, her words in the group and her fact; and what he has said about her."""
    database = server.lab.database
    writing = (
        "insert into step (request_id, lane, seq, path, effect, state, idempotency_key, epoch, result)"
        " select d.request_id, d.lane, d.seq, $2, 'idempotent', 'done', gen_random_uuid(), 1, $3"
        " from delivery d join message_inbox m using (request_id)"
        " where m.thread = $1 and m.sender = '77' and d.system_id = 'System1/echo'"
    )
    found = f"2026-11-30: {FACT.format(WORD)}"
    await database.run(writing, "-5", "start", {"history": [{"text": f"{WORD} among others"}]})
    await database.run(writing, "77", "call:1", {"text": found})
    calling = "update entry set calls = $2 where person = $1 and private and role = 'assistant'"
    await database.run(calling, BOB, [{"id": "1", "name": "memory_search", "arguments": "{}", "result": found}])
    alone = Reader(SystemId("System1/echo"), Conversation(BOB), BOB, private=True)
    naming = aliases.Naming("Ann", f"the {WORD} lady")
    assert await aliases.link(database, alone.system_id, naming, BOB)
    for subject, told in (
        ("ANN", f"{WORD} is what she keeps"),
        (f"The {WORD} lady", f"The {WORD} lady sings"),
        ("Anna", f"{BOBS} is what she keeps"),
    ):
        assert await facts.learn(database, alone, facts.NewFact(BOB, subject, True, told, ())) == 1


async def remember_alone(server: Opened, key: str, word: str, sender: str) -> None:
    database = server.lab.database
    [alone] = await database.rows(
        "select d.lane, d.seq, d.request_id from delivery d join message_inbox m using (request_id)"
        " where m.thread = $1 and d.system_id = 'System1/echo' order by d.seq limit 1",
        sender,
    )
    for role in ("user", "assistant"):
        await enter(server, alone["lane"], alone["request_id"], role, key, f"{word} in a history")
    await database.run(
        "insert into step (request_id, lane, seq, path, effect, state, idempotency_key, epoch, result)"
        " values ($1, $2, $3, 'request:1', 'idempotent', 'done', gen_random_uuid(), 1, $4)",
        *(alone["request_id"], alone["lane"], alone["seq"], {"text": word}),
    )
    await note(server, alone["request_id"], word)
    await summarize(server, alone["lane"], key, f"{word} in short")
    fact = facts.NewFact(key, "self", True, FACT.format(word), (1,))
    rows = await facts.fact_rows(database, SystemId("System1/echo"), [fact])
    await database.run("select save_facts($1, $2)", alone["lane"], rows)
    await aliases.link(database, SystemId("System1/echo"), aliases.Naming("Noor", f"{word} the bird"), key)
    await attach(server, alone["request_id"], word)


async def note(server: Opened, request_id: UUID, word: str) -> None:
    """What is noted while a message is routed and answered."""
    for sql in (
        "update delivery set text = $2 where request_id = $1",
        "update decision set parts = jsonb_build_object('', $2::text) where request_id = $1",
        "update attempt set error = $2 where request_id = $1",
        "insert into route_call (session_id, n, request_id, butler, segment, reason, ok, why)"
        " values (gen_random_uuid(), 1, $1, 'System1/echo', $2, $2, true, '')",
        "insert into classification"
        " (request_id, conversation, team_id, n, candidates, result, tokens_in, tokens_out, ms) values"
        " ($1, gen_random_uuid(), 'root', 1, '{}', jsonb_build_object('reason', $2::text), 1, 1, 1)",
        "with event as (insert into awaited (key, lane, seq, request_id, path)"
        " select gen_random_uuid(), lane, seq, $1, 'x' from delivery where request_id = $1 limit 1 returning key)"
        " insert into approval (approval_id, kind, system_id, tool, arguments, why, digest, readers)"
        " select key, 'call', 'System1/echo', 't', json_build_object('text', $2::text), '', '', '' from event",
    ):
        await server.lab.database.run(sql, request_id, word)


async def enter(server: Opened, lane: UUID, request_id: UUID, role: str, person: str, text: str) -> None:
    saving = "select save_entry($1, $2, $3, $4, $5, $6)"
    await server.lab.database.run(saving, lane, request_id, role, person, "history" in text, text)


async def summarize(server: Opened, lane: UUID, person: str, text: str) -> None:
    await server.lab.database.run(
        "insert into summary (lane, position, summary_id, first_position, person, private, text)"
        " values ($1, 1, gen_random_uuid(), 1, $2, $2 <> '', $3)",
        *(lane, person, text),
    )


async def attach(server: Opened, request_id: UUID, word: str) -> None:
    written = f"{word} in a file".encode()
    blob, size, database = sha256(written).digest(), len(written), server.lab.database
    await database.run("insert into blob (blob, size_bytes, media_type) values ($1, $2, 'text/plain')", blob, size)
    await database.run("insert into blob_piece (blob, n, bytes) values ($1, 0, $2)", blob, written)
    uploading = (
        "insert into blob_upload (blob, channel, endpoint, size_bytes, media_type, named)"
        " values ($1, 'telegram', 'bot:house', 1, 'text/plain', true)"
    )
    await database.run(uploading, blob)
    await database.run("insert into message_blob (blob, request_id) values ($1, $2)", blob, request_id)


async def find_word(server: Opened, word: str) -> dict[str, int]:
    """As `find_in_tables`."""
    return await find_in_tables(server.lab.database, word)


async def erase(server: Opened, *, dry_run: bool = False) -> dict[str, Any]:
    answer = await server.http.post("/v1/people/ann/erase", json={"dry_run": dry_run})
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["erasure"])


def counts(erasure: Mapping[str, Any]) -> dict[str, int]:
    return {one["kept_in"]: one["count"] for one in erasure["erased"]}


async def test_everything_of_a_person_is_erased_and_nothing_of_anybody_else(server: Opened) -> None:
    await remember(server)
    before, bobs = await find_word(server, WORD), await find_word(server, BOBS)
    assert {"message_inbox", "message_raw", "outbox", "step", "memo", "entry", "summary", "fact", "contact"} <= set(
        before
    )
    told = await erase(server, dry_run=True)
    assert await find_word(server, WORD) == before
    first = await erase(server)
    # A mail that no rule takes is a dead letter, which somebody must see first.
    assert (told["open"], first["open"]) == (1, 1)
    assert counts(first) == {**counts(told), "messages": 3, "contacts": 1}
    await server.lab.database.run("update dead_letter set status = 'handled', handled_at = now()")
    assert counts(await erase(server)) == dict.fromkeys(counts(first), 0) | {"messages": 1}
    assert await find_word(server, WORD) == {}
    after = await find_word(server, BOBS)
    assert after == {**bobs, "summary": bobs["summary"]}
    assert counts(await erase(server)) == dict.fromkeys(counts(first), 0)
    lanes = await server.lab.database.rows("select distinct lane, person, private from entry where private")
    seen = {
        row["person"]: len(await server.lab.database.rows(query("history.load"), row["lane"], 0, *row[1:], True))
        for row in lanes
    }
    assert seen == {ANN: 0, BOB: 2}
    named = "select named from blob_upload u join blob_piece p using (blob) order by bytes"
    assert [row["named"] for row in await server.lab.database.rows(named)] == [True, False]
    await assert_balanced(server.lab)
    done = [one for one in (await server.http.get("/v1/audit")).json()["entries"] if "eras" in one["action"]]
    assert [one["action"] for one in done[-2:]] == ["people:erased", "people:erasing"]


ERASED: Final = """approval attempt awaited classification contact dead_letter decision delivery entity_alias entry fact
    fact_space fact_term_count fact_terms fact_vector held memo
    mail message_inbox message_raw outbox route_call step summary blob_upload message_blob blob_made outbox_blob
    transcription"""
"""Tables with words or files of persons, all of which are erased."""
NO_WORDS: Final = """audit balance blob blob_piece book chore compaction connector connector_account consolidation
    consolidation_run contact_owner conversation conversation_start dedupe erased_files erased_history
    fact_model fact_reading fact_source fact_unembedded fact_unread first_run forgotten installation installed_functions
    lane learning_switch link_code listening mcp_server mcp_tool member migration model_cooldown model_day
    model_flow model_lease model_refused_key model_reservation model_usage module_failure module_harm module_quarantine
    module_use notice outbox_part outcome pairing_code parked people_version person person_group person_handle
    pipeline_key process receipt routing rule rule_change rule_set schedule session_token sign_in_end stopped tally team
    thread_place token told_operators trace_export trace_message web_link web_session workspace_disk"""
"""Tables of ids, hashes, counts and times, of what operators wrote, and of what models cost."""
PASSING: Final = "delta late_failure posted_event quarantine"
"""What is gone within hours, or not known to be anybody's yet."""


EXPORTED: Final[Mapping[str, tuple[str, ...]]] = {
    "contacts": ("contact",),
    "messages message": ("message_inbox", "message_raw"),
    "messages held": ("held",),
    "messages decision": ("decision",),
    "messages classification": ("classification",),
    "messages transcription": ("transcription",),
    "messages route_call": ("route_call",),
    "messages delivery": ("delivery",),
    "messages step": ("step",),
    "messages awaited": ("awaited",),
    "messages approval": ("approval",),
    "messages attempt": ("attempt",),
    "messages outbox": ("outbox", "outbox_blob"),
    "messages dead_letter": ("dead_letter",),
    "messages file": ("message_blob", "blob_made", "blob_upload"),
    "memos": ("memo",),
    "history": ("entry",),
    "summaries": ("summary",),
    "facts": ("fact", "fact_terms", "fact_term_count", "fact_space", "fact_vector"),
    "aliases": ("entity_alias",),
}
"""What `kept_in` and `kind` of an item are, and from which tables it is. The bytes of `message_raw` are fetched."""
NOT_EXPORTED: Final[Mapping[str, str]] = {
    "mail": "the mail is a message, and where its answers are told is where that was"
}
"""Tables with words of persons that are not handed out, and why."""


async def test_every_table_is_erased_or_has_nobodys_words(database_url: str) -> None:
    """A new table with people's words needs a keeper in `app/people/personal.py`, which also hands it out."""
    async with lab(database_url) as parts:
        rows = await parts.database.rows(
            "select c.relname from pg_class c where c.relnamespace = 'switchboard'::regnamespace"
            " and c.relkind in ('r', 'p') and not c.relispartition"
        )
    assert {row["relname"] for row in rows} - set(f"{ERASED} {NO_WORDS} {PASSING}".split()) == set()
    assert {table for tables in EXPORTED.values() for table in tables} | set(NOT_EXPORTED) == set(ERASED.split())


async def test_what_is_open_or_said_meanwhile_is_erased_later(server: Opened) -> None:
    await erase(server)
    late = await say(server, f"{WORD} again", thread="5488", chat_type="private")
    assert (await erase(server))["open"] == 2
    assert (await find_word(server, WORD))["message_inbox"] == 2
    async with at_work(server.lab.worker({"echo": Echo(), "memo": Echo()})):
        await eventually(lambda: settled(server.lab))
    assert (await server.lab.replies_to(late.request_id))[0] == f"{WORD} again"
    assert (await erase(server))["open"] == 2
    await send_replies(server)
    assert (await erase(server))["open"] == 1
    assert "outbox" not in await find_word(server, WORD)


async def test_an_erasure_that_is_killed_anywhere_goes_on_when_repeated(server: Opened) -> None:
    await remember(server)
    keepers = list_keepers(server.switchboard.runtime)
    names = [one.name for one in keepers]
    assert names.index("schedule") < names.index(
        "messages"
    )  # so that no task becomes a message after messages were erased
    senders = (Owner("telegram", "bot:house", "5488"), Owner("telegram", "bot:locked", "5488"))
    scope = PersonalScope("ann", senders, (ANN,))
    for keeper in keepers[::2]:
        await keeper.erase(scope)  # in any order, and twice
        assert await keeper.erase(scope) == 0
        assert await keeper.count(scope) == 0
    await asyncio.gather(erase(server), erase(server))
    assert set(await find_word(server, WORD)) == {"message_inbox", "message_raw", "dead_letter"}


async def test_a_summary_made_meanwhile_is_erased_with_what_it_is_made_of(server: Opened) -> None:
    await remember(server)
    database = server.lab.database
    scope = PersonalScope("ann", (Owner("telegram", "bot:house", "5488"),), (ANN,))
    [summaries] = [one for one in list_keepers(server.switchboard.runtime) if one.name == "summaries"]
    lane = await database.value("select lane from summary where not private")
    async with database.connection() as compacting, compacting.transaction():
        made = await compacting.fetchval(
            "select commit_compaction($1, 2, 2, compaction_mark($1, 2, 2), gen_random_uuid(), '', false, $2, '[]', 40)",
            *(lane, f"{WORD} and others, and more"),
        )
        assert made
        erasing = asyncio.create_task(summaries.erase(scope))
        await eventually(lambda: compacting.fetchval(WAITING))
    assert await erasing == 3
    assert "summary" not in await find_word(server, WORD)


async def test_an_export_has_what_an_erasure_would_erase(
    server: Opened, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await remember(server)
    words = await find_word(server, WORD)
    cli, directory = Cli(capsys, monkeypatch, server.environment), tmp_path / "ann"

    def commands() -> None:
        assert "things and 5 files are in" in cli.says("people", "export", "ann", "--to", str(directory))
        assert "is there already" in cli.run("people", "export", "ann", "--to", str(directory))[2]
        assert "no person 'bob'" in cli.run("people", "export", "bob", "--to", str(tmp_path / "bob"))[2]
        assert "pass --yes" in cli.run("people", "erase", "ann")[2]
        assert "ann: would erase" in cli.says("people", "erase", "ann", "--dry-run")
        said = cli.says("people", "erase", "ann", "--yes")
        assert ("1 messages are worked on" in said, "backups" in said) == (True, True)
        cli.says("people", "add", "bob")
        assert "bob: erased nothing\n" in cli.says("people", "erase", "bob", "--yes")

    await asyncio.to_thread(commands)
    assert not (tmp_path / "bob").exists()
    assert {one.stat().st_mode & 0o077 for one in (directory, *directory.rglob("*"))} == {0}
    lines = (directory / "people.jsonl").read_text(encoding="utf-8")
    items = [json.loads(line) for line in lines.splitlines()]
    kinds = {f"{one['kept_in']} {one.get('kind', '')}".strip() for one in items if WORD in json.dumps(one).lower()}
    assert words.keys() - {table for kind in kinds for table in EXPORTED[kind]} == set()
    assert BOBS not in lines
    [file] = (directory / "files").iterdir()
    assert (file.name, file.read_bytes()) == (sha256(file.read_bytes()).hexdigest(), f"{WORD} in a file".encode())
    originals = {one.name: one.read_text() for one in (directory / "originals").iterdir()}
    assert originals.keys() == {one["request_id"] for one in items if one.get("kind") == "message"}
    assert all(WORD in text.lower() for text in originals.values())


async def test_what_others_said_before_a_turn_in_a_group_is_not_handed_out(server: Opened) -> None:
    for thread in ("5488", "-5"):
        await server.lab.database.run(
            "insert into step (request_id, lane, seq, path, effect, state, idempotency_key, epoch, result)"
            " select d.request_id, d.lane, d.seq, p.path, 'idempotent', 'done', gen_random_uuid(), 1,"
            "  json_build_object('text', m.thread || p.path)"
            " from delivery d join message_inbox m using (request_id), unnest(array['start', 'call']) p (path)"
            " where m.thread = $1 and m.sender = '5488' and d.system_id = 'System1/echo'",
            thread,
        )
    answer = await server.http.post("/v1/people/ann/export")
    items = [json.loads(line) for line in answer.text.splitlines()]
    told = [one["result"]["text"] for one in items if one.get("path") in {"start", "call"}]
    assert sorted(told) == ["-5call", "5488call", "5488start"]


async def test_an_export_never_has_much_in_memory(server: Opened) -> None:
    await server.lab.database.run(
        "insert into step (request_id, lane, seq, path, effect, state, idempotency_key, epoch, result)"
        " select d.request_id, d.lane, d.seq, p.path || g.k, 'idempotent', 'done', gen_random_uuid(), 1,"
        "  to_json(repeat('x', 200000))"
        " from delivery d join message_inbox m using (request_id), unnest(array['a', 'b', 'c']) p (path),"
        "  generate_series(1, 40) g (k) where m.sender = '5488'"
    )
    people = PersonalDataService(server.switchboard.runtime)
    items = await people.export(Principal("operator", "test"), "ann")
    tracemalloc.start()
    try:
        size = sum([len(json.dumps(item)) async for item in items])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (size > 50_000_000, peak < 10_000_000) == (True, True), (size, peak)


async def test_an_export_goes_on_past_what_went_or_another_release_wrote(server: Opened) -> None:
    people = PersonalDataService(server.switchboard.runtime)
    items = await people.export(Principal("operator", "test"), "ann")
    messages = [one async for one in items if one.get("kind") == "message"]
    strange, gone = messages[0]["request_id"], messages[-1]["request_id"]
    sql = "update message_inbox set envelope = jsonb_set(envelope::jsonb, '{payload}', '7') where request_id = $1"
    await server.lab.database.run(sql, UUID(strange))
    items = await people.export(Principal("operator", "test"), "ann")
    seen = list[Any]()
    async for item in items:
        if item.get("kind") == "message":
            if not seen:
                await server.lab.database.run("delete from message_inbox where request_id = $1", UUID(gone))
            seen.append(item["request_id"])
    assert (strange in seen, gone in seen) == (True, False)
