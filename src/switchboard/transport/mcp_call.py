"""Values of calls to tools of MCP servers: destination, result, and failures.

`agents/mcp.py` calls remote servers through `mcp_session.py`, `tools/mcp_server.py` programs through `stdio_mcp.py`.
Both modules are imported late, because they import the SDK, and share these values.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct

from switchboard.domain.ledger import FailureClass


@dataclass(frozen=True, slots=True)
class Remote:
    """A tool and its server; `timeout` in seconds is for the whole call, `max_response` in bytes for each answer."""

    url: str
    tool: str
    token: bytes | None = field(default=None, repr=False)
    timeout: float = 30.0
    allow_private: bool = False
    max_response: int = 1_048_576


class Called(Struct, frozen=True):
    """The tool's result. `failed`: it is marked as an error."""

    structured: object
    texts: tuple[str, ...]
    failed: bool


class CallFailed(Exception):
    """The tool returned nothing. `reached` False: it was certainly not called."""

    def __init__(
        self,
        message: str,
        error_class: FailureClass = "target_unavailable",
        *,
        retryable: bool = True,
        reached: bool = True,
    ) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.retryable = retryable
        self.reached = reached


class McpToolResult(Struct, frozen=True):
    """The result of a program's tool. Not `ok`: the server reports that it failed."""

    text: str
    ok: bool


class ServerFailure(Exception):
    """What a program failed to do, as a sentence. `reached` False: it was certainly not asked to do anything.

    `errors`: the end of what it wrote to standard error, for operators; it may contain secrets.
    """

    def __init__(self, message: str, *, reached: bool = True, errors: str = "") -> None:
        super().__init__(message)
        self.reached = reached
        self.errors = errors
