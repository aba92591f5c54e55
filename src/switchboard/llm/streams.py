"""Folds a streamed answer into the document that the same provider sends without streaming. Pure.

`api.py` feeds each event's data to a `Fold`, reports the text that it returns, and finally parses `document` like any
answer. An answer has ended when the provider says so: `done`, after which nothing comes, or `finished`, after which the
body may end.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Final

from switchboard.core.text.lenient import block_text, clean, count, items, json_value, mapping, string
from switchboard.domain.json_values import JsonObject
from switchboard.domain.llm import ModelFailure
from switchboard.llm.answers import told_in_the_body
from switchboard.llm.port import ApiKind

StreamEvent = Mapping[str, object]


_NOTHING: Final = frozenset({"[DONE]", "", "null"})
"""Events that say nothing: the end, and what is sent to keep a connection open."""
_MOST_SPACED: Final = 4
"""How many times as long the same arguments may be with other spaces."""
_BRACKET: Final = re.compile(r'[{}\[\]"\\]')


class Fold(ABC):
    """The stream so far."""

    def __init__(self, names: Collection[str] = ()) -> None:
        """`names`: of the offered tools."""
        self.names = frozenset(names)
        self.done = False
        self.finished = False
        self.begun = False

    def feed(self, data: str) -> str:
        """Take an event; returns the text that it adds. Raises ModelFailure for an error reported by the provider."""
        said = data.strip()
        if said == "[DONE]":
            self.done = self.finished = True
        if said in _NOTHING:
            return ""
        event = json_value(data)
        self.begun = self.begun or bool(event)
        if not isinstance(event, Mapping):
            raise ModelFailure("garbage", f"an event of the stream is not a JSON object: {clean(data[:100])!r}")
        if event.get("error") or event.get("type") == "error":
            raise told_in_the_body(event, data)
        return self._take(event)

    @property
    @abstractmethod
    def document(self) -> JsonObject:
        """The answer so far, as if it had arrived in one piece."""

    @abstractmethod
    def _take(self, event: StreamEvent) -> str: ...


class ChatFold(Fold):
    """Chunks of a chat completion."""

    def __init__(self, names: Collection[str] = ()) -> None:
        super().__init__(names)
        self._head: JsonObject = {}
        self._text: list[str] = []
        self._reasoning = ""
        self._refusal: list[str] = []
        self._calls = _Calls(self.names)
        self._legacy = _Calls(self.names)
        self._finish: object = None

    @property
    def document(self) -> JsonObject:
        message = {
            "content": "".join(self._text),
            "reasoning_content": self._reasoning,
            "refusal": "".join(self._refusal),
            "tool_calls": self._calls.documents or self._legacy.documents,
        }
        return self._head | {"choices": [{"message": message, "finish_reason": self._finish}]}

    def _take(self, event: StreamEvent) -> str:
        self._head |= {name: event[name] for name in ("model", "usage") if event.get(name)}
        choice = next(iter(items(event.get("choices"))), {})
        self._finish = choice.get("finish_reason") or self._finish
        self.finished = self.finished or bool(self._finish)
        delta = mapping(choice.get("delta"))
        self._refusal.append(string(delta.get("refusal")))
        # Its beginning is enough: nobody reads the thinking.
        self._reasoning = self._reasoning or string(delta.get("reasoning_content") or delta.get("reasoning"))
        for call in items(delta.get("tool_calls")):
            self._calls.take(call)
        if function := mapping(delta.get("function_call")):
            self._legacy.take({"function": function})
        self._text.append(text := block_text(delta.get("content")))
        return text


class _Calls:
    """Calls in pieces. Servers omit indexes and ids, or give every call the same, and repeat names."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._calls: list[_Call] = []
        self._latest: dict[int | None, _Call] = {}
        """By index; under None the latest of all."""
        self._keyed: dict[tuple[int | None, str], _Call] = {}

    @property
    def documents(self) -> list[JsonObject]:
        """The calls, as they are sent whole."""
        return [call.document for call in self._calls]

    def take(self, piece: StreamEvent) -> None:
        """Take a piece of a call, or a whole one."""
        given, key = piece.get("index"), string(piece.get("id"))
        index = given if isinstance(given, int) else None
        function = mapping(piece.get("function"))
        name, arguments = string(function.get("name")), _as_text(function.get("arguments"))
        found = self._keyed.get((index, key)) or self._latest.get(
            index if name or key or index in self._latest else None
        )
        if found is not None and name == found.name and found.is_at(index, key) and found.says(arguments):
            return  # some servers repeat a call as a whole when it is complete
        if found is None or self._begins_another(found, key, name, arguments):
            found = _Call()
            self._calls.append(found)
        found.add(key, name, arguments)
        for place in (index, None):
            self._latest[place] = found
            if found.key:
                self._keyed[place, found.key] = found

    def _begins_another(self, found: _Call, key: str, name: str, arguments: str) -> bool:
        """Whether a piece begins another call than the one found for it: by its id, or by its name and arguments.

        A name that comes again, or in pieces before the arguments, begins nothing, and nor does an id alone.
        """
        if not name:
            return False
        if key and found.key:
            return key != found.key or (name != found.name and name.strip() in self._names and found.complete)
        if not found.begun:
            return name != found.name and {name.strip(), found.name.strip()} <= self._names
        return name != found.name or (bool(arguments.strip()) and found.complete)


