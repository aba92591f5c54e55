"""Whether people's words mention a password, a key or a number that is nobody else's business. Pure.

Asked wherever words would be kept or sent: by `core/memory/extraction.py`, by what remembers, and by
`core/memory/leaving.py`. In: a text; out: yes or no.
"""

from __future__ import annotations

import re
from typing import Final

_SECRET: Final = re.compile(
    r"\b(pass ?words?|pass(code|phrase)|passwor[dt]|kennwort|secret|geheimnis|api[ _-]?keys?|access[ _-]?tokens?"
    r"|bearer|credentials?|private key|pins?|pin code|cvv|cvc|ssn|iban|tan|otp|recovery code|seed phrase|2fa"
    r"|(door|gate|alarm|safe|wi-?fi|wlan|access|security|verification) ?(codes?|keys?|combination)"
    r"|(zugangs|tür|sicherheits|bestätigungs)(code|schlüssel))\b"
    r"|\b(sk|pk|rk|ghp|gho|github_pat|glpat|npm|hf|xox[abp]|sb)[-_][\w-]{8,}|\bAKIA[0-9A-Z]{12,}|\bAIza[\w-]{20,}"
    r"|\beyJ[\w-]{10,}|-----BEGIN|\b[0-9a-f]{24,}\b"
    r"|\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,}|\b(?:\d[ -]?){13,19}\b",
    re.IGNORECASE,
)
_LONG_PIECE: Final = re.compile(r"[\w+/=!@#$%^&*-]{12,}")
_IN_RANDOM: Final = tuple(map(re.compile, (r"\d", "[a-z]", "[A-Z]")))


def has_secret(text: str) -> bool:
    """Whether a text mentions a password, a key or a number that is nobody else's business, or looks like one."""
    return _SECRET.search(text) is not None or any(map(_looks_random, text.split()))


def _looks_random(word: str) -> bool:
    """Whether a word looks like a generated password or key."""
    piece = _LONG_PIECE.search(word)
    return piece is not None and all(one.search(word, piece.start()) for one in _IN_RANDOM)
