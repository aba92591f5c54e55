"""How the Anthropic SDK is asked: one message with one forced tool.

`build.py` imports this late, for the SDK is heavy; `api.py` calls what `asker` gives. Next: `answers.py`.
"""

from __future__ import annotations

from typing import Final

import anthropic
import httpx2

from switchboard.agents.sessions.api import Ask
from switchboard.agents.sessions.port import SessionTask
from switchboard.agents.sessions.spec import ModelSpec
from switchboard.agents.sessions.web import broken_failure, status_failure
from switchboard.core.pipeline.prompt import ROUTE_TOOL, ROUTE_TOOL_DESCRIPTION

BASE_URL: Final = "https://api.anthropic.com"


def open_sdk(http: httpx2.AsyncClient, base_url: str, key: str | None) -> anthropic.AsyncAnthropic:
    """One per (base_url, key). Without a key a word is sent, or the SDK would look for credentials everywhere."""
    return anthropic.AsyncAnthropic(
        base_url=base_url, api_key=key or "none", max_retries=0, timeout=None, http_client=http
    )


def asker(sdk: anthropic.AsyncAnthropic, spec: ModelSpec) -> Ask:
    """The request of this model."""

    async def ask(task: SessionTask) -> str:
        try:
            raw = await sdk.messages.with_raw_response.create(
                model=spec.model,
                system=task.prompt.instructions,
                messages=[{"role": "user", "content": task.prompt.question}],
                tools=[{"name": ROUTE_TOOL, "description": ROUTE_TOOL_DESCRIPTION, "input_schema": dict(task.tool)}],
                tool_choice={"type": "tool", "name": ROUTE_TOOL},
                max_tokens=task.max_tokens,
            )
        except anthropic.APIStatusError as error:
            raise status_failure(error.status_code, error.response.headers, error.response.text) from error
        except (anthropic.APIConnectionError, httpx2.TransportError) as error:
            raise broken_failure(error) from error
        return str(raw.http_response.text)

    return ask
