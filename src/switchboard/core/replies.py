"""Replies of models and their tool calls, in every shape that providers, programs and embedders use.

Called by `llm/`, by `core/classification/` and by `pipeline.py` for what a `dispatch_fn` returns. In: JSON; out: a
`ToolCall` or a `Reply`; nothing raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from switchboard.core.text.lenient import clean, count, items, json_value, mapping, money, plain, string, text_of_error
from switchboard.domain.llm import Reply, ToolCall, Usage

ARGUMENT_KEYS: Final = ("input", "args", "arguments", "parameters", "params")
"""Where providers, command lines and models put the arguments of a call."""
_NAME_KEYS: Final = ("name", "tool", "tool_name")
_ID_KEYS: Final = ("call_id", "id", "callID", "tool_id", "tool_call_id", "tool_use_id")
_FRAMES: Final = ("{s}__{t}", "{s}_{t}", "{s}.{t}", "{s}/{t}", "{s}:{t}", "{s}-{t}")
_PREFIXES: Final = ("", "mcp__", "mcp_", "mcp.", "mcp/", "mcp:")


def call_of(raw: Mapping[str, object]) -> ToolCall | None:
    """A call in any of the shapes in use; None if it has no name.

    The name under `name`, `tool`, `tool_name` or `function.name`; the arguments, an object or its JSON, under one of
    `ARGUMENT_KEYS`, where a text that is neither is `malformed`; the result under `result` or `output`. It succeeded
    if `ok` says so, or `status` or `success` if there is no `ok`, or if there is a result and neither `error` nor
    `is_error`.
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
        malformed=_malformed_arguments(inner),
    )


def arguments_of(raw: Mapping[str, object]) -> Mapping[str, object]:
    """The first of `ARGUMENT_KEYS` that holds an object, or the JSON of one; otherwise an empty one."""
    return next((found for key in ARGUMENT_KEYS if (found := mapping(raw.get(key)))), {})


def _malformed_arguments(raw: Mapping[str, object]) -> str:
    """Arguments as text that is not a JSON object; if missing or `null`, there are no arguments."""
    texts = (text for key in ARGUMENT_KEYS if (text := string(raw.get(key))).strip())
    text = next(texts, "") if not arguments_of(raw) else ""
    return "" if text.strip() == "null" or json_value(text) == {} else string(clean(text))


def _went_well(raw: Mapping[str, object], result: object) -> bool | None:
    if raw.get("error") or raw.get("is_error") is True or raw.get("isError") is True:
        return False
    for key in ("ok", "success"):
        if isinstance(said := raw.get(key), bool):
            return said
    if (status := string(raw.get("status"))) in {"completed", "success", "ok"}:
        return True
    return None if result is None else status == ""


def is_call_of(call: ToolCall, tool: str, server: str) -> bool:
    """Whether a call is of this server's tool: by its whole name, never by its end; a server's name must match.

    For `route_to_butler` at `switchboard` these match: `route_to_butler`, `mcp__switchboard__route_to_butler`,
    `switchboard_route_to_butler`, and the bare name with `switchboard` as its server; but not
    `mcp__other__route_to_butler` or `evil__route_to_butler`.
    """
    if call.server is not None and call.server not in {server, f"mcp__{server}", f"mcp_{server}"}:
        return False
    return call.name in names_of(tool, server)


@cache
def names_of(tool: str, server: str) -> frozenset[str]:
    """Every name under which a provider or command line shows a tool: bare, or prefixed with its server."""
    servers = {server, server.replace("-", "_"), server.replace("_", "-")}
    frames = [prefix + frame for prefix in _PREFIXES for frame in _FRAMES]
    return frozenset({tool} | {frame.format(s=name, t=tool) for frame in frames for name in servers})


def reply_of(raw: object) -> Reply:
    """The return value of a session as a reply: from a reply, an object of any kind, a list of calls, or a text.

    In an object, `text`, `output` or `result` is the text and `tool_calls` or `calls` are the calls; also `usage`
    {input_tokens, output_tokens, cost_usd}, `model`, `errors` or `error`, `stop_reason` or `ended`. Never raises.
    """
    if isinstance(raw, Reply):
        return raw
    try:
        value = clean(plain(raw))
    except RecursionError:
        return Reply(errors=("the session's result is nested too deep",))
    if isinstance(value, list):
        value = {"tool_calls": value}
    if not isinstance(value, Mapping):
        return Reply(text=string(value), stop_reason="end")
    return _of_object(value)


def _of_object(value: Mapping[str, object]) -> Reply:
    found = (call_of(call) for call in items(value.get("tool_calls") or value.get("calls")))
    usage = mapping(value.get("usage"))
    return Reply(
        text=next((text for key in ("text", "output", "result") if (text := string(value.get(key)))), ""),
        calls=tuple(call for call in found if call is not None),
        usage=Usage(count(usage.get("input_tokens")), count(usage.get("output_tokens")), money(usage.get("cost_usd"))),
        model=string(value.get("model")) or None,
        errors=_errors(value),
        stop_reason=string(value.get("stop_reason")) or string(value.get("ended")) or None,
    )


def _errors(value: Mapping[str, object]) -> tuple[str, ...]:
    errors, error = value.get("errors"), text_of_error(value.get("error"))
    return (*map(text_of_error, errors if isinstance(errors, list) else ()), *filter(None, [error]))
