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
