"""Calls as JSON, for models that do not call tools natively: `calls = "schema"`. Pure.

`bodies.py` calls `asked_in_form` for the request: the tools are named in the system prompt, and the answer is one JSON
object, `{"text": …}` or `{"calls": [{"name": …, "arguments": …}]}`, for which a JSON Schema is sent as well if the
server accepts one. Earlier calls and their results are written in the same form. `api.py` streams the text of such an
answer through a `FormListener`; `answers.py` calls `unwrap_reply` for the whole. An answer in no such form stays as it
is: `text_calls.py` reads what else models write. A forced tool has the form of `json_form.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Final, Literal

from msgspec import Struct, structs

from switchboard.core.replies import call_of
from switchboard.core.text.lenient import clean, items, mapping, string
from switchboard.domain.json_values import JsonObject
from switchboard.domain.llm import ChatMessage, ModelFailure, OfferedTool, Reply, Request, ToolCall, ToolResult, Unmade
from switchboard.llm.control_words import without_control_words
from switchboard.llm.json_form import for_grammars
from switchboard.llm.speech import Listener, SpeechRules, SpokenPart, speech_of

MOST_CALLS: Final = 5
"""Calls of one answer that the schema permits."""
_DEEPEST: Final = 4
"""Levels of a schema that the prompt shows."""
_MOST_OPENING: Final = 1000
"""Characters in which the form of an answer is recognised."""

_FORM: Final = """\
You answer with one JSON object and nothing else, in one of two forms. If a tool can find out or do what is asked, call
it, with one to five calls; you get their results next:
{{"calls": [{{"name": "{tool}", "arguments": {{…}}}}]}}
Otherwise, and when everything is done, what the person is told, such as "4" if asked for 2 + 2:
{{"text": "4"}}
Only calls do anything: never claim in `text` what no call has done. The tools, with their arguments (`?`: optional):
"""
"""Worded so that a model of 1.5 billion parameters most surely decides as it should between the two; see 0133."""
_TEXT_FORM: Final = 'You answer with one JSON object and nothing else: {"text": "…"}, what the person is told.'
_NO_CALLS: Final = "(No calls are possible now: answer with `text`.)"
_GO_ON: Final = (
    "Go on with this message, with the call that it needs next; if it needs none, say in `text` what came of it:\n"
)
"""Behind the last results. Without it, small models answered with the example of the form, or with a promise."""
_MOST_ASKED: Final = 1000
"""Characters of the message that are told once more."""


# What is asked -------------------------------------------------------------------------------------------------------


def speaks_form(request: Request) -> bool:
    """Whether a model with `calls = "schema"` is asked this in the form: not for a forced tool, nor without any."""
    return not request.force and bool(request.tools or any(one.calls or one.results for one in request.messages))


def asked_in_form(request: Request) -> tuple[Request, JsonObject]:
    """The request without tools, for an answer in the form, and the schema of this answer.

    Within a turn, only the end of the request changes: servers keep what they have read.
    """
    callable_tools = () if request.no_calls else request.tools
    messages = tuple(_messages_as_text(request.messages))
    if (end := _NO_CALLS if request.no_calls else _going_on(request.messages)) and messages:
        messages = (*messages[:-1], replace(messages[-1], text=_join_paragraphs(messages[-1].text, end)))
    system = _join_paragraphs(request.system, _form_of(request.tools))
    return replace(request, system=system, messages=messages, tools=(), no_calls=False), _schema(callable_tools)


def _going_on(messages: Sequence[ChatMessage]) -> str:
    """What is said behind results: which message they are for, in its words, which stand in quoted lines."""
    if not messages or not messages[-1].results or messages[-1].text:
        return ""
    asked = next((one.text for one in reversed(messages) if one.role == "user" and not one.results), "")
    words = "\n".join(line for line in asked.splitlines() if line.startswith(">"))[:_MOST_ASKED]
    return f"{_GO_ON}{words}" if words else ""


def _join_paragraphs(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


def _form_of(tools: Sequence[OfferedTool]) -> str:
    """The form in words. Descriptions of tools may come from other servers."""
    if not tools:
        return _TEXT_FORM
    return _FORM.format(tool=tools[0].name) + without_control_words("\n".join(map(_tool_lines, tools)))


def _tool_lines(tool: OfferedTool) -> str:
    """A tool in a line, and a line for each argument that is described."""
    known = _properties(tool.parameters)
    told = [
        f"  {name}: {' '.join(text.split())}" for name, one in known.items() if (text := string(one.get("description")))
    ]
    line = f"- {tool.name}({_arguments(tool.parameters, _DEEPEST)}): {' '.join(tool.description.split())}"
    return "\n".join((line, *told))


def _properties(schema: Mapping[str, object]) -> Mapping[str, Mapping[str, object]]:
    return {name: mapping(one) for name, one in mapping(schema.get("properties")).items()}


def _arguments(schema: Mapping[str, object], deepest: int) -> str:
    """As `path: string, lines?: integer`."""
    required = schema.get("required")
    needed = required if isinstance(required, list | tuple) else ()
    return ", ".join(
        f"{name}{'' if name in needed else '?'}: {_kind(one, deepest - 1)}" for name, one in _properties(schema).items()
    )


def _kind(schema: Mapping[str, object], deepest: int) -> str:
    """What a value may be, in a few words."""
    choices = schema.get("enum") if "enum" in schema else [schema["const"]] if "const" in schema else None
    if isinstance(choices, list | tuple):
        return " | ".join(json.dumps(one, ensure_ascii=False) for one in choices)
    several = items(schema.get("anyOf") or schema.get("oneOf"))
    if deepest <= 0 or not (several or schema.get("type")):
        return "any" if not several else " | ".join(dict.fromkeys(string(one.get("type")) or "any" for one in several))
    if several:
        return " | ".join(dict.fromkeys(_kind(one, deepest - 1) for one in several))
    kind = schema["type"]
    if kind == "array":
        return f"list of {_kind(mapping(schema.get('items')), deepest - 1)}"
    if kind == "object" and _properties(schema):
        return f"{{{_arguments(schema, deepest)}}}"
    return " | ".join(map(str, kind)) if isinstance(kind, list | tuple) else str(kind)


def _schema(tools: Sequence[OfferedTool]) -> JsonObject:
    text = _object(text={"type": "string"})
    if not tools:
        return text
    calls = [_object(name={"const": tool.name}, arguments=_grammatical(tool.parameters)) for tool in tools]
    listed = {"type": "array", "minItems": 1, "maxItems": MOST_CALLS, "items": {"anyOf": calls}}
    return {"anyOf": [text, _object(calls=listed)]}


def _object(**properties: object) -> JsonObject:
    """The schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _grammatical(parameters: Mapping[str, object]) -> JsonObject:
    """The schema of arguments within another one, where references lead nowhere. What it omits is checked later."""
    if _has_reference(parameters) or not parameters.get("properties"):
        return {"type": "object"}  # from an object without properties some servers make no grammar
    return {"type": "object", **for_grammars(parameters)}


