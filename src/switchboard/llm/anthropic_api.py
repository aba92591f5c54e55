"""The Anthropic SDK.

`build.py` imports this late, as the SDK is heavy; `api.py` calls what `sender` returns.
"""

from __future__ import annotations

from typing import Final

import anthropic
import httpx2

from switchboard.llm.api import Send
from switchboard.llm.bodies import Body
from switchboard.llm.web import broken_failure, status_failure

BASE_URL: Final = "https://api.anthropic.com"


def open_sdk(http: httpx2.AsyncClient, base_url: str, key: str | None) -> anthropic.AsyncAnthropic:
    """One per (base_url, key). Without a key a placeholder is sent, or the SDK would search for credentials."""
    return anthropic.AsyncAnthropic(
        base_url=base_url, api_key=key or "none", max_retries=0, timeout=None, http_client=http
    )


def sender(sdk: anthropic.AsyncAnthropic) -> Send:
    """Sends messages."""

    async def send(body: Body) -> str:
        try:
            raw = await sdk.messages.with_raw_response.create(**body)
        except anthropic.APIStatusError as error:
            raise status_failure(error.status_code, error.response.headers, error.response.text) from error
        except (anthropic.APIConnectionError, httpx2.TransportError) as error:
            raise broken_failure(error) from error
        return str(raw.http_response.text)

    return send
