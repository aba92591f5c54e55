"""Access to the files of a workspace and to nothing else on the machine, whatever a model or a program does there.

Called by `files.py`, `search.py` and `results.py`, in threads. In: the root and a path that a model wrote; out:
descriptors, bytes, entries, or `ToolRefusal` with a sentence for the model.

A path is opened component by component, each relative to the descriptor of the one before and without following links,
so that nothing that is swapped meanwhile can lead outside. Only regular files with one name are read or replaced: a
FIFO would block, a device could do anything, and a hard link may belong to a file elsewhere.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote
from uuid import UUID

from msgspec import Struct

from switchboard.core.turns.images import INBOX
from switchboard.ports.tools import QUOTA, ToolScope
from switchboard.tools.threads import StopSignal
from switchboard.trees import remove_tree, walk

MOST_ENTRIES: Final = 100_000
"""Maximum of files and directories that are looked at in one call."""
MOST_WRITTEN: Final = 4 * 1024**2
"""Maximum bytes of a file that is written."""
RESULTS: Final = "tool-results"
"""A reader's directory of long results, as a model sees it; it is outside the workspace, which others also read."""
OWN: Final = {RESULTS: "results of tools", INBOX: "what people send"}
"""Directories that each reader has separately, and their purpose."""
TEMPORARY: Final = ".switchboard-"
"""Prefix of files that are being written; they are neither listed nor searched."""

_DEEPEST: Final = 32
_LONGEST: Final = 1024
_PIECE: Final = 262_144
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_UNFOLLOWED: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link, which is not followed",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_MEANINGS: Final = {
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "leads through something that is not a directory; links are not followed",
    errno.ELOOP: "is a symbolic link, which is not followed",
    errno.ENAMETOOLONG: "has a part that is too long for a file name",
    errno.EACCES: "may not be opened",
    errno.EPERM: "may not be opened",
    errno.ENOSPC: "cannot be written: the disk is full",
    errno.EDQUOT: "cannot be written: the disk is full",
}


class ToolRefusal(Exception):
    """A sentence for the model: what is wrong, and what would be correct."""


class DirectoryEntry(Struct, frozen=True):
    """One entry of a directory. `path` is relative to the workspace; `at` is open until the next entry is asked for."""

    path: str
    name: str
    at: int
    status: os.stat_result

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_regular(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)


class FileToWrite(Struct, frozen=True):
    """A file to write: its whole content, of at most `most` bytes, and the key of the step that writes it."""

    parts: Sequence[str]
    data: bytes
    key: UUID
    most: int = MOST_WRITTEN


def workspace_name(butler: str) -> str:
    """The name of a butler as a safe name of a directory, not hidden: the team file may contain `..`."""
    name = quote(butler, safe=" ")
    return f"%2E{name[1:]}" if name.startswith(".") else name


def parts_of(path: str) -> tuple[str, ...]:
    """The names in a path relative to the workspace; none for the workspace itself. Raises `ToolRefusal`."""
    if path.startswith("/"):
        raise ToolRefusal("paths are relative to the workspace: write notes/plan.md, not /notes/plan.md")
    names = tuple(name for name in path.split("/") if name not in {"", "."})
    if ".." in names:
        raise ToolRefusal("a path cannot contain '..': nothing outside of the workspace can be reached")
    if "\x00" in path or any("\ud800" <= character <= "\udfff" for character in path):
        raise ToolRefusal("a path cannot contain NUL or half a character")
    if any(name.startswith(TEMPORARY) for name in names):
        raise ToolRefusal(f"names that begin with {TEMPORARY} are not for use")
    if len(path) > _LONGEST or len(names) > _DEEPEST:
        raise ToolRefusal(f"a path has at most {_LONGEST} characters and {_DEEPEST} parts")
    return names


def root_of(scope: ToolScope, parts: Sequence[str]) -> Path:
    """The root of this path: the workspace, or the directory kept for this reader. Raises `ToolRefusal`."""
    if not parts or parts[0] not in OWN:
        return scope.workspace
    if scope.results is None:
        raise ToolRefusal("nothing is kept there")
    return scope.results


def meaning(error: OSError) -> str:
    """What went wrong, as a phrase that follows a path."""
    return _MEANINGS.get(error.errno or 0, f"cannot be used: {error.strerror or type(error).__name__}")


