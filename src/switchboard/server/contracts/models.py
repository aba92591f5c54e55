"""The shapes of bodies about models and what they chose, for reading requests and for the OpenAPI.

`models.py` reads requests with them; answers are the frozen values of `app/`. Next:
`app/classification/corrections.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from switchboard.domain.shown import Read
from switchboard.server.contracts.base import Body, Line, ResponseBody, Word


class CorrectionBody(Body):
    """The butler or the team that the message was for, by its id."""

    to: Word
    reason: Line | None = None
    only_note: bool = False


class ClassificationPage(ResponseBody):
    """Newest message first. `next_cursor` is null on the last page."""

    classifications: list[Read]
    next_cursor: str | None


class CaseView(ResponseBody):
    """The facts of a message, and who should get it: a butler, or those to whom the rules of a team lead."""

    name: str
    facts: Mapping[str, str]
    expect: str | list[str]


class CaseFile(ResponseBody):
    """Corrections as cases for `POST /v1/rules/test`, newest first."""

    cases: list[CaseView]
    next_cursor: str | None
