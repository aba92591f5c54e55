"""The tools `read_file`, `write_file` and `list_files`.

`registry.py` builds them. In: arguments that fit their schemas; out: text for the model. What they may touch is decided
in `workspace.py`. Next: `search.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from switchboard.core.text.visible import visible
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.tools import NamedTool, ToolOutcome, ToolScope, ToolSpec
from switchboard.tools.threads import StopSignal, in_thread
from switchboard.tools.workspace import (
    OWN,
    TEMPORARY,
    DirectoryEntry,
    FileToWrite,
    ToolRefusal,
    entries,
    meaning,
    opened_file,
    parts_of,
    read_at,
    root_of,
    what,
    write,
)

MOST_SHOWN: Final = 15_000
"""Maximum characters of a result of these tools, without the mark that says what is missing."""
LONGEST_LINE: Final = 2_000
"""Maximum characters of a line that are shown."""
MOST_READ: Final = 64 * 1024**2
"""Maximum bytes of a file that are searched for the first requested line."""
_KEPT: Final = 4 * (LONGEST_LINE + 1)
"""Bytes of a line that are kept: enough for the part that is shown."""
_BOM: Final = b"\xef\xbb\xbf"

_PATH: Final = {"type": "string", "description": "Relative to the workspace, such as plan.md"}

READ_FILE: Final = ToolSpec(
    "read_file",
    "Read a text file of the workspace, or some of its lines.",
    {
        "type": "object",
        "properties": {
            "path": _PATH,
            "offset": {"type": "integer", "minimum": 1, "description": "The first line, from 1. Default: 1"},
            "limit": {"type": "integer", "minimum": 1, "description": "How many lines. Default: as many as fit"},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    "idempotent",
    reach="inside",
)
WRITE_FILE: Final = ToolSpec(
    "write_file",
    "Write a text file of the workspace, whole: what was in it is replaced. Missing directories are made.",
    {
        "type": "object",
        "properties": {"path": _PATH, "content": {"type": "string", "description": "All of the file"}},
        "required": ["path", "content"],
        "additionalProperties": False,
    },
    "idempotent",
    ordered=True,
    reach="inside",
)
LIST_FILES: Final = ToolSpec(
    "list_files",
    "List the files of the workspace, or of a directory in it, with their sizes.",
    {
        "type": "object",
        "properties": {
            "path": {**_PATH, "description": "A directory, relative to the workspace. Default: the workspace"},
            "recursive": {"type": "boolean", "description": "Also what is in its directories. Default: false"},
        },
        "additionalProperties": False,
    },
    "idempotent",
    reach="inside",
)

Work = Callable[[JsonMapping, ToolScope, StopSignal], str]
"""The work of a tool on valid arguments, in a thread. Raises OSError, `ToolRefusal`."""


class FileTool(NamedTool, Struct, frozen=True):
    """A tool that works on files."""

    spec: ToolSpec
    work: Work

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """The result of the work; or a sentence, if the work or the system refuses."""
        path = shown_name(str(arguments.get("path", "the workspace")))
        try:
            return ToolOutcome(await in_thread(lambda stop: self.work(arguments, scope, stop)))
        except ToolRefusal as refused:
            return ToolOutcome(f"{path}: {refused}", ok=False)
        except OSError as error:
            return ToolOutcome(f"{path}: {meaning(error)}", ok=False)


def file_tools() -> tuple[FileTool, FileTool, FileTool]:
    """read_file, write_file, list_files."""
    return (FileTool(READ_FILE, _read_file), FileTool(WRITE_FILE, _write_file), FileTool(LIST_FILES, _list_files))


class ResultLines:
    """As many lines of a result as fit."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._size = 0

    def add(self, line: str) -> bool:
        """Add a line, cut if it is long; returns whether there was room."""
        line = cut_line(line)
        if self._size + len(line) + 1 > MOST_SHOWN:
            return False
        self._lines.append(line)
        self._size += len(line) + 1
        return True

    def __len__(self) -> int:
        return len(self._lines)

    def text(self, *notes: str) -> str:
        """All the lines, then each note that is not empty, in brackets."""
        return "\n".join([*self._lines, *(f"[{note}]" for note in notes if note)])


