"""Which unmarked lines between quoted ones are certainly the sender's own. Pure.

Programs wrap quoted lines, and leave the rest of a line without its mark; so what stands between quoted lines is not
the sender's own just because it has no mark. It is if everything around it is a reply of ours, word for word. Called
by `store/surroundings.py`. In: the passages of a mail, and the replies of ours that it answers; out: the passages.
Next: `own.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from switchboard.core.passages.plain import is_answer_subject
from switchboard.core.passages.signs import bare, is_marked, sign_at
from switchboard.domain.envelope import Passage

_WORD: Final = re.compile(r"\w+")
_ADDRESS: Final = re.compile(r"[^\s<>()\[\]\",;:]{1,100}@[^\s<>()\[\]\",;:]{1,100}")
_WRAPPED: Final = 60
"""Characters of a quoted line that may have been wrapped, so that its rest stands below it without a mark."""


def promoted(passages: Sequence[Passage], ours: Sequence[str], is_ours: Callable[[str], bool]) -> tuple[Passage, ...]:
    """The passages, of which those `between` quoted ones are `own` where that is certain.

    `ours`: the texts of our replies that the mail answers; `is_ours`: whether a mail address (in lower
    case) is the account's own.
    """
    if not ours or any(one.kind == "forwarded" for one in passages):
        return tuple(passages)
    known = [_words(text) for text in ours]
    return tuple(
        replace(one, kind="own")
        if one.kind == "between" and _is_attributed(passages[:n], is_ours) and _is_around(passages, n, known)
        else one
        for n, one in enumerate(passages)
    )


def _is_attributed(above: Sequence[Passage], is_ours: Callable[[str], bool]) -> bool:
    """Whether exactly one attribution stands above, and nothing else of others but marked lines."""
    lines = [bare(line) for one in above if one.kind == "quoted" for line in one.text.split("\n")]
    at, found = int(bool(above) and above[0].kind == "quoted" and is_answer_subject(lines[0])), 0
    while at < len(lines):
        if not lines[at] or is_marked(lines[at]):
            at += 1
            continue
        sign = sign_at(lines, at)
        if sign is None or not sign.wrote or not _names_only(lines[at : at + sign.lines], is_ours):
            return False
        at, found = at + sign.lines, found + 1
    return found == 1


def _names_only(lines: Sequence[str], is_ours: Callable[[str], bool]) -> bool:
    return all(is_ours(one.lower()) for line in lines for one in _ADDRESS.findall(line))


def _is_around(passages: Sequence[Passage], n: int, known: Sequence[str]) -> bool:
    """Whether the marked lines directly above and below repeat a reply of ours."""
    if n == 0 or passages[n - 1].kind != "quoted":
        return False
    above = passages[n - 1].text.split("\n")
    # Whether a blank line follows is not kept, so it counts as if there were none.
    if not is_marked(above[-1]) or len(above[-1].rstrip()) >= _WRAPPED:
        return False
    below = passages[n + 1] if n + 1 < len(passages) else None
    around = [above, *([below.text.split("\n")] if below is not None and below.kind == "quoted" else [])]
    return all(any(_marked_words(lines) in text for text in known) for lines in around)


def _marked_words(lines: Sequence[str]) -> str:
    return _words("\n".join(line for line in lines if is_marked(line)))


def _words(text: str) -> str:
    """The words alone, as programs rewrap lines. Blanks at both ends, so that no word matches a part of another."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "
