"""Notices of mails that were not delivered: what they report is the same failure however often they come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from switchboard.connectors.email.bounces import late_failures
from switchboard.core.mail.parse import envelope_from_mail
from switchboard.ports.connector import Inbound

NOW = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)
NOTICE = (
    "From: MAILER-DAEMON@mx.example\r\nReturn-Path: <>\r\nTo: bot@home.example\r\nMIME-Version: 1.0\r\n{date}"
    'Content-Type: multipart/report; report-type=delivery-status; boundary="b"\r\n\r\n'
    "--b\r\nContent-Type: text/plain\r\n\r\nSorry.\r\n"
    "--b\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx\r\n\r\n"
    "Action: failed\r\nStatus: 5.2.2\r\n"
    "--b\r\nContent-Type: text/rfc822-headers\r\n\r\nMessage-ID: <ours@home.example>\r\n\r\n--b--\r\n"
)
DATED = NOTICE.format(date="Date: Sun, 01 Mar 2026 12:00:00 +0000\r\n")


def arrived(notice: str, at: datetime, read: datetime) -> Inbound:
    raw = notice.encode()
    envelope = envelope_from_mail(raw, endpoint="imap:bot", provider="imap", now=read).envelope
    return Inbound(envelope=replace(envelope, event=replace(envelope.event, sent_at=at)), raw=raw)


QMAIL = (
    "Return-Path: <>\r\nFrom: MAILER-DAEMON@mx.example\r\nTo: bot@home.example\r\nSubject: failure notice\r\n\r\n"
    "Hi. This is the qmail-send program at mx.example.\r\n"
    "I'm afraid I wasn't able to deliver your message to the following addresses.\r\n"
    "This is a permanent error; I've given up. Sorry it didn't work out.\r\n\r\n"
    "<ada@x.example>:\r\nSorry, no mailbox here by that name. (#5.1.1)\r\n\r\n"
    "--- Below this line is a copy of the message.\r\n\r\n"
    "Return-Path: <bot@home.example>\r\nMessage-ID: <ours@home.example>\r\nSubject: Boiler\r\n\r\nWhen?\r\n"
)
EXIM = (
    "Return-Path: <>\r\nFrom: Mail Delivery System <Mailer-Daemon@mx.example>\r\nTo: bot@home.example\r\n\r\n"
    "This message was created automatically by mail delivery software.\r\n\r\n"
    "A message that you sent could not be delivered to one or more of its\r\n"
    "recipients. This is a permanent error. The following address(es) failed:\r\n\r\n"
    "  ada@x.example\r\n    mailbox is full\r\n\r\n"
    "------ This is a copy of the message, including all the headers. ------\r\n\r\n"
    "Return-path: <bot@home.example>\r\nMessage-Id: <ours@home.example>\r\n\r\nWhen?\r\n"
)


@pytest.mark.parametrize(
    ("notice", "says"),
    [
        (QMAIL, "<ada@x.example>: Sorry, no mailbox here by that name. (#5.1.1)"),
        (EXIM, "ada@x.example mailbox is full"),
        (QMAIL.replace("Return-Path: <>", "Return-Path: <eve@x.example>"), ""),
        (QMAIL.replace("Return-Path: <>\r\n", "", 1), ""),
        (QMAIL.replace("MAILER-DAEMON@mx.example", "Mailer-Daemon <eve@x.example>"), ""),
        (EXIM.replace("This is a permanent error.", "It has not been delivered for 24 hours."), ""),
        (EXIM.replace("------ This", "> ------ This"), ""),
        (QMAIL.replace("Subject: Boiler\r\n\r\n", "").replace("Message-ID:", "\r\nMessage-ID:"), ""),
        (QMAIL.replace("This is a permanent error; ", "").replace("When?", "This is a permanent error"), ""),
    ],
)
def test_a_notice_that_is_only_text_counts_if_it_is_one_of_a_mail_server(notice: str, says: str) -> None:
    found = late_failures([arrived(notice, NOW, NOW)])
    assert [(one.platform_message_id, one.reason, one.because) for one in found] == (
        [("<ours@home.example>", says, None)] if says else []
    )


@pytest.mark.parametrize(
    ("notice", "arrivals", "reports"),
    [
        pytest.param(DATED, [0, 7], 1, id="delivered twice"),
        pytest.param(NOTICE.format(date=""), [0, 0], 1, id="read twice, without a date"),
        pytest.param(NOTICE.format(date=""), [0, 7], 2, id="without a date it may be another one"),
    ],
)
def test_a_notice_is_known_by_its_date(notice: str, arrivals: list[int], reports: int) -> None:
    given = [
        arrived(notice, NOW + timedelta(seconds=s), NOW + timedelta(minutes=n + 1)) for n, s in enumerate(arrivals)
    ]
    found = late_failures(given)
    assert len({(one.platform_message_id, one.at) for one in found}) == reports
    assert {one.platform_message_id for one in found} == {"<ours@home.example>"}
