"""Engine `http`: a webhook answers for the butler.

`journey/turn.py` calls `HttpEngine.run`; the delivery is sent as a signed POST, and the response holds a reply, a
refusal or nothing. Next: `callback.py`, which posts replies in the same way.

Options of the member: `url`, `secret_env` or `secret_file`, `timeout` (seconds, 30), `allow_private`, `effect`. An
`effectful` webhook is called again only if it certainly has done nothing: not connected, 425 or 429.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from uuid import UUID

from switchboard.agents.delivery import EngineOptions, delivery_json, parse_said, read_options, run_step, text_result
from switchboard.agents.files import link_files, upload_url
from switchboard.core.text.storable import storable_text
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.ledger import FailureClass
from switchboard.domain.routing import Member
from switchboard.ports.engine import (
    Engine,
    EngineContext,
    EngineFailure,
    Files,
    Journal,
    NoEffect,
    NoReply,
    Turn,
    TurnResult,
)
from switchboard.transport.signed_post import (
    RETRYABLE,
    PostDestination,
    PostError,
    PostResult,
    check_url,
    post,
    read_secret,
)

_UNTOUCHED: Final = frozenset({425, 429})
"""Statuses with which a server turns a request away before acting on it."""
_CLASSES: Final[dict[int, FailureClass]] = {408: "timeout", 429: "overload", 503: "overload", 504: "timeout"}


class HttpOptions(EngineOptions):
    """The options of a member with this engine."""

    url: str
    secret_env: str | None = None
    secret_file: Path | None = None
    allow_private: bool = False


def engine(context: EngineContext) -> Engine:
    """The entry point `http` of `switchboard.engines`."""
    return HttpEngine(context.files)


class HttpEngine:
    """Posts `delivery.v1` and reads `{"reply": …}`, `{"no_reply": true}`, `{"refuse": …}` or plain text."""

    def __init__(self, files: Files | None = None) -> None:
        self._files = files

    def check(self, member: Member) -> None:
        """Raises `EngineFailure` that names each wrong option, a missing secret included."""
        _destination_of(read_options(HttpOptions, member))

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        """Do the turn. Raises `EngineFailure`; a wrong option or a missing secret is not retryable."""
        options = read_options(HttpOptions, turn.member)
        to = _destination_of(options)

        async def act(key: UUID) -> TurnResult:
            body = delivery_json(turn, key, await link_files(self._files, turn), await upload_url(self._files, turn))
            return _result_of(await _post_turn(to, body, key))

        return await run_step(turn, journal, "http", act, options.effect)


def _destination_of(options: HttpOptions) -> PostDestination:
    try:
        check_url(options.url)
        secret = read_secret(options.secret_env, options.secret_file)
    except ConfigurationError as error:
        raise EngineFailure(error.message, error_class="validation", retryable=False) from error
    return PostDestination(options.url, secret, options.timeout or 30.0, options.allow_private)


async def _post_turn(to: PostDestination, body: bytes, key: UUID) -> PostResult:
    try:
        return await post(to, body, key)
    except PostError as error:
        if error.kind == "forbidden":
            raise EngineFailure(str(error), error_class="target_unavailable", retryable=False) from error
        failure = EngineFailure if error.sent else NoEffect
        error_class: FailureClass = "timeout" if error.kind == "timeout" else "target_unavailable"
        raise failure(str(error), error_class=error_class) from error


def _result_of(posted: PostResult) -> TurnResult:
    if not 200 <= posted.status < 300:
        raise _failure_of(posted)
    if posted.cut:
        raise EngineFailure("the answer is larger than 1 MiB", retryable=False)
    if posted.status == 204 or not posted.body.strip():
        return NoReply()
    if posted.media_type == "text/plain":
        return text_result(posted.body.decode("utf-8", "replace"))
    if posted.media_type == "application/json" or posted.media_type.endswith("+json"):
        return parse_said(posted.body)
    wanted = "application/json or text/plain is needed"
    raise EngineFailure(f"the answer is {posted.media_type or 'of no media type'}; {wanted}", retryable=False)


def _failure_of(posted: PostResult) -> EngineFailure:
    said = storable_text(posted.body[:1200].decode("utf-8", "replace")).strip()[:300]
    wait = f" (asks to wait {posted.retry_after:g} s)" if posted.retry_after is not None else ""
    message = f"the webhook answered {posted.status}{wait}: {said}"
    if posted.status in RETRYABLE or posted.status >= 500:
        failure = NoEffect if posted.status in _UNTOUCHED else EngineFailure
        return failure(message, error_class=_CLASSES.get(posted.status, "target_unavailable"))
    return EngineFailure(message, error_class="target_unavailable", retryable=False)
