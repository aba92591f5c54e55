"""Interprets a session's reply: the chosen butlers, which of them accepted, and what is wrong with the answer.

Called by `journey/ask.py` with the reply of a session and its candidates; returns a `Classification`. `reconcile` then
compares it with what our own server recorded, which is the truth.

A reply is only a claim. A call is one of ours only under a name that our server's tool can have; it counts only with a
good result of its own; its butler must be a candidate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from msgspec import structs

from switchboard.core.classification.prompt import ROUTE_TOOL
from switchboard.core.replies import arguments_of, is_call_of
from switchboard.core.text.lenient import block_text, mapping, string, text_of_error
from switchboard.domain.classification import Candidate, Classification, FailedCall, RecordedCall, RoutedPart
from switchboard.domain.llm import Reply, ToolCall

SERVER: Final = "switchboard"
_GOOD: Final = frozenset({"ok", "accepted"})
_SEGMENT_KEYS: Final = ("segment", "prompt")
_DOUBT: Final = frozenset({"", "?"})
MAX_ANSWER: Final = 20_000
"""Maximum length of a text from which a choice is inferred: a model that has decided says so in a sentence."""
_MISNAMED: Final = frozenset({"unknown", "ambiguous", "no_butler"})


def is_ours(call: ToolCall) -> bool:
    """Whether a call is a call of our server's tool."""
    return is_call_of(call, ROUTE_TOOL, SERVER)


def unfit(reply: Reply, candidates: Sequence[Candidate]) -> str | None:
    """What is wrong with a reply; None if it routes the message. Pending calls count as carried out."""
    return parse_calls(accept_pending_calls(reply), candidates).error


def accept_pending_calls(reply: Reply) -> Reply:
    """The reply as if every pending call had been accepted."""
    calls = [
        structs.replace(call, ok=True, result={"status": "accepted"}) if call.ok is None and is_ours(call) else call
        for call in reply.calls
    ]
    return replace(reply, calls=tuple(calls))


