"""The one tool of a routing session: which butlers a call may name, and where it is recorded.

Every call passes through here: from a command line by `server/mcp/route.py`, from an API by `ask.py`. In: an open
session and arguments; out: the result shown to the model. Nothing is delivered here: the record is read once the
session is over. Next: `store/models/classification.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from switchboard.core.classification.judge import parse_calls
from switchboard.core.classification.prompt import MAX_SEGMENT, ROUTE_TOOL
from switchboard.domain.errors import Forbidden
from switchboard.domain.json_values import JsonObject
from switchboard.domain.llm import Reply, ToolCall
from switchboard.store.database import Database
from switchboard.store.models import classification as store
from switchboard.store.models.classification import ClassificationSession, SessionCall

_ACCEPTED: Final = {"status": "accepted"}
_BOUND: Final = ("request_id", "conversation", "team_id", "session_id")
"""What a session is bound to. A call need not repeat it; one that differs is meant for another message."""


async def take(database: Database, session: ClassificationSession, arguments: Mapping[str, object]) -> JsonObject:
    """Check a call, record it, and return its result: `{"status": "accepted" | "refused", "butler", "error"?}`.

    Raises Forbidden if the session is over or has made too many calls; then the call does not count.
    """
    call = judge(session, arguments)
    if not await store.record_call(database, session.session_id, call):
        raise Forbidden("this session is over; nothing was routed")
    if call.ok:
        return {**_ACCEPTED, "butler": call.butler}
    return {"status": "refused", "butler": call.butler, "error": call.why}


def judge(session: ClassificationSession, arguments: Mapping[str, object]) -> SessionCall:
    """Whether a call is allowed: it names a candidate of the session, and no other message than the session's."""
    for name in _BOUND:
        own = str(getattr(session, name))
        if name in arguments and str(arguments[name]) != own:
            return SessionCall(
                _butler_argument(arguments), ok=False, why=f"this session is bound to the {name} {own}, and to no other"
            )
    done = ToolCall(ROUTE_TOOL, arguments, _ACCEPTED, ok=True)
    found = parse_calls(Reply(calls=(done,)), session.candidates)
    if found.failed:
        failure = found.failed[0]
        return SessionCall(failure.butler, ok=False, segment=failure.segment, why=failure.why)
    [part] = found.routed
    if part.segment is not None and len(part.segment) > MAX_SEGMENT:
        return SessionCall(part.butler, ok=False, why=f"a segment has at most {MAX_SEGMENT} characters")
    return SessionCall(part.butler, ok=True, segment=part.segment, reason=part.reason)


def _butler_argument(arguments: Mapping[str, object]) -> str:
    named = arguments.get("butler")
    return named[:200] if isinstance(named, str) else ""
