"""What stands in the documents, as data for the tests that hold it against the product.

In: the Markdown files of the repository; out: fenced blocks with what is marked on them, table rows, links, commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

HOME = Path(__file__).parents[1]
DOCUMENTS = tuple(
    sorted([*HOME.glob("*.md"), *HOME.glob("docs/**/*.md"), *HOME.glob("src/switchboard/examples/**/*.md")])
)

_FENCE = re.compile(r"^( *)(?:<!-- ([^\n]*) -->\n\1)?```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"(executed|file): (\S+)")
_LINK = re.compile(r"(?<!!)\[[^]]*]\(([^)\s]+)\)")
_SPAN = re.compile(r"`([^`\n]+)`")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=.*")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `mark` is `executed` or `file`, `name` the walkthrough or the file it belongs to."""

    document: Path
    language: str
    text: str
    mark: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a console block, and what it prints (abridged)."""

    command: str
    output: str


def blocks(document: Path) -> list[Block]:
    """The fenced blocks of a document, in order."""
    found = []
    for _, comment, language, text in _FENCE.findall(document.read_text(encoding="utf-8")):
        mark = _MARK.fullmatch(comment.strip())
        found.append(Block(document, language, dedent(text), *(mark.groups() if mark else ())))
    return found


def all_blocks(*languages: str) -> list[Block]:
    """The blocks of all documents that are written in one of these languages."""
    return [block for document in DOCUMENTS for block in blocks(document) if block.language in languages]


def prose(document: Path) -> str:
    """A document without its fenced blocks."""
    return _FENCE.sub("", document.read_text(encoding="utf-8"))


def links(document: Path) -> list[str]:
    """Where the links of a document lead."""
    return _LINK.findall(prose(document))


def anchors(document: Path) -> set[str]:
    """The anchors of the headings of a document, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def rows(document: Path, first: str) -> list[list[str]]:
    """The rows of the table whose first column is headed `first`, cell by cell."""
    lines = prose(document).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {first} |"))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def codes(cell: str) -> list[str]:
    """What stands in backticks."""
    return _SPAN.findall(cell)


def steps(block: Block) -> list[Step]:
    """The commands of a console block: `$ ` begins one, `> ` goes on, anything else is output."""
    found: list[tuple[list[str], list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif line.startswith("> ") and not found[-1][1]:
            found[-1][0].append(line[2:])
        else:
            found[-1][1].append(line)
    return [Step("\n".join(command), "\n".join(output)) for command, output in found]


def command_lines() -> list[tuple[Path, str]]:
    """Every command of the documents, in blocks and in backticks."""
    found = [(block.document, step.command) for block in all_blocks("console") for step in steps(block)]
    found += [(block.document, line) for block in all_blocks("sh") for line in block.text.splitlines()]
    for document in DOCUMENTS:
        spans = _SPAN.findall(prose(document))
        found += [(document, span) for span in spans if span.startswith(("switchboard ", "make "))]
    return found


def calls(line: str, program: str) -> Iterator[list[str]]:
    """The arguments of every call of `program` in a shell line, also inside `$(…)` and after a pipe."""
    lexer = shlex.shlex(line.replace("$(", " ; ").replace(")", " ; "), posix=True, punctuation_chars=";|&")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word and not word.strip(";|&"):
            yield from _call(words, program)
            words = []
        else:
            words.append(word)


def _call(words: list[str], program: str) -> Iterator[list[str]]:
    while words and _ASSIGNED.fullmatch(words[0]):
        words = words[1:]
    if words and words[0].rpartition("/")[2] == program:
        yield words[1:]
