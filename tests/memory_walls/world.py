"""A house in which persons talk, move between accounts, share, forget and are erased, at random, with a real database.

Statements and functions of the store are run as turns run them; some steps are whole turns with a scripted model, tasks
that are due, plans, and calls of tools from outside. After each, what was told is compared with the oracle. All that a
model is sent, and all that is logged, is searched for canaries.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn
from uuid import UUID

import structlog
from msgspec import Struct
from msgspec.structs import replace

from switchboard.app.access import Access, Principal
from switchboard.app.calls import CallService
from switchboard.app.front_door import WorkerFrontDoor
from switchboard.app.metrics import Metrics
from switchboard.app.people.personal import PersonalDataService
from switchboard.app.people.service import PeopleService
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.core.calls import WantedCall
from switchboard.core.text.fact_numbers import number_of
from switchboard.domain.ledger import LaneKey
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.journey.compaction import Compactor
from switchboard.journey.consolidation import Consolidator
from switchboard.ports.facts import Fact
from switchboard.ports.history import Entry, WantedHistory
from switchboard.store.database import Database, query, rows_as
from switchboard.store.memory import compaction, consolidation, facts, history
from switchboard.store.memory.facts import NewFact
from switchboard.store.memory.readers import handle_columns, reader_columns
from switchboard.store.memory.search import FactSearch, FoundFact
from switchboard.store.messages import inbox
from switchboard.store.people import people
from switchboard.testing.scripted_llm import Call
from tests.integration.test_front_door import firing, scope_of
from tests.integration.test_remembering import CLERK, PLANNER, House, a_house, remember, search
from tests.kept_words import read_rows
from tests.lab import TRUSTING, submission
from tests.memory_walls.models import CANARY, LETTERS, Gullible, Recorder
from tests.memory_walls.oracle import PERSONS, Account, Line, Oracle, Seat, Told
from tests.trios import plan, tool
from tests.waiting import eventually

HOUSE: Final = "bot:house"
NOBODYS: Final = "bdfhbdfhbdfhbdfh"
"""A canary that nobody ever says."""
NO_NUMBER: Final = "zzzzz"
"""A number that no fact has, but for one chance in millions."""
NO_RUNS: Final = frozenset[UUID]()
OPERATOR: Final = Principal("operator", "walls")
OF_STATEMENTS: Final = {"say": 40, "repeat": 10, "talk": 80, "ask": 60, "probe": 4, "share": 8, "forget": 4, "undo": 3}
OF_CONDENSING: Final = {"compact": 10, "restore": 1, "consolidate": 12, "undo_run": 2}
OF_PERSONS: Final = {"link": 12, "unlink": 6, "remove": 2, "export": 1, "erase": 1}
OF_TURNS: Final = {
    "tell": 6,
    "mention": 6,
    "look": 10,
    "guess": 2,
    "command": 6,
    "come_due": 2,
    "call": 3,
}
OFTEN: Final[Mapping[str, int]] = {**OF_STATEMENTS, **OF_PERSONS, **OF_CONDENSING, **OF_TURNS}
"""The steps, and how often each is taken."""


def account(
    channel: str, endpoint: str, sender: str, known_as: str = "", *, realm: str = "", vouched: bool = True
) -> Account:
    return Account(channel, endpoint, sender, (channel, realm, known_as or sender), vouched)


def accounts_of(person: str) -> Mapping[str, Account]:
    """Every account that a person writes from, as docs/people.md says what each proves."""
    mailbox = f"{person.title()} <{person.title()}@example.org>"
    claimed = {one: account(one, HOUSE, person, vouched=False) for one in ("api", "mcp", "irc")}
    return {
        **claimed,
        "telegram": account("telegram", HOUSE, person),
        "elsewhere": account("telegram", "bot:another", person),
        "program": account("telegram", "embedded:System1/clerk", person, vouched=False),
        "mail": account("email", "imap:bot@house.example", mailbox, f"{person}@example.org"),
        "slack": account("slack", HOUSE, person, realm=HOUSE),
        "signal": account("signal", HOUSE, person),
    }


ACCOUNTS: Final = {person: accounts_of(person) for person in PERSONS}
CALLERS: Final = {person: account("call", "walls", person) for person in PERSONS}
"""For whom calls from outside are made."""
NOBODY: Final = account("", "", "", vouched=False)
EVERYBODY: Final = tuple(sorted({one for accounts in ACCOUNTS.values() for one in accounts.values()}))


class Way(Struct, frozen=True, eq=False):
    """How somebody writes: from which account, with what in the message, and who hears the answer."""

    account: str
    private: bool = True
    authentic: bool = True
    group: str = ""
    more: Mapping[str, Any] = {}
    mail: Mapping[str, str] = {}
    butler: SystemId = CLERK


def mailed(thread: str = "{}", auth: str = "dkim=pass header.d=example.org", **head: str) -> Mapping[str, Any]:
    """The header of a mail in a thread, in which braces stand for the sender."""
    known = {"to": "bot@house.example", "references": f"<{thread}@x>", "authentication-results": f"mx.example; {auth}"}
    return {**known, **head}


WAYS: Final[tuple[Way, ...]] = (
    Way("telegram"),
    Way("telegram", butler=PLANNER),
    Way("telegram", more={"thread": "ann"}),
    Way("telegram", group="wildlife", private=False),
    Way("telegram", group="wildlife", private=False, butler=PLANNER),
    Way("telegram", group="chess", private=False),
    Way("telegram", private=False, more={"of_sender": {"participants": {"x": "x", "y": "y"}}}),
    Way("elsewhere"),
    Way("mail", mail=mailed()),
    Way("mail", mail=mailed(), butler=PLANNER),
    Way("mail", mail=mailed("ann")),
    Way("mail", mail=mailed("hall", cc="eve@example.org"), private=False),
    Way("mail", mail=mailed("ann", cc="eve@example.org"), private=False),
    Way("mail", mail=mailed(auth="dkim=fail header.d=example.org"), authentic=False),
    Way("mail", mail=mailed(auth="dkim=pass header.d=evil.example"), authentic=False),
    Way("slack"),
    Way("slack", group="wildlife", private=False),
    Way("signal"),
    Way("api"),
    Way("mcp"),
    Way("irc"),
    Way("program"),
)
NOW: Final = datetime(2040, 1, 1, tzinfo=UTC)
MOST_FOUND: Final = 1000
CANDIDATES: Final = 60
"""So many facts are found in any case; of more, the best."""
READ_BY: Final = (
    Call("memory_search", {"query": "keep"}),
    Call("history_search", {"query": "keep"}),
    Call("memory_recall", {"who": "me"}),
    Call("memory_context", {}),
    Call("memory_entities", {"query": "s"}),
)
ALL_TOOLS: Final = ("remember", "memory_forget", *(one.name for one in READ_BY))
PROVIDERS: Final = {"email": "imap", "api": "http"}


class Leak(AssertionError):
    """Somebody was, or could have been, told what they may not hear."""


class Undone(Exception):
    """All was seen."""


def undo() -> NoReturn:
    raise Undone


@dataclass
class World:
    """The house, what should be in it, and what has happened."""

    house: House
    model: Recorder
    runtime: Runtime
    dice: random.Random
    logged: list[str]
    oracle: Oracle = field(default_factory=Oracle)
    conversations: dict[tuple[str, Way], Conversation] = field(default_factory=dict)
    ids: dict[tuple[object, ...], UUID] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    sightings: Counter[str] = field(default_factory=Counter)
    messages: int = 0

    def __post_init__(self) -> None:
        self.gullible = Gullible(self._while_it_reads)

    @property
    def database(self) -> Database:
        return self.house.parts.database

    # Dice -------------------------------------------------------------------------------------------------------------

    def any_seat(self, ways: Sequence[Way] = WAYS) -> tuple[Seat, str, Way]:
        """Somebody somewhere; of a group only who is in it."""
        person, way = self.dice.choice(PERSONS), self.dice.choice(ways)
        return self.seat(person, way), person, way

    def seat(self, person: str, way: Way) -> Seat:
        conversation = self.conversations[person, way]
        return Seat(ACCOUNTS[person][way.account], way.butler, conversation, way.private, way.authentic)

    def any_fact(self) -> Told | None:
        known = self.oracle.facts
        return known[self.dice.choice(list(known))] if known else None

    def new_canary(self) -> str:
        return "".join(self.dice.choices(LETTERS, k=16))

    # Steps: what is said ----------------------------------------------------------------------------------------------

    async def say(self) -> None:
        """A statement outside of turns, of which a fact is made at once."""
        seat, _, _ = self.any_seat()
        await self._state(Told(self.new_canary(), seat, special=self.dice.random() < 0.2))

    async def repeat(self) -> None:
        """The same words once more, by the same person or somebody else, anywhere."""
        if (known := self.any_fact()) is not None:
            seat, _, _ = self.any_seat()
            await self._state(Told(known.canary, seat, special=known.special))

    async def _state(self, one: Told) -> None:
        seat = one.seat
        if not seat.authentic:
            return  # nothing that keeps facts is called for such a message
        predicate = "has_condition" if one.special else "other"
        new = NewFact(seat.account.author, "self", seat.private, words_of(one.canary), (), predicate)
        await facts.learn(self.database, seat.reader, new)
        await self._check_learned(one)

    async def _check_learned(self, one: Told) -> None:
        """Whether there is a fact now is as it should be."""
        if self.oracle.learn(one):
            self.ids[one.key] = await self._find_id(one)

    async def _find_id(self, one: Told) -> UUID:
        seat = one.seat
        found = await self.database.rows(
            "select f.fact_id from facts_for_operator($1, $2, null, 100000) f where strpos(f.text, $3) > 0"
            " and f.conversation = conversation_key($4) and f.space in ($5, 'shared')",
            *(seat.butler, seat.account.author, one.canary, seat.conversation, "private" if seat.private else "group"),
        )
        assert len(found) == 1, (one, found)
        fact_id: UUID = found[0]["fact_id"]
        return fact_id

    async def talk(self) -> None:
        """Something in a history from which facts may be learned, and a reply; mostly where there is much already."""
        seat, _, _ = self.any_seat(WAYS[:4] if self.dice.random() < 0.7 else WAYS)
        if not seat.authentic:
            return
        canary = self._canary_for_history(seat)
        for entry in (Entry("user", words_of(canary)), Entry("assistant", "Noted.")):
            await history.save(self.database, seat.reader, entry)
        self.oracle.lines.add(Line(canary, seat))

    async def tell(self) -> None:
        """A turn in which the butler is asked to remember something."""
        seat, person, way = self.any_seat([one for one in WAYS if one.butler == CLERK])
        canary = self.new_canary()
        await self._turn(person, way, f"Please remember that {words_of(canary)}", remember(words_of(canary)), canary)
        if seat.authentic and self.house.clerk.offered[-1] and seat.conversation not in self.oracle.switched_off:
            await self._check_learned(Told(canary, seat))

    async def mention(self) -> None:
        """A turn in which somebody says something, from which facts may be learned later on."""
        seat, person, way = self.any_seat()
        canary = self._canary_for_history(seat)
        await self._turn(person, way, words_of(canary), (), canary)

    def _canary_for_history(self, seat: Seat) -> str:
        """Of which facts may come later on, unless that is switched off where it is said."""
        canary = self.new_canary()
        if seat.conversation in self.oracle.switched_off:
            self.oracle.never_learned.add(canary)
        return canary

    # Steps: persons ---------------------------------------------------------------------------------------------------

    async def link(self) -> None:
        one, person = self.dice.choice(EVERYBODY), self.dice.choice(PERSONS)
        if self.dice.random() < 0.7:  # most are who they seem to be
            person = one.handle[2].partition("@")[0]
        if await people.link(self.database, person, one.known_as, "operator"):
            assert self.oracle.linked.setdefault(one.known_as, person) == person

    async def unlink(self) -> None:
        linked = [one for one in self.oracle.linked if one.channel != "call"]
        if linked:
            handle = self.dice.choice(sorted(linked, key=str))
            assert await people.unlink(self.database, self.oracle.linked.pop(handle), handle)

    async def remove(self) -> None:
        person = self.dice.choice(PERSONS)
        assert await people.delete(self.database, person)
        self.oracle.linked = {handle: one for handle, one in self.oracle.linked.items() if one != person}
        await self._introduce(person)

    # Steps: facts -----------------------------------------------------------------------------------------------------

    async def share(self) -> None:
        """Somebody tries to let everybody hear a fact; a hidden one is refused like one that never was."""
        if (one := self.any_fact()) is None:
            return
        by = self.any_seat()[0] if self.dice.random() < 0.5 else one.seat
        who = by.butler, by.account.author, by.authentic, False
        sql, given = query("facts.share"), (*who, *handle_columns(by.reader))
        shared = await self.database.value(sql, self.ids[one.key], *given)
        may = self.oracle.may_share(by, one)
        self._must(shared == may, f"{by} shares {one}")
        if may:
            self.oracle.share(one)
        else:
            self._must(shared == await self.database.value(sql, UUID(int=0), *given), "hidden is not as absent")

    async def forget(self) -> None:
        if (one := self.any_fact()) is not None:
            gone = await facts.forget(self.database, self.ids[one.key])
            expected = self.oracle.forget(one)
            self._must(gone == expected, f"forgetting {one}: {gone} facts, not {expected}")

    async def undo(self) -> None:
        if (one := self.any_fact()) is not None:
            assert await facts.undo(self.database, self.ids[one.key]) is not one.undone
            self.oracle.facts[one.key] = replace(one, undone=True)

    # Steps: condensing ------------------------------------------------------------------------------------------------

    async def compact(self) -> None:
        """The longest history, by a model that believes everything; it is never sent what nobody hears together."""
        if (lane := await self._any_lane("select lane from compaction")) is not None:
            await Compactor(self.database, self.gullible, ["cheap"]).compact(lane)
            await self._find_learned(NO_RUNS)

    async def consolidate(self) -> None:
        """Facts are looked for in what was said since, by the same model."""
        lane = await self._any_lane(
            "select l.key as lane from lane l cross join consolidation_news(l.key) n"
            " where l.kind = 'turn' and n.episodes > 0"
        )
        if lane is not None:
            before = await self._runs()
            await Consolidator(self.database, self.gullible, ["cheap"], budget=10**9).consolidate(lane)
            await self._find_learned(await self._runs() - before)

    async def undo_run(self) -> None:
        """All that a model has found at once, and nobody has said otherwise, counts as never said."""
        of_runs = [one for one in self.oracle.facts.values() if one.run is not None]
        if not of_runs:
            return
        run = self.dice.choice(of_runs).run
        expected = [one for one in of_runs if one.run == run and not one.undone]
        assert run is not None
        undone = await consolidation.undo_run(self.database, run)
        self._must(undone == len(expected), f"undoing {run}: {undone} facts, not {expected}")
        for one in expected:
            self.oracle.facts[one.key] = replace(one, undone=True)
        self.sightings["undone with a run"] += len(expected)

    async def _any_lane(self, sql: str) -> LaneKey | None:
        lanes = sorted(row["lane"] for row in await self.database.rows(sql))
        return LaneKey(self.dice.choice(lanes)) if lanes else None

    async def _runs(self) -> set[UUID]:
        """Those of which anything was kept."""
        return {one.run for one in await consolidation.list_runs(self.database, None, None, 1000) if one.facts}

    async def _while_it_reads(self, purpose: str, sent: str) -> None:
        """What was sent is judged; and sometimes, before the answer comes, something happens to what is being read."""
        self._check_together(purpose, sent)
        if self.dice.random() < 0.2:
            steps = {"forget": 6, "undo": 3, "share": 3, "link": 3, "unlink": 2, "talk": 2, "erase": 1}
            [name] = self.dice.choices(list(steps), list(steps.values()))
            await self._do(name)
            self.sightings["meanwhile"] += 1

    def _check_together(self, purpose: str, sent: str) -> None:
        """That there is somebody who may read all that one request has."""
        found = set(CANARY.findall(sent))
        self.sightings[purpose] += len(found)
        seats = {line.seat for line in self.oracle.lines if line.canary in found}
        self._must(
            not found or any(found <= self.oracle.reads(one) for one in seats),
            f"nobody may read all of {sorted(found)}",
        )

    async def _find_learned(self, runs: Collection[UUID]) -> None:
        """Facts that a model has made of what was said; each is that of the line that it is from.

        `runs`: those that may have found them.
        """
        newest = await facts.list_facts(self.database, None, None, None, 100)
        known = set(self.ids.values())
        for fact in (one for one in newest if one.fact_id not in known):
            [canary] = CANARY.findall(fact.text)
            said = [
                Told(canary, line.seat, run=fact.run)
                for line in self.oracle.lines
                if line.canary == canary and line.seat.account.author == fact.author
            ]
            same = [one for one in said if fact.space == space_of(one.seat) and one.seat.butler == fact.system_id]
            self._must(bool(same) and all(map(self.oracle.learn, same[:1])), f"nobody has said {fact}")
            self._must(fact.run in runs if runs else fact.run is None, f"{fact} is of another run than {runs}")
            self.ids[same[0].key] = fact.fact_id
            self.sightings["learned"] += 1

    async def restore(self) -> None:
        page = await compaction.list_summaries(self.database, None, UUID(int=2**128 - 1), 5)
        if page:
            await compaction.restore(self.database, self.dice.choice(page).summary_id)

    # Steps: what is told ----------------------------------------------------------------------------------------------

    async def ask(self) -> None:
        """Somebody is told exactly what they may hear, and finds exactly what is theirs."""
        by, _, way = self.any_seat()
        if not way.private and self.dice.random() < 0.2:
            by = replace(by, account=NOBODY)
        await self._check_told(self.database, by)

    async def _check_told(self, database: Database, by: Seat) -> None:
        heard = self.oracle.heard(by)
        told = await read_facts(database, by)
        self._must({CANARY.findall(one.text)[0] for one in told} == heard.keys(), f"{by} is told {told}, not {heard}")
        found = {CANARY.findall(one.fact.text)[0] for one in await find_facts(database, by, "keep herons")}
        self._must(found <= heard.keys(), f"{by} finds {found - heard.keys()}")
        self._must(found == heard.keys() or len(heard) > CANDIDATES, f"{by} does not find {heard.keys() - found}")
        read = " ".join(one.text for one in await self._history().read(by.reader))
        self._must(set(CANARY.findall(read)) <= self.oracle.reads(by), f"{by} reads {read}")
        searched = await self._search(database, by)
        self._must(set(CANARY.findall(searched)) <= self.oracle.finds(by), f"{by} finds {searched}")
        self.sightings["searched"] += len(CANARY.findall(searched))
        self.sightings["asked"] += len(told)
        self.sightings["read"] += len(CANARY.findall(read))

    def _history(self, database: Database | None = None) -> history.StoredHistory:
        where = database or self.database
        return history.StoredHistory(where, history.StoredReaders(where, TRUSTING))

    async def _search(self, database: Database, by: Seat) -> str:
        """What `history_search` finds."""
        found = await self._history(database).search_for(by.reader, WantedHistory("keep", limit=1000))
        return "\n".join(one.text for one in found)

    async def probe(self) -> None:
        """What is hidden from somebody changes no byte of what they are told: it is as if it had never been said."""
        by, _, _ = self.any_seat()
        hidden = [self.ids[one.key] for one in self.oracle.facts.values() if not self.oracle.hears(by, one)]
        unread = {one.canary for one in self.oracle.lines} - self.oracle.finds(by)
        before = await self._answers(self.database, by)
        with suppress(Undone):
            async with self.database.transaction() as one:
                await one.run("select facts_open(true)")
                await one.run("select drop_terms($1)", hidden)
                await one.run("delete from fact where fact_id = any ($1)", hidden)
                await one.run("select facts_open(false)")
                await one.run("delete from entry where substring(text from $2) = any ($1)", [*unread], CANARY.pattern)
                after = await self._answers(one, by)
                undo()
        self._must(before == after, f"{by} notices what is hidden: {before} and {after}")
        self.sightings["probed"] += len(hidden) + len(unread)

    async def _answers(self, database: Database, by: Seat) -> list[object]:
        words = ("keep", NOBODYS, *(one.canary for one in list(self.oracle.facts.values())[:3]))
        found = [await find_facts(database, by, one) for one in words]
        return [await read_facts(database, by), *found, await self._search(database, by)]

    # Steps: whole turns -----------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """A turn in which the model looks for everything, and repeats what it finds."""
        _, person, way = self.any_seat()
        await self._turn(person, way, "What do we keep?", [self.dice.choice(READ_BY)])

    async def guess(self) -> None:
        """A turn that asks for a word or the number of a fact: what is hidden is answered like what was never said."""
        if (one := self.any_fact()) is None:
            return
        seat, person, way = self.any_seat([one for one in WAYS if one.butler == CLERK])
        hidden = one.canary not in self.oracle.heard(seat)
        words, numbers = list[str](), list[str]()
        for canary in (one.canary, NOBODYS):
            await self._turn(person, way, "What do we keep?", search(canary), canary)
            words += (self.model.results[-1],)
        self._must(not hidden or one.canary not in words[0], f"{seat} is told {one}")
        alike = words[0] == words[1] or bool(self.oracle.heard(seat))  # of which one may be written alike
        self._must(not hidden or alike, f"{seat} notices {one}: {words}")
        if hidden:
            for number in (number_of(self.ids[one.key]), NO_NUMBER):
                await self._turn(person, way, "Forget it.", [Call("memory_forget", {"numbers": [number]})])
                numbers += (self.model.results[-1].replace(number, NO_NUMBER),)
            self._must(numbers[0] == numbers[1], f"{seat} notices {one}: {numbers}")
        self.sightings["guessed"] += hidden

    async def command(self) -> None:
        """Somebody writes `/memory`, which is answered without a model."""
        seat, person, way = self.any_seat([one for one in WAYS if one.butler == CLERK])
        verb = self.dice.choice(("show", "show", "export", "off", "on", "wrong", "forget"))
        if verb in {"wrong", "forget"}:
            await self._change_by_command(seat, person, way, verb)
            return
        await self._command(seat, person, way, f"/memory {verb}")
        if verb in {"off", "on"} and seat.authentic:
            change = self.oracle.switched_off.add if verb == "off" else self.oracle.switched_off.discard
            change(seat.conversation)

    async def _change_by_command(self, seat: Seat, person: str, way: Way, verb: str) -> None:
        """Of a hidden fact is answered as of none; and nobody changes what is not theirs."""
        if (one := self.any_fact()) is None:
            return
        by = replace(seat, butler=one.seat.butler)
        number, heard = number_of(self.ids[one.key]), self.oracle.hears(by, one)
        said = (await self._command(seat, person, way, f"/memory {verb} {number}")).replace(number, NO_NUMBER)
        if not heard:
            absent = await self._command(seat, person, way, f"/memory {verb} {NO_NUMBER}")
            self._must(said == absent, f"{seat} notices {one}: {said}")
        own = heard and self.oracle.is_same(by.account, one.seat.account)
        done = said.startswith(("It counts as never said", "It is forgotten"))
        self._must(done <= own, f"{seat} changes {one}: {said}")
        if done and verb == "wrong":
            self.oracle.facts[one.key] = replace(one, undone=True)
        elif done:
            self.oracle.forget(one)

    async def _command(self, seat: Seat, person: str, way: Way, text: str) -> str:
        """The answer, which has only what both butlers may tell here."""
        request_id, _ = await self._accept(person, way, text, pinned=None)
        await self._end_of(request_id)
        said = "\n".join(await self.house.parts.replies_to(request_id))
        found = set(CANARY.findall(said))
        may = {one for butler in (CLERK, PLANNER) for one in self.oracle.heard(replace(seat, butler=butler))}
        self._must(found <= may, f"{text} from {seat} is answered with {found - may}")
        kept = await self._kept_of(request_id)
        self._must(not kept, f"of {text} from {seat} there is {kept} in a history")
        self.sightings["commands"] += len(found)
        self.oracle.notes |= {Line(canary, seat) for canary in found}
        return said

    async def come_due(self) -> None:
        """The same in the turn of a task that was made by somebody, and is due now."""
        seat, person, way = self.any_seat([one for one in WAYS if one.butler == CLERK])
        made = await self._turn(person, way, "Later.", ())
        door = WorkerFrontDoor(self.runtime)
        origin = await door.origin(scope_of(made, seat.conversation, way.butler))
        if origin is None:
            return
        self._begin(search("keep"))
        due = firing(origin, "What do we keep?", task_id=f"task-{self.done.total()}")
        found = await door.submit(due)
        await self._check_turn(seat, found.request_id)

    async def call(self) -> None:
        """A tool is called from outside for a person, who is told what is theirs under all their handles."""
        await self._call(self.dice.choice(PERSONS))

    async def _call(self, person: str) -> None:
        self._begin(())
        service = CallService(self.runtime, Access(self.database))
        asked = WantedCall("memory_search", {"query": "keep"}, CLERK, person)
        shown = await service.call(OPERATOR, asked, asyncio.Event(), 60)
        seat = Seat(CALLERS[person], CLERK, Conversation(""), private=True)
        heard, found = self.oracle.heard(seat), set(CANARY.findall(shown.text))
        self._must(found <= heard.keys(), f"a call for {person} is told {found - heard.keys()}")
        self._must(bool(found) or not any(heard.values()), f"a call for {person} is told nothing of {heard}")
        self.oracle.notes |= {Line(canary, seat) for canary in found}
        self.sightings["called"] += len(found)

    async def _turn(self, person: str, way: Way, text: str, calls: Sequence[Any], *own: str) -> UUID:
        """A message and its turn, in which the model makes these calls; `own`: the canaries of the message."""
        seat = self.seat(person, way)
        self._begin(calls)
        request_id, conversation = await self._accept(person, way, text)
        assert conversation == seat.conversation
        await self._check_turn(seat, request_id, *own)
        return request_id

    async def _accept(self, person: str, way: Way, text: str, **more: Any) -> tuple[UUID, Conversation]:
        self.messages += 1
        given = submission(text, **{**message(person, way, self.messages), **more})
        accepted = await self.house.parts.accept.accept(given)
        stored = await inbox.get_message(self.database, accepted.request_id)
        assert stored is not None
        return accepted.request_id, Conversation(stored.conversation)

    def _begin(self, calls: Sequence[Any]) -> None:
        for kept in (self.model.bodies, self.model.prompts, self.model.results, self.model.asked):
            kept.clear()
        self.model.calls = list(calls)

    async def _end_of(self, request_id: UUID) -> None:
        """Wait until nothing is left to do for a message."""

        async def ended() -> bool:
            return bool(await self.database.value("select message_state($1) <> 'in_flight'", request_id))

        await eventually(ended, within=60)

    async def _check_turn(self, seat: Seat, request_id: UUID, *own: str) -> None:
        """All that left for the turn of a message, and all that is kept of it, has only what may be told there."""
        await self._end_of(request_id)
        replies = "\n".join(await self.house.parts.replies_to(request_id))
        kept = await self._kept_of(request_id)
        sent = "\n".join((*self.model.bodies, *self.model.results, replies))
        found, may = {*CANARY.findall(sent), *kept}, {*self.oracle.may_see(seat), *own}
        if any(one.name == "history_search" for one in self.model.calls):
            may |= self.oracle.finds(seat)
        self._must(found <= may, f"the turn of {seat} has {found - may}")
        self._must(seat.authentic or not kept, f"of the turn of {seat} there is {kept} in a history")
        self.sightings["in turns"] += len(found)
        self.oracle.lines |= {Line(canary, seat) for canary in kept}
        self.oracle.notes |= {Line(canary, seat) for canary in (*CANARY.findall(replies), *own)}
        self.house.clerk.offered[:] = self.house.clerk.offered[-1:]

    async def _kept_of(self, request_id: UUID) -> set[str]:
        """The canaries in the history of a message's turn: also of results that its model was told of in short only."""
        kept = "select concat(text, calls) as text from entry where request_id = $1"
        return {one for row in await self.database.rows(kept, request_id) for one in CANARY.findall(row["text"])}

    # Steps: handing out and erasing -----------------------------------------------------------------------------------

    async def export(self) -> None:
        """What is handed out of a person is what they have said, and what they were told."""
        person = self.dice.choice(PERSONS)
        items = await PersonalDataService(self.runtime).export(OPERATOR, person)
        lines = [json.dumps(item, default=str, ensure_ascii=False) async for item in items]
        mine = self.oracle.accounts_of(person, EVERYBODY)
        own = {one.canary for one in self.oracle.facts.values() if one.seat.account in mine}
        found = set(CANARY.findall("\n".join(lines)))
        self._must(own <= found, f"the export of {person} lacks {own - found}")
        self.sightings["exported"] += len(found)

    async def erase(self) -> None:
        """Nothing of a person is left anywhere, but what others were told."""
        await self._erase(self.dice.choice(PERSONS))

    async def _erase(self, person: str) -> None:
        mine = self.oracle.accounts_of(person, (*EVERYBODY, *CALLERS.values()))
        await self.database.run("update outbox set state = 'sent' where state in ('pending', 'sending')")
        await self.database.run(
            "update dead_letter set status = 'handled', handled_at = now() where status = 'pending'"
        )
        erased = await PersonalDataService(self.runtime).erase(OPERATOR, person, dry_run=False)
        self._must(erased.open == 0, f"{erased.open} messages are open")
        unknown = {("step", canary) for canary, _, _ in self.oracle.forgotten}  # its words can be looked for no more
        gone = self.oracle.erase(mine)
        left = [found for found in await self._find_canaries() - unknown if found[1] in gone]
        self._must(not left, f"after {person} was erased there is {left}")
        self.sightings["erased"] += len(gone)

    async def _find_canaries(self) -> set[tuple[str, str]]:
        """Where in the database there are which."""
        return {(table, one) async for table, text in read_rows(self.database) for one in CANARY.findall(text)}

    # Together ---------------------------------------------------------------------------------------------------------

    async def arrive(self) -> None:
        """Everybody writes once in every way, so that it is known which conversation that is."""
        for person in PERSONS:
            await self._introduce(person)
        said = list[UUID]()
        for person in PERSONS:
            for way in WAYS:
                request_id, self.conversations[person, way] = await self._accept(person, way, "Hello.")
                said.append(request_id)
        for request_id in said:
            await self._end_of(request_id)

    async def _introduce(self, person: str) -> None:
        await people.create(self.database, person, person)
        await PeopleService(self.runtime).link_calls(OPERATOR, person)
        self.oracle.linked[CALLERS[person].known_as] = person

    async def step(self, name: str) -> None:
        """One step; Raises Leak."""
        self.done[name] += 1
        await self._do(name)
        loud = CANARY.findall("\n".join(self.logged))
        self._must(not loud, f"the log has {loud}")
        self.logged.clear()

    async def _do(self, name: str) -> None:
        steps: Mapping[str, Callable[[], Any]] = {one: getattr(self, one) for one in OFTEN}
        await steps[name]()

    async def end(self) -> None:
        """Everybody is told once more what they may hear, then everybody is erased, and nothing is left."""
        for person in PERSONS:
            await self._call(person)
            for way in WAYS:
                await self._check_told(self.database, self.seat(person, way))
        for one in EVERYBODY:
            person = one.handle[2].partition("@")[0]
            if await people.link(self.database, person, one.known_as, "operator"):
                self.oracle.linked[one.known_as] = person
        for person in PERSONS:
            await self._erase(person)
        left = await self._find_canaries()
        self._must(not left, f"after everybody was erased there is {left}")
        measured = (await Metrics().render(self.database)).decode()
        self._must(not CANARY.search(measured), "metrics have canaries")

    def program(self, steps: int) -> Iterator[str]:
        """So many steps at random."""
        yield from self.dice.choices(list(OFTEN), list(OFTEN.values()), k=steps)

    def _must(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise Leak(f"step {self.done.total()}: {otherwise}")


def words_of(canary: str) -> str:
    return f"I keep {canary} herons"


def space_of(seat: Seat) -> str:
    """As operators are shown it."""
    return f"private:{seat.account.author}" if seat.private else f"group:{seat.conversation}"


def message(person: str, way: Way, number: int) -> Mapping[str, Any]:
    """A message by a person, which is the one of this number."""
    one, kind = ACCOUNTS[person][way.account], "private"
    place = {"channel": one.channel, "provider": PROVIDERS.get(one.channel, one.channel), "endpoint": one.endpoint}
    more = dict(way.more)
    if way.group:
        kind, more["thread"] = "group", way.group
    if way.mail:
        head = {name: text.format(person) for name, text in way.mail.items()}
        event = f"<{number}@x>"
        more |= {"event": event, "raw": {"headers": {**head, "message-id": event}}}
    return {**place, "sender": one.sender, "pinned": way.butler, "chat_type": None if way.mail else kind, **more}


async def read_facts(database: Database, by: Seat) -> list[Fact]:
    """What is told before a message."""
    rows = await database.rows(query("facts.visible"), *reader_columns(by.reader), 100_000, *handle_columns(by.reader))
    return rows_as(Fact, rows)


async def find_facts(database: Database, by: Seat, words: str) -> list[FoundFact]:
    """What `memory_search` finds, with how well it fits."""
    return await FactSearch(database).search_facts(by.reader, words, MOST_FOUND, NOW)


@asynccontextmanager
async def open_world(url: str, place: Path, seed: int) -> AsyncIterator[World]:
    """A world on an empty database."""
    logged, model = list[str](), Recorder()

    def log(_: object, __: str, event: Mapping[str, object]) -> NoReturn:
        logged.append(str(event))
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.processors.format_exc_info, log])
    looked = plan(tool("s1", "memory_search", query="keep"))
    grants = {audience: list(ALL_TOOLS) for audience in ("others", "groups", "household")}
    async with a_house(url, place, looked, clerk=model, grants=grants) as house:
        parts = house.parts
        runtime = Runtime(Settings(data_dir=place), parts.database, parts.notifier, parts.rule_book, TRUSTING)
        world = World(house, model, runtime, random.Random(seed), logged)
        await world.arrive()
        yield world


async def run_program(url: str, place: Path, seed: int, steps: int) -> World:
    """The world after so many random steps, in which nobody was told what they may not hear. Raises Leak."""
    async with open_world(url, place, seed) as world:
        for name in world.program(steps):
            await world.step(name)
        await world.end()
        return world