def resolve(name: str, candidates: Sequence[Candidate]) -> str | FailedCall:
    """The candidate that a model meant by `name`, or why there is none.

    The first match of these decides: the exact name; the same in any case and without surrounding blanks and quotes;
    the short name (`health` for `System1/health` and vice versa, but never `east/health` for `west/health`). Equally
    good matches are ambiguous: a guess could send a message to the wrong one.
    """
    names = [candidate.name for candidate in candidates]
    if name in names:
        return name
    meant = name.strip(" \t\n\"'`*").casefold()
    for fits in (_is_same_name, _same_short):
        fitting = [one for one in names if fits(one.casefold(), meant)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting and meant:
            return FailedCall(name[:200], "ambiguous", f"{name[:200]!r} may be {' or '.join(sorted(fitting))}")
    known = ", ".join(sorted(names)) or "nobody"
    return FailedCall(name[:200], "unknown", f"there is no candidate {name[:200]!r}; there are: {known}")


def _is_same_name(name: str, meant: str) -> bool:
    return name == meant


def _same_short(name: str, meant: str) -> bool:
    """Whether one of the names is the part of the other after its last slash."""
    return "/" not in (name if "/" in meant else meant) and name.rpartition("/")[2] == meant.rpartition("/")[2]


def parse_calls(reply: Reply, candidates: Sequence[Candidate]) -> Classification:
    """What a session claims to have decided. Never raises.

    Several calls are several butlers, each with its segment. A butler called twice counts once: it is acked if one of
    the calls was, and gets the whole message if their segments differ. A wrong name is forgiven when a later call for
    the same segment, or for the whole message, is acked: the model corrected itself, and nothing is lost. Without any
    call of our tool, the text may name exactly one candidate.
    """
    calls = [call for call in reply.calls if is_ours(call)]
    if not calls:
        return _infer_from_text(reply, candidates)
    parts: dict[str, RoutedPart] = {}
    acked: list[str] = []
    failed: list[FailedCall] = []
    for call in calls:
        part, failure = _judge_call(call, candidates)
        if part is not None:
            parts[part.butler] = _merge_part(parts.get(part.butler), part)
        if failure is not None:
            failed.append(failure)
        elif part is not None:
            acked.append(part.butler)
            failed = _not_put_right(failed, {part.segment})
    return _make_classification(parts.values(), acked, failed, _no_call(reply))


def _not_put_right(failed: Iterable[FailedCall], taken: Set[str | None]) -> list[FailedCall]:
    """The failures, without wrong names whose segment was accepted later."""
    return [one for one in failed if one.kind not in _MISNAMED or not taken & {None, one.segment}]


def _judge_call(call: ToolCall, candidates: Sequence[Candidate]) -> tuple[RoutedPart | None, FailedCall | None]:
    arguments = _arguments_of(call)
    named = arguments.get("butler")
    segment = next((text for key in _SEGMENT_KEYS if (text := string(arguments.get(key)).strip())), None)
    if not isinstance(named, str) or not named.strip():
        return None, FailedCall("", "no_butler", "a call names no butler", segment)
    found = resolve(named, candidates)
    if isinstance(found, FailedCall):
        return None, structs.replace(found, segment=segment)
    return RoutedPart(found, segment, string(arguments.get("reason"))[:500]), _failure_of(call, found)


def _arguments_of(call: ToolCall) -> Mapping[str, object]:
    """The arguments; small models wrap them again, in `arguments`, `parameters` and the like."""
    return call.arguments if "butler" in call.arguments else arguments_of(call.arguments)


def _failure_of(call: ToolCall, butler: str) -> FailedCall | None:
    if call.ok is None:
        return FailedCall(butler, "no_result", "the call has no result")
    status = _status_in(call.result)
    if call.ok and status in _GOOD:
        return None
    # A message instead of a status comes from the tool, or from the program that refused the call.
    said = f"status {status}" if status else text_of_error(call.result) or block_text(call.result)
    return FailedCall(butler, "not_ok", said[:500] or "the result has no status")


def _status_in(result: object) -> str:
    """The `status` in a result: an object, its JSON, or content blocks whose text is that JSON."""
    found = mapping(result) or mapping(block_text(result))
    inner = found.get("structuredContent", found.get("structured_content", found.get("result")))
    content = mapping(block_text(found.get("content")))
    return string(found.get("status")) or string(mapping(inner).get("status")) or string(content.get("status"))


def _merge_part(before: RoutedPart | None, part: RoutedPart) -> RoutedPart:
    if before is None or before.segment == part.segment:
        return before or part
    # The whole message contains both segments; one alone would lose the other.
    return RoutedPart(part.butler, None, before.reason or part.reason)


def _no_call(reply: Reply) -> str:
    how = f"ended ({reply.stop_reason}) without a call of {ROUTE_TOOL}" if reply.stop_reason else "broke off"
    # The last error ended the session; earlier ones may be mere warnings.
    return f"the session {how}" + (f": {reply.errors[-1]}" if reply.errors else "")


def _make_classification(
    parts: Iterable[RoutedPart], acked: Iterable[str], failed: Iterable[FailedCall], nothing: str
) -> Classification:
    """A classification from its parts: each name once, failures only of names that were not acked, an error if due."""
    taken = tuple(dict.fromkeys(acked))
    left = tuple(dict.fromkeys(one for one in failed if one.butler not in taken))
    named = tuple(part for part in parts if part.butler in taken or any(part.butler == f.butler for f in left))
    return Classification(named, taken, left, _error_text(taken, left, nothing))


def _error_text(acked: tuple[str, ...], failed: tuple[FailedCall, ...], nothing: str) -> str | None:
    misnamed = next((one for one in failed if one.kind in _MISNAMED), None)
    if misnamed is not None:
        return misnamed.why
    if acked:
        return None
    return f"{failed[0].butler}: {failed[0].why}" if failed else nothing


def infer(text: str, candidates: Sequence[Candidate]) -> str | None:
    """The only candidate that a text says the message was routed to; None in case of doubt.

    It must say so in words ("Routed to health", "forwarding this to the finance butler"), not deny it, and name no
    other candidate anywhere.
    """
    forms = _forms_of_names(candidates)
    if not forms or len(text) > MAX_ANSWER:
        return None
    longest_first = sorted(forms, key=len, reverse=True)
    whole = rf"(?<![\w/-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w/-])"
    mentioned = {name for found in re.findall(whole, text, re.IGNORECASE) for name in forms.get(found.lower(), _DOUBT)}
    said = re.search(_HANDED_ON + whole, text, re.IGNORECASE)
    if len(mentioned) != 1 or said is None or _DENIED.search(_sentence_at(text, said.start())):
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


def _sentence_at(text: str, at: int) -> str:
    """The sentence at position `at`."""
    begin = max(text.rfind(sign, 0, at) for sign in ".!?\n") + 1
    ends = [found for sign in ".!?\n" if (found := text.find(sign, at)) >= 0]
    return text[begin : min(ends, default=len(text))]


def _forms_of_names(candidates: Sequence[Candidate]) -> dict[str, frozenset[str]]:
    """Each way to name a candidate, in lower case -> the names it may mean; several are ambiguous."""
    owners: dict[str, frozenset[str]] = {}
    for name in (candidate.name for candidate in candidates):
        for form in {name.lower(), name.rpartition("/")[2].lower()} - {""}:
            owners[form] = owners.get(form, frozenset()) | {name}
    return owners


def _infer_from_text(reply: Reply, candidates: Sequence[Candidate]) -> Classification:
    name = infer(reply.text, candidates)
    if name is None:
        return Classification(error=_no_call(reply))
    return Classification(routed=(RoutedPart(name, reason="inferred from the text"),), inferred=True)


def reconcile(found: Classification, recorded: Sequence[RecordedCall]) -> Classification:
    """The classification according to our server's record of the session, which overrules what the reply claims.

    A call that the server accepted is acked, with the segment it was given, whether or not the reply shows it; one that
    the reply reports as acked but the server never saw is a failure (`not_recorded`). Refused calls, and names that are
    not a candidate's, stay as read: the server need not have recorded them. An inferred result, which claims no call,
    stands unless the server accepted one. Only for sessions whose calls went to our server: a call that was forced from
    a provider's API and never sent to a server has no record, and would count as made up here.
    """
    taken = [one for one in recorded if one.ok]
    if found.inferred and not taken:
        return found
    # A call that the server accepted and the reply does not show came after the cut, and may correct a name.
    failed = _not_put_right(
        _find_failures(found, recorded), {one.segment for one in taken if one.butler not in found.acked}
    )
    acked = [one.butler for one in taken]
    return _make_classification(_parts_of(found, recorded), acked, failed, found.error or "the server recorded no call")


def _find_failures(found: Classification, recorded: Sequence[RecordedCall]) -> Iterator[FailedCall]:
    """The failures: refused by the server, reported only by the reply, or invented by it."""
    seen = {one.butler for one in recorded}
    yield from (FailedCall(one.butler, "not_ok", one.why or "refused") for one in recorded if not one.ok)
    yield from (one for one in found.failed if one.butler not in seen)
    why = "the reply claims a call that the server has no record of"
    yield from (FailedCall(name, "not_recorded", why) for name in found.acked if name not in seen)


def _parts_of(found: Classification, recorded: Sequence[RecordedCall]) -> Iterable[RoutedPart]:
    claimed = {part.butler: part for part in found.routed}
    parts: dict[str, RoutedPart] = {}
    # For a butler that was refused first and accepted later, the accepted segment counts.
    for one in sorted(recorded, key=lambda record: not record.ok):
        reason = claimed[one.butler].reason if one.butler in claimed else ""
        if one.ok or one.butler not in parts:
            parts[one.butler] = _merge_part(parts.get(one.butler), RoutedPart(one.butler, one.segment, reason))
    return {**parts, **{name: part for name, part in claimed.items() if name not in parts}}.values()
