"""Detects the kinds of files to import, and reads their entries one by one.

Called by `commands.py`. In: paths; out: `SourceItem`s with their positions, never more than one in memory. Next:
`core/files/imports.py`, which splits a file into its entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from shlex import quote
from stat import S_ISREG
from typing import Final, Literal

from msgspec import Struct

from switchboard.core.files.imports import MAX_ENTRY, read_jsonl, read_mbox
from switchboard.domain.errors import InvalidInput, NotFound

_JSONL: Final = frozenset({".jsonl", ".ndjson", ".json"})
_EML: Final = frozenset({".eml", ".msg"})
_MBOX: Final = frozenset({".mbox", ".mbx"})
_MAILDIR: Final = ("cur", "new")
_THREADING: Final = (b"references", b"in-reply-to", b"message-id")
_HEAD: Final = 65_536
# An array, or an object that spans several lines.
_DOCUMENT: Final = re.compile(rb"\[\s*[\[{\]]|\{[^\r\n]*(?<=[{\[,])[ \t]*[\r\n]")
_ID = re.compile(rb"<[^<>\s]+>")


def is_mail(file: Path) -> bool:
    """Whether the name is that of a single mail."""
    return file.suffix.lower() in _EML


SourceKind = Literal["mbox", "eml", "jsonl"]
"""What a file holds: many mails, one mail, or envelopes line by line."""


class SourceFile(Struct, frozen=True):
    """A file to be read; `size` in bytes."""

    file: Path
    kind: SourceKind
    size: int


class SourceItem(Struct, frozen=True):
    """One mail or envelope from a file; `place` is its position: `offset 4711`, `line 3`."""

    file: Path
    place: str
    data: bytes

    @property
    def too_long(self) -> bool:
        """Whether it was truncated on reading."""
        return len(self.data) > MAX_ENTRY


def find_sources(paths: Iterable[Path], kind: SourceKind | None = None) -> list[SourceFile]:
    """The files that `paths` mean, folders replaced by the `.eml` files below them and the mails of a Maildir, sorted.

    Raises NotFound for a missing path, InvalidInput for a file of unknown kind or a folder without mails.
    """
    return [source for path in paths for source in _files_below(path, kind)]


def _files_below(path: Path, kind: SourceKind | None) -> list[SourceFile]:
    try:
        if not path.is_dir():
            return [_source_of(path, kind)]
        files = sorted(file for file in path.rglob("*") if _is_mail_of_folder(file) and file.is_file())
    except FileNotFoundError:
        raise NotFound(f"there is no file or folder {path}") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
    if not files:
        raise InvalidInput(
            f"the folder {path} contains no .eml files and is not a Maildir; name mbox or .jsonl files individually"
        )
    return [SourceFile(file, "eml", file.stat().st_size) for file in files]


def _is_mail_of_folder(file: Path) -> bool:
    """Recognised by its name, or as part of a Maildir."""
    return file.suffix.lower() == ".eml" or (file.parent.name in _MAILDIR and (file.parent.parent / "tmp").is_dir())


def _source_of(path: Path, kind: SourceKind | None) -> SourceFile:
    facts = path.stat()
    if kind is None and not S_ISREG(facts.st_mode):
        # Reading stdin to inspect it would consume it.
        raise InvalidInput(f"{path} is a pipe or similar, not a file; use --kind to say what it contains")
    return SourceFile(path, kind or _detect_kind(path), facts.st_size)


def _detect_kind(file: Path) -> SourceKind:
    """By its first bytes, otherwise by its name, which is wrong more often."""
    with file.open("rb") as stream:
        start = stream.read(4096).removeprefix(b"\xef\xbb\xbf")
    if start.startswith(b"From "):
        return "mbox"
    if _DOCUMENT.match(start.lstrip()):
        how = "'.[]'" if start.lstrip().startswith(b"[") else "."
        raise InvalidInput(
            f"{file} is one JSON document, and import takes one envelope a line:"
            f" jq -c {how} {quote(str(file))} > lines.jsonl (or use --kind jsonl)"
        )
    if start.lstrip().startswith(b"{"):
        return "jsonl"
    by_name: dict[frozenset[str], SourceKind] = {_JSONL: "jsonl", _EML: "eml", _MBOX: "mbox"}
    for suffixes, kind in by_name.items():
        if file.suffix.lower() in suffixes:
            return kind
    if re.match(rb"[A-Za-z][A-Za-z0-9-]*:[ \t\r\n]", start):
        return "eml"
    raise InvalidInput(f"{file} is not recognised as mbox, mail or JSON lines; use --kind to say what it is")


def read_items(source: SourceFile) -> Iterator[SourceItem]:
    """The entries of one file, in order. Raises InvalidInput if an mbox is not one; OSErrors pass unchanged."""
    with source.file.open("rb") as stream:
        if source.kind == "eml":
            yield SourceItem(source.file, "", stream.read(MAX_ENTRY + 1))
        elif source.kind == "mbox":
            for offset, data in read_mbox(stream):
                yield SourceItem(source.file, f"offset {offset}", data)
        else:
            for line, data in read_jsonl(stream):
                yield SourceItem(source.file, f"line {line}", data)


def thread_of(mail: bytes) -> bytes:
    """A name shared by all mails of a thread: the first mail they refer to, otherwise their own id or content."""
    head = re.split(rb"\r?\n\r?\n", mail[:_HEAD], maxsplit=1)[0]
    fields: dict[bytes, bytes] = {}
    for line in re.split(rb"\r?\n(?![ \t])", head):
        name, _, value = line.partition(b":")
        fields.setdefault(name.strip().lower(), value)
    for name in _THREADING:
        if found := _ID.search(fields.get(name, b"")):
            return found[0]
    return mail
