"""Answers that come line by line, as JSON. Called by the routes that stream; next: `server/polls.py`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import msgspec
import structlog
from fastapi import Request

from switchboard.app.messages.intake import ErrorDetail, refusal_from_error
from switchboard.domain.errors import SwitchboardError, Unavailable
from switchboard.server.services import Services

log = structlog.get_logger(__name__)

NDJSON: Final = "application/x-ndjson"


async def stream_lines(
    request: Request, parts: Services, lines: AsyncGenerator[object, None], what: str
) -> AsyncGenerator[bytes, None]:
    """One line for each; the last one is an error if it fails or the server stops. `what` it is, in a word."""
    async with parts.polls.watch(request.receive) as gone:
        try:
            async for found in lines:
                if gone.is_set():  # or the server stops, while the client still reads
                    yield _line_of(refusal_from_error(Unavailable(f"this {what} was interrupted; run it again")))
                    return
                yield _line_of(found)
        except SwitchboardError as error:
            yield _line_of(refusal_from_error(error))
        except Exception:
            log.exception(f"unexpected error in a {what}")
            yield _line_of({"error": ErrorDetail("internal_error", "internal error")})
        finally:
            await lines.aclose()


def _line_of(found: object) -> bytes:
    return msgspec.json.encode(found) + b"\n"
