"""Which unmarked lines between quoted ones are certainly the sender's own. Pure.

Programs wrap quoted lines, and leave the rest of a line without its mark; so what stands between quoted lines is not
the sender's own just because it has no mark. It is if everything around it is a reply of ours, word for word, and it is
no part of that itself. Called by `store/work/surroundings.py`. In: the passages of a mail, and the reply of ours that
it answers; out: the passages. Next: `own.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.passages.plain import is_answer_subject
from switchboard.core.passages.signs import bare, is_marked, sign_at
from switchboard.domain.envelope import Passage

_WORD: Final = re.compile(r"\w+")
_ADDRESS: Final = re.compile(r"[^\s<>()\[\]\",;:]{1,100}@[^\s<>()\[\]\",;:]{1,100}")
_WRAPPED: Final = 60
"""Characters of a quoted line that may have been wrapped, so that its rest stands below it without a mark."""
_LEAST_WORDS: Final = 5
"""Words that can hardly be the same by chance."""
_JOINING: Final = 3
"""Words of a quoted block that are looked for together with the first or last one of what is between."""


class _Known(Struct, frozen=True):
    """The words of our reply, and all that stand together in it, five at a time."""

    texts: Sequence[str]
    runs: Collection[tuple[str, ...]]


class _Above(Struct, frozen=True):
    """What stands above a passage. `foreign`: something by others than those who `signs` attributions name.

    `ours`: an attribution names our address.
    """

    signs: int = 0
    ours: bool = False
    foreign: bool = False


def promote_passages(
    passages: Sequence[Passage], ours: Sequence[str], is_ours: Callable[[str], bool]
) -> tuple[Passage, ...]:
    """The passages, of which those `between` quoted ones are `own` where that is certain.

    `ours`: the texts of the reply of ours that the mail answers; `is_ours`: whether a mail address (in lower
    case) is the account's own.
    """
    if not ours or any(one.kind == "forwarded" for one in passages):
        return tuple(passages)
    known = _known_words(ours)
    above = accumulate(enumerate(passages), partial(_look_above, is_ours), initial=_Above())
    return tuple(
        replace(one, kind="own")
        if one.kind == "between" and _is_attributed(stands) and _is_certain(passages, n, known, ours=stands.ours)
        else one
        for n, (one, stands) in enumerate(zip(passages, above, strict=False))
    )


# What stands above ----------------------------------------------------------------------------------------------------


def _is_attributed(above: _Above) -> bool:
    """Whether exactly one attribution stands above, and nothing else of others but marked lines."""
    return above.signs == 1 and not above.foreign


def _look_above(is_ours: Callable[[str], bool], before: _Above, numbered: tuple[int, Passage]) -> _Above:
    """What stands above the next passage; `before`: what stands above this one."""
    n, passage = numbered
    if before.foreign or passage.kind != "quoted":
        return before
    lines = [bare(line) for line in passage.text.split("\n")]
    at = int(n == 0 and is_answer_subject(lines[0]))
    while at < len(lines):
        if not lines[at] or is_marked(lines[at]):
            at += 1
            continue
        sign = sign_at(lines, at)
        if sign is None or not sign.wrote:
            return _Above(foreign=True)
        named = [one.lower() for line in lines[at : at + sign.lines] for one in _ADDRESS.findall(line)]
        before = _Above(before.signs + 1, before.ours or bool(named), not all(map(is_ours, named)))
        if before.foreign:
            return before
        at += sign.lines
    return before


# What stands around ---------------------------------------------------------------------------------------------------


def _is_certain(passages: Sequence[Passage], n: int, known: _Known, *, ours: bool) -> bool:
    """Whether the marked lines directly above and below repeat a reply of ours, and what is between them does not.

    `ours`: the attribution has our address; a name alone may be anybody's, so more must be repeated then.
    """
    if n == 0 or passages[n - 1].kind != "quoted":
        return False
    above = passages[n - 1].text.split("\n")
    # Whether a blank line follows is not kept, so it counts as if there were none.
    if not is_marked(above[-1]) or len(above[-1].rstrip()) >= _WRAPPED:
        return False
    below = passages[n + 1] if n + 1 < len(passages) else None
    around = [above, *([below.text.split("\n")] if below is not None and below.kind == "quoted" else [])]
    repeated = [_marked_words(lines) for lines in around]
    if sum(len(words.split()) for words in repeated) < (1 if ours else _LEAST_WORDS):
        return False
    return any(_has_all(text, repeated) for text in known.texts) and not _goes_on(known, passages[n].text, repeated)


def _has_all(text: str, blocks: Sequence[str]) -> bool:
    """Whether a reply has all of these, in this order."""
    at = 0
    for words in blocks:
        at = text.find(words, at)
        if at < 0:
            return False
        at += len(words) - 1
    return True


def _goes_on(known: _Known, between: str, around: Sequence[str]) -> bool:
    """Whether a line may be of the reply itself: programs wrap its lines, and leave the rest of one without a mark."""
    lines = [words for line in between.splitlines() if (words := _words_alone(line).split())]
    if not lines:
        return False
    if any(len(words) >= _LEAST_WORDS and all(run in known.runs for run in _runs_of(words)) for words in lines):
        return True
    joints = [(*around[0].split()[-_JOINING:], lines[0][0])]
    joints += [(lines[-1][-1], *words.split()[:_JOINING]) for words in around[1:]]
    return any(f" {' '.join(words)} " in text for words in joints for text in known.texts)


def _known_words(ours: Iterable[str]) -> _Known:
    texts = [_words_alone(text) for text in ours]
    return _Known(texts, {run for text in texts for run in _runs_of(text.split())})


def _runs_of(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(words[at : at + _LEAST_WORDS]) for at in range(len(words) - _LEAST_WORDS + 1))


def _marked_words(lines: Sequence[str]) -> str:
    return _words_alone("\n".join(line for line in lines if is_marked(line)))


def _words_alone(text: str) -> str:
    """The words alone, as programs rewrap lines. Blanks at both ends, so that no word matches a part of another."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "
