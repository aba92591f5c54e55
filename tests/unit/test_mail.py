"""`core/mail`: mails as strangers write them."""

from __future__ import annotations

import base64
import random
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.envelope.identity import dedupe_key
from switchboard.core.envelope.read import read_envelope
from switchboard.core.mail.parse import envelope_from_mail
from switchboard.core.mail.unusual import strictly_checked
from switchboard.core.passages.own import joined
from switchboard.domain.envelope import MAX_TEXT, Envelope
from switchboard.domain.errors import InvalidInput
from tests.strategies import NOW

HEAD = b"From: Ada <Ada@Home.Example>\nMessage-ID: <m1@home.example>\nMIME-Version: 1.0\n"


def read(raw: bytes) -> Envelope:
    mail = envelope_from_mail(raw, endpoint="house@home.example", provider="imap", now=NOW)
    assert mail.raw is raw
    return mail.envelope


def text(raw: bytes) -> str:
    return read(raw).payload.normalized_text


def headers(raw: bytes) -> dict[str, Any]:
    kept = read(raw).payload.raw
    assert isinstance(kept, dict)
    assert kept["media_type"] == "message/rfc822"
    inner = kept["headers"]
    assert isinstance(inner, dict)
    return inner


def multipart(kind: str, *parts: bytes, head: bytes = HEAD) -> bytes:
    lines = b"".join(b"--b1\r\n" + part + b"\r\n" for part in parts)
    return head + f'Content-Type: multipart/{kind}; boundary="b1"\n\n'.encode() + lines + b"--b1--\r\nepilogue\n"


PLAIN = b"Content-Type: text/plain; charset=utf-8\r\n\r\nplain words"
HTML = b"Content-Type: text/html\r\n\r\n<p>rich <b>words</b></p>"
PICTURE = (
    b"Content-Type: image/png\r\nContent-ID: <pic@x>\r\nContent-Transfer-Encoding: base64\r\n"
    b'Content-Disposition: inline; filename="C:\\fakepath\\..\\cat.png"\r\n\r\n' + base64.encodebytes(b"x" * 100)
)


def test_a_plain_mail() -> None:
    raw = HEAD + b"Subject: Hello\nDate: Mon, 1 Jun 2026 09:00:00 +0200\nTo: house@home.example\n\nHow are you?\n"
    one = read(raw)
    assert (one.source.channel, one.source.provider, one.source.endpoint_identity) == (
        "email",
        "imap",
        "house@home.example",
    )
    assert (one.sender.identity, one.sender.display_name) == ("ada@home.example", "Ada")
    assert one.event.external_event_id == one.event.external_thread_id == "<m1@home.example>"
    assert one.event.observed_at == datetime(2026, 6, 1, 7, tzinfo=UTC)
    assert one.payload.normalized_text == "Hello\n\nHow are you?"
    assert headers(raw)["to"] == "house@home.example"
    assert dedupe_key(one, CHANNELS["email"]) == "event:m1@home.example"


def test_without_message_id_the_bytes_are_the_id() -> None:
    raw = b"From: a@b.example\n\nhi"
    one = read(raw)
    assert one.event.external_event_id == "sha256:" + sha256(raw).hexdigest()
    assert dedupe_key(one, CHANNELS["email"]) == f"event:{one.event.external_event_id}"


@pytest.mark.parametrize(
    ("fields", "thread"),
    [
        (b"References: <root@x> <m0@x>\nIn-Reply-To: <m0@x>\n", "<root@x>"),
        (b"References:\n <root@x>\n\t<m0@x>\n", "<root@x>"),
        (b"In-Reply-To: <m0@x>\n", "<m0@x>"),
        (b'In-Reply-To: Message of "Monday" <m0@x>\n', "<m0@x>"),
        (b"In-Reply-To: your mail\n", "<m1@home.example>"),
        (b"References: <" + b"x" * 600 + b">\n", "sha256:" + sha256(b"<" + b"x" * 600 + b">").hexdigest()),
    ],
)
def test_the_thread_is_its_root(fields: bytes, thread: str) -> None:
    assert read(HEAD + fields + b"\nhi").event.external_thread_id == thread


