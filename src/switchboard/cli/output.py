"""The output of all commands, and the exit codes.

Called by every module of `cli/`. In: values; out: with `--json` one JSON object on stdout, otherwise tables and
sentences for people: coloured only on a terminal and without NO_COLOR, cut to its width, without control characters
from strangers. Errors go to stderr. Imports nothing heavy: it is part of `switchboard --help`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from shlex import quote
from typing import Annotated, Final

import typer
from msgspec import Struct
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from switchboard.core.text.problems import wrong
from switchboard.core.text.visible import visible
from switchboard.core.text.words import near, or_list
from switchboard.domain.errors import Forbidden, NotFound, Overloaded, SwitchboardError, Unauthenticated
from switchboard.domain.json_values import JsonObject

OK: Final = 0
FAILED: Final = 1
"""It went wrong, or the answer is no."""
NO_SERVER: Final = 3
NOT_ALLOWED: Final = 4
NOT_FOUND: Final = 5
INTERRUPTED: Final = 130

Json = JsonObject
Cursor = Annotated[str | None, typer.Option(help="Continue after this point: `next_cursor` of the previous page.")]

_json: Final[ContextVar[bool]] = ContextVar("json", default=False)

_PLAIN_WIDTH: Final = 200
_WIDEST: Final = 24
"""Cells that a column has at most unless it is kept whole or is the last."""
_NARROWER: Final = (_WIDEST, 16, 12, 8)
"""The same, where a row would not fit on one line otherwise."""
_LAST: Final = 16
"""Cells that the last column must have in the first line, else it goes to the second, if nobody says more."""
_GAP: Final = "  "
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BUTLERS: Final = re.compile(r"System1/[^\s,]+(, System1/[^\s,]+)*")
_SHORT: Final = 8
_ASKED: Final = 56
"""Cells of a question that leave room for an answer at 80 columns."""
_FEW: Final = 8
"""Names that an error lists when none of them is like the one given."""

STATE_STYLES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("answered", "sent", "approved", "delivered", "healthy", "online", "active", "handled", "ok", "code"),
        "green",
    ),
    **dict.fromkeys(
        ("in_flight", "pending", "running", "sending", "retrying", "ready", "stale", "starting", "standby"), "cyan"
    ),
    **dict.fromkeys(
        (
            "declined",
            "uncertain",
            "cancelled",
            "paused",
            "lost",
            "degraded",
            "refused",
            "held",
            "stopped",
            "expired",
            "ended",
        ),
        "yellow",
    ),
    **dict.fromkeys(("dead", "failed", "error", "offline", "missing", "unknown", "quarantined"), "red"),
}


class NoServer(SwitchboardError):
    """No server answers at the URL."""

    status = 503
    code = "no_server"


def exit_code(error: SwitchboardError) -> int:
    """The exit code for an error."""
    match error:
        case NoServer():
            return NO_SERVER
        case Unauthenticated() | Forbidden():
            return NOT_ALLOWED
        case NotFound():
            return NOT_FOUND
        case _:
            return FAILED


def report(error: SwitchboardError, *, as_json: bool = False) -> int:
    """Report an error on stderr (with `as_json` also on stdout); returns the exit code."""
    if as_json:
        print_json({"error": error_json(error)})
    hint = f" (try again in {error.retry_after:g} s)" if isinstance(error, Overloaded) else ""
    errors().print(Text.assemble(("error: ", "bold red"), clean(_sentences(error)) + hint), soft_wrap=True)
    return exit_code(error)


def report_usage(error: typer.TyperException, *, as_json: bool) -> int:
    """Report a usage error on stderr (with `as_json` also on stdout); returns the exit code."""
    _in_our_words(error)
    message = error.format_message().strip()
    if not message:  # a noun alone: its help has been shown
        return error.exit_code
    if as_json:
        print_json({"error": {"code": "usage", "message": message}})
    errors().print(Text.assemble(("error: ", "bold red"), clean(message)), soft_wrap=True)
    context = getattr(error, "ctx", None)
    if context is not None:
        errors().print(f"{context.get_usage()}; more: {context.command_path} -h", style="dim", soft_wrap=True)
    return error.exit_code


def _in_our_words(error: typer.TyperException) -> None:
    """A value's error from pydantic, which checks the command line, in our words."""
    problems = getattr(error.__cause__, "errors", None)  # asking for the class would import pydantic
    if callable(problems):
        error.message = wrong(problems()[0])


def _sentences(error: SwitchboardError) -> str:
    """The message; several problems of rules are on separate lines."""
    problems = (error.details or {}).get("problems")
    if not isinstance(problems, list) or len(problems) < 2:
        return error.message
    return "\n       ".join(f"rule {one.get('rule')!r}: {one.get('message')}" for one in problems)


