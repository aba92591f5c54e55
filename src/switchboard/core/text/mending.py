"""Reads JSON that a model wrote almost correctly, by one rule: punctuation is mended, structure never.

Called by `core/text/model_json.py` where strict reading fails. In: a text; out: its value, or `NotJsonError`. Pure.

It mends quotes (single, typographic, none around a name), commas (missing, doubled, at the end), comments, Python
literals and line breaks in strings. A bracket or string that is not closed remains an error: a plan that was cut off is
no plan. So does anything that can be read in two ways.
"""

from __future__ import annotations

import json
import re
from typing import Final

from switchboard.domain.json_values import JsonObject

_BLANK: Final = re.compile(r"(?:[\s,]|//[^\n]*(?:\n|\Z)|#[^\n]*(?:\n|\Z)|/\*.*?\*/)*", re.DOTALL)
_SPACE: Final = re.compile(r"(?:\s|//[^\n]*(?:\n|\Z)|#[^\n]*(?:\n|\Z)|/\*.*?\*/)*", re.DOTALL)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?=[\s,}\]/#]|\Z)")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(?=[\s,:}\]/#]|\Z)")
_NO_JSON: Final = frozenset({"NaN", "Infinity", "undefined"})
_LITERALS: Final = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_CLOSING: Final = {'"': '"', "'": "'", "\u201c": "\u201d", "\u201e": "\u201c\u201d", "\u2018": "\u2019"}
"""The characters that may end a string, by the one that began it."""
_ESCAPES: Final = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX: Final = re.compile(r"[0-9a-fA-F]{4}")
_DEEPEST: Final = 50


class NotJsonError(ValueError):
    """It cannot be read without guessing; the message says where and why."""


def parse_mended(text: str) -> object:
    """The value of the whole text. Raises `NotJsonError`."""
    reader = _Reader(text)
    reader.skip(_SPACE)
    value = reader.value(0)
    reader.skip(_SPACE)
    if reader.at < len(text):
        raise reader.wrong("there is more after its end")
    return value


class _Reader:
    """Reads a text from its beginning to its end; `at` is how far it has come."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0

    def wrong(self, why: str) -> NotJsonError:
        if self.at >= len(self._text):
            why = "it ends before it is complete"
        return NotJsonError(f"{why}, at character {self.at + 1}")

    def skip(self, blank: re.Pattern[str]) -> None:
        found = blank.match(self._text, self.at)
        self.at = self.at if found is None else found.end()

    def value(self, depth: int) -> object:
        if depth > _DEEPEST:
            raise self.wrong("it is nested too deeply")
        sign = self._sign()
        if sign == "{":
            return self._object(depth)
        if sign == "[":
            return self._list(depth)
        if sign in _CLOSING:
            return self._string()
        if (number := _NUMBER.match(self._text, self.at)) is not None:
            self.at = number.end()
            return json.loads(number.group())
        word = self._word()
        return _LITERALS.get(word, word)

    def _sign(self) -> str:
        return self._text[self.at : self.at + 1]

    def _object(self, depth: int) -> JsonObject:
        found: JsonObject = {}
        self.at += 1
        while not self._closes("}"):
            name = self._string() if self._sign() in _CLOSING else self._word()
            if name in found:
                raise self.wrong(f"there are two {name[:50]!r} in one object")
            self.skip(_SPACE)
            if self._sign() != ":":
                raise self.wrong("a colon is missing")
            self.at += 1
            self.skip(_SPACE)
            found[name] = self.value(depth + 1)
        return found

    def _list(self, depth: int) -> list[object]:
        found: list[object] = []
        self.at += 1
        while not self._closes("]"):
            found.append(self.value(depth + 1))
        return found

    def _closes(self, sign: str) -> bool:
        self.skip(_BLANK)
        if self._sign() != sign:
            return False
        self.at += 1
        return True

    def _word(self) -> str:
        found = _WORD.match(self._text, self.at)
        if found is None or found.group() in _NO_JSON:
            raise self.wrong("a value or a name in quotes is missing")
        self.at = found.end()
        return found.group()

    def _string(self) -> str:
        quote = self._sign()
        parts: list[str] = []
        self.at += 1
        while (sign := self._sign()) and not (sign in _CLOSING[quote] and self._ends(quote)):
            self.at += 1
            parts.append(self._read_escape() if sign == "\\" else sign)
        if not sign:
            raise self.wrong("a string is not closed")
        self.at += 1
        # Two escapes may be the halves of one character.
        return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

    def _ends(self, quote: str) -> bool:
        """Whether the character here ends the string: an apostrophe within a word does not."""
        found = None if quote == '"' else _SPACE.match(self._text, self.at + 1)
        if found is None or self._text[found.end() : found.end() + 1] in {"", ",", ":", "}", "]"}:
            return True
        if quote == "'" and self._text[self.at - 1].isalnum() and self._text[self.at + 1].isalnum():
            return False
        raise self.wrong("it is not clear where a string ends")

    def _read_escape(self) -> str:
        sign = self._sign()
        self.at += 1
        if sign in _ESCAPES:
            return _ESCAPES[sign]
        found = _HEX.match(self._text, self.at) if sign == "u" else None
        if found is None:
            raise self.wrong("a backslash in a string stands before something that JSON does not escape")
        self.at = found.end()
        return chr(int(found.group(), 16))