@pytest.mark.parametrize(
    ("value", "identity", "name"),
    [
        (b"MAILER-DAEMON (Mail System)", "mailer-daemon", "Mail System"),
        (b'"Doe, J." <J@X.example>', "j@x.example", "Doe, J."),
        (b"Doe, J. <j@x.example>", "j@x.example", "Doe, J."),
        (b"boss@corp.example <thief@x.example>", "thief@x.example", "boss@corp.example"),
        (b'"Boss <boss@corp.example>" <thief@x.example>', "thief@x.example", "Boss <boss@corp.example>"),
        (b"=?utf-8?q?boss=40corp=2Eexample=3E?= <thief@x.example>", "thief@x.example", "boss@corp.example>"),
        (b"=?utf-8?b?SsO2cmc=?= <j@x.example>", "j@x.example", "Jörg"),
        (b"=?nope?q?J=F6rg?= <j@x.example>", "j@x.example", "Jörg"),
        (b"J\xf6rg <j@x.example>", "j@x.example", "Jörg"),
        ("Jörg <jörg@x.example>".encode(), "jörg@x.example", "Jörg"),
        (b"a@x.example, b@x.example", "a@x.example", None),
    ],
)
def test_the_sender_of(value: bytes, identity: str, name: str | None) -> None:
    sender = read(b"From: " + value + b"\n\nhi").sender
    assert (sender.identity, sender.display_name) == (identity, name)


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"sometime", b"Mon, 99 Foo 2026", b"Thu, 4 Jun 2026 12:00:00 +0000", b"Mon, 1 Jan 1900 00:00:00 +0000"),
        *(b"Mon, 1 Jun 2026 09:00:00 +9999", b"Mon, 1 Jun 99999999999 09:00:00 +0000", b"\xff" * 50),
    ],
)
def test_a_date_that_cannot_be_is_now(value: bytes) -> None:
    assert read(HEAD + b"Date: " + value + b"\n\nhi").event.observed_at == NOW


def test_a_date_without_zone_is_utc() -> None:
    assert read(HEAD + b"Date: Sun, 31 May 2026 09:00:00 -0000\n\nhi").event.observed_at.isoformat() == (
        "2026-05-31T09:00:00+00:00"
    )


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (multipart("alternative", PLAIN, HTML), "plain words"),
        (multipart("alternative", HTML, PLAIN), "plain words"),
        (multipart("alternative", b"Content-Type: text/plain\r\n\r\n \r\n", HTML), "rich words"),
        (multipart("mixed", HTML, PLAIN), "rich words\n\nplain words"),
        (multipart("related", HTML, PICTURE), "rich words"),
        (
            multipart("mixed", multipart("alternative", PLAIN, HTML, head=b"").replace(b"b1", b"b2"), PICTURE),
            "plain words",
        ),
        (multipart("mixed", PLAIN)[:-19], "plain words"),
        (HEAD + b"Content-Type: multipart/mixed\n\nno boundary", "no boundary"),
        (HEAD + b"Content-Type: multipart/mixed; boundary=zzz\n\nno such line", "no such line"),
        (HEAD + b"Content-Type: text/plain; charset=iso-8859-2\n\n\xb9\xb3", "šł"),
        (HEAD + b"Content-Type: text/plain; charset=us-ascii\n\ncaf\xc3\xa9", "café"),
        (HEAD + b"Content-Type: text/plain; charset=utf-8\n\ncaf\xe9 \x80", "café €"),
        (HEAD + b"Content-Type: text/plain; charset=hex\n\n4142", "4142"),
        (HEAD + b"Content-Type: text/plain; charset=unicode-escape\n\n\\ud800x", "\\ud800x"),
        (HEAD + b"Content-Type: text/plain; charset=utf-7\n\n+2AA-x", "?x"),
        (HEAD + b"Content-Transfer-Encoding: base64\n\naGVsb\nG8=!", "hello"),
        (HEAD + b"Content-Transfer-Encoding: base64\n\naGVsbG8hx", "hello!"),
        (HEAD + b"Content-Transfer-Encoding: quoted-printable\n\nh=C3=A9llo=\n =ZZ", "héllo =ZZ"),
        (HEAD + b"Content-Type: nonsense\n\nhi", "hi"),
        (HEAD + b"Subject: =?utf-8?q?caf=C3=A9?= =?utf-8?q?_x?=\n\n", "café x"),
        (HEAD + b"Subject: =?utf-8?b?A?=\n\n", "=?utf-8?b?A?="),
        (HEAD + b"Subject: a\n b\n\nx\x00y", "a b\n\nxy"),
        (HEAD + b"\n", "(an empty mail)"),
        (HEAD.replace(b"\n", b"\r\n") + b"\r\none\r\ntwo\r\n", "one\ntwo"),
        (b"\r\n\n" + HEAD + b"\nhi", "hi"),
        (b"From joe Mon Jun  1 07:58:11 2026\n" + HEAD + b"\nhi", "hi"),
    ],
)
def test_the_text_of(raw: bytes, expected: str) -> None:
    assert text(raw) == expected


