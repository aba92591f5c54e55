"""Values of classification by a model: who may be chosen, what was said before, what a session decided.

Made and read by `core/classification/` and `journey/ask.py`. No I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct


class Candidate(Struct, frozen=True):
    """A live butler or a sub-team that the team may reach. `name` is what the model must answer."""

    name: str
    description: str = ""
    capabilities: tuple[str, ...] = ()


class Utterance(Struct, frozen=True):
    """One message of a conversation; `ours`: a butler wrote it. `cut`: the end of its text is left out."""

    at: datetime
    author: str
    ours: bool
    text: str
    cut: bool = False


class RoutedPart(Struct, frozen=True):
    """A butler that the session named. `segment` None: the whole message."""

    butler: str
    segment: str | None = None
    reason: str = ""


class FailedCall(Struct, frozen=True):
    """A call that failed. `butler` is a candidate's name, or else what the model wrote.

    `segment` is the part meant for it, if the name was not a candidate's.
    """

    butler: str
    kind: Literal["unknown", "ambiguous", "no_butler", "not_ok", "no_result", "not_recorded"]
    why: str
    segment: str | None = None


class RecordedCall(Struct, frozen=True):
    """A call as our server saw it under the session's token; `ok` if it accepted the message for that butler."""

    butler: str
    ok: bool
    segment: str | None = None
    why: str = ""


class Classification(Struct, frozen=True):
    """What the session decided. Names are those of candidates, each at most once in `routed` and in `acked`.

    `inferred`: there was no call, `routed` is one butler read from the text, and the message has yet to be handed on.
    `error` says why the session must be repeated: nobody took the message, or a part of it went to a name that is not
    a candidate's.
    """

    routed: tuple[RoutedPart, ...] = ()
    acked: tuple[str, ...] = ()
    failed: tuple[FailedCall, ...] = ()
    error: str | None = None
    inferred: bool = False

    @property
    def chosen(self) -> tuple[RoutedPart, ...]:
        """The butlers that were named and did not fail."""
        failed = {one.butler for one in self.failed}
        return tuple(part for part in self.routed if part.butler not in failed)


@dataclass(frozen=True, slots=True)
class RoutingResult:
    """The outcome for one message: a dataclass with the fields and the types of the seed data.

    `target_butler` is the first butler that acknowledged, else the first that was routed to, else empty.
    `routed_targets` are all that were named, in order; each is in `acked_targets` or in `failed_targets`, or in neither
    if it was only inferred from the text and not delivered yet.
    """

    target_butler: str
    route_result: dict[str, Any] = field(default_factory=dict)
    classification_error: str | None = None
    routing_error: str | None = None
    routed_targets: list[str] = field(default_factory=list)
    acked_targets: list[str] = field(default_factory=list)
    failed_targets: list[str] = field(default_factory=list)
