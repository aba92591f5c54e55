"""Markdown of replies, for a terminal.

Called by `screen.py`. In: text that a model or a stranger wrote; out: something that Rich prints, and how much of a
text that is still being written is complete. No word of the text is left out, and no link is hidden behind its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown
from rich.segment import Segment

_PARSER: Final = (
    MarkdownIt("commonmark", {"html": False})
    .enable(["strikethrough", "table"])
    # They leave words out of what is shown, or change them.
    .disable(["image", "reference", "html_block", "html_inline", "entity", "lheading"])
)
_CODE_THEME: Final = "ansi_dark"
"""The terminal's own colours."""
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_INSIDE: Final = re.compile(r"[ \t]")
"""How a line begins that may belong to the list item above it."""
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()#+.!|<>~&-])")


class RenderedBlock(Struct, frozen=True):
    """Markdown as lines without spaces behind them, as people copy them.

    `tail`: only the last lines, as many as fit on the screen, since lines that have left it cannot be drawn again.
    """

    whole: Markdown
    tail: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = [
            _without_spaces(line) for line in console.render_lines(self.whole, options.update(height=None), pad=False)
        ]
        written = [at for at, line in enumerate(lines) if line]
        shown = lines[written[0] : written[-1] + 1] if written else []
        for line in shown[-(options.size.height - 1) :] if self.tail else shown:
            yield from line
            yield Segment.line()


def markdown(text: str, speaker: str = "", *, tail: bool = False) -> RenderedBlock:
    """The text as Rich prints it, after the name of who speaks, if one is given. `tail`: see `RenderedBlock`."""
    tokens = _PARSER.parse(text)
    if speaker:
        name = "**" + _SPECIAL.sub(r"\\\1", speaker) + ":**"
        tokens = _PARSER.parse(
            f"{name} {text}" if tokens and tokens[0].type == "paragraph_open" else f"{name}\n\n{text}"
        )
    made = Markdown("", code_theme=_CODE_THEME, hyperlinks=False)
    made.parsed = list(_plain(tokens))
    return RenderedBlock(made, tail)


def length_of_finished_blocks(text: str) -> int:
    """How many characters of a text are blocks that what is written next will not change.

    A block ends with a blank line outside of a code block, if the next line is not indented.
    """
    fence, at, end, blank = "", 0, 0, False
    for line in text.splitlines(keepends=True):
        if blank and not fence and line.strip() and not _INSIDE.match(line):
            end = at
        marks = _FENCE.match(line)
        if fence:
            closes = marks is not None and marks[1].startswith(fence) and not line.strip().strip(fence[0])
            fence = "" if closes else fence
        elif marks:
            fence = marks[1]
        blank = not line.strip()
        at += len(line)
    return end


def _without_spaces(line: list[Segment]) -> list[Segment]:
    """A line without what Rich fills it up with."""
    while line and not line[-1].text.strip():
        line = line[:-1]
    return [*line[:-1], line[-1]._replace(text=line[-1].text.rstrip())] if line else []


def _plain(tokens: Iterable[Token]) -> Iterator[Token]:
    """The tokens with line breaks where they were written, and headings and addresses without decoration."""
    for token in tokens:
        if token.type == "heading_open" and token.tag == "h1":
            token.tag = "h2"
        if token.children:
            token.children = list(_plain(token.children))
        if token.type == "softbreak":
            token.type = "hardbreak"
        if token.markup != "autolink":
            yield token
