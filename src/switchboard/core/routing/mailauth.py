"""Whether a mail is really from the domain it claims, as far as an Authentication-Results header (RFC 8601) says so.

Called by `core/routing/facts.py` with the topmost such header, the one that our own receiving server put on top. The
header and the sender's domain enter, `pass`, `fail` or `none` leaves. Parts of the header are a stranger's words
(quoted local parts, comments), so those are cut out before anything is read, and a pass counts only for the claimed
domain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

MailAuth = Literal["pass", "fail", "none"]

MAX_HEADER: Final = 10_000
"""Longest header in characters that is read; a longer one says nothing."""

_EQUALS = re.compile(r"\s*=\s*")
_FAILED: Final = frozenset({"fail", "softfail", "hardfail"})
_DOMAIN_OF: Final = {"dmarc": ("header.from",), "dkim": ("header.d", "header.i"), "spf": ("smtp.mailfrom",)}


@dataclass(frozen=True, slots=True)
class _Result:
    """`dkim=pass header.d=example.com` as (dkim, pass, example.com)."""

    method: str
    outcome: str
    domain: str


def mail_auth(header: str, domain: str) -> MailAuth:
    """`pass` when DMARC, or an aligned DKIM signature or SPF check, vouches for `domain`; `fail` when one refuses it.

    Never raises. A malformed or oversized header is `none`, and a pass for another domain is no pass.
    """
    results = list(_results(_without_words_of_strangers(header[:MAX_HEADER]))) if len(header) <= MAX_HEADER else []
    if any(one.method == "dmarc" and one.outcome in _FAILED for one in results):
        return "fail"
    if any(one.outcome == "pass" and _aligned(one, domain) for one in results):
        return "pass"
    return "fail" if any(one.outcome in _FAILED for one in results) else "none"


def _results(header: str) -> Iterator[_Result]:
    for part in header.lower().split(";"):
        words = _EQUALS.sub("=", part).split()
        pairs = [(name, value) for name, equals, value in (word.partition("=") for word in words) if equals]
        if not pairs or (method := pairs[0][0].partition("/")[0]) not in _DOMAIN_OF:
            continue
        said = dict(reversed(pairs[1:]))
        named = next((said[name] for name in _DOMAIN_OF[method] if name in said), "")
        yield _Result(method, pairs[0][1], named.rpartition("@")[2])


def _aligned(result: _Result, domain: str) -> bool:
    """The same domain, or a parent of it that is more than a top-level domain."""
    same = result.domain == domain
    return bool(domain) and (same or ("." in result.domain and domain.endswith(f".{result.domain}")))


def _without_words_of_strangers(header: str) -> str:
    """The header without comments, which nest, and quoted strings; nothing at all where one is left open."""
    kept: list[str] = []
    depth, quoted, escaped = 0, False, False
    for char in header:
        if escaped:
            escaped = False
        elif char == "\\" and (quoted or depth):
            escaped = True
        elif char == '"' and not depth:
            quoted = not quoted
        elif quoted:
            continue
        elif char in "()":
            depth = max(0, depth + (1 if char == "(" else -1))
            kept.append(" ")
        elif not depth:
            kept.append(char)
    return "" if depth or quoted else "".join(kept)
