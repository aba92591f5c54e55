"""Calls of tools that a model writes as text, in the forms of chat templates or as JSON. Pure.

`speech.py` asks whether a text begins like one, `answers.py` what an answer calls. An answer is a call only if it is
nothing but calls: in prose, or behind it, JSON may be what the person wanted to see. Without the marks of a template,
only an offered tool, letter for letter, makes a text a call. Next: `answers.py`, which decides whether it is carried
out.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import unescape
from typing import Final
from warnings import catch_warnings

from msgspec import Struct

from switchboard.core.replies import ARGUMENT_KEYS, arguments_of
from switchboard.core.text.lenient import clean, json_value, mapping, string
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.llm import OfferedTool, ToolCall

_TAGS: Final = ("tool_call", "tool_calls", "function_call", "function_calls", "tool_use", "tool", "tools")
_FUNCTION: Final = "<function="
_MISTRAL: Final = "[TOOL_CALLS]"
_CLOSINGS: Final = {
    **{f"<{tag}>": f"</{tag}>" for tag in _TAGS},
    "<|python_tag|>": "<|eom_id|>",
    "<|tool_call|>": "<|/tool_call|>",
    "<|tool_call_start|>": "<|tool_call_end|>",
}
"""The marks between which calls are JSON, or `<function=…>`, or look like Python."""
_OTHERS: Final = ("<|tool_calls_section_begin|>", "<\uff5ctool\u2581calls\u2581begin\uff5c>")
"""Marks of calls that are recognised, but not read."""
MARKS: Final = frozenset((*_CLOSINGS, _FUNCTION, _MISTRAL, *_OTHERS))
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
_TAG: Final = re.compile("|".join(map(re.escape, _CLOSINGS)))
_NAMED: Final = re.compile(r"<function=([^<>\s]{1,200})>")
_PARAMETER: Final = re.compile(r"\s*<parameter=([^<>\s]{1,200})>")
_TO_ARGUMENTS: Final = re.compile(r"\s*([\w.-]{1,200})\s*(?:\[CALL_ID\][\w-]{0,60})?(?:\[ARGS\])?\s*(?=\{)")
_STRAY: Final = re.compile(rf"(?:[\s}}]|</(?:{'|'.join(_TAGS)})>)*[,;]?\s*")
"""What models write behind the object of a call: braces and tags that nothing opened, and separators."""
_ACTION: Final = re.compile(
    r"(?:Thought:[^\n]{0,2000}\n\s*)?Action:[ \t]*([\w.-]{1,200})[ \t]*\n\s*Action Input:\s*(?=\{)"
)
_ACTING: Final = ("Thought:", "Action:")
_OBSERVED: Final = "Observation:"
"""The form of ReAct: what comes behind the call is a result of the model's own invention."""
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
_BLANKS: Final = re.compile(r"\s+")
_QUOTED_LINE: Final = re.compile(r"^[\s>|]+", re.MULTILINE)
_CODE_POINT: Final = re.compile(r"\\{1,8}u([0-9a-fA-F]{4})")
_ESCAPE: Final = re.compile(r"\\+(?:[nrt][\s>|]*)?")
"""What JSON has for a break of lines, and the backslash of all else."""
_ACTION_INPUT: Final = re.compile(r"(?:\\{1,8}n|[\s>|]){1,40}Action Input:")
_SIGNS: Final = re.compile(r"[\[\]{}()<>\"'`“”„\u2018\u2019«»:=,;]+")
_NO_WORD: Final = re.compile(r"\W+")
_AROUND: Final = frozenset({*ARGUMENT_KEYS, *_NAMES, "type", "parameter"})
_SAME_WORDS: Final = {"none": "null"}
_WRAPPING: Final = re.compile(
    rf"</?(?:{'|'.join(_TAGS)})>|\[TOOL_CALLS\]|<[|\uff5c][^<>|\uff5c\s]{{1,60}}[|\uff5c]>|^\s*```[\w-]*", re.MULTILINE
)
_HEAD: Final = 500
"""Characters in which the name of a broken call is looked for."""
_PYTHONIC: Final = re.compile(r"\[?\s*([A-Za-z_][\w.-]{0,200})\(.*\)\s*\]?\Z", re.DOTALL)
_DECODER: Final = json.JSONDecoder(strict=False)
"""Line breaks in strings are what small models write, and mean nothing else."""


