"""Restores a whole installation from one file into an empty directory, whole or not at all.

Called by `cli/backup.py`. In: a backup and a directory; out: an installation there that `switchboard up` starts. All
hashes are checked before anything is written. Nothing is written outside of the directory, except to a database that
`database_url` names; links are made last, so that no path of the backup can lead through one. Until the end, the
directory has settings that no command accepts, so that nobody starts half an installation. Next: `archive.py`.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Final

from msgspec import Struct
from msgspec.structs import replace

from switchboard import __version__
from switchboard.app.database import existing_database
from switchboard.app.dumps import Progress
from switchboard.app.ops.backup import restore
from switchboard.app.ops.installation.archive import (
    DUMP,
    FILES,
    SEALED,
    ArchiveEntry,
    BackupManifest,
    Reference,
    members,
    read_manifest,
)
from switchboard.app.ops.installation.passphrases import require_sealing
from switchboard.app.settings import Settings, load_settings
from switchboard.app.settings_file import FILE_NAME
from switchboard.connectors.kernel.pausing import pause_account
from switchboard.distribution import OUR_VARIABLES
from switchboard.domain.errors import ConfigurationError, Conflict, InvalidInput, NotFound
from switchboard.lanes.faults import point
from switchboard.store.checkup import OpenWork, schema_facts
from switchboard.store.migrate import known_schema
from switchboard.trees import remove_tree

_UNFINISHED: Final = """# A restore into this directory has not finished.
# If none is running, empty the directory and restore again.
this_restore_has_not_finished = true
"""
_DRAFT: Final = ".switchboard.toml.restoring"
_DUMP_FILE: Final = ".database.dump.restoring"
_SPARE: Final = 64 << 20
"""Bytes that a new database takes before anything is in it."""


class RestoreRequest(Struct, frozen=True):
    """What to restore, and where. `paused`: no account is connected until it is resumed."""

    directory: Path
    passphrase: str | None = None
    paused: bool = False


class Restored(Struct, frozen=True):
    """What was restored. `edited` are files in which paths were changed; `to_give` names what must be given again.

    `open_work` was waiting or running when the backup was made: messages are answered again, replies are `uncertain`.
    """

    manifest: BackupManifest
    migrated: tuple[str, ...]
    edited: tuple[str, ...]
    to_give: tuple[str, ...]
    paused: tuple[str, ...]
    open_work: OpenWork


@contextmanager
def opened_backup(file: Path) -> Iterator[tuple[IO[bytes], BackupManifest]]:
    """The file and its manifest, everything in it checked. Raises NotFound, InvalidInput."""
    if not file.is_file():
        raise NotFound(f"there is no backup {file}")
    try:
        with file.open("rb") as opened:
            yield opened, read_manifest(opened)
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error.message}") from error
    except OSError as error:
        raise ConfigurationError(f"{error.filename or file} cannot be read: {error.strerror}") from error


def check_restore(manifest: BackupManifest, wanted: RestoreRequest) -> None:
    """Raise ConfigurationError or Conflict if this backup cannot be restored here, before anything is written."""
    contents = manifest.contents
    if _version_of(contents.release) > _version_of(__version__) or contents.schema > known_schema():
        raise ConfigurationError(
            f"the backup was made by release {contents.release} (schema {contents.schema}), and this is {__version__} "
            f"(schema {known_schema()}); install that release or a newer one"
        )
    _require_empty(wanted.directory)
    for name, path in contents.directories.items():
        variable = f"{OUR_VARIABLES}{name.upper()}"
        place = wanted.directory.resolve() / path
        if (given := os.environ.get(variable)) and Path(given).resolve() != place:
            raise ConfigurationError(f"{variable} is {given}, and this is restored to {place}: unset the variable")
    _require_space(manifest, wanted.directory)


def _version_of(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release)[:3])


def _require_empty(directory: Path) -> None:
    try:
        there = [entry.name for entry in os.scandir(directory)]
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError(f"nothing can be restored into {directory}: {error.strerror}") from error
    if there:
        raise Conflict(f"{directory} is not empty (it has {min(there)!r}); a restore needs an empty or new directory")


def _require_space(manifest: BackupManifest, directory: Path) -> None:
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    files = sum(entry.size for entry in manifest.entries)
    dump = sum(entry.size for entry in manifest.entries if entry.path == DUMP)
    needed, free = files + dump + _SPARE, shutil.disk_usage(place).free
    if needed > free:
        raise ConfigurationError(f"this takes at least {needed} bytes, and {place} has {free} free")


def open_secrets(file: IO[bytes], passphrase: str) -> Mapping[str, tuple[ArchiveEntry, bytes]]:
    """The secrets by their paths in the backup. Raises InvalidInput for a wrong passphrase, ConfigurationError."""
    require_sealing()
    from switchboard.app.ops.installation.sealing import unseal

    sealed = next(b"".join(pieces) for entry, pieces in members(file) if entry.path == SEALED)
    inner = io.BytesIO(unseal(sealed, passphrase))
    listed = {entry.path for entry in read_manifest(inner).entries}
    return {entry.path: (entry, b"".join(pieces)) for entry, pieces in members(inner) if entry.path in listed}


async def restore_installation(
    file: IO[bytes], manifest: BackupManifest, wanted: RestoreRequest, progress: Progress
) -> Restored:
    """Restore a checked backup; if that fails, the directory is empty again.

    Raises ConfigurationError, Conflict, InvalidInput for a wrong passphrase, Unavailable.
    """
    check_restore(manifest, wanted)
    secrets = open_secrets(file, wanted.passphrase) if manifest.sealed and wanted.passphrase is not None else {}
    restoring = _Restoring(file, manifest, wanted.directory.resolve(), secrets)
    try:
        with _emptied_on_failure(wanted.directory):
            return await _restore_files(restoring, wanted, progress)
    except OSError as error:
        named = error.filename or wanted.directory
        raise ConfigurationError(f"nothing was restored: {named}: {error.strerror or error}") from error


async def _restore_files(restoring: _Restoring, wanted: RestoreRequest, progress: Progress) -> Restored:
    restoring.begin()
    settings = load_settings(restoring.directory / _DRAFT)
    point("restore_begun")
    lasting = settings.database_url is not None
    if lasting:  # a database that outlives a failure comes last
        await _require_empty_database(settings)
        await restoring.write_files(progress)
    migrated, work = await _restore_database(settings, restoring.directory / _DUMP_FILE, progress)
    if not lasting:  # an embedded one makes its directory itself
        await restoring.write_files(progress)
    paused = restoring.pause() if wanted.paused else ()
    point("restore_written")
    restoring.finish()
    edited, to_give = tuple(restoring.edited), tuple(_to_give(restoring))
    return Restored(restoring.manifest, migrated, edited, to_give, paused, work)


async def _require_empty_database(settings: Settings) -> None:
    async with existing_database(settings) as database:
        if tables := (await schema_facts(database)).tables:
            raise Conflict(
                f"the database that the settings name is not empty ({tables} tables); name an empty one as "
                f"{OUR_VARIABLES}DATABASE_URL, or drop its schema `switchboard`"
            )


async def _restore_database(settings: Settings, dump: Path, progress: Progress) -> tuple[tuple[str, ...], OpenWork]:
    """Returns the migrations that were applied, and what is open."""
    # Unpacked beside it: there is room, and a restore that is killed leaves nothing elsewhere.
    restored = await restore(settings, dump, progress, force=False, scratch=dump.parent)
    dump.unlink()  # noqa: ASYNC240 - of a file at hand
    return tuple(one.name for one in restored.migrated), restored.open


def _to_give(restoring: _Restoring) -> Iterator[str]:
    """What the backup does not have, for people."""
    contents = restoring.manifest.contents
    if not restoring.secrets:
        yield from contents.secrets
    yield from restoring.by_hand
    yield from (f"environment variable {name}" for name in contents.variables if not os.environ.get(name))
    yield from (f"login for {name}" for name in contents.logins)


@contextmanager
def _emptied_on_failure(directory: Path) -> Iterator[None]:
    """Create the directory if it is missing; whatever fails in the block, remove all that is in it."""
    made = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in os.listdir(opened):  # noqa: PTH208 - by descriptor
                remove_tree(opened, name)
        finally:
            os.close(opened)
        if made:
            with suppress(OSError):
                directory.rmdir()
        raise


@dataclass(slots=True)
class _Restoring:
    """Writes the members of a backup below `directory`."""

    file: IO[bytes]
    manifest: BackupManifest
    directory: Path
    secrets: Mapping[str, tuple[ArchiveEntry, bytes]]
    edited: list[str] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Write the dump, and the settings as a draft. Raises OSError, InvalidInput."""
        _write_file(self.directory / FILE_NAME, ArchiveEntry(FILE_NAME), iter((_UNFINISHED.encode(),)))
        data = self.directory / self.manifest.contents.directories["data_dir"]
        data.parent.mkdir(parents=True, exist_ok=True)
        data.mkdir(mode=0o700)
        text, mode = "", 0o600
        for entry, pieces in self._check_members():
            if entry.path == DUMP:
                _write_file(self.directory / _DUMP_FILE, ArchiveEntry(DUMP), pieces)
            elif entry.path == FILES + FILE_NAME:
                text, mode = _decode_settings(b"".join(pieces)), entry.mode
        if (secret := self.secrets.get(FILES + FILE_NAME)) is not None:
            text = _decode_settings(secret[1])
        text = self._with_directories(self._with_new_paths(FILE_NAME, text))
        _write_file(self.directory / _DRAFT, ArchiveEntry(FILE_NAME, mode=mode), iter((text.encode(),)))

    async def write_files(self, progress: Progress) -> None:
        """Write all other files, then links, then the permissions of directories. Raises OSError, InvalidInput.

        Between two files it can be cancelled; a thread would go on, and write into what is being emptied.
        """
        done, later = 0, []
        for entry, pieces in self._check_members():
            if entry.path.startswith(FILES) and entry.path != FILES + FILE_NAME:
                if entry.kind == "link":
                    later.append(entry)
                else:
                    self._write_entry(entry, pieces)
                done += entry.size
                progress(done)
                await asyncio.sleep(0)
        for path, (entry, data) in self.secrets.items():
            if path != FILES + FILE_NAME:
                self._write_entry(entry, iter((data,)))
        for entry in later:
            place = self._place_of(entry)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(entry.target)
        for entry in reversed(self.manifest.entries):
            if entry.path.startswith(FILES) and entry.kind == "directory":
                os.utime(self._place_of(entry), (entry.mtime, entry.mtime))
                self._place_of(entry).chmod(entry.mode & 0o777)

    def pause(self) -> tuple[str, ...]:
        """Pause all accounts; returns their names. Raises ConfigurationError."""
        files = sorted((self.directory / self.manifest.contents.directories["channels_dir"]).glob("*.toml"))
        for file in files:
            pause_account(file)
        return tuple(file.stem for file in files)

    def finish(self) -> None:
        """Put the settings in their place: from now on it is an installation. Raises OSError."""
        os.sync()  # all files before the settings: a power failure must not leave half of them behind whole settings
        (self.directory / _DRAFT).replace(self.directory / FILE_NAME)

    def _check_members(self) -> Iterator[tuple[ArchiveEntry, Iterator[bytes]]]:
        """All members with their bytes; InvalidInput is raised if one is no longer what was checked before."""
        listed = {entry.path: entry for entry in self.manifest.entries}
        for entry, pieces in members(self.file):
            if (known := listed.get(entry.path)) is not None:
                if replace(known, sha256="") != entry:
                    raise _change_error(known)
                yield entry, _verify_pieces(known, pieces)

    def _place_of(self, entry: ArchiveEntry) -> Path:
        return self.directory / entry.path.removeprefix(FILES)

    def _write_entry(self, entry: ArchiveEntry, pieces: Iterator[bytes]) -> None:
        place, path = self._place_of(entry), entry.path.removeprefix(FILES)
        if entry.kind == "directory":
            place.mkdir(parents=True, exist_ok=True)
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        if self._names_paths(path):
            text = b"".join(pieces).decode(errors="surrogateescape")
            pieces = iter((self._with_new_paths(path, text).encode(errors="surrogateescape"),))
        _write_file(place, entry, pieces)

    def _names_paths(self, path: str) -> bool:
        """Whether it is a file of a team or an account."""
        directories = self.manifest.contents.directories
        above, _, name = path.rpartition("/")
        return (above == directories.get("teams_dir") and name.endswith(".json")) or (
            above == directories.get("channels_dir") and name.endswith(".toml")
        )

    def _with_new_paths(self, path: str, text: str) -> str:
        """The text of a file in which what led to the old installation leads to this one."""
        before = text
        for one in self.manifest.contents.references:
            place = str(self.directory / one.path)
            if one.file == path and os.path.normpath(self.directory / one.base / one.written) != place:
                edited = _with_value(text, one, place)
                if edited == text:
                    self.by_hand.append(f"{path}: {one.key} is {one.written}, and should be {place}")
                text = edited
        text = self._below_new_root(text)
        if text != before:
            self.edited.append(path)
        return text

    def _below_new_root(self, text: str) -> str:
        """Strings that begin with the old root, as of programs in a team's directory, begin with the new one."""
        old, new = self.manifest.contents.root.rstrip("/"), str(self.directory)
        for quote in ('"', "'") if old and old != new else ():
            text = text.replace(f"{quote}{old}/", f"{quote}{new}/").replace(
                f"{quote}{old}{quote}", f"{quote}{new}{quote}"
            )
        return text

    def _with_directories(self, text: str) -> str:
        """The settings, with each directory where it is restored to. Raises ConfigurationError."""
        before = text
        for name, path in self.manifest.contents.directories.items():
            if self._target_of_setting(text, name) != self.directory / path:
                text = _with_setting(text, name, path)
            if self._target_of_setting(text, name) != self.directory / path:
                raise ConfigurationError(f'{FILE_NAME}: write {name} = "…" in a line of its own, and save it again')
        if text != before and FILE_NAME not in self.edited:
            self.edited.append(FILE_NAME)
        return text

    def _target_of_setting(self, text: str, name: str) -> Path | None:
        """Where a setting of a directory leads."""
        usual = "channels.d" if name == "channels_dir" else None
        try:
            value = tomllib.loads(text).get(name, usual)
        except ValueError as error:
            raise ConfigurationError(f"the settings in the backup are not TOML: {error}") from error
        return Path(os.path.normpath(self.directory / value)) if isinstance(value, str) else None


