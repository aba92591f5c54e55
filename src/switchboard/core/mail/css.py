"""The styles of a mail, as far as they decide whether a person sees its text.

Called by `core/mail/hypertext.py`. In: the contents of `<style>` elements and `style` attributes, written by a
stranger; out: for an element, the value of each property. Raises nothing but `TooMuch`; the time is proportional to the
input, with at most a fixed number of comparisons per character of the document. Next:
`core/mail/sight.py`, which judges the values.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

PROPERTIES: Final = frozenset(
    {
        *("display", "visibility", "opacity", "filter", "font", "font-size", "color", "background", "background-color"),
        *("position", "left", "right", "top", "bottom", "text-indent", "margin", "margin-left", "margin-top"),
        *("transform", "clip", "clip-path", "overflow", "overflow-x", "overflow-y", "height", "max-height", "width"),
        *("max-width", "mso-hide", "background-image", "white-space"),
    }
)
"""All properties that are read: those that can hide text, and the one that keeps its lines."""
_MAX_VALUE: Final = 200
_MAX_RULES: Final = 10_000
_SCREEN_PX: Final = 1024
"""The assumed width of the window in which a mail is shown."""
_ESCAPE = re.compile(r"\\(?:([0-9a-f]{1,6})(?:\r\n|[ \t\r\n\f])?|\r\n|([^0-9a-f]))", re.IGNORECASE | re.DOTALL)
_NO_SYNTAX: Final = {code: 0xE000 + code for code in range(128) if not chr(code).isalnum() and chr(code) not in "-_"}
"""Characters that are written as an escape are part of a name or a value, whatever they mean otherwise."""
_AS_WRITTEN: Final = {stand_in: code for code, stand_in in _NO_SYNTAX.items()}
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_TOKEN = re.compile(r"""[{};]|"[^"\n]*+"?|'[^'\n]*+'?|[^{};"']+""")
_AT = re.compile(r"@([a-z-]+)(.*)", re.DOTALL)
_WIDTH = re.compile(r"\(\s*+(?:(min|max)-(?:device-)?width\s*+:|width\s*+([<>])=?)\s*+([0-9.]{1,12})(px|r?em)?")
_DARK = re.compile(r"prefers-color-scheme\s*+:\s*+dark")
_ELSEWHERE = re.compile(r"\b(?:print|speech|aural|braille|embossed|handheld|projection|tty|tv)\b")
_COMBINED = re.compile(r"[\s>]+")
_ATTRIBUTE = re.compile(r"""\[\s*+class\s*+~?=\s*+["']?([\w-]+)["']?\s*+\]""")
_COMPOUND = re.compile(r"(?:[a-z][a-z0-9]*|\*)?(?:[.#][\w\ue000-\ue07f-]+)*")
_NAME = re.compile(r"[.#]?[\w\ue000-\ue07f-]+")


class TooMuch(Exception):
    """The rules of this document need more comparisons than those of any honest one."""


class Block(Struct, frozen=True):
    """Declarations: values by property, with those that are `!important` kept apart."""

    plain: Mapping[str, str]
    important: Mapping[str, str]


NOTHING: Final = Block({}, {})


class _Rule(Struct, frozen=True):
    """`subject` must hold for the element itself, `around` for elements around it, in any order."""

    subject: frozenset[str]
    around: frozenset[str]
    weight: tuple[int, int, int]
    block: Block


def block_of(source: str) -> Block:
    """The declarations in a `style` attribute, or between the braces of a rule."""
    plain: dict[str, str] = {}
    important: dict[str, str] = {}
    for piece in _read(source).split(";"):
        name, _, value = piece.partition(":")
        if (known := name.strip()) in PROPERTIES:
            said, mark, _ = value.partition("!")
            (important if mark else plain)[known] = said.strip()[:_MAX_VALUE]
    return Block(plain, important)


