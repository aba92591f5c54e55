"""An open mailbox: mails that arrive become envelopes, and answers leave by SMTP.

The cursor is `UIDVALIDITY:UID` of the last mail. A mailbox that was created again has another UIDVALIDITY; the mails of
the last seven days are then read again, and the server recognises the ones it has. As elsewhere, child processes parse
the mails (`transport/mail_reading.py`). Next: `mailbox.py` (IMAP), `submission.py` (SMTP).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import structlog
from msgspec.structs import replace

from switchboard.connectors.email.access import MailAccess
from switchboard.connectors.email.bounces import is_bounce, late_failures
from switchboard.connectors.email.settings import CAPABILITIES, EmailAccountSettings
from switchboard.connectors.email.submission import SubmittedMail, announced_size, submit, try_sign_in
from switchboard.core.channels.email import CHANNELS
from switchboard.core.mail.headers import address, header, is_mailbox, mailboxes
from switchboard.core.mail.reply import MailReply, compose, message_id
from switchboard.core.mail.writing import File
from switchboard.core.mail.written import compose_written, written_in
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import ConfigurationError, InvalidInput
from switchboard.ports.connector import (
    SEND_S,
    Account,
    Batch,
    Capabilities,
    FileIn,
    FileOut,
    Identity,
    Inbound,
    Later,
    Outcome,
    Part,
    Refused,
    Sent,
    Session,
    SignInRefused,
    Unreadable,
)
from switchboard.transport.mail_reading import MailReader, mail_name
from switchboard.transport.mail_servers.mailbox import Fetched, Mailbox, MailRefused, Opened, SignIn

log = structlog.get_logger(__name__)

MAX_MAIL: Final = 25_000_000
"""Maximum bytes of a mail that is read."""
RESCAN: Final = timedelta(days=7)
_BATCH: Final = 20
_BATCH_BYTES: Final = 4_000_000
_NO_TOKEN_S: Final = 900.0
_AT_ONCE: Final = 4
"""Mails that are submitted at a time; more connections of one account are refused by some servers."""
_TURN_S: Final = 10.0
_NO_TURN_S: Final = 5.0
_WRITTEN_S: Final = 20.0
"""After which a mail is not submitted any more, since the kernel gives up a little later."""
_ANSWERED_S: Final = 28.0
_REFUSED_S: Final = (1.0, 5.0, 0.0)
"""Seconds after each try of a mail that the server does not give."""
_ANNOUNCED_S: Final = 5.0
_WITHOUT_FILES: Final = 300_000
"""Bytes of a mail that are kept for its header and its text."""
_LINE_OF_FILE, _LINE = 57, 78
"""Bytes of a file, and those of the line that base64 makes of them."""
_PIECE: Final = 65_536
_FILE_THEMSELVES: Final = ("gmail.com", "googlemail.com", "office365.com", "outlook.com")
"""Providers that file what is sent through their SMTP servers."""


async def open_account(account: Account) -> EmailSession:
    """Sign in and open the folder. Raises SignInRefused, OSError."""
    settings = _settings_of(account)
    session = EmailSession(settings, account.secrets.get("password", ""), account.directory)
    await (session.latest() if settings.receive else try_sending(account))
    session.capabilities = await _find_capabilities(settings)
    return session


async def _find_capabilities(settings: EmailAccountSettings) -> Capabilities | None:
    """With smaller files than the manifest says, if the SMTP server takes only smaller mails."""
    try:
        size = await asyncio.to_thread(announced_size, settings.smtp, _ANNOUNCED_S)
    except OSError:
        return None  # when a mail is sent, it is said what is wrong
    most = CAPABILITIES.max_file_out
    files = most if size is None else max(0, size - _WITHOUT_FILES) * _LINE_OF_FILE // _LINE
    return replace(CAPABILITIES, max_file_out=files) if files < most else None


async def try_sending(account: Account) -> None:
    """Sign in at the SMTP server without sending anything. Raises SignInRefused, OSError."""
    settings = _settings_of(account)
    access = MailAccess(settings, account.secrets.get("password", ""), account.directory)
    await access.use(lambda sign_in: asyncio.to_thread(try_sign_in, settings.smtp, sign_in, _WRITTEN_S))


def _settings_of(account: Account) -> EmailAccountSettings:
    if not isinstance(account.settings, EmailAccountSettings):
        raise TypeError("the settings are not those of e-mail")
    return account.settings


class EmailSession(Session):
    """A `Session`: each `receive` has a connection of its own; all other requests share one."""

    def __init__(self, settings: EmailAccountSettings, password: str, directory: Path = Path()) -> None:
        self._settings = settings
        self._access = MailAccess(settings, password, directory)
        self._own = settings.address.lower()
        self._reader = MailReader()
        self._copies: set[asyncio.Task[None]] = set()
        self._hands = ThreadPoolExecutor(_AT_ONCE, "smtp")  # shared by everything but `receive`
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._with_files = asyncio.Lock()
        self._copying = asyncio.Lock()  # servers allow an account only a few connections
        self.identity = Identity(self._own, settings.display_name)

    async def receive(self, cursor: str | None) -> AsyncGenerator[Batch, None]:
        """Yield the mails after the cursor, forever; without a cursor, start seven days ago.

        Each wait is preceded by a search, because mails that arrived in between were not announced. Raises
        SignInRefused, OSError.
        """
        if not self._settings.receive:
            async for nothing in self._watch_server():
                yield nothing
        async with self._open_mailbox() as box:
            opened = await asyncio.to_thread(box.open, self._settings.folder)
            uids, last = await self._first_uids(box, opened, cursor)
            while True:
                async for batch in self._batches_of(box, opened.validity, uids):
                    yield batch
                last = max((last, *uids))
                yield Batch((), f"{opened.validity}:{last}")
                await asyncio.to_thread(box.wait, self._settings.idle_s)
                uids = await asyncio.to_thread(box.above, last)

    async def _watch_server(self) -> AsyncGenerator[Batch, None]:
        """Nothing arrives, forever; but the SMTP server must be there. Raises OSError."""
        while True:
            await asyncio.to_thread(announced_size, self._settings.smtp, _WRITTEN_S)
            yield Batch(())
            await asyncio.sleep(self._settings.idle_s)

    async def _first_uids(self, box: Mailbox, opened: Opened, cursor: str | None) -> tuple[list[int], int]:
        """The UIDs to begin with, and the last UID that can be skipped."""
        validity, _, uid = (cursor or "").partition(":")
        if validity == str(opened.validity) and uid.isdecimal():
            return await asyncio.to_thread(box.above, int(uid)), int(uid)
        if cursor is not None:
            log.warning("the mailbox was created again; reading the last seven days again", endpoint=self._own)
        day = (datetime.now(UTC) - RESCAN).date()
        return await asyncio.to_thread(box.since, day), opened.next_uid - 1

    async def _batches_of(self, box: Mailbox, validity: int, uids: Sequence[int]) -> AsyncIterator[Batch]:
        events: list[Inbound | Unreadable] = []
        taken = 0
        for start in range(0, len(uids), _BATCH):
            some = uids[start : start + _BATCH]
            sizes = await asyncio.to_thread(box.sizes, some)
            for uid in some:
                if events and taken + sizes.get(uid, 0) > _BATCH_BYTES:
                    yield await _batch_of(events, f"{validity}:{uid - 1}")
                    events, taken = [], 0
                taken += sizes.get(uid, 0)
                if event := await self._fetch_event(box, validity, uid, sizes.get(uid, 0)):
                    events.append(event)
            if events:
                yield await _batch_of(events, f"{validity}:{some[-1]}")
                events, taken = [], 0

    async def _fetch_event(self, box: Mailbox, validity: int, uid: int, size: int) -> Inbound | Unreadable | None:
        """The mail as an event; None if it has been deleted meanwhile."""
        name = f"uid:{validity}:{uid}"
        found, reason = None, f"it has {size} bytes, and at most {MAX_MAIL} are read"
        if size <= MAX_MAIL:
            found, reason = await self._fetch_mail(box, uid)
        if reason:
            # If even its header is withheld, the fault lies with the server, not with this mail.
            head = await asyncio.to_thread(lambda: box.read(uid, head=True))
            return Unreadable(name, head.raw, reason) if head is not None else None
        return await self._read(found, name) if found is not None else None

    async def _fetch_mail(self, box: Mailbox, uid: int) -> tuple[Fetched | None, str]:
        """The mail, or why the server keeps refusing it: Exchange does so for mails that it cannot convert."""
        why = ""
        for pause in _REFUSED_S:
            try:
                return await asyncio.to_thread(box.read, uid), ""
            except MailRefused as error:
                why = str(error)
                await asyncio.sleep(pause)
        return None, why

    async def read(self, raw: bytes) -> Inbound | Unreadable:
        """Read a mail from quarantine. If only its header was kept, it must not pass for the whole mail."""
        if not raw.replace(b"\r\n", b"\n").partition(b"\n\n")[2].strip():
            return Unreadable(
                "unreadable", raw, "it has a head alone, as what was too large or refused: read it in the mailbox"
            )
        return await self._read(Fetched(raw, None), "unreadable")

    async def _read(self, found: Fetched, name: str) -> Inbound | Unreadable:
        raw = found.raw
        try:
            mail = await self._reader.read(raw, endpoint=self._own, provider="imap", now=datetime.now(UTC))
        except InvalidInput as error:
            return Unreadable(name, raw, error.message)
        return self._inbound_of(_with_fetched(mail.envelope, found), raw)

    def _inbound_of(self, envelope: Envelope, raw: bytes) -> Inbound:
        email = CHANNELS[0]
        facts = {name: value for name, value in email.facts(envelope).items() if value is not None}
        direct = not email.overheard(facts | {"endpoint": self._own})
        named = (address(one) for one in mailboxes(header(envelope.payload.raw, "to")))
        to_us = any(one is not None and is_mailbox(one, self._own) for one in named)
        attached = envelope.payload.attachments
        mail = mail_name(raw) if attached else ""
        return Inbound(
            envelope=replace(envelope, control=replace(envelope.control, addressed=direct or to_us)),
            raw=raw,
            own=is_mailbox(envelope.sender.identity.lower(), self._own),
            direct=direct,
            files=tuple(FileIn(at, {"part": at, "mail": mail}, raw) for at in range(len(attached))),
        )

    async def latest(self) -> str | None:
        """The cursor after the last mail; None if nothing is received."""
        if not self._settings.receive:
            return None
        async with self._open_mailbox() as box:
            opened = await asyncio.to_thread(box.open, self._settings.folder)
        return f"{opened.validity}:{opened.next_uid - 1}"

    async def send(self, part: Part, key: str) -> Outcome:
        """Hand a mail to the SMTP server, then file a copy, which has no influence on the result."""
        began = time.monotonic()
        if not part.files:
            return await self._send(part, key, began)
        async with self._with_files:  # such a mail is in memory several times
            return await self._send(part, key, began)

    async def _send(self, part: Part, key: str, began: float) -> Outcome:
        files = tuple([await _whole_file(one) for one in part.files])
        written = written_in(part.address)
        try:
            mail = await asyncio.to_thread(self._compose_mail, part, key, files)
        except ValueError as error:
            return Refused(str(error), "blocked")
        recipients = written.recipients if written else (str(part.address["to"]),)
        if written is None and is_mailbox(recipients[0].lower(), self._own):
            return Refused("the answer would go to this account itself", "blocked")
        outcome = await self._handed_in(recipients, mail, began + part.patience_s - SEND_S)
        if not isinstance(outcome, Sent):
            return outcome
        sent = Sent(self._name_of(part, key))
        if self._files_copies:
            copy = asyncio.create_task(self._file_copy(mail, sent.platform_message_id))
            self._copies.add(copy)
            copy.add_done_callback(self._copies.discard)
        return sent

    def _compose_mail(self, part: Part, key: str, files: tuple[File, ...]) -> bytes:
        """The bytes of a mail that a butler has written, or of an answer. Raises ValueError."""
        now = datetime.now(UTC)
        if (written := written_in(part.address)) is None:
            return compose(self._make_reply(part, key, files), now)
        if not is_mailbox(written.sender.lower(), self._own):
            raise ValueError(f"this account sends from {self._own} alone, and not from {written.sender}")
        return compose_written(written, part.text, files, name=self._settings.display_name, now=now)

    def _name_of(self, part: Part, key: str) -> str:
        """The Message-ID of a part."""
        written = written_in(part.address)
        return message_id(key, self._settings.address) if written is None else written.message_id

    async def _handed_in(self, recipients: tuple[str, ...], mail: bytes, began: float) -> Outcome:
        """Submit a few mails at a time; one abandoned by its caller counts until its thread has ended."""
        try:
            async with asyncio.timeout(_TURN_S):
                await self._turns.acquire()
        except TimeoutError:
            return Later(_NO_TURN_S, "other mails are being handed in")
        outgoing = SubmittedMail(self._settings.address, recipients, mail, began + _WRITTEN_S, began + _ANSWERED_S)
        handing = asyncio.create_task(self._submit_mail(outgoing))
        handing.add_done_callback(lambda _: self._turns.release())
        return await asyncio.shield(handing)

    async def _submit_mail(self, outgoing: SubmittedMail) -> Outcome:
        loop = asyncio.get_running_loop()
        try:
            return await self._access.use(
                lambda sign_in: loop.run_in_executor(self._hands, submit, self._settings.smtp, sign_in, outgoing)
            )
        except (OSError, SignInRefused, ConfigurationError) as error:
            return Later(_NO_TOKEN_S, str(error))

    def _make_reply(self, part: Part, key: str, files: tuple[File, ...]) -> MailReply:
        html = part.rendered.get("html") if part.rendered else None
        return MailReply(
            to=part.address,
            own=self._settings.address,
            name=self._settings.display_name,
            key=key,
            text=part.text,
            html=html if isinstance(html, str) else "",
            subject=part.subject or "",
            files=files,
        )

    @property
    def _files_copies(self) -> bool:
        wanted = self._settings.sent_copy
        files_itself = self._settings.smtp.host.lower().endswith(_FILE_THEMSELVES)
        return wanted == "always" or (wanted == "auto" and not files_itself)

    async def _file_copy(self, mail: bytes, name: str) -> None:
        """File a copy unless the server has done so. Failures are only logged."""
        try:
            async with self._copying:
                await self._file_unless_there(mail, name)
        except (OSError, SignInRefused) as error:
            log.warning("the copy of a sent mail was not filed", endpoint=self._own, error=str(error))

    async def _file_unless_there(self, mail: bytes, name: str) -> None:
        async with self._open_mailbox() as box:
            folder = await self._opened_sent(box)
            if folder and not await asyncio.to_thread(box.with_message_id, name):
                await asyncio.to_thread(box.append, folder, mail)

    async def find(self, part: Part, key: str) -> Sent | None:
        """Find the mail in the folder of sent mails. Raises OSError."""
        name = self._name_of(part, key)
        async with self._open_mailbox() as box:
            folder = await self._opened_sent(box)
            found = await asyncio.to_thread(box.with_message_id, name) if folder else []
        return Sent(name) if found else None

    async def _opened_sent(self, box: Mailbox) -> str | None:
        folder = self._settings.sent_folder or await asyncio.to_thread(box.sent_folder)
        with suppress(FileNotFoundError):
            await asyncio.to_thread(box.open, folder)
            return folder
        return None

    async def fetch(self, file: FileIn) -> AsyncIterator[bytes]:
        """The bytes of an attachment, extracted from its mail. Raises ValueError if the mail has no such attachment."""
        data = await self._reader.file(file.raw, int(file.handle.get("part", 0)), str(file.handle.get("mail", "")))
        if data is None:
            raise ValueError("the mail has no such attachment")
        for start in range(0, len(data), _PIECE):
            yield data[start : start + _PIECE]

    async def close(self) -> None:
        """Wait for the copies that are being filed."""
        await asyncio.gather(*self._copies)
        await self._reader.close()
        self._hands.shutdown(wait=False)

    @asynccontextmanager
    async def _open_mailbox(self) -> AsyncIterator[Mailbox]:
        box = await self._access.use(self._connect_mailbox)
        try:
            yield box
        finally:
            box.abandon()

    async def _connect_mailbox(self, sign_in: SignIn) -> Mailbox:
        making = asyncio.ensure_future(asyncio.to_thread(Mailbox, self._settings.imap, sign_in))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(_abandon_mailbox)
            raise


async def _whole_file(file: FileOut) -> File:
    """A mail is always submitted whole."""
    return File(file.filename, file.media_type, b"".join([piece async for piece in file.read()]))


async def _batch_of(events: Sequence[Inbound | Unreadable], cursor: str) -> Batch:
    """With what they report of mails of ours; a notice may have megabytes."""
    late = await asyncio.to_thread(late_failures, list(events)) if any(map(is_bounce, events)) else ()
    return Batch(tuple(events), cursor, late=late)


def _with_fetched(envelope: Envelope, found: Fetched) -> Envelope:
    """Use the arrival time and the thread at our own server if known, since senders may write any Date and References.

    Threads of Gmail also hold mails whose References are lost on the way.
    """
    event = envelope.event
    thread = f"gmail:{found.thread}" if found.thread else event.external_thread_id
    return replace(envelope, event=replace(event, sent_at=found.arrived or event.sent_at, external_thread_id=thread))


def _abandon_mailbox(making: asyncio.Future[Mailbox]) -> None:
    if not making.cancelled() and making.exception() is None:
        making.result().abandon()
