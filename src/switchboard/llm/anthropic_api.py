"""The Anthropic SDK.

`build.py` imports this late, as the SDK is heavy; `api.py` calls what `opener` returns.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anthropic
import httpx2

from switchboard.llm.api import Open
from switchboard.llm.bodies import Body
from switchboard.llm.web import broken_failure, status_failure

BASE_URL: Final = "https://api.anthropic.com"


def open_sdk(http: httpx2.AsyncClient, base_url: str, key: str | None) -> anthropic.AsyncAnthropic:
    """One client per (base_url, key). Without a key a placeholder is sent, or the SDK would search for credentials."""
    return anthropic.AsyncAnthropic(
        base_url=base_url, api_key=key or "none", max_retries=0, timeout=None, http_client=http
    )


def opener(sdk: anthropic.AsyncAnthropic) -> Open:
    """Sends messages."""

    @asynccontextmanager
    async def opened(body: Body) -> AsyncIterator[httpx2.Response]:
        try:
            async with sdk.messages.with_streaming_response.create(**body) as raw:
                yield raw.http_response
        except anthropic.APIStatusError as error:
            raise status_failure(error.status_code, error.response.headers, error.response.text) from error
        except (anthropic.APIConnectionError, httpx2.TransportError) as error:
            raise broken_failure(error) from error

    return opened
