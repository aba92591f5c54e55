"""Turns a classification into the result: segments in the message's own words, and each butler's outcome.

Called by `journey/ask.py`, `journey/submit.py` and `pipeline.py`. In: the answer of a `classify_fn`, a classification,
the text of the message and outcomes; out: the arguments of calls, a classification and a `RoutingResult`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from switchboard.domain.classification import Classification, FailedCall, RoutedPart, RoutingResult
from switchboard.domain.json_values import JsonObject

MAX_LEFT: Final = 80
"""Maximum characters quoted of text that is in no segment."""


def choices(said: object) -> Iterable[Mapping[str, object]]:
    """The answer of a `classify_fn`, as arguments of calls."""
    for one in said if isinstance(said, list | tuple) else [said]:
        if isinstance(one, str) and one.strip():
            yield {"butler": one}
        elif isinstance(one, Mapping):
            yield one


def word_by_word(found: Classification, text: str) -> Classification:
    """Segments in the exact words of the message; a segment that is not in it is dropped, and its butler gets the whole
    message, never invented words. Models change capitals and blanks, which would break a link or a password.

    A butler that is chosen alone also gets the whole message: otherwise the rest would be lost.
    """
    spread = _Spread.of(text)
    alone = found.chosen if len(found.chosen) == 1 else ()
    routed = (replace(part, segment=None) if part in alone else _own_words(part, spread) for part in found.routed)
    return replace(found, routed=tuple(routed))


def _own_words(part: RoutedPart, spread: _Spread) -> RoutedPart:
    return part if part.segment is None else replace(part, segment=spread.find(part.segment))


class _Spread(Struct, frozen=True):
    """A text in lower case and with single blanks, and for each of its characters the position in the original."""

    text: str
    plain: str
    places: Sequence[int]

    @classmethod
    def of(cls, text: str) -> _Spread:
        plain: list[str] = []
        places: list[int] = []
        for place, sign in enumerate(text):
            folded = " " if sign.isspace() else sign.casefold()
            if folded == " " and plain and plain[-1] == " ":
                continue
            plain += folded
            places += [place] * len(folded)
        return cls(text, "".join(plain), places)

    def find(self, segment: str) -> str | None:
        """The words of the text that `segment` matches; None if there are none."""
        wanted = _Spread.of(segment).plain.strip()
        begin = self.plain.find(wanted)
        if begin < 0 or not wanted:
            return None
        return self.text[self.places[begin] : self.places[begin + len(wanted) - 1] + 1]


def in_no_part(text: str, parts: Collection[str | None]) -> str:
    """The beginning of the words that are in no part of a text; empty if every word is in some part.

    A part None means the whole.
    """
    if None in parts:
        return ""
    covered = bytearray(len(text))
    for part in filter(None, parts):
        for found in re.finditer(re.escape(part), text):
            covered[found.start() : found.end()] = b"\1" * len(part)
    bare = (text[gap.start() : gap.end()] for gap in re.finditer(rb"\0+", covered))
    left = " \u2026 ".join(" ".join(gap.split()) for gap in bare if re.search(r"\w", gap))
    return left if len(left) <= MAX_LEFT else left[:MAX_LEFT] + "\u2026"


def result_of(
    request_id: str, model: str | None, found: Classification, outcomes: Mapping[str, str | None], status: str = ""
) -> RoutingResult:
    """The result for one message. `outcomes`: per notified butler None, or why it did not get its part.

    `status` replaces the one derived from the outcomes.
    """
    routed = [part.butler for part in found.routed]
    refused = {name: why for name, why in outcomes.items() if why is not None}
    acked = [name for name in outcomes if name not in refused]
    failed = _failed(found, acked, refused)
    first = next(chain(acked, (name for name in routed if name not in failed)), "")
    return RoutingResult(
        target_butler=first,
        route_result={
            "status": status or _status(first, failed or found.error),
            "request_id": request_id,
            "targets": [_target(part, outcomes, found.failed) for part in found.routed],
            "model": model,
            "inferred": found.inferred,
        },
        classification_error=found.error,
        routing_error="; ".join(map(": ".join, refused.items())) or None,
        routed_targets=routed,
        acked_targets=acked,
        failed_targets=failed,
    )


def _status(first: str, wrong: object) -> str:
    return "failed" if not first else "partial" if wrong else "routed"


def _failed(found: Classification, acked: Collection[str], refused: Iterable[str]) -> list[str]:
    """The butlers with failures, each once: in the classification, then in the notification."""
    named = chain((failure.butler for failure in found.failed if failure.butler not in acked), refused)
    return [name for name in dict.fromkeys(named) if name]


def _target(part: RoutedPart, outcomes: Mapping[str, str | None], failed: Sequence[FailedCall]) -> JsonObject:
    why = outcomes.get(part.butler) or next((one.why for one in failed if one.butler == part.butler), None)
    status = "accepted" if part.butler in outcomes and why is None else "failed" if why else "chosen"
    return {
        "butler": part.butler,
        "segment": part.segment,
        "reason": part.reason,
        "status": status,
        "error": why,
    }