def _has_reference(value: object) -> bool:
    if isinstance(value, Mapping):
        return "$ref" in value or any(map(_has_reference, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_reference, value))


# What was said before ------------------------------------------------------------------------------------------------


_RESULT_LINE: Final = re.compile(r"^(?=\[(?:result|failure|end) of )", re.MULTILINE)
_END: Final = "[end of results]"


def _messages_as_text(messages: Sequence[ChatMessage]) -> Iterator[ChatMessage]:
    """The messages with calls and results as text."""
    names: dict[str, str] = {}
    for message in messages:
        names |= {call.id or "": call.name for call in message.calls}
        text = _answer_as_json(message) if message.role == "assistant" else _results_as_text(message, names)
        yield replace(message, text=text, calls=(), results=(), blocks=())


def _answer_as_json(message: ChatMessage) -> str:
    """What the model has answered. A model with native calls may have said something with them."""
    calls = [{"name": call.name, "arguments": call.malformed or dict(call.arguments)} for call in message.calls]
    said = {"text": message.text} if message.text or not calls else {}
    return json.dumps({**said, **({"calls": calls} if calls else {})}, ensure_ascii=False)


def _results_as_text(message: ChatMessage, names: Mapping[str, str]) -> str:
    """Results, each below a line that names its call, and what a person said. No result can imitate such a line."""
    if not message.results:
        return message.text
    told = (f"[{_outcome(one, names)}]\n{_RESULT_LINE.sub(' ', one.text)}" for one in message.results)
    return _join_paragraphs(*told, _END, message.text)