class TextCalls(Struct, frozen=True):
    """Calls in an answer: all of them, if it is nothing else and all can be made. `prose`: what else it says."""

    calls: tuple[ToolCall, ...]
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
    certain = (*MARKS, *(_ACTING if names else ()))
    if head.startswith(certain):
        return True
    if head[:1] in ("{", "[") and (found := _KEY.match(head)) is not None:
        return found[1] in {*_NAMES, *_BESIDES, *ARGUMENT_KEYS, "tool_calls"}
    called = head.removeprefix("[").lstrip()
    if any(called.startswith(f"{name}(") for name in names):
        return True
    beginnings = (*certain, "```", *(f"{name}(" for name in names))
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
    if calls_at < 0:
        return TextCalls(_calls(found, offered))
    behind = written[end:].strip()
    alone = not before and not behind
    if not (offered and found and alone) and not _all_offered(found or _guess_calls(written, offered), offered):
        return None
    prose = "\n\n".join(filter(None, (before, _without_calls(behind))))
    return TextCalls(_calls(found, offered) if alone else (), prose)


def is_quoted(calls: Iterable[ToolCall], text: str, read: Sequence[str]) -> bool:
    """Whether calls stand in what the model was given to read: one of them with its arguments, or all of a text.

    Neither what is around them counts, nor how they are quoted, escaped and laid out, nor in which form they are.
    """
    shapes = tuple(shape for call in calls for shape in _shapes_of(call))
    written = _without_wrapping(text).strip("{}[];,")
    if shapes and any(shape in one for one in map(_words_of, read) for shape in shapes):
        return True
    return bool(written) and any(written in _without_wrapping(one) for one in read)


def _shapes_of(call: ToolCall) -> Iterator[str]:
    """The words of a call with arguments, in both orders; the name may follow a word of prose."""
    name, given = _words_of(call.name).strip(), _words_of(json.dumps(call.arguments, ensure_ascii=False))
    if given.strip():
        yield f"{name}{given}"
        yield f"{given}{name} "


def _words_of(text: str) -> str:
    """What a text has between the signs that calls are made of, without blanks and what differs between the forms."""
    plain = _CODE_POINT.sub(lambda found: chr(int(found[1], 16)), unescape(text))
    plain = _QUOTED_LINE.sub("", _ESCAPE.sub("", _ACTION_INPUT.sub(":", plain))).casefold()
    words = (_NO_WORD.sub("", one) for one in _SIGNS.split(plain))
    return f" {' '.join(_SAME_WORDS.get(one, one) for one in words if one and one not in _AROUND)} "


def _without_wrapping(text: str) -> str:
    return _BLANKS.sub("", _WRAPPING.sub("", _QUOTED_LINE.sub("", text)))


def _without_calls(text: str) -> str:
    """The text without the calls in it, and what only a template understands; code is kept."""
    kept, at = list[str](), 0
    while (found := _OUTSIDE.search(text, at)) is not None:
        kept.append(text[at : found.start()] + (found[1] or ""))
        calls = not found[1] and text.startswith(tuple(MARKS), found.start())
        at = found.start() + _end_of_calls(text[found.start() :]) if calls else found.end()
    return "".join((*kept, text[at:])).strip()


def _end_of_calls(text: str) -> int:
    """Where the calls end with which a text begins."""
    try:
        return _beginning(text)[1]
    except (_Unreadable, ValueError, RecursionError):
        return _end_of_unreadable(text)


