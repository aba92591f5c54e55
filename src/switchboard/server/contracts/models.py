"""The shapes of bodies about models and what they chose, for reading requests and for the OpenAPI.

`models.py` reads requests with them; answers are the frozen values of `app/`. Next:
`app/classification/corrections.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from switchboard.domain.shown import Read
from switchboard.server.contracts.messages import Answer, Body, Line, Word


class CorrectionBody(Body):
    """The System1 or the team that the message was for, by its id."""

    to: Word
    reason: Line | None = None
    only_note: bool = False


class ClassificationPage(Answer):
    """Newest message first; of a message its teams and attempts backwards."""

    classifications: list[Read]
    next_cursor: str | None


class CaseView(Answer):
    """A message as rules see it, and who should have got it: a butler, or whom the rules of a team lead to."""

    name: str
    facts: Mapping[str, str]
    expect: str | list[str]


class CaseFile(Answer):
    """A file of route tests."""

    cases: list[CaseView]
    next_cursor: str | None
