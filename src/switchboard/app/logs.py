"""Logs: lines for people on a terminal, JSON for machines elsewhere, always to stderr, never with a secret.

In the journal of systemd, each line begins with its priority, and has no time of its own.

Called once by every command that does the work itself, instead of asking a server. In: the level of the settings; from
then on structlog and the standard library's logging write the same lines. Redaction comes last, on the finished line,
so that nothing bypasses it.
"""

from __future__ import annotations

import io
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from switchboard.core.text.visible import escaped
from switchboard.domain.errors import ConfigurationError

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}

_PRIORITIES: Final = {"critical": 2, "error": 3, "warning": 4, "info": 6, "debug": 7}
"""Of the journal, by level."""
_HIDDEN: Final = "[hidden]"
_SECRETS: Final = (
    (re.compile(r"\bsb_[A-Za-z0-9_-]{6,}"), _HIDDEN),
    # The value may stand in a repr or in JSON, and may have blanks: `Bearer x`, `Basic x`.
    (
        re.compile(
            r"(?i)((?:proxy-)?authorization\\?[\"']?\s*[:=,]\s*(?:b?\\?[\"'])?)((?:[A-Za-z][\w-]*\s+)?[^\s\"'\\,;)}\]]+)"
        ),
        rf"\1{_HIDDEN}",
    ),
    (re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{6,}"), rf"\1{_HIDDEN}"),
    # Up to the last @ before the path: a password may hold one that was not quoted. No scheme is longer, and a word
    # without an end, such as a file in base64, is gone through once for each of so many letters.
    (re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}+://[^\s/:@\"']*:)[^\s/\"']+(@)"), rf"\1{_HIDDEN}\2"),
    (re.compile(r"(?i)([?&](?:password|token|secret|sslpassword)=)[^&\s\"']+"), rf"\1{_HIDDEN}"),
)


def redact(text: str) -> str:
    """The text without tokens, Authorization values, and passwords in URLs."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def set_up_logs(level: str, stream: TextIO | None = None) -> None:
    """Send all logs of at least `level` to `stream` (stderr). Raises ConfigurationError for an unknown level."""
    number = LEVELS.get(level.lower())
    if number is None:
        raise ConfigurationError(
            f"log_level {level!r} is not known; it is one of {', '.join(LEVELS)}", field="log_level"
        )
    journal = _is_journal(stream or sys.stderr)
    to = cast(TextIO, _Unfailing(stream or sys.stderr))
    shared: Sequence[Processor] = (
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        *([] if journal else [structlog.processors.TimeStamper(fmt="iso", utc=True)]),
    )
    rendering = _rendering_for(to.isatty(), journal=journal)
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(to),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, _with_logger_name],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
    )
    _set_up_library_logs(number, to, formatter)


def _is_journal(stream: TextIO) -> bool:
    """Whether what is written goes to the journal itself, and not to a pipe or a file instead."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # it has no descriptor, or none any more
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class _Unfailing(io.TextIOBase):
    """A stream that drops lines it cannot write (full disk, closed reader) and carries on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):  # the latter if it is closed: collecting us flushes, too
            self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()


def _set_up_library_logs(number: int, to: TextIO, formatter: logging.Formatter) -> None:
    """Route the standard library's logging of libraries."""
    handler = logging.StreamHandler(to)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=max(number, logging.INFO), force=True)
    # They would log every request; that we listen, we log ourselves.
    for noisy in ("uvicorn.error", "uvicorn.access", "httpx2", "httpcore2", "mcp"):
        logging.getLogger(noisy).setLevel(max(number, logging.WARNING))
    # An error of a remote butler is reported once, as the reason for the failed turn, and not also as a traceback.
    logging.getLogger("mcp.client").setLevel(logging.CRITICAL)


def _rendering_for(tty: bool, *, journal: bool) -> list[Processor]:
    """Render an event as the finished line."""
    told: list[Processor] = [structlog.processors.StackInfoRenderer(), structlog.processors.format_exc_info]
    if tty:
        console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        return [*told, _without_hidden, _finish_with(console)]
    line = _finish_with(structlog.processors.JSONRenderer(default=str))
    return [*told, _with_priority(line) if journal else line]


def _finish_with(
    render: Callable[[WrappedLogger, str, EventDict], str | bytes],
) -> Callable[[WrappedLogger, str, EventDict], str]:
    def finish(logger: WrappedLogger, name: str, event: EventDict) -> str:
        return redact(str(render(logger, name, event)))

    return finish


def _with_priority(render: Callable[[WrappedLogger, str, EventDict], str]) -> Processor:
    def finish(logger: WrappedLogger, name: str, event: EventDict) -> str:
        priority = _PRIORITIES.get(str(event.get("level")), _PRIORITIES["info"])
        return f"<{priority}>{render(logger, name, event)}"

    return finish


def _without_hidden(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Strip control characters of strangers and other programs, which could steer the terminal.

    JSON escapes them anyway.
    """
    return {name: escaped(value) if isinstance(value, str) else value for name, value in event.items()}


def _with_logger_name(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Add the logger's name to lines that are not ours."""
    record = event.get("_record")
    return {**event, "logger": record.name} if isinstance(record, logging.LogRecord) else event
