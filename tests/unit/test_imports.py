"""`core/files/imports.py`, and the example inbox through it."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.envelope.identity import conversation, dedupe_key
from switchboard.core.envelope.read import parse_envelope
from switchboard.core.files import imports
from switchboard.core.files.imports import read_jsonl, read_mbox
from switchboard.core.mail.parse import envelope_from_mail
from switchboard.domain.errors import InvalidInput
from tests.strategies import NOW

INBOX: Final = Path(__file__).parents[2] / "src/switchboard/examples" / "inbox"
LINE: Final = b"From joe@example.org Mon Jun  1 07:58:11 2026\n"


def mails(data: bytes) -> list[tuple[int, bytes]]:
    return list(read_mbox(BytesIO(data)))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n\n", []),
        (LINE, [(0, b"")]),
        (LINE + b"A: b\n\nhi\n\n", [(0, b"A: b\n\nhi\n")]),
        (LINE + b"A: b\n\nhi", [(0, b"A: b\n\nhi")]),
        (LINE + b"A: 1\n\none\n\n" + LINE + b"A: 2\n\ntwo\n", [(0, b"A: 1\n\none\n"), (57, b"A: 2\n\ntwo\n")]),
        (LINE + b"A: 1\n\none\n" + LINE + b"A: 2\n", [(0, b"A: 1\n\none\n"), (56, b"A: 2\n")]),
        (LINE + b"A: b\n\n>From x\n>>From y\n> From z\n", [(0, b"A: b\n\nFrom x\n>From y\n> From z\n")]),
        (
            LINE + b"A: b\n\nx\n\nFrom 10:00 to 12:00 we are out\n",
            [(0, b"A: b\n\nx\n\nFrom 10:00 to 12:00 we are out\n")],
        ),
        (LINE.replace(b"\n", b"\r\n") + b"A: b\r\n\r\nhi\r\n\r\n", [(0, b"A: b\r\n\r\nhi\r\n")]),
        (b"\n" + LINE + b"A: b\n", [(1, b"A: b\n")]),
        (b"From - Tue Jun 02 10:00:00 2026\nA: b\n", [(0, b"A: b\n")]),
        (b"From 17@xxx Mon Jun 01 10:00:00 +0000 2026\nA: b\n", [(0, b"A: b\n")]),
    ],
)
def test_mbox(data: bytes, expected: list[tuple[int, bytes]]) -> None:
    assert mails(data) == expected


def test_what_is_no_mbox_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        mails(b"Subject: x\n\nhi\n")
    assert caught.value.code == "not_mbox"


_BODIES = st.lists(st.binary(max_size=60).map(lambda data: data.replace(b"\r", b"")), max_size=5)


@given(_BODIES)
def test_mails_come_out_as_they_went_in(bodies: list[bytes]) -> None:
    quoted = [b"".join(_quoted(line) for line in body.splitlines(keepends=True)) for body in bodies]
    whole = b"".join(LINE + body + b"\n\n" for body in quoted)
    found = mails(whole)
    assert [mail for _, mail in found] == [body + b"\n" for body in bodies]
    assert all(whole[offset:].startswith(LINE) for offset, _ in found)


def _quoted(line: bytes) -> bytes:
    return b">" + line if line.lstrip(b">").startswith(b"From ") else line


class Endless(BytesIO):
    """A stream that says how much of it is asked for at once, and that cannot be read whole."""

    most = 0

    def read(self, size: int | None = -1, /) -> bytes:
        raise AssertionError(f"read({size})")

    def readline(self, size: int | None = -1, /) -> bytes:
        assert size is not None
        assert size > 0
        self.most = max(self.most, size)
        return super().readline(size)


def test_files_are_streamed_and_long_entries_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "MAX_ENTRY", 1000)
    stream = Endless((LINE + b"x" * 3_000_000 + b"\n\n") * 3)
    assert [len(mail) for _, mail in read_mbox(stream)] == [1001] * 3
    assert stream.most <= 1024 * 1024
    assert [len(line) for _, line in read_jsonl(Endless(b"y" * 5000 + b"\n{}\n"))] == [1001, 2]


def test_long_lines_that_begin_like_a_separator_cost_little() -> None:
    hostile = (b"From x " + b"Mon " * 10_000 + b"\n") * 20
    began = time.process_time()
    [(_, mail)] = mails(LINE + hostile)
    assert mail == hostile
    assert time.process_time() - began < 5


def test_the_first_mail_is_there_before_the_second_is_read() -> None:
    stream = BytesIO(LINE + b"A: 1\n\n" + LINE + b"A: 2\n\n" + b"B: 3\n" * 100_000)
    assert next(read_mbox(stream)) == (0, b"A: 1\n")
    assert stream.tell() < 200


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"{}\n\n  \n[1]", [(1, b"{}"), (4, b"[1]")]),
        (b"\xef\xbb\xbf{}\r\n{}\r\n", [(1, b"{}"), (2, b"{}")]),
        (b" \xff \n", [(1, b"\xff")]),
    ],
)
def test_jsonl(data: bytes, expected: list[tuple[int, bytes]]) -> None:
    assert list(read_jsonl(BytesIO(data))) == expected


def test_the_example_mails() -> None:
    with (INBOX / "household.mbox").open("rb") as stream:
        taken = [envelope_from_mail(raw, endpoint="house@home.example", now=NOW) for _, raw in read_mbox(stream)]
    envelopes = [mail.envelope for mail in taken]
    assert len({dedupe_key(one, CHANNELS[one.source.channel]) for one in envelopes}) == len(envelopes) == 8
    talks = Counter(conversation(one, CHANNELS[one.source.channel]) for one in envelopes)
    assert sorted(talks.values()) == [1, 1, 1, 1, 1, 3]
    texts = [one.payload.normalized_text for one in envelopes]
    assert "\nFrom the second floor" in texts[0]
    assert texts[3] == (
        "This week in your basket\n\nYour basket on Tuesday\nSpinach, radishes & new potatoes — and strawberries while "
        "they last.\nSmall 14.50 €\nLarge 22.00 €\nChange your basket (https://greenbasket.example/change)"
    )
    assert "86,40 €" in texts[4]
    assert [one.filename for one in envelopes[4].payload.attachments] == ["invoice-2025-05.pdf"]
    assert texts[5].startswith("Zongorahangolás csütörtökön\n\nJó napot!")
    assert envelopes[5].sender.display_name == "Zoltán Kovács"


def test_the_example_files_of_single_mails() -> None:
    outcomes = {}
    for path in sorted((INBOX / "eml").glob("*.eml")):
        try:
            mail = envelope_from_mail(path.read_bytes(), endpoint="house@home.example", now=NOW)
            outcomes[path.stem] = mail.envelope.sender.identity
        except InvalidInput as error:
            outcomes[path.stem] = error.code
    assert outcomes == {
        "broken": "unreadable_mail",
        "dentist": "reception@reyes-dental.example",
        "tax": "service@tax.example",
    }


def test_the_example_envelopes() -> None:
    with (INBOX / "telegram.jsonl").open("rb") as stream:
        lines = list(read_jsonl(stream))
    envelopes = [parse_envelope(line, now=parse_time(line)) for _, line in lines]
    assert len(envelopes) == 8
    assert len({dedupe_key(one, CHANNELS[one.source.channel]) for one in envelopes}) == 7
    assert lines[3][1] == lines[5][1]
    chats = Counter(conversation(one, CHANNELS[one.source.channel]).rpartition("/")[2] for one in envelopes)
    assert chats["5488423581"] == 4
    assert {"-1002144870032", "-1009977001234"} < set(chats)
    with (INBOX / "api.jsonl").open("rb") as stream:
        assert len([parse_envelope(line, now=parse_time(line)) for _, line in read_jsonl(stream)]) == 4
    assert len((INBOX / "cli.txt").read_text("utf-8").splitlines()) == 3


def parse_time(line: bytes) -> datetime:
    return datetime.fromisoformat(json.loads(line)["event"]["observed_at"])
