"""Tests of rules: messages, and who is expected to get them.

Called by `app/rules/replays.py` for `switchboard rules test`, and before an import that includes tests. In: decoded
JSON or YAML; out: cases, and with an index the result of each.

    cases:
      - {name: Ann's private chat, facts: {channel: telegram, telegram_chat_id: "5"}, expect: System1/interviewer}
      - {facts: {channel: email, email_domain: example.org}, expect: [System1/clerk, System1/archive]}
      - {facts: {channel: cli}, expect: {dead_letters: [{team: root, category: no_route}]}}
      - {envelope: {schema_version: ingest.v1, …}, pinned: System1/memo, expect: {butlers: [System1/memo]}}

Expectations are complete: a butler that is not named must not get the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, get_args

from msgspec import Struct

from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.core.envelope.read import parse_envelope
from switchboard.core.routing.backtest import DeadEnd, Receivers, receivers
from switchboard.core.routing.check import check_facts
from switchboard.core.routing.decide import simulate
from switchboard.core.routing.draft import DocumentReader
from switchboard.core.routing.facts import facts, with_derived
from switchboard.core.routing.index import RoutingIndex
from switchboard.core.text.words import near, or_list
from switchboard.domain.errors import InvalidInput
from switchboard.domain.routing import DeadLetterCategory, SystemId, TeamId, TrailStep

_KEYS: Final = ("name", "facts", "envelope", "pinned", "expect")
_CATEGORIES: Final[Mapping[str, DeadLetterCategory]] = {name: name for name in get_args(DeadLetterCategory)}
_READER: Final = DocumentReader("invalid_route_tests", "the file of route tests")


class RouteCase(Struct, frozen=True):
    """A message as rules see it, and who should get it. `pinned` is the butler that it replies to, if any."""

    name: str
    facts: Mapping[str, str]
    expected: Receivers
    pinned: SystemId | None = None


class RouteTestOutcome(Struct, frozen=True):
    """The result of a case, with its trail."""

    case: RouteCase
    passed: bool
    expected: Receivers
    got: Receivers
    trail: tuple[TrailStep, ...]


def parse_cases(document: object, now: datetime, channels: Channels = CHANNELS) -> list[RouteCase]:
    """The cases of `{"cases": [...]}`; `now` is for the check of an envelope's time.

    Raises InvalidInput (code `invalid_route_tests`) at the first invalid value, with its path in `field`, such as
    `cases[0].pined`; for facts that no message can have the code is that of `check_facts`.
    """
    file = _READER.fields(document, "", ("cases",))
    cases = _READER.items(_READER.require_value(file, "cases", ""), "cases")
    return [_case(one, f"cases[{at}]", now, channels) for at, one in enumerate(cases)]


def run_cases(index: RoutingIndex, cases: Iterable[RouteCase]) -> list[RouteTestOutcome]:
    """Each case decided by these rules, in the order of `cases`."""
    return [_run(index, case) for case in cases]


def _run(index: RoutingIndex, case: RouteCase) -> RouteTestOutcome:
    decision = simulate(index, case.facts, case.pinned)
    got = receivers(decision)
    return RouteTestOutcome(case, got == case.expected, case.expected, got, decision.trail)


def _case(value: object, path: str, now: datetime, channels: Channels) -> RouteCase:
    case = _READER.fields(value, path, _KEYS)
    if ("facts" in case) == ("envelope" in case):
        raise _READER.refuse(path, "must have either facts or an envelope")
    if "facts" in case:
        found = _facts(case["facts"], f"{path}.facts", channels)
    else:
        found = _of_envelope(case["envelope"], f"{path}.envelope", now, channels)
    return RouteCase(
        name=_READER.text(case.get("name", path), f"{path}.name"),
        facts=found,
        expected=_parse_receivers(_READER.require_value(case, "expect", path), f"{path}.expect"),
        pinned=None if case.get("pinned") is None else _system(case["pinned"], f"{path}.pinned"),
    )


def _facts(value: object, path: str, channels: Channels) -> dict[str, str]:
    """Facts that a message can really have: an impossible one would test nothing."""
    given = _READER.facts(value, path)
    for problem in check_facts(given, channels):
        field = f"{path}.{problem.field}"
        raise InvalidInput(f"{field}: {problem.message}", code=problem.code, field=field)
    return with_derived(given, channels[given["channel"]])


def _of_envelope(value: object, path: str, now: datetime, channels: Channels) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _READER.refuse(path, "must be an envelope: an object of the form ingest.v1")
    try:
        envelope = parse_envelope(value, now=now)
        return facts(envelope, channels[envelope.source.channel], channels.schedule_at(envelope.event.observed_at))
    except InvalidInput as error:
        field = path if error.field is None else f"{path}.{error.field}"
        hint = "; YAML converts what looks like a time, so put it in quotes" if error.code == "invalid_json" else ""
        raise InvalidInput(f"{path}: {error.message}{hint}", code=_READER.code, field=field) from None


def _parse_receivers(value: object, path: str) -> Receivers:
    """`System1/x`, a list of them, or `{butlers: [...], dead_letters: [...], models: [...]}`."""
    if isinstance(value, str):
        return Receivers.of([_system(value, path)])
    if isinstance(value, list):
        expected = Receivers.of(_systems(value, path))
    elif not isinstance(value, Mapping):
        raise _READER.refuse(
            path, "must be System1/NAME, a list of those, or {butlers: […], dead_letters: […], models: […]}"
        )
    else:
        given = _READER.fields(value, path, ("butlers", "dead_letters", "models"))
        butlers = _systems(given.get("butlers", []), f"{path}.butlers")
        dead_letters = enumerate(_READER.items(given.get("dead_letters", []), f"{path}.dead_letters"))
        models = enumerate(_READER.items(given.get("models", []), f"{path}.models"))
        expected = Receivers.of(
            butlers,
            (_dead_end(one, f"{path}.dead_letters[{at}]") for at, one in dead_letters),
            (TeamId(_READER.text(one, f"{path}.models[{at}]")) for at, one in models),
        )
    if expected == Receivers():
        raise _READER.refuse(path, "must name a recipient; an undeliverable message is a dead letter of a team")
    return expected


def _systems(value: object, path: str) -> list[SystemId]:
    return [_system(one, f"{path}[{at}]") for at, one in enumerate(_READER.items(value, path))]


def _system(value: object, path: str) -> SystemId:
    name = _READER.text(value, path)
    if not name.startswith("System1/"):
        raise _READER.refuse(path, f"must be a butler such as System1/NAME, not {name!r}")
    return SystemId(name)


def _dead_end(value: object, path: str) -> DeadEnd:
    dead_letter = _READER.fields(value, path, ("team", "category"))
    team = TeamId(_READER.text(_READER.require_value(dead_letter, "team", path), f"{path}.team"))
    word = _READER.text(_READER.require_value(dead_letter, "category", path), f"{path}.category")
    category = _CATEGORIES.get(word)
    if category is None:
        meant = near(word, _CATEGORIES) or tuple(_CATEGORIES)
        raise _READER.refuse(f"{path}.category", f"{word!r} is unknown; did you mean {or_list(meant)}?")
    return DeadEnd(team, category)
