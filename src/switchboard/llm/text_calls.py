"""Calls of tools that a model writes as text, in the forms of chat templates or as JSON. Pure.

`speech.py` asks whether a text begins like one, `answers.py` what an answer calls. An answer is a call only if it is
nothing but calls: in prose, or behind it, JSON may be what the person wanted to see. Without the marks of a template,
only an offered tool, letter for letter, makes a text a call. Next: `answers.py`, which decides whether it is carried
out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from switchboard.core.replies import ARGUMENT_KEYS, arguments_of
from switchboard.core.text.lenient import clean, json_value, mapping, string
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.llm import OfferedTool, ToolCall

_TAGS: Final = ("tool_call", "tool_calls", "function_call", "function_calls", "tool_use")
_FUNCTION: Final = "<function="
_MISTRAL: Final = "[TOOL_CALLS]"
_OTHERS: Final = (
    "<|python_tag|>",
    "<|tool_call|>",
    "<|tool_call_start|>",
    "<|tool_calls_section_begin|>",
    "<\uff5ctool\u2581calls\u2581begin\uff5c>",
)
"""Marks of calls that are recognised, but not read."""
MARKS: Final = frozenset((*(f"<{tag}>" for tag in _TAGS), _FUNCTION, _MISTRAL, *_OTHERS))
"""The beginnings of calls in the forms of chat templates."""

_MOST: Final = 100_000
"""Characters of an answer that may be calls."""
_MOST_CALLS: Final = 20
_NAMES: Final = ("name", "tool", "tool_name", "function")
_BESIDES: Final = frozenset({"id", "type", "call_id", "tool_call_id"})
_FENCES: Final = frozenset({"", "json", "xml", "tool", "tool_call", "tool_calls", "tool_code", "function_call"})
_TEMPLATE: Final = re.compile(
    rf"</?(?:{'|'.join(_TAGS)})>|\[(?:TOOL_CALLS|ARGS|CALL_ID)\]|<[|\uff5c][^<>|\uff5c\s]{{1,60}}[|\uff5c]>"
    r"|</?(?:function|parameter)(?:=[^<>\n]{0,200})?>"
)
_OUTSIDE: Final = re.compile(rf"(```.*?(?:```|\Z)|`[^`\n]*`)|{_TEMPLATE.pattern}", re.DOTALL)
"""Code, which is kept, or a mark outside of it."""
_TAG: Final = re.compile(rf"<({'|'.join(_TAGS)})>")
_NAMED: Final = re.compile(r"<function=([^<>\s]{1,200})>")
_PARAMETER: Final = re.compile(r"\s*<parameter=([^<>\s]{1,200})>")
_TO_ARGUMENTS: Final = re.compile(r"\s*([\w.-]{1,200})\s*(?:\[CALL_ID\][\w-]{0,60})?(?:\[ARGS\])?\s*(?=\{)")
_FENCE: Final = re.compile(r"```([\w-]*)[ \t]*\r?\n")
_KEY: Final = re.compile(r'[\[\s]*\{{1,2}\s*"(\w+)"')
_BEGUN: Final = re.compile(
    rf'[\[\s]*\{{\s*"(?:{"|".join(_NAMES)})"\s*:\s*"([^"\\]{{1,200}})"\s*,\s*"(?:{"|".join(ARGUMENT_KEYS)})"\s*:'
)
_FIRST_NAME: Final = re.compile(
    rf'(?:"(?:{"|".join(_NAMES)})"\s*:\s*"|<function=|<invoke name="|\[TOOL_CALLS\]\s*'
    rf"|<(?:{'|'.join(_TAGS)})>\s*)([\w.-]{{1,200}})"
)
_WORD: Final = re.compile(r"\w[\w-]*")
_HEAD: Final = 500
"""Characters in which the name of a broken call is looked for."""
_PYTHONIC: Final = re.compile(r"\[?\s*([A-Za-z_][\w.-]{0,200})\(.*\)\s*\]?\Z", re.DOTALL)
_DECODER: Final = json.JSONDecoder(strict=False)
"""Line breaks in strings are what small models write, and mean nothing else."""


class TextCalls(Struct, frozen=True):
    """Calls in an answer.

    `calls`: all of them, if the answer is nothing else and all can be made. `prose`: what else it says; `text`: all of
    it, without what only a template understands.
    """

    calls: tuple[ToolCall, ...]
    text: str
    prose: str = ""


class _Unreadable(Exception):
    """A call that cannot be read."""


class _NoCall(Exception):
    """The text is not, or not only, a call."""


def begins_like_call(text: str, names: Sequence[str]) -> bool | None:
    """Whether a text that begins like this may be a call; None if that is not known yet."""
    head = text.lstrip()
    if head.startswith("```"):
        if (fence := _FENCE.match(head)) is None:
            return None if "\n" not in head else False
        return fence[1] in _FENCES and begins_like_call(head[fence.end() :], names)
    if any(head.startswith(mark) for mark in MARKS):
        return True
    if head[:1] in ("{", "[") and (found := _KEY.match(head)) is not None:
        return found[1] in {*_NAMES, *_BESIDES, *ARGUMENT_KEYS, "tool_calls"}
    called = head.removeprefix("[").lstrip()
    if any(called.startswith(f"{name}(") for name in names):
        return True
    beginnings = (*MARKS, "```", *(f"{name}(" for name in names))
    open_json = re.fullmatch(r'[\[\s]*\{{0,2}\s*(?:"\w*)?', head) is not None
    return None if open_json or any(one.startswith((called, head)) for one in beginnings) else False


def read_calls(text: str, tools: Sequence[OfferedTool], calls_at: int = -1) -> TextCalls | None:
    """The calls of which an answer consists; None if it does not, or is no call.

    `calls_at`: where the first mark of a call outside of code is; -1: nowhere. Prose around calls with such marks is
    permitted, as models explain what they do, but then the calls are not to be made. A mark without a call, or a call
    of nothing that was offered, in prose, is what the prose is about.
    """
    if len(text) > _MOST:
        return None
    offered = {tool.name: tool for tool in tools}
    before, written = text[: max(calls_at, 0)].strip(), text[max(calls_at, 0) :].strip()
    found, end = _read(written, offered, marked=calls_at >= 0)
    if end < 0:
        return None
    behind = written[end:].strip()
    prose = "\n\n".join(filter(None, (before, behind)))
    if calls_at < 0:
        return TextCalls(_calls(found, offered), written)
    if not (offered and found and not prose) and not _all_offered(found or _guess_calls(written, offered), offered):
        return None
    bare = _TEMPLATE.sub("", written[:end]).strip()
    kept = _OUTSIDE.sub(lambda one: one[1] or "", behind)
    said = "\n\n".join(filter(None, (before, bare, kept)))
    return TextCalls(() if prose else _calls(found, offered), said, prose)


def _read(written: str, offered: Mapping[str, OfferedTool], *, marked: bool) -> tuple[Sequence[JsonMapping], int]:
    """The calls with which a text begins, none if they cannot be read, and where they end; -1: there are none."""
    try:
        return _beginning(written) if marked else ([*_read_unmarked_calls(written, offered)], len(written))
    except _NoCall:
        return [], -1
    except (_Unreadable, ValueError, RecursionError):
        return [], len(written)


def _all_offered(found: Sequence[JsonMapping], offered: Mapping[str, OfferedTool]) -> bool:
    return bool(found) and all(string(one["name"]) in offered for one in found)


def _guess_calls(written: str, offered: Mapping[str, OfferedTool]) -> Sequence[JsonMapping]:
    """What a call that cannot be read seems to call."""
    if written.startswith(_OTHERS):
        words = (found.group() for found in _WORD.finditer(written, 0, _HEAD))
        return [{"name": word} for word in words if word in offered][:1]
    name = _FIRST_NAME.search(written, 0, _HEAD)
    return [] if name is None else [{"name": name[1]}]


def _calls(found: Sequence[JsonMapping], offered: Mapping[str, OfferedTool]) -> tuple[ToolCall, ...]:
    """The calls, if every one can be made.

    Arguments between tags are not quoted, so that what is copied into one may look like calls: then there is one tool.
    """
    if any("written" in one for one in found) and len({string(one["name"]) for one in found}) > 1:
        return ()
    calls: list[ToolCall] = []
    for one in found:
        tool = offered.get(string(one["name"]))
        arguments = None if tool is None else _fitting(one, tool)
        if tool is None or arguments is None:
            return ()
        calls.append(ToolCall(tool.name, arguments, as_text=True))
    return tuple(calls) if len(calls) <= _MOST_CALLS else ()


def _fitting(one: JsonMapping, tool: OfferedTool) -> JsonMapping | None:
    """The arguments of a call, if they can be read; whether they fit is checked where it is carried out."""
    if "written" in one:
        arguments: JsonMapping = _parse_arguments(one["written"], tool)
    else:
        arguments = arguments_of(one)
        given = next((one[key] for key in ARGUMENT_KEYS if key in one), None)
        if not arguments and given not in ({}, None, "", "{}"):
            return None
    return arguments


def _parse_arguments(written: Mapping[str, str], tool: OfferedTool) -> JsonObject:
    """Arguments that were written as text between tags: JSON where the schema wants no text."""
    known = mapping(tool.parameters.get("properties"))
    return {
        name: text if mapping(known.get(name)).get("type") == "string" else _value(text)
        for name, text in written.items()
    }


def _value(text: str) -> object:
    value = json_value(text)
    return text if value is None and text.strip() != "null" else value


# The forms of templates -----------------------------------------------------------------------------------------------


def _read_marked_calls(text: str) -> Sequence[JsonMapping]:
    """The calls with marks of which a text consists. Raises `_NoCall` if something else follows."""
    found, end = _beginning(text)
    if end < len(text):
        raise _NoCall
    return found


def _beginning(text: str) -> tuple[Sequence[JsonMapping], int]:
    """The calls with marks with which a text begins, and where something else follows. Raises `_Unreadable`."""
    found: list[JsonMapping] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif (tag := _TAG.match(text, at)) is not None:
            inner, at = _until(text, tag.end(), f"</{tag[1]}>", tag.group())
            found.extend(_inside(inner))
        elif (named := _NAMED.match(text, at)) is not None:
            inner, at = _until(text, named.end(), "</function>", _FUNCTION)
            found.append(_function(named[1], inner))
        elif text.startswith(_MISTRAL, at):
            inner, at = _until(text, at + len(_MISTRAL), _MISTRAL, _MISTRAL, keeps=True)
            found.extend(_mistral(inner))
        elif text.startswith((*_OTHERS, _FUNCTION), at):
            raise _Unreadable
        else:
            break
    return found, at


def _until(text: str, start: int, closing: str, opening: str, *, keeps: bool = False) -> tuple[str, int]:
    """What stands before `closing`, and where it ends; models forget it before the next call and at the end."""
    end = text.find(closing, start)
    if end >= 0 and not keeps:
        return text[start:end], end + len(closing)
    following = text.find(opening, start)
    end = len(text) if following < 0 else following
    return text[start:end], end


def _inside(text: str) -> Iterator[JsonMapping]:
    """The calls between two tags. Raises `_Unreadable`."""
    inner = text.strip()
    try:
        yield from (
            _read_marked_calls(inner)
            if inner.startswith(_FUNCTION)
            else map(_normalize_name, _values(_without_fence(inner)))
        )
    except _NoCall as error:
        raise _Unreadable from error


def _without_fence(text: str) -> str:
    fence = _FENCE.match(text)
    return text if fence is None else text[fence.end() :].removesuffix("```").strip()


def _mistral(text: str) -> Iterator[JsonMapping]:
    if text.lstrip().startswith(("[", "{")):
        yield from _inside(text)
        return
    found = _TO_ARGUMENTS.match(text)
    if found is None:
        raise _Unreadable
    yield {"name": found[1], "arguments": _only(text[found.end() :])}


def _function(name: str, text: str) -> JsonMapping:
    """The call `<function=name>` with its arguments as JSON, or between tags of their own."""
    inner = text.strip()
    if not inner.startswith("<parameter="):
        return {"name": name, "arguments": _only(inner) if inner else {}}
    written: dict[str, str] = {}
    at = 0
    while (found := _PARAMETER.match(inner, at)) is not None:
        value, at = _until(inner, found.end(), "</parameter>", "<parameter=")
        if found[1] in written:
            raise _Unreadable
        written[found[1]] = value.removeprefix("\n").removesuffix("\n")
    if inner[at:].strip():
        raise _Unreadable
    return {"name": name, "written": written}


def _only(text: str) -> JsonMapping:
    """The one object in a text. Raises `_Unreadable`."""
    try:
        [value] = _values(text)
    except (_NoCall, ValueError) as error:
        raise _Unreadable from error
    return value


def _normalize_name(value: JsonMapping) -> JsonMapping:
    """A call with its name under `name`. Raises `_Unreadable` if it has none, or its arguments are anywhere else."""
    inner = {**mapping(value.get("function")), **value}
    name = next((found for key in _NAMES if (found := string(inner.get(key)))), "")
    if not name or (not inner.keys() & {*ARGUMENT_KEYS} and inner.keys() - {*_NAMES, *_BESIDES}):
        raise _Unreadable
    return {**inner, "name": name}


# JSON, and what looks like a program ----------------------------------------------------------------------------------


def _read_unmarked_calls(text: str, offered: Mapping[str, OfferedTool]) -> Iterator[JsonMapping]:
    """The calls of offered tools of which a text consists. Raises `_NoCall`."""
    for part in _parts(text):
        if part.startswith(tuple(MARKS)):
            yield from _check_offered(_read_marked_calls(part), offered)
        elif part.startswith(("{", "[")) and _PYTHONIC.match(part) is None:
            yield from _check_offered(_read_call_objects(part, offered), offered)
        elif (found := _PYTHONIC.match(part)) is not None and found[1] in offered:
            raise _Unreadable
        else:
            raise _NoCall


def _parts(text: str) -> Iterator[str]:
    """The contents of the fences of which a text consists, or the text if it has none. Raises `_NoCall`."""
    if not text.startswith("```"):
        yield text
        return
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        fence = _FENCE.match(text, at)
        if fence is None or fence[1] not in _FENCES:
            raise _NoCall
        inner, at = _until(text, fence.end(), "\n```", "\n```")
        yield inner.strip()


def _check_offered(found: Iterable[JsonMapping], offered: Mapping[str, OfferedTool]) -> Iterator[JsonMapping]:
    for one in found:
        if one["name"] not in offered:
            raise _NoCall
        yield one


def _read_call_objects(text: str, offered: Mapping[str, OfferedTool]) -> Iterator[JsonMapping]:
    """The objects in a text that say nothing but whom to call with what. Raises `_NoCall`."""
    try:
        values = _values(text)
    except ValueError as error:
        begun = _BEGUN.match(text)
        if begun is not None and begun[1] in offered:
            raise _Unreadable from error
        raise _NoCall from error
    for value in values:
        keys = {*mapping(value.get("function")), *value}
        if len(keys.intersection(ARGUMENT_KEYS)) != 1 or keys - {*ARGUMENT_KEYS, *_NAMES, *_BESIDES}:
            raise _NoCall
        try:
            yield _normalize_name(value)
        except _Unreadable as error:
            raise _NoCall from error


def _values(text: str) -> Sequence[JsonMapping]:
    """The objects in a text of JSON values, lists opened. Raises ValueError for broken ones, `_NoCall` for others.

    Some chat templates show small models the outer braces doubled.
    """
    found: list[JsonMapping] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        if found and text[at] not in "{[":
            raise _NoCall
        doubled = text.startswith("{{", at)
        value, at = _DECODER.raw_decode(text, at + doubled)
        at += doubled and text.startswith("}", at)
        listed = mapping(value).get("tool_calls", value)
        for one in listed if isinstance(listed, list) else [listed]:
            if not isinstance(one, dict):
                raise _NoCall
            found.append(mapping(clean(one)))
    if not found:
        raise _NoCall
    return found
