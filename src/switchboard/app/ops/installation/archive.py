"""The file of a backup: a plain tar whose last members list all others with their hashes.

Called by `saving.py`, which writes it, and `restoring.py`, which reads it. In: an open file; out: members and a
`BackupManifest`. What was cut off has no manifest, and what was changed does not match it, so neither is taken for a
backup.
The hashes protect against accidents, not against people: who can write to a backup can also change its manifest.
Next: `inventory.py`.
"""

from __future__ import annotations

import json
import os
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import IO, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from switchboard.domain.errors import InvalidInput

DUMP: Final = "database.dump"
SEALED: Final = "secrets.age"
FILES: Final = "files/"
"""Before the paths of the installation's files."""
DIRECTORIES: Final = frozenset({"teams_dir", "channels_dir", "data_dir"})
"""The settings that name directories of an installation."""
_MANIFEST: Final = "manifest.json"
_CHECK: Final = "manifest.sha256"
_PIECE: Final = 1 << 20
_BLOCK: Final = tarfile.BLOCKSIZE
_LARGEST_MANIFEST: Final = 1 << 30
_LONGEST: Final = 4000
"""Bytes of a path; Linux opens none of more than 4095."""

Kind = Literal["file", "directory", "link"]
_KINDS: Final[Mapping[bytes, Kind]] = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.DIRTYPE: "directory",
    tarfile.SYMTYPE: "link",
}
_TYPES: Final[Mapping[Kind, bytes]] = {
    "file": tarfile.REGTYPE,
    "directory": tarfile.DIRTYPE,
    "link": tarfile.SYMTYPE,
}


class ArchiveEntry(Struct, frozen=True):
    """A member. `mode`: its permissions; `mtime` in seconds; `sha256` in hex for a file, `target` for a link."""

    path: str
    kind: Kind = "file"
    mode: int = 0o600
    mtime: int = 0
    size: int = 0
    sha256: str = ""
    target: str = ""


class Reference(Struct, frozen=True):
    """A value `written` under `key` in `file`, relative to the directory `base`, that leads to `path`.

    `file`, `base` and `path` are relative to the installation.
    """

    file: str
    key: str
    written: str
    base: str
    path: str


class Contents(Struct, frozen=True):
    """What a backup says of itself.

    `root` is where the installation was, `directories` are its `teams_dir`, `channels_dir` and `data_dir`, relative to
    it. `secrets` names the files with secrets, `variables` and `logins` what no backup has, `left_out` what this one
    should have and does not.
    """

    release: str
    schema: int
    made_at: str
    root: str
    directories: Mapping[str, str]
    references: tuple[Reference, ...] = ()
    secrets: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    workspaces: bool = True


class BackupManifest(Struct, frozen=True):
    """The contents and every other member."""

    contents: Contents
    entries: tuple[ArchiveEntry, ...]

    @property
    def sealed(self) -> bool:
        """Whether the secrets are in it."""
        return any(entry.path == SEALED for entry in self.entries)


