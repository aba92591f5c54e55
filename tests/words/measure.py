"""How well the passages of the corpus agree with the truth: five figures by client and by language.

Called by `tests/unit/test_words_corpus.py` and `python -m tests.words`. In: the cases of `forms.py` and
`first_mails.py`; out: what was found in each, and tables. Next: `core/mail/parse.py`, which is measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Final

from switchboard.core.mail.parse import envelope_from_mail
from switchboard.core.passages.own import own_text, passages_of, read_passages
from switchboard.domain.envelope import Passage
from tests.words.first_mails import First, first_mails
from tests.words.forms import cases
from tests.words.truth import Case, Part, agrees, found_in, letters, lost_words, missing_words, stolen_words

NOW: Final = datetime(2026, 11, 28, 12, tzinfo=UTC)
_ENDPOINT: Final = "me@example.org"
ALL_SHOWN, NONE_STOLEN, OWN_KEPT, AS_BY_LAW, FIRST_KEPT = FIGURES = (
    "shown",
    "not stolen",
    "own kept",
    "by law",
    "first",
)


@dataclass(frozen=True, slots=True)
class Found:
    """A case and what was found in it. Each fault is empty if there is none."""

    case: Case
    found: tuple[Part, ...]
    missing: str
    stolen: str
    lost: str
    differs: bool

    def fault(self, figure: str) -> bool:
        """Whether it is bad by that figure."""
        faults = {ALL_SHOWN: self.missing, NONE_STOLEN: self.stolen, OWN_KEPT: self.lost}
        return self.differs if figure == AS_BY_LAW else bool(faults[figure])


@dataclass(frozen=True, slots=True)
class FoundFirst:
    """An ordinary first mail, and the words of it that were not found to be the sender's own."""

    first: First
    lost: str


def passages_in(raw: bytes) -> tuple[Passage, ...]:
    """The passages of a mail."""
    return passages_of(envelope_from_mail(raw, endpoint=_ENDPOINT, now=NOW).envelope)


@cache
def measured() -> tuple[Found, ...]:
    """Every case of the corpus."""
    return tuple(_measure(case) for case in cases())


@cache
def measured_first() -> tuple[FoundFirst, ...]:
    """Every ordinary first mail and text of a chat."""
    return tuple(FoundFirst(one, _lost_of_first(one)) for one in first_mails())


def _measure(case: Case) -> Found:
    found = found_in(passages_in(case.raw))
    return Found(
        case,
        found,
        missing=missing_words(case.parts, found),
        stolen=stolen_words(case.parts, found),
        lost=lost_words(case.parts, found),
        differs=not agrees(case.parts, found),
    )


def _lost_of_first(first: First) -> str:
    passages = passages_in(first.raw) if first.raw is not None else read_passages(first.words, "telegram")
    own = letters(own_text(passages))
    return (
        ""
        if own == letters(first.words)
        else "\n".join(one for one in first.words.split("\n") if letters(one) not in own) or own
    )


def described(found: Found) -> str:
    """A case for a person: where it is from, and what was expected and found."""
    case = found.case
    expected = "\n".join(f"    {one.kind}: {one.words!r}" for one in case.parts)
    seen = "\n".join(f"    {one.kind}: {one.words!r}" for one in found.found)
    faults = f"  missing {found.missing!r}, stolen {found.stolen!r}, lost {found.lost!r}"
    return f"{case.client}: {case.form}, {case.language}\n{faults}\n  expected\n{expected}\n  found\n{seen}"


def tables() -> str:
    """The figures by client and by language, for a terminal; one word a fault costs the whole mail."""
    return "\n\n".join(
        (
            _table("client or form", lambda one: one.client),
            _table("language", lambda one: one.language),
            _table("all", lambda _: "all mails"),
        )
    )


def legend() -> str:
    """What each column of the tables counts."""
    meanings = {
        ALL_SHOWN: "every visible word is in a passage",
        NONE_STOLEN: "no word of others counts as the sender's own",
        OWN_KEPT: "every word above the first sign of others counts as the sender's own",
        AS_BY_LAW: "all passages are as the corpus says (tests/words/truth.py)",
        FIRST_KEPT: f"of {len(measured_first())} ordinary first mails and chat texts, those wholly the sender's own",
    }
    return "\n".join(f"{name:11} {meaning}" for name, meaning in meanings.items())


def _table(title: str, key: Callable[[Case], str]) -> str:
    rows, firsts = defaultdict[str, list[Found]](list), defaultdict[str, list[FoundFirst]](list)
    for found in measured():
        rows[key(found.case)].append(found)
    for first in measured_first():
        firsts[{"language": first.first.language, "all": "all mails"}.get(title, "")].append(first)
    lines = [f"{title:28}{'mails':>7}" + "".join(f"{one:>12}" for one in FIGURES)]
    lines += [
        f"{name:28}{len(group):>7}" + "".join(_shares(group, firsts.get(name, []))) for name, group in rows.items()
    ]
    return "\n".join(line.rstrip() for line in lines)


def _shares(group: Iterable[Found], firsts: Iterable[FoundFirst]) -> Iterator[str]:
    found = list(group)
    for figure in FIGURES[:-1]:
        yield _share([not one.fault(figure) for one in found])
    yield _share([not one.lost for one in firsts])


def _share(good: list[bool]) -> str:
    return f"{100 * sum(good) / len(good):11.1f}%" if good else f"{'':>12}"
