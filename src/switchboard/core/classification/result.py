"""Turns a classification into the result: segments in the message's own words, and each butler's outcome.

Called by `journey/ask.py`, `journey/submit.py` and `pipeline.py`. In: the answer of a `classify_fn`, a classification,
the text of the message and outcomes; out: the arguments of calls, a classification and a `RoutingResult`. Pure.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from switchboard.domain.classification import Classification, FailedCall, RoutedPart, RoutingResult
from switchboard.domain.json_values import JsonObject

MAX_LEFT: Final = 80
"""Maximum characters quoted of text that is in no segment."""
_WORDS_AND_BLANKS: Final = re.compile(r"\s+|\S+")


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
    alone = found.chosen if len(found.chosen) == 1 else ()
    routed = tuple(replace(part, segment=None) if part in alone else part for part in found.routed)
    if any(part.segment is not None for part in routed):
        spread = _Spread.of(text)
        routed = tuple(_own_words(part, spread) for part in routed)
    return replace(found, routed=routed)


def _own_words(part: RoutedPart, spread: _Spread) -> RoutedPart:
    return part if part.segment is None else replace(part, segment=spread.find(part.segment))


class _Spread(Struct, frozen=True):
    """A text in lower case and with single blanks; where its words begin there and in the original."""

    text: str
    plain: str
    begins: Sequence[int]
    places: Sequence[int]

    @classmethod
    def of(cls, text: str) -> _Spread:
        plain: list[str] = []
        begins: list[int] = []
        places: list[int] = []
        length = 0
        for place, part in _fold_signs(text):
            plain.append(part)
            begins.append(length)
            places.append(place)
            length += len(part)
        return cls(text, "".join(plain), begins, places)

    def find(self, segment: str) -> str | None:
        """The words of the text that `segment` matches; None if there are none."""
        wanted = _Spread.of(segment).plain.strip()
        begin = self.plain.find(wanted)
        if begin < 0 or not wanted:
            return None
        return self.text[self._place_in_original(begin) : self._place_in_original(begin + len(wanted) - 1) + 1]

    def _place_in_original(self, index: int) -> int:
        """Where in the original the character of `plain` is."""
        word = bisect_right(self.begins, index) - 1
        return self.places[word] + self._place_in_word(word, index - self.begins[word])

    def _place_in_word(self, word: int, offset: int) -> int:
        """Only of plain words there is more than one character to a part, and of those of a folded one, as of ß."""
        return offset if self.text[self.places[word]].isascii() else 0


def _fold_signs(text: str) -> Iterator[tuple[int, str]]:
    """Places of a text, and what stands there: plain words, blanks as one, and each other character alone."""
    for found in _WORDS_AND_BLANKS.finditer(text):
        word, begin = found.group(), found.start()
        if word[0].isspace():
            yield begin, " "
        elif word.isascii():
            yield begin, word.lower()
        else:
            yield from ((place, sign.casefold()) for place, sign in enumerate(word, begin))


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
    failed = _failed_butlers(found, acked, refused)
    first = next(chain(acked, (name for name in routed if name not in failed)), "")
    return RoutingResult(
        target_butler=first,
        route_result={
            "status": status or _status_of(first, failed or found.error),
            "request_id": request_id,
            "targets": [_target_data(part, outcomes, found.failed) for part in found.routed],
            "model": model,
            "inferred": found.inferred,
        },
        classification_error=found.error,
        routing_error="; ".join(map(": ".join, refused.items())) or None,
        routed_targets=routed,
        acked_targets=acked,
        failed_targets=failed,
    )


def _status_of(first: str, wrong: object) -> str:
    return "failed" if not first else "partial" if wrong else "routed"


def _failed_butlers(found: Classification, acked: Collection[str], refused: Iterable[str]) -> list[str]:
    """The butlers with failures, each once: in the classification, then in the notification."""
    named = chain((failure.butler for failure in found.failed if failure.butler not in acked), refused)
    return [name for name in dict.fromkeys(named) if name]


def _target_data(part: RoutedPart, outcomes: Mapping[str, str | None], failed: Sequence[FailedCall]) -> JsonObject:
    why = outcomes.get(part.butler) or next((one.why for one in failed if one.butler == part.butler), None)
    status = "accepted" if part.butler in outcomes and why is None else "failed" if why else "chosen"
    return {
        "butler": part.butler,
        "segment": part.segment,
        "reason": part.reason,
        "status": status,
        "error": why,
    }