def error_json(error: SwitchboardError) -> Json:
    """The error in the server's format."""
    more = {"field": error.field, "details": error.details}
    return {"code": error.code, "message": error.message} | {name: value for name, value in more.items() if value}


def out() -> Console:
    """The console for results. Off a terminal, nothing is cut at 80 columns."""
    return _console(sys.stdout.isatty())


def errors() -> Console:
    """The console for everything except the result: progress, notes, errors."""
    return _console(sys.stderr.isatty(), stderr=True)


def _console(tty: bool, *, stderr: bool = False) -> Console:
    width = None if tty or "COLUMNS" in os.environ else _PLAIN_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def prompt_for(asked: str, detail: str) -> str:
    """Return the text of a prompt. A detail that does not fit beside it is printed above it, wrapped."""
    if not detail or len(asked) + len(detail) <= _ASKED:
        return f"{asked} ({detail})" if detail else asked
    errors().print(detail)
    return asked


def set_json(value: bool) -> None:
    """Set whether the result is for a script, as `wants_json` reports from now on."""
    _json.set(value)


def wants_json() -> bool:
    """Whether the running command was given `--json`."""
    return _json.get()


def print_json(value: Mapping[str, object]) -> None:
    """Print one JSON object on one line, in ASCII, since it may contain strangers' text."""
    sys.stdout.write(json.dumps(value, default=str) + "\n")
    sys.stdout.flush()


def program() -> str:
    """How to call this program here, for copying: by its name, or by its path if it is not on PATH."""
    called = Path(sys.argv[0])
    return quote(str(called)) if called.name == "switchboard" and not shutil.which(called.name) else "switchboard"


def show(found: Json, *shown: RenderableType | Callable[[Json], object]) -> None:
    """Show a command's result: with `--json` as it is, otherwise each part as lines for people.

    A part that is a function prints itself.
    """
    if wants_json():
        print_json(found)
        return
    for part in shown:
        if callable(part):
            part(found)
        else:
            out().print(part, soft_wrap=isinstance(part, str))


def show_page(page: Json, shown: RenderableType | Callable[[Json], object], command: str, **asked: object) -> None:
    """Show a page of a list, as `show` does, and the commands for the pages beside it, from their cursors on."""
    show(page, shown)
    for what, cursor in (("more", page["next_cursor"]), ("newer", page.get("newer_cursor"))):
        if cursor and not wants_json():
            again = more(command, what, cursor=cursor, **asked)
            out().print(again, style="dim", soft_wrap=True)


def more(command: str, what: str = "more", /, **options: object) -> str:
    """The line that says how to see more, with the given options; one that is True has no value."""
    given = ((name, value) for name, value in options.items() if value is not None)
    words = (f" --{name}" if value is True else f" --{name} {shlex.quote(clean(value))}" for name, value in given)
    return f"{what}: switchboard {command}{''.join(words)}"


def clean(text: object) -> str:
    """The text without characters that are invisible, steer a terminal or turn the direction of writing."""
    return visible(str(text))


def one_line(text: object, length: int = 200) -> str:
    """The text on one line, truncated to `length` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= length else line[: length - 1] + "…"


def when(value: object, *, short: bool = False) -> str:
    """A time in local time, to the second; anything else unchanged. `short` omits the present year."""
    try:
        time = datetime.fromisoformat(str(value)).astimezone()
    except ValueError:
        return "" if value is None else clean(value)
    this_year = short and time.year == datetime.now(time.tzinfo).year
    return time.strftime("%m-%d %H:%M:%S" if this_year else "%Y-%m-%d %H:%M:%S")


def state(value: object) -> Text:
    """A state in its colour."""
    return Text(clean(value), style=STATE_STYLES.get(str(value), ""))


def table(
    *columns: str, rows: Iterable[Sequence[object]], keep: Iterable[str] = (), wrap: bool = False, room: int = _LAST
) -> RenderableType:
    """A table; cells are cleaned, and have one line, so that a stranger's name never starts a row.

    Columns in `keep` (ids, states) are never cut; the last gets the remaining room.

    If there is no room for all columns, ids are shown by their last characters and butlers by their short names, which
    commands take as well; and unless it may `wrap`, columns are cut. If that is not enough, the rest form a second line
    below each row; so does the last one if it would have less than `room` cells.

    `wrap`: the last column continues in the next line instead of being cut. Columns without names make a table without
    a head. Without rows it is a word that says so.
    """
    cells = [[*(_cell(cell) for cell in row[:-1]), _cell(row[-1], lines=wrap)] for row in rows]
    if not cells:
        return Text("none", style="dim")
    whole = frozenset(keep)
    short = [[_short(cell) for cell in row] for row in cells]
    narrower = tuple(
        _Lines(columns, short, whole, wrap, room, widest) for widest in (_NARROWER[:1] if wrap else _NARROWER)
    )
    return _Fitting(_Lines(columns, cells, whole, wrap, room), narrower)


def _short(cell: Text) -> Text:
    """The last characters of an id, as the first ones may be the same; a butler's short name; all else unchanged."""
    if _ID.fullmatch(cell.plain):
        return Text(cell.plain[-_SHORT:], style=cell.style)
    if _BUTLERS.fullmatch(cell.plain):
        return Text(cell.plain.replace("System1/", ""), style=cell.style)
    return cell