class _Call:
    """A call being streamed."""

    def __init__(self) -> None:
        self.key = self.name = ""
        self.begun = False
        """Whether there are arguments."""
        self._pieces: list[str] = []
        self._size = 0
        self._scanned = 0
        self._depth = 0
        self._quoted = self._escaped = False

    def add(self, key: str, name: str, arguments: str) -> None:
        """Add a piece."""
        self.key = self.key or key
        if name.startswith(self.name):
            self.name = name or self.name  # again, or all of it until now
        elif not self.begun:
            self.name += name
        self._pieces.append(arguments)
        self._size += len(arguments)
        self.begun = self.begun or bool(arguments.strip())

    @property
    def complete(self) -> bool:
        """Whether the arguments are as many as an object closes."""
        for piece in self._pieces[self._scanned :]:
            self._scan(piece)
        self._scanned = len(self._pieces)
        return self.begun and self._depth == 0 and not self._quoted

    def is_at(self, index: int | None, key: str) -> bool:
        """Whether a piece with this id, or if not both have one with the index under which this was found, is of it."""
        return key == self.key if key and self.key else index is not None

    def says(self, arguments: str) -> bool:
        """Whether these are its arguments, and complete."""
        if self._size > _MOST_SPACED * len(arguments) or not self.complete:
            return False
        value = json_value(arguments)
        return value is not None and value == json_value("".join(self._pieces))

    def _scan(self, piece: str) -> None:
        """Count the brackets outside of strings."""
        skipped = 0 if self._escaped else -1
        self._escaped = False
        for found in _BRACKET.finditer(piece):
            if found.start() == skipped:
                continue
            match found.group():
                case "\\" if self._quoted:
                    skipped = found.end()
                    self._escaped = skipped == len(piece)
                case '"':
                    self._quoted = not self._quoted
                case "{" | "[" if not self._quoted:
                    self._depth += 1
                case "}" | "]" if not self._quoted:
                    self._depth -= 1

    @property
    def document(self) -> JsonObject:
        """The call, as it is sent whole."""
        return {"id": self.key, "function": {"name": self.name, "arguments": "".join(self._pieces)}}


def _as_text(arguments: object) -> str:
    """Text as it is; an object, which some servers send instead, as JSON."""
    return json.dumps(arguments) if isinstance(arguments, Mapping) else string(arguments)


class ResponsesFold(Fold):
    """Events of a response. The last one contains it whole, except from servers that rely on the events before."""

    def __init__(self, names: Collection[str] = ()) -> None:
        super().__init__(names)
        self._response: JsonObject = {}
        self._items: dict[int, JsonObject] = {}

    @property
    def document(self) -> JsonObject:
        found = [self._items[index] for index in sorted(self._items)]
        return self._response | {"output": list(items(self._response.get("output"))) or found}

    def _take(self, event: StreamEvent) -> str:
        kind = string(event.get("type"))
        if isinstance(event.get("response"), Mapping):
            self._response |= mapping(event.get("response"))
        if kind == "response.output_item.done":
            self._items[count(event.get("output_index"))] = dict(mapping(event.get("item")))
        if kind in {"response.completed", "response.incomplete", "response.failed"}:
            self.done = self.finished = True
        return string(event.get("delta")) if kind == "response.output_text.delta" else ""


class MessagesFold(Fold):
    """Events of a message: each block is begun, extended, and ended."""

    def __init__(self, names: Collection[str] = ()) -> None:
        super().__init__(names)
        self._message: JsonObject = {}
        self._usage: JsonObject = {}
        self._blocks: dict[int, _Block] = {}

    @property
    def document(self) -> JsonObject:
        content = [self._blocks[index].document for index in sorted(self._blocks)]
        return self._message | {"content": content, "usage": self._usage}

    def _take(self, event: StreamEvent) -> str:
        index = count(event.get("index"))
        match event.get("type"):
            case "message_start":
                self._message |= mapping(event.get("message"))
                self._count(mapping(self._message.get("usage")))
            case "content_block_start":
                self._blocks[index] = _Block(mapping(event.get("content_block")))
                return self._blocks[index].begins_with
            case "content_block_delta" if index in self._blocks:
                return self._blocks[index].add(mapping(event.get("delta")))
            case "message_delta":
                self._message |= mapping(event.get("delta"))
                self.finished = self.finished or bool(self._message.get("stop_reason"))
                self._count(mapping(event.get("usage")))
            case "message_stop":
                self.done = self.finished = True
        return ""

    def _count(self, usage: StreamEvent) -> None:
        """Counts are repeated, each for the whole message; null means nothing."""
        self._usage |= {name: value for name, value in usage.items() if value is not None}


class _Block:
    """A block being streamed. Pieces are joined; anything else is kept unchanged."""

    _PIECES: Final = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}

    def __init__(self, begun: StreamEvent) -> None:
        self._begun = dict(begun)
        self._pieces: dict[str, list[str]] = {}
        self._citations: list[object] = []

    @property
    def begins_with(self) -> str:
        return string(self._begun.get("text")) if self._begun.get("type") == "text" else ""

    def add(self, delta: StreamEvent) -> str:
        kind = string(delta.get("type"))
        name = "input" if kind == "input_json_delta" else self._PIECES.get(kind, "")
        piece = string(delta.get("partial_json" if name == "input" else name))
        if name:
            self._pieces.setdefault(name, []).append(piece)
        if kind == "citations_delta":
            self._citations.append(delta.get("citation"))
        return piece if name == "text" else ""

    @property
    def document(self) -> JsonObject:
        joined = {name: "".join(pieces) for name, pieces in self._pieces.items()}
        told: JsonObject = {
            name: string(self._begun.get(name)) + text for name, text in joined.items() if name != "input"
        }
        if text := joined.get("input", "").strip():
            value = json_value(text)
            told["input"] = value if isinstance(value, Mapping) else text
        if self._citations:
            told["citations"] = self._citations
        return self._begun | told


FOLDS: Final[Mapping[ApiKind, type[Fold]]] = {
    "openai": ChatFold,
    "openai-responses": ResponsesFold,
    "anthropic": MessagesFold,
}
