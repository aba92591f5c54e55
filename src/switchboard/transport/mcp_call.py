"""A call of one tool of a remote MCP server: where to, what came back, and how it fails.

`agents/mcp.py` makes calls through `mcp_session.py`, which it imports late for the SDK's sake; both need these values.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from switchboard.domain.ledger import FailureClass


@dataclass(frozen=True, slots=True)
class Remote:
    """Where to call which tool; `timeout` in seconds is for all of it, `max_response` in bytes for each answer."""

    url: str
    tool: str
    token: bytes | None = field(default=None, repr=False)
    timeout: float = 30.0
    allow_private: bool = False
    max_response: int = 1_048_576


@dataclass(frozen=True, slots=True)
class Called:
    """What the tool returned. `failed`: it is marked as an error."""

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
