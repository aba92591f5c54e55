"""The tool `search_files`: the lines of the files of a workspace that contain a text or match a regular expression.

`registry.py` builds it. The files are found and opened as in `workspace.py`. We search for texts ourselves, and for
regular expressions with ripgrep (`rg`), which takes time proportional to the size of the files, whatever the
expression. It gets our open descriptors, never a path, so that no file can be swapped. Without `rg` only texts can be
searched for: Python's own regular expressions can take forever.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from msgspec import Struct

from switchboard.domain.json_values import JsonMapping
from switchboard.ports.tools import ToolScope, ToolSpec
from switchboard.tools.files import FileTool, ResultLines, shown_name
from switchboard.tools.threads import StopSignal
from switchboard.tools.workspace import (
    TEMPORARY,
    DirectoryEntry,
    ToolRefusal,
    files_at,
    parts_of,
    read_at,
    regular_file,
    root_of,
)

MOST_SEARCHED: Final = 16 * 1024**2
"""Maximum bytes of a file that is searched; larger ones are only counted."""
MOST_FOUND: Final = 200
"""Maximum of lines that are shown."""
_LONGEST_PATTERN: Final = 1000
_AT_ONCE: Final = 64
"""Files that are open for one run of `rg`."""
_SHOWN_LINE: Final = 300
_POLL_S: Final = 0.05
_FOUND: Final = re.compile(rb"/dev/fd/(\d+)\x00(\d+):")

SEARCH_FILES: Final = ToolSpec(
    "search_files",
    "Find the lines that contain a text in the files of the workspace. Binary files are not searched.",
    {
        "type": "object",
        "properties": {
            "text": {
                "type": "string",
                "minLength": 1,
                "maxLength": _LONGEST_PATTERN,
                "description": "What the line contains; with regex, what it matches",
            },
            "path": {"type": "string", "description": "A directory or file, relative to the workspace. Default: all"},
            "regex": {"type": "boolean", "description": "The text is a regular expression. Default: false"},
            "ignore_case": {"type": "boolean", "description": "Default: false"},
        },
        "required": ["text"],
        "additionalProperties": False,
    },
    "idempotent",
    reach="inside",
)


class _Pattern(Struct, frozen=True):
    text: str
    regex: bool
    ignore_case: bool


@dataclass(slots=True)
class _Tally:
    """The lines found so far, and counts of what was left out."""

    lines: ResultLines
    large: int = 0
    full: bool = False

    def add(self, entry: DirectoryEntry, found: Iterable[tuple[int, str]]) -> None:
        """Add the lines of a file."""
        for number, line in () if self.full else found:
            self.full = len(self.lines) == MOST_FOUND or not self.lines.add(
                f"{shown_name(entry.path)}:{number}:{line[:_SHOWN_LINE]}"
            )
            if self.full:
                return


def search_tool() -> FileTool:
    """search_files."""
    return FileTool(SEARCH_FILES, _search_files)


def _search_files(arguments: JsonMapping, scope: ToolScope, stop: StopSignal) -> str:
    pattern = _Pattern(arguments["text"], bool(arguments.get("regex")), bool(arguments.get("ignore_case")))
    if "\n" in pattern.text or "\x00" in pattern.text:
        raise ToolRefusal("a text to search for is part of one line")
    search = _with_rg if pattern.regex else _without_rg
    tally = _Tally(ResultLines())
    parts = parts_of(str(arguments.get("path", "")))
    search(files_at(root_of(scope, parts), parts, stop), pattern, tally, stop)
    nothing = "" if len(tally.lines) else "no line was found"
    more = "there are more lines: search for something rarer, or in a directory" if tally.full else ""
    large = f"{tally.large} files were not searched: they have more than {MOST_SEARCHED} bytes" if tally.large else ""
    return tally.lines.text(nothing, more, large)


def _files_to_search(found: Iterable[DirectoryEntry], tally: _Tally) -> Iterator[DirectoryEntry]:
    """The files to search: regular ones that are not too large."""
    for entry in found:
        if entry.is_regular and not entry.name.startswith(TEMPORARY):
            if entry.status.st_size <= MOST_SEARCHED:
                yield entry
            else:
                tally.large += 1


# Texts, by ourselves ------------------------------------------------------------------------------------------------


def _without_rg(found: Iterable[DirectoryEntry], pattern: _Pattern, tally: _Tally, stop: StopSignal) -> None:
    for entry in _files_to_search(found, tally):
        stop.check()
        with suppress(OSError, ToolRefusal), regular_file(entry.at, entry.name) as opened:
            tally.add(entry, _lines_with(_text(opened), pattern))
        if tally.full:
            return


def _lines_with(text: str, pattern: _Pattern) -> Iterator[tuple[int, str]]:
    wanted = pattern.text.lower() if pattern.ignore_case else pattern.text
    if wanted not in (text.lower() if pattern.ignore_case else text):
        return
    for number, line in enumerate(text.split("\n"), 1):
        if wanted in (line.lower() if pattern.ignore_case else line):
            yield number, line.removesuffix("\r")


def _text(opened: int) -> str:
    """The content of a file if it is text; otherwise empty."""
    data = b""
    while len(data) <= MOST_SEARCHED and (piece := read_at(opened, len(data), MOST_SEARCHED)):
        data += piece
    return "" if b"\x00" in data else data.decode("utf-8", "replace")


# Regular expressions, by ripgrep ------------------------------------------------------------------------------------


def _with_rg(found: Iterable[DirectoryEntry], pattern: _Pattern, tally: _Tally, stop: StopSignal) -> None:
    rg = shutil.which("rg")
    if rg is None:
        raise ToolRefusal("regular expressions need ripgrep (rg), which this machine does not have; search for a text")
    files = _files_to_search(found, tally)
    while not tally.full:
        with ExitStack() as stack:
            batch = dict(islice(_open_text_files(files, stack), _AT_ONCE))
            if not batch:
                return
            numbers = _numbers(rg, pattern, tuple(batch), stop)
            for opened, entry in batch.items():
                tally.add(entry, _lines_at(opened, numbers.get(opened, ())))


def _open_text_files(files: Iterable[DirectoryEntry], stack: ExitStack) -> Iterator[tuple[int, DirectoryEntry]]:
    """The open descriptors of text files; `stack` closes them."""
    for entry in files:
        with suppress(OSError, ToolRefusal), ExitStack() as own:
            opened = own.enter_context(regular_file(entry.at, entry.name))
            if _text(opened):
                stack.push(own.pop_all())
                yield opened, entry


def _numbers(rg: str, pattern: _Pattern, opened: Sequence[int], stop: StopSignal) -> dict[int, list[int]]:
    """The numbers of matching lines, by descriptor. Raises `ToolRefusal` for an invalid expression."""
    limits = ("--regex-size-limit=1M", "--dfa-size-limit=10M")
    flags = ("--no-config", "--no-messages", "--no-mmap", "--text", "--crlf", "--color=never", "--no-heading")
    shown = ("--with-filename", "--null", "--line-number", "--max-columns=1", f"--max-count={MOST_FOUND + 1}")
    case = ("--ignore-case",) if pattern.ignore_case else ()
    paths = (f"/dev/fd/{one}" for one in opened)
    output, errors = _run([rg, *limits, *flags, *shown, *case, "--regexp", pattern.text, "--", *paths], opened, stop)
    if errors:
        raise ToolRefusal(f"ripgrep does not take the regular expression: {errors.decode('utf-8', 'replace')[-500:]}")
    numbers: dict[int, list[int]] = {}
    for line in output.splitlines():
        if place := _FOUND.match(line):
            numbers.setdefault(int(place[1]), []).append(int(place[2]))
    return numbers


def _run(argv: Sequence[str], opened: Sequence[int], stop: StopSignal) -> tuple[bytes, bytes]:
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=opened,
        cwd="/",
        env={},
    ) as process:
        try:
            while True:
                stop.check()
                with suppress(subprocess.TimeoutExpired):
                    return process.communicate(timeout=_POLL_S)
        finally:
            process.kill()


def _lines_at(opened: int, numbers: Sequence[int]) -> Iterator[tuple[int, str]]:
    lines = _text(opened).split("\n") if numbers else []
    for number in numbers:
        if number <= len(lines):  # the file may have been truncated meanwhile
            yield number, lines[number - 1].removesuffix("\r")
