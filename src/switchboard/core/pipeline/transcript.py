"""What one model session gave back, in one shape for every provider and CLI.

Made by `core/pipeline/clis.py` from the output of a CLI, and by `transcript_of` from what a `dispatch_fn` returns.
Next: `core/pipeline/verdict.py`, which alone judges whether a call counts.

All of it was written by a model or by a program that broke off: whatever stands there, nothing here raises. Strings
come out without NUL and lone surrogates, which no database takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

ARGUMENT_KEYS: Final = ("input", "args", "arguments", "parameters", "params")
"""Under which providers, CLIs and models put the arguments of a call."""
_NAME_KEYS: Final = ("name", "tool", "tool_name")
_ID_KEYS: Final = ("id", "call_id", "callID", "tool_id", "tool_call_id", "tool_use_id")
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as the model made it, and what came back.

    `ok` is True or False by the result alone, None where no result was seen; `result` is any JSON value. `server` is
    the MCP server's name where the source tells it apart from the tool's.
    """

    name: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    result: object = None
    ok: bool | None = None
    id: str | None = None
    server: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counted them, summed over the session; `cost_usd` None where nobody told it."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None


NO_USAGE: Final = Usage()


@dataclass(frozen=True, slots=True)
class Transcript:
    """A whole session. `ended` is the reason its source gave for the end; None: the end was never seen."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = NO_USAGE
    model: str | None = None
    errors: tuple[str, ...] = ()
    ended: str | None = None


def clean(value: object) -> object:
    """A JSON value with every string in it fit to be stored. Raises RecursionError for thousands of levels."""
    if isinstance(value, str):
        return _UNSTORABLE.sub(lambda match: "" if match.group() == "\x00" else "\ufffd", value)
    if isinstance(value, Mapping):
        return {str(clean(str(key))): clean(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [clean(inner) for inner in value]
    return value


def json_value(text: str) -> object:
    """The cleaned value that `text` is the JSON of; None where it is not JSON, or nested too deep to be honest."""
    try:
        return clean(json.loads(text))
    except (ValueError, RecursionError):
        return None


def mapping(value: object) -> Mapping[str, object]:
    """`value` if it is an object, or the object that it is the JSON of; else an empty one."""
    if isinstance(value, str):
        value = json_value(value)
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> Iterable[Mapping[str, object]]:
    """The objects of a list; anything else in it, and anything that is not a list, is passed over."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list | tuple) else []


def string(value: object) -> str:
    """`value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    """`value` if it is a number of something, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def money(value: object) -> float | None:
    """`value` if it is a sum of money, else None."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
    return float(value) if isinstance(value, int | float) and good else None


def told(value: object) -> str:
    """What an error says: its own text, the `message` within it, or its JSON; at most 500 characters."""
    if isinstance(value, Mapping):
        inner = value.get("message") or mapping(value.get("data")).get("message")
        value = inner if isinstance(inner, str) else json.dumps(value, ensure_ascii=False, default=str)
    return string(value)[:500]


def block_text(content: object) -> str:
    """The text of a message's content: a string, or the `text` of its blocks one after the other."""
    return string(content) or "".join(string(block.get("text")) for block in items(content))


def call_of(raw: Mapping[str, object]) -> ToolCall | None:
    """A call in any of the shapes in use; None where it has no name.

    The name under `name`, `tool`, `tool_name` or `function.name`; the arguments, an object or its JSON, under one of
    `ARGUMENT_KEYS`; the result under `result` or `output`. It went well if `ok` says so, or `status` or `success`
    where there is no `ok`, or where there is a result and neither `error` nor `is_error`.
    """
    inner = {**mapping(raw.get("function")), **raw}
    name = next((found for key in _NAME_KEYS if (found := string(inner.get(key)))), "")
    if not name:
        return None
    result = inner.get("result", inner.get("output"))
    return ToolCall(
        name=name,
        arguments=arguments_of(inner),
        result=result,
        ok=_went_well(inner, result),
        id=next((found for key in _ID_KEYS if (found := string(inner.get(key)))), None),
        server=string(inner.get("server")) or None,
    )


def arguments_of(raw: Mapping[str, object]) -> Mapping[str, object]:
    """The first of `ARGUMENT_KEYS` that holds an object, or the JSON of one; an empty one where none does."""
    return next((found for key in ARGUMENT_KEYS if (found := mapping(raw.get(key)))), {})


def _went_well(raw: Mapping[str, object], result: object) -> bool | None:
    if raw.get("error") or raw.get("is_error") is True or raw.get("isError") is True:
        return False
    for key in ("ok", "success"):
        if isinstance(said := raw.get(key), bool):
            return said
    if (status := string(raw.get("status"))) in {"completed", "success", "ok"}:
        return True
    return None if result is None else status == ""


def transcript_of(raw: object) -> Transcript:
    """What a `dispatch_fn` returned, as a transcript: one already, or an object, or no more than a text.

    Of an object `text`, `output` or `result` is the text, `tool_calls` or `calls` are the calls, further `usage`
    {input_tokens, output_tokens, cost_usd}, `model`, `errors` or `error`, `ended` or `stop_reason`. Never raises.
    """
    if isinstance(raw, Transcript):
        return raw
    try:
        value = clean(raw)
    except RecursionError:
        return Transcript(errors=("the session's result is nested too deep",))
    if not isinstance(value, Mapping):
        return Transcript(text=string(value), ended="end")
    found = (call_of(call) for call in items(value.get("tool_calls") or value.get("calls")))
    error = told(value.get("error"))
    errors = value.get("errors")
    return Transcript(
        text=next((text for key in ("text", "output", "result") if (text := string(value.get(key)))), ""),
        calls=tuple(call for call in found if call is not None),
        usage=_usage(mapping(value.get("usage"))),
        model=string(value.get("model")) or None,
        errors=tuple(map(told, errors if isinstance(errors, list) else [])) + ((error,) if error else ()),
        ended=string(value.get("ended")) or string(value.get("stop_reason")) or None,
    )


def _usage(raw: Mapping[str, object]) -> Usage:
    return Usage(count(raw.get("input_tokens")), count(raw.get("output_tokens")), money(raw.get("cost_usd")))
