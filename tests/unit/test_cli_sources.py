"""What files hold, entry by entry, and which mails belong together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from switchboard.cli.importing.sources import SourceKind, find_sources, read_items, thread_of
from switchboard.core.files.imports import MAX_ENTRY
from switchboard.domain.errors import InvalidInput, NotFound

MAIL = b"From: joe@example.org\r\nMessage-ID: <1@x>\r\n\r\nhello\r\n"
MBOX = b"From joe@example.org Mon Jan  5 10:00:00 2026\n" + MAIL.replace(b"\r", b"") + b"\n"


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("mails", MBOX, "mbox"),
        ("mail.txt", MAIL, "eml"),
        ("mail.eml", b"", "eml"),
        ("list", b'{"schema_version": "ingest.v1"}\n', "jsonl"),
        ("list.jsonl", b"not json\n{}\n", "jsonl"),
        ("bom.jsonl", b"\xef\xbb\xbf{}\n", "jsonl"),
        ("really.eml", MBOX, "mbox"),
        ("odd.eml", b"[external] no header at all", "eml"),
        ("empty.mbox", b"", "mbox"),
    ],
)
def test_the_kind_is_detected(tmp_path: Path, name: str, content: bytes, kind: SourceKind) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    [source] = find_sources([file])
    assert (source.kind, source.size) == (kind, len(content))


def test_a_kind_that_is_said_goes_first(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(MBOX)
    [source] = find_sources([tmp_path / "x"], "eml")
    assert source.kind == "eml"


def test_a_folder_means_all_its_mails_in_order(tmp_path: Path) -> None:
    for name in ("b/2.eml", "a/9.EML", "a/note.txt", "1.eml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(MAIL)
    assert [str(s.file.relative_to(tmp_path)) for s in find_sources([tmp_path])] == ["1.eml", "a/9.EML", "b/2.eml"]


def test_a_maildir_means_its_mails(tmp_path: Path) -> None:
    for name in ("cur/1.a.host:2,S", "new/2.b.host", "tmp/3.c.host", ".Work/cur/4.d.host:2,", ".Work/tmp/x", "dovecot"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes(MAIL)
    found = [str(s.file.relative_to(tmp_path)) for s in find_sources([tmp_path])]
    assert found == [".Work/cur/4.d.host:2,", "cur/1.a.host:2,S", "new/2.b.host"]


def test_what_cannot_be_imported_is_refused(tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"\x89PNG\r\n")
    with pytest.raises(NotFound, match="nowhere"):
        find_sources([tmp_path / "nowhere"])
    with pytest.raises(InvalidInput, match="--kind"):
        find_sources([tmp_path / "picture"])
    (tmp_path / "log").write_bytes(b"[2026-01-01] hello\n")
    with pytest.raises(InvalidInput, match="--kind"):
        find_sources([tmp_path / "log"])
    (tmp_path / "log").unlink()
    with pytest.raises(InvalidInput, match="contains no"):
        find_sources([tmp_path])


@pytest.mark.parametrize(
    ("document", "how"),
    [
        (b'{\n  "a": 1\n}\n', "."),
        (b'{"a": 1,\n "b": 2}\n', "."),
        (b'{ "a": [\n 1]}\n', "."),
        (b'[\r\n  {"a": 1}\r\n]\r\n', "'.[]'"),
        (b'[{"a": 1},\n{"a": 2}]\n', "'.[]'"),
        (b'[ {\n"a": 1}]', "'.[]'"),
        (b'\xef\xbb\xbf [{"a": 1}]', "'.[]'"),
        (b"[]", "'.[]'"),
    ],
)
def test_a_document_is_one_error_that_says_what_would_do(tmp_path: Path, document: bytes, how: str) -> None:
    file = tmp_path / "one $x.json"
    file.write_bytes(document)
    with pytest.raises(InvalidInput) as refused:
        find_sources([file])
    assert f"one envelope a line: jq -c {how} '{file}' >" in refused.value.message
    [source] = find_sources([file], "jsonl")
    assert source.kind == "jsonl"


@pytest.mark.parametrize("start", [b"{", b'{"a": {}}\n{', b'{"torn": ', b'{"a": [1,2]}\r\n'])
def test_lines_are_no_document(tmp_path: Path, start: bytes) -> None:
    (tmp_path / "list").write_bytes(start)
    assert [source.kind for source in find_sources([tmp_path / "list"])] == ["jsonl"]


def test_of_a_pipe_nothing_is_read_to_look_what_comes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="--kind"):
        find_sources([tmp_path / "pipe"])
    [source] = find_sources([tmp_path / "pipe"], "jsonl")
    assert source.kind == "jsonl"


def test_items_say_where_they_stand(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(MBOX + MBOX)
    (tmp_path / "j").write_bytes(b'{"a": 1}\n\n{"b": 2}\n')
    mails = list(read_items(find_sources([tmp_path / "m"])[0]))
    lines = list(read_items(find_sources([tmp_path / "j"])[0]))
    assert [item.place for item in mails] == ["offset 0", f"offset {len(MBOX)}"]
    assert [(item.place, item.data) for item in lines] == [("line 1", b'{"a": 1}'), ("line 3", b'{"b": 2}')]


def test_a_mail_without_end_is_cut_and_says_so(tmp_path: Path) -> None:
    with (tmp_path / "big.eml").open("wb") as file:
        file.truncate(MAX_ENTRY + 10)
    [item] = read_items(find_sources([tmp_path / "big.eml"])[0])
    assert item.too_long


@pytest.mark.parametrize(
    "mail",
    [
        b"Message-ID: <root@x>\n\n",
        b"message-id: <2@x>\nReferences: <root@x> <1@x>\n\n",
        b"Message-ID: <3@x>\r\nReferences:\r\n <root@x>\r\n <1@x>\r\n\r\n",
        b"Message-ID: <4@x>\nIn-Reply-To: <root@x>\n\nReferences: <other@x>\n",
    ],
)
def test_mails_of_one_thread_have_one_name(mail: bytes) -> None:
    assert thread_of(mail) == b"<root@x>"


def test_a_mail_without_any_id_is_its_own_thread() -> None:
    assert thread_of(b"From: a@x\n\nhi") != thread_of(b"From: b@x\n\nhi")
