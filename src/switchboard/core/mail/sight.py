"""Whether a person would see the text at some point of an HTML document.

Called by `core/mail/hypertext.py`, which enters and leaves elements in document order; they may not be properly nested,
because formatting elements overlap. In: the values that `core/mail/css.py` found for each element; out: yes or no.
Inherited values are kept per property, and values of ended elements are dropped when they are next looked at, so each
element costs a fixed number of operations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

_T = TypeVar("_T")
_Rgb = tuple[int, int, int]
_Colour = _Rgb | None
"""None if it cannot be known, such as over a picture."""

_NO_COLOUR: Final = (-1, -1, -1)
"""Transparent."""
_BLACK: Final = (0, 0, 0)
_WHITE: Final = (255, 255, 255)
_NAMED: Final = {
    "black": "#000",
    "white": "#fff",
    "silver": "#c0c0c0",
    "gray": "#808080",
    "grey": "#808080",
    "red": "#f00",
    "maroon": "#800000",
    "yellow": "#ff0",
    "olive": "#808000",
    "lime": "#0f0",
    "green": "#008000",
    "aqua": "#0ff",
    "teal": "#008080",
    "blue": "#00f",
    "navy": "#000080",
    "fuchsia": "#f0f",
    "purple": "#800080",
    "orange": "#ffa500",
    "lightgray": "#d3d3d3",
    "lightgrey": "#d3d3d3",
    "whitesmoke": "#f5f5f5",
    "ghostwhite": "#f8f8ff",
    "floralwhite": "#fffaf0",
    "snow": "#fffafa",
    "ivory": "#fffff0",
    "azure": "#f0ffff",
    "mintcream": "#f5fffa",
    "transparent": "#0000",
}
_LINK: Final = (0, 0, 238)
_SAME: Final = 16
"""Colours whose components differ by no more than this cannot be distinguished."""
_TINY_PX: Final = 2.0
_FAR_PX: Final = 500.0
_SPECK_PX: Final = 1.0
_FAINT: Final = 0.05
_USUAL_PX: Final = 16.0

_NUMBER = re.compile(r"([+-]?(?:[0-9]{1,8}(?:\.[0-9]{0,8})?|\.[0-9]{1,8}))(px|pt|pc|in|cm|mm|r?em|ex|ch|vw|vh|%)?")
_PX: Final = {"px": 1.0, "pt": 4 / 3, "pc": 16.0, "in": 96.0, "cm": 37.8, "mm": 3.78, "rem": 16.0}
_HEX = re.compile(r"#([0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})")
_RGB = re.compile(r"rgba?\(\s*([0-9]{1,3})[\s,]+([0-9]{1,3})[\s,]+([0-9]{1,3})(?:\s*[,/]\s*([0-9.]{1,8}))?%?\s*\)")
_OPACITY = re.compile(r"opacity\(\s*([0-9.]{1,8})")
_SCALE = re.compile(r"scale[xy3]?d?\(\s*([0-9.]{1,8})")
_MOVED = re.compile(r"translate[xy3]?d?\(\s*(-?[0-9.]{1,8}[a-z%]{0,3})")
_INSET = re.compile(r"inset\(\s*([0-9.]{1,8})%")
_PAINTED = re.compile(r"url\(|gradient\(|image-set\(")
_BACKGROUNDS: Final = ("background", "background-image", "background-color")
_UNPAINTED: Final = frozenset({"none", "transparent", "inherit", "initial", "unset", "0"})
_WORD = re.compile(r"rgba?\([^()]*\)|[^\s]+")


@dataclass(slots=True, eq=False)
class Element:
    """An open element. `names`: as used in selectors; `at` and `begins`: its positions on the stack and in the text.

    `ends`: the mark that is set where it ends; `keeps_lines`: line ends in it are shown as such.
    """

    tag: str
    names: frozenset[str] = frozenset()
    at: int = 0
    begins: int = 0
    target: str = ""
    is_open: bool = True
    hides: bool = False
    ends: str = ""
    keeps_lines: bool = False


class _Inherited(Generic[_T]):
    """The values of a property, each valid while its element is open; the last one counts."""

    def __init__(self, initial: _T) -> None:
        self._initial = initial
        self._set: list[tuple[Element, _T]] = []

    def set(self, element: Element, value: _T) -> None:
        self._set.append((element, value))

    @property
    def value(self) -> _T:
        while self._set and not self._set[-1][0].is_open:
            self._set.pop()
        return self._set[-1][1] if self._set else self._initial


class Sight:
    """What applies at one point of the document."""

    def __init__(self) -> None:
        self._hiding = 0
        self._visible = _Inherited(initial=True)
        self._size = _Inherited(_USUAL_PX)
        self._indent = _Inherited(0.0)
        self._colour: _Inherited[_Colour] = _Inherited(_BLACK)
        self._background: _Inherited[_Colour] = _Inherited(_WHITE)

    def enter(self, element: Element, values: Mapping[str, str]) -> None:
        """The element begins; `values` come from its attributes and styles."""
        if values:  # most elements have none
            element.hides = element.hides or any(hides(values) for hides in _WAYS)
            self._dress(element, values)
        self._hiding += element.hides
        if element.target and values.get("color", "inherit") == "inherit":
            self._colour.set(element, _LINK)

    def _dress(self, element: Element, values: Mapping[str, str]) -> None:
        if "visibility" in values:
            self._visible.set(element, values["visibility"] not in {"hidden", "collapse"})
        size = values.get("font-size") or _size_of_font(values.get("font", ""))
        if size and (px := _length(size, self._size.value)) is not None:
            self._size.set(element, px)
        if (indent := _length(values.get("text-indent", ""))) is not None:
            self._indent.set(element, indent)
        if values.get("color", "inherit") != "inherit":
            self._colour.set(element, _colour(values["color"]))
        self._paint(element, values)

    def leave(self, element: Element) -> None:
        """The element has ended."""
        element.is_open = False
        self._hiding -= element.hides

    def __bool__(self) -> bool:
        return not self._hiding and self._visible.value and self._size.value > _TINY_PX and self._is_in_view()

    def _is_in_view(self) -> bool:
        return self._indent.value > -_FAR_PX and not _alike(self._colour.value, self._background.value)

    def _paint(self, element: Element, values: Mapping[str, str]) -> None:
        said = " ".join(values[name] for name in _BACKGROUNDS if name in values)
        words = _WORD.findall(said)
        if not words or _UNPAINTED.issuperset(words):
            return
        found = [colour for word in words if (colour := _colour(word)) is not None]
        if _PAINTED.search(said) or not found:  # a picture, or a colour that is not known here
            self._background.set(element, None)
        elif found[-1] != _NO_COLOUR:
            self._background.set(element, found[-1])


def _is_out(values: Mapping[str, str]) -> bool:
    return values.get("display") == "none" or values.get("mso-hide") == "all"


def _is_transparent(values: Mapping[str, str]) -> bool:
    told = _OPACITY.match(values.get("filter", ""))
    shares = (_share(values.get("opacity", "")), _share(told[1]) if told else None)
    return any(share is not None and share <= _FAINT for share in shares)


def _is_clipped(values: Mapping[str, str]) -> bool:
    """Whether it is clipped to nothing, or nearly."""
    inset = _INSET.match(values.get("clip-path", ""))
    if inset and _number(inset[1]) >= 50:
        return True
    if values.get("clip", "").startswith("rect(") and values.get("position") in {"absolute", "fixed"}:
        return all((_length(part) or 0.0) <= _SPECK_PX for part in re.split(r"[\s,]+", values["clip"][5:].rstrip(") ")))
    cut = any(values.get(name) in {"hidden", "clip"} for name in ("overflow", "overflow-x", "overflow-y"))
    return cut and _is_tiny(values)


def _is_tiny(values: Mapping[str, str]) -> bool:
    sizes = (_length(values.get(name, "")) for name in ("height", "max-height", "width", "max-width"))
    return any(size is not None and size <= _SPECK_PX for size in sizes)


def _is_away(values: Mapping[str, str]) -> bool:
    """Whether it is outside the window, or shrunk to a point."""
    scale, moved = _SCALE.search(values.get("transform", "")), _MOVED.search(values.get("transform", ""))
    if (scale and _number(scale[1]) <= _FAINT) or (moved and _is_far(moved[1])):
        return True
    sides = ("left", "right", "top", "bottom") if values.get("position") in {"absolute", "fixed", "relative"} else ()
    margin = values.get("margin", "").split()
    return any(_is_far(values.get(side, "")) for side in (*sides, "margin-left", "margin-top")) or any(
        _is_far(part) for part in margin
    )


_WAYS: Final[tuple[Callable[[Mapping[str, str]], bool], ...]] = (_is_out, _is_transparent, _is_clipped, _is_away)
"""Ways in which an element hides everything inside it, whatever the styles inside say."""


def _is_far(value: str) -> bool:
    px = _length(value)
    return px is not None and px <= -_FAR_PX


def _alike(colour: _Colour, background: _Colour) -> bool:
    if colour is None or colour == _NO_COLOUR:
        return colour == _NO_COLOUR
    return background is not None and all(abs(a - b) <= _SAME for a, b in zip(colour, background, strict=True))


def _length(value: str, relative_to: float = _USUAL_PX) -> float | None:
    """The length in pixels; None if it is not a length."""
    found = _NUMBER.fullmatch(value)
    if found is None:
        return None
    number, unit = float(found[1]), found[2] or "px"
    if unit in _PX:
        return number * _PX[unit]
    return number * relative_to * {"%": 0.01, "ex": 0.5, "ch": 0.5}.get(unit, 1.0)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0


def _share(value: str) -> float | None:
    found = _NUMBER.fullmatch(value)
    return None if found is None else float(found[1]) * (0.01 if found[2] == "%" else 1)


def _size_of_font(font: str) -> str:
    """The size in the shorthand: `12px` in `bold 12px/1.5 Arial`. A bare number is a weight, unless it is zero."""
    words = (word.partition("/")[0] for word in font.split())
    return next(
        (word for word in words if (found := _NUMBER.fullmatch(word)) and (found[2] or not float(found[1]))), ""
    )


def _colour(value: str) -> _Colour:
    if found := _HEX.fullmatch(_NAMED.get(value, value)):
        digits = found[1] if len(found[1]) > 4 else "".join(digit * 2 for digit in found[1])
        if digits[6:] == "00":
            return _NO_COLOUR
        return int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:6], 16)
    if found := _RGB.fullmatch(value):
        if found[4] is not None and _number(found[4]) <= _FAINT:
            return _NO_COLOUR
        return int(found[1]), int(found[2]), int(found[3])
    return None
