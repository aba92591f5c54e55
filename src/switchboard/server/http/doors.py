"""What every route is given: the parts behind the doors, the caller, and one way to answer.

Routers import it; `app.py` fills `Doors`. In: a request; out: a checked `Principal`, a JSON response.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, cast

import msgspec
from fastapi import Depends, Request, Response

from switchboard.app.access import Access, Action, Principal
from switchboard.app.accounts import Accounts
from switchboard.app.corrections import CorrectionDesk
from switchboard.app.desk import Desk
from switchboard.app.intake import Intake
from switchboard.app.letters import LetterDesk
from switchboard.app.meters import Meters
from switchboard.app.registry import Registry
from switchboard.app.replays import Replays
from switchboard.app.rule_records import RuleRecords
from switchboard.app.rules import RuleDesk
from switchboard.app.verdicts import VerdictLog
from switchboard.app.views import Views
from switchboard.app.wiring import Switchboard
from switchboard.server.http.schemas import ErrorBody
from switchboard.server.polls import Polls


@dataclass(frozen=True, slots=True)
class Doors:
    """Made once per app."""

    switchboard: Switchboard
    access: Access
    intake: Intake
    desk: Desk
    views: Views
    registry: Registry
    records: RuleRecords
    replays: Replays
    rules: RuleDesk
    letters: LetterDesk
    verdicts: VerdictLog
    corrections: CorrectionDesk
    accounts: Accounts
    meters: Meters
    polls: Polls

    @classmethod
    def open(cls, switchboard: Switchboard) -> Doors:
        """Wire what doors need."""
        core = switchboard.core
        access, meters = Access(core.database), Meters()
        records, replays = RuleRecords(core), Replays(core)
        rules = RuleDesk(core, access, records, replays)
        return cls(
            switchboard,
            access,
            Intake(switchboard.accept, access, meters),
            Desk(core.database, switchboard.replies, access),
            Views(core, access),
            Registry(core, access),
            records,
            replays,
            rules,
            LetterDesk(core, access, rules),
            VerdictLog(core, access),
            CorrectionDesk(core, access),
            Accounts(core.settings, core.database),
            meters,
            Polls(),
        )


def doors_of(request: Request) -> Doors:
    """The parts behind the door that this request came through."""
    return cast(Doors, request.app.state.doors)


def caller_of(request: Request) -> Principal:
    """Who the gate found this to be."""
    return cast(Principal, request.state.principal)


def needs(action: Action) -> Callable[[Request], Awaitable[Principal]]:
    """A dependency: the caller, if its role may do `action`; else 403."""

    async def check(request: Request) -> Principal:
        caller = caller_of(request)
        await doors_of(request).access.check(caller, action)
        return caller

    return check


Parts = Annotated[Doors, Depends(doors_of)]


def answer(value: object, status: int = 200) -> Response:
    """`value` as JSON. Encoded here and not validated again: `tests` hold it against the OpenAPI."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


_SENTENCES: Final[Mapping[int, str]] = {
    400: "The body cannot be read.",
    401: "No token, or one that is unknown, revoked or expired.",
    403: "The token is good, but not for this.",
    404: "There is no such thing, or none that this token may see.",
    409: "Valid, but not now or not any more.",
    413: "More bytes than the limit.",
    415: "A Content-Type that is not read here.",
    422: "The input is not what the contract says; nothing was stored.",
    429: "The backlog is full; come again after Retry-After seconds.",
    503: "The database cannot be reached; come again after Retry-After seconds.",
}


def documented(
    model: Any, *errors: int, status: int = 200, description: str = "Done."
) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route: `model` at `status`, and besides 401, 403, 413, 422 and 503 the given errors."""
    good: dict[int | str, dict[str, Any]] = {status: {"model": model, "description": description}}
    bad = {401, 403, 413, 422, 503, *errors}
    return good | {code: {"model": ErrorBody, "description": _SENTENCES[code]} for code in sorted(bad)}
