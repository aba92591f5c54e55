"""Renders CommonMark as the markup of a platform. Pure; called by `parts.py`.

A `Rich` text is plain text with spans; it becomes entities (offsets in UTF-16 units, as Telegram counts them) or plain
text, or text with the marks of a dialect. HTML is the output of markdown-it, with HTML in the source escaped. Next:
`marking.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct

from switchboard.connectors.kernel.chunking import length
from switchboard.connectors.kernel.marking import Rich, TextSpan, defuse_mentions, defuse_spans, text_with_marks
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import COMMONMARK, WHATSAPP, Dialect, Markup

_SPANS: Final = {
    "strong": "bold",
    "em": "italic",
    "s": "strikethrough",
    "link": "text_link",
    "blockquote": "blockquote",
}
_LONGEST: Final = 200_000
"""Characters of a text that is parsed; a longer one takes too much time, and is no message for people."""
_BULLET: Final = "• "
_DIALECTS: Final[Mapping[str, Dialect]] = {"whatsapp": WHATSAPP}
_INDENT: Final = "    "
"""Of lists within others, where marks make them: enough below a bullet as well as below a number."""
_RULE: Final = "———"


class Rendered(Struct, frozen=True):
    """The rendered result: `text` is plain, `markup` is in the platform's format."""

    text: str
    markup: JsonObject | None = None


def render(source: str, markup: Markup, dialect: Dialect = COMMONMARK, mentions: str = "") -> Rendered:
    """`entities` → {"entities": […]}, `html` → {"html": …}, `markdown`, `whatsapp` → {…: the text with marks}.

    `dialect`: that of `markdown`; `mentions`: the pattern of what must notify nobody. A text that the parser cannot
    process stays as written.
    """
    rich = _read_source(source)
    if rich is None:
        return Rendered(defuse_mentions(source, mentions))
    rich = defuse_spans(rich, mentions)
    if markup == "entities":
        return Rendered(rich.text, {"entities": entities(rich)})
    return Rendered(defuse_mentions(_plain(rich), mentions), _markup_of(source, markup, dialect, mentions))


def _read_source(source: str) -> Rich | None:
    """None if it cannot be read, or says nothing then."""
    if len(source) > _LONGEST:
        return None
    try:
        rich = rich_text(source)
    except RecursionError:
        return None
    return rich if rich.text.strip() else None


def _markup_of(source: str, markup: Markup, dialect: Dialect, mentions: str) -> JsonObject | None:
    if markup == "html":
        return {"html": html(source)}
    if markup == "plain":
        return None
    dialect = _DIALECTS.get(markup, dialect)
    rich = defuse_spans(rich_text(source, dialect.bullet, _INDENT), mentions)
    return {markup: defuse_mentions(text_with_marks(rich, dialect), mentions)}


def rich_text(source: str, bullet: str = _BULLET, indent: str = "  ") -> Rich:
    """The words of a CommonMark text, with their spans. `indent` stands before each item of a list within another."""
    writer = _Writer(source.split("\n"), bullet, indent)
    writer.blocks(_parser().parse(source))
    text = "".join(writer.parts).rstrip()
    # Of spans of the same words the outer one, which ends last, comes first.
    spans = [TextSpan(span.start, min(span.end, len(text)), span.kind, span.argument) for span in writer.spans[::-1]]
    return Rich(text, tuple(sorted((s for s in spans if s.start < s.end), key=lambda s: (s.start, -s.end))))


def html(source: str) -> str:
    """HTML of a CommonMark text; HTML in the source is shown, not interpreted."""
    rendered: str = _parser().render(source)
    return rendered


def entities(rich: Rich) -> list[JsonObject]:
    """The spans in Telegram's form: offset and length in UTF-16 units."""
    return [_entity(rich.text, span) for span in rich.spans]


def _entity(text: str, span: TextSpan) -> JsonObject:
    entity: JsonObject = {
        "type": span.kind,
        "offset": length(text[: span.start], "utf16"),
        "length": length(text[span.start : span.end], "utf16"),
    }
    argument = {"text_link": "url", "pre": "language"}.get(span.kind)
    return entity | ({argument: span.argument} if argument and span.argument else {})


def _plain(rich: Rich) -> str:
    """The words, with each link followed by its target."""
    parts, at = [], 0
    for span in sorted((s for s in rich.spans if s.kind == "text_link"), key=lambda s: s.end):
        parts.append(rich.text[at : span.end])
        at = span.end
        if span.argument != rich.text[span.start : span.end]:
            parts.append(f" ({span.argument})")
    return "".join(parts) + rich.text[at:]


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    parser.add_render_rule("image", _image)
    parser.parse("-")  # it prepares its rules on first use, which is not thread-safe
    return parser


