"""An IMAP mailbox over one blocking connection, which its users call in threads.

Folders are opened read-only, so its user's `\\Seen` flags stay as they are; only `remove` opens one for writing. Errors
of the connection are OSErrors; a refused sign-in is SignInRefused.
"""

from __future__ import annotations

import imaplib
import re
import select
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Final

from imap_tools import BaseMailBox, MailBox, MailBoxStartTls, MailBoxUnencrypted
from imap_tools.errors import ImapToolsError, MailboxLoginError
from imap_tools.imap_utf7 import utf7_encode
from msgspec import Struct

from switchboard.ports.connector import SignInRefused
from switchboard.transport.mail_servers.criteria import SearchKey, command_pieces, needs_charset, search_day, uid_set
from switchboard.transport.mail_servers.encryption import explain_tls
from switchboard.transport.mail_servers.server import Server

COMMAND_S: Final = 30.0
"""Seconds for every answer of the server."""
_KINDS: Final[dict[str, type[Any]]] = {"tls": MailBox, "starttls": MailBoxStartTls, "none": MailBoxUnencrypted}
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 3}
_AT_ONCE: Final = 500
"""Mails that one command names; servers limit the length of its line."""
_HEAD: Final = (
    "(UID INTERNALDATE RFC822.SIZE BODYSTRUCTURE BODY.PEEK[HEADER.FIELDS "
    "(DATE FROM TO CC SUBJECT MESSAGE-ID IN-REPLY-TO REFERENCES)]<0.65536>)"
)
_IS_HEAD: Final = re.compile(rb"BODY\[HEADER[^\]]*\](?:<\d+>)? \{\d+\+?\}$", re.IGNORECASE)
_IN_QUOTES: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
_UID_SIZE: Final = (re.compile(rb"UID (\d+)"), re.compile(rb"RFC822\.SIZE (\d+)"))
_THREAD: Final = re.compile(rb"X-GM-THRID (\d{1,20})")
"""Gmail's number of a thread: https://developers.google.com/workspace/gmail/imap/imap-extensions."""
_FOR_NOW = re.compile(r"\[(UNAVAILABLE|LIMIT|INUSE|SERVERBUG)\]|temporar|try again|too many", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SignIn:
    """A user, and a password or an access token. `remedy`: what a person can do about a refusal, if that is known."""

    user: str
    secret: str = field(repr=False)
    token: bool = False
    remedy: str = ""

    @property
    def what_to_do(self) -> str:
        """What a person can do about a refusal."""
        usual = "sign in again, for a new access token" if self.token else "check the user and the password"
        return self.remedy or usual

    @property
    def bearer(self) -> str:
        """The token in the form of XOAUTH2."""
        return f"user={self.user}\1auth=Bearer {self.secret}\1\1"


class Opened(Struct, frozen=True):
    """The state of a folder when it was opened."""

    validity: int
    next_uid: int


class Fetched(Struct, frozen=True):
    """The bytes of a mail, its arrival time according to our own server, and its thread if the server has those."""

    raw: bytes
    arrived: datetime | None
    thread: str = ""


class FetchedHead(Struct, frozen=True):
    """Header fields of a mail, its structure as the server tells it (`BODYSTRUCTURE`), and its size in bytes."""

    uid: int
    arrived: datetime | None
    size: int
    structure: bytes
    head: bytes


class MailFolder(Struct, frozen=True):
    """A folder, and what it is for, as the server marks it: `\\Sent`, `\\All`."""

    name: str
    flags: frozenset[str]
    delimiter: str


class CharsetRefused(ConnectionError):
    """The server does not search for characters beyond ASCII."""


class MailRefused(ConnectionError):
    """The server answers, but refuses to deliver this mail."""


class Mailbox:
    """One connection. Call `open` first; do not use it after an error."""

    def __init__(self, server: Server, sign_in: SignIn) -> None:
        # imaplib does not check certificates by default.
        verified: dict[str, Any] = {} if server.tls == "none" else {"ssl_context": ssl.create_default_context()}
        try:
            with _as_os_error():
                self._box: BaseMailBox = _KINDS[server.tls](server.host, server.port, timeout=COMMAND_S, **verified)
        except ssl.SSLError as error:
            told = f"the IMAP server {server.host}:{server.port}: {explain_tls(error, 'imap', server)}"
            raise OSError(told) from error
        _keep_alive(self._client.sock)
        try:
            with _as_os_error():
                self._sign_in(sign_in)
                # Servers announce IDLE only after sign-in, and imaplib asked before it.
                able = self._client.capability()[1][-1].upper().split()
                self._idles, self._expunges_by_uid = b"IDLE" in able, b"UIDPLUS" in able
                self._has_threads = b"X-GM-EXT-1" in able
        except BaseException:
            self.abandon()
            raise

    @property
    def _client(self) -> Any:
        return self._box.client

    def _sign_in(self, sign_in: SignIn) -> None:
        try:
            if sign_in.token:
                self._give_token(sign_in)
            elif sign_in.secret.isascii() and sign_in.user.isascii():
                self._box.login(sign_in.user, sign_in.secret, initial_folder=None)
            else:
                self._box.login_utf8(sign_in.user, sign_in.secret, initial_folder=None)
        except imaplib.IMAP4.abort:
            raise
        except (MailboxLoginError, imaplib.IMAP4.error) as error:
            if _FOR_NOW.search(str(error)):
                raise ConnectionError("the mail server takes no sign-ins at the moment") from None
            raise SignInRefused(f"the mail server refuses the sign-in: {sign_in.what_to_do}") from None

    def _give_token(self, sign_in: SignIn) -> None:
        """Servers say as JSON what is wrong with a token, and refuse it once that is answered by an empty line."""
        answers = iter((sign_in.bearer,))
        self._client.authenticate("XOAUTH2", lambda _: next(answers, ""))

    def open(self, folder: str) -> Opened:
        """Open a folder read-only. Raises FileNotFoundError if there is no such folder."""
        with _as_os_error():
            status, _ = self._client.select(_quoted(folder), readonly=True)
            if status != "OK":
                raise FileNotFoundError(f"there is no folder {folder!r} in this mailbox")
            found = [self._client.response(name)[1] for name in ("UIDVALIDITY", "UIDNEXT")]
            validity, following = (int(one[-1]) if one and one[-1] else 0 for one in found)
            return Opened(validity, following or max(self._search_uids("ALL"), default=0) + 1)

    def above(self, uid: int) -> list[int]:
        """The UIDs above this one, sorted; `n+1:*` also returns the last UID when it is lower."""
        with _as_os_error():
            # Anything announced from here on, even during the search, ends the next `wait`.
            self._client.untagged_responses.pop("EXISTS", None)
            return sorted(one for one in self._search_uids(f"UID {uid + 1}:*") if one > uid)

    def since(self, day: date) -> list[int]:
        """The UIDs of mails that arrived on this day or later."""
        with _as_os_error():
            return sorted(self._search_uids(f"SINCE {search_day(day)}"))

    def with_message_id(self, message_id: str) -> list[int]:
        """The UIDs of mails with this Message-ID."""
        with _as_os_error():
            return self._search_uids(f'HEADER Message-ID "{message_id}"')

    def sizes(self, uids: Sequence[int]) -> dict[int, int]:
        """The sizes of these mails in bytes, without those that no longer exist."""
        with _as_os_error():
            found = self._fetch_mails(",".join(map(str, uids)), "(UID RFC822.SIZE)")
        sizes = {}
        for line in found:
            uid, size = (pattern.search(line[0] if isinstance(line, tuple) else line or b"") for pattern in _UID_SIZE)
            if uid and size:
                sizes[int(uid[1])] = int(size[1])
        return sizes

    def search(self, keys: Sequence[SearchKey]) -> list[int]:
        """The UIDs of the mails to which all keys apply. Raises CharsetRefused if only ASCII can be searched for."""
        line, *literals = command_pieces(keys)
        charset = ("CHARSET", "UTF-8") if needs_charset(keys) else ()
        with _as_os_error():
            if literals:
                self._client.literal = _Literals(literals).next_piece
            try:
                status, found = self._client.uid("SEARCH", *charset, line)
            except imaplib.IMAP4.abort:
                raise
            except imaplib.IMAP4.error as error:
                if charset:
                    raise CharsetRefused(str(error)) from None
                raise
            if status != "OK":
                told = b" ".join(one for one in found if isinstance(one, bytes)).decode("utf-8", "replace")[:200]
                raise CharsetRefused(told) if charset else MailRefused(f"the mail server does not search: {told}")
        return [int(uid) for line in found if line for uid in line.split()]

    def folders(self) -> list[MailFolder]:
        """Those that can be opened."""
        with _as_os_error():
            listed = [MailFolder(one.name, frozenset(one.flags), one.delim) for one in self._box.folder.list()]
        return [one for one in listed if not {flag.lower() for flag in one.flags} & {"\\noselect", "\\nonexistent"}]

    def arrivals(self, uids: Sequence[int]) -> dict[int, datetime]:
        """When these mails arrived, without those that no longer exist."""
        found: dict[int, datetime] = {}
        for start in range(0, len(uids), _AT_ONCE):
            with _as_os_error():
                lines = self._fetch_mails(uid_set(uids[start : start + _AT_ONCE]), "(UID INTERNALDATE)")
            for line in lines:
                said = line[0] if isinstance(line, tuple) else line
                uid, arrived = _UID_SIZE[0].search(said), _parse_time(said)
                if uid and arrived:
                    found[int(uid[1])] = arrived
        return found

    def heads(self, uids: Sequence[int]) -> dict[int, FetchedHead]:
        """What a list of mails shows of these, without those that no longer exist; at most a few hundred."""
        with _as_os_error():
            lines = self._fetch_mails(uid_set(uids), _HEAD)
        found = dict[int, FetchedHead]()
        for said, head in _answers_of(lines):
            plain = _IN_QUOTES.sub(b'""', said)
            uid, size = (pattern.search(plain) for pattern in _UID_SIZE)
            if uid:
                structure = said.partition(b"BODYSTRUCTURE ")[2]
                found[int(uid[1])] = FetchedHead(
                    int(uid[1]), _parse_time(said), int(size[1]) if size else 0, structure, head
                )
        return found

    def read(self, uid: int, *, head: bool = False, most: int = 0) -> Fetched | None:
        """The mail as it was received, or only its header fields; None if it no longer exists. Raises MailRefused.

        `most`: only so many bytes of it, if it has more.
        """
        what, part = "HEADER" if head else "", f"<0.{most}>" if most else ""
        thread = "X-GM-THRID " if self._has_threads else ""
        with _as_os_error():
            found = self._fetch_mails(str(uid), f"(UID INTERNALDATE {thread}BODY.PEEK[{what}]{part})")
        said = b" ".join(one[0] if isinstance(one, tuple) else one for one in found)
        raw = next((bytes(one[1]) for one in found if isinstance(one, tuple)), None)
        threads = _THREAD.search(said) if thread else None
        return Fetched(raw, _parse_time(said), threads[1].decode() if threads else "") if raw is not None else None

    def wait(self, seconds: float) -> None:
        """Wait until the server announces something, for at most this many seconds (IDLE)."""
        with _as_os_error():
            if not self._idles:
                select.select([self._client.sock], [], [], min(seconds, 60))
                return
            tag = self._client._command("IDLE")
            while self._client._get_response() is not None:  # None means that the server idles
                if self._client.tagged_commands.get(tag):
                    raise ConnectionError("the mail server refuses IDLE")
            self._until_announced(seconds)
            self._client.send(b"DONE\r\n")
            self._box.consume_until_tagged_response(tag)

    def _until_announced(self, seconds: float) -> None:
        """Lines that came with the answer to IDLE are already in the buffer, where `poll` does not see them."""
        sock = self._client.sock
        reader = getattr(self._client, "_file", None) or self._client.file  # as Python 3.14 names it, and older ones
        sock.settimeout(0)
        try:
            with suppress(OSError):
                if reader.peek(1):
                    return
        finally:
            sock.settimeout(COMMAND_S)
        if "EXISTS" not in self._client.untagged_responses:
            poller = select.poll()
            poller.register(sock.fileno(), select.POLLIN)
            poller.poll(seconds * 1000)

    def sent_folder(self) -> str:
        """The folder that the server marks as sent mails, otherwise `Sent`."""
        with _as_os_error():
            return next((one.name for one in self._box.folder.list() if "\\Sent" in one.flags), "Sent")

    def append(self, folder: str, mail: bytes, *, draft: bool = False) -> None:
        """File a mail and mark it as seen, and as a draft if it is one."""
        with _as_os_error():
            self._box.append(mail, folder, flag_set=["\\Seen", *(["\\Draft"] if draft else [])])

    def remove(self, folder: str, uids: Sequence[int]) -> bool:
        """Remove these mails and no others, ours or another program's, that are marked as deleted there.

        False: the server cannot (it has no UIDPLUS), and nothing was changed. `open` a folder before other commands.
        """
        if not self._expunges_by_uid:
            return False
        with _as_os_error():
            self._require_ok(self._client.select(_quoted(folder)))
            self._require_ok(self._client.uid("STORE", uid_set(uids), "+FLAGS.SILENT", r"(\Deleted)"))
            self._require_ok(self._client.uid("EXPUNGE", uid_set(uids)))
        return True

    def _require_ok(self, answer: tuple[str, list[Any]]) -> None:
        status, said = answer
        if status != "OK":
            why = b" ".join(one for one in said if isinstance(one, bytes)).decode("utf-8", "replace")
            raise MailRefused(f"the mail server says: {status} {why}"[:300])

    def abandon(self) -> None:
        """Close the connection, so that a call in another thread ends with an error."""
        with suppress(Exception):
            self._client.sock.shutdown(socket.SHUT_RDWR)
        with suppress(Exception):
            self._client.shutdown()

    def _search_uids(self, criteria: str) -> list[int]:
        return [int(uid) for uid in self._box.uids(criteria, charset=None)]

    def _fetch_mails(self, uids: str, what: str) -> list[Any]:
        status, found = self._client.uid("FETCH", uids, what)
        if status != "OK":
            why = b" ".join(one for one in found if isinstance(one, bytes)).decode("utf-8", "replace")
            raise MailRefused(f"the mail server does not give a mail: {status} {why}"[:300])
        return [one for one in found if one is not None]


class _Literals:
    """What is sent of a command each time the server asks for more of it."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._left = iter(pieces)

    def next_piece(self, _asked: bytes) -> bytes:
        """A literal, and the line that follows it."""
        return next(self._left, b"")


def _answers_of(lines: Sequence[Any]) -> Iterator[tuple[bytes, bytes]]:
    """Of each mail what the server says, and its header fields, which may be anywhere among that.

    Of other literals, which strangers wrote, nothing is kept.
    """
    said, head = b"", b""
    for line in lines:
        if not isinstance(line, tuple):
            yield said + line, head
            said, head = b"", b""
        elif _IS_HEAD.search(line[0]):
            said, head = said + line[0], bytes(line[1])
        else:
            said += line[0] + b'""'


def _quoted(folder: str) -> str:
    name = utf7_encode(folder).decode("ascii").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{name}"'


def _parse_time(said: bytes) -> datetime | None:
    found = imaplib.Internaldate2tuple(said)
    return datetime.fromtimestamp(time.mktime(found), UTC) if found else None


def _keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if option := getattr(socket, name, None):
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


@contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except (imaplib.IMAP4.error, ImapToolsError) as error:
        raise ConnectionError(f"the mail server says: {str(error)[:200]}") from None
