"""Writes rich text with the marks of a platform, such as those of a Markdown dialect. Pure; called by `rendering.py`.

Marks stand around a span on each of its lines; a quotation has one before each line, and code its own lines. What would
be a mark and is none is escaped where the dialect can. Next: `rendering.py`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec import Struct

from switchboard.ports.connector import Dialect

_QUOTE: Final = "> "
_FENCE: Final = "```"
_UNSEEN: Final = "\u200b"
"""A space without width, which breaks what would be a mention or the end of a block."""
_URL: Final = re.compile(r"https?://[^\s<>]+")
_SPECIAL: Final = re.compile(
    r"""
      (?<!\w)_ | _(?!\w) | (?<!\s)\* | \*(?!\s) | `       # not within a word, or between blanks
    | ~(?=~) | (?<=~)~ | ~(?=\S[^~\n]*~) | \|(?=\|)
    | \[(?=[^\[\]\n]*\]\() | <(?=[\w/!?@\#:]) | \\(?=[!-/:-@\[-`{-~])
    | ^\#(?=\#{0,5}\s) | ^>
    """,
    re.MULTILINE | re.VERBOSE,
)
"""What a reader of the text may take for a mark."""
_RUN: Final = re.compile("`+")


class TextSpan(Struct, frozen=True):
    """A span of a text, in code points, and its kind.

    `argument`: the URL of a link, the language of a block, the level of a heading, which is `bold`.
    """

    start: int
    end: int
    kind: str
    argument: str = ""


class Rich(Struct, frozen=True):
    """Plain text, and the spans in it, outer ones first."""

    text: str
    spans: tuple[TextSpan, ...] = ()


def defuse_spans(rich: Rich, mentions: str) -> Rich:
    """The same, in which nothing that matches this pattern notifies anybody; it looks the same."""
    found = [one.start() + 1 for one in re.finditer(mentions, rich.text)] if mentions else []
    spans = (
        TextSpan(
            one.start + bisect_right(found, one.start),
            one.end + bisect_left(found, one.end),
            one.kind,
            _encode_mentions(one.argument, mentions) if one.kind == "text_link" else one.argument,
        )
        for one in rich.spans
    )
    return Rich(defuse_mentions(rich.text, mentions), tuple(spans)) if mentions else rich


def defuse_mentions(text: str, mentions: str) -> str:
    """The same for a text without spans."""
    return re.sub(mentions, lambda one: f"{one[0][0]}{_UNSEEN}{one[0][1:]}", text) if mentions else text


def _encode_mentions(url: str, mentions: str) -> str:
    return re.sub(mentions, lambda one: f"%{ord(one[0][0]):02X}{one[0][1:]}", url)


def text_with_marks(rich: Rich, dialect: Dialect) -> str:
    """The text with the marks of the dialect."""
    writer = _MarkWriter(rich, dialect)
    writer.write_text()
    return "".join(writer.parts)


Write = Callable[[], None]


class _Pair(Struct, frozen=True):
    """A part of the text with marks around it, and what writes them."""

    start: int
    end: int
    opening: Write
    closing: Write


@dataclass(slots=True)
class _MarkWriter:
    """Writes a text from its beginning; `parts` never end within a line that a quotation has not been marked on."""

    rich: Rich
    dialect: Dialect
    parts: list[str] = field(default_factory=list)
    quoted: bool = False
    literal: bool = False
    """Within code and addresses nothing is escaped."""
    block: bool = False
    """Within a block of code nothing may look like its end."""

    def write_text(self) -> None:
        marks = list[tuple[int, int, int, Write]]()  # at one place, what ends there comes before what begins there
        for depth, pair in enumerate(self._all_pairs()):
            marks += [(pair.start, 1, depth, pair.opening), (pair.end, 0, -depth, pair.closing)]
        at = 0
        for place, _, _, write in sorted(marks, key=lambda mark: mark[:3]):
            self._write_words(at, place)
            write()
            at = place
        self._write_words(at, len(self.rich.text))

    def _all_pairs(self) -> Iterator[_Pair]:
        """The marks of all spans, those of outer ones first. In code there are none, and none within their like."""
        for depth, span in enumerate(self.rich.spans):
            around = (one.kind for one in self.rich.spans[:depth] if one.start <= span.start and span.end <= one.end)
            if not {span.kind, "pre", "code"}.intersection(around):
                yield from self._pairs_around(span)

    def _pairs_around(self, span: TextSpan) -> Iterator[_Pair]:
        where = span.start, span.end
        match span.kind:
            case "blockquote":
                yield _Pair(*where, self._open_quote, partial(self._close_quote, span.end))
            case "pre":
                yield _Pair(*where, partial(self._open_block, span), partial(self._close_block, span.end))
            case "code":
                fence = self._code_fence(self.rich.text[span.start : span.end])
                yield _Pair(*where, partial(self._open_literal, fence), partial(self._close_literal, fence[::-1]))
            case "text_link":
                yield self._pair_around_link(span)
            case _:
                yield from self._pairs_around_words(span)

    def _pairs_around_words(self, span: TextSpan) -> Iterator[_Pair]:
        level, text = int(span.argument or 0), self.rich.text
        mark = {"bold": self.dialect.bold, "italic": self.dialect.italic}.get(span.kind, self.dialect.strikethrough)
        opening, closing = partial(self._write_marked, mark), partial(self._write_marked, mark)
        if 0 < level <= self.dialect.headings:
            opening, closing = partial(self._write_marked, f"{'#' * level} "), partial(self._write_marked, "")
        for start, end in _lines_of(text, span):
            if self.dialect.within_words or not _is_within_word(text, start, end):
                yield _Pair(start, end, opening, closing)

    def _pair_around_link(self, span: TextSpan) -> _Pair:
        url, words = span.argument, self.rich.text[span.start : span.end]
        opening, closing = partial(self._write_marked, ""), partial(self._write_marked, f" ({url})")
        if url == words:
            opening, closing = partial(self._open_literal, ""), partial(self._close_literal, "")
        elif self.dialect.links and not {"[", "]"}.intersection(words):
            target = url.replace("(", "%28").replace(")", "%29")
            opening, closing = partial(self._write_marked, "["), partial(self._write_marked, f"]({target})")
        return _Pair(span.start, span.end, opening, closing)

    def _code_fence(self, code: str) -> str:
        """The opening mark of code within a line, which is longer than any in it; it is closed by its mirror image."""
        longest = max(map(len, _RUN.findall(code)), default=0)
        if longest and not self.dialect.escapes:
            return ""
        return "`" * (longest + 1) + (" " if longest else "")

    def _write_marked(self, text: str) -> None:
        self.parts.append(text.replace("\n", f"\n{_QUOTE}") if self.quoted else text)

    def _write_words(self, start: int, end: int) -> None:
        text = self.rich.text[start:end]
        if self.block:
            self._write_marked(text.replace(_FENCE, f"``{_UNSEEN}`"))
        else:
            self._write_marked(text if self.literal else self._escape_words(start, end))

    def _escape_words(self, start: int, end: int) -> str:
        """A part of the text, in which everything that is no mark is none."""
        text, at, found = self.rich.text, start, list[str]()
        urls = [one.span() for one in _URL.finditer(text, start, end)]
        for one in _SPECIAL.finditer(text, start, end):
            if one[0] in self.dialect.escapes and not any(first <= one.start() < last for first, last in urls):
                found += [text[at : one.start()], "\\"]
                at = one.start()
        return "".join((*found, text[at:end]))

    def _open_literal(self, mark: str) -> None:
        self._write_marked(mark)
        self.literal = True

    def _close_literal(self, mark: str) -> None:
        self.literal = False
        self._write_marked(mark)

    def _open_quote(self) -> None:
        self.quoted = True
        self.parts.append(_QUOTE)

    def _close_quote(self, end: int) -> None:
        """A line directly below would belong to it."""
        self.quoted = False
        if self.rich.text[end : end + 1] == "\n" and self.rich.text[end : end + 2] != "\n\n":
            self._write_marked("\n")

    def _open_block(self, span: TextSpan) -> None:
        """Its lines are not indented, unlike those of the list that it stands in."""
        line = self._pop_line()
        self.parts.append(line if line.strip(" ") else "")
        language = span.argument if self.dialect.code_language else ""
        self._write_marked(("\n" if line.strip(" >") else "") + f"{_FENCE}{language}\n")
        self.block = True

    def _pop_line(self) -> str:
        """Take back what is written of the present line."""
        written = "".join(self.parts)
        begin = written.rfind("\n") + 1
        self.parts[:] = [written[:begin]]
        return written[begin:]

    def _close_block(self, end: int) -> None:
        self.block = False
        self._write_marked(f"\n{_FENCE}" + ("" if self.rich.text[end : end + 1] in ("", "\n") else "\n"))


def _lines_of(text: str, span: TextSpan) -> Iterator[tuple[int, int]]:
    """The lines of a span that have words, without the blanks around these."""
    for one in re.finditer(r"[^\s](?:[^\n]*[^\s])?", text[span.start : span.end]):
        yield span.start + one.start(), span.start + one.end()


def _is_within_word(text: str, start: int, end: int) -> bool:
    return text[start - 1 : start].isalnum() or text[end : end + 1].isalnum()
