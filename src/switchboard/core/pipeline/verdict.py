"""What a session decided: to which butlers the message went, which of them took it, and what is wrong with the answer.

Called by `journey/pipeline.py` with the transcript of a session and the candidates it was asked to choose from; a
`Verdict` leaves. `reconcile` then holds it against what our own server recorded, which is the truth.

A transcript is a claim. A call is one of ours only under a name that our server's tool can have; it counts only with
its own good result; its butler is one of the candidates or nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Literal

from switchboard.core.pipeline.prompt import ROUTE_TOOL
from switchboard.core.pipeline.transcript import (
    ToolCall,
    Transcript,
    arguments_of,
    block_text,
    mapping,
    string,
    told,
)
from switchboard.domain.pipeline import Candidate

SERVER: Final = "switchboard"
_GOOD: Final = frozenset({"ok", "accepted"})
_SEGMENT_KEYS: Final = ("segment", "prompt")
_DOUBT: Final = frozenset({"", "?"})
MAX_ANSWER: Final = 20_000
"""Most characters of a text from which anything is inferred: who has decided says so in a sentence."""
_FRAMES: Final = ("{s}__{t}", "{s}_{t}", "{s}.{t}", "{s}/{t}", "{s}:{t}", "{s}-{t}")
_PREFIXES: Final = ("", "mcp__", "mcp_", "mcp.", "mcp/", "mcp:")

FailureKind = Literal["unknown", "ambiguous", "no_butler", "not_ok", "no_result", "not_recorded"]
_MISNAMED: Final = frozenset({"unknown", "ambiguous", "no_butler"})


@dataclass(frozen=True, slots=True)
class Route:
    """A butler that the session named. `segment` None: the whole message."""

    butler: str
    segment: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that came to nothing. `butler` is a candidate's name, or what the model wrote where it is none.

    `segment` is what it would have got, where the name was none of a candidate.
    """

    butler: str
    kind: FailureKind
    why: str
    segment: str | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A call as our server saw it under the session's token; `ok` when it took the message for that butler."""

    butler: str
    ok: bool
    segment: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the session decided. Names are those of candidates, each at most once in `routed` and in `acked`.

    `inferred`: there was no call, `routed` is one butler read from the text, and the message has yet to be handed on.
    `error` says why the session must be asked again: nobody took the message, or a part of it went to a name that is
    no candidate's.
    """

    routed: tuple[Route, ...] = ()
    acked: tuple[str, ...] = ()
    failed: tuple[Failure, ...] = ()
    error: str | None = None
    inferred: bool = False


@cache
def our_names(server: str = SERVER) -> frozenset[str]:
    """Every name under which a provider or CLI shows the tool of our server: bare, or with the server before it."""
    servers = {server, server.replace("-", "_"), server.replace("_", "-")}
    frames = [prefix + frame for prefix in _PREFIXES for frame in _FRAMES]
    return frozenset({ROUTE_TOOL} | {frame.format(s=name, t=ROUTE_TOOL) for frame in frames for name in servers})


def is_ours(call: ToolCall, server: str = SERVER) -> bool:
    """Whether a call is one of our server's tool: by its whole name, never by its end; a server's name must be ours.

    `route_to_butler`, `mcp__switchboard__route_to_butler`, `switchboard_route_to_butler` are ours, as is the bare name
    with the server `switchboard` beside it; `mcp__other__route_to_butler` and `evil__route_to_butler` are not.
    """
    if call.server is not None and call.server not in {server, f"mcp__{server}", f"mcp_{server}"}:
        return False
    return call.name in our_names(server)


def resolve(name: str, candidates: Sequence[Candidate]) -> str | Failure:
    """The candidate that a model meant by `name`, or why there is none.

    The first of these that fits decides: the name letter by letter; the same in any case and without blanks and quotes
    around it; the short name (`health` for `System1/health` and the other way round, but never `east/health` for
    `west/health`). Two that fit equally well are ambiguous: a guess would send a message to the wrong one.
    """
    names = [candidate.name for candidate in candidates]
    if name in names:
        return name
    meant = name.strip(" \t\n\"'`*").casefold()
    for fits in (_same, _same_short):
        fitting = [one for one in names if fits(one.casefold(), meant)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting and meant:
            return Failure(name[:200], "ambiguous", f"{name[:200]!r} may be {' or '.join(sorted(fitting))}")
    known = ", ".join(sorted(names)) or "nobody"
    return Failure(name[:200], "unknown", f"there is no candidate {name[:200]!r}; there are: {known}")


def _same(name: str, meant: str) -> bool:
    return name == meant


def _same_short(name: str, meant: str) -> bool:
    """Whether one of them is the other's part after the last slash."""
    return "/" not in (name if "/" in meant else meant) and name.rpartition("/")[2] == meant.rpartition("/")[2]


