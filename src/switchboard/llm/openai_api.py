"""The OpenAI SDK: chat completions and Responses, and servers that speak like it.

`build.py` imports this late, as the SDK is heavy; `api.py` calls what `opener` returns.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
import openai

from switchboard.llm.api import Open
from switchboard.llm.bodies import Body
from switchboard.llm.port import ApiKind
from switchboard.llm.web import broken_failure, status_failure

BASE_URL: Final = "https://api.openai.com/v1"


def open_sdk(http: httpx2.AsyncClient, base_url: str, key: str | None) -> openai.AsyncOpenAI:
    """One client per (base_url, key).

    Without a key a placeholder is sent, or the SDK would use one from our environment.
    """
    return openai.AsyncOpenAI(base_url=base_url, api_key=key or "none", max_retries=0, timeout=None, http_client=http)


def opener(sdk: openai.AsyncOpenAI, kind: ApiKind) -> Open:
    """Sends bodies of this kind."""
    by_responses = kind == "openai-responses"
    create: Any = (sdk.responses if by_responses else sdk.chat.completions).with_streaming_response.create
    asked: dict[str, Any] = {"input": ""} if by_responses else {"messages": ()}

    @asynccontextmanager
    async def opened(body: Body) -> AsyncIterator[httpx2.Response]:
        try:
            # `extra_body` is sent unchanged, in place of the regular parameters. In those, the SDK searches for values
            # to convert one by one, which takes ten times as long as everything else here, 8 to 20 ms.
            async with create(model=body["model"], **asked, extra_body=body) as raw:
                yield raw.http_response
        except openai.APIStatusError as error:
            raise status_failure(error.status_code, error.response.headers, error.response.text) from error
        except (openai.APIConnectionError, httpx2.TransportError) as error:
            raise broken_failure(error) from error

    return opened
