"""What the shapes of all bodies have in common: their base classes, words without NUL, and errors.

Unknown fields are refused; strings hold no NUL, which PostgreSQL cannot store. Next: the topics beside it.
"""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from pydantic import BaseModel, Field, StringConstraints

from switchboard.domain.json_values import JsonObject
from switchboard.domain.routing import SystemId, TeamId

_WORD: Final = StringConstraints(min_length=1, max_length=512, pattern=r"^[^\x00]+$")
Word = Annotated[str, _WORD]
TeamRef = Annotated[TeamId, _WORD]
SystemRef = Annotated[SystemId, _WORD]
Words = Annotated[str, StringConstraints(max_length=4000, pattern=r"^[^\x00]*$")]
Line = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f]*$")
]
Id = Annotated[UUID, Field(strict=False)]
"""JSON has it as a string."""
Cursor = Annotated[str, StringConstraints(min_length=1, max_length=4000)]
Limit = Annotated[int, Field(ge=1, le=500)]
Number = Annotated[int, Field(ge=0, le=2**53)]


class Body(BaseModel, extra="forbid", frozen=True, strict=True):
    """A request body: unknown fields are refused, and nothing is coerced, such as "no" to false."""


class ResponseBody(BaseModel, frozen=True, defer_build=True):
    """The answer of an interface."""

    # Answers are never validated: their schemas are built when the OpenAPI is requested, not at every start.


class ErrorInfo(ResponseBody):
    """`code` is stable, `message` may change.

    `field` is present if a single field is at fault, `details` if more can be said.
    """

    code: str
    message: str
    field: str | None = None
    details: JsonObject | None = None


class ErrorBody(ResponseBody):
    """The form of every error."""

    error: ErrorInfo