def _image(_: object, tokens: Sequence[Token], at: int, *_more: object) -> str:
    """Render as a link: an image would be fetched unasked, telling its server whatever the address contains."""
    address, label = escape(str(tokens[at].attrs["src"])), escape(tokens[at].content)
    return f'<a href="{address}">{label or address}</a>'


@dataclass(slots=True)
class _Writer:
    """Walks the tokens of a text and writes its words."""

    lines: Sequence[str]
    bullet: str
    indent: str
    parts: list[str] = field(default_factory=list)
    length: int = 0
    spans: list[TextSpan] = field(default_factory=list)
    open: list[tuple[str, int, str]] = field(default_factory=list)
    lists: list[int | None] = field(default_factory=list)
    fresh: bool = True
    """Nothing stands before the next block, or only the bullet that it belongs to."""

    def write(self, text: str) -> None:
        self.parts.append(text)
        self.length += len(text)

    def blocks(self, tokens: Sequence[Token]) -> None:
        skip = _Skipped()
        for token in tokens:
            if not skip.over(token):
                self.block(token)

    def block(self, token: Token) -> None:
        match token.type:
            case "inline":
                self.inlines(token)
            case "bullet_list_open":
                self.lists.append(None)
            case "ordered_list_open":
                self.lists.append(int(token.attrGet("start") or 1))
            case "bullet_list_close" | "ordered_list_close":
                self.lists.pop()
            case "list_item_open":
                self.item(token)
            case "paragraph_open" | "heading_open" | "blockquote_open":
                self.begin(token)
                kind = {"heading_open": "bold", "blockquote_open": "blockquote"}.get(token.type, "")
                self.start(kind, token.tag.removeprefix("h") if token.type == "heading_open" else "")
            case "paragraph_close" | "heading_close" | "blockquote_close":
                self.stop()
            case _:
                self.whole(token)

    def whole(self, token: Token) -> None:
        """A token without inner markup: code, a table (which stays as written), or a rule."""
        match token.type:
            case "fence" | "code_block":
                self.verbatim(token, token.content.removesuffix("\n"))
            case "table_open":
                first, end = token.map or [0, 0]
                self.verbatim(token, "\n".join(self.lines[first:end]))
            case "hr":
                self.begin(token)
                self.write(_RULE)
                self.fresh = False
            case _:
                pass

    def begin(self, token: Token) -> None:
        """Begin a block on a line of its own, after the same gap as in the source."""
        if self.fresh:
            return
        first = (token.map or [0])[0]
        gap = first > 0 and not self.lines[first - 1].strip(" \t>")
        self.write("\n\n" if gap else "\n")
        self.write(self.indent * (len(self.lists) - 1 if token.type == "list_item_open" else len(self.lists)))
        self.fresh = token.type == "blockquote_open"

    def item(self, token: Token) -> None:
        self.begin(token)
        number = self.lists[-1]
        self.write(self.bullet if number is None else f"{number}. ")
        if number is not None:
            self.lists[-1] = number + 1
        self.fresh = True

    def verbatim(self, token: Token, content: str) -> None:
        self.begin(token)
        self.spans.append(TextSpan(self.length, self.length + len(content), "pre", token.info.strip().split(" ")[0]))
        self.write(content)
        self.fresh = False

    def inlines(self, token: Token) -> None:
        for child in token.children or []:
            self.inline(child)

    def inline(self, token: Token) -> None:
        self.fresh = False
        match token.type:
            case "text" | "html_inline":
                self.write(token.content)
            case "softbreak" | "hardbreak":
                self.write("\n")
            case "code_inline":
                self.spans.append(TextSpan(self.length, self.length + len(token.content), "code"))
                self.write(token.content)
            case "image":
                start = self.length
                self.write(token.content or str(token.attrGet("src") or ""))
                self.spans.append(TextSpan(start, self.length, "text_link", str(token.attrGet("src") or "")))
            case _ if token.nesting == 1:
                self.start(_SPANS.get(token.type.removesuffix("_open"), ""), str(token.attrGet("href") or ""))
            case _ if token.nesting == -1:
                self.stop()
            case _:
                self.write(token.content)

    def start(self, kind: str, argument: str = "") -> None:
        self.open.append((kind, self.length, argument))

    def stop(self) -> None:
        kind, start, argument = self.open.pop()
        nested = kind == "blockquote" and any(other == kind for other, *_ in self.open)
        if kind and not nested:
            self.spans.append(TextSpan(start, self.length, kind, argument))
        self.fresh = self.fresh and self.length == start


@dataclass(slots=True)
class _Skipped:
    """Skips the inside of a table, whose source is shown instead."""

    inside: bool = False

    def over(self, token: Token) -> bool:
        """Whether to skip this token."""
        was, self.inside = self.inside, (self.inside or token.type == "table_open") and token.type != "table_close"
        return was
