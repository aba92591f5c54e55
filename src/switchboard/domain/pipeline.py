"""What routing by a model works on: who may be chosen, what was said before, and the result.

Made and read by `core/pipeline/` and `journey/classify.py`. No I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Candidate:
    """A butler or a sub-team that the team may reach and that is alive. `name` is what the model must answer."""

    name: str
    description: str = ""
    capabilities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Utterance:
    """One thing said in a conversation; `ours` says that a butler said it. `cut`: the end of its text is left out."""

    at: datetime
    author: str
    ours: bool
    text: str
    cut: bool = False


@dataclass(frozen=True, slots=True)
class RoutingResult:
    """The outcome for one message; its fields and their types are those of the seeds.

    `target_butler` is the first butler that acknowledged, else the first that was routed to, else empty.
    `routed_targets` are all that were named, in order; each is in `acked_targets` or in `failed_targets`, or in neither
    where it was only inferred from the text and nobody has delivered yet.
    """

    target_butler: str
    route_result: dict[str, Any] = field(default_factory=dict)
    classification_error: str | None = None
    routing_error: str | None = None
    routed_targets: list[str] = field(default_factory=list)
    acked_targets: list[str] = field(default_factory=list)
    failed_targets: list[str] = field(default_factory=list)
