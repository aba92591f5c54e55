"""The file of a backup: it reads as it was written, or not at all, whatever happened to it and whoever made it."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Sequence
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from switchboard.app.ops.installation.archive import (
    ArchiveEntry,
    ArchiveWriter,
    BackupManifest,
    Contents,
    _header_of,
    is_safe,
    members,
    read_manifest,
)
from switchboard.app.ops.installation.saving import without_passwords
from switchboard.app.ops.installation.sealing import seal, unseal
from switchboard.app.settings_file import SettingsFile
from switchboard.domain.errors import ConfigurationError, InvalidInput

CONTENTS = Contents("0.1.0", 1, "2026-01-01T00:00:00+00:00", "/srv/house", {"data_dir": "data", "channels_dir": "c"})
Named = tuple[str, bytes]

_letters = st.characters(exclude_categories=["Cs"], exclude_characters="/\0")
_name = st.one_of(
    st.text(_letters, min_size=1, max_size=120),
    st.binary(min_size=1, max_size=20).map(os.fsdecode),
).filter(lambda name: name not in {".", ".."} and "/" not in name and "\0" not in name and len(os.fsencode(name)) < 256)
_files = st.dictionaries(st.lists(_name, min_size=1, max_size=4).map("/".join), st.binary(max_size=2000), max_size=6)


def written(files: Sequence[Named], *more: ArchiveEntry) -> bytes:
    """A backup with these files, each below a prefix of its own, so that none lies below another."""
    out = io.BytesIO()
    writer = ArchiveWriter(out)
    for number, (path, data) in enumerate(files):
        writer.add(ArchiveEntry(f"files/{number}/{path}"), data)
    for entry in more:
        writer.add(entry)
    writer.close(CONTENTS)
    return out.getvalue()


def read(data: bytes) -> tuple[BackupManifest, dict[str, bytes]]:
    """The manifest, and the content of all members that it lists."""
    file = io.BytesIO(data)
    manifest = read_manifest(file)
    listed = {entry.path for entry in manifest.entries}
    return manifest, {one.path: b"".join(pieces) for one, pieces in members(file) if one.path in listed}


@given(_files)
def test_it_reads_as_it_was_written(files: dict[str, bytes]) -> None:
    link = ArchiveEntry("files/link", "link", 0o777, 5, target="../" + "x" * 300)
    manifest, found = read(written(list(files.items()), ArchiveEntry("files/d", "directory", 0o750, 7), link))
    assert manifest.contents == CONTENTS
    assert [content for path, content in found.items() if path not in {"files/link", "files/d"}] == list(files.values())
    assert manifest.entries[-1] == link


WHOLE = written([("a", b"x" * 700), ("b" * 150, b"y"), ("data/c", b"")], ArchiveEntry("files/l", "link", target="a"))


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255), st.sampled_from(("change", "cut", "insert", "remove")))
def test_what_is_damaged_is_refused_or_reads_the_same(at: int, difference: int, how: str) -> None:
    changed = bytes((WHOLE[at] ^ difference,))
    damaged = {
        "change": WHOLE[:at] + changed + WHOLE[at + 1 :],
        "cut": WHOLE[:at],
        "insert": WHOLE[:at] + changed + WHOLE[at:],
        "remove": WHOLE[:at] + WHOLE[at + 1 :],
    }[how]
    try:
        found = read(damaged)
    except InvalidInput:
        return
    assert found == read(WHOLE)  # a byte of the padding


def forged(change: Callable[[tarfile.TarFile], Sequence[ArchiveEntry]]) -> bytes:
    """A backup of somebody who knows the format: `change` adds members, and the manifest lists what it returns."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        listed = change(tar)
        entries = [{name: getattr(entry, name) for name in entry.__struct_fields__} for entry in listed]
        contents = {name: getattr(CONTENTS, name) for name in CONTENTS.__struct_fields__}
        text = json.dumps({"contents": contents, "entries": entries}).encode()
        add(tar, "manifest.json", text)
        add(tar, "manifest.sha256", f"{sha256(text).hexdigest()}  manifest.json\n".encode())
    return out.getvalue()


def add(tar: tarfile.TarFile, name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, target: str = "") -> None:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname, info.mode = kind, len(data), target, 0o600
    tar.addfile(info, io.BytesIO(data))


def listed(path: str, data: bytes = b"") -> ArchiveEntry:
    return ArchiveEntry(path, size=len(data), sha256=sha256(data).hexdigest())


def _named(path: str) -> Callable[[tarfile.TarFile], Sequence[ArchiveEntry]]:
    def change(tar: tarfile.TarFile) -> Sequence[ArchiveEntry]:
        add(tar, path)
        return [listed(path)]

    return change


def _of_kind(kind: bytes) -> Callable[[tarfile.TarFile], Sequence[ArchiveEntry]]:
    def change(tar: tarfile.TarFile) -> Sequence[ArchiveEntry]:
        add(tar, "files/x", kind=kind, target="files/y")
        return [listed("files/x")]

    return change


def _below(kind: bytes, target: str) -> Callable[[tarfile.TarFile], Sequence[ArchiveEntry]]:
    def change(tar: tarfile.TarFile) -> Sequence[ArchiveEntry]:
        add(tar, "files/x", kind=kind, target=target)
        add(tar, "files/x/deep/y")
        first = ArchiveEntry("files/x", "link", target=target) if target else listed("files/x")
        return [first, listed("files/x/deep/y")]

    return change


