"""What an installation consists of, found from its settings: files, directories, secrets, and what lies elsewhere.

Called by `saving.py`. In: settings and the directory where Switchboard is started; out: an `Inventory`. Files are
found by the names of the options that lead to them, those of engines of others too: `prompt_file`, `workspace`, every
other `…_file`, `secret_files`, and `file` below `secrets`. Variables are found the same way: `…_env`, `pass_env`.
Next: `saving.py`.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from switchboard.app.ops.engines import WORKSPACES
from switchboard.app.ops.installation.archive import Contents, Reference
from switchboard.app.ownership import read_ours
from switchboard.app.settings import Settings
from switchboard.app.settings_file import FILE_NAME, SettingsFile
from switchboard.app.whereabouts import OPERATOR_FILE
from switchboard.distribution import OUR_VARIABLES
from switchboard.domain.errors import ConfigurationError

DIRECTORIES: Final[Mapping[str, str]] = {"teams_dir": "teams", "channels_dir": "channels.d", "data_dir": "data"}
"""Settings of directories, and where those go that lie outside of the installation."""
_PLAIN_ACCOUNT_FILES: Final = frozenset({".toml", ".paused"})
_NOT_GIVEN_AGAIN: Final = frozenset(
    {f"{OUR_VARIABLES}URL", f"{OUR_VARIABLES}TOKEN", *(f"{OUR_VARIABLES}{name.upper()}" for name in DIRECTORIES)}
)
"""Variables of clients, and of directories, which the restored settings name."""


class BackupPiece(Struct, frozen=True):
    """A file or a directory: where it is, and its path in the backup. `kind` is what people call it."""

    kind: str
    source: Path
    path: str
    tree: bool = False
    secret: bool = False


@dataclass(slots=True)
class Inventory:
    """All pieces by their source, and what the manifest says of them; filled step by step."""

    pieces: dict[Path, BackupPiece] = field(default_factory=dict)
    directories: dict[str, str] = field(default_factory=dict)
    references: list[Reference] = field(default_factory=list)
    variables: set[str] = field(default_factory=set)
    logins: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    excluded: set[Path] = field(default_factory=set)
    """What no tree takes along: pieces of their own, the data directory, workspaces that are not wanted."""

    def is_secret(self, piece: BackupPiece, path: str) -> bool:
        """Whether a file of a piece is a secret."""
        return piece.secret or (piece.kind == "accounts" and Path(path).suffix not in _PLAIN_ACCOUNT_FILES)

    def contents(self, contents: Contents) -> Contents:
        """The manifest's contents with what is known here."""
        return replace(
            contents,
            directories=self.directories,
            references=tuple(self.references),
            variables=tuple(sorted(self.variables)),
            logins=tuple(sorted(self.logins)),
            left_out=(*self.missing, *contents.left_out),
        )


def take_inventory(settings: Settings, file: SettingsFile, root: Path, *, workspaces: bool) -> Inventory:
    """Find everything. Raises ConfigurationError for files that cannot be read."""
    finding = _Finding(root, workspaces=workspaces)
    places = {"teams_dir": settings.teams_dir, "channels_dir": settings.channels_dir, "data_dir": settings.data_dir}
    for name, place in places.items():
        if place is not None:
            finding.name_directory(name, place)
    finding.add_settings(file)
    finding.add_teams(settings.teams_dir)
    finding.add_accounts(settings.channels_dir)
    finding.add_data(settings.data_dir)
    return finding.finish()


class _Option(Struct, frozen=True):
    """An option of a document: its name, its value, and the key before it in the text."""

    name: str
    value: str
    key: str


def _options_below(document: object, name: str = "", key: str = "") -> Iterator[_Option]:
    """All options with text below a document; those in `secret_files` are under that name."""
    if isinstance(document, str):
        yield _Option(name, document, key)
    elif isinstance(document, list):
        for one in document:
            yield from _options_below(one, name, key)
    elif isinstance(document, dict):
        for inner, value in document.items():
            yield from _options_below(value, _name_below(name, str(inner)), str(inner))
        if document.get("login") is True:
            yield _Option("login", str(document.get("name", document.get("kind", ""))), "login")


