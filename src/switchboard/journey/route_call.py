"""The one tool of a routing session: whom a call may name, and where it is put on record.

Every call comes through here: from a command line by `server/mcp_route.py`, from an API by `journey/pipeline.py`. An
open session and arguments enter, the result that the model is shown leaves. Nothing is delivered here: what is recorded
is read once the session is over. Next: `store/classification.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from switchboard.core.pipeline.prompt import MAX_SEGMENT, ROUTE_TOOL
from switchboard.core.pipeline.transcript import ToolCall, Transcript
from switchboard.core.pipeline.verdict import parse_calls
from switchboard.domain.errors import Forbidden
from switchboard.store import classification as store
from switchboard.store.classification import Call, Session
from switchboard.store.database import Database

_ACCEPTED: Final = {"status": "accepted"}
_BOUND: Final = ("request_id", "conversation", "team_id", "session_id")
"""What a session is bound to. No call has a reason to say it; one that says another is after another's message."""


async def take(database: Database, session: Session, arguments: Mapping[str, object]) -> dict[str, Any]:
    """Judge a call, put it on record, and give its result: `{"status": "accepted" | "refused", "butler", "error"?}`.

    Raises Forbidden when the session is over, or has called too often: then the call does not count.
    """
    call = judge(session, arguments)
    if not await store.record_call(database, session.session_id, call):
        raise Forbidden("this session is over; nothing was routed")
    if call.ok:
        return {**_ACCEPTED, "butler": call.butler}
    return {"status": "refused", "butler": call.butler, "error": call.why}


def judge(session: Session, arguments: Mapping[str, object]) -> Call:
    """Whether a call may be: it names one of the session's candidates, and nothing but the session's own message."""
    for name in _BOUND:
        own = str(getattr(session, name))
        if name in arguments and str(arguments[name]) != own:
            return Call(_named(arguments), ok=False, why=f"this session is bound to the {name} {own}, and to no other")
    done = ToolCall(ROUTE_TOOL, arguments, _ACCEPTED, ok=True)
    verdict = parse_calls(Transcript(calls=(done,)), session.candidates)
    if verdict.failed:
        failure = verdict.failed[0]
        return Call(failure.butler, ok=False, segment=failure.segment, why=failure.why)
    [route] = verdict.routed
    if route.segment is not None and len(route.segment) > MAX_SEGMENT:
        return Call(route.butler, ok=False, why=f"a segment has at most {MAX_SEGMENT} characters")
    return Call(route.butler, ok=True, segment=route.segment, reason=route.reason)


def _named(arguments: Mapping[str, object]) -> str:
    named = arguments.get("butler")
    return named[:200] if isinstance(named, str) else ""
