"""Who has written lately is told of a person's own conversations alone, and to that person alone."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from switchboard.app.people_seen import WorkerPeople, WorkerWriters
from tests.integration.test_people_seen import key, link, scope_for, unlink
from tests.lab import TRUSTING, butler, lab, submission, team_of

ANN: Final = scope_for(key("telegram", "4711"))
SENT: Final[tuple[dict[str, Any], ...]] = (
    {"sender": "4711", "thread": "choir", "chat_type": "group"},
    {"sender": "ben", "thread": "choir", "chat_type": "group", "of_sender": {"display_name": "Ben M."}},
    {"sender": "ben", "thread": "choir", "chat_type": "group", "of_sender": {"display_name": "Ben"}},
    {"sender": "noor", "thread": "club", "chat_type": "group"},
    {"sender": "4711", "thread": "club", "chat_type": "group"},
    {"sender": "4712", "thread": "club", "chat_type": "group"},
    {"sender": "ben", "thread": "others", "chat_type": "group"},
    {"sender": "eve", "thread": "others", "chat_type": "group"},
    {"sender": "cem", "thread": "cem", "chat_type": "private"},
    {"sender": "4711", "thread": "4711", "chat_type": "private"},
)


async def test_only_where_a_person_has_written_others_are_told(database_url: str) -> None:
    team = team_of(butler("clerk", "echo"))
    async with lab(database_url, [team], [], channels=TRUSTING) as parts:
        await link(parts.database, ("telegram", "4711"), ("telegram", "4712"))
        for given in SENT:
            await parts.accept.accept(submission(**given))
        writers = WorkerWriters(WorkerPeople(parts.people_book), parts.database)
        found = await writers.find_writers(ANN, 10)
        assert [(one.identity, one.name, one.messages) for one in found] == [("noor", "", 1), ("ben", "Ben", 2)]
        assert [one.identity for one in await writers.find_writers(ANN, 1)] == ["noor"]
        for scope in (
            scope_for(key("telegram", "4711"), private=False),
            scope_for(key("telegram", "4711"), authentic=False),
            scope_for(key("telegram", "eve")),
            scope_for("call//nobody", cause="call"),
            replace(ANN, reader=None),
        ):
            assert await writers.find_writers(scope, 10) == ()
        await unlink(parts.database, "telegram", "4711")
        assert [one.identity for one in await writers.find_writers(scope_for(key("telegram", "4712")), 10)] == [
            "4711",
            "noor",
        ]
        assert await writers.find_writers(ANN, 10) == ()
