"""Chat completions and Responses of OpenAI, and of servers that speak like it: one POST by our own client.

`build.py` opens it for each model; `api.py` calls what `opener` returns. The SDK of OpenAI takes 20 MB and most of a
second to import, and all that it did for us was this request (0147); `tests/wire.py` compares both.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import httpx2

from switchboard.llm.api import Open
from switchboard.llm.bodies import Body
from switchboard.llm.port import ApiKind
from switchboard.llm.web import broken_failure, status_failure

BASE_URL: Final = "https://api.openai.com/v1"
_PATHS: Final[Mapping[ApiKind, bytes]] = {"openai": b"/chat/completions", "openai-responses": b"/responses"}
_ACCOUNTS: Final = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
"""Headers that say which account is charged, and the variables that name it, as for programs with the SDK."""


def opener(http: httpx2.AsyncClient, kind: ApiKind, base_url: str, key: str | None) -> Open:
    """Sends bodies of this kind. Without a key a placeholder is sent, which servers without keys are used to."""
    url = address_below(httpx2.URL(base_url), _PATHS[kind])
    headers = {
        "Accept": "application/json",
        "Authorization": f"Bearer {key or 'none'}",
        "User-Agent": "switchboard",
        **{name: os.environ[variable] for name, variable in _ACCOUNTS.items() if os.environ.get(variable)},
    }

    @asynccontextmanager
    async def opened(body: Body) -> AsyncIterator[httpx2.Response]:
        try:
            async with http.stream("POST", url, json=body, headers=headers) as response:
                if not response.is_success:
                    # A server may name a character set that is none of text.
                    said = (await response.aread()).decode(errors="replace")
                    raise status_failure(response.status_code, response.headers, said)
                yield response
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise broken_failure(error) from error

    return opened


def address_below(base: httpx2.URL, path: bytes) -> httpx2.URL:
    """`path` below a base URL, whose query stays at the end: gateways have their version in it."""
    before, mark, query = base.raw_path.partition(b"?")
    return base.copy_with(raw_path=before.rstrip(b"/") + path + mark + query)