def what(status: os.stat_result) -> str:
    """A name for something that is not a regular file."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "not a regular file")


@contextmanager
def directory(root: Path, parts: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """The descriptor of a directory of the workspace; `make` creates missing directories. Raises OSError."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    at = os.open(root, _DIRECTORY)  # the operator chose the root, so it may be a link
    try:
        for name in parts:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=at)
            inner = os.open(name, _DIRECTORY | _UNFOLLOWED, dir_fd=at)
            os.close(at)
            at = inner
        yield at
    finally:
        os.close(at)


@contextmanager
def regular_file(at: int, name: str) -> Iterator[int]:
    """The descriptor of a regular file in an open directory, for reading. Raises OSError, `ToolRefusal`."""
    check_regular(os.stat(name, dir_fd=at, follow_symlinks=False))  # merely opening a device may have an effect
    opened = os.open(name, os.O_RDONLY | _UNFOLLOWED, dir_fd=at)
    try:
        check_regular(os.fstat(opened))
        yield opened
    finally:
        os.close(opened)


@contextmanager
def opened_file(root: Path, parts: Sequence[str]) -> Iterator[int]:
    """The same for a file by its path, whose last part is its name."""
    *above, name = parts
    with directory(root, above) as at, regular_file(at, name) as opened:
        yield opened


def check_regular(status: os.stat_result) -> None:
    """Raises `ToolRefusal` unless it is a regular file with one name."""
    if not stat.S_ISREG(status.st_mode):
        raise ToolRefusal(f"it is {what(status)}; only regular files can be used")
    if status.st_nlink != 1:
        raise ToolRefusal("it has more than one name (hard links), so it may belong to something else; copy it first")


def read_at(opened: int, offset: int, size: int = _PIECE) -> bytes:
    """At most `size` bytes from `offset` of an open file; none at its end."""
    return os.pread(opened, size, offset)


async def pieces_of(opened: int) -> AsyncIterator[bytes]:
    """The bytes of an open file, each piece read in a thread. Raises OSError."""
    offset = 0
    while piece := await asyncio.to_thread(read_at, opened, offset):
        yield piece
        offset += len(piece)


def entries(root: Path, parts: Sequence[str], stop: StopSignal, *, deep: bool = True) -> Iterator[DirectoryEntry]:
    """The entries of a directory, by name, each directory followed by its entries. Raises OSError, `ToolRefusal`.

    Below the first level, entries that cannot be opened or have disappeared are left out.
    """
    left = iter(range(MOST_ENTRIES))
    with directory(root, parts) as at:
        for entry in _below(at, "".join(f"{name}/" for name in parts), stop, _DEEPEST if deep else 0):
            if next(left, None) is None:
                raise ToolRefusal(f"more than {MOST_ENTRIES} files and directories are too many to look through")
            yield entry


def files_at(root: Path, parts: Sequence[str], stop: StopSignal) -> Iterator[DirectoryEntry]:
    """The same, and of a path to a regular file the one entry of that file: models search in files, too."""
    *above, name = parts or [""]
    if name:
        with directory(root, above) as at:
            entry = DirectoryEntry("/".join(parts), name, at, os.stat(name, dir_fd=at, follow_symlinks=False))
            if entry.is_regular:
                yield entry
                return
    yield from entries(root, parts, stop)


def _below(at: int, prefix: str, stop: StopSignal, depth: int) -> Iterator[DirectoryEntry]:
    with os.scandir(at) as found:
        names = sorted(one.name for one in islice(found, MOST_ENTRIES + 1))
    for name in names:
        stop.check()
        with suppress(FileNotFoundError):
            yield (entry := DirectoryEntry(prefix + name, name, at, os.stat(name, dir_fd=at, follow_symlinks=False)))
            if depth and entry.is_directory:
                yield from _inside(entry, stop, depth - 1)


def _inside(entry: DirectoryEntry, stop: StopSignal, depth: int) -> Iterator[DirectoryEntry]:
    try:
        at = os.open(entry.name, _DIRECTORY | _UNFOLLOWED, dir_fd=entry.at)
    except OSError:
        return
    try:
        yield from _below(at, f"{entry.path}/", stop, depth)
    finally:
        os.close(at)


