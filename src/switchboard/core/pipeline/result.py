"""From a verdict to the result: the parts in the message's own words, and what became of each butler that was named.

Called by `journey/pipeline.py`. What a `classify_fn` said, a verdict, the text of the message and outcomes enter; the
arguments of calls, a verdict and a `RoutingResult` leave. `app/classifier.py` asks here which words stand in no part.
Pure. Next: whoever called the pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from switchboard.core.pipeline.verdict import Failure, Route, Verdict
from switchboard.domain.pipeline import RoutingResult

MAX_LEFT: Final = 80
"""Most characters that are told of what stands in no part."""


def choices(said: object) -> Iterable[Mapping[str, object]]:
    """What a `classify_fn` said, as arguments of calls."""
    for one in said if isinstance(said, list | tuple) else [said]:
        if isinstance(one, str) and one.strip():
            yield {"butler": one}
        elif isinstance(one, Mapping):
            yield one


def word_by_word(verdict: Verdict, text: str) -> Verdict:
    """Segments as they stand in the message; one that does not is dropped: its butler gets the whole, never words of
    others. Models write capitals and blanks as they like, and a link or a password is another one then.

    Whoever is chosen alone gets the whole, too: nobody else would get the rest.
    """
    spread = _Spread.of(text)
    failed = {failure.butler for failure in verdict.failed}
    alone = sum(route.butler not in failed for route in verdict.routed) == 1
    routed = (
        replace(route, segment=None) if alone and route.butler not in failed else _own_words(route, spread)
        for route in verdict.routed
    )
    return replace(verdict, routed=tuple(routed))


def _own_words(route: Route, spread: _Spread) -> Route:
    return route if route.segment is None else replace(route, segment=spread.find(route.segment))


@dataclass(frozen=True, slots=True)
class _Spread:
    """A text without capitals and with single blanks, and for each of its characters where in the text it stands."""

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
        """The words of the text that `segment` means; None where it means none."""
        wanted = _Spread.of(segment).plain.strip()
        begin = self.plain.find(wanted)
        if begin < 0 or not wanted:
            return None
        return self.text[self.places[begin] : self.places[begin + len(wanted) - 1] + 1]


def in_no_part(text: str, parts: Collection[str | None]) -> str:
    """The beginning of what stands in none of several parts of a text; empty where all words stand in some.

    None among the parts is the whole.
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
    request_id: str, model: str | None, verdict: Verdict, outcomes: Mapping[str, str | None]
) -> RoutingResult:
    """The result for one message. `outcomes`: per butler that somebody told None, or why it did not get its part."""
    routed = [route.butler for route in verdict.routed]
    acked = [name for name, why in outcomes.items() if why is None]
    wrong = {failure.butler: failure.why for failure in verdict.failed if failure.butler not in acked}
    wrong |= {name: why for name, why in outcomes.items() if why is not None}
    failed = [name for name in wrong if name]
    first = next(iter(acked or (name for name in routed if name not in failed)), "")
    status = "failed" if not first else "partial" if failed or verdict.error else "routed"
    targets = [_target(route, outcomes, verdict.failed) for route in verdict.routed]
    return RoutingResult(
        target_butler=first,
        route_result={
            "status": status,
            "request_id": request_id,
            "targets": targets,
            "model": model,
            "inferred": verdict.inferred,
        },
        classification_error=verdict.error,
        routing_error="; ".join(f"{name}: {why}" for name, why in outcomes.items() if why is not None) or None,
        routed_targets=routed,
        acked_targets=acked,
        failed_targets=failed,
    )


def _target(route: Route, outcomes: Mapping[str, str | None], failed: Sequence[Failure]) -> dict[str, Any]:
    why = outcomes.get(route.butler) or next((one.why for one in failed if one.butler == route.butler), None)
    status = "accepted" if route.butler in outcomes and why is None else "failed" if why else "chosen"
    return {
        "butler": route.butler,
        "segment": route.segment,
        "reason": route.reason,
        "status": status,
        "error": why,
    }
