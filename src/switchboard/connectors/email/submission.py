"""Handing a mail to an SMTP server, blocking; `channel.py` calls it in a thread.

Next: `channel.py`, which files a copy of what was sent.
"""

from __future__ import annotations

import base64
import re
import smtplib
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec import Struct

from switchboard.ports.connector import Later, Outcome, Refused, Sent, SignInRefused, Uncertain, Why
from switchboard.transport.mail_servers.encryption import explain_tls
from switchboard.transport.mail_servers.mailbox import SignIn
from switchboard.transport.mail_servers.server import Server

_UNREACHED_S: Final = 30.0
_BUSY_S: Final = 300.0
_WHY_NOT: Final = 334
"""The server says as JSON what is wrong with a token, and refuses it once that is answered by an empty line."""
_NAME: Final = "[127.0.0.1]"  # as Thunderbird does; the name of this machine stays private
_DOT = re.compile(rb"^\.", re.MULTILINE)


class SubmittedMail(Struct, frozen=True):
    """A mail with CRLF for all of its recipients or none, and the times (`time.monotonic`) until which to write it and
    to wait."""

    sender: str
    recipients: tuple[str, ...]
    mail: bytes
    written_by: float
    answered_by: float


def submit(server: Server, sign_in: SignIn, outgoing: SubmittedMail) -> Outcome:
    """Submit a mail; the returned `Sent` has no id.

    Before the final dot is written, the server cannot have accepted the mail; after that, only its answer tells.
    Raises SignInRefused.
    """
    try:
        client = _connect_client(server, outgoing.written_by)
    except smtplib.SMTPResponseException as error:
        return Later(_BUSY_S, _describe_answer(error.smtp_code, error.smtp_error))
    except (OSError, smtplib.SMTPException) as error:
        return Later(_UNREACHED_S, f"the SMTP server {server.host}:{server.port} is not reached: {error}"[:200])
    try:
        return _handed_in(client, sign_in, outgoing)
    finally:
        client.close()


def try_sign_in(server: Server, sign_in: SignIn, seconds: float) -> None:
    """Sign in without submitting anything. Raises SignInRefused, OSError."""
    try:
        client = _connect_client(server, time.monotonic() + seconds)
        try:
            client.ehlo_or_helo_if_needed()
            if client.has_extn("auth"):
                _signed_in(client, sign_in)
        finally:
            client.close()
    except smtplib.SMTPAuthenticationError as error:
        raise _refused_sign_in(sign_in, error) from None
    except smtplib.SMTPException as error:
        raise OSError(f"the SMTP server at {server.host} does not answer as one: {error}"[:300]) from None
    except OSError as error:
        raise OSError(f"the SMTP server {server.host}:{server.port} is not reached: {error}") from None


def _refused_sign_in(sign_in: SignIn, error: smtplib.SMTPAuthenticationError) -> SignInRefused:
    said = _describe_answer(error.smtp_code, error.smtp_error)
    return SignInRefused(f"the SMTP server refuses the sign-in: {sign_in.what_to_do}; {said}")


def announced_size(server: Server, seconds: float) -> int | None:
    """The largest mail in bytes that the server says it takes; None: it names no limit. Raises OSError."""
    client = _connect_client(server, time.monotonic() + seconds)
    try:
        client.ehlo_or_helo_if_needed()
        size = client.esmtp_features.get("size", "")
        client.docmd("QUIT")
    finally:
        client.close()
    return int(size) or None if size.isdecimal() else None


def _connect_client(server: Server, by: float) -> smtplib.SMTP:
    try:
        return _open_client(server, by)
    except ssl.SSLError as error:
        raise OSError(explain_tls(error, "smtp", server)) from error


def _open_client(server: Server, by: float) -> smtplib.SMTP:
    context = None if server.tls == "none" else ssl.create_default_context()  # which takes 20 ms
    if server.tls == "tls":
        return smtplib.SMTP_SSL(server.host, server.port, _NAME, timeout=_seconds_left(by), context=context)
    client = smtplib.SMTP(server.host, server.port, _NAME, timeout=_seconds_left(by))
    try:
        if server.tls == "starttls":
            client.starttls(context=context)
    except BaseException:
        client.close()
        raise
    return client


def _handed_in(client: smtplib.SMTP, sign_in: SignIn, outgoing: SubmittedMail) -> Outcome:
    mail, by = outgoing.mail, outgoing.written_by
    try:
        _wait_until(client, by)
        client.ehlo_or_helo_if_needed()
        if client.has_extn("auth"):
            _signed_in(client, sign_in)
        if refusal := _announce_mail(client, outgoing):
            return refusal
        _wait_until(client, by)
        client.send(_DOT.sub(b"..", mail) + (b"" if mail.endswith(b"\r\n") else b"\r\n"))
        _wait_until(client, by)
    except smtplib.SMTPAuthenticationError as error:
        raise _refused_sign_in(sign_in, error) from None
    except (OSError, smtplib.SMTPException) as error:
        return Later(_UNREACHED_S, f"the SMTP server broke off: {error}"[:200])
    return _end_session(client, outgoing.answered_by)


def _seconds_left(by: float) -> float:
    left = by - time.monotonic()
    if left <= 0:
        raise TimeoutError("it takes too long")
    return left


def _wait_until(client: smtplib.SMTP, by: float) -> None:
    """Limit the wait for the next answer to this time. Raises TimeoutError if it has passed."""
    if client.sock is not None:
        client.sock.settimeout(_seconds_left(by))


def _signed_in(client: smtplib.SMTP, sign_in: SignIn) -> None:
    if not sign_in.token:
        client.login(sign_in.user, sign_in.secret)
        return
    code, answer = client.docmd("AUTH", f"XOAUTH2 {base64.b64encode(sign_in.bearer.encode()).decode()}")
    if code == _WHY_NOT:
        code, answer = client.docmd("")
    if code != 235:
        raise smtplib.SMTPAuthenticationError(code, answer)


def _announce_mail(client: smtplib.SMTP, outgoing: SubmittedMail) -> Outcome | None:
    """What is wrong with sender, recipient or size; None once the server waits for the mail."""
    options = [f"SIZE={len(outgoing.mail)}"] if client.has_extn("size") else []
    commands: tuple[tuple[Why, Callable[[], tuple[int, bytes]]], ...] = (
        ("other", lambda: client.mail(outgoing.sender, options)),
        *(("blocked", partial(client.rcpt, one)) for one in outgoing.recipients),
        ("other", lambda: client.docmd("DATA")),
    )
    for because, command in commands:
        _wait_until(client, outgoing.written_by)
        code, answer = command()
        if code >= 400:
            return _refusal_of(code, answer, because)
    return None


def _end_session(client: smtplib.SMTP, by: float) -> Outcome:
    try:
        _wait_until(client, by)
        client.send(b".\r\n")
        code, answer = client.getreply()
    except (OSError, smtplib.SMTPException):
        return Uncertain("the SMTP server got the whole mail and did not answer")
    if code >= 400:
        return _refusal_of(code, answer, "other")
    with suppress(OSError, smtplib.SMTPException):
        client.docmd("QUIT")
    return Sent("")


def _refusal_of(code: int, answer: bytes, because: Why) -> Outcome:
    return (
        Refused(_describe_answer(code, answer), because)
        if code >= 500
        else Later(_BUSY_S, _describe_answer(code, answer))
    )


def _describe_answer(code: int, answer: bytes | str) -> str:
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
    return f"the SMTP server says: {code} {' '.join(text.split())}"[:300]
