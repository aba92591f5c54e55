"""Replies by mail: whom they go to, what they are made of, and what is a bounce of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.channels.email import trusting
from switchboard.core.mail.bounce import id_of_bounced_mail, reason_of_bounce
from switchboard.core.mail.headers import header, mailbox_of
from switchboard.core.mail.mime import read_part
from switchboard.core.mail.parse import envelope_from_mail
from switchboard.core.mail.reply import (
    HOPS,
    MailReply,
    answered_subject,
    compose,
    hops,
    message_id,
    reply_address,
)
from switchboard.core.mail.writing import File

NOW = datetime(2026, 6, 1, 9, tzinfo=UTC)
OWN = "house@home.example"


def reply(**fields: object) -> MailReply:
    to = reply_address({"from": "Ada <ada@x.example>", "subject": "Hello", "message-id": "<m1@x.example>"})
    return MailReply(**{"to": to, "own": OWN, "key": "part-1", "text": "Fine."} | fields)  # type: ignore[arg-type]


def parsed(raw: bytes) -> EmailMessage:
    mail = message_from_bytes(raw, policy=default)
    assert isinstance(mail, EmailMessage)
    return mail


def test_a_reply_is_in_the_thread_and_says_that_it_is_automatic() -> None:
    to = reply_address(
        {"from": "ada@x.example", "subject": "Re: Hi", "message-id": "<m2@x>", "references": "<m0@x> <m1@x>"}
    )
    mail = parsed(compose(reply(to=to, name="House", html="<p>Fine.</p>"), NOW))
    assert (mail["from"], mail["to"], mail["subject"]) == ("House <house@home.example>", "ada@x.example", "Re: Hi")
    assert (mail["in-reply-to"], mail["references"]) == ("<m2@x>", "<m0@x> <m1@x> <m2@x>")
    assert mail["auto-submitted"] == "auto-replied"
    assert mail["message-id"] == message_id("part-1", OWN)
    assert mail.get_content_type() == "multipart/alternative"
    assert [part.get_content() for part in mail.iter_parts()] == ["Fine.", "<p>Fine.</p>"]


def exchanged(first: bytes, most: int, stripped: str = "") -> list[int]:
    """The counts of two switchboards that answer each other, where a program removes a field; they remember nothing."""
    looped, counts, raw, own = trusting({}, most).looped, list[int](), first, OWN
    for number in range(3 * most):
        envelope = envelope_from_mail(raw, endpoint=own, now=NOW).envelope
        counts.append(hops(header(envelope.payload.raw, HOPS)))
        if looped(envelope) is not None or envelope.event.reply_address is None:
            break
        raw = compose(reply(to=envelope.event.reply_address, own=own, key=f"part-{number}"), NOW)
        raw = b"\r\n".join(line for line in raw.split(b"\r\n") if not line.startswith(stripped.encode() or b"\0"))
        own = str(envelope.event.reply_address["to"])
    return counts


def test_two_switchboards_answering_each_other_stop_though_nothing_lasts() -> None:
    first = b"From: ada@x.example\r\nTo: house@home.example\r\nMessage-ID: <m1@x.example>\r\n\r\nHello"
    assert exchanged(first, 5, "Auto-Submitted") == [0, 1, 2, 3, 4, 5]
    assert exchanged(first, 2, "Auto-Submitted") == [0, 1, 2]
    assert exchanged(first, 5, "X-Switchboard-Hops") == [0] * 15, "then the brake stops them"


@pytest.mark.parametrize(("said", "count"), [("", 0), ("7", 7), ("-1", 0), ("1" * 5000, 0), ("٣", 0), ("5 ", 0)])
def test_a_count_that_is_none_counts_nothing(said: str, count: int) -> None:
    assert hops(said) == count


def test_a_reply_is_the_same_bytes_each_time() -> None:
    assert compose(reply(), NOW) == compose(reply(), NOW)
    assert message_id("a", OWN) != message_id("b", OWN)


@pytest.mark.parametrize(
    ("headers", "to"),
    [
        ({"from": "Ada <ada@x.example>", "reply-to": "Desk <desk@y.example>"}, "desk@y.example"),
        ({"from": "ada@x.example", "reply-to": "one@y.example, two@y.example"}, "one@y.example"),
        ({"from": "ada@x.example", "reply-to": "nobody"}, "ada@x.example"),
        ({"from": "ada@x.example", "reply-to": '"evil@z.example" <desk@y.example>'}, "desk@y.example"),
        ({"from": "ada@b\u00fccher.example"}, "ada@xn--bcher-kva.example"),
        ({"from": "\u00e4da@x.example"}, None),
        ({"from": "a@b@c\r\nBcc: all@x.example"}, None),
        ({"from": "ada@x.example", "reply-to": "desk@home.example"}, "ada@x.example"),
        ({"from": "ada@x.example", "reply-to": '"Ada, at x" <DESK+shop@Home.Example>'}, "ada@x.example"),
        ({"from": "ada@x.example", "reply-to": "desk@home.example, a@y.example"}, "a@y.example"),
        ({"from": "ada@x.example", "reply-to": "desk@other.example"}, "desk@other.example"),
        ({"from": "desk@home.example", "reply-to": "Noor <noor@y.example>"}, "noor@y.example"),
        ({}, None),
    ],
)
@pytest.mark.parametrize("account", ["desk@home.example", "gmail:Desk@home.example"])
def test_an_answer_goes_to_reply_to_else_from_alone(headers: dict[str, str], to: str | None, account: str) -> None:
    assert reply_address(headers, mailbox_of(account))["to"] == to


def test_a_mail_from_nobody_cannot_be_answered() -> None:
    with pytest.raises(ValueError, match="cannot be answered"):
        compose(reply(to={"to": None}), NOW)


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("Hello", "Re: Hello"),
        ("Re: Hello", "Re: Hello"),
        ("RE: re: AW: Re[2]: Hello", "Re: Hello"),
        ("Regarding: you", "Re: Regarding: you"),
        ("Hi\r\nBcc: all@x.example", "Re: Hi Bcc: all@x.example"),
        ("", "Re:"),
    ],
)
def test_re_once(subject: str, expected: str) -> None:
    assert answered_subject(subject) == expected


def test_a_file_goes_with_it() -> None:
    name = "../../\u00dcbersicht \U0001f468\u200d\U0001f469\u200d\U0001f467 " + "x" * 300 + ".pdf"
    mail = parsed(
        compose(
            reply(
                files=(File(name, "application/pdf", b"\x00\xff" * 999), File("b.txt", "text/plain", b"b")),
                html="<p>x</p>",
            ),
            NOW,
        )
    )
    attached, second = mail.iter_attachments()
    assert (second.get_filename(), second.get_content()) == ("b.txt", "b")
    assert attached.get_content() == b"\x00\xff" * 999
    assert str(attached.get_filename()).startswith("\u00dcbersicht")
    body = mail.get_body(("plain",))
    assert body is not None
    assert body.get_content() == "Fine."


ANY = st.text(max_size=300) | st.sampled_from(
    ["a\r\nBcc: x@y.example", "\n.\n", "=_a--", "x" * 3000, "\ud800", "\u2028Bcc: x"]
)

WORDS = ANY.map(lambda text: text.replace("\ud800", ""))  # as header fields are kept


@pytest.mark.parametrize("kind", ["message/rfc822", "multipart/mixed", "Message/Partial"])
def test_an_attached_mail_arrives_as_is_though_its_kind_forbids_encoding(kind: str) -> None:
    data = b"Subject: inner\r\n\r\ntext\r\n"
    raw = compose(
        MailReply(to={"to": "ada@x.example"}, own=OWN, key="k", text="t", files=(File("a.eml", kind, data),)), NOW
    )
    [attached] = parsed(raw).iter_attachments()
    assert (attached.get_content_type(), attached.get_content()) == ("application/octet-stream", data)


@given(WORDS, WORDS, ANY, ANY, WORDS, ANY)
def test_no_word_of_anybody_adds_a_field_or_a_long_line(
    sender: str, subject: str, text: str, name: str, ids: str, filename: str
) -> None:
    fields = {"from": f"{sender} <ada@x.example>", "reply-to": sender, "subject": subject, "message-id": f"<{ids}>"}
    to = reply_address(fields | {"references": f"<{ids}> <{subject}>" * 9 + f"<{'r' * 240}@x>" * 30})
    assert len(json.dumps(to, ensure_ascii=False).encode("utf-8", "replace")) <= 4096
    answer = reply(to={"to": "ada@x.example"} | {k: v for k, v in to.items() if k != "to"}, text=text, name=name)
    raw = compose(
        MailReply(
            **{f: getattr(answer, f) for f in ("to", "own", "name", "key", "text")},
            html=f"<p>{text}</p>",
            files=(File(filename, sender, b"data"),),
        ),
        NOW,
    )
    assert all(len(line) <= 998 for line in raw.split(b"\r\n"))
    assert b"\n" not in raw.replace(b"\r\n", b"")
    assert b"\r" not in raw.replace(b"\r\n", b"")
    mail = parsed(raw)
    known = {
        "From",
        "To",
        "Subject",
        "Date",
        "Message-ID",
        "In-Reply-To",
        "References",
        "Auto-Submitted",
        "X-Switchboard-Hops",
    }
    assert set(mail.keys()) <= known | {"X-Auto-Response-Suppress", "MIME-Version", "Content-Type"}
    assert len(mail.keys()) == len(set(mail.keys()))
    body = mail.get_body(("plain",))
    assert body is not None
    expected = text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace").decode()
    assert body.get_content().replace("\r\n", "\n").strip("\r\n") == expected.strip("\n")


def dsn(action: str, original: str) -> bytes:
    return (
        "From: MAILER-DAEMON@mx.example\nReturn-Path: <>\nMIME-Version: 1.0\n"
        'Content-Type: multipart/report; report-type=delivery-status; boundary="b"\n\n'
        "--b\nContent-Type: text/plain\n\nSorry.\n"
        f"--b\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; mx\n\nAction: {action}\nStatus: 5.1.1\n"
        f"--b\n{original}\n--b--\n"
    ).encode()


WHOLE = "Content-Type: message/rfc822\n\nFrom: house@home.example\nMessage-ID: <ours@home.example>\n\nFine."
HEAD = "Content-Type: text/rfc822-headers\n\nMessage-ID:\n <ours@home.example>\n"


@pytest.mark.parametrize(
    ("raw", "about"),
    [
        (dsn("failed", WHOLE), "<ours@home.example>"),
        (dsn("Failed (permanent)", HEAD), "<ours@home.example>"),
        (dsn("delayed", WHOLE), None),
        (dsn("delivered", WHOLE), None),
        (dsn("failed", "Content-Type: text/plain\n\nMessage-ID: <ours@home.example>"), None),
        (b"From: a@x.example\n\nAction: failed", None),
    ],
)
def test_a_bounce_names_the_mail_that_it_is_about(raw: bytes, about: str | None) -> None:
    assert id_of_bounced_mail(read_part(raw)) == about
    event = envelope_from_mail(raw, endpoint=OWN, now=NOW).envelope.event
    assert (event.kind, event.refers_to) == ("bounce" if about else "message", about)


@pytest.mark.parametrize(
    ("fields", "text", "is_final"),
    [
        (
            "Status: 5.1.1\nDiagnostic-Code: smtp; 550 5.1.1 <ann@x.example>:\n  no such user",
            "550 5.1.1 <ann@x.example>: no such user",
            True,
        ),
        (
            "Status: 5.2.2\r\nDiagnostic-Code: smtp; 552 mailbox full\r\nLast-Attempt-Date: today",
            "552 mailbox full",
            False,
        ),
        ("Status: 5.1.10", "it was returned with the status 5.1.10", True),
        ("Status: 4.4.7", "it was returned with the status 4.4.7", False),
        ("Remote-MTA: dns; mx.x.example", "it was returned", False),
        (f"Diagnostic-Code: smtp; {'x' * 5000}", "x" * 300, False),
    ],
)
def test_a_bounce_says_why_and_whether_others_would_be_returned_too(fields: str, text: str, is_final: bool) -> None:
    raw = dsn("failed", WHOLE).replace(b"Status: 5.1.1", fields.encode())
    raw = raw.replace(b"Action", b"Action: delayed\nStatus: 5.1.2\n\nAction", 1)
    reason = reason_of_bounce(read_part(raw))
    assert (reason.text, reason.is_final) == (text, is_final)