def _outcome(result: ToolResult, names: Mapping[str, str]) -> str:
    return f"{'result' if result.ok else 'failure'} of {names.get(result.call_id, 'a call')}"


# What is answered -----------------------------------------------------------------------------------------------------


_OPENING: Final = re.compile(r'\s*(?:```[\w-]*[ \t]*\r?\n\s*)?\{\s*"(text|calls)"\s*:\s*')
_BEGUN: Final = re.compile(
    r'\s*(?:`{1,2}|```[\w-]*[ \t]*(?:\r?\n?\s*))?(?:\{\s*(?:"(?:t|te|tex|text"?|c|ca|cal|call|calls"?)?\s*:?\s*)?)?\Z'
)
_CALLS: Final = re.compile(r'[\s,]*"calls"\s*:')
_NAME: Final = re.compile(r'"name"\s*:\s*"([^"\\]{1,200})"')
_PLAIN: Final = re.compile(r'[^"\\]+')
_HEX: Final = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _number(text: str) -> float:
    """A number as JSON has it; neither NaN nor one that becomes infinite can be stored."""
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is not a JSON number")
    return value


_DECODER: Final = json.JSONDecoder(strict=False, parse_float=_number, parse_constant=_number)
"""Line breaks in strings are what small models write, and mean nothing else."""


class TextReader:
    """Reads the text in an answer piece by piece: of `{"text": "…` the string as soon as it is written, of calls
    nothing, and of anything else all of it."""

    def __init__(self) -> None:
        self._state: Literal["open", "text", "plain", "over"] = "open"
        self._held = ""
        self.rest = ""
        """What follows the text within the piece that ended it."""

    def feed(self, piece: str) -> str:
        """The text that this piece adds."""
        match self._state:
            case "open":
                self._held += piece
                return self._read_opening()
            case "text":
                return self._decode_piece(piece)
            case "plain":
                return piece
            case "over":
                return ""

    def _read_opening(self) -> str:
        found = _OPENING.match(self._held, 0, _MOST_OPENING)
        if found is None:
            if len(self._held) < _MOST_OPENING and _BEGUN.match(self._held):
                return ""
            self._state, text = "plain", self._held
            return text
        behind = self._held[found.end() :]
        if not behind:
            return ""
        self._held = ""
        if found[1] == "text" and behind[0] == '"':
            self._state = "text"
            return self._decode_piece(behind[1:])
        self._state = "over"
        return ""

    def _decode_piece(self, piece: str) -> str:
        """The decoded part of a JSON string; an escape that is not complete is held back."""
        text, at, said = self._held + piece, 0, list[str]()
        self._held = ""
        while at < len(text):
            if (plain := _PLAIN.match(text, at)) is not None:
                said.append(plain.group())
                at = plain.end()
            elif text[at] == '"':
                self._state, self.rest = "over", text[at + 1 :]
                break
            else:
                found = _unescaped(text, at)
                if found is None:
                    self._held = text[at:]
                    break
                if not found[1]:
                    self._state = "over"  # no JSON
                    break
                said.append(found[0])
                at += found[1]
        return string(clean("".join(said)))


def _unescaped(text: str, at: int) -> tuple[str, int] | None:
    """The character of the escape at this place, and the escape's length; None: it is not complete; 0: it is none."""
    kind = text[at + 1 : at + 2]
    if kind == "u":
        return _by_number(text, at)
    found = _ESCAPES.get(kind, "")
    return (found, 2 if found else 0) if kind else None


