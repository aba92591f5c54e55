"""The errors of the web framework in our one shape: unknown paths, wrong methods, unreadable and invalid bodies.

`app.py` registers the handlers. In: exceptions; out: responses. Next: `errors.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from switchboard.app.messages.intake import ErrorDetail, IntakeRefused
from switchboard.core.envelope.strict import too_deep
from switchboard.domain.errors import InvalidInput, NotJson, SwitchboardError
from switchboard.domain.json_values import JsonMapping
from switchboard.server.contracts.problems import first_problem
from switchboard.server.http.errors import error_response, internal_error_response, json_response

_CODES: Final[Mapping[int, str]] = {400: "bad_request", 404: "not_found", 405: "method_not_allowed"}
_PATHS: Final = "all paths are listed at /docs"


async def _answer_ours(_: Request, error: Exception) -> Response:
    assert isinstance(error, SwitchboardError)  # noqa: S101 - the type it is registered for
    return error_response(error)


async def _answer_framework(request: Request, error: Exception) -> Response:
    """404, 405 and unreadable bodies, as the framework raises them."""
    assert isinstance(error, HTTPException)  # noqa: S101 - the type it is registered for
    if isinstance(error.__cause__, SwitchboardError):  # raised by the gate while the framework read the body
        return error_response(error.__cause__)
    if isinstance(error.__cause__, UnicodeDecodeError):
        return error_response(NotJson("the body must be UTF-8", code="invalid_utf8"))
    if isinstance(error.__cause__, RecursionError):
        return error_response(too_deep())
    code = _CODES.get(error.status_code, "http_error")
    return json_response(
        error.status_code, IntakeRefused(ErrorDetail(code, _describe_status(request, error))), error.headers
    )


async def _answer_gone(_: Request, __: Exception) -> Response:
    """The client disconnected in the middle of the body, which is not a bug."""
    return Response(status_code=HTTPStatus.BAD_REQUEST)


def _describe_status(request: Request, error: HTTPException) -> str:
    match error.status_code:
        case 404:
            return f"nothing is served at this path; {_PATHS}"
        case 405:
            allowed = (error.headers or {}).get("Allow", "another method")
            return f"{request.method} is not possible at this path, but {allowed}; {_PATHS}"
        case _:
            return str(error.detail)


async def _answer_invalid(request: Request, error: Exception) -> Response:
    """pydantic's problem with a query or a body."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - the type it is registered for
    return error_response(_first_problem(error.errors(), _fields_of(request)))


def _fields_of(request: Request) -> Collection[str]:
    """The fields of the body that this route reads."""
    read = getattr(request.scope.get("route"), "body_field", None)
    body = read.field_info.annotation if read else None
    return body.model_fields if isinstance(body, type) and issubclass(body, BaseModel) else ()


def _first_problem(problems: Sequence[JsonMapping], known: Collection[str]) -> InvalidInput:
    first = problems[0]
    if first["type"] == "json_invalid":
        return NotJson(f"the body must be one JSON object: {first['ctx']['error']}")
    if first["type"] == "missing" and first["loc"] == ("body",):
        return NotJson("the body must be one JSON object: it is empty")
    return first_problem(problems, 1, known)


async def _answer_unexpected(_: Request, error: Exception) -> Response:
    return internal_error_response(error)


def install_errors(app: FastAPI) -> None:
    """Make `app` answer every error in our shape."""
    app.add_exception_handler(SwitchboardError, _answer_ours)
    app.add_exception_handler(HTTPException, _answer_framework)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(ClientDisconnect, _answer_gone)
    app.add_exception_handler(Exception, _answer_unexpected)
