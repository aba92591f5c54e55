"""What pydantic finds wrong with a value, in our own words: what would be correct, and what was given.

Called wherever people are told about input that pydantic has checked: settings, accounts, options, arguments of
commands, requests over HTTP, MCP and the gateway, envelopes. In: one of pydantic's problems; out: what to say after the
name of the field. Next: `server/contracts/problems.py`, which turns it into an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Sized
from typing import Final

_LONGEST: Final = 60
"""Maximum characters of a given value that are repeated."""
_HUGE: Final = 10**40
_SECRET: Final = re.compile(r"token|secret|passw|key|\benv\b", re.IGNORECASE)
_NAMED: Final[Mapping[type, str]] = {dict: "an object", list: "a list", tuple: "a list"}
_OBJECT, _TIME = "must be an object", "must be a time with a zone, such as 2026-01-31T12:00:00Z"

_RIGHT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("string_type", "string_unicode", "bytes_type", "path_type"), "must be a string"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), "must be a list"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type"), _OBJECT),
    **dict.fromkeys(("uuid_type", "uuid_parsing"), "must be an id such as 01a20091-ee99-7387-8fe6-0c94e1dce1aa"),
    **dict.fromkeys(
        (
            *("datetime_type", "datetime_parsing", "datetime_object_invalid", "datetime_from_date_parsing"),
            *("timezone_aware", "timezone_offset"),
        ),
        _TIME,
    ),
    **dict.fromkeys(("literal_error", "enum"), "must be {expected}"),
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "ip_any_network": "must be an address or a network such as 10.0.0.0/8",
}
"""What the value must be; the given value follows."""
_SIZES: Final[Mapping[str, str]] = {
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
}
_FORMS: Final[Mapping[str, str]] = {
    r"^[^\x00]*$": "must not hold NUL",
    r"^[^\x00]+$": "must not hold NUL",
    r"^[^\x00-\x1f\x7f]*$": "must be one line, without control characters",
    r"^[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f])?$": (
        "must be one line, without blanks around it and without control characters"
    ),
    r"^[\x21-\x7e]+$": "must be ASCII without blanks",
    r"^https?://[^\s?#]+$": "must be a URL such as https://example.org",
    r"^wss?://[^\s?#]+$": "must be a URL such as wss://example.org",
    r"^https?://[^\s?#@]+$": "must be a URL without a user or password, such as https://example.org",
    r"^https?://[^\s/?#]+$": "must be a URL without a path, such as https://example.org",
    r"^[^\s<>@]+@[^\s<>@]+$": "must be a mail address such as desk@example.org",
    r"^[^/]+/.+$": "must be CHANNEL/ENDPOINT, such as telegram/bot:house",
    r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$": (
        "must be a name of up to 100 letters, digits and . _ @ -, with a letter or digit first"
    ),
    r"^(auto|[a-z]{2,3})$": "must be auto, or the code of a language, such as de",
    r"^(?:[A-Z]{2})?$": "must be the code of a country, such as DE, or empty",
    r"^[0-9]{5,25}$": "must be an id of 5 to 25 digits",
    r"^([a-z0-9_]{1,512}/[A-Za-z_]{2,10})?$": "must be a template and its language, such as come_back/en_US, or empty",
    r"^v[0-9]{2}\.[0-9]$": "must be a version such as v25.0",
    r"^[A-Za-z0-9-]+$": "must be the name of a header, such as X-Api-Key",
    r"^[a-z0-9_-]{1,64}$": "must be a name of up to 64 lower-case letters, digits, _ and -",
    r"^[A-Za-z0-9_-]{1,60}$": "must be a name of up to 60 letters, digits, _ and -",
    r"^[A-Za-z0-9_-]{1,64}$": "must be a name of up to 64 letters, digits, _ and -",
    r"^[a-z][a-z0-9-]{0,29}$": "must be a name of up to 30 lower-case letters, digits and -, with a letter first",
}
"""What the patterns of our fields mean, because patterns say nothing to people."""
_OF_NAMES: Final = {"missing": "is required", "extra_forbidden": "is not a known field"}


def wrong(problem: Mapping[str, object]) -> str:
    """What is wrong, for use after the name of the field: `must be a whole number, not 'x'`."""
    kind, told = str(problem["type"]), problem.get("ctx")
    context: Mapping[str, object] = told if isinstance(told, Mapping) else {}
    if kind in _SIZES:
        return _wrong_size(_SIZES[kind], context, problem.get("input"))
    if kind == "string_pattern_mismatch":
        pattern = str(context["pattern"])
        return _not(_FORMS.get(pattern, f"must match {pattern}"), problem)
    if kind in _RIGHT:
        right = _RIGHT[kind].format_map({name: _limit(value) for name, value in context.items()})
        return _not(right, problem)
    if kind in {"value_error", "assertion_error"}:
        return str(context["error"])
    message = str(problem["msg"])
    return _OF_NAMES.get(kind, message[:1].lower() + message[1:])


def path_of(place: Sequence[object]) -> str:
    """Pydantic's place of a problem as a path: `targets.0.team_id`, `headers.X-Key` for a value and for its name."""
    return ".".join(str(part) for part in place if part != "[key]")


def after(name: str | None, sentence: str) -> str:
    """A sentence about the field of this name; a complete sentence follows a colon."""
    if not name:
        return sentence
    return f"{name} {sentence}" if sentence.startswith(("must ", "is ")) else f"{name}: {sentence}"


def abbreviate_value(value: object) -> str:
    """A value in short, as in JSON and TOML."""
    if isinstance(value, str):
        return repr(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return "so large a number" if abs(value) > _HUGE else str(value)
    return _NAMED.get(type(value), "something else")


def _wrong_size(right: str, context: Mapping[str, object], given: object) -> str:
    if context.get("min_length") == 1:
        return "must not be empty"
    size = f", not {len(given)}" if isinstance(given, Sized) else ""
    return f"{right.format_map(context)}{size}"


def _limit(value: object) -> object:
    """The limit as people write it: 0 instead of 0.0, true instead of True."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return {"True": "true", "False": "false"}.get(value, value) if isinstance(value, str) else value


def _not(right: str, problem: Mapping[str, object]) -> str:
    """What would be correct, and what was given; possible secrets and invisible characters are not repeated."""
    place, given = problem["loc"], problem.get("input")
    secret = isinstance(given, str | int | float) and isinstance(place, tuple) and _SECRET.search(path_of(place))
    hidden = right.startswith("must not ") or secret
    return right if hidden or "input" not in problem else f"{right}, not {abbreviate_value(given)}"
