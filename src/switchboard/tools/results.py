"""What a model sees of a long result: its head, a mark, its tail; the whole is kept in a file for the same readers.

Called by `calls.py` for every result, in a thread, and by `web_fetch.py` and `mcp_servers.py` for texts from outside;
the engine `model` keeps what outgrows a context. The workspace would be no place for it: what one person was told is
read there by others. The files of one turn are in one directory, and go together: `app/ops/results.py`.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import UUID

from switchboard.core.cut import cut
from switchboard.core.outside import outside_json
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
"""Beside the workspaces of the butlers, none of which has that name."""
MOST: Final = SHOWN
"""Characters of a page that a model sees, and of other results unless their tool says otherwise."""
QUOTA: Final = 256 * 1024**2
"""Bytes on disk that the results of one reader may take."""
_MOST_TOLD: Final = MOST - 500
_LIMITS: Final = (MOST - 2000, 7000, 3500, 1200)
"""Characters of a text, tried in turn: as JSON it is longer, at worst by twelve times."""


def shorten(text: str, scope: ToolScope, name: str, stop: StopSignal | None = None, most: int = MOST) -> str:
    """`text`, if it has at most `most` characters; else head, mark and tail, and the whole in a file that is named.

    `name` of the tool. The file is the same whenever the call is made again. Blocks for as long as writing takes.
    """
    return text if len(text) <= most else cut(text, most, keep(text, scope, name, stop))


async def told_as_data(said: str, about: JsonMapping, text: str, scope: ToolScope, name: str) -> str:
    """`said`, then `about` with the text from outside, as JSON that nothing in it can end.

    A long text is cut, and kept in a file, whole and as it is.
    """
    if len(text) <= MOST and len(whole := outside_json({**about, "text": text})) <= _MOST_TOLD:
        return said + whole
    where = await in_thread(lambda stop: keep(text, scope, name, stop))
    shorter = (outside_json({**about, "text": cut(text, most, where)}) for most in _LIMITS)
    return said + next((one for one in shorter if len(one) <= _MOST_TOLD), outside_json(about))


def keep(text: str, scope: ToolScope, name: str, stop: StopSignal | None = None) -> str:
    """Write the whole of a result to its file; returns a phrase that says where it is, or why it is nowhere."""
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
    """The turns of which there are results for these readers, the oldest first. Raises OSError, `ToolRefusal`."""
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
    """Remove the directory of a reader who has nothing any more."""
    for empty in (root / RESULTS, root / INBOX, root):
        with suppress(OSError):  # it is not there, or not empty
            empty.rmdir()


def _is_turn(name: str) -> bool:
    """Whether a name is the one that we give to the directory of a turn."""
    try:
        return f"{UUID(name)}" == name and UUID(name).version == 7
    except ValueError:
        return False
