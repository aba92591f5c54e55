"""How the OpenAI SDK is asked: chat completions and Responses, and servers that speak like it.

`build.py` imports this late, for the SDK is heavy; `api.py` calls what `asker` gives. Next: `answers.py`.
"""

from __future__ import annotations

from typing import Any, Final

import httpx2
import openai
from openai.types.chat import ChatCompletionMessageParam

from switchboard.agents.sessions.api import Ask, answer_schema, for_json
from switchboard.agents.sessions.port import SessionTask
from switchboard.agents.sessions.spec import ModelSpec
from switchboard.agents.sessions.web import broken_failure, status_failure
from switchboard.core.pipeline.prompt import ROUTE_TOOL, ROUTE_TOOL_DESCRIPTION, Prompt

BASE_URL: Final = "https://api.openai.com/v1"


def open_sdk(http: httpx2.AsyncClient, base_url: str, key: str | None) -> openai.AsyncOpenAI:
    """One per (base_url, key). Without a key a word is sent, or the SDK would take one from our environment."""
    return openai.AsyncOpenAI(base_url=base_url, api_key=key or "none", max_retries=0, timeout=None, http_client=http)


def asker(sdk: openai.AsyncOpenAI, spec: ModelSpec) -> Ask:
    """The request of this model's kind and profile."""

    async def ask(task: SessionTask) -> str:
        try:
            raw = await request(task)
        except openai.APIStatusError as error:
            raise status_failure(error.status_code, error.response.headers, error.response.text) from error
        except (openai.APIConnectionError, httpx2.TransportError) as error:
            raise broken_failure(error) from error
        return str(raw.http_response.text)

    async def chat(task: SessionTask) -> Any:
        return await sdk.chat.completions.with_raw_response.create(
            model=spec.model,
            messages=_messages(task.prompt),
            tools=[
                {
                    "type": "function",
                    "function": {
                        "name": ROUTE_TOOL,
                        "description": ROUTE_TOOL_DESCRIPTION,
                        "parameters": dict(task.tool),
                    },
                }
            ],
            tool_choice={"type": "function", "function": {"name": ROUTE_TOOL}},
            max_completion_tokens=task.max_tokens,
        )

    async def local(task: SessionTask) -> Any:
        return await sdk.chat.completions.with_raw_response.create(
            model=spec.model,
            messages=_messages(for_json(task.prompt)),
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "routes", "schema": answer_schema(task.tool)},
            },
            max_tokens=task.max_tokens,
            temperature=0,
        )

    async def responses(task: SessionTask) -> Any:
        return await sdk.responses.with_raw_response.create(
            model=spec.model,
            instructions=task.prompt.instructions,
            input=task.prompt.question,
            tools=[
                {
                    "type": "function",
                    "strict": False,
                    "name": ROUTE_TOOL,
                    "description": ROUTE_TOOL_DESCRIPTION,
                    "parameters": dict(task.tool),
                }
            ],
            tool_choice={"type": "function", "name": ROUTE_TOOL},
            max_output_tokens=task.max_tokens,
            store=False,
        )

    request = responses if spec.kind == "openai-responses" else local if spec.profile == "local" else chat
    return ask


def _messages(prompt: Prompt) -> list[ChatCompletionMessageParam]:
    """One system message: the templates of small models break on more."""
    return [{"role": "system", "content": prompt.instructions}, {"role": "user", "content": prompt.question}]