def test_history_below_a_reply_is_a_passage_of_its_own() -> None:
    one = read(HEAD + b"In-Reply-To: <m0@x>\nSubject: Re: When\n\nThursday.\n\nOn 1 June House wrote:\n> When?\n")
    assert [(passage.kind, passage.text) for passage in one.payload.passages] == [
        ("quoted", "Re: When"),
        ("own", "Thursday."),
        ("quoted", "On 1 June House wrote:\n> When?"),
    ]
    assert one.payload.normalized_text == joined(one.payload.passages)
    assert one.payload.passages[-1].refers_to == "<m0@x>"


def test_a_reply_goes_to_its_sender() -> None:
    one = read(HEAD + b"Subject: Hello\nDate: Mon, 1 Jun 2026 09:00:00 +0000\n\nhi")
    assert one.event.reply_address == {
        "to": "ada@home.example",
        "subject": "Hello",
        "message_id": "<m1@home.example>",
        "references": ["<m1@home.example>"],
    }
    assert one.event.sent_at == datetime(2026, 6, 1, 9, tzinfo=UTC)


def test_attachments_are_described() -> None:
    one = read(multipart("mixed", PLAIN, PICTURE, b"Content-Type: message/rfc822\r\n\r\nFrom: x@y\r\n\r\ninner"))
    picture, forwarded = one.payload.attachments
    assert (picture.media_type, picture.filename, picture.size_bytes) == ("image/png", "cat.png", 100)
    assert picture.source_attachment_id == "<pic@x>"
    assert forwarded.media_type == "message/rfc822"
    alone = read(HEAD + b"Content-Type: application/pdf\n\n%PDF")
    assert (alone.payload.normalized_text, len(alone.payload.attachments)) == ("", 1)


def test_the_topmost_of_a_repeated_field_counts_and_keeps_encoded_words() -> None:
    results = b"Authentication-Results: mx; dmarc=fail\nAuthentication-Results: mx; dmarc=pass\n"
    others = b"List-Id: =?utf-8?q?a?= <l.x>\nAuto-Submitted: auto-replied\nX-Other: 1\n"
    kept = headers(HEAD + results + others + b"\nhi")
    assert kept["authentication-results"] == "mx; dmarc=fail"
    assert kept["list-id"] == "=?utf-8?q?a?= <l.x>"
    assert kept["auto-submitted"] == "auto-replied"
    assert "x-other" not in kept


def test_a_long_text_is_cut_with_a_mark() -> None:
    long = text(HEAD + b"\n" + b"word " * 100_000)
    assert len(long) == MAX_TEXT
    assert long.endswith("cut]")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "empty"),
        (b" \r\n\n", "empty"),
        (b"hello, this is no mail", "header fields"),
        (bytes(range(256)) * 20, "header fields"),
        (b"Subject: x\n\nhi", "no From field"),
        (b"From: \n\nhi", "no From field"),
        (b"From: Joe Doe\n\nhi", "names no sender"),
        (b"From: alice@x.example)bob@y\n\nhi", "names no sender"),
        (b"From: undisclosed:;\n\nhi", "names no sender"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as caught:
        read(raw)
    assert caught.value.code == "unreadable_mail"


@pytest.mark.parametrize(
    "raw",
    [
        HEAD + b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(3000)),
        HEAD + b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\n" * 500_000,
        HEAD + b"X: y\n" * 300_000 + b"\nhi",
        HEAD + b"Content-Type: a;" + b'";' * 200_000 + b"\n\nhi",
        HEAD + b"Subject: " + b"=?a?q?" * 100_000 + b"\n\nhi",
        HEAD + b"References: " + b"<" * 500_000 + b"\n\nhi",
        b"From: a@b.example, " + b'"a" ' * 50_000 + b"<a@b>\n\nhi",
        HEAD + b"Content-Type: text/html\n\n" + b"<div>" * 200_000,
        HEAD + b"Content-Type: text/html\n\n" + b"<" * 500_000,
        HEAD + b"Content-Type: text/html\n\n<a " + b" ".join(b"a%x" % n for n in range(60_000)) + b">x",
    ],
    ids=["nesting", "parts", "fields", "params", "words", "ids", "names", "depth", "brackets", "attributes"],
)
def test_bombs_are_defused(raw: bytes) -> None:
    assert len(text(raw)) <= MAX_TEXT


