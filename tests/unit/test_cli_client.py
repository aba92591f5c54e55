"""Answers that come line by line: whole ones, ones that fail in the middle, and ones that just end.

And streams of events, which are continued.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from switchboard.app.access import remember_address
from switchboard.app.whereabouts import find_whereabouts
from switchboard.cli.client import open_client, server_url
from switchboard.cli.messages.talk import MessageProgress, follow
from switchboard.cli.output import NoServer
from switchboard.cli.rules.checks import replay
from switchboard.domain.errors import ConfigurationError, InvalidInput, SwitchboardError, Unavailable

PROGRESS = b'{"progress": {"looked_at": 1, "of": 2}}\n'
RESULT = b'{"result": {"looked_at": 2, "changed": 0, "examples": [], "complete": true}}\n'


async def _asked(answer: bytes, monkeypatch: pytest.MonkeyPatch, status: str = "200 OK") -> dict[str, Any]:
    """What a backtest says against a server that answers with these bytes and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/rules/backtest ")
        writer.write(f"HTTP/1.1 {status}\r\nconnection: close\r\n\r\n".encode() + answer)
        await writer.drain()
        writer.close()

    return await _against(serve, monkeypatch)


async def _against(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("SWITCHBOARD_URL", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("SWITCHBOARD_TOKEN", "sb_o_x")
        async with open_client() as client:
            return await replay(client, {"last": 2})


async def test_the_result_is_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await _asked(PROGRESS + b"\n" + RESULT, monkeypatch))["looked_at"] == 2


async def test_an_error_in_the_middle_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    line = b'{"error": {"code": "unavailable", "message": "the database has gone"}}\n'
    with pytest.raises(SwitchboardError, match="the database has gone") as failed:
        await _asked(PROGRESS + line, monkeypatch)
    assert failed.value.code == "unavailable"


@pytest.mark.parametrize("answer", [PROGRESS, b"", PROGRESS + b"<html>", b"[1]\n"])
async def test_an_answer_without_a_result_is_none(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable):
        await _asked(answer, monkeypatch)


async def test_a_refusal_is_that_refusal_with_its_details(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"error": {"code": "unknown_team", "message": "no", "field": "f", "details": {"problems": []}}}'
    with pytest.raises(InvalidInput) as refused:
        await _asked(body, monkeypatch, "422 Unprocessable Content")
    assert (refused.value.code, refused.value.field) == ("unknown_team", "f")
    assert refused.value.details == {"problems": []}


@pytest.mark.parametrize(("scheme", "hint"), [("http", ""), ("https", "; it speaks http, not https")])
async def test_nobody_answers(monkeypatch: pytest.MonkeyPatch, scheme: str, hint: str) -> None:
    monkeypatch.setenv("SWITCHBOARD_URL", f"{scheme}://127.0.0.1:9")
    async with open_client() as client:
        with pytest.raises(NoServer, match=f"running at {scheme}://127.0.0.1:9{hint}; start it"):
            await replay(client, {"last": 2})


class Streams:
    """A server that answers each request for a stream with the next of these bytes, and the last again and again."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.after: list[str] = []
        """The Last-Event-ID of each request."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        body = b'{"state": "answered", "settled": true, "replies": []}'
        if "/stream?" in head:
            _, _, after = head.partition("last-event-id: ")
            self.after.append(after.partition("\r\n")[0])
            body = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        # What breaks off promises more than it sends.
        length = len(body) + body.endswith(b"broken")
        writer.write(f"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


async def _followed(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, wait: float
) -> tuple[list[str], MessageProgress]:
    """The kinds of the events that were told, and what became of the message."""
    kinds: list[str] = []
    async with await asyncio.start_server(streams.serve, "127.0.0.1", 0) as server:
        monkeypatch.setenv("SWITCHBOARD_URL", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        monkeypatch.setenv("SWITCHBOARD_TOKEN", "sb_o_x")
        async with open_client() as client:
            return kinds, await follow(client, "one", wait=wait, take=lambda kind, _: kinds.append(kind))


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("URL", "localhost:8470", "SWITCHBOARD_URL 'localhost:8470' is not a URL; write http://localhost:8470"),
        ("URL", "http://", "SWITCHBOARD_URL 'http://' is not a URL; write one such as http://127.0.0.1:8470"),
        ("URL", "ftp://127.0.0.1", "SWITCHBOARD_URL 'ftp://127.0.0.1' is not a URL; "),
        ("URL", "http://127.0.0.1:99999", "SWITCHBOARD_URL 'http://127.0.0.1:99999' is not a URL; "),
        ("URL", "http://127.0.0.1:x", "SWITCHBOARD_URL 'http://127.0.0.1:x' is not a URL; "),
        ("URL", "http://[::1", "SWITCHBOARD_URL 'http://[::1' is not a URL; "),
        ("TOKEN", "sb_o_x\ny", "the token must be as it was made, such as sb_o_…: ASCII without blanks"),
        ("TOKEN", "sb_o_é", "the token must be as it was made, "),
    ],
)
async def test_what_is_no_place_and_no_token_is_said_without_showing_the_token(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv("SWITCHBOARD_URL", "http://127.0.0.1:1")
    monkeypatch.setenv(f"SWITCHBOARD_{variable}", value)
    with pytest.raises(ConfigurationError) as caught:
        async with open_client():
            raise AssertionError
    assert caught.value.message.startswith(said)


@pytest.mark.parametrize("port", ["8999", " 8999 ", "8999.0", "8_999"])
def test_a_port_is_what_the_settings_take_it_for(monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    monkeypatch.setenv("SWITCHBOARD_PORT", port)
    assert server_url(find_whereabouts()) == "http://127.0.0.1:8999"


def test_a_server_on_another_port_is_found_as_long_as_it_listens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As after `up --port`, which no setting of the next command knows of."""
    for name in ("URL", "HOST", "PORT"):
        monkeypatch.delenv(f"SWITCHBOARD_{name}", raising=False)
    monkeypatch.setenv("SWITCHBOARD_DATA_DIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        noted = f"http://127.0.0.1:{listening.getsockname()[1]}"
        remember_address(tmp_path, noted)
        assert server_url(find_whereabouts()) == noted
        with monkeypatch.context() as patch:
            patch.setenv("SWITCHBOARD_PORT", "8999")
            assert server_url(find_whereabouts()) == "http://127.0.0.1:8999", "the environment decides"
        (tmp_path / "server.url").chmod(0o666)
        assert server_url(find_whereabouts()) == "http://127.0.0.1:8470", "others may write to it"
        (tmp_path / "server.url").chmod(0o600)
        if os.geteuid() == 0:  # a socket belongs to whoever makes it
            os.seteuid(65534)
            try:
                strange = socket.create_server(("127.0.0.1", 0))
            finally:
                os.seteuid(0)
            with strange:
                remember_address(tmp_path, f"http://127.0.0.1:{strange.getsockname()[1]}")
                assert server_url(find_whereabouts()) == "http://127.0.0.1:8470", "somebody else listens there"
        remember_address(tmp_path, noted)
        assert server_url(find_whereabouts()) == noted
    assert server_url(find_whereabouts()) == "http://127.0.0.1:8470", "it has ended"
    remember_address(tmp_path, "http://192.0.2.1:8470")
    assert server_url(find_whereabouts()) == "http://127.0.0.1:8470", "it is not on this machine"


async def test_a_stream_that_breaks_off_is_continued_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    delta, done = b"id: 1\nevent: delta\ndata: {}\n\n", b"id: 2\nevent: done\ndata: {}\n\n"
    streams = Streams(delta + b"broken", b"broken", b"", done)
    kinds, answer = await _followed(streams, monkeypatch, wait=60.0)
    assert (kinds, answer.settled, streams.after) == (["delta", "done"], True, ["", "1", "1", "1"])


async def test_a_stream_that_ends_at_once_is_not_asked_for_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams(b"")
    assert await _followed(streams, monkeypatch, wait=1.0)
    assert len(streams.after) <= 4