class Sheet:
    """The rules of one document, and the comparisons that are still allowed. Raises TooMuch for too many rules."""

    def __init__(self, sources: Iterable[str], fuel: int) -> None:
        self._rules: dict[str, list[_Rule]] = {}
        self._fuel = fuel
        for source in sources:
            for number, rule in enumerate(_rules_of(source)):
                if number > _MAX_RULES:
                    raise TooMuch
                self._rules.setdefault(max(rule.subject, key=_precision, default="*"), []).append(rule)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def style_of_element(self, names: frozenset[str], around: Mapping[str, int], own: Block) -> Mapping[str, str]:
        """The values that apply to an element with these names (`td`, `.note`, `#top`) and its own `style`.

        `around` counts the names of the elements around it. Raises TooMuch.
        """
        if not self._rules:
            return {**own.plain, **own.important}
        rules = sorted(self._matching(names, around), key=lambda rule: rule.weight)
        values: dict[str, str] = {}
        for block in (*(rule.block for rule in rules), own):
            values.update(block.plain)
        for block in (*(rule.block for rule in rules), own):
            values.update(block.important)
        return values

    def _matching(self, names: frozenset[str], around: Mapping[str, int]) -> Iterator[_Rule]:
        for name in (*names, "*"):
            for rule in self._rules.get(name, ()):
                self._fuel -= 1 + len(rule.subject) + len(rule.around)
                if self._fuel < 0:
                    raise TooMuch
                if rule.subject <= names and all(around.get(other) for other in rule.around):
                    yield rule


def applies(condition: str) -> bool:
    """Whether a list of media queries holds for a window on a screen, light and of usual width."""
    return any(_is_true(query.strip()) for query in condition.lower().split(","))


def _read(source: str) -> str:
    """The source in lower case, without comments, and with the characters that its escapes mean."""
    source = _COMMENT.sub("", source)
    return (_ESCAPE.sub(_character_of, source) if "\\" in source else source).lower()


def _character_of(escape: re.Match[str]) -> str:
    if escape[2]:
        return escape[2].translate(_NO_SYNTAX)
    code = int(escape[1], 16) if escape[1] else 0
    return chr(code).translate(_NO_SYNTAX) if 0 < code <= sys.maxunicode else ""


def _precision(name: str) -> tuple[int, str]:
    """Ids are more specific than classes, and classes more than tags."""
    return {"#": 2, ".": 1}.get(name[0], 0), name


def _rules_of(source: str) -> Iterator[_Rule]:
    for selectors, declarations in _blocks(_read(source)):
        block = block_of(declarations)
        if block.plain or block.important:
            yield from filter(None, (_rule(selector, block) for selector in selectors.split(",")))


def _blocks(source: str) -> Iterator[tuple[str, str]]:
    """Selectors and declarations, without those that do not apply on a screen."""
    opened: list[tuple[str, bool, list[str]]] = [("", True, [])]
    text: list[str] = []
    for piece in _TOKEN.findall(source):
        if piece == "{":
            before, _, prelude = "".join(text).rpartition(";")
            opened[-1][2].append(before)
            at = _AT.match(prelude.strip())
            opened.append(("" if at else prelude, opened[-1][1] and (at is None or _holds(at[1], at[2])), []))
            text = []
        elif piece == "}" and len(opened) > 1:
            selectors, holds, inner = opened.pop()
            if selectors and holds:
                yield selectors, ";".join((*inner, "".join(text)))
            text = []
        else:
            text.append(piece)


def _holds(name: str, condition: str) -> bool:
    return applies(condition) if name == "media" else name in {"supports", "layer", "container"}


def _is_true(query: str) -> bool:
    if query.startswith("not "):
        return not _is_true(query[4:].strip())
    if _DARK.search(query) or _ELSEWHERE.search(query):
        return False
    return all(_is_within(*found) for found in _WIDTH.findall(query))


def _is_within(bound: str, sign: str, number: str, unit: str) -> bool:
    try:
        limit = float(number) * (16 if unit.endswith("em") else 1)
    except ValueError:
        return True
    return limit >= _SCREEN_PX if bound == "max" or sign == "<" else limit <= _SCREEN_PX


def _rule(selector: str, block: Block) -> _Rule | None:
    """None for a selector that is not read: siblings, states, and attributes other than the class."""
    compounds = [part for part in _COMBINED.split(_ATTRIBUTE.sub(r".\1", selector)) if part]
    if not compounds or not all(_COMPOUND.fullmatch(part) for part in compounds):
        return None
    *others, last = (_names(part) for part in compounds)
    around = frozenset(name for part in others for name in part)
    return _Rule(last, around, _weight([*last, *around]), block)


def _names(compound: str) -> frozenset[str]:
    return frozenset(name.translate(_AS_WRITTEN) for name in _NAME.findall(compound))


def _weight(names: Sequence[str]) -> tuple[int, int, int]:
    """The rule with more ids wins, then the one with more classes, then the one with more names of elements."""
    ids, classes = sum(n[0] == "#" for n in names), sum(n[0] == "." for n in names)
    return ids, classes, len(names) - ids - classes