class ArchiveWriter:
    """Writes members to a file that can be sought; `close` makes it a backup."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._entries: list[ArchiveEntry] = []

    @property
    def paths(self) -> frozenset[str]:
        """The paths of all members so far."""
        return frozenset(entry.path for entry in self._entries)

    @contextmanager
    def growing(self, entry: ArchiveEntry) -> Iterator[Callable[[bytes], None]]:
        """A file whose pieces are written in the block; only then its size and hash are known. Raises OSError."""
        start, digest, size = self._file.tell(), sha256(), 0

        def write(piece: bytes) -> None:
            nonlocal size
            self._file.write(piece)
            digest.update(piece)
            size += len(piece)

        self._file.write(_header_of(entry))
        yield write
        whole = msgspec.structs.replace(entry, size=size, sha256=digest.hexdigest())
        self._file.write(bytes(-size % _BLOCK))
        self._file.seek(start)
        self._file.write(_header_of(whole))  # as long as the first one: in this format any size has the same length
        self._file.seek(0, os.SEEK_END)
        self._entries.append(whole)

    def add(self, entry: ArchiveEntry, data: bytes = b"") -> None:
        """A small file, a directory or a link. Raises OSError."""
        if entry.kind == "file":
            with self.growing(entry) as write:
                write(data)
            return
        self._file.write(_header_of(entry))
        self._entries.append(entry)

    def add_opened(self, entry: ArchiveEntry, opened: int) -> bool:
        """A file that is open. Returns whether it changed while it was read. Raises OSError."""
        before = os.fstat(opened)
        with self.growing(entry) as write:
            left = before.st_size  # of a file that grows without end, as long as it was
            while left > 0 and (piece := os.read(opened, min(left, _PIECE))):
                write(piece)
                left -= len(piece)
        after = os.fstat(opened)
        return (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns)

    def close(self, contents: Contents) -> None:
        """The manifest, its hash, and the end. Raises OSError."""
        manifest = {"contents": _plain_contents(contents), "entries": [asdict(entry) for entry in self._entries]}
        text = json.dumps(manifest, separators=(",", ":")).encode()  # ASCII: names of files need not be Unicode
        self.add(ArchiveEntry(_MANIFEST), text)
        self.add(ArchiveEntry(_CHECK), _check_line(text))
        self._file.write(bytes(2 * _BLOCK))


def _plain_contents(contents: Contents) -> dict[str, object]:
    return {**asdict(contents), "references": [asdict(one) for one in contents.references]}


def _check_line(text: bytes) -> bytes:
    """As `sha256sum` writes it."""
    return f"{sha256(text).hexdigest()}  {_MANIFEST}\n".encode()


def _header_of(entry: ArchiveEntry) -> bytes:
    info = tarfile.TarInfo(entry.path)
    info.type, info.linkname = _TYPES[entry.kind], entry.target
    info.mode, info.mtime, info.size = entry.mode, entry.mtime, entry.size
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def read_manifest(file: IO[bytes]) -> BackupManifest:
    """Read the whole file and compare everything in it with its manifest. Raises InvalidInput."""
    found: dict[str, ArchiveEntry] = {}
    kept: dict[str, bytes] = {}
    for entry, pieces in members(file):
        if entry.path in found or entry.path in kept:
            raise _damage_error(f"it has {entry.path!r} twice")
        if entry.path in {_MANIFEST, _CHECK}:
            if entry.size > _LARGEST_MANIFEST:
                raise _damage_error("its manifest is too large")
            kept[entry.path] = b"".join(pieces)
        else:
            found[entry.path] = _with_hash(entry, pieces)
    return _check_manifest(found, kept)


def _with_hash(entry: ArchiveEntry, pieces: Iterable[bytes]) -> ArchiveEntry:
    """The entry with the hash of its bytes, if it is a file."""
    digest = sha256()
    for piece in pieces:
        digest.update(piece)
    return msgspec.structs.replace(entry, sha256=digest.hexdigest()) if entry.kind == "file" else entry


def _check_manifest(found: dict[str, ArchiveEntry], kept: Mapping[str, bytes]) -> BackupManifest:
    if _MANIFEST not in kept or kept.get(_CHECK) != _check_line(kept[_MANIFEST]):
        raise _damage_error("its end is missing or was changed, so it was cut off or is none")
    try:
        manifest = msgspec.convert(json.loads(kept[_MANIFEST]), BackupManifest)
    except (ValueError, RecursionError) as error:
        raise _damage_error(f"its manifest cannot be read: {error}") from error
    listed = {entry.path: entry for entry in manifest.entries}
    for path in sorted(listed.keys() | found.keys()):
        if listed.get(path) != found.get(path):
            raise _damage_error(f"{path!r} is not what the manifest says")
    _check_tree(found)
    _check_places(manifest.contents, found)
    return manifest


def _check_places(contents: Contents, entries: Mapping[str, ArchiveEntry]) -> None:
    """Whatever the contents place somewhere lies in the installation, and no link leads its directories elsewhere."""
    if not {"channels_dir", "data_dir"} <= contents.directories.keys() <= DIRECTORIES:
        raise _damage_error("it does not say where its directories go")
    for path in (*contents.directories.values(), *(one.path for one in contents.references)):
        if not is_safe(path):
            raise _damage_error(f"{path!r} is not a path in an installation")
    for path in contents.directories.values():
        _check_above(f"{FILES}{path}/", entries)


def _check_tree(entries: Mapping[str, ArchiveEntry]) -> None:
    """Nothing lies below a file or a link."""
    for path in entries:
        _check_above(path, entries)


def _check_above(path: str, entries: Mapping[str, ArchiveEntry]) -> None:
    above = path
    while above := above.rpartition("/")[0]:
        if above in entries and entries[above].kind != "directory":
            raise _damage_error(f"{path!r} lies below {above!r}, which is no directory")


def members(file: IO[bytes]) -> Iterator[tuple[ArchiveEntry, Iterator[bytes]]]:
    """Every member with its bytes, which must be read before the next member is. Raises InvalidInput."""
    file.seek(0)
    with (
        _as_damage(),
        tarfile.open(fileobj=file, mode="r:", errorlevel=2, encoding="utf-8", errors="surrogateescape") as tar,
    ):
        for info in tar:
            yield _entry_of(info), _pieces_of(tar, info)


@contextmanager
def _as_damage() -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, ValueError, OverflowError, EOFError, MemoryError) as error:
        raise _damage_error(str(error) or "a size in it is impossible") from error


def _entry_of(info: tarfile.TarInfo) -> ArchiveEntry:
    kind = _KINDS.get(info.type)
    if kind is None or info.issparse():
        raise _damage_error(f"{info.name!r} is neither a file, a directory nor a symbolic link")
    if not is_safe(info.name) or (kind != "file" and info.size):
        raise _damage_error(f"{info.name!r} is not a path in a backup")
    target = info.linkname if kind == "link" else ""
    return ArchiveEntry(info.name, kind, stat.S_IMODE(info.mode), int(info.mtime), info.size, "", target)


def is_safe(path: str) -> bool:
    """Whether a path is relative, plain, and leads nowhere else."""
    names = path.split("/")
    return not ({"", ".", ".."} & set(names)) and "\0" not in path and len(os.fsencode(path)) <= _LONGEST


def _pieces_of(tar: tarfile.TarFile, info: tarfile.TarInfo) -> Iterator[bytes]:
    with _as_damage():
        reader = tar.extractfile(info) if info.isreg() else None
        while reader is not None and (piece := reader.read(_PIECE)):
            yield piece


def _damage_error(why: str) -> InvalidInput:
    return InvalidInput(f"this is not a backup made by `switchboard backup`, or it is damaged: {why}")
