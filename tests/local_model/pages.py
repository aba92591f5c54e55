"""A web server on the loopback interface with the pages that messages of the report name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.local_model.seeds import page


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = page(self.path).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the name is that of the base class
        """Print nothing."""


@contextmanager
def serve_pages() -> Iterator[str]:
    """The host and port of the pages, until the end of the block."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Pages) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
