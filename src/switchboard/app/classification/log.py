"""The log of models' choices, as far as the caller may see it.

HTTP calls `ClassificationLog` with the caller's `Principal`: an operator sees all of it, a System3 or System4 the part
of its teams. Anything that reveals a message's content is shown only to those who may read the message: operators, and
the System4 of a team in which it is a dead letter. Next: `store/models/classification_log.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final
from uuid import UUID

import msgspec
from msgspec import structs

from switchboard.app.access import AGENT, Access, Action, Principal
from switchboard.app.cursors import CursorText, cursor_after, key_of, uuid_cursor
from switchboard.app.runtime import Runtime
from switchboard.core.routing.decide import decide
from switchboard.core.routing.facts import split_people_version
from switchboard.core.routing.scope import editable, handled_by
from switchboard.domain.errors import Forbidden
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.routing import SystemId, TeamId
from switchboard.domain.shown import Read
from switchboard.store.models import classification_log as store
from switchboard.store.models.classification_log import ClassificationFilter, CorrectedMessage, LogScope

CLASSIFICATIONS: Final = Action("classifications", AGENT)

__all__ = ["ClassificationFilter", "ClassificationLog"]

_Attempt = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_KEPT_BACK: Final = "it failed; the reason is visible to those who may read the message"


class ClassificationLog:
    """Serves operators, System3s and System4s. Roles are checked by the interface (`Access.check`), teams here."""

    def __init__(self, runtime: Runtime, access: Access) -> None:
        self._runtime = runtime
        self._database = runtime.database
        self._access = access

    async def list(
        self, caller: Principal, wanted: ClassificationFilter, *, limit: int, cursor: str | None
    ) -> tuple[list[Read], str | None]:
        """A page, newest message first, and the cursor of the next. Raises Forbidden, InvalidInput."""
        wanted, sight = await self._restrict_filter(caller, wanted)
        before = key_of(cursor, tuple[UUID, CursorText, _Attempt])
        page = await store.list_classifications(self._database, wanted, sight, before=before, limit=limit)
        last = page[-1] if len(page) == limit else None
        following = None if last is None else cursor_after(last.request_id, last.team_id, last.n)
        return [one if one.seen else _without_words(one) for one in page], following

    async def cases(
        self, team_id: str | None, *, limit: int, cursor: str | None
    ) -> tuple[Sequence[JsonMapping], str | None]:
        """A page of corrections as cases for `rules test`: facts of a message, and who should have received it.

        For a team, that is the butler selected by its present rules; if there is none, there is no case.
        """
        before = uuid_cursor(cursor)
        found = await store.corrected(self._database, team_id, limit, before=before)
        following = str(found[-1].request_id) if len(found) == limit else None
        expected = ((one, self._expected_choice(one)) for one in found)
        cases = [
            {"name": _name_of(one), "facts": split_people_version(one.facts)[0], "expect": who}
            for one, who in expected
            if who
        ]
        return cases, following

    def _expected_choice(self, one: CorrectedMessage) -> str | Sequence[str]:
        index, team_id = self._runtime.rule_book.rules.index, TeamId(one.corrected_to)
        if not index.reaches(team_id):
            return one.corrected_to
        return [chosen.system_id for chosen in decide(index, one.facts, start=team_id).chosen]

    async def _restrict_filter(
        self, caller: Principal, wanted: ClassificationFilter
    ) -> tuple[ClassificationFilter, LogScope]:
        """The filter, restricted to the caller's teams, and to which texts it may read. Raises Forbidden."""
        if caller.role == "operator":
            return wanted, LogScope(everything=True)
        rules, system_id = self._runtime.rule_book.rules, SystemId(caller.system_id or "")
        dead_letters_of = handled_by(rules.teams, rules.members, system_id)
        own: frozenset[TeamId] = dead_letters_of | editable(rules.teams, rules.members, system_id)
        if not own or not own.issuperset(wanted.teams or ()):
            await self._access.record_refusal(caller, CLASSIFICATIONS, {"team_id": list(wanted.teams or ())})
            raise Forbidden("the classifications of a team are visible to its System3 and System4, and those above")
        member = rules.members.get(system_id)
        team = "" if member is None else member.team_id
        sight = LogScope(everything=False, dead_letters_of=sorted(dead_letters_of), team=team)
        return structs.replace(wanted, teams=sorted(wanted.teams or own)), sight


def _without_words(one: Read) -> Read:
    """The names only, without any words of the message, or of a model about it."""
    result = {
        "routed": [{"butler": route["butler"]} for route in _items_in(one.result, "routed")],
        "inferred": one.result.get("inferred", False),
    }
    error = None if one.error is None else _KEPT_BACK
    return replace(one, result=result, error=error, text=None)


def _items_in(result: JsonMapping, name: str) -> Sequence[JsonMapping]:
    found = result.get(name)
    return found if isinstance(found, list) else ()


def _name_of(one: store.CorrectedMessage) -> str:
    return f"{one.request_id}: {one.correction}" if one.correction else str(one.request_id)
