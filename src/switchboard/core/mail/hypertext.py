"""HTML as the text that a person would see.

Called by `core/mail/mime.py` for mails without plain text. In: HTML from a stranger; out: text with blocks on lines of
their own and the targets of links after them. Hidden elements are dropped: what a person cannot see must not reach a
model. Never raises, and takes at most a second or two for the worst input.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

MAX_HTML: Final = 262_144
"""Maximum characters read; mail programs clip at less than half of it."""
_MAX_DEPTH: Final = 500
_MAX_URL: Final = 500

_UNSEEN: Final = frozenset({"script", "style", "head", "title", "template", "noscript", "-comment"})
_HIDING = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_BLOCKS: Final = frozenset(
    {
        *("address", "article", "aside", "blockquote", "body", "br", "center", "dd", "div", "dl", "dt", "fieldset"),
        *("figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol"),
        *("p", "pre", "section", "table", "tr", "ul"),
    }
)
_CELLS: Final = frozenset({"td", "th"})
# Elements whose end tag is optional or does not exist: their number says nothing about the depth.
_FLAT: Final = frozenset(
    {
        *("area", "base", "br", "col", "dd", "dt", "embed", "hr", "img", "input", "li", "link", "meta", "option", "p"),
        *("source", "td", "th", "tr", "tbody", "thead", "wbr"),
    }
)
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]{0,20})")
_ANY_TAG = re.compile(r"<[^<>]*>")
_LONG_TAG = re.compile(r"<[^<>]{8192,}")
_SPACES = re.compile(r"[ \t\r\f\v\u00a0]+")


def text_of_html(source: str) -> str:
    """The visible text of an HTML document or fragment, without leading and trailing blanks."""
    # Inline pictures would use up the limit, and so many attributes are an attack.
    short = _LONG_TAG.sub("<i", source)[:MAX_HTML]
    if _depth(short) > _MAX_DEPTH:  # the parser takes time quadratic in the depth
        return _tidy(html.unescape(_ANY_TAG.sub("\n", short)))
    root = LexborHTMLParser(short).root
    return _tidy("".join(_pieces(root))) if root else ""


def _depth(source: str) -> int:
    """The deepest nesting of elements of one name, roughly: a document that misleads it gains little."""
    depths: Counter[str] = Counter()
    deepest = 0
    for end, name in _TAG.findall(source):
        tag = name.lower()
        depths[tag] = max(0, depths[tag] + (-1 if end else 1)) if tag not in _FLAT else 0
        deepest = max(deepest, depths[tag])
    return deepest


def _pieces(root: LexborNode) -> list[str]:
    """Text, line ends around blocks, and the target of each link behind its text."""
    pieces: list[str] = []
    opened: list[int] = []  # where the text of each open link begins
    for node, entering in _walk(root):
        tag = node.tag or ""
        if tag == "-text":
            pieces += [re.sub(r"\s+", " ", node.text_content or "")] if entering else []
        elif tag == "a":
            if entering:
                opened.append(len(pieces))
            else:
                pieces.append(_target(node, "".join(pieces[opened.pop() :])))
        else:
            pieces.append("\n" if tag in _BLOCKS else " " if tag in _CELLS else "")
    return pieces


def _walk(root: LexborNode) -> Iterator[tuple[LexborNode, bool]]:
    """Each visible node, once on entry and once on exit; a loop, as a stranger chose the depth."""
    node: LexborNode | None = root
    while node is not None:
        yield node, True
        if not _unseen(node) and (child := node.first_child) is not None:
            node = child
            continue
        yield node, False
        while node is not None and node.mem_id != root.mem_id and node.next is None:
            node = node.parent
            if node is not None:
                yield node, False
        node = node.next if node is not None and node.mem_id != root.mem_id else None


def _unseen(node: LexborNode) -> bool:
    if node.tag in _UNSEEN:
        return True
    attributes = node.attributes if node.is_element_node else {}
    return "hidden" in attributes or bool(_HIDING.search(attributes.get("style") or ""))


def _target(link: LexborNode, text: str) -> str:
    url = (link.attributes.get("href") or "").strip()
    useful = url.lower().startswith(("http://", "https://", "mailto:")) and len(url) <= _MAX_URL
    return f" ({url})" if useful and url.removeprefix("mailto:") not in text else ""


def _tidy(text: str) -> str:
    lines = (_SPACES.sub(" ", line).strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)
