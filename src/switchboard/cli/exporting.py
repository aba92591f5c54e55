"""What is kept of a person, fetched into a directory: a line of JSON for each thing, and the bytes that lines name.

`people.py` calls it. In: a new directory; out: `people.jsonl`, `originals/` with messages as they came, `files/` with
each file once, by its SHA-256. Bytes are written as they come; a file that is not what it should be is an error.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final

from msgspec import Struct

from switchboard.cli.client import Client, part
from switchboard.cli.output import Json
from switchboard.domain.errors import Unavailable

LINES: Final = "people.jsonl"
_ORIGINALS: Final = "originals"
_FILES: Final = "files"
_NAME: Final = re.compile(r"[0-9a-f][0-9a-f-]{30,80}")
_AGAIN: Final = "run it again"


class _Wanted(Struct, frozen=True):
    """Bytes to fetch, and the file they go to; `digest`: what they must have, if that is known."""

    path: str
    file: Path
    digest: str | None = None


async def write_export(client: Client, person: str, directory: Path) -> tuple[int, int]:
    """Write it; returns how many things, and how many files. Raises Unavailable if it is not whole."""
    lines = directory / LINES
    exported = await _write_lines(client, person, lines)
    for name in (_ORIGINALS, _FILES):
        (directory / name).mkdir(mode=0o700)
    count = 0
    for wanted in _find_wanted(lines, directory):
        if not wanted.file.exists():
            await _fetch_bytes(client.download(wanted.path), wanted)
            count += 1
    return exported, count


async def _write_lines(client: Client, person: str, lines: Path) -> int:
    exported: int | None = None
    with _create_file(lines) as file:
        async for line in client.lines(f"/v1/people/{part(person)}/export", {}):
            if "kept_in" in line:
                file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            else:
                exported = line["exported"]
    if exported is None:
        raise Unavailable(f"the export ended too early; {_AGAIN}")
    return exported


def _find_wanted(lines: Path, directory: Path) -> Iterator[_Wanted]:
    with lines.open(encoding="utf-8") as written:
        for line in written:
            if (wanted := _read_wanted(json.loads(line), directory)) is not None:
                yield wanted


def _read_wanted(item: Json, directory: Path) -> _Wanted | None:
    match item:
        case {"kind": "message", "request_id": str(name), "original_bytes": int(size)} if size:
            return _Wanted(f"/v1/messages/{_require_name(name)}/raw", directory / _ORIGINALS / name)
        case {"kind": "file", "sha256": str(name)}:
            return _Wanted(f"/v1/blobs/{_require_name(name)}", directory / _FILES / name, name)
        case _:
            return None


def _require_name(name: str) -> str:
    """An id or a hash, which cannot lead out of the directory."""
    if not _NAME.fullmatch(name):
        raise Unavailable(f"the export names {name!r}, which is neither an id nor a hash")
    return name


async def _fetch_bytes(pieces: AsyncIterator[bytes], wanted: _Wanted) -> None:
    digest = sha256()
    with _create_file(wanted.file) as file:
        async for piece in pieces:
            digest.update(piece)
            file.write(piece)
    if wanted.digest not in {None, digest.hexdigest()}:
        raise Unavailable(f"the file {wanted.digest} came incomplete; {_AGAIN}")


def _create_file(path: Path) -> BinaryIO:
    return open(path, "xb", opener=_open_private)


def _open_private(path: Any, flags: int) -> int:
    return os.open(path, flags, 0o600)
