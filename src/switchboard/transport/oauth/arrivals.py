"""Where the browser arrives after a consent: a port of this machine that listens while a sign-in waits.

`sign_in.py` opens it. In: the port's first requests; out: the address of the one that ends the sign-in. It answers with
a page that says to go back to the terminal. On a host without a browser nothing arrives, and the address is pasted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from switchboard.domain.errors import InvalidInput
from switchboard.transport.oauth.consent import ConsentFailed

_HOST: Final = "127.0.0.1"
_MOST: Final = 32_768
_PATIENCE_S: Final = 10.0
_DONE: Final = "Switchboard has the answer. You can close this window: the terminal says what has become of it."
_ANSWER: Final = (
    "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n"
    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{text}"
)

CodeIn = Callable[[str], str]
"""The code in an address. Raises ConsentFailed, and InvalidInput for an address that is not meant."""


class ConsentArrivals:
    """Made by `listen_for_consent`. `redirect_uri` is where the page of consent has to lead."""

    def __init__(self, redirect_host: str) -> None:
        self._redirect_host = redirect_host
        self._code_in: CodeIn | None = None
        self._code: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.redirect_uri = ""

    async def code(self, code_in: CodeIn) -> str:
        """Wait for the browser; others that ask are turned away. Raises ConsentFailed."""
        self._code_in = code_in
        return await self._code

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._answer_browser, _HOST, 0, limit=_MOST)
        self.redirect_uri = f"http://{self._redirect_host}:{server.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            server.close()
            self._code.cancel()

    async def _answer_browser(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode("latin-1").split(" ")
            status, text = self._take(line[1]) if line[0] == "GET" and len(line) == 3 else ("405 Not Allowed", "")
            writer.write(_ANSWER.format(status=status, length=len(text.encode()), text=text).encode())
            await writer.drain()
        except (TimeoutError, OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            pass  # it was no browser
        finally:
            writer.close()

    def _take(self, target: str) -> tuple[str, str]:
        if self._code_in is None or target.partition("?")[0] != "/":
            return "404 Not Found", "There is nothing here."
        try:
            code = self._code_in(f"{self.redirect_uri}{target}")
        except ConsentFailed as error:
            if not self._code.done():
                self._code.set_exception(error)
            return "200 OK", f"{error}\n"
        except InvalidInput as error:
            return "400 Bad Request", f"{error}\n"
        if not self._code.done():
            self._code.set_result(code)
        return "200 OK", f"{_DONE}\n"


@asynccontextmanager
async def listen_for_consent(redirect_host: str) -> AsyncIterator[ConsentArrivals]:
    """Listen at a free port of 127.0.0.1, which `redirect_host` must mean. Raises OSError."""
    arrivals = ConsentArrivals(redirect_host)
    async with arrivals.listen():
        yield arrivals