class _Fitting(Struct, frozen=True):
    """A table whose rows fit on a line each if any of the narrower forms makes them fit, the widest first."""

    whole: _Lines
    narrower: tuple[_Lines, ...]

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        yield next((form for form in (self.whole, *self.narrower) if form.fits(width)), self.whole)


class _Lines(Struct, frozen=True):
    """A table whose rows continue on a second line if one line cannot hold them."""

    names: Sequence[str]
    rows: Sequence[Sequence[Text]]
    keep: frozenset[str]
    wrap: bool
    room: int
    widest: int = _WIDEST

    @property
    def widths(self) -> Sequence[int]:
        """Cells of each column; of the last one, all that it has use for."""
        natural = [max(cell_len(name), *(row[at].cell_len for row in self.rows)) for at, name in enumerate(self.names)]
        last = len(natural) - 1
        return [
            most if at == last or self.names[at] in self.keep else min(most, self.widest)
            for at, most in enumerate(natural)
        ]

    def fits(self, width: int) -> bool:
        """Whether a row has room on a line of `width` cells."""
        *others, last = self.widths
        return sum(others) + len(_GAP) * len(others) + min(last, self.room) <= width

    def _table(self) -> Table:
        made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_header=any(self.names))
        for name, cells in zip(self.names[:-1], self.widths, strict=False):
            made.add_column(name, no_wrap=True, overflow="ellipsis", width=cells)
        # For Rich it wraps in any case: only wrapping columns give way to the others when room is scarce.
        made.add_column(self.names[-1], overflow="fold" if self.wrap else "ellipsis")
        for row in self.rows:
            row[-1].no_wrap = not self.wrap
            made.add_row(*row)
        return made

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        if self.fits(width):
            yield self._table()
            return
        first = self._first(width)
        second = [at for at in range(len(self.names)) if at not in first]
        if any(self.names):
            head = [Text(name, style="bold") for name in self.names]
            yield from self._lines(head, first, second)
        for row in self.rows:
            yield from self._lines(row, first, second)

    def _first(self, room: int) -> list[int]:
        """The columns of the first line: as many as fit, in order."""
        ends = list(accumulate(self.widths[:-1], lambda end, width: end + len(_GAP) + width))
        return list(range(max(1, sum(end <= room for end in ends))))

    def _lines(self, row: Sequence[Text], first: Sequence[int], second: Sequence[int]) -> RenderResult:
        line = self._join_cells(row, first)
        line.overflow = "fold"
        yield line
        more = self._join_cells(row, second)
        if more.plain.strip():
            more.no_wrap, more.overflow = not self.wrap, "fold" if self.wrap else "ellipsis"
            yield Padding(more, (0, 0, 0, 2 * len(_GAP)), expand=False)

    def _join_cells(self, row: Sequence[Text], columns: Sequence[int]) -> Text:
        line = Text()
        for at in columns:
            cell = row[at].copy()
            if at != len(row) - 1:
                cell.truncate(self.widths[at], overflow="ellipsis", pad=at != columns[-1])
            if at != columns[-1]:
                cell.append(_GAP)
            line.append_text(cell)
        return line


def details(rows: Iterable[tuple[str, object]]) -> RenderableType:
    """One object: a line per value, without missing ones."""
    return table("", "", rows=[row for row in rows if row[1] not in (None, "")], wrap=True)


def one_of(rows: Iterable[Json], key: str, name: str, kind: str) -> Json:
    """The row of this name. Raises NotFound with the names that exist."""
    by_name = {str(row[key]): row for row in rows}
    if name not in by_name:
        raise NotFound(f"there is no {kind} {name!r}{_which(name, by_name)}")
    return by_name[name]


def _which(name: str, known: Collection[str]) -> str:
    """The names that `name` may mean, compared by the part after the slash; otherwise all, if few."""
    lasts = near(_last(name), map(_last, known))
    if meant := [one for one in known if _last(one) in lasts]:
        return f"; did you mean {or_list(meant)}?"
    return f"; there are: {', '.join(sorted(known))}" if 0 < len(known) <= _FEW else ""


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _cell(value: object, *, lines: bool = False) -> Text:
    if isinstance(value, Text):
        return value
    text = clean("" if value is None else value)
    return Text(text if lines else " ".join(text.split("\n")))


def exit_unless_ok(code: int) -> None:
    """End the command with this exit code."""
    if code != OK:
        raise typer.Exit(code)
