"""Each test begins with logs as they are when nobody has set them up, whatever the tests before it have run.

A fixture for every test, to be imported by conftest.py. What a test runs may set logs up for its process
(`switchboard.app.logs`): at a level, to a stream that pytest has closed since, and for good, as a logger keeps what it
found at its first use. Here loggers keep nothing, and an exception in a log is a plain traceback: with the variables of
every frame, as structlog shows it by itself, each takes seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.typing import Processor


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """Undo what the test does to the logs of the process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configure = structlog.configure

    def keeping_nothing(**settings: Any) -> None:
        configure(**{**settings, "cache_logger_on_first_use": False})

    structlog.configure_once(processors=_plain())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structlog, "configure", keeping_nothing)
        yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def logs_by_default() -> None:
    """As structlog has them, where a program has not set them up."""
    structlog.reset_defaults()
    structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.default_exception_formatter


def _plain() -> list[Processor]:
    *others, _ = structlog.get_config()["processors"]
    return [*others, structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
