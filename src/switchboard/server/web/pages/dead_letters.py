"""Dead letters: the list, one of them with what can be done about it, and many at once.

Next: `app/dead_letters/service.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, get_args
from urllib.parse import urlencode
from uuid import UUID

from msgspec import Struct
from starlette.responses import Response

from switchboard.app.dead_letters.reach import DEAD_LETTERS
from switchboard.app.dead_letters.requests import Bulk, BulkAction, BulkOutcome, Reroute, RuleWish
from switchboard.domain.errors import InvalidInput
from switchboard.domain.routing import DeadLetterCategory, Target
from switchboard.domain.shown import ShownDeadLetter
from switchboard.server.http.dead_letters import DEAD_LETTER_SERVICE
from switchboard.server.web.forms import (
    NOTHING_ENTERED,
    Entered,
    Fields,
    choice_from,
    line_from,
    number_from,
    reason_from,
    receivers_of,
    target_from,
)
from switchboard.server.web.naming import name_senders
from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.visit import Visit
from switchboard.store.messages.dead_letters import DeadLetterFilter, Status

_ROWS: Final = 50
_AT_ONCE: Final = 500
_AGES: Final[Mapping[str, tuple[str, timedelta]]] = {
    "hour": ("an hour", timedelta(hours=1)),
    "day": ("a day", timedelta(days=1)),
    "week": ("a week", timedelta(weeks=1)),
    "month": ("30 days", timedelta(days=30)),
}
_SELECTORS: Final = ("team", "category", "channel", "system", "until", "ids")
"""What selects letters in addresses and forms."""
_STATES: Final[tuple[Status, ...]] = get_args(Status)
_ACTIONS: Final[tuple[BulkAction, ...]] = get_args(BulkAction)
_OUTCOMES: Final = {"rerouted": "It was sent on.", "handled": "It is closed."}


async def show_dead_letters(visit: Visit) -> Response:
    """Newest first, with filters that are the address; by default those that wait."""
    state = visit.asked("state") or "pending"
    status = None if state == "all" else choice_from(state, _STATES, "state")
    wanted = _filter_of(_selection_in(visit), status, _age_limit(visit.asked("age")))
    letters, following = await visit.services.of(DEAD_LETTER_SERVICE).list(
        visit.caller, wanted, limit=_ROWS, cursor=visit.asked("cursor")
    )
    return visit.page(
        "dead_letters.html",
        letters=letters,
        following=following,
        names=await name_senders(visit, letters),
        state=state,
        asked={name: visit.asked(name) for name in ("team", "category", "channel", "system", "age")},
        teams=sorted(team.team_id for team in visit.services.runtime.rule_book.rules.teams),
        categories=get_args(DeadLetterCategory),
        channels=sorted(visit.services.runtime.channels),
        ages=_AGES,
        many=_many_of(letters, visit),
    )


def _many_of(letters: list[ShownDeadLetter], visit: Visit) -> Mapping[str, str]:
    """What all that match are, now: nothing that comes in later."""
    if not letters:
        return {}
    asked = {name: visit.asked(name) for name in ("team", "category", "channel", "system")}
    newest = letters[0].created_at + timedelta(microseconds=1)
    return {name: value for name, value in asked.items() if value} | {"until": newest.isoformat()}


async def show_dead_letter(visit: Visit, entered: Entered = NOTHING_ENTERED) -> Response:
    """One, with the forms to send it on and to close it."""
    service, dead_letter_id = visit.services.of(DEAD_LETTER_SERVICE), _letter_id(visit)
    found = await service.get(visit.caller, dead_letter_id)
    return visit.page(
        "dead_letter.html",
        entered.status,
        letter=found,
        names=await name_senders(visit, [found]),
        facts=await service.facts(visit.caller, dead_letter_id),
        receivers=receivers_of(visit.services.runtime.rule_book.rules),
        entered=entered,
        outcome=_OUTCOMES.get(visit.asked("done") or ""),
    )


async def reroute_letter(visit: Visit, fields: Fields) -> Response:
    """Send one on, and with a name for it also make the rule."""
    wanted = Reroute(reason_from(fields), target_from(fields), _rule_in(fields))
    await visit.services.of(DEAD_LETTER_SERVICE).reroute(visit.caller, _letter_id(visit), wanted)
    return visit.go(f"/dead-letters/{_letter_id(visit)}?done=rerouted")


def _rule_in(fields: Fields) -> RuleWish | None:
    """The rule that is wanted: one with a name. Its filters are the facts that were ticked."""
    if not fields.get("rule", "").strip():
        return None
    keys = [name.removeprefix("key:") for name in fields if name.startswith("key:")]
    return RuleWish(line_from(fields, "rule", "the rule's name"), keys, number_from(fields, "priority", "priority", 0))


async def handle_letter(visit: Visit, fields: Fields) -> Response:
    """Close one: nothing more is to be done with it."""
    resolution = line_from(fields, "resolution", "how it was settled")
    await visit.services.of(DEAD_LETTER_SERVICE).handle(visit.caller, _letter_id(visit), resolution)
    return visit.go(f"/dead-letters/{_letter_id(visit)}?done=handled")


class _Done(Struct, frozen=True):
    """What the form for many has done, as the page that follows it tells."""

    done: int
    failed: int
    meanwhile: int


async def show_many(visit: Visit) -> Response:
    """Which letters are meant and, once it is chosen what to do, what would come of it."""
    return await _show_many(visit, _selection_in(visit), visit.request.query_params, NOTHING_ENTERED)


async def _show_many(
    visit: Visit, selected: Mapping[str, str], chosen: Mapping[str, str], entered: Entered
) -> Response:
    action = _action_in(chosen) if chosen.get("action") else None
    wanted, to, limit = _filter_of(selected, "pending"), _receiver_in(chosen), _AT_ONCE if action else 1
    order = Bulk(wanted, action or "handle", "", to, limit=limit, dry_run=True)
    found = await visit.services.of(DEAD_LETTER_SERVICE).bulk(visit.caller, order)
    would = found if action else None
    return visit.page(
        "dead_letters_many.html",
        entered.status,
        selected=selected,
        matched=found.matched,
        would=would,
        receivers_of_letters=_group_by_receiver(would),
        action=action,
        to=chosen.get("to") or "",
        most=_AT_ONCE,
        receivers=receivers_of(visit.services.runtime.rule_book.rules),
        entered=entered,
        chosen=Entered(chosen),
        done=_done_in(chosen),
    )


def _group_by_receiver(would: BulkOutcome | None) -> Mapping[str, list[UUID]]:
    """The letters by where they would go."""
    grouped: dict[str, list[UUID]] = {}
    for one in () if would is None else would.would:
        grouped.setdefault(", ".join(one.to), []).append(one.dead_letter_id)
    return grouped


def _done_in(chosen: Mapping[str, str]) -> _Done | None:
    try:
        return _Done(int(chosen["done"]), int(chosen["failed"]), int(chosen["meanwhile"]))
    except (KeyError, ValueError):
        return None


async def act_on_many(visit: Visit, fields: Fields) -> Response:
    """Do it for those that were shown, at most 500 of them, and show what is left."""
    selected, reason, doing = _selected_by(fields), reason_from(fields), _action_in(fields)
    number = number_from(fields, "number", "the number", 0)
    order = Bulk(_filter_of(selected, "pending"), doing, reason, _receiver_in(fields), limit=min(number, _AT_ONCE))
    made = await visit.services.of(DEAD_LETTER_SERVICE).bulk(visit.caller, order)
    told = {"done": made.done, "failed": len(made.failed), "meanwhile": max(0, number - made.done - len(made.failed))}
    again = {**selected, "action": doing, "to": fields.get("to", ""), **told}
    return visit.go(f"/dead-letters/many?{urlencode(again)}")


async def _show_many_again(visit: Visit, entered: Entered) -> Response:
    return await _show_many(visit, _selected_by(entered.fields), entered.fields, entered)


def _selected_by(fields: Fields) -> Mapping[str, str]:
    return {name: fields[name] for name in _SELECTORS if fields.get(name)}


def _action_in(chosen: Mapping[str, str]) -> BulkAction:
    return choice_from(chosen.get("action", ""), _ACTIONS, "action")


def _receiver_in(chosen: Mapping[str, str]) -> Target | None:
    return target_from(chosen) if chosen.get("action") == "reroute" else None


def _selection_in(visit: Visit) -> Mapping[str, str]:
    """The letters that the address selects: those that were ticked, or all that match."""
    ticked = visit.request.query_params.getlist("id")
    if ticked and visit.asked("which") != "all":
        return {"ids": ",".join(ticked[:_AT_ONCE])}
    if visit.asked("which") == "ticked":
        raise InvalidInput("tick the letters that are meant, or take all that match", field="id")
    return {name: value for name in _SELECTORS if (value := visit.asked(name))}


def _filter_of(selected: Mapping[str, str], status: Status | None, until: datetime | None = None) -> DeadLetterFilter:
    team, ids = selected.get("team"), selected.get("ids")
    return DeadLetterFilter(
        None if team is None else (team,),
        status,
        selected.get("category"),
        selected.get("channel"),
        selected.get("system"),
        until=until or _parse_moment(selected.get("until")),
        ids=None if ids is None else [_id_of(one) for one in ids.split(",")],
    )


def _age_limit(age: str | None) -> datetime | None:
    if age is None:
        return None
    return datetime.now(UTC) - _AGES[choice_from(age, list(_AGES), "age")][1]


def _parse_moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput("this is no time", field="until") from None


def _id_of(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInput(f"there is no dead letter {text[:40]!r}", field="ids") from None


def _letter_id(visit: Visit) -> UUID:
    return visit.path_id("dead_letter_id")


_ONE: Final = "/dead-letters/{dead_letter_id:uuid}"
PAGES: Final = (
    WebPage("/dead-letters", show_dead_letters, DEAD_LETTERS, "Dead letters"),
    WebPage("/dead-letters/many", show_many, DEAD_LETTERS),
    WebForm("/dead-letters/many", act_on_many, DEAD_LETTERS, if_refused=_show_many_again),
    WebPage(_ONE, show_dead_letter, DEAD_LETTERS),
    WebForm(f"{_ONE}/reroute", reroute_letter, DEAD_LETTERS, if_refused=show_dead_letter),
    WebForm(f"{_ONE}/handle", handle_letter, DEAD_LETTERS, if_refused=show_dead_letter),
)