def parse_calls(transcript: Transcript, candidates: Sequence[Candidate], server: str = SERVER) -> Verdict:
    """What a session claims to have decided. Never raises.

    Several calls are several butlers, each with its segment. A butler called twice counts once: it is acked if one of
    the calls was, and gets the whole message if their segments differ. A wrong name is forgiven when a later call for
    the same segment, or for the whole message, is acked: the model was told, and did better, and nothing is lost.
    Without any call of ours, the text may name exactly one candidate.
    """
    calls = [call for call in transcript.calls if is_ours(call, server)]
    if not calls:
        return _inferred(transcript, candidates)
    routes: dict[str, Route] = {}
    acked: list[str] = []
    failed: list[Failure] = []
    for call in calls:
        route, failure = _judged(call, candidates)
        if route is not None:
            routes[route.butler] = _merged(routes.get(route.butler), route)
        if failure is not None:
            failed.append(failure)
        elif route is not None:
            acked.append(route.butler)
            failed = _not_put_right(failed, {route.segment})
    return _verdict(routes.values(), acked, failed, _no_call(transcript))


def _not_put_right(failed: Iterable[Failure], taken: Set[str | None]) -> list[Failure]:
    """The failures without the wrong names whose segment somebody has taken since."""
    return [one for one in failed if one.kind not in _MISNAMED or not taken & {None, one.segment}]


def _judged(call: ToolCall, candidates: Sequence[Candidate]) -> tuple[Route | None, Failure | None]:
    arguments = _arguments(call)
    named = arguments.get("butler")
    segment = next((text for key in _SEGMENT_KEYS if (text := string(arguments.get(key)).strip())), None)
    if not isinstance(named, str) or not named.strip():
        return None, Failure("", "no_butler", "a call names no butler", segment)
    found = resolve(named, candidates)
    if isinstance(found, Failure):
        return None, replace(found, segment=segment)
    return Route(found, segment, string(arguments.get("reason"))[:500]), _failure(call, found)


def _arguments(call: ToolCall) -> Mapping[str, object]:
    """The arguments; small models wrap them once more, into `arguments`, `parameters` and the like."""
    return call.arguments if "butler" in call.arguments else arguments_of(call.arguments)


def _failure(call: ToolCall, butler: str) -> Failure | None:
    if call.ok is None:
        return Failure(butler, "no_result", "the call has no result")
    status = _status(call.result)
    if call.ok and status in _GOOD:
        return None
    # What came back in place of a status is what the tool, or whoever refused the call, said of it.
    said = f"status {status}" if status else told(call.result) or block_text(call.result)
    return Failure(butler, "not_ok", said[:500] or "the result has no status")


def _status(result: object) -> str:
    """The `status` in a result: an object, its JSON, or content blocks whose text is that JSON."""
    found = mapping(result) or mapping(block_text(result))
    inner = found.get("structuredContent", found.get("structured_content", found.get("result")))
    content = mapping(block_text(found.get("content")))
    return string(found.get("status")) or string(mapping(inner).get("status")) or string(content.get("status"))


def _merged(before: Route | None, route: Route) -> Route:
    if before is None or before.segment == route.segment:
        return before or route
    # The whole message holds both segments; either alone would lose the other.
    return Route(route.butler, None, before.reason or route.reason)


def _no_call(transcript: Transcript) -> str:
    how = f"ended ({transcript.ended}) without a call of {ROUTE_TOOL}" if transcript.ended else "broke off"
    # The last error is what ended it; those before it may be no more than warnings.
    return f"the session {how}" + (f": {transcript.errors[-1]}" if transcript.errors else "")


def _verdict(routes: Iterable[Route], acked: Iterable[str], failed: Iterable[Failure], nothing: str) -> Verdict:
    """One verdict from its parts: each name once, failures only of those who were not acked, an error where due."""
    taken = tuple(dict.fromkeys(acked))
    left = tuple(dict.fromkeys(one for one in failed if one.butler not in taken))
    named = tuple(route for route in routes if route.butler in taken or any(route.butler == f.butler for f in left))
    return Verdict(named, taken, left, _error(taken, left, nothing))


def _error(acked: tuple[str, ...], failed: tuple[Failure, ...], nothing: str) -> str | None:
    misnamed = next((one for one in failed if one.kind in _MISNAMED), None)
    if misnamed is not None:
        return misnamed.why
    if acked:
        return None
    return f"{failed[0].butler}: {failed[0].why}" if failed else nothing