TEMPLATE = multipart("mixed", multipart("alternative", PLAIN, HTML, head=b"").replace(b"b1", b"b2"), PICTURE).replace(
    b"MIME-Version",
    b"Subject: =?utf-8?q?caf=C3=A9?=\nDate: Mon, 1 Jun 2026 09:00:00 +0200\nReferences: <r@x>\n <s@x>\nMIME-Version",
)


def survives(raw: bytes) -> None:
    try:
        one = read(raw)
    except InvalidInput as error:
        result: str | None = error.code
    else:
        result = None
        assert read_envelope(msgspec.json.encode(one)) == strictly_checked(one) == one
    assert result in {None, "unreadable_mail"}


@pytest.mark.parametrize(
    "path", ["\\u0000", "\\ud800", "\\x00", "\\", "C:\\users", "\\u20ac", "é€\U0001f600", "=?a\\u0041"]
)
@pytest.mark.parametrize("words", ["=?utf-8?q?caf=C3=A9?= {} open", "{} =?utf-8?q?caf=C3=A9?= open", "{} café open"])
def test_backslashes_next_to_encoded_words_stay_as_they_are(words: str, path: str) -> None:
    one = read(HEAD + b"Subject: " + words.format(path).encode() + b"\n\nhi")
    assert one.payload.normalized_text.startswith(words.format(path).replace("=?utf-8?q?caf=C3=A9?=", "café"))


@pytest.mark.parametrize("charset", ["unicode-escape", "utf-7", "utf-8"])
@pytest.mark.parametrize("name", ["%5Cud800.txt", "+2AA-.txt", "%E9.txt", "%00.txt", "=?utf-8?q?a?= %E9.txt"])
def test_the_name_of_a_file_is_text_whatever_its_character_set(charset: str, name: str) -> None:
    head = f"Content-Disposition: attachment; filename*={charset}''{name}\nContent-Type: application/pdf\n\n"
    survives(HEAD + head.encode() + b"%PDF")
    [attachment] = read(HEAD + head.encode() + b"%PDF").payload.attachments
    assert (attachment.filename or "").endswith(".txt")


@pytest.mark.parametrize("seed", range(200))
def test_mutated_mails_are_read_or_refused(seed: int) -> None:
    dice = random.Random(seed)
    raw = bytearray(TEMPLATE)
    for _ in range(dice.randint(1, 30)):
        at = dice.randrange(len(raw))
        match dice.randrange(4):
            case 0:
                raw[at] = dice.randrange(256)
            case 1:
                del raw[at : at + dice.randint(1, 20)]
            case 2:
                raw[at:at] = dice.choice(
                    [b"\n", b"\x00", b'"', b"=?", b"\xff\xfe", b";", b"(", b"--b1", b"\r\n\r\n", b":"]
                )
            case _:
                raw[at:at] = raw[at // 2 : at // 2 + 40]
    survives(bytes(raw))


_FIELD = st.sampled_from(
    ["Content-Type", "From", "Date", "Subject", "Message-ID", "Content-Disposition", "Content-Transfer-Encoding", "To"]
)
_PIECES = [*'abz<>@;="?()\\,:*_%0159/- \t', "\xff", "é", "=?utf-8?q?", "charset*0*=", "boundary="]
_VALUE = st.lists(st.sampled_from(_PIECES), max_size=30).map("".join)


@settings(max_examples=300)
@given(st.lists(st.tuples(_FIELD, _VALUE), max_size=6), st.binary(max_size=100))
def test_any_header_is_survived(fields: list[tuple[str, str]], body: bytes) -> None:
    lines = b"".join(f"{name}: {value}\n".encode() for name, value in fields)
    survives(lines + b"From: a@b.example\n\n" + body)


@pytest.mark.parametrize(
    ("endpoint", "provider", "field", "reason"),
    [
        ("", "file", "endpoint", "must not be empty"),
        ("x" * 513, "file", "endpoint", "must have at most 512 characters, not 513"),
        ("a\x00b", "file", "endpoint", "must not hold NUL"),
        ("me@example.org", " ", "provider", "must not be empty"),
        ("me@example.org", "x" * 65, "provider", "must have at most 64 characters, not 65"),
    ],
)
def test_an_account_that_is_none_is_not_blamed_on_the_mail(
    endpoint: str, provider: str, field: str, reason: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        envelope_from_mail(HEAD + b"\nhi", endpoint=endpoint, provider=provider, now=NOW)
    assert caught.value.message == f"the {field} of a mail {reason}"
    assert (caught.value.code, caught.value.field) == ("invalid_value", field)


def test_the_account_is_stripped() -> None:
    assert envelope_from_mail(HEAD + b"\nhi", endpoint=" me ", now=NOW).envelope.source.endpoint_identity == "me"
