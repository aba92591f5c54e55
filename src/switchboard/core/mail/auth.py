"""Whether a mail is really from the domain it claims, according to an Authentication-Results header (RFC 8601).

Called by `core/channels/email.py` with the topmost such header. In: the header, the servers that the account trusts,
and the sender's domain; out: `pass`, `fail` or `none`, or nothing if the header is not by a trusted server: anyone can
write one. Even a genuine header has parts written by a stranger (quoted local parts, comments); they are removed before
anything is read, and a pass counts only for the claimed domain.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final, Literal

from msgspec import Struct

MailAuth = Literal["pass", "fail", "none"]

MAX_HEADER: Final = 10_000
"""Maximum characters of a header that is read; a longer one is ignored."""

_EQUALS = re.compile(r"\s*=\s*")
_PLAIN = re.compile(r'"(?:[^"\\]|\\.)*"|[()]|[^"()]+', re.DOTALL)
"""What may come next outside comments: a whole quoted string, a parenthesis, or other text."""
_COMMENTED = re.compile(r"\\.|[()]|[^\\()]+", re.DOTALL)
"""The same inside comments, where quotes mean nothing."""
_DEPTH: Final = {"(": 1, ")": -1}
_FAILED: Final = frozenset({"fail", "softfail", "hardfail"})
_DOMAIN_OF: Final = {"dmarc": ("header.from",), "dkim": ("header.d", "header.i"), "spf": ("smtp.mailfrom",)}


class _Result(Struct, frozen=True):
    """`dkim=pass header.d=example.com` as (dkim, pass, example.com)."""

    method: str
    outcome: str
    domain: str


def mail_auth(header: str, trusted: Collection[str], domain: str) -> MailAuth | None:
    """`pass` when DMARC, or an aligned DKIM signature or SPF check, vouches for `domain`; `fail` if one rejects it.

    None if the header is not by one of the `trusted` servers (`authserv-id`, lower case; empty for one without a name).
    Never raises. A malformed or oversized header counts as nobody's, and a pass for another domain does not count.
    """
    plain = _without_quoted(header) if len(header) <= MAX_HEADER else ""
    if not plain or _server(plain) not in trusted:
        return None
    results = list(_results(plain))
    if any(one.method == "dmarc" and one.outcome in _FAILED for one in results):
        return "fail"
    if any(one.outcome == "pass" and _is_domain_aligned(one, domain) for one in results):
        return "pass"
    return "fail" if any(one.outcome in _FAILED for one in results) else "none"


def server_of(header: str) -> str:
    """The name of the server that has written such a header, or says so; empty if it has none."""
    return _server(_without_quoted(header)) if len(header) <= MAX_HEADER else ""


def _server(header: str) -> str:
    """The header's `authserv-id`; empty if it begins with a result, as headers by Microsoft do."""
    words = header.partition(";")[0].lower().split()
    return words[0] if words and "=" not in "".join(words) else ""


def _results(header: str) -> Iterator[_Result]:
    for part in header.lower().split(";"):
        words = _EQUALS.sub("=", part).split()
        pairs = [(name, value) for name, equals, value in (word.partition("=") for word in words) if equals]
        if not pairs or (method := pairs[0][0].partition("/")[0]) not in _DOMAIN_OF:
            continue
        said = dict(reversed(pairs[1:]))
        named = next((said[name] for name in _DOMAIN_OF[method] if name in said), "")
        yield _Result(method, pairs[0][1], named.rpartition("@")[2])


def _is_domain_aligned(result: _Result, domain: str) -> bool:
    """The same domain, or a parent of it that is not a top-level domain."""
    same = result.domain == domain
    return bool(domain) and (same or ("." in result.domain and domain.endswith(f".{result.domain}")))


def _without_quoted(header: str) -> str:
    """The header without comments, which can be nested, and quoted strings; empty if one is not closed."""
    kept: list[str] = []
    depth = at = 0
    while at < len(header):
        token = (_COMMENTED if depth else _PLAIN).match(header, at)
        if token is None:
            return ""
        at, text = token.end(), token[0]
        if text in _DEPTH:
            depth = max(0, depth + _DEPTH[text])
            kept.append(" ")
        elif not depth and text[0] != '"':
            kept.append(text)
    return "" if depth else "".join(kept)