def infer(text: str, candidates: Sequence[Candidate]) -> str | None:
    """The one candidate that a text says the message was routed to; None where there is any doubt.

    It must say so in words ("Routed to health", "forwarding this to the finance butler"), not deny it, and name no
    other candidate anywhere.
    """
    forms = _forms(candidates)
    if not forms or len(text) > MAX_ANSWER:
        return None
    longest_first = sorted(forms, key=len, reverse=True)
    whole = rf"(?<![\w/-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w/-])"
    mentioned = {name for found in re.findall(whole, text, re.IGNORECASE) for name in forms.get(found.lower(), _DOUBT)}
    said = re.search(_HANDED_ON + whole, text, re.IGNORECASE)
    if len(mentioned) != 1 or said is None or _DENIED.search(_sentence(text, said.start())):
        return None
    return mentioned.pop()


_HANDED_ON: Final = (
    r"\b(?:rout(?:ed?|es|ing)|forward(?:ed|s|ing)?|hand(?:ed|s|ing)?(?:\s+(?:over|off|on))?|sen[dt](?:s|ing)?)"
    r"\s+(?:(?:it|this|that|(?:the|this|your)\s+(?:message|request))\s+)?to:?\s+(?:the\s+)?[\"'`*]*"
)
_DENIED: Final = re.compile(
    r"\b(?:not|never|cannot|can't|couldn't|could|didn't|don't|won't|would|unable|fail(?:ed|s)?|should|if|without|nor)\b"
    r"|n't\b|n\u2019t\b",
    re.IGNORECASE,
)


def _sentence(text: str, at: int) -> str:
    """The sentence that holds the position `at`."""
    begin = max(text.rfind(sign, 0, at) for sign in ".!?\n") + 1
    ends = [found for sign in ".!?\n" if (found := text.find(sign, at)) >= 0]
    return text[begin : min(ends, default=len(text))]


def _forms(candidates: Sequence[Candidate]) -> dict[str, frozenset[str]]:
    """Each way to name a candidate, in lower case -> the names it may mean; more than one is as good as none."""
    owners: dict[str, frozenset[str]] = {}
    for name in (candidate.name for candidate in candidates):
        for form in {name.lower(), name.rpartition("/")[2].lower()} - {""}:
            owners[form] = owners.get(form, frozenset()) | {name}
    return owners


def _inferred(transcript: Transcript, candidates: Sequence[Candidate]) -> Verdict:
    name = infer(transcript.text, candidates)
    if name is None:
        return Verdict(error=_no_call(transcript))
    return Verdict(routed=(Route(name, reason="inferred from the text"),), inferred=True)


def reconcile(verdict: Verdict, recorded: Sequence[Recorded]) -> Verdict:
    """The verdict after our server's record of the session, which wins over what the transcript claims.

    What the server took is acked, with the segment that it was given, whether or not the transcript shows it; what the
    transcript calls acked but the server never saw is a failure (`not_recorded`). Refused calls, and names that are no
    candidate's, stay as they were read: those the server need not have recorded. An inferred verdict, which claims no
    call, stands unless the server took one. Only for sessions whose calls went to our server: a call that was forced
    from a provider's API and never sent to a server has no record, and here it would count as made up.
    """
    if verdict.inferred and not any(one.ok for one in recorded):
        return verdict
    acked = [one.butler for one in recorded if one.ok]
    seen = {one.butler for one in recorded}
    failed = [Failure(one.butler, "not_ok", one.why or "refused") for one in recorded if not one.ok]
    failed += [one for one in verdict.failed if one.butler not in seen]
    why = "the transcript claims a call that the server has no record of"
    failed += [Failure(name, "not_recorded", why) for name in verdict.acked if name not in seen]
    # What the server took and the transcript does not show came after it broke off, and may have put a name right.
    failed = _not_put_right(failed, {one.segment for one in recorded if one.ok and one.butler not in verdict.acked})
    return _verdict(_routes(verdict, recorded), acked, failed, verdict.error or "the server recorded no call")


def _routes(verdict: Verdict, recorded: Sequence[Recorded]) -> Iterable[Route]:
    claimed = {route.butler: route for route in verdict.routed}
    routes: dict[str, Route] = {}
    # Of a butler that was refused first and taken later, the segment that was taken is the one that counts.
    for one in sorted(recorded, key=lambda record: not record.ok):
        reason = claimed[one.butler].reason if one.butler in claimed else ""
        if one.ok or one.butler not in routes:
            routes[one.butler] = _merged(routes.get(one.butler), Route(one.butler, one.segment, reason))
    return {**routes, **{name: route for name, route in claimed.items() if name not in routes}}.values()
