"""Shortens long results to head, mark and tail for the model; the whole is kept in a file for the same readers.

Called by `calls.py` for every long result, in a thread, and by `web_fetch.py` and `mcp_servers.py` for texts from
outside; the engine `model` keeps what outgrows a context. The files cannot be in the workspace, where others could read
what one person was told. The files of one turn are in one directory, and are removed together: `app/ops/results.py`.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import UUID

from switchboard.core.text.cut import cut
from switchboard.core.text.outside import outside_json
from switchboard.core.turns.images import INBOX
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.tools import SHOWN, ToolScope
from switchboard.tools.threads import StopSignal, in_thread
from switchboard.tools.workspace import (
    MOST_WRITTEN,
    RESULTS,
    FileToWrite,
    ToolRefusal,
    entries,
    meaning,
    remove,
    root_of,
    write,
)

DIRECTORY: Final = ".results"
"""A directory beside the workspaces of the butlers, none of which can have that name."""
MOST: Final = SHOWN
"""Maximum characters of a page that a model sees, and of other results unless their tool has its own maximum."""
QUOTA: Final = 256 * 1024**2
"""Bytes that the results of one reader may take on disk."""
_MOST_TOLD: Final = MOST - 500
_LIMITS: Final = (MOST - 2000, 7000, 3500, 1200)
"""Lengths of a text in characters, tried in turn: as JSON it is longer, at worst twelve times as long."""


def shorten(text: str, scope: ToolScope, name: str, stop: StopSignal | None = None, most: int = MOST) -> str:
    """`text`, if it has at most `most` characters; else its head and tail, and a mark that names the file with it.

    `name`: that of the tool. Repeated calls use the same file. Blocks while writing.
    """
    return text if len(text) <= most else cut(text, most, keep(text, scope, name, stop))


async def told_as_data(said: str, about: JsonMapping, text: str, scope: ToolScope, name: str) -> str:
    """`said`, then `about` with the text from outside, as JSON that nothing inside can end.

    A long text is cut, and kept in a file, complete and unchanged.
    """
    if len(text) <= MOST and len(whole := outside_json({**about, "text": text})) <= _MOST_TOLD:
        return said + whole
    where = await in_thread(lambda stop: keep(text, scope, name, stop))
    shorter = (outside_json({**about, "text": cut(text, most, where)}) for most in _LIMITS)
    return said + next((one for one in shorter if len(one) <= _MOST_TOLD), outside_json(about))


def keep(text: str, scope: ToolScope, name: str, stop: StopSignal | None = None) -> str:
    """Write a whole result to its file; returns a phrase that says where it is, or why it could not be kept."""
    parts = (RESULTS, f"{scope.turn}", f"{name}-{scope.key}.txt")
    data = text[:MOST_WRITTEN].encode("utf-8", "replace")[:MOST_WRITTEN]
    all_of_it = "all of it is" if len(data) < MOST_WRITTEN else f"the first {MOST_WRITTEN} bytes are"
    try:
        write(root_of(scope, parts), FileToWrite(parts, data, scope.key), stop or StopSignal(), min(QUOTA, scope.quota))
    except ToolRefusal as refused:
        return f"they could not be kept: {refused}"
    except OSError as error:
        return f"they could not be kept: the file {meaning(error)}"
    return f"{all_of_it} in the file {'/'.join(parts)}"


def turns_with_results(root: Path, stop: StopSignal) -> list[UUID]:
    """The turns with results for these readers, oldest first. Raises OSError, `ToolRefusal`."""
    if not root.is_dir():
        return []
    try:
        found = [entry.name for entry in entries(root, (RESULTS,), stop, deep=False) if entry.is_directory]
    except FileNotFoundError:
        return []
    return [UUID(name) for name in found if _is_turn(name)]


def remove_results(root: Path, turn: UUID, stop: StopSignal) -> None:
    """Remove the results of a turn. Raises OSError."""
    remove(root, (RESULTS, f"{turn}"), stop)


def remove_if_empty(root: Path) -> None:
    """Remove the directory of a reader if it contains nothing any more."""
    for empty in (root / RESULTS, root / INBOX, root):
        with suppress(OSError):  # it does not exist, or is not empty
            empty.rmdir()


def _is_turn(name: str) -> bool:
    """Whether a name is that of a turn's directory."""
    try:
        return f"{UUID(name)}" == name and UUID(name).version == 7
    except ValueError:
        return False
