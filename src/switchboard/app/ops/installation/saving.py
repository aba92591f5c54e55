"""Saves a whole installation in one file: the database first, then files, secrets, and the manifest.

Called by `cli/backup.py`. In: settings and what is wanted; out: a finished backup, or none. It runs beside a working
installation: the dump is one snapshot, and the files are those of the moments after it. No link in a directory is
followed, since butlers can make some in their workspaces. Next: `restoring.py`.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from switchboard import __version__
from switchboard.app.database import existing_database
from switchboard.app.dumps import Progress, partial_file
from switchboard.app.ops.backup import dump
from switchboard.app.ops.installation.archive import (
    DUMP,
    FILES,
    SEALED,
    ArchiveEntry,
    ArchiveWriter,
    Contents,
    Kind,
    is_safe,
    read_manifest,
)
from switchboard.app.ops.installation.inventory import BackupPiece, Inventory
from switchboard.app.ops.installation.passphrases import require_sealing
from switchboard.app.settings import Settings
from switchboard.app.settings_file import FILE_NAME, SettingsFile
from switchboard.domain.errors import ConfigurationError
from switchboard.lanes.faults import point
from switchboard.store.checkup import schema_bytes

_DEEPEST: Final = 200
_LARGEST_SECRET: Final = 1 << 20
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_UNFOLLOWED: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_URLS: Final = ("database_url", "database_direct_url")


class SaveRequest(Struct, frozen=True):
    """What to save, and where. Without a `passphrase` secrets are left out."""

    file: Path
    inventory: Inventory
    settings_file: SettingsFile
    root: Path
    passphrase: str | None = None
    workspaces: bool = True


class PartSize(Struct, frozen=True):
    """How many files a part of the installation has, and their bytes; of the database its tables."""

    kind: str
    files: int
    size_bytes: int


class Saved(Struct, frozen=True):
    """A finished backup. `changed` are files that changed while they were read, so they may be partly old."""

    size_bytes: int
    contents: Contents
    sealed: bool
    changed: tuple[str, ...]


class _Found(Struct, frozen=True):
    """Something in a directory: its path below the root of the walk, and how it is reached."""

    path: str
    name: str
    at: int
    status: os.stat_result


async def measure(settings: Settings, inventory: Inventory) -> list[PartSize]:
    """The sizes of the database and of all files. Raises ConfigurationError, Unavailable."""
    async with existing_database(settings) as database:
        sizes = {"database": PartSize("database", 1, await schema_bytes(database))}
    for piece in inventory.pieces.values():
        known = sizes.get(piece.kind, PartSize(piece.kind, 0, 0))
        found = [one.st_size for one in _statuses_below(piece, inventory) if stat.S_ISREG(one.st_mode)]
        sizes[piece.kind] = PartSize(piece.kind, known.files + len(found), known.size_bytes + sum(found))
    return list(sizes.values())


def _statuses_below(piece: BackupPiece, inventory: Inventory) -> Iterator[os.stat_result]:
    if not piece.tree:
        yield _status_of(piece)
        return
    for found in _Walk(inventory.excluded, []).below(piece.source):
        yield found.status


def _status_of(piece: BackupPiece) -> os.stat_result:
    try:
        return piece.source.stat()
    except OSError as error:
        raise ConfigurationError(f"{piece.source} cannot be read: {error.strerror}") from error


def require_space(file: Path, sizes: Sequence[PartSize]) -> None:
    """Raise ConfigurationError if the files alone have no room at the backup; how large the dump will be is unknown."""
    needed = sum(size.size_bytes for size in sizes if size.kind != "database")
    try:
        free = shutil.disk_usage(file.absolute().parent).free
    except OSError as error:
        raise ConfigurationError(f"no backup can be written to {file}: {error.strerror}") from error
    if needed > free:
        raise ConfigurationError(f"the files take {needed} bytes, and {file.absolute().parent} has {free} free")


async def save_installation(settings: Settings, wanted: SaveRequest, progress: Progress) -> Saved:
    """Write the backup, whole or not at all, readable by its owner only.

    Raises ConfigurationError, Conflict if there is no database yet, Unavailable, and InvalidInput if what was written
    cannot be read back.
    """
    _check_target(wanted)
    try:
        with partial_file(wanted.file) as partial, partial.open("r+b") as out:
            saved = await _write_archive(settings, wanted, out, progress)
            out.flush()
            read_manifest(out)  # as a restore will; a disk that lies is noticed while the older backup is still there
    except OSError as error:
        named = error.filename or wanted.file
        raise ConfigurationError(f"the backup was not written: {named}: {error.strerror or error}") from error
    return msgspec.structs.replace(saved, size_bytes=wanted.file.stat().st_size)


def _check_target(wanted: SaveRequest) -> None:
    """Raise ConfigurationError for a file that would be part of itself, and a passphrase that cannot be used."""
    if wanted.passphrase is not None:
        require_sealing()
    place = wanted.file.absolute()
    for piece in wanted.inventory.pieces.values():
        if piece.tree and place.is_relative_to(piece.source):
            raise ConfigurationError(f"{wanted.file} lies in {piece.source}, which is saved; name a file elsewhere")


async def _write_archive(settings: Settings, wanted: SaveRequest, out: IO[bytes], progress: Progress) -> Saved:
    writer = ArchiveWriter(out)
    with writer.growing(ArchiveEntry(DUMP)) as write:

        def write_on(piece: bytes) -> None:
            write(piece)
            progress(out.tell())

        schema = await dump(settings, write_on)
    point("backup_dumped")
    saving = _Saving(wanted, writer)
    contents = await saving.write_files(lambda: progress(out.tell()))
    contents = msgspec.structs.replace(contents, schema=schema)
    sealed = saving.write_secrets(contents)
    writer.close(contents)
    point("backup_written")
    return Saved(0, contents, sealed, tuple(saving.changed))


@dataclass(slots=True)
class _Saving:
    """Writes the pieces; keeps the secrets for the member that is encrypted."""

    wanted: SaveRequest
    writer: ArchiveWriter
    secrets: list[tuple[ArchiveEntry, bytes]] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    async def write_files(self, progress: Callable[[], None]) -> Contents:
        """Write everything but the secrets. Raises OSError, ConfigurationError.

        Between two files it can be cancelled.
        """
        for piece in self.wanted.inventory.pieces.values():
            if piece.tree:
                await self._write_tree(piece, progress)
            else:
                self._write_piece(piece)
            progress()
        made_at = datetime.now(UTC).isoformat(timespec="seconds")
        told = Contents(__version__, 0, made_at, str(self.wanted.root), {}, workspaces=self.wanted.workspaces)
        told = msgspec.structs.replace(told, secrets=tuple(self.named), left_out=tuple(self.left_out))
        return self.wanted.inventory.contents(told)

    def write_secrets(self, contents: Contents) -> bool:
        """Write the encrypted member, a backup of its own inside; returns whether there is one.

        Raises OSError, and ConfigurationError if a secret has the path of another file.
        """
        self._require_own_paths()
        if self.wanted.passphrase is None or not self.secrets:
            return False
        from switchboard.app.ops.installation.sealing import seal

        inner = io.BytesIO()
        writer = ArchiveWriter(inner)
        for entry, data in self.secrets:
            writer.add(entry, data)
        writer.close(contents)
        self.writer.add(ArchiveEntry(SEALED), seal(inner.getvalue(), self.wanted.passphrase))
        return True

    def _require_own_paths(self) -> None:
        """Two files with one path cannot be restored, and one of them may be a secret that is not encrypted."""
        taken = set(self.writer.paths - {FILES + FILE_NAME})  # the settings are in both, here without passwords
        for entry, _ in self.secrets:
            if entry.path in taken:
                path = entry.path.removeprefix(FILES)
                raise ConfigurationError(f"the backup would have two files {path}, one of them a secret; rename one")
            taken.add(entry.path)

    def _write_piece(self, piece: BackupPiece) -> None:
        """A file that the settings name, so it may be a link. Raises ConfigurationError if it cannot be read."""
        entry = _entry_of(FILES + piece.path, _status_of(piece))
        try:
            opened = os.open(piece.source, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._write_opened(piece, entry, opened)
            finally:
                os.close(opened)
        except PermissionError as error:
            raise ConfigurationError(f"{piece.source} cannot be read: {error.strerror}") from error

    def _write_opened(self, piece: BackupPiece, entry: ArchiveEntry, opened: int) -> None:
        if piece.kind == "settings":
            self._write_settings(entry)
        elif self.wanted.inventory.is_secret(piece, entry.path):
            self._keep_secret(piece, entry, opened)
        elif self.writer.add_opened(entry, opened):
            self.changed.append(entry.path.removeprefix(FILES))

    def _write_settings(self, entry: ArchiveEntry) -> None:
        """The settings without the passwords in them, and, for the encrypted member, with them."""
        text = self.wanted.settings_file.text
        public, passwords = without_passwords(text, self.wanted.settings_file)
        self.writer.add(entry, public.encode())
        if passwords:
            self.named.extend(f"{FILE_NAME}: the password in {name}" for name in passwords)
            self.secrets.append((entry, text.encode()))

    def _keep_secret(self, piece: BackupPiece, entry: ArchiveEntry, opened: int) -> None:
        path = entry.path.removeprefix(FILES)
        data = os.read(opened, _LARGEST_SECRET + 1)
        if len(data) > _LARGEST_SECRET:
            self.left_out.append(f"{path} is too large for a secret")
            return
        self.secrets.append((entry, data))
        if piece.kind != "tokens":  # a server and its connectors make new ones
            self.named.append(path)

    async def _write_tree(self, piece: BackupPiece, progress: Callable[[], None]) -> None:
        self.writer.add(_entry_of(FILES + piece.path, _status_of(piece)))
        for found in _Walk(self.wanted.inventory.excluded, self.left_out).below(piece.source):
            path = f"{FILES}{piece.path}/{found.path}"
            if not is_safe(path):
                self.left_out.append(f"{piece.path}/{found.path} has too long a path")
                continue
            self._write_found(piece, path, found)
            progress()
            await asyncio.sleep(0)

    def _write_found(self, piece: BackupPiece, path: str, found: _Found) -> None:
        entry = _entry_of(path, found.status)
        if stat.S_ISDIR(found.status.st_mode):
            self.writer.add(entry)
        elif stat.S_ISLNK(found.status.st_mode):
            with suppress(OSError):  # if it was removed or replaced meanwhile
                target = os.readlink(found.name, dir_fd=found.at)
                entry = msgspec.structs.replace(entry, target=target)
            if entry.target:
                self.writer.add(entry)
        elif stat.S_ISREG(found.status.st_mode):
            self._write_regular(piece, entry, found)
        else:
            self.left_out.append(f"{path.removeprefix(FILES)} is neither a file, a directory nor a link")

    def _write_regular(self, piece: BackupPiece, entry: ArchiveEntry, found: _Found) -> None:
        try:
            opened = os.open(found.name, os.O_RDONLY | _UNFOLLOWED, dir_fd=found.at)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO}:
                raise
            if error.errno != errno.ENOENT:  # whoever removes a file meanwhile does not want it saved
                self.left_out.append(f"{entry.path.removeprefix(FILES)} cannot be read: {error.strerror}")
            return
        try:
            if stat.S_ISREG(os.fstat(opened).st_mode):
                self._write_opened(piece, entry, opened)
        finally:
            os.close(opened)


def _entry_of(path: str, status: os.stat_result) -> ArchiveEntry:
    kind: Kind = "directory" if stat.S_ISDIR(status.st_mode) else "link" if stat.S_ISLNK(status.st_mode) else "file"
    return ArchiveEntry(path, kind, stat.S_IMODE(status.st_mode) & 0o777, max(0, int(status.st_mtime)))


class _Walk(Struct, frozen=True):
    """Walks a directory without following links; what cannot be looked at is told in `left_out`."""

    excluded: set[Path]
    left_out: list[str]

    def below(self, root: Path) -> Iterator[_Found]:
        """Everything below a directory, each directory before its content. Raises OSError for the root."""
        at = os.open(root, _DIRECTORY)  # the settings name it, so it may be a link
        try:
            yield from self._entries_below(at, root, "")
        finally:
            os.close(at)

    def _entries_below(self, at: int, place: Path, above: str) -> Iterator[_Found]:
        for name in sorted(os.listdir(at)):
            if place / name in self.excluded:
                continue
            try:
                status = os.stat(name, dir_fd=at, follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield _Found(above + name, name, at, status)
            if stat.S_ISDIR(status.st_mode):
                yield from self._entries_inside(at, place / name, f"{above}{name}/")

    def _entries_inside(self, at: int, place: Path, path: str) -> Iterator[_Found]:
        if path.count("/") > _DEEPEST:
            self.left_out.append(f"{place}: what is in it lies too deep")
            return
        try:
            inner = os.open(place.name, _DIRECTORY | _UNFOLLOWED, dir_fd=at)
        except OSError as error:
            self.left_out.append(f"{place} cannot be read: {error.strerror}")
            return
        try:
            yield from self._entries_below(inner, place, path)
        finally:
            os.close(inner)


def without_passwords(text: str, file: SettingsFile) -> tuple[str, list[str]]:
    """The text of the settings without the passwords of databases, and which settings had one.

    Raises ConfigurationError for a password that is written in such a way that it cannot be found in the text.
    """
    found, public = [], text
    for name in _URLS:
        url = file.values.get(name)
        if isinstance(url, str) and (written := _passwords_in(url)):
            if not all(one in text for one in written):
                raise ConfigurationError(
                    f"{file.place((name,))}: write the password without escapes, or use the environment"
                )
            for one, without in written.items():
                public = public.replace(one, without)
            found.append(name)
    return public, found


def _passwords_in(url: str) -> dict[str, str]:
    """Where a URL has a password, as it is written there, and the same without it."""
    account, at, _ = urlsplit(url).netloc.rpartition("@")
    user, colon, password = account.partition(":")
    found = {f"{user}:{password}@": f"{user}@"} if at and colon and password else {}
    for field_ in urlsplit(url).query.split("&"):
        name, _, value = field_.partition("=")
        if unquote(name) == "password" and value:
            found[field_] = "password="
    return found
