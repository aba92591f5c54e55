"""Logs: the right form for the reader, and no secret in them, whatever way it takes."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import pytest
import structlog
from structlog.testing import capture_logs

from switchboard.app.logs import redact, set_up_logs
from switchboard.domain.errors import ConfigurationError
from switchboard.lanes.logs import hide_variables
from switchboard.pipeline import MessagePipeline
from tests.logs import logs_by_default

TOKEN = "sb_o_abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"token {TOKEN} is unknown", TOKEN),
        (f"Authorization: Bearer {TOKEN}", TOKEN),
        ("{'authorization': 'Basic dXNlcjpwYXNz'}", "dXNlcjpwYXNz"),
        ('{"Authorization": "dXNlcjpwYXNz"}', "dXNlcjpwYXNz"),
        (r'{"event": "headers {\"authorization\": \"Basic dXNlcjpwYXNz\"}"}', "dXNlcjpwYXNz"),
        ("(b'authorization', b'Basic dXNlcjpwYXNz')", "dXNlcjpwYXNz"),
        ("sent bearer hunter2hunter2", "hunter2hunter2"),
        ("postgresql://user:hunter2@db:5432/switchboard", "hunter2"),
        ("postgresql://user:hun@ter2@db1,db2/switchboard", "ter2"),
        ("postgresql:///switchboard?host=/tmp&password=hunter2&sslmode=require", "hunter2"),
    ],
)
def test_secrets_are_hidden(text: str, secret: str) -> None:
    assert secret not in redact(text)
    assert "[hidden]" in redact(text)


@pytest.mark.parametrize("text", ["http://127.0.0.1:8470/docs", "mail to joe@example.org", "a:b@c", "sb_1"])
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_a_long_word_is_gone_through_once() -> None:
    began = time.process_time()
    assert redact("a" * 200_000) == "a" * 200_000
    assert time.process_time() - began < 5


def test_json_lines_when_nobody_looks() -> None:
    stream = io.StringIO()
    set_up_logs("info", stream)

    structlog.get_logger("x").info("taken over", lanes=3, url="postgresql://u:hunter2@h/d")
    structlog.get_logger("x").debug("not this")
    logging.getLogger("uvicorn.error").warning("token %s", TOKEN)

    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["lanes"], first["level"]) == ("taken over", 3, "info")
    assert first["url"] == "postgresql://u:[hidden]@h/d"
    assert (second["event"], second["logger"]) == ("token [hidden]", "uvicorn.error")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_that_cannot_be_written_stops_nobody() -> None:
    """With its log on the disk of its database, a server ended when that was full, and did not come back."""
    stream = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115 - to close it fails as well
    try:
        set_up_logs("info", stream)
        structlog.get_logger("x").info("lost")
        logging.getLogger("uvicorn.error").warning("lost")
    finally:
        with suppress(OSError):
            stream.close()


def test_what_strangers_wrote_does_not_steer_the_terminal() -> None:
    stream = _Terminal()
    set_up_logs("info", stream)
    wicked = "\x1b]0;owned\x07\x9b2Jx\u202ey\u200b"
    structlog.get_logger("x").warning(f"refused {wicked}", sender=wicked, known=[wicked])
    logging.getLogger("mcp").warning("said %s", wicked)
    structlog.get_logger("x").error("failed", exc_info=ValueError(wicked))
    said = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())  # our own colours
    assert said.count(r"\x1b]0;owned\x07\x9b2Jx\u202ey\u200b") == 5
    assert not set(said) & set("\x1b\x07\x9b\u202e\u200b")


def test_tracebacks_are_redacted() -> None:
    stream = io.StringIO()
    set_up_logs("info", stream)
    try:
        int(f"Authorization: Bearer {TOKEN}")
    except ValueError:
        structlog.get_logger("x").exception("defect")
        logging.getLogger("y").exception("defect")

    assert len(stream.getvalue().splitlines()) == 2
    assert "ValueError" in stream.getvalue()
    assert TOKEN not in stream.getvalue()


def test_lines_for_people_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    set_up_logs("info", stream)
    structlog.get_logger("x").info("worker ready", worker=7)
    assert "worker ready" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_what_the_sdk_says_of_a_remote_butler_is_no_traceback_in_our_logs() -> None:
    stream = io.StringIO()
    set_up_logs("debug", stream)
    logging.getLogger("mcp.client.streamable_http").error("Error parsing JSON response")
    logging.getLogger("mcp.server").error("a defect of our own server")
    assert [json.loads(line)["logger"] for line in stream.getvalue().splitlines()] == ["mcp.server"]


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="debug, info, warning"):
        set_up_logs("loud")


def test_what_one_test_sets_up_does_not_deafen_the_next() -> None:
    ours = structlog.get_logger("x")
    set_up_logs("error", io.StringIO())
    ours.error("heard there")
    structlog.reset_defaults()
    with capture_logs() as logs:
        ours.info("heard here")
    assert [entry["event"] for entry in logs] == ["heard here"]


# In the process of a program -----------------------------------------------------------------------------------------

SECRET: Final = "correct horse"


def fail() -> None:
    """With a secret in a variable and none in the message."""
    secret = SECRET
    try:
        float(secret[:0])
    except ValueError:
        structlog.get_logger().exception("it failed")


def test_variables_are_not_shown_in_a_program_that_has_no_logs_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    logs_by_default()
    fail()
    assert SECRET in capsys.readouterr().out, "that is what structlog does"
    MessagePipeline(cast(Any, None), cast(Any, None), "house")
    fail()
    said = capsys.readouterr()
    assert "ValueError: could not convert string to float" in said.out
    assert SECRET not in said.out + said.err


def test_the_logs_of_a_program_stay_as_it_has_set_them_up() -> None:
    lines = io.StringIO()
    logs_by_default()
    hide_variables()
    structlog.configure(
        processors=[structlog.dev.ConsoleRenderer()], logger_factory=structlog.PrintLoggerFactory(lines)
    )
    before = structlog.get_config()["processors"]
    hide_variables()
    fail()
    assert structlog.get_config()["processors"] == before
    assert structlog.dev.ConsoleRenderer.get_active().exception_formatter is structlog.dev.default_exception_formatter
    assert "it failed" in lines.getvalue()


@pytest.mark.parametrize("journal", [True, False])
def test_lines_in_the_journal_have_a_priority_and_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal: bool
) -> None:
    with (tmp_path / "stream").open("w+") as stream:
        status = os.fstat(stream.fileno())
        # The journal's variable is inherited by programs whose output goes elsewhere.
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino + (not journal)}")
        set_up_logs("debug", stream)
        for level in ("debug", "info", "warning", "error", "critical"):
            getattr(structlog.get_logger("x"), level)("said", token=TOKEN)
        logging.getLogger("library").warning("of a library\nin two lines")
        stream.flush()
        lines = (tmp_path / "stream").read_text().splitlines()
    if not journal:
        assert all("timestamp" in json.loads(line) for line in lines)
        return
    assert [line[:3] for line in lines] == ["<7>", "<6>", "<4>", "<3>", "<2>", "<4>"]
    assert not [line for line in lines if "timestamp" in json.loads(line[3:]) or TOKEN in line]
