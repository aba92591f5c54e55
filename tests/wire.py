"""The wire forms of the official SDKs, kept in `tests/fixtures/wire`: what they send for us, and what they understand.

`make wire` records them again, with the SDKs that are installed; look at the difference before it is committed.
"""

from __future__ import annotations

import asyncio
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import httpx2

from switchboard.domain.llm import ChatMessage, Image, ModelDelta, OfferedTool, Request, ToolResult
from switchboard.llm.port import ApiKind
from switchboard.llm.spec import API_KINDS
from switchboard.testing.scripted_llm import Call, Reply, ScriptedLlm, Usage
from tests.asking import session

PLACE: Final = Path(__file__).parent / "fixtures" / "wire"
FORMS: Final[tuple[tuple[str, ApiKind, dict[str, Any]], ...]] = (
    *((kind, kind, {"vision": True}) for kind in API_KINDS),
    ("local", "openai", {"profile": "local"}),
)
_HEADERS: Final = ("accept", "anthropic-version", "authorization", "content-type", "x-api-key")
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
    """Two requests of one turn, the second streamed, and the first answer, whole and as events."""
    first = Request((ChatMessage("user", "Rain?", images=(_PICTURE,)),), "You know the weather.", (_TOOL,))
    async with session(kind, *_SCRIPT, strict=True, **more) as (one, llm):
        reply = await one.run(first)
        results = tuple(ToolResult(call.id or "", "sun", ok=n == 0) for n, call in enumerate(reply.calls))
        told: list[ModelDelta] = []
        messages = (*first.messages, reply.message, ChatMessage("user", results=results))
        await one.run(Request(messages, first.system, first.tools), told.append)
    requests = [
        {"path": asked.path, "headers": {name: asked.headers.get(name) for name in _HEADERS}, "body": asked.body}
        for asked in llm.requests
    ]
    sdk, body = "anthropic" if kind == "anthropic" else "openai", requests[0]["body"]
    answer = {"whole": json.loads(await _said(kind, body)), "events": await _events(kind, body)}
    return {"sdk": f"{sdk} {version(sdk)}", "requests": requests, **answer}


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
