"""Connections to the servers of mailboxes, for one call each: a few of an account, none awaited long.

`looking.py` and `reading.py` open them. In: an account; out: an `OpenBox`, whose commands run in threads. Mailboxes are
opened read-only. Next: `transport/mail_servers/mailbox.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, ParamSpec, TypeVar

from switchboard.domain.errors import ConfigurationError
from switchboard.modules.accounts.settings import PasswordPlace
from switchboard.modules.email.settings import MailAccount
from switchboard.transport.mail_servers.mailbox import COMMAND_S, Mailbox, Opened, SignIn
from switchboard.transport.mail_servers.server import Server
from switchboard.transport.mail_servers.token_sign_in import sign_in_with_token
from switchboard.transport.oauth.tokens import TokenFile
from switchboard.transport.signed_post import read_secret

_P = ParamSpec("_P")
_T = TypeVar("_T")

WHOLE_S: Final = 50.0
"""Seconds for all commands of a call: less than butlers wait for a tool, so that what was found until then is told."""
AT_ONCE: Final = 2
"""Connections of an account at a time; servers refuse more than a few, and other programs have some."""
_HINT: Final = ", the one that your provider issues for programs"


class Deadline:
    """When a call has taken long enough."""

    def __init__(self, seconds: float = WHOLE_S) -> None:
        self._end = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """None, once it has passed."""
        return max(0.0, self._end - time.monotonic())


class OpenBox:
    """A connection. After a TimeoutError it is closed, and every other command fails."""

    def __init__(self, box: Mailbox, deadline: Deadline) -> None:
        self.box = box
        self._deadline = deadline
        self._folder = ""
        self._opened = Opened(0, 0)

    async def open_folder(self, name: str) -> int:
        """Its UIDVALIDITY. Raises as `run`, and FileNotFoundError if there is no such folder."""
        if name != self._folder:
            self._folder = ""
            self._opened = await self.run(self.box.open, name)
            self._folder = name
        return self._opened.validity

    async def run(self, command: Callable[_P, _T], *given: _P.args, **named: _P.kwargs) -> _T:
        """What a method of `box` returns. Raises what it raises, and TimeoutError."""
        try:
            async with asyncio.timeout(min(COMMAND_S, self._deadline.seconds_left)):
                return await asyncio.to_thread(command, *given, **named)
        except (TimeoutError, asyncio.CancelledError):
            self.box.abandon()  # the thread ends with an error
            raise


class MailConnections:
    """Opens connections, and lets calls wait for each other."""

    def __init__(self) -> None:
        self._places: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def open_box(self, name: str, account: MailAccount, deadline: Deadline) -> AsyncIterator[OpenBox]:
        """Sign in. Raises ConfigurationError, SignInRefused, OSError."""
        place = self._places.setdefault(name, asyncio.Semaphore(AT_ONCE))
        async with asyncio.timeout(deadline.seconds_left):
            await place.acquire()
        try:
            box = await _connect_mailbox(name, account, min(COMMAND_S, deadline.seconds_left))
            try:
                yield OpenBox(box, deadline)
            finally:
                box.abandon()
        finally:
            place.release()


async def _connect_mailbox(name: str, account: MailAccount, seconds: float) -> Mailbox:
    place = account.imap
    server = Server(host=place.host, port=place.port, tls=place.tls)

    async def connect(sign_in: SignIn) -> Mailbox:
        making = asyncio.ensure_future(asyncio.to_thread(Mailbox, server, sign_in))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(_abandon_mailbox)
            raise

    async with asyncio.timeout(seconds):
        if account.token_file is not None:
            return await sign_in_with_token(TokenFile(account.token_file), account.user, connect)
        return await connect(read_sign_in(name, account))


def read_sign_in(name: str, account: MailAccount) -> SignIn:
    """The password is read each time, so that a new one counts without a restart. Raises ConfigurationError."""
    place = account.password or PasswordPlace()
    try:
        password = read_secret(place.env, place.file, hint=_HINT)
    except ConfigurationError as error:
        raise ConfigurationError(f"the account {name!r}: {error.message}") from error
    return SignIn(account.user, password.decode())


def _abandon_mailbox(making: asyncio.Future[Mailbox]) -> None:
    if not making.cancelled() and making.exception() is None:
        making.result().abandon()
