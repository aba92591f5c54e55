"""`POST /v1/ingest` and `/v1/ingest/batch`: where messages come in over HTTP.

The handlers take the raw body, so that the exact bytes are kept; the gate has limited its size. In: bytes; out: 202
with the id after the commit. Next: `app/messages/intake.py`.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from switchboard.app.messages.intake import INGEST, MAIL
from switchboard.core.envelope.read import split_batch
from switchboard.domain.errors import InvalidInput
from switchboard.server.contracts.messages import AcceptedBody, BatchAnswer, FilesAnswer
from switchboard.server.fastpath.described import DescribedRoute
from switchboard.server.fastpath.direct import whole_body
from switchboard.server.http.errors import UnsupportedMediaType
from switchboard.server.http.parameters import require_known
from switchboard.server.http.services import answer, caller_of, operation, services_of

router = APIRouter(tags=["ingest"], route_class=DescribedRoute)

_JSON = "application/json"
_REF = "#/components/schemas/"
_KEY = (
    "Identifies the event instead of its own id, within its channel and endpoint; the same as "
    "control.idempotency_key, which it must equal if both are given. Repeated with the same text, sender, thread and "
    "attachments: 202 with `duplicate` and the first request_id. With others: 422 `idempotency_mismatch`, with "
    "details.request_id. Kept as long as the message."
)


def _read_head(request: Request) -> tuple[str, str | None]:
    """The media type and the Idempotency-Key, in one pass, as every message pays for it."""
    content_type, key = b"", None
    for name, value in reversed(request.scope["headers"]):  # of several, the first counts
        if name == b"content-type":
            content_type = value
        elif name == b"idempotency-key":
            key = value.decode("latin-1")
    return content_type.decode("latin-1").partition(";")[0].strip().lower(), key


def _unsupported_type(got: str, *taken: str) -> UnsupportedMediaType:
    return UnsupportedMediaType(f"send Content-Type: {' or '.join(taken)}, not {got[:100] or 'nothing'}")


@router.post(
    "/v1/ingest",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                _JSON: {"schema": {"$ref": f"{_REF}Envelope"}},
                MAIL: {"schema": {"type": "string", "format": "binary"}},
            },
        },
        "parameters": [
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": _KEY,
                "schema": {"type": "string", "minLength": 1, "maxLength": 512},
            },
            {
                "name": "endpoint",
                "in": "query",
                "required": False,
                "description": "For a mail: the account that received it.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 512},
            },
            {
                "name": "provider",
                "in": "query",
                "required": False,
                "description": "For a mail: its provider.",
                "schema": {"type": "string", "enum": ["file", "gmail", "imap", "smtp"], "default": "file"},
            },
        ],
    },
    **operation(
        "submit_message", "Submit one message", AcceptedBody, 415, 429, status=202, description="Stored and committed."
    ),
)
async def ingest(request: Request) -> Response:
    """An `ingest.v1` envelope, or a mail byte for byte (`message/rfc822`, with `endpoint`)."""
    services, caller = services_of(request), caller_of(request)
    await services.access.check(caller, INGEST)
    media_type, key = _read_head(request)
    if request.scope["query_string"]:
        require_known(request, ("endpoint", "provider") if media_type == MAIL else ())
    if media_type == _JSON:
        accepted = await services.intake.message(caller, await whole_body(request), key)
    elif media_type == MAIL:
        endpoint = request.query_params.get("endpoint")
        if not endpoint:
            raise InvalidInput(
                "a mail needs the account that received it: ?endpoint=me@example.org",
                code="missing_field",
                field="endpoint",
            )
        provider = request.query_params.get("provider", "file")
        raw = await whole_body(request)
        accepted = await services.intake.mail(caller, raw, endpoint=endpoint, provider=provider, key=key)
    else:
        raise _unsupported_type(media_type, _JSON, MAIL)
    return answer(accepted, 202)


@router.post(
    "/v1/ingest/batch",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                _JSON: {
                    "schema": {
                        "type": "object",
                        "required": ["envelopes"],
                        "additionalProperties": False,
                        "properties": {
                            "envelopes": {
                                "type": "array",
                                "minItems": 1,
                                "maxItems": 200,
                                "items": {"$ref": f"{_REF}Envelope"},
                            }
                        },
                    }
                }
            },
        }
    },
    **operation(
        "submit_messages",
        "Submit up to 200 messages",
        BatchAnswer,
        415,
        429,
        description="A result or an error per envelope, in order.",
    ),
)
async def ingest_batch(request: Request) -> Response:
    """Valid ones are stored even if others are refused: check every result."""
    services, caller = services_of(request), caller_of(request)
    await services.access.check(caller, INGEST)
    if request.scope["query_string"]:
        require_known(request, ())
    media_type, key = _read_head(request)
    if media_type != _JSON:
        raise _unsupported_type(media_type, _JSON)
    if key is not None:
        raise InvalidInput(
            "one Idempotency-Key cannot identify several messages; set control.idempotency_key in each envelope",
            code="invalid_value",
            field="Idempotency-Key",
        )
    items = split_batch(await whole_body(request))
    return answer({"results": await services.intake.batch(caller, items)})


@router.post(
    "/v1/ingest/files",
    openapi_extra={
        "requestBody": {"required": True, "content": {_JSON: {"schema": {"$ref": f"{_REF}Envelope"}}}},
    },
    **operation("expect_files", "Ask whether the files of a message are wanted", FilesAnswer, 415),
)
async def expect_files(request: Request) -> Response:
    """Before anything is fetched from a platform. The message is as it would be submitted; nothing is stored."""
    services, caller = services_of(request), caller_of(request)
    await services.access.check(caller, INGEST)
    require_known(request, ())
    media_type, _ = _read_head(request)
    if media_type != _JSON:
        raise _unsupported_type(media_type, _JSON)
    reason = await services.intake.needs_no_files(caller, await whole_body(request))
    most_bytes = await services.blobs.room(caller)
    return answer({"wanted": reason is None, "reason": reason, "most_bytes": most_bytes})
