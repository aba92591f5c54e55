"""HTTP to models: one client for all of them, also below an SDK, which limits what it reads and follows no redirect.

`build.py` opens a `Web`; `openai_api.py`, `anthropic_api.py` and `cli.py` ask through it. Also here: what a status, or
a connection that broke, means for a session.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from socket import gaierror
from typing import Final

import httpx2

from switchboard.core.text.lenient import count, items, json_value, mapping, sanitize_error, string, text_of_error
from switchboard.core.text.visible import visible
from switchboard.domain.llm import FailureKind, ModelFailure
from switchboard.transport.signed_post import retry_after

MOST_BYTES: Final = 4_194_304
"""Maximum bytes of an answer."""
_CONNECT_S: Final = 10.0
_LOOPBACK: Final = ("all://127.0.0.1", "all://localhost", "all://[::1]")

_SIZE: Final = r"context.?(?:length|window|size|limit)"
_EXCESS: Final = (
    r"(?:exceed|overflow|maximum|max\b|only|larger|longer|greater|beyond|limit|fit\b|too (?:long|large|small))"
)
_TOO_LONG: Final = re.compile(
    rf"{_EXCESS}.{{0,60}}{_SIZE}|{_SIZE}.{{0,60}}{_EXCESS}|maximum context"
    r"|prompt is too long|too many (?:input )?tokens|\binputs? (?:\w+ ){0,3}too long|exceed.{0,40}(?:context|token)",
    re.IGNORECASE,
)
_SURELY_TOO_LONG: Final = re.compile(
    r"exceed.{0,30}context|context.{0,30}(?:exceed|overflow)|prompt (?:is )?too long|maximum context length"
    r"|n_keep.{0,40}n_ctx|greater than the context length|longer than the maximum model length|too large to process"
    r"|\binputs? (?:\w+ ){0,3}too long",
    re.IGNORECASE,
)
"""What no server says for another reason, for statuses that usually mean something else."""
_OF_A_PART: Final = re.compile(r"max_(?:completion_|output_)?tokens|\bimage", re.IGNORECASE)
_OF_ALL: Final = re.compile(r"context|prompt|\binputs?\b", re.IGNORECASE)
_LIMITS: Final = re.compile(
    r"n_ctx\W{1,8}(\d{3,9})|(?:context length|model length|context window|context size)"
    r"\s?(?:is|of|:|=)?\s?(?:only )?(\d{3,9})\b|(\d{3,9}) maximum|allowed \((\d{3,9})\)"
    r"|(?:context|prompt|input).{0,60}must be <= (\d{3,9})|(?:tokens|\+ \d{1,9}) > (\d{3,9})\b",
    re.IGNORECASE,
)
"""How many tokens a server can read, in its own words; not by how many a request has exceeded that."""
_READ_OF_WORDS: Final = 2_000
_THOUSANDS: Final = re.compile(r"(?<=\d)[,._'\u2009\u202f\u00a0](?=\d{3}(?!\d))")
_QUOTED_NAME: Final = re.compile(r"""(?<!\w)(['"])[\w.\[\]:/-]+\1""")
_QUOTED: Final = tuple(re.compile(rf"(?<!\w){mark}(?:.*{mark}(?!\w)|.*$)", re.DOTALL) for mark in "\"'")
"""From the first quotation mark to the last, as what is quoted may contain some itself."""
_MESSAGES: Final = ("message", "msg", "detail", "error", "title", "response")
_DEEPEST: Final = 4
_FILTERED: Final = re.compile(r"content.?(?:policy|filter)|safety|flagged|guardrail", re.IGNORECASE)
_NO_QUOTA: Final = re.compile(r"insufficient_quota|billing|credit balance", re.IGNORECASE)
# Only 401 concerns the key. With 402 and 403, a provider or a firewall may mean this one request.
_STATUSES: Final[Mapping[int, FailureKind]] = {
    401: "auth",
    402: "rate_limited",
    403: "unavailable",
    408: "timeout",
    409: "unavailable",
    413: "context_too_long",
    425: "unavailable",
    429: "rate_limited",
    504: "timeout",
}


_REJECTED: Final = frozenset({400, 404, 413, 422})
_NOT_OF_LENGTH: Final = frozenset({401, 402, 403, 429})
"""Statuses whose texts about tokens are about quotas."""
_OVERLOADED: Final = frozenset({503, 529})


class _TooMuch(httpx2.TransportError):
    """An answer exceeds the limit."""


class _Bounded(httpx2.AsyncByteStream):
    """The body of a response, up to `MOST_BYTES`."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MOST_BYTES:
                raise _TooMuch(f"the answer is larger than {MOST_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _limit_response(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise _TooMuch("the answer is compressed, which was not asked for")
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream)


def open_client() -> httpx2.AsyncClient:
    """One client for all models of a process: creating one takes 25 ms, most of it for TLS.

    Redirects are not followed: they would send our key to another server. Compression is off, so that no answer can
    grow. The caller limits the time of a session. Local addresses, above all our MCP server, bypass any proxy of the
    environment.
    """
    return httpx2.AsyncClient(
        follow_redirects=False,
        timeout=httpx2.Timeout(None, connect=_CONNECT_S),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
        headers={"Accept-Encoding": "identity"},
        event_hooks={"response": [_limit_response]},
        mounts=dict.fromkeys(_LOOPBACK),
    )


def status_failure(status: int, headers: Mapping[str, str], body: str) -> ModelFailure:
    """The failure for a status other than 200. `body` is quoted only in part, never with our key."""
    said = _error_in_body(body)
    message = f"status {status}: {said}" if said else f"status {status}"
    wait = retry_after(headers.get("retry-after"), time.time())
    document = json_value(body)
    words = _own_words(body if document is None else document)
    if status not in _NOT_OF_LENGTH and _is_too_long(status, words):
        return ModelFailure("context_too_long", message, limit=_limit(document, words))
    if status in {400, 403, 422} and _FILTERED.search(said):
        return ModelFailure("refused", message)
    kind = _STATUSES.get(status, "unavailable" if status >= 500 else "defect")
    if status == 402 or (kind == "rate_limited" and _NO_QUOTA.search(said)):
        return ModelFailure(kind, message, retryable=False, retry_after=wait)
    # This server rejects one request but may accept the next, so it counts as healthy.
    overloaded = status in _OVERLOADED
    alive = status in {400, 413, 422}
    # A proxy answers with 413 to so many bytes, whatever a model could read.
    return ModelFailure(kind, message, retry_after=wait, alive=alive, certain=status != 413, overloaded=overloaded)


def _is_too_long(status: int, words: str) -> bool:
    if _OF_A_PART.search(words) and not _OF_ALL.search(words):
        return False
    rejected = status in _REJECTED and _TOO_LONG.search(words) is not None
    return rejected or _SURELY_TOO_LONG.search(words) is not None


def _limit(document: object, words: str) -> int | None:
    """The number of tokens that a server says it can read."""
    named = count(mapping(mapping(document).get("error")).get("n_ctx"))
    if named:
        return named
    found = _LIMITS.search(words)
    return None if found is None else int(next(one for one in found.groups() if one))


def _own_words(told: object) -> str:
    """What a server says itself, without what it quotes of the request; numbers without marks between their digits."""
    said = _THOUSANDS.sub("", " ".join(_messages(told))[:_READ_OF_WORDS])
    said = _QUOTED_NAME.sub("", said)
    for quoted in _QUOTED:
        said = quoted.sub("", said)
    return " ".join(visible(said).split())


def _messages(told: object, depth: int = 0) -> Iterator[str]:
    """The messages in an error, with its codes, which some servers give in place of words."""
    if isinstance(told, str):
        yield told
    if depth == _DEEPEST:
        return
    document = mapping(told)
    for name in _MESSAGES:
        found = document.get(name)
        for one in items(found) if isinstance(found, list) else (found,):
            yield from _messages(one, depth + 1)
    yield from (string(document.get(name)) for name in ("code", "type"))


def _error_in_body(body: str) -> str:
    """The error in a body, with its code, whatever the provider's format."""
    document = json_value(body)
    error = mapping(document).get("error", document)
    code = string(mapping(error).get("code")) or string(mapping(error).get("type"))
    text = text_of_error(error if error is not None else body[:500])
    return f"{text} ({sanitize_error(code)})"[:500] if code else text


def broken_failure(error: BaseException) -> ModelFailure:
    """The failure for a connection that was refused or lost. The cause is looked up below the SDK's error."""
    chain = list(_causes(error))
    too_much = next((one for one in chain if isinstance(one, _TooMuch)), None)
    if too_much is not None:
        return ModelFailure("garbage", sanitize_error(str(too_much)))
    if any(isinstance(one, httpx2.TimeoutException) for one in chain):
        return ModelFailure("timeout", f"no connection within {_CONNECT_S:g} s", overloaded=True)
    if any(isinstance(one, httpx2.UnsupportedProtocol | httpx2.InvalidURL) for one in chain):
        return ModelFailure("defect", "the base_url is not understood")
    return ModelFailure("unavailable", _why_broken(chain[-1]), overloaded=True)


def _why_broken(error: BaseException) -> str:
    """The reason, in the system's words if it has some, such as “connection refused”."""
    if isinstance(error, gaierror):
        return "its host is not known"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return sanitize_error(str(error)) or "the connection broke off"


def _causes(error: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = _cause_of(error)
    return chain


def _cause_of(error: BaseException) -> BaseException | None:
    """What an error came of. httpcore raises its own errors `from None`, with the original as the argument."""
    wrapped = error.args[0] if error.args and isinstance(error.args[0], BaseException) else None
    return error.__cause__ or wrapped or (None if error.__suppress_context__ else error.__context__)
