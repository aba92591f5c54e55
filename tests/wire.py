"""What we send to providers, kept in `tests/fixtures/wire`, and answers that their SDKs understand.

`make wire` records them again, with the SDKs that are installed; look at the difference before it is committed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import httpx2
import openai

from switchboard.domain.llm import ChatMessage, Image, ModelDelta, OfferedTool, Request, ToolResult
from switchboard.llm.api import ApiSession, Open
from switchboard.llm.bodies import Body
from switchboard.llm.port import ApiKind, ModelSession
from switchboard.llm.spec import API_KINDS
from switchboard.llm.web import broken_failure, open_client, status_failure
from switchboard.testing.scripted_llm import Call, Reply, ScriptedLlm, Usage
from tests.asking import session, spec

PLACE: Final = Path(__file__).parent / "fixtures" / "wire"
FORMS: Final[tuple[tuple[str, ApiKind, dict[str, Any]], ...]] = (
    *((kind, kind, {"vision": True}) for kind in API_KINDS),
    ("local", "openai", {"profile": "local"}),
)
_OF_THE_SDK: Final = ("host", "connection", "content-length", "user-agent", "x-stainless-")
"""Headers that are not compared: those of a connection, and what an SDK tells about itself."""
_PATHS: Final[dict[ApiKind, str]] = {
    "openai": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
}
_TOOL: Final = OfferedTool("weather", "tells the weather", {"type": "object", "properties": {"at": {"type": "string"}}})
_PICTURE: Final = Image("image/png", b"\x89PNG")
_SCRIPT: Final = (
    Reply("Let me see.", (Call("weather", {"at": "ü"}), Call("weather", {})), "Two places.", Usage(50, 9, 20, 8)),
    Reply("Sun.", usage=Usage(90, 3, 50, 8)),
)


async def record(kind: ApiKind, more: dict[str, Any]) -> dict[str, Any]:
    """What is sent for two requests of one turn, and the first answer, whole and as events."""
    async with session(kind, *_SCRIPT, strict=True, **more) as (one, llm):
        requests = await _requests(one, llm)
    sdk, body = "anthropic" if kind == "anthropic" else "openai", requests[0]["body"]
    answer = {"whole": json.loads(await _said(kind, body)), "events": await _events(kind, body)}
    return {"sdk": f"{sdk} {version(sdk)}", "requests": requests, **answer}


async def record_sdk(kind: ApiKind, more: dict[str, Any]) -> list[dict[str, Any]]:
    """The same requests, as the SDK of OpenAI sends them."""
    async with ScriptedLlm(_SCRIPT, strict=True) as llm, open_client() as http:
        return await _requests(ApiSession(spec(kind, llm.url, **more), kind, sdk_opener(http, kind, llm.url)), llm)


async def _requests(one: ModelSession, llm: ScriptedLlm) -> list[dict[str, Any]]:
    """Two requests of one turn, the second streamed."""
    first = Request((ChatMessage("user", "Rain?", images=(_PICTURE,)),), "You know the weather.", (_TOOL,))
    reply = await one.run(first)
    results = tuple(ToolResult(call.id or "", "sun", ok=n == 0) for n, call in enumerate(reply.calls))
    told: list[ModelDelta] = []
    messages = (*first.messages, reply.message, ChatMessage("user", results=results))
    await one.run(Request(messages, first.system, first.tools), told.append)
    return [{"path": asked.path, "headers": _headers(asked.headers), "body": asked.body} for asked in llm.requests]


def _headers(sent: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in sorted(sent.items()) if not name.startswith(_OF_THE_SDK)}


def sdk_opener(http: httpx2.AsyncClient, kind: ApiKind, url: str) -> Open:
    """What `openai_api.opener` does, done by the SDK of OpenAI."""
    sdk = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=None, http_client=http)
    by_responses = kind == "openai-responses"
    create: Any = (sdk.responses if by_responses else sdk.chat.completions).with_streaming_response.create
    asked: dict[str, Any] = {"input": ""} if by_responses else {"messages": ()}

    @asynccontextmanager
    async def opened(body: Body) -> AsyncIterator[httpx2.Response]:
        try:
            async with create(model=body["model"], **asked, extra_body=body) as raw:
                yield raw.http_response
        except openai.APIStatusError as error:
            raise status_failure(error.status_code, error.response.headers, error.response.text) from error
        except (openai.APIConnectionError, httpx2.TransportError) as error:
            raise broken_failure(error) from error

    return opened


async def _events(kind: ApiKind, body: Any) -> list[Any]:
    body = {**body, "stream": True, **({"stream_options": {"include_usage": True}} if kind == "openai" else {})}
    said = await _said(kind, body)
    lines = [line.removeprefix("data: ") for line in said.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


async def _said(kind: ApiKind, body: Any) -> str:
    async with ScriptedLlm(_SCRIPT) as llm, httpx2.AsyncClient() as http:
        return (await http.post(llm.url + _PATHS[kind], json=body)).text


def main() -> None:
    """Write all of them."""
    PLACE.mkdir(exist_ok=True)
    for name, kind, more in FORMS:
        text = json.dumps(asyncio.run(record(kind, more)), indent=1, ensure_ascii=False)
        (PLACE / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
