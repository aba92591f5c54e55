"""The HTML of a mail as people may look at it: with its looks, and without all that loads, runs or leads anywhere.

Called by `app/messages/contents.py`, for the page. In: the bytes of a mail, which a stranger wrote; out: a document
that is safe even before its sandbox, and what was taken out as text. What butlers read is `hypertext.py` instead.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from typing import Final

from msgspec import Struct
from turbohtml.clean import OnDisallowed, Policy, sanitize

from switchboard.core.mail.charsets import as_text
from switchboard.core.mail.head import or_none
from switchboard.core.mail.mime import MailPart, content, decoded_body, leaves, read_part

MOST_HTML: Final = 1_000_000
"""Characters of HTML that are shown; more is not mail that anybody reads."""
MOST_PICTURES: Final = 5_000_000
"""Bytes of pictures within the mail, all together."""
MOST_SHOWN_PICTURES: Final = 8_000_000
"""Characters of them in the document: a picture stands there in full wherever the mail repeats it."""
_MOST_LISTED: Final = 200
_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_TAGS: Final = frozenset(
    (
        *("a", "abbr", "address", "article", "aside", "b", "bdi", "bdo", "big", "blockquote", "body", "br", "caption"),
        *("center", "cite", "code", "col", "colgroup", "dd", "del", "details", "dfn", "dir", "div", "dl", "dt", "em"),
        *("figcaption", "figure", "font", "footer", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "i", "img"),
        *("ins", "kbd", "li", "main", "mark", "menu", "nav", "ol", "p", "pre", "q", "s", "samp", "section", "small"),
        *("span", "strike", "strong", "sub", "summary", "sup", "table", "tbody", "td", "tfoot", "th", "thead", "time"),
        *("tr", "tt", "u", "ul", "var", "wbr"),
    )
)
_ATTRIBUTES: Final[Mapping[str, frozenset[str]]] = {
    "*": frozenset({"style", "dir", "lang", "align", "valign", "bgcolor", "width", "height", "title"}),
    "a": frozenset({"href"}),
    "img": frozenset({"src", "alt"}),
    "font": frozenset({"color", "face", "size"}),
    "table": frozenset({"border", "cellpadding", "cellspacing"}),
    "td": frozenset({"colspan", "rowspan", "nowrap"}),
    "th": frozenset({"colspan", "rowspan", "nowrap"}),
    "ol": frozenset({"start", "type"}),
}
_STYLES: Final = frozenset(
    (
        *("background-color", "border", "border-bottom", "border-collapse", "border-color", "border-left"),
        *("border-radius", "border-right", "border-spacing", "border-style", "border-top", "border-width", "color"),
        *("direction", "display", "font", "font-family", "font-size", "font-style", "font-variant", "font-weight"),
        *("height", "letter-spacing", "line-height", "list-style-type", "margin", "margin-bottom", "margin-left"),
        *("margin-right", "margin-top", "max-width", "min-width", "padding", "padding-bottom", "padding-left"),
        *("padding-right", "padding-top", "table-layout", "text-align", "text-decoration", "text-indent"),
        *("text-transform", "unicode-bidi", "vertical-align", "white-space", "width", "word-break", "word-wrap"),
    )
)
_DROPPED: Final = frozenset(
    ("script", "style", "title", "template", "noscript", "iframe", "object", "embed", "svg", "math", "form", "head")
)


class ShownHtml(Struct, frozen=True):
    """A document to be shown in a sandbox; the addresses that its links had, and those of pictures elsewhere.

    `cut`: it was too long to be shown whole.
    """

    document: str
    links: tuple[str, ...]
    pictures: tuple[str, ...]
    cut: bool


def html_of_mail(raw: bytes) -> ShownHtml | None:
    """What can be shown of a mail's HTML; None if it has none. Never raises for a mail, however it is made."""
    parts = list(leaves(read_part(raw)))
    found = next((one for one in parts if one.kind == "text/html" and not one.is_attachment), None)
    if found is None:
        return None
    label = or_none(found.head.get_content_charset) or ""
    return sanitize_html(as_text(content(found), label), _pictures_in(parts))


def sanitize_html(source: str, pictures: Mapping[str, str]) -> ShownHtml:
    """The same for HTML; `pictures` are those of the mail itself, as `data:` addresses by their Content-ID."""
    links: dict[str, None] = {}
    elsewhere: dict[str, None] = {}
    room = MOST_SHOWN_PICTURES

    def replace(_tag: str, name: str, value: str) -> str | None:
        nonlocal room
        if name == "href":
            links[value.strip()] = None
            return None
        if name == "src":
            kind, _, rest = value.strip().partition(":")
            if kind.lower() == "cid":
                room -= len(pictures.get(rest, ""))
                return pictures.get(rest) if room >= 0 else None
            if kind.lower() in {"http", "https"}:
                elsewhere[value.strip()] = None
            return None
        return value

    policy = Policy(
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes=frozenset({"http", "https", "mailto", "cid", "data"}),
        allow_relative_urls=False,
        on_disallowed_tag=OnDisallowed.STRIP,
        remove_with_content=_DROPPED,
        css_properties=_STYLES,
        attribute_filter=replace,
        isolate_named_props=True,
        allow_svg=False,
        allow_mathml=False,
    )
    body = sanitize(source[:MOST_HTML], policy)
    document = (
        '<!doctype html><html lang=""><head><meta charset="utf-8"><title>Mail</title></head>'
        f'<body style="font-family: system-ui, sans-serif; margin: 12px; overflow-wrap: anywhere">{body}</body></html>'
    )
    return ShownHtml(document, _first_of(links), _first_of(elsewhere), len(source) > MOST_HTML)


def _first_of(found: Mapping[str, None]) -> tuple[str, ...]:
    return tuple(one for one in found if one)[:_MOST_LISTED]


def _pictures_in(parts: list[MailPart]) -> dict[str, str]:
    """Pictures of the mail by their Content-ID, as addresses that hold them."""
    room, found = MOST_PICTURES, dict[str, str]()
    for part in parts:
        named = str(part.head.get("content-id", "")).strip().strip("<>")
        if not named or part.media_type not in _PICTURES:
            continue
        data = decoded_body(part, part.body)
        room -= len(data)
        if room < 0:
            break
        found[named] = f"data:{escape(part.media_type)};base64,{base64.b64encode(data).decode('ascii')}"
    return found
