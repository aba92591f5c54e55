"""Who gets no unsolicited replies: machines, and senders of bulk mail."""

from __future__ import annotations

from typing import Any

import pytest

from switchboard.core.channels.registry import CHANNELS
from tests.lab import envelope


def sign_of(headers: Any, sender: str = "ann@example.org", channel: str = "email") -> str | None:
    return CHANNELS[channel].automatic(envelope(channel=channel, sender=sender, raw={"headers": headers}))


@pytest.mark.parametrize(
    ("headers", "sign"),
    [
        ({"List-Id": "<all.example.org>"}, "list-id"),
        ({"LIST-UNSUBSCRIBE": "<mailto:off@example.org>"}, "list-unsubscribe"),
        ([{"name": "List-Id", "value": "<all.example.org>"}], "list-id"),
        ({"Auto-Submitted": "auto-generated; owner=x"}, "auto-submitted: auto-generated"),
        ({"auto-submitted": ["auto-replied", "no"]}, "auto-submitted: auto-replied"),
        ({"Precedence": " List "}, "precedence: list"),
        ({"List-Post": "NO"}, "list-post"),
        ({"X-Auto-Response-Suppress": "All"}, None),
        ({"X-Autoreply": "yes"}, "x-autoreply"),
        ({"Content-Type": 'Multipart/Report; boundary="x"'}, "content-type: multipart/report"),
        ({"Content-Type": "multipart/mixed"}, None),
        ({"Return-Path": "<>"}, "return-path: <>"),
        ({"Auto-Submitted": "no", "Precedence": "first-class", "Return-Path": "<ann@example.org>"}, None),
        ({"List-Id": "", "Auto-Submitted": 7, "Precedence": None}, None),
        ("no headers at all", None),
        (None, None),
    ],
)
def test_what_a_mail_says_of_itself(headers: Any, sign: str | None) -> None:
    assert sign_of(headers) == sign


@pytest.mark.parametrize(
    ("sender", "sign"),
    [
        ("MAILER-DAEMON@example.org", "from MAILER-DAEMON@example.org"),
        ("no-reply@shop.example", "from no-reply@shop.example"),
        ("DoNotReply@shop.example", "from DoNotReply@shop.example"),
        ("bounces+ann=example.org@lists.example", "from bounces+ann=example.org@lists.example"),
        ("owner-all@lists.example", "from owner-all@lists.example"),
        ("all-request@lists.example", "from all-request@lists.example"),
        ("noreen@example.org", None),
        ("bouncer@example.org", None),
        ("ann@no-reply.example", None),
    ],
)
def test_senders_that_are_machines(sender: str, sign: str | None) -> None:
    assert sign_of({}, sender) == sign


@pytest.mark.parametrize(
    ("sender", "endpoint", "own"),
    [
        ("me@example.org", "me@example.org", True),
        ("Me <ME@Example.org>", "gmail:me@example.org", True),
        ("me+shop@example.org", "imap:me@example.org", True),
        ("me+shop@example.org", "imap:me+shop@example.org", True),
        ("house", "bot:House", True),
        ("ann@example.org", "me@example.org", False),
        ("me@example.com", "me@example.org", False),
        ("me", "me@example.org", False),
        ('"me@example.org" <ann@example.com>', "me@example.org", False),
    ],
)
def test_our_own_mailbox_does_not_wait_for_an_answer(sender: str, endpoint: str, own: bool) -> None:
    sign = CHANNELS["email"].automatic(envelope(channel="email", sender=sender, endpoint=endpoint, raw={}))
    assert sign == (f"from {sender}, which is this mailbox" if own else None)


def test_a_name_before_the_address_hides_no_machine() -> None:
    assert sign_of({}, "Shop <No-Reply@shop.example>") == "from Shop <No-Reply@shop.example>"


def test_a_chat_has_no_such_headers() -> None:
    assert sign_of({"List-Id": "<all.example.org>"}, channel="telegram") is None
