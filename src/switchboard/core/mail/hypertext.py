"""HTML as the text that a person would see, and whose words its lines are.

Called by `core/mail/reading.py`. In: HTML from a stranger; out: text with blocks on lines of their own and the targets
of links after them, and what the elements around each line say of its author. What a person cannot see must not reach
a model, so text that is hidden in any of the usual ways is dropped. Never raises. Time and memory are proportional to
the document: it is tokenized, but no tree is built, because tree builders reopen unclosed elements in every paragraph.
`core/mail/css.py` reads the styles, `core/mail/sight.py` judges them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from turbohtml import Token, TokenType, tokenize

from switchboard.core.mail.cites import Citing, citing_of
from switchboard.core.mail.css import NOTHING, Sheet, TooMuch, applies, block_of
from switchboard.core.mail.marks import CUT_MARK
from switchboard.core.mail.sight import Element, Sight
from switchboard.core.passages.plain import Hint

_MAX_URL: Final = 500
_MAX_DEPTH: Final = 20
"""Maximum marks of quotations before a line."""
_LOOKED_AT: Final = 20
"""How many pieces of a link's text are searched for its target; if found, it is not repeated."""
_FUEL: Final = 4
"""Comparisons with style rules that are allowed per character of the document."""

_UNSEEN: Final = frozenset({"script", "style", "title", "template", "noscript", "iframe", "noembed", "noframes"})
_BLOCKS: Final = frozenset(
    {
        *("address", "article", "aside", "blockquote", "body", "br", "center", "dd", "div", "dl", "dt", "fieldset"),
        *("figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol"),
        *("p", "pre", "section", "table", "tr", "ul"),
    }
)
_SPECIAL: Final = _BLOCKS | _UNSEEN | {"button", "caption", "details", "dir", "figcaption", "hgroup", "listing", "menu"}
"""Elements that the end tag of an ordinary element, such as span, cannot close."""
_EMPTY: Final = frozenset(
    {
        *("area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "img", "input", "keygen", "link"),
        *("meta", "param", "source", "track", "wbr"),
    }
)
_FORMATTING: Final = frozenset(
    ("a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u")
)
"""These stay open after the block that they were opened in, until their own end tag."""
_HEADINGS: Final = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_PREFORMATTED: Final = frozenset(("listing", "plaintext", "pre", "textarea", "xmp"))
_CELLS: Final = frozenset(("td", "th"))
_ROWS: Final = frozenset(("tbody", "thead", "tfoot"))
_WHOLE: Final = frozenset(("html", "head", "body"))
_ENDS_P: Final = (_BLOCKS - {"br", "body", "table", "tr"}) | {"details", "dir", "hgroup", "listing", "menu"}
_LIKE: Final[Mapping[str, frozenset[str]]] = {
    "li": frozenset({"li"}),
    **dict.fromkeys(("dd", "dt"), frozenset({"dd", "dt"})),
}
"""Elements that end where another of the same kind begins."""
_OPAQUE: Final = _SPECIAL - {"address", "div", "p"}
"""Elements at which the search for the previous open item stops."""
_MARKS_OF: Final[Mapping[Citing, tuple[str, str]]] = {
    "": ("", ""),
    "quotes": ("\ue000", "\ue001"),
    "container": ("\ue002", "\ue003"),
    "attribution": ("\ue004", "\ue005"),
    "rest": ("\ue006", ""),
}
"""Characters set in the text where an element begins and ends, until it is split into lines."""
_STEPS: Final[Mapping[str, tuple[Citing, int]]] = {
    mark: (citing, step)
    for citing, marks in _MARKS_OF.items()
    for mark, step in zip(marks, (1, -1), strict=True)
    if mark
}
_LINE_END: Final = "\ue007"
"""A line end in preformatted text."""
_ITEM: Final = "\ue008"
"""The beginning of an item of a list."""
_MARKS = re.compile("([\ue000-\ue006\ue008])")
_OURS = re.compile("[\ue000-\ue008]")
_ALL_MARKS: Final = frozenset((*_STEPS, _ITEM))
_BLANKS = re.compile(r"\s+")
_SPACES = re.compile(r"[ \t\r\f\v\u00a0]+")


class HtmlLine(Struct, frozen=True):
    """A line of visible text. `depth`: how many quotations it is in; `hint`: what else the elements around it say.

    `is_item`: it begins an item of a list.
    """

    text: str
    depth: int = 0
    hint: Hint = ""
    is_item: bool = False

    @property
    def quoted(self) -> str:
        """The line as in a plain text, where `>` marks a quotation."""
        text = f"- {self.text}" if self.is_item else self.text
        return f"{'>' * min(self.depth, _MAX_DEPTH)} {text}" if self.depth else text


class HtmlText(Struct, frozen=True):
    """The visible text of an HTML document. `marked`: with marks of what the elements say; `is_whole`: nothing is cut.

    It is cut where the styles become too complex: the rest may or may not be hidden.
    """

    marked: str
    is_whole: bool

    @property
    def text(self) -> str:
        """The text without leading and trailing blanks; preformatted text has blanks in place of line ends."""
        said = "\n".join(line.text for line in _lines(self.marked.replace(_LINE_END, " ")))
        return said if self.is_whole else said + CUT_MARK

    @property
    def lines(self) -> list[HtmlLine]:
        """The lines, none of them blank."""
        found = _lines(self.marked.replace(_LINE_END, "\n"))
        return found if self.is_whole else [*found, HtmlLine(CUT_MARK.strip())]


def text_of_html(source: str) -> str:
    """The visible text of an HTML document or fragment; it ends with a mark if it is cut."""
    return read_html(source).text


def read_html(source: str) -> HtmlText:
    """The visible text, and what the elements around it say."""
    document = _Document()
    try:
        document.read(source)
    except TooMuch:
        return HtmlText(document.text(), is_whole=False)
    return HtmlText(document.text(), is_whole=True)


def _sheet_of(source: str) -> Sheet:
    """All styles apply to the whole document, wherever they are."""
    sources: list[str] = []
    here = False
    for token in tokenize(source) if "<style" in source.lower() else ():
        if here and token.type == TokenType.TEXT:
            sources.append(token.data or "")
        here = (
            token.type == TokenType.START_TAG and token.tag == "style" and applies(_attributes(token).get("media", ""))
        )
    return Sheet(sources, _FUEL * len(source))


def _attributes(token: Token) -> dict[str, str]:
    return {name: value or "" for name, value in token.attrs or ()}


class _Scope:
    """The open elements of the document, or of one table cell, which nothing inside it can close."""

    def __init__(self, cell: Element | None = None) -> None:
        self.cell = cell
        self.stack: list[Element] = []
        """All but formatting elements."""
        self.special: list[Element] = []
        self.opaque: list[Element] = []
        self.named: dict[str, list[Element]] = {}

    def last(self, tag: str) -> Element | None:
        """The innermost open element of that tag."""
        found = self.named.get(tag)
        return found[-1] if found else None


class _Document:
    """Follows the tokens of a document, and collects the visible text."""

    def __init__(self) -> None:
        self._sheet = Sheet((), 0)
        self._sight = Sight()
        self._scopes = [_Scope()]
        self._keeps_lines = 0
        self._around: Counter[str] = Counter()
        self._pieces: list[str] = []

    def read(self, source: str) -> None:
        """Read the whole document. Raises TooMuch."""
        self._sheet = _sheet_of(source)
        self._open("html", {})  # both exist even if not written
        self._open("body", {})
        for token in tokenize(source):
            self._take(token)

    def text(self) -> str:
        """The collected text, with the targets of links that are still open."""
        while len(self._scopes) > 1:
            self._leave_cell()
        while link := self._scope.last("a"):
            self._end(link)
        return "".join(self._pieces)

    def _take(self, token: Token) -> None:
        tag = token.tag or ""
        if token.type == TokenType.TEXT:
            if self._sight:
                self._pieces.append(self._collapse_blanks(_OURS.sub("", token.data or "")))
        elif token.type == TokenType.START_TAG:
            self._start(tag, _attributes(token))
        elif token.type == TokenType.END_TAG:
            self._finish(tag)

    def _collapse_blanks(self, text: str) -> str:
        if not self._keeps_lines:
            return _BLANKS.sub(" ", text)
        return _LINE_END.join(_BLANKS.sub(" ", line) for line in text.splitlines() or [""]) + _LINE_END * text.endswith(
            "\n"
        )

    @property
    def _scope(self) -> _Scope:
        return self._scopes[-1]

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in _CELLS or tag in _ROWS or tag == "tr":
            if not self._make_room(tag):
                return
        else:
            self._end_before(tag)
        self._break(tag)
        if tag in _EMPTY:
            return
        element = self._open(tag, attributes)
        if tag in _CELLS:
            self._scopes.append(_Scope(element))
        elif tag in _FORMATTING:
            self._scope.named.setdefault(tag, []).append(element)
        else:
            self._push(element)

    def _open(self, tag: str, attributes: dict[str, str]) -> Element:
        element = Element(tag, begins=len(self._pieces), hides=tag in _UNSEEN or "hidden" in attributes)
        if tag == "a":
            element.target = _OURS.sub("", attributes.get("href", "")).strip()
        begins, element.ends = _MARKS_OF[citing_of(tag, attributes)]
        if begins or tag == "li":
            self._pieces.append(begins or _ITEM)
        if self._sheet:
            classes = (f".{name}" for name in attributes.get("class", "").lower().split())
            mark = attributes.get("id", "").lower()
            element.names = frozenset((tag, *classes, *((f"#{mark}",) if mark else ())))
        own = block_of(attributes["style"]) if "style" in attributes else NOTHING
        values = {**_values_of(attributes), **self._sheet.style_of_element(element.names, self._around, own)}
        element.keeps_lines = tag in _PREFORMATTED or values.get("white-space", "").startswith(("pre", "break-spaces"))
        self._keeps_lines += element.keeps_lines
        self._sight.enter(element, values)
        self._around.update(element.names)
        return element

    def _push(self, element: Element) -> None:
        scope = self._scope
        element.at = len(scope.stack)
        scope.stack.append(element)
        scope.named.setdefault(element.tag, []).append(element)
        if element.tag in _SPECIAL:
            scope.special.append(element)
        if element.tag in _OPAQUE:
            scope.opaque.append(element)

    def _end_before(self, tag: str) -> None:
        """End the elements that end implicitly where this one begins."""
        scope = self._scope
        if tag in _LIKE and scope.opaque and scope.opaque[-1].tag in _LIKE[tag]:
            self._pop_to(scope.opaque[-1])
        if tag in _ENDS_P and (paragraph := scope.last("p")):
            self._pop_to(paragraph)
        if tag in _HEADINGS and scope.stack and scope.stack[-1].tag in _HEADINGS:
            self._pop_to(scope.stack[-1])
        if tag == "option" and scope.stack and scope.stack[-1].tag == "option":
            self._pop_to(scope.stack[-1])
        if tag == "a" and (link := scope.last("a")):
            self._end(link)

    def _make_room(self, tag: str) -> bool:
        """End whatever a row or cell cannot be inside; False if there is no table for it."""
        if self._scope.cell and not self._scope.last("table"):
            self._leave_cell()
        table = self._scope.last("table")
        if table is None:
            return False
        keep = {"table"} | (_ROWS if tag not in _ROWS else set()) | ({"tr"} if tag in _CELLS else set())
        while self._scope.stack[-1].tag not in keep:
            self._pop_to(self._scope.stack[-1])
        return True

    def _finish(self, tag: str) -> None:
        if tag in _WHOLE or tag in _EMPTY - {"br"}:
            return
        self._break(tag)
        if tag in _CELLS or tag in _ROWS or tag in {"table", "tr"}:
            self._finish_table_part(tag)
            return
        scope = self._scope
        element = scope.last(tag)
        if tag in _HEADINGS:
            element = max(filter(None, map(scope.last, _HEADINGS)), key=_place, default=None)
        if element is None:
            return
        if tag in _FORMATTING:
            self._end(element)
        elif tag in _SPECIAL or not scope.special or element.at > scope.special[-1].at:
            self._pop_to(element)

    def _finish_table_part(self, tag: str) -> None:
        if self._scope.cell and not self._scope.last("table"):
            self._leave_cell()
        if element := self._scope.last(tag):
            self._pop_to(element)

    def _leave_cell(self) -> None:
        scope = self._scope
        for elements in scope.named.values():
            while elements:
                self._close(elements.pop())
        self._scopes.pop()
        if scope.cell:
            self._close(scope.cell)

    def _pop_to(self, element: Element) -> None:
        """End the element, and everything inside it that does not continue after it."""
        scope = self._scope
        while scope.stack:
            last = scope.stack.pop()
            for kind in (scope.special, scope.opaque):
                if kind and kind[-1] is last:
                    kind.pop()
            self._end(last)
            if last is element:
                return

    def _end(self, element: Element) -> None:
        """End an element that is the innermost of its tag."""
        self._scope.named[element.tag].pop()
        self._close(element)

    def _close(self, element: Element) -> None:
        if element.target and self._sight:
            inside = self._pieces[element.begins : element.begins + _LOOKED_AT]
            self._pieces.append(_target(element.target, "".join(inside)))
        if element.ends:
            self._pieces.append(element.ends)
        self._keeps_lines -= element.keeps_lines
        self._sight.leave(element)
        self._around.subtract(element.names)

    def _break(self, tag: str) -> None:
        if tag in _BLOCKS or tag in _CELLS:
            self._pieces.append("\n" if tag in _BLOCKS else " ")


def _values_of(attributes: Mapping[str, str]) -> dict[str, str]:
    """The values of presentational attributes; `text` is that of the body."""
    said = (("color", "color"), ("text", "color"), ("bgcolor", "background-color"))
    found = {name: attributes[key].lower().strip() for key, name in said if key in attributes}
    return found | ({"background": "url("} if "background" in attributes else {})


def _place(element: Element) -> int:
    return element.at


def _target(url: str, text: str) -> str:
    useful = url.lower().startswith(("http://", "https://", "mailto:")) and len(url) <= _MAX_URL
    return f" ({url})" if useful and url.removeprefix("mailto:") not in text else ""


class _Margin:
    """What the marks up to some point of the text say."""

    def __init__(self) -> None:
        self._open: Counter[Citing] = Counter()

    def take(self, mark: str) -> None:
        """Pass a mark."""
        if mark in _STEPS:
            citing, step = _STEPS[mark]
            self._open[citing] = max(0, self._open[citing] + step)

    @property
    def depth(self) -> int:
        """How many quotations are open."""
        return self._open["quotes"]

    def hint(self) -> Hint:
        """What is said of the next words; that all the rest is others' is said once."""
        if self._open.pop("rest", 0):
            return "rest"
        if self._open["attribution"] > 0:
            return "attribution"
        return "inside" if self._open["container"] > 0 else ""


def _lines(text: str) -> list[HtmlLine]:
    """The lines of a text with marks, without blank ones."""
    margin = _Margin()
    return [found for line in text.splitlines() if (found := _line(line, margin)) is not None]


def _line(line: str, margin: _Margin) -> HtmlLine | None:
    """The line, with the most that is said of any part of it."""
    if not _MARKS.search(line):
        words = _SPACES.sub(" ", line).strip()
        return HtmlLine(words, margin.depth, margin.hint()) if words else None
    depth, said, is_item = 0, list[str](), False
    hint: Hint = ""
    for piece in _MARKS.split(line):
        if piece in _ALL_MARKS:
            is_item = is_item or (piece == _ITEM and not "".join(said).strip())
            margin.take(piece)
            continue
        if piece.strip():
            depth, hint = max(depth, margin.depth), hint or margin.hint()
        said.append(piece)
    words = _SPACES.sub(" ", "".join(said)).strip()
    return HtmlLine(words, depth, hint, is_item) if words else None
