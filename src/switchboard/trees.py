"""Trees of directories of any depth, which commands may have made: looked through, and removed.

Called for workspaces (`tools/workspace.py`, `sandbox/watchdog.py`) and scratch directories. In: the descriptor of a
directory; out: its entries. Nothing is recursive, no path is put together, and at most `_KEPT` descriptors are open:
further below, the way up is `..`, and it is checked that it leads to where the way down came from. Links are not
followed. Like `tasks.py` it knows nothing of Switchboard.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

_KEPT: Final = 64
_OPENED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_Identity = tuple[int, int]


class TreeEntry(Struct, frozen=True):
    """Something in a tree; ask it for more only before the next is asked for.

    `depth`: how many directories of the tree it is in, itself included if it is one; `length`: the bytes of its path.
    """

    entry: os.DirEntry[str]
    depth: int
    length: int
    is_directory: bool

    def status(self) -> os.stat_result:
        """Its status. Raises OSError."""
        return self.entry.stat(follow_symlinks=False)


@dataclass(slots=True)
class _Level:
    """A directory on the way down: open unless it is far below; `waiting` are directories in it with their lengths."""

    opened: int | None
    identity: _Identity
    waiting: list[tuple[str, int]]


def walk(root: int, refused: Callable[[OSError], None], *, files: bool = True) -> Iterator[TreeEntry]:
    """All entries below an open directory, each directory before what is in it; without `files`, directories only.

    `refused` is called with the error of a directory that cannot be looked through, and may raise another. Raises
    OSError (ESTALE) if directories far below are moved meanwhile.
    """
    at = os.dup(root)
    levels: list[_Level] = []
    try:
        levels.append(_Level(at, _identity_of(at), []))
        yield from _entries_at(at, levels, 0, files)
        while levels:
            if not levels[-1].waiting:
                levels.pop()
                if levels:
                    at = _climb_above(at, levels[-1])
                continue
            name, length = levels[-1].waiting.pop()
            try:
                inner = os.open(name, _OPENED, dir_fd=at)
            except OSError as error:
                refused(error)
                continue
            if levels[-1].opened is None:
                os.close(at)
            at = inner
            levels.append(_Level(at if len(levels) < _KEPT else None, _identity_of(at), []))
            yield from _entries_at(at, levels, length, files)
    finally:
        for number in {at, *(level.opened for level in levels if level.opened is not None)}:
            os.close(number)


def _entries_at(at: int, levels: list[_Level], length: int, files: bool) -> Iterator[TreeEntry]:
    waiting = levels[-1].waiting
    with os.scandir(at) as found:
        for entry in found:
            is_directory = entry.is_dir(follow_symlinks=False)
            if is_directory or files:
                one = TreeEntry(entry, len(levels), length + len(os.fsencode(entry.name)) + 1, is_directory)
                if is_directory:
                    waiting.append((entry.name, one.length))
                yield one


def _climb_above(at: int, to: _Level) -> int:
    """The descriptor of the level above, instead of that of `at`."""
    outer = to.opened if to.opened is not None else _open_outer(at, to.identity)
    os.close(at)
    return outer


def remove_tree(above: int, name: str, check: Callable[[], None] = lambda: None) -> None:
    """Remove a file, a link, or a directory with everything in it. Raises OSError, and what `check` raises.

    `check` is called again and again meanwhile.
    """
    if not stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=above)
        return
    names, outside = [name], [_identity_of(above)]
    at = _enter_directory(above, name)
    try:
        while names:
            if (below := _first_full(at, check)) is not None:
                outside.append(_identity_of(at))
                names.append(below)
                inner = _enter_directory(at, below)
            else:
                inner = _open_outer(at, outside.pop())
            os.close(at)
            at = inner
            if below is None:
                os.rmdir(names.pop(), dir_fd=at)
    finally:
        os.close(at)


def _first_full(at: int, check: Callable[[], None]) -> str | None:
    """Remove what is in a directory, until there is a directory in it that is not empty, and return its name."""
    with os.scandir(at) as found:
        for entry in found:
            check()
            with suppress(FileNotFoundError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=at)
                elif not _remove_entry(at, entry.name):
                    return entry.name
    return None


def _remove_entry(at: int, name: str) -> bool:
    try:
        os.rmdir(name, dir_fd=at)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
        return False
    return True


def _enter_directory(at: int, name: str) -> int:
    """The descriptor of a directory that is to be emptied: its mode is changed if its owner may not do so."""
    try:
        inner = os.open(name, _OPENED, dir_fd=at)
    except PermissionError:
        closed = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        try:
            os.chmod(f"/proc/self/fd/{closed}", 0o700)  # noqa: PTH101 - not by its name, which may be another's by now
        finally:
            os.close(closed)
        inner = os.open(name, _OPENED, dir_fd=at)
    if os.fstat(inner).st_mode & 0o700 != 0o700:
        with suppress(PermissionError):
            os.fchmod(inner, 0o700)
    return inner


def _open_outer(at: int, expected: _Identity) -> int:
    """The directory above an open one. Raises OSError if it is not the expected one."""
    outer = os.open("..", _OPENED, dir_fd=at)
    if _identity_of(outer) != expected:
        os.close(outer)
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
    return outer


def _identity_of(opened: int) -> _Identity:
    found = os.fstat(opened)
    return found.st_dev, found.st_ino