def _twice(tar: tarfile.TarFile) -> Sequence[ArchiveEntry]:
    add(tar, "files/x", b"good")
    add(tar, "files/x", b"evil")
    return [listed("files/x", b"evil")]


def _unlisted(tar: tarfile.TarFile) -> Sequence[ArchiveEntry]:
    add(tar, "files/x")
    return []


def _missing(tar: tarfile.TarFile) -> Sequence[ArchiveEntry]:
    del tar
    return [listed("files/x")]


def _enormous(tar: tarfile.TarFile) -> Sequence[ArchiveEntry]:
    """A sparse file: a few bytes here, a terabyte on the disk."""
    info = tarfile.TarInfo("files/x")
    info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(1 << 40)}
    info.pax_headers |= {"GNU.sparse.map": f"{(1 << 40) - 1},1", "GNU.sparse.numblocks": "1"}
    info.size = 1
    assert tar.fileobj is not None
    tar.fileobj.write(info.tobuf(tarfile.PAX_FORMAT) + b"x".ljust(512, b"\0"))
    return [ArchiveEntry("files/x", size=1 << 40, sha256="0" * 64)]


@pytest.mark.parametrize(
    "change",
    [
        *map(_named, ("files/../../etc/passwd", "/etc/passwd", "files//x", "files/./x", "..", "files/" + "x/" * 2100)),
        *map(_of_kind, (tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE, b"Z")),
        _below(tarfile.SYMTYPE, "/etc"),
        _below(tarfile.REGTYPE, ""),
        _twice,
        _unlisted,
        _missing,
        _enormous,
    ],
)
def test_what_was_forged_is_refused(change: Callable[[tarfile.TarFile], Sequence[ArchiveEntry]]) -> None:
    with pytest.raises(InvalidInput):
        read(forged(change))


@pytest.mark.parametrize(
    "directories",
    [{}, {"data_dir": "data"}, *({"channels_dir": "c", "data_dir": path} for path in ("../x", "/x", "", "."))],
)
def test_directories_elsewhere_are_refused(directories: dict[str, str]) -> None:
    out = io.BytesIO()
    ArchiveWriter(out).close(replace(CONTENTS, directories=directories))
    with pytest.raises(InvalidInput):
        read(out.getvalue())


@pytest.mark.parametrize("path", ["files/in/c", "files/in", "files/data"])
@pytest.mark.parametrize("entry", [ArchiveEntry("", "link", target="/etc"), ArchiveEntry("")])
def test_directories_that_are_none_are_refused(path: str, entry: ArchiveEntry) -> None:
    """Nothing of the backup lies below them, but what a restore makes there would."""
    out = io.BytesIO()
    writer = ArchiveWriter(out)
    writer.add(replace(entry, path=path))
    writer.close(replace(CONTENTS, directories={"channels_dir": "in/c", "data_dir": "data"}))
    with pytest.raises(InvalidInput, match="which is no directory"):
        read(out.getvalue())


def test_a_tar_of_others_is_refused() -> None:
    for data in (b"", b"\0" * 10240, b"PGDMP" + bytes(5000), forged(_missing)[:512]):
        with pytest.raises(InvalidInput):
            read(data)


@given(st.text())
def test_a_safe_path_leads_nowhere_else(path: str) -> None:
    if is_safe(path):
        assert os.path.normpath(f"/a/{path}") == f"/a/{path}"


@pytest.mark.parametrize(
    ("line", "without"),
    [
        ('database_url = "postgresql://u:canary@h/d"', 'database_url = "postgresql://u@h/d"'),
        ('database_url = "postgresql://h/d?user=u&password=canary&x=1"', "postgresql://h/d?user=u&password=&x=1"),
        ('database_direct_url = "postgresql://u:can%40ary@h/d"', "postgresql://u@h/d"),
        ('database_url = "postgresql://u@h/d"', 'database_url = "postgresql://u@h/d"'),
    ],
)
def test_passwords_are_taken_out_of_settings(line: str, without: str) -> None:
    name, _, value = line.partition(" = ")
    public, found = without_passwords(line, SettingsFile(None, line, {name: json.loads(value)}))
    assert without in public
    assert found == ([name] if "can" in line else [])


def test_secrets_of_a_much_faster_machine_are_no_wrong_passphrase() -> None:
    sealed = seal(b"secret", "horse")
    with pytest.raises(ConfigurationError, match="much faster machine"):
        unseal(re.sub(rb"(-> scrypt \S+) \d+\n", rb"\1 40\n", sealed, count=1), "horse")
    with pytest.raises(InvalidInput, match="passphrase is not that"):
        unseal(sealed, "house")
    assert unseal(sealed, "horse") == b"secret"


def test_any_size_fits_into_the_header_that_is_written_first() -> None:
    entry = ArchiveEntry("files/" + "long/" * 100 + "x")
    assert {len(_header_of(replace(entry, size=size))) for size in (0, 8 << 30, 1 << 60)} == {len(_header_of(entry))}


def test_two_urls_with_one_password() -> None:
    urls = {"database_url": "postgresql://u:canary@pooler/d", "database_direct_url": "postgresql://u:canary@h/d"}
    text = "\n".join(f"{name} = {json.dumps(url)}" for name, url in urls.items())
    public, found = without_passwords(text, SettingsFile(None, text, dict(urls)))
    assert ("canary" in public, found) == (False, list(urls))
    escaped = text.replace("canary", r"\u0063anary")
    with pytest.raises(ConfigurationError, match="without escapes"):
        without_passwords(escaped, SettingsFile(None, escaped, dict(urls)))
