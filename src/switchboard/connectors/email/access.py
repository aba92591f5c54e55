"""By what an account of e-mail signs in: a password, a program that prints access tokens, or a token file.

`channel.py` calls it for each connection, so that what has changed meanwhile counts. In: what opens a connection with a
sign-in; out: the connection. Next: `transport/mail_servers/token_sign_in.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from switchboard.connectors.email.settings import EmailAccountSettings
from switchboard.ports.connector import SignInRefused
from switchboard.transport.mail_servers.mailbox import SignIn
from switchboard.transport.mail_servers.token_sign_in import sign_in_with_token
from switchboard.transport.oauth.tokens import TokenFile

_T = TypeVar("_T")
_TOKEN_S: Final = 15.0


class MailAccess:
    """That of one account; `directory` is that of its file."""

    def __init__(self, settings: EmailAccountSettings, password: str, directory: Path) -> None:
        self._user = settings.user or settings.address
        self._password = password
        self._command = settings.token_command
        self._tokens = TokenFile(directory / settings.token_file) if settings.token_file else None

    async def use(self, connect: Callable[[SignIn], Awaitable[_T]]) -> _T:
        """What `connect` returns. Raises what it raises, SignInRefused, ConfigurationError, OSError."""
        if self._tokens is not None:
            return await sign_in_with_token(self._tokens, self._user, connect)
        if self._command:
            return await connect(SignIn(self._user, await _printed_token(self._command), token=True))
        return await connect(SignIn(self._user, self._password))


async def _printed_token(command: Sequence[str]) -> str:
    """The access token that a program prints. The SignInRefused that it raises quotes nothing of the output."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        raise SignInRefused(f"`token_command` cannot be run: {error.strerror}") from None
    try:
        async with asyncio.timeout(_TOKEN_S):
            printed, _ = await process.communicate()
    except BaseException as error:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if isinstance(error, TimeoutError):
            raise ConnectionError(f"`token_command` has not ended within {_TOKEN_S:.0f} s") from None
        raise
    token = printed.decode("utf-8", "replace").strip()
    if process.returncode or not token:
        raise SignInRefused(f"`token_command` printed no token (status {process.returncode}): sign in again")
    return token