def cut_line(line: str) -> str:
    """At most `LONGEST_LINE` characters of a line, with a mark if there are more."""
    return f"{line[:LONGEST_LINE]} [… the line goes on]" if len(line) > LONGEST_LINE else line


def shown_name(name: str) -> str:
    """A path as it is, or as JSON if it has characters that are invisible or would end the line."""
    return name if visible(name) == name and not {"\n", "\t"} & set(name) else json.dumps(name)


def file_parts(arguments: JsonMapping) -> tuple[str, ...]:
    """The names in the argument `path`, at least one. Raises `ToolRefusal`."""
    parts = parts_of(arguments["path"])
    if not parts:
        raise ToolRefusal("it is the workspace itself: name a file in it")
    return parts


# read_file ----------------------------------------------------------------------------------------------------------


def _read_file(arguments: JsonMapping, scope: ToolScope, stop: StopSignal) -> str:
    parts = file_parts(arguments)
    first = int(arguments.get("offset", 1))
    last = first + int(arguments["limit"]) - 1 if "limit" in arguments else None
    with opened_file(root_of(scope, parts[:-1]), parts) as opened:
        return _shown_lines(opened, first, last, stop)


def _shown_lines(opened: int, first: int, last: int | None, stop: StopSignal) -> str:
    shown, number, replaced, more = ResultLines(), 0, False, False
    for raw in _lines_of(opened, stop):
        number += 1
        if number < first:
            continue
        line = raw.decode("utf-8", "replace")[: LONGEST_LINE + 1]
        if (last is not None and number > last) or not shown.add(line):
            more = True
            break
        replaced = replaced or ("\ufffd" in line[:LONGEST_LINE] and "\ufffd".encode() not in raw)
    return shown.text(
        f"more lines follow: go on with offset {first + len(shown)}" if more else "",
        f"the file has {number} lines" if number < first else "",
        "some bytes are not UTF-8, and are shown as \ufffd" if replaced else "",
    )


def _lines_of(opened: int, stop: StopSignal) -> Iterator[bytes]:
    """The lines of a file without their ends; only the beginning of a line that is longer than is shown."""
    rest, offset = b"", 0
    while piece := read_at(opened, offset):
        stop.check()
        if b"\x00" in piece:
            raise ToolRefusal("it is a binary file, not text")
        if offset > MOST_READ:
            raise ToolRefusal(
                f"only the first {MOST_READ} bytes of a file can be read; search_files finds lines in others"
            )
        *lines, rest = (rest + (piece if offset else piece.removeprefix(_BOM))).split(b"\n")
        offset += len(piece)
        rest = rest[:_KEPT]
        yield from (line.removesuffix(b"\r") for line in lines)
    if rest:
        yield rest


# write_file and list_files -----------------------------------------------------------------------------------------


def _write_file(arguments: JsonMapping, scope: ToolScope, stop: StopSignal) -> str:
    file = FileToWrite(file_parts(arguments), str(arguments["content"]).encode("utf-8", "replace"), scope.key)
    if file.parts[0] in OWN:
        raise ToolRefusal(f"{file.parts[0]} is for {OWN[file.parts[0]]}; choose another directory")
    replaced = write(scope.workspace, file, stop, scope.quota)
    return f"{'replaced' if replaced else 'created'} {shown_name('/'.join(file.parts))}: {len(file.data)} bytes"


def _list_files(arguments: JsonMapping, scope: ToolScope, stop: StopSignal) -> str:
    parts = parts_of(str(arguments.get("path", "")))
    shown, more = ResultLines(), 0
    for entry in entries(root_of(scope, parts), parts, stop, deep=bool(arguments.get("recursive"))):
        if not entry.name.startswith(TEMPORARY) and (more or not shown.add(_describe_entry(entry))):
            more += 1
    empty = "" if more or len(shown) else "no files"
    return shown.text(empty, f"{more} more entries: list a directory of it" if more else "")


def _describe_entry(entry: DirectoryEntry) -> str:
    name = shown_name(entry.path)
    if entry.is_directory:
        return f"{name}/"
    return f"{name} ({entry.status.st_size} bytes)" if entry.is_regular else f"{name} ({what(entry.status)})"
