"""`/hooks/{account}`: where other programs post their events, and platforms ask whether the URL is ours.

The gate requires no token here; the account defines how a webhook is verified. In: bytes; out: 200 once the event is
stored. Next: `app/connectors/hooks.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from fastapi import Path, Request, Response
from fastapi.responses import PlainTextResponse

from switchboard.app.connectors.hook_accounts import HookAccounts
from switchboard.app.connectors.hooks import HookReply, HookService
from switchboard.app.connectors.quarantine import QuarantineService
from switchboard.server.contracts.messages import HookAnswer
from switchboard.server.fastpath.direct import whole_body
from switchboard.server.fastpath.first import POSTED_SERVICE
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, Responses, answer, operation
from switchboard.server.services import ServiceFactory

QUARANTINE_SERVICE: Final = ServiceFactory(lambda s: QuarantineService(s.runtime.database, s.access))
HOOK_SERVICE: Final = ServiceFactory(
    lambda s: HookService(
        *(HookAccounts(s.runtime.settings.channels_dir), s.intake, s.of(QUARANTINE_SERVICE), s.of(POSTED_SERVICE)),
        *(s.runtime.settings.accept.message_bytes, s.runtime.settings.trusted_proxies),
    )
)
router = router_of("webhooks")

Name = Annotated[str, Path(max_length=64, description="The name of the account, as its file is called.")]


@router.post(
    "/hooks/{account}",
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": {}}}}},
    **operation(
        "post_webhook", "Post a webhook", HookAnswer, 404, description="Stored now, stored before, or quarantined."
    ),
)
async def post(request: Request, account: Name, parts: Parts) -> Response:
    """Any JSON, signed as the account wants it. Post it again after any other answer: an event is stored once.

    A handshake of the platform is answered with the JSON that it wants instead.
    """
    found = await parts.of(HOOK_SERVICE).receive(
        account, _headers_of(request), partial(whole_body, request), _peer_of(request)
    )
    return Response(found.body, media_type="application/json") if isinstance(found, HookReply) else answer(found)


_CHALLENGED: Final[Responses] = {
    200: {"description": "What the platform wants to read.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get(
    "/hooks/{account}",
    response_class=Response,  # no type of its own: errors are JSON
    **operation("answer_challenge", "Answer a platform's challenge", None, 404, more=_CHALLENGED),
)
async def answer_challenge(request: Request, account: Name, parts: Parts) -> Response:
    """By which a platform learns that the URL is ours. 403 if the parameters are not those of the platform."""
    said = await parts.of(HOOK_SERVICE).answer_challenge(
        account, dict(request.query_params), _headers_of(request), _peer_of(request)
    )
    return PlainTextResponse(said, headers={"x-content-type-options": "nosniff"})


def _peer_of(request: Request) -> str:
    return request.client.host if request.client else ""


def _headers_of(request: Request) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
