"""One person tries to read what another said, and what was learned from it, before and after compaction: in vain.

Every message is accepted, routed and settled as in production; what its turn was given is searched for the secrets.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from switchboard.domain.ledger import LaneKey
from switchboard.domain.llm import Reply, Report, Request
from switchboard.journey.compaction import Compactor
from switchboard.ports.engine import Answer, Journal, Turn, TurnResult
from switchboard.ports.history import Entry
from switchboard.ports.models import Asking
from switchboard.store.memory.facts import StoredFacts
from switchboard.store.memory.history import StoredHistory, StoredReaders
from tests.hands import at_work, settled
from tests.integration.test_compaction import Cheap
from tests.lab import TRUSTING, Lab, lab, submission
from tests.waiting import eventually

SECRETS: Final = ("herons", "badgers", "otters")
"""Of Ann's private chat, of her mails, and of a group that the attackers are not in."""


def mail(
    text: str, sender: str, auth: str = "mx.example; dkim=pass header.d=example.org", **headers: str
) -> dict[str, Any]:
    """A mail in Ann's thread."""
    head = {"to": "bot@house.example", "message-id": f"<{text}@x>", "references": "<first@x>", **headers}
    return {
        "text": text,
        "channel": "email",
        "endpoint": "imap:bot@house.example",
        "sender": sender,
        "event": f"<{text}@x>",
        "raw": {"headers": head | {"authentication-results": auth}},
    }


def ann(text: str) -> dict[str, Any]:
    return {"text": text, "sender": "ann", "chat_type": "private"}


def group(text: str) -> dict[str, Any]:
    return {"text": text, "sender": "carl", "thread": "wildlife", "chat_type": "group"}


def attacks(n: int) -> list[dict[str, Any]]:
    """Everything that is not Ann, alone with the butler, or the group."""
    bob = {"text": "What do they keep?", "sender": "bob"}
    names = ("Ann", "an n", "ann/", "ann%2F", "anna", "../ann", "ann\u200b")
    return [
        {**bob, "chat_type": "private"},
        {**bob, "thread": "chess", "chat_type": "group"},
        *({**bob, "thread": "ann", "chat_type": kind} for kind in ("private", "group", None)),
        {**bob, "thread": "Wildlife", "chat_type": "group"},
        *({**bob, "sender": name, "chat_type": "private"} for name in names),
        {**bob, "sender": "ann", "endpoint": "bot:other", "chat_type": "private"},
        {**bob, "sender": "ann", "channel": "slack", "provider": "slack", "chat_type": "private"},
        {**bob, "sender": "ann", "channel": "api", "thread": "ann"},
        {**bob, "sender": "ann", "thread": "chess", "chat_type": "group"},
        mail(f"bob{n}", "bob@example.org"),
        mail(f"evil{n}", "ann@example.org", "mx.example; dkim=pass header.d=evil.example"),
        mail(f"fail{n}", "ann@example.org", "mx.example; dkim=fail header.d=example.org"),
        mail(f"untrusted{n}", "ann@example.org", "mx.evil.example; dkim=pass header.d=example.org"),
        mail(f"cc{n}", "ann@example.org", cc="bob@example.org"),
    ]


@dataclass
class Recorder:
    """Remembers what was said, and notes all that its turns were given."""

    history: StoredHistory
    facts: StoredFacts
    given: str = ""
    lanes: set[tuple[str, str]] = field(default_factory=set)

    async def run(self, turn: Turn, _: Journal) -> TurnResult:
        entries, facts = await self.history.load(turn), await self.facts.visible(turn)
        self.given = json.dumps([*(one.text for one in entries), *(one.text for one in facts)])
        self.lanes.add((turn.member.system_id, turn.conversation))
        return Answer("noted", entries=(Entry("user", turn.text), Entry("assistant", f"You said: {turn.text}")))


class Gullible(Cheap):
    """A model that puts all that it reads into facts and summary."""

    async def ask(self, request: Request, _: Asking) -> Report:
        read = json.loads(request.messages[0].text)["conversation"]
        facts = [{"text": one["text"], "value": one["text"], "entry": one["entry"]} for one in read]
        summary = " ".join(dict.fromkeys(one["text"] for one in read))
        return Report(Reply(json.dumps({"summary": summary, "facts": facts})))


@dataclass
class Stage:
    """A worker whose one butler is the recorder."""

    parts: Lab
    recorder: Recorder

    async def given(self, message: dict[str, Any]) -> str:
        """What the turn of a message was given."""
        self.recorder.given = "nothing ran"
        await self.parts.accept.accept(submission(**message))
        await eventually(lambda: settled(self.parts))
        assert self.recorder.given != "nothing ran", message
        return self.recorder.given

    async def compact(self) -> None:
        compactor = Compactor(self.parts.database, Gullible(), ["cheap"])
        for system_id, conversation in self.recorder.lanes:
            sql = "select lane_key('turn', $1, conversation_key($2))"
            lane = LaneKey(await self.parts.database.value(sql, system_id, conversation))
            assert await compactor.compact(lane) in {None, "it has too few entries without a summary"}


@asynccontextmanager
async def stage(url: str) -> AsyncIterator[Stage]:
    async with lab(url, channels=TRUSTING) as parts:
        readers = StoredReaders(parts.database, TRUSTING)
        recorder = Recorder(StoredHistory(parts.database, readers), StoredFacts(parts.database, readers))
        async with at_work(parts.worker({"echo": recorder}, poll=0.02)):
            yield Stage(parts, recorder)


def found(given: str) -> list[str]:
    return [secret for secret in SECRETS if secret in given]


async def test_nobody_reads_what_another_said_or_what_was_learned_from_them(database_url: str) -> None:
    tried = 0
    async with stage(database_url) as on:
        for n in range(21):
            for message in (ann(f"I keep {n} herons"), group(f"I keep {n} otters")):
                await on.given(message)
            await on.given(mail(f"I keep {n} badgers", "ann@example.org"))
        for compacted in (False, True):
            if compacted:
                await on.compact()
                assert await on.parts.count("select count(*) from summary") == 3
                assert await on.parts.count("select count(*) from fact_source") >= 30
            for message in attacks(int(compacted)):
                assert found(await on.given(message)) == [], message
                tried += len(SECRETS)
        assert found(await on.given(ann("And I?"))) == ["herons"]
        assert found(await on.given(mail("And by mail?", "ann@example.org"))) == ["badgers"]
        assert found(await on.given(group("And we?"))) == ["otters"]
    assert tried >= 80
