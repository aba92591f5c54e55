"""Why a connection to a model broke, as people are told."""

from __future__ import annotations

from collections import deque

import anyio
import httpx2
import pytest

from switchboard.llm.web import broken_failure


def _read_nothing() -> bytes:
    """As anyio reports that the server has closed the connection."""
    try:
        return deque[bytes]().popleft()
    except IndexError:
        raise anyio.EndOfStream from None


def _end_of_stream() -> BaseException:
    with pytest.raises(anyio.EndOfStream) as raised:
        _read_nothing()
    return raised.value


def _caused_by(cause: BaseException) -> BaseException:
    error = httpx2.ReadError("")
    error.__cause__ = cause
    return error


def _refused() -> BaseException:
    """As httpcore reports it: the system's error is neither cause nor context of its own, but the argument."""
    several = OSError("All connection attempts failed")
    several.__cause__ = ConnectionRefusedError(111, "Connect call failed")
    mapped = httpx2.ConnectError(several)  # type: ignore[arg-type]  # httpcore does so
    mapped.__suppress_context__ = True
    return mapped


@pytest.mark.parametrize(
    ("cause", "why"),
    [
        (_end_of_stream(), "the connection broke off"),
        (_refused(), "connection refused"),
        (ConnectionRefusedError(111, "Connect call failed"), "connection refused"),
        (OSError("something else"), "something else"),
    ],
)
def test_the_reason_is_that_of_the_cause(cause: BaseException, why: str) -> None:
    assert str(broken_failure(_caused_by(cause))) == why
