"""`make pictures`: the picture in the README, a terminal recorded from what `switchboard demo` really prints.

In: the checkout; out: `docs/pictures/demo.svg`. It is an excerpt: what happens, one message explained, and the books.
`tests/dist.py` holds its text against the demo of the wheel. Next: nobody.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import chain, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.documents import HOME
from tests.processes import EXECUTABLE

PICTURE: Final = HOME / "docs" / "pictures" / "demo.svg"
_WIDTH: Final = 104
_TOLD: Final = ("is listening at", "kill -9 of worker", "worker 3 is ready", "import: ", "waits for an approval",
                "approvals approve", "a plan of several steps", "everything is done")  # fmt: skip
_SECTIONS: Final = ("A message whose worker was killed, explained:", "The books:")
_OF_ALL: Final = (_SECTIONS[0], "message ", "decision by version", "the worker died or was cut off")
"""What is said of every message whose worker was killed."""
_CURSOR: Final = re.compile(r"\x1b\[(?:\?25[hl]|\d*[AKJ])|\r")
_FONT: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_LINE: Final = re.compile(r'<text [^>]*clip-path="url\(#demo-line-(\d+)\)">(.*?)</text>')
_VARYING: Final = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|demo-\w+|\b[0-9a-f]{8}\b|\d+(?:[.:-]\d+)*|(?<=turn)s"
)
_DRAWN: Final = re.compile(r"[│├└─\s…]+|\S*/bin/(?=switchboard )")
"""Spaces as well: in the picture, what is between two columns is not written."""


def picture_of(printed: str) -> str:
    """The picture as SVG, from what the demo printed on a terminal."""
    console = Console(record=True, width=_WIDTH, file=StringIO(), force_terminal=True)
    for line in excerpt(printed):
        console.print(Text.from_ansi(line), no_wrap=True, overflow="ellipsis")
    drawn = console.export_svg(title="switchboard demo", theme=MONOKAI, unique_id="demo")
    return "\n".join(line.rstrip() for line in _FONT.sub("", drawn).splitlines()) + "\n"


def excerpt(printed: str) -> Iterator[str]:
    """The lines that are shown. Raises `ValueError` if the demo no longer has one of its sections."""
    # On a terminal the report is drawn again and again; the last one begins where the cursor is shown again.
    lines = _CURSOR.sub("", printed.rpartition("\x1b[?25h")[2]).splitlines()
    plain = [Text.from_ansi(line).plain for line in lines]
    yield from (line for line, text in zip(lines, plain, strict=True) if any(words in text for words in _TOLD))
    for section in _SECTIONS:
        beginning = plain.index(section)
        yield from chain([""], takewhile(lambda line: Text.from_ansi(line).plain.strip(), lines[beginning:]))


def text_of(svg: str) -> list[str]:
    """The lines of a picture."""
    lines: dict[int, str] = {}
    for number, text in _LINE.findall(svg):
        lines[int(number)] = lines.get(int(number), "") + html.unescape(text).replace("\xa0", " ")
    return [lines[number] for number in sorted(lines)]


def outdated(printed: str) -> Sequence[str]:
    """Lines of the picture that this demo has not printed; times, ids, numbers and the breaks of lines may differ.

    Another message may have had its worker killed: of the one that is explained, what is said of all counts.
    """
    shown = _essence(Text.from_ansi(printed).plain)
    lines = text_of(PICTURE.read_text(encoding="utf-8"))
    explained, books = (lines.index(section) for section in _SECTIONS)
    common = [line for line in lines[explained:books] if any(words in line for words in _OF_ALL)]
    missing = {words for words in _OF_ALL if not any(words in line for line in common)}
    return [*missing, *(line for line in lines[:explained] + common + lines[books:] if _essence(line) not in shown)]


def _essence(text: str) -> str:
    return _DRAWN.sub("", _VARYING.sub("#", text))


def main() -> None:
    """Run the demo, and draw it."""
    path = f"{Path(EXECUTABLE).parent}:{os.environ['PATH']}"
    known = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHBOARD_")}
    env = known | {"FORCE_COLOR": "1", "COLUMNS": str(_WIDTH), "PATH": path, "TERM": "xterm-256color"}
    with TemporaryDirectory() as place:
        done = subprocess.run(
            ["/usr/bin/env", "switchboard", "demo"], env=env, cwd=place, stdout=subprocess.PIPE, text=True, check=True
        )
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture_of(done.stdout), encoding="utf-8")


if __name__ == "__main__":
    main()