def _name_below(name: str, key: str) -> str:
    """The name of an option: that of a password in the settings of a module, `password = {file = …}`, is whole."""
    if name == "secret_files":
        return name
    return f"{name}_{key}" if name == "password" else key


class _Document(Struct, frozen=True):
    """A file with options: its path in the backup, its values, and what paths in it are relative to, by option.

    Only an account has secrets named `file` and `env`.
    """

    path: str
    values: object
    base: Callable[[str], Path]
    account: bool = False


@dataclass(slots=True)
class _Finding:
    """What was found so far, and where the directories that paths are relative to go."""

    root: Path
    workspaces: bool
    found: Inventory = field(default_factory=Inventory)
    bases: dict[Path, str] = field(default_factory=dict)

    def name_directory(self, name: str, place: Path) -> None:
        """Where a directory of the settings goes: to the same place in the installation, or to its usual one."""
        path = self._path_inside(place)
        taken = {*self.found.directories.values(), FILE_NAME}
        self.found.directories[name] = path if path and path not in taken else _free_path(DIRECTORIES[name], taken)

    def add_settings(self, file: SettingsFile) -> None:
        """The settings, and what they and the environment name."""
        if file.path is not None:
            self._add_piece(BackupPiece("settings", _place_of_file(file.path), FILE_NAME))
        values = tomllib.loads(file.text)
        self._follow_document(_Document(FILE_NAME, values, lambda _: self.root))
        self.found.variables.update(
            name
            for name in os.environ
            if name.startswith(OUR_VARIABLES) and name not in _NOT_GIVEN_AGAIN and os.environ[name]
        )

    def add_teams(self, place: Path | None) -> None:
        """The directory of the team files with all that is in it, and what they name.

        Of one with the whole installation in it, only the team files.
        """
        if place is None:
            return
        place = place.resolve()
        self.bases[place] = self.found.directories["teams_dir"]
        if not self.root.is_relative_to(place):
            self._add_piece(BackupPiece("team files", place, self.found.directories["teams_dir"], tree=True))
        for file in sorted(place.glob("*.json")):
            path = f"{self.found.directories['teams_dir']}/{file.name}"
            if self.root.is_relative_to(place):
                self._add_piece(BackupPiece("team files", file, path))
            members = _member_options(_parse_file(file, json.loads))
            self._follow_document(_Document(path, members, lambda name: self._base_of(name, place)))

    def add_accounts(self, place: Path) -> None:
        """The files of accounts, and the secrets that they name."""
        if not place.is_dir():
            return
        place = place.resolve()
        self.bases[place] = self.found.directories["channels_dir"]
        whole = not self.root.is_relative_to(place)
        if whole:
            self._add_piece(BackupPiece("accounts", place, self.found.directories["channels_dir"], tree=True))
        for file in sorted(place.glob("*.toml")):
            if not whole and file.name == FILE_NAME:
                continue
            path = f"{self.found.directories['channels_dir']}/{file.name}"
            if not whole:
                self._add_piece(BackupPiece("account files", file, path))
            self._follow_document(_Document(path, _parse_file(file, tomllib.loads), lambda _: place, account=True))

    def add_data(self, place: Path) -> None:
        """The tokens and the workspaces in the data directory; the database is dumped."""
        data, place = self.found.directories["data_dir"], place.resolve()
        self.found.excluded.add(place)
        for file in (place / OPERATOR_FILE, *sorted(place.glob("connectors/*.token"))):
            if file.is_file():
                path = f"{data}/{file.relative_to(place)}"
                self._add_piece(BackupPiece("tokens", file, path, secret=True))
        if self.workspaces and (place / WORKSPACES).is_dir():
            self._add_piece(
                BackupPiece("workspaces", (place / WORKSPACES).resolve(), f"{data}/{WORKSPACES}", tree=True)
            )

    def finish(self) -> Inventory:
        """Everything found. Of a secret that is a link, the file behind it is one, too."""
        pieces = self.found.pieces
        self.found.excluded.update(pieces, (piece.source.resolve() for piece in pieces.values() if piece.secret))
        return self.found

    def _base_of(self, name: str, place: Path) -> Path:
        return place if name in {"prompt_file", "workspace"} else self.root

    def _follow_document(self, document: _Document) -> None:
        """Note the variables that a document names, and add the files."""
        for option in _options_below(document.values):
            match option.name:
                case name if name.endswith("_env") or (name == "env" and document.account):
                    self.found.variables.add(option.value)
                case "login":
                    self.found.logins.add(option.value)
                case "workspace":
                    self._add_reference(document, option, "workspaces")
                case "prompt_file":
                    self._add_reference(document, option, "team files")
                case name if name.endswith("_file") or name == "secret_files" or (name == "file" and document.account):
                    self._add_reference(document, option, "secrets")
                case _:
                    pass

    def _add_reference(self, document: _Document, option: _Option, kind: str) -> None:
        """Add the file or the workspace that an option names."""
        base = document.base(option.name)
        tree = kind == "workspaces"
        place = (base / option.value).resolve() if tree else _place_of_file(base / option.value)
        if not (place.is_dir() if tree else place.is_file()):
            if not tree:  # a workspace is made when it is needed
                self.found.missing.append(f"{place}, which {document.path} names, is not there")
            path = self._below_root(place)
        else:
            path = self._path_of(place, kind)
            if not tree or self.workspaces:
                self._add_piece(BackupPiece(kind, place, path, tree=tree, secret=kind == "secrets"))
            else:
                self.found.excluded.add(place)
        path = path or f"{kind.replace(' ', '-')}/{place.name or 'root'}"
        self.found.references.append(Reference(document.path, option.key, option.value, self._path_of_base(base), path))

    def _path_of_base(self, base: Path) -> str:
        """Where the directory that a path is relative to lies in the restored installation."""
        return self.bases.get(base, "")

    def _path_of(self, place: Path, kind: str) -> str:
        """Where a file goes: to the same place in the installation, or to a directory for such files."""
        if place in self.found.pieces:
            return self.found.pieces[place].path
        for tree in (one for one in self.found.pieces.values() if one.tree and place.is_relative_to(one.source)):
            return f"{tree.path}/{place.relative_to(tree.source)}"
        taken = {one.path for one in self.found.pieces.values()}
        return self._below_root(place) or _free_path(f"{kind.replace(' ', '-')}/{place.name or 'root'}", taken)

    def _path_inside(self, place: Path) -> str:
        """The path of a place relative to the installation; empty if it is not in it."""
        return self._below_root(place.resolve())

    def _below_root(self, place: Path) -> str:
        return str(place.relative_to(self.root)) if place != self.root and place.is_relative_to(self.root) else ""

    def _add_piece(self, piece: BackupPiece) -> None:
        self.found.pieces.setdefault(piece.source, piece)


def _free_path(path: str, taken: set[str]) -> str:
    """The path, or one like it that is not taken."""
    number = 1
    while (path if number == 1 else f"{path}-{number}") in taken:
        number += 1
    return path if number == 1 else f"{path}-{number}"


def _place_of_file(file: Path) -> Path:
    """The place of a file, which may itself be a link; every directory has one name only."""
    return file.parent.resolve() / file.name


def _member_options(team: object) -> list[object]:
    """The options of the members of a team file."""
    systems = team.get("systems") if isinstance(team, dict) else None
    return [one.get("config") for one in systems if isinstance(one, dict)] if isinstance(systems, list) else []


def _parse_file(file: Path, parse: Callable[[str], object]) -> object:
    """The values of a file; one that is not valid is saved as it is, and names nothing."""
    try:
        return parse(read_ours(file))
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        return {}
