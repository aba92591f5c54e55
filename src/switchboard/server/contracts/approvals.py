"""The shapes of requests and answers about people's decisions. Next: `app/approvals/service.py`."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from switchboard.core.turns.asking import Verb
from switchboard.domain.shown import ApprovalState, ShownApproval
from switchboard.server.contracts.base import Body, Cursor, Id, Limit, ResponseBody, Word, Words

Said = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4000, pattern=r"^[^\x00]*$")]


class ApprovalBody(Body):
    """The `digest` of what was shown: another call or question is not decided by mistake."""

    digest: Word | None = None


class RefusalBody(ApprovalBody):
    """Why, for the model and the records."""

    reason: Words = ""


class AnswerBody(ApprovalBody):
    """The answer to a question; a number selects the option with that number."""

    text: Said


class ListApprovals(Body):
    """A page of what people are asked, newest first; of one state or of all."""

    state: ApprovalState | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


class WhichApproval(Body):
    """One of them."""

    approval_id: Id


class DecideApproval(WhichApproval):
    """What is decided about one; `text` is the answer, or why it is refused."""

    decision: Verb
    text: Words = ""


class ApprovalPage(ResponseBody):
    """Newest first. `next_cursor` is null on the last page."""

    approvals: list[ShownApproval]
    next_cursor: str | None
