"""Every error in one shape: status, and `{"error": {"code", "message", "field"?}}`.

`gate.py` and the handlers of `framework_errors.py` answer with it; nothing else writes errors. In: exceptions; out:
responses. A code is stable, a message may change. Importing it needs no FastAPI.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus

import msgspec
import structlog
from starlette.responses import Response

from switchboard.app.messages.intake import ErrorDetail, IntakeRefused, refusal_from_error
from switchboard.domain.errors import AccountHeld, InvalidInput, Overloaded, SwitchboardError, Unavailable

log = structlog.get_logger(__name__)


class UnsupportedMediaType(InvalidInput):
    """The Content-Type is not one that this route reads."""

    status = 415
    code = "unsupported_media_type"


def error_response(error: SwitchboardError) -> Response:
    """One of our errors as a response."""
    return json_response(error.status, refusal_from_error(error), _headers_of(error))


def response_to(error: Exception) -> Response:
    """The response to an exception of a handler."""
    return error_response(error) if isinstance(error, SwitchboardError) else internal_error_response(error)


def _headers_of(error: SwitchboardError) -> dict[str, str]:
    if isinstance(error, (AccountHeld, Overloaded)):
        return {"Retry-After": str(math.ceil(error.retry_after))}
    if isinstance(error, Unavailable):
        return {"Retry-After": "1"}
    return {"WWW-Authenticate": "Bearer"} if error.status == HTTPStatus.UNAUTHORIZED else {}


def json_response(status: int, body: IntakeRefused, headers: Mapping[str, str] | None = None) -> Response:
    """An error that is written already."""
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")


def internal_error_response(error: Exception) -> Response:
    """A bug: the traceback is logged, and none of it is sent."""
    log.error("unexpected error in a request", exc_info=error)
    return json_response(500, IntakeRefused(ErrorDetail("internal_error", "internal error; see the server's log")))