def write(root: Path, file: FileToWrite, stop: StopSignal, quota: int = QUOTA) -> bool:
    """Write a whole file, or nothing; returns whether there was one before. Raises OSError, `ToolRefusal`.

    It is written under another name and renamed, so that no reader sees half of it and no link is written through.
    """
    *above, name = file.parts
    if len(file.data) > file.most:
        raise ToolRefusal(f"a file that is written has at most {file.most} bytes, not {len(file.data)}")
    _check_quota(root, file, stop, quota)
    with directory(root, above, make=True) as at:
        mode = _mode(at, name)
        _replace(at, name, file, 0o600 if mode is None else mode, stop)
        return mode is not None


def remove(root: Path, parts: Sequence[str], stop: StopSignal) -> None:
    """Remove a file, a directory of any depth with all its contents, or a link, but not its target. Raises OSError."""
    *above, name = parts
    with directory(root, above) as at:
        remove_tree(at, name, stop.check)


def remove_older(above: Path, name: str, before: float, stop: StopSignal) -> None:
    """Remove a file or a link that was last changed before a time, and of a directory all that was.

    The time is in seconds since 1970. A directory goes with the last file in it. Raises OSError, `ToolRefusal`.
    """
    with directory(above, ()) as at:
        _remove_older(at, name, before, stop, _DEEPEST)


def _remove_older(at: int, name: str, before: float, stop: StopSignal, depth: int) -> None:
    status = os.stat(name, dir_fd=at, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        if status.st_ctime < before:
            os.unlink(name, dir_fd=at)
        return
    if _newest_below(at, name, stop) < before:
        remove_tree(at, name, stop.check)
        return
    if not depth:
        raise ToolRefusal(f"{name}: newer files are too deep among older ones")
    inner = os.open(name, _DIRECTORY | _UNFOLLOWED, dir_fd=at)
    try:
        for one in os.listdir(inner):  # noqa: PTH208 - of a descriptor
            stop.check()
            with suppress(FileNotFoundError):
                _remove_older(inner, one, before, stop, depth - 1)
    finally:
        os.close(inner)


def _newest_below(at: int, name: str, stop: StopSignal) -> float:
    """When what is below a directory was last changed, but for directories. What cannot be looked at is old."""
    newest = 0.0
    try:
        inner = os.open(name, _DIRECTORY | _UNFOLLOWED, dir_fd=at)
    except PermissionError:
        return newest
    try:
        for one in walk(inner, lambda _: None):
            stop.check()
            with suppress(FileNotFoundError):
                newest = newest if one.is_directory else max(newest, one.status().st_ctime)
    finally:
        os.close(inner)
    return newest


def _mode(at: int, name: str) -> int | None:
    """The permissions of the file that will be replaced; None if there is none. Raises `ToolRefusal`."""
    try:
        status = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    check_regular(status)
    return stat.S_IMODE(status.st_mode) & 0o777


def _replace(at: int, name: str, file: FileToWrite, mode: int, stop: StopSignal) -> None:
    temporary = f"{TEMPORARY}{file.key}.tmp"
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=at)  # left by an interrupted attempt of the same step
    opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _UNFOLLOWED, 0o600, dir_fd=at)
    try:
        _write_all(opened, file.data, stop)
        os.fchmod(opened, mode)
        os.fsync(opened)
        os.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)
        os.fsync(at)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=at)
        raise
    finally:
        os.close(opened)


def _write_all(opened: int, data: bytes, stop: StopSignal) -> None:
    rest = memoryview(data)
    while rest:
        stop.check()
        rest = rest[os.write(opened, rest[:_PIECE]) :]


def _size(at: int, stop: StopSignal) -> int:
    """The bytes on disk below a directory. Raises OSError, `ToolRefusal`."""
    used = 0
    for count, one in enumerate(walk(at, lambda _: None), 1):
        stop.check()
        if count > MOST_ENTRIES:
            raise ToolRefusal(f"more than {MOST_ENTRIES} files and directories are too many to look through")
        with suppress(FileNotFoundError):
            used += one.status().st_blocks * 512
    return used


def _check_quota(root: Path, file: FileToWrite, stop: StopSignal, quota: int) -> None:
    """A file counts until it is replaced; a sparse file counts with its size on disk. Raises `ToolRefusal`.

    Each of the directories in `OWN` is counted separately.
    """
    counted, used, more = file.parts[:1] if file.parts[0] in OWN else (), 0, len(file.data)
    with suppress(FileNotFoundError), directory(root, counted) as at:
        used = _size(at, stop)
    if used + more > quota:
        raise ToolRefusal(
            f"the workspace is full: it may hold {quota} bytes and holds {used}; delete or shorten a file"
        )