def _with_value(text: str, reference: Reference, value: str) -> str:
    """JSON or TOML in which the key of a reference has another value."""
    for quoted in _quoted(reference.written):
        pattern = rf"""((?<![\w-])["']?{re.escape(reference.key)}["']?\s*[:=]\s*){re.escape(quoted)}"""
        text = re.sub(pattern, lambda match: match[1] + _quote_string(value), text)
    return text


def _with_setting(text: str, name: str, value: str) -> str:
    """The settings with a text as one of them: in its line, or in a new one at the top."""
    line = f"{name} = {_quote_string(value)}"
    tables = re.search(r"(?m)^\s*\[", text)
    before = re.compile(rf"(?m)^{name}\s*=.*$").search(text, 0, tables.start() if tables else len(text))
    return f"{line}\n{text}" if before is None else text[: before.start()] + line + text[before.end() :]


def _quote_string(text: str) -> str:
    """As JSON and TOML write a string."""
    return json.dumps(text, ensure_ascii=False)


def _quoted(written: str) -> tuple[str, ...]:
    """How JSON and TOML may write a string."""
    return json.dumps(written), json.dumps(written, ensure_ascii=False), f"'{written}'"


def _decode_settings(data: bytes) -> str:
    """The text of settings. Raises InvalidInput."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{FILE_NAME} in the backup is not text: {error}") from error


def _verify_pieces(known: ArchiveEntry, pieces: Iterator[bytes]) -> Iterator[bytes]:
    digest = sha256()
    for piece in pieces:
        digest.update(piece)
        yield piece
    if known.kind == "file" and digest.hexdigest() != known.sha256:
        raise _change_error(known)


def _change_error(entry: ArchiveEntry) -> InvalidInput:
    return InvalidInput(f"{entry.path!r} has changed since it was checked")


def _write_file(place: Path, entry: ArchiveEntry, pieces: Iterator[bytes]) -> None:
    """A new file. Raises OSError, also if there is one."""
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fchmod(descriptor, entry.mode & 0o777)
        if entry.mtime:
            os.utime(descriptor, (entry.mtime, entry.mtime))
