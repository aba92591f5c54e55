"""The one JSON object that a model's answer consists of: exactly what it says, never what it might have meant.

Called by `core/planning/ladder.py` for plans; `llm/json_form.py` uses `after_thinking`, and whoever asks with a schema
`refuses_schema`. In: the text of an answer;
out: the object with the rung of the ladder on which it was found, or why there is none. Next: `mending.py`.

The object may only be preceded by thinking and surrounded by fences and blanks. In a text with anything else, it may
be an example, a quotation, or what the model would *not* do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from json import JSONDecoder
from typing import Final, Literal, NoReturn

from msgspec import Struct

from switchboard.core.text.lenient import clean
from switchboard.core.text.mending import NotJsonError, parse_mended
from switchboard.domain.json_values import JsonMapping, JsonObject

Rung = Literal["exact", "stripped", "repaired"]

MOST: Final = 100_000
"""Maximum characters of an answer that is read."""
_GRAMMAR: Final = re.compile(r"status (?:400|422|500)\b.*(?:schema|grammar|response_format)", re.IGNORECASE | re.DOTALL)
_TAG: Final = re.compile(r"<(/?)(?:think|thinking|thought)>", re.IGNORECASE)
_FENCE: Final = re.compile(r"\A```[\w+-]*[ \t]*\r?\n")
_FENCE_END: Final = re.compile(r"\r?\n?[ \t]*```\Z")


class FoundObject(Struct, frozen=True):
    """The object. `rung`: as it is, without thinking and fences, or with its punctuation mended."""

    value: JsonMapping
    rung: Rung


class NoObject(Struct, frozen=True):
    """Why an answer is not an object, in a sentence for the model."""

    why: str


def refuses_schema(message: str) -> bool:
    """Whether a failure with this message is that of a server which does not take the schema of an answer."""
    return _GRAMMAR.match(message) is not None


def after_thinking(text: str) -> str | None:
    """The text after the last end of thinking; None if thinking began and did not end."""
    marks = list(_TAG.finditer(text))
    if not marks:
        return text
    return text[marks[-1].end() :] if marks[-1].group(1) else None


def read_object(text: str, list_of: str = "") -> FoundObject | NoObject:
    """The object that an answer consists of. Never raises; no bracket and no string is ever closed for the model.

    With `list_of`, a list is taken as well, as an object that has it under this name.
    """
    if len(text) > MOST:
        return NoObject(f"the answer has {len(text)} characters; one JSON object of at most {MOST} is expected")
    said = after_thinking(text)
    if said is None:
        return NoObject("the thinking was not ended; end it, then write one JSON object")
    inner = _without_fences(said.strip())
    if not inner.startswith(("{", "[") if list_of else "{"):
        return NoObject("the answer must be one JSON object and nothing else")
    try:
        value, rung, why = _climb_ladder(text.strip(), inner)
    except RecursionError:
        return NoObject("the JSON is nested too deeply")
    found = {list_of: value} if list_of and isinstance(value, list) else value
    return (
        FoundObject(found, rung) if isinstance(found, dict) else NoObject(f"the answer is not one JSON object: {why}")
    )


def _climb_ladder(whole: str, inner: str) -> tuple[object, Rung, str]:
    """The first object or list on the ladder and its rung; None and why, if there is none. Raises RecursionError."""
    tries: tuple[tuple[Rung, str, Callable[[str], object]], ...] = (
        ("exact", whole, _STRICT.decode),
        ("stripped", inner, _STRICT.decode),
        ("repaired", inner, parse_mended),
    )
    why = ""
    for rung, candidate, read in tries:
        try:
            value = clean(read(candidate))
        except NotJsonError as error:
            why = str(error)
        except ValueError:
            continue
        else:
            if isinstance(value, dict | list):
                return value, rung, ""
    return None, "repaired", why


def _without_fences(text: str) -> str:
    begin = _FENCE.match(text)
    return text if begin is None else _FENCE_END.sub("", text[begin.end() :]).strip()


def _pairs(pairs: Iterable[tuple[str, object]]) -> JsonObject:
    found: JsonObject = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(name)
        found[name] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


_STRICT: Final = JSONDecoder(object_pairs_hook=_pairs, parse_constant=_no_constant)