def _by_number(text: str, at: int) -> tuple[str, int] | None:
    """As `_unescaped`. Two halves of a pair are one character."""
    first = _code(text, at)
    if first is None or first < 0:
        return None if first is None else ("", 0)
    if 0xD800 <= first < 0xDC00 and r"\u".startswith(text[at + 6 : at + 8]):
        second = _code(text, at + 6)
        if second is None:
            return None
        if 0xDC00 <= second < 0xE000:
            return chr(0x10000 + ((first - 0xD800) << 10) + second - 0xDC00), 12
    return chr(first), 6


def _code(text: str, at: int) -> int | None:
    r"""The number in `\u0041`; None: it is not complete; -1: it is none."""
    digits = text[at + 2 : at + 6]
    if _HEX.fullmatch(digits):
        return int(digits, 16)
    return None if len(digits) < 4 and all(one in "0123456789abcdefABCDEF" for one in digits) else -1


class FormListener:
    """As `Listener`, for an answer in the form: hears its text, behind the thinking at its head."""

    def __init__(self, rules: SpeechRules) -> None:
        self._rules = structs.replace(rules, thinks=False)
        self._head = Listener(_head_rules(thinks=rules.thinks))
        self._restart()

    def feed(self, text: str) -> SpokenPart:
        """The new part of what is certainly speech by now."""
        part = self._head.feed(text)
        if part.anew:
            self._restart()
        said = self._inner.feed(self._reader.feed(part.text))
        return SpokenPart(said.text, anew=part.anew or said.anew)

    def _restart(self) -> None:
        self._reader, self._inner = TextReader(), Listener(self._rules)


def _head_rules(*, thinks: bool) -> SpeechRules:
    """What is removed around the object: nothing but thinking, as the tokens of a template may be part of the text."""
    return SpeechRules(thinks=thinks)


class FormedAnswer(Struct, frozen=True):
    """What an answer in the form says and calls. `unmade` as in `Reply`."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    unmade: Unmade = ""


def unwrap_reply(reply: Reply, *, thinks: bool) -> Reply:
    """The reply with what the object in its text says and calls; if it has no such form, as it is.

    Raises ModelFailure `garbage` for calls without names.
    """
    said = speech_of(reply.text, _head_rules(thinks=thinks))
    found = read_form(said.text, cut=reply.stop_reason == "length")
    if found is None:
        return reply
    if found.unmade == "as_text":
        raise ModelFailure("garbage", "the calls in the answer cannot be read", alive=True, reply=reply)
    thought = reply.thought or said.thought
    return replace(reply, text=found.text, calls=reply.calls or found.calls, unmade=found.unmade, thought=thought)


def read_form(text: str, *, cut: bool = False) -> FormedAnswer | None:
    """What an answer says and calls; None if it does not begin like the form. `cut`: it ended at its limit.

    What follows the object is ignored: models without a grammar go on with results of their own invention. Of a broken
    object the text counts as far as it goes, and a call with a name is malformed. `unmade` is `as_text` if not even
    that can be read. Never raises.
    """
    opening = _OPENING.match(text, 0, _MOST_OPENING)
    if opening is None:
        return None
    try:
        value = mapping(clean(_DECODER.raw_decode(text, text.index("{"))[0]))
    except (ValueError, RecursionError):
        return _read_broken_form(text, opening, cut=cut)
    raw = value.get("calls")
    calls = tuple(filter(None, map(call_of, items(raw if isinstance(raw, list) else [raw]))))
    return FormedAnswer(_text(value.get("text")), calls, "as_text" if raw and not calls else "")


def _text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _read_broken_form(text: str, opening: re.Match[str], *, cut: bool) -> FormedAnswer:
    reader = TextReader()
    said = reader.feed(text)
    if opening[1] == "text" and not _CALLS.match(reader.rest):
        return FormedAnswer(said)
    if cut:
        return FormedAnswer(said, unmade="cut_off")
    written = reader.rest or text[opening.end() :]
    name = _NAME.search(written)
    if name is None:
        return FormedAnswer(said, unmade="as_text")
    return FormedAnswer(said, (ToolCall(name[1], malformed=written),))