def _end_of_unreadable(text: str) -> int:
    """Where the call ends that cannot be read, with which a text begins: the whole of it, if nothing closes it."""
    tag = _TAG.match(text)
    closing = "</function>" if tag is None else _CLOSINGS[tag.group()]
    end = text.find(closing)
    return len(text) if end < 0 else end + len(closing)


def _read(written: str, offered: Mapping[str, OfferedTool], *, marked: bool) -> tuple[Sequence[JsonMapping], int]:
    """The calls with which a text begins, none if they cannot be read, and where they end; -1: there are none."""
    try:
        return _beginning(written) if marked else ([*_read_unmarked_calls(written, offered)], len(written))
    except _NoCall:
        return [], -1
    except (_Unreadable, ValueError, RecursionError):
        return [], _end_of_unreadable(written) if marked else len(written)


def _all_offered(found: Sequence[JsonMapping], offered: Mapping[str, OfferedTool]) -> bool:
    return bool(found) and all(string(one["name"]) in offered for one in found)


def _guess_calls(written: str, offered: Mapping[str, OfferedTool]) -> Sequence[JsonMapping]:
    """What a call that cannot be read seems to call."""
    if written.startswith(("<|", *_OTHERS)):
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
            inner, at = _until(text, tag.end(), _CLOSINGS[tag.group()], tag.group())
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
        if inner.startswith(_FUNCTION):
            yield from _read_marked_calls(inner)
        elif _PYTHONIC.match(inner) is not None:
            yield from _python_calls(inner)
        else:
            yield from map(_normalize_name, _values(_without_fence(inner)))
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
            yield from _check_offered(_python_calls(part), offered)
        elif (found := _ACTION.match(part)) is not None and found[1] in offered:
            yield {"name": found[1], "arguments": _action_input(part, found.end())}
        else:
            raise _NoCall


def _python_calls(text: str) -> Iterator[JsonMapping]:
    """The calls in what looks like Python, with literals by keyword. Nothing is evaluated. Raises `_Unreadable`."""
    try:
        with catch_warnings(action="ignore"):  # of escapes
            lines = ast.parse(text).body
        for line in lines:
            value = line.value if isinstance(line, ast.Expr) else None
            yield from map(_python_call, value.elts if isinstance(value, ast.List) else [value])
    except (SyntaxError, TypeError, ValueError, MemoryError, RecursionError) as error:
        raise _Unreadable from error


def _python_call(value: ast.expr | None) -> JsonMapping:
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name) or value.args:
        raise _Unreadable
    given = {word.arg: ast.literal_eval(word.value) for word in value.keywords if word.arg}
    arguments = json_value(json.dumps(given))
    if len(given) < len(value.keywords) or not isinstance(arguments, dict):
        raise _Unreadable
    return {"name": value.func.id, "arguments": arguments}


def _action_input(text: str, at: int) -> JsonMapping:
    value, end = _DECODER.raw_decode(text, at)
    rest = text[end:].strip()
    if rest and not rest.startswith(_OBSERVED):
        raise _NoCall
    return mapping(clean(value))


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

    Some chat templates show small models the outer braces doubled, which they close as often as they like.
    """
    found: list[JsonMapping] = []
    at = len(text) - len(text.lstrip())
    while at < len(text):
        if found and text[at] not in "{[":
            raise _NoCall
        value, at = _DECODER.raw_decode(text, at + text.startswith("{{", at))
        at = _end_of_stray(text, at)
        listed = mapping(value).get("tool_calls", value)
        for one in listed if isinstance(listed, list) else [listed]:
            if not isinstance(one, dict):
                raise _NoCall
            found.append(mapping(clean(one)))
    if not found:
        raise _NoCall
    return found


def _end_of_stray(text: str, at: int) -> int:
    found = _STRAY.match(text, at)
    return at if found is None else found.end()
