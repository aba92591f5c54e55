"""Reads mails in child processes with a deadline and a memory limit, so that no mail can stop or bloat a server.

Called by `app/messages/intake.py`, `connectors/email` and `cli/importing`. In: a mail as it was received; out: always
an envelope: if a mail exceeds a limit, its header fields are read here, and a mark replaces the text. The processes are
started with the first mail. Next: `mail_process.py`, their program.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, cast

import msgspec
import structlog
from msgspec import Struct

from switchboard.core.mail.envelope import Mail, envelope_of_head
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import InvalidInput, Unavailable
from switchboard.transport.child import without_secrets
from switchboard.transport.mail_frames import ASKED, TOLD, MailOutcome, MailRefusal, MailRequest

log = structlog.get_logger(__name__)

_PROGRAM: Final = "switchboard.transport.mail_process"
_START_S: Final = 30.0


class MailLimits(Struct, frozen=True):
    """Per mail: seconds of CPU time and by the clock; per process: bytes of memory; and the number of processes."""

    cpu_s: int = 10
    seconds: float = 30.0
    memory_bytes: int = 512 * 1024 * 1024
    processes: int = 2


class MailReader:
    """Reads mails, a few at a time."""

    def __init__(self, limits: MailLimits | None = None) -> None:
        self._limits = limits or MailLimits()
        self._places = asyncio.Semaphore(self._limits.processes)
        self._idle: list[_Child] = []

    async def read(self, raw: bytes, *, endpoint: str, provider: str, now: datetime) -> Mail:
        """The result of `envelope_from_mail`, or of `envelope_of_head` if a limit was exceeded.

        Raises InvalidInput as they do, and Unavailable if no process can be started.
        """
        answer = await self._ask(raw, MailRequest(endpoint, provider, now))
        if answer is not None:
            return Mail(_envelope_of(*answer), raw)
        log.warning("mail exceeded the limits; kept without its text", endpoint=endpoint, bytes=len(raw))
        return envelope_of_head(raw, endpoint=endpoint, provider=provider, now=now)

    async def file(self, raw: bytes, attachment: int, mail: str = "") -> bytes | None:
        """The decoded bytes of an attachment, by its position; None if there is none, or a limit was exceeded.

        `mail`: the result of `mail_name`, so that a mail is parsed once, and not for each of its files. Raises
        Unavailable.
        """
        answer = await self._ask(raw, MailRequest("", "", datetime.now(UTC), attachment, mail))
        return answer[1] if answer is not None and answer[0] is MailOutcome.FILE else None

    async def close(self) -> None:
        """End the processes."""
        while self._idle:
            await self._idle.pop().end()

    async def _ask(self, raw: bytes, asked: MailRequest) -> tuple[MailOutcome, bytes] | None:
        async with self._places:
            child = self._find_free(asked.mail) or await _Child.start(self._limits)
            answer: tuple[MailOutcome, bytes] | None = None
            try:
                with contextlib.suppress(TimeoutError, EOFError, ConnectionError):
                    async with asyncio.timeout(self._limits.seconds):
                        answer = await child.ask(raw, asked)
            finally:
                # The process has exceeded a limit, or nobody waits for its answer any more.
                if answer is None:
                    await child.end()
            if answer is not None:
                self._idle.append(child)
            return answer

    def _find_free(self, mail: str) -> _Child | None:
        """An idle process, preferably the one that has this mail; None if there is none."""
        self._idle.sort(key=lambda child: bool(mail) and child.mail == mail)
        return self._idle.pop() if self._idle else None


def mail_name(raw: bytes) -> str:
    """A name that identifies a mail by its bytes."""
    return sha256(raw).hexdigest()


class _Child:
    """One process, and the pipes to it. `mail`: the name of the mail of its last request, if it has one."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.mail = ""
        # Both are pipes, because `start` requests them.
        self._given = cast(asyncio.StreamWriter, process.stdin)
        self._told = cast(asyncio.StreamReader, process.stdout)

    @classmethod
    async def start(cls, limits: MailLimits) -> _Child:
        # Almost everything loaded stays; collecting garbage took a twelfth of the start-up time. `main` turns it on.
        program = f"import gc; gc.disable(); from {_PROGRAM} import main; main({limits.memory_bytes}, {limits.cpu_s})"
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", program),  # -P: import nothing from the current directory
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                env=without_secrets(os.environ),
                start_new_session=True,  # Ctrl-C on a terminal is for us only
            )
        except OSError as error:
            raise _cannot_start(str(error)) from error
        child = cls(process)
        try:
            async with asyncio.timeout(_START_S):
                await child.answer()
        except (TimeoutError, EOFError, ConnectionError) as error:
            await child.end()
            raise _cannot_start(f"it ended with status {process.returncode}") from error
        except BaseException:
            await child.end()
            raise
        return child

    async def ask(self, raw: bytes, asked: MailRequest) -> tuple[MailOutcome, bytes]:
        """Send a request and return the answer.

        Raises EOFError or ConnectionError if the process has ended, and Unavailable if it lacks a module.
        """
        about = msgspec.json.encode(asked)
        given = b"" if asked.mail and asked.mail == self.mail else raw
        self.mail = asked.mail
        self._given.writelines((ASKED.pack(len(about), len(given)), about, given))
        await self._given.drain()
        outcome, answer = await self.answer()
        if outcome is MailOutcome.BROKEN:
            raise _cannot_start(answer.decode())
        return outcome, answer

    async def answer(self) -> tuple[MailOutcome, bytes]:
        """The next frame."""
        outcome, size = TOLD.unpack(await self._told.readexactly(TOLD.size))
        return MailOutcome(outcome), await self._told.readexactly(size)

    async def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.communicate()


def _envelope_of(outcome: MailOutcome, answer: bytes) -> Envelope:
    if outcome is MailOutcome.ENVELOPE:
        return msgspec.json.decode(answer, type=Envelope)
    refusal = msgspec.json.decode(answer, type=MailRefusal)
    raise InvalidInput(refusal.message, code=refusal.code, field=refusal.field)


def _cannot_start(reason: str) -> Unavailable:
    return Unavailable(f"no process can be started to read mails: {reason}")
