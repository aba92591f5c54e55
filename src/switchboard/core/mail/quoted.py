"""The history that mail programs append to a reply, and that its reader already has.

Called by `core/mail/parse.py`. In: the text of a mail; out: what its sender wrote, and the history below it. Only
quoted text at the end is history: answers between quoted lines need their questions, and the point of a forwarded mail
is its text. Linear time, because a stranger wrote the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_ATTRIBUTIONS: Final = (
    ("on ", "wrote:"),
    ("am ", "schrieb"),
    ("le ", "a écrit"),
    ("el ", "escribió:"),
    ("il ", "ha scritto:"),
    ("op ", "schreef"),
    ("em ", "escreveu:"),
    ("den ", "skrev"),
    ("w dniu ", "napisał"),
)
"""How the line above a quotation begins, and what it has near its end: in English, German, French and so on."""
_MAX_ATTRIBUTION: Final = 400
_ATTRIBUTION_LINES: Final = 3
_FIELDS: Final = (
    re.compile(r"\*?(from|von|de|da|van|från|fra)\s?:", re.IGNORECASE),
    re.compile(r"\*?(sent|date|gesendet|datum|envoyé|enviado|inviato|verzonden|skickat|sendt)\s?:", re.IGNORECASE),
    re.compile(r"\*?(subject|betreff|objet|asunto|oggetto|onderwerp|ämne|emne|assunto)\s?:", re.IGNORECASE),
)
"""The fields that Outlook writes above the original, in this order; there may be others between them."""
_HEAD_LINES: Final = 8
_ORIGINAL = re.compile(
    r"-{2,}\s?(original message|ursprüngliche nachricht|message d'origine|mensaje original|messaggio originale"
    r"|oorspronkelijk bericht)\s?-{2,}",
    re.IGNORECASE,
)
_RULE = re.compile(r"_{8,}")
_FORWARDED = re.compile(r"\s*(fwd?|wg|tr|rv|enc|i|vs|doorst)\s*:", re.IGNORECASE)


def without_history(text: str, subject: str = "") -> tuple[str, str]:
    """The text and the history at its end, which may be empty; both stripped.

    Nothing is cut from a forwarded mail, and no mail is left without text.
    """
    if _FORWARDED.match(subject):
        return text.strip(), ""
    lines = text.split("\n")
    kept = "\n".join(lines[: (begin := _begin(lines))]).strip()
    return (kept, "\n".join(lines[begin:]).strip()) if kept else (text.strip(), "")


def _begin(lines: Sequence[str]) -> int:
    """The index of the first line of the history."""
    quoted = _quoted_from(lines)
    last = max((at for at, line in enumerate(lines) if line.startswith(">")), default=-1)
    for at in range(len(lines)):
        if _is_original(lines, at):
            return at - 1 if at and _RULE.fullmatch(lines[at - 1].strip()) else at
        if length := _attribution(lines, at):
            below = next((one for one in range(at + length, len(lines)) if lines[one].strip()), len(lines))
            # Everything below is quoted, or nothing below is marked as quoted, as in text from HTML.
            if below >= quoted or below > last:
                return at
    return quoted


def _quoted_from(lines: Sequence[str]) -> int:
    """The index where the quoted and blank lines at the end begin."""
    at = len(lines)
    while at and (not lines[at - 1].strip() or lines[at - 1].startswith(">")):
        at -= 1
    return at


def _is_original(lines: Sequence[str], at: int) -> bool:
    line = lines[at].strip()
    if _ORIGINAL.fullmatch(line):
        return True
    if not _FIELDS[0].match(line):
        return False
    below = iter([one.strip() for one in lines[at + 1 : at + _HEAD_LINES]])
    return all(any(field.match(one) for one in below) for field in _FIELDS[1:])


def _attribution(lines: Sequence[str], at: int) -> int:
    """How many lines from `at` on say who wrote the quotation below them; 0: none."""
    begins = lines[at][:_MAX_ATTRIBUTION].strip().lower()
    ends = [end for start, end in _ATTRIBUTIONS if begins.startswith(start)]
    if not ends:
        return 0
    for length in range(1, _ATTRIBUTION_LINES + 1):
        said = " ".join(lines[at : at + length])[:_MAX_ATTRIBUTION].strip().lower()
        if said.endswith(":") and any(end in said for end in ends) and any(map(str.isdigit, said)):
            return length
    return 0
