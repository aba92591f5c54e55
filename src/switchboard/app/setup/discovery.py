"""Finds usable models: local servers on their usual ports, keys in the environment, command-line programs.

`cli/init` and the page Welcome call it. In: the environment and the home directory; out: offers. Only this machine is
contacted, and keys are not read, only the names of their variables. Next: `chosen.py`.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import httpx2
from msgspec import Struct

from switchboard.core.text.lenient import items, json_value, mapping, string
from switchboard.domain.errors import NotFound
from switchboard.llm.port import ApiKind

_PATIENCE_S: Final = 2.0
_MOST: Final = 20
"""Models of one server that are offered."""
_LONGEST: Final = 200
_MOST_BYTES: Final = 4_194_304
_NO_ANSWER: Final = (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError)
_NOT_FOR_CHAT: Final = re.compile(r"embed|rerank|whisper|tts", re.IGNORECASE)


class _NamedModel(Struct, frozen=True):
    """A model, and the name that it has in the settings."""

    name: str
    kind: ApiKind
    model: str


class Offer(_NamedModel, frozen=True):
    """A usable model. `source` is where it was found."""

    source: str
    base_url: str | None = None
    api_key_env: str | None = None
    profile: str | None = None
    api_key_file: str | None = None


class Discovery(Struct, frozen=True):
    """The offers, the best first, and the installed command-line programs."""

    offers: tuple[Offer, ...]
    programs: tuple[str, ...]


class Provider(_NamedModel, frozen=True):
    """A provider whose models need a key: the variables that may have it, and a model for a beginning."""

    variables: tuple[str, ...]
    base_url: str | None = None


SERVERS: Final[Mapping[str, str]] = {
    "ollama": "http://127.0.0.1:11434/v1",
    "lm-studio": "http://127.0.0.1:1234/v1",
    "llama-cpp": "http://127.0.0.1:8080/v1",
}
PROVIDERS: Final = (
    Provider("anthropic", "anthropic", "claude-haiku-4-5", ("ANTHROPIC_API_KEY", "ANTHROPIC_KEY")),
    Provider("openai", "openai-responses", "gpt-5-mini", ("OPENAI_API_KEY", "OPENAI_KEY")),
    Provider("openrouter", "openai", "openai/gpt-5-mini", ("OPENROUTER_API_KEY",), "https://openrouter.ai/api/v1"),
)
_LOGINS: Final[Mapping[str, str]] = {
    "claude": ".claude/.credentials.json",
    "codex": ".codex/auth.json",
    "gemini": ".gemini/oauth_creds.json",
    "opencode": ".local/share/opencode/auth.json",
}
"""Where each command line keeps its login, below the home directory."""


async def discover_models(environ: Mapping[str, str], home: Path, servers: Mapping[str, str] = SERVERS) -> Discovery:
    """All usable models: local servers first, as they cost nothing."""
    async with httpx2.AsyncClient(
        # Nothing here is https, and reading the system's certificates takes longer than all the rest.
        timeout=_PATIENCE_S,
        trust_env=False,
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    ) as http:
        found = await asyncio.gather(*(_offers_of_server(http, name, url) for name, url in servers.items()))
    local = [offer for offers in found for offer in offers]
    return Discovery((*local, *_with_key(environ)), tuple(_logged_in(home)))


async def models_at(url: str, key: str | None = None) -> tuple[str, ...]:
    """The chat models of an OpenAI-compatible server. Raises NotFound if none can be listed."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    try:
        async with httpx2.AsyncClient(timeout=_PATIENCE_S, trust_env=False, headers=headers) as http:
            status, text = await _fetch_models(http, url)
    except _NO_ANSWER as error:
        raise NotFound(f"no server answers at {url}; start it, or correct the address") from error
    if not httpx2.codes.is_success(status):
        path = "" if url.rstrip("/").endswith("/v1") else f", perhaps to {url.rstrip('/')}/v1,"
        raise NotFound(f"{url}/models answered with status {status}; correct the address{path} or name a model")
    return _names_in(text)


async def _offers_of_server(http: httpx2.AsyncClient, name: str, url: str) -> Iterable[Offer]:
    return [
        Offer(name, "openai", model, f"{name} at {url.removesuffix('/v1')}", url, profile="local")
        for model in await _ask_models(http, url)
    ]


async def _ask_models(http: httpx2.AsyncClient, url: str) -> tuple[str, ...]:
    try:
        _, text = await _fetch_models(http, url)
    except _NO_ANSWER:
        return ()
    return _names_in(text)


async def _fetch_models(http: httpx2.AsyncClient, url: str) -> tuple[int, str]:
    """The status, and the text or its beginning.

    Any program may listen on a usual port: it chooses neither how much is read, nor how long, nor by which codec.
    """
    body = bytearray()
    async with (
        asyncio.timeout(_PATIENCE_S),
        http.stream("GET", f"{url}/models", headers={"accept-encoding": "identity"}) as answer,
    ):
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > _MOST_BYTES:
                break
    return answer.status_code, body[:_MOST_BYTES].decode(errors="replace")


def _names_in(text: str) -> tuple[str, ...]:
    listed = items(mapping(json_value(text)).get("data"))
    names = (string(one.get("id")) for one in listed)
    return tuple(name for name in names if _is_for_chat(name))[:_MOST]


def _is_for_chat(name: str) -> bool:
    return 0 < len(name) <= _LONGEST and name.isprintable() and not _NOT_FOR_CHAT.search(name)


def _with_key(environ: Mapping[str, str]) -> Iterable[Offer]:
    for one in PROVIDERS:
        variable = next((name for name in one.variables if environ.get(name)), None)
        if variable is not None:
            yield Offer(one.name, one.kind, one.model, f"the key in {variable}", one.base_url, variable)


def _logged_in(home: Path) -> Iterable[str]:
    return (name for name, login in _LOGINS.items() if shutil.which(name) and (home / login).is_file())
