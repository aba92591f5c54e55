"""How many tokens a model can read: from the settings, otherwise from its server, otherwise a guess.

`Contexts` asks local servers, each by its own API, and remembers; pure functions interpret the answers. It also keeps
what was learned from requests that were too long. `sentinel` and
`kept_sentinel` find out whether a server silently drops the head of a long request. Next:
`app/models/classifier.py`, `app/models/model_tests.py`.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import httpx2
from msgspec import Struct, structs

from switchboard.core.text.lenient import count, items, json_value, mapping, string
from switchboard.domain.llm import ChatMessage, Reply, Request
from switchboard.llm.spec import API_KINDS, RUNNERS, ModelSpec
from switchboard.ports.models import NO_CONTEXT

HOSTED: Final = 128_000
"""Tokens of the models of OpenAI and Anthropic; none of those in use has fewer."""
_TIMEOUT_S: Final = 3.0
REMEMBERED_S: Final = 600.0
"""For so long it is remembered what a server has said, and what was learned from its refusals."""
LEAST: Final = 2_048
"""The fewest tokens that are learned from a refusal: with less no model can do anything."""
_NUM_CTX: Final = re.compile(r"^\s*num_ctx\s+(\d+)", re.MULTILINE)

CONTEXT_REMEDY: Final = (
    "raise the context of the server (Ollama: OLLAMA_CONTEXT_LENGTH, or num_ctx in the Modelfile; LM Studio: Context "
    "Length of the loaded model; llama.cpp: -c; vLLM: --max-model-len), or set `context` of the model to what it has"
)
"""What to do about a server that loses the head of long requests."""

Document = Mapping[str, object]
Told = Callable[[Document, str], int | None]


# What a server says --------------------------------------------------------------------------------------------------


def of_llama_cpp(document: Document, _model: str) -> int | None:
    """From `/props`: the context of one slot."""
    return count(mapping(document.get("default_generation_settings")).get("n_ctx")) or None


def of_lm_studio(document: Document, model: str) -> int | None:
    """From `/api/v0/models`: the context that the model was loaded with."""
    return _of_listed(document, "data", "id", model, "loaded_context_length")


def of_vllm(document: Document, model: str) -> int | None:
    """From `/v1/models`."""
    return _of_listed(document, "data", "id", model, "max_model_len")


def of_ollama_running(document: Document, model: str) -> int | None:
    """From `/api/ps`: the context of a model that is loaded."""
    return _of_listed(document, "models", "name", model, "context_length")


def of_ollama_shown(document: Document, _model: str) -> int | None:
    """From `/api/show`: the context in its Modelfile.

    The model's theoretical maximum is not what the server provides.
    """
    found = _NUM_CTX.search(string(document.get("parameters")))
    return int(found[1]) if found else None


def _of_listed(document: Document, listed: str, key: str, model: str, field: str) -> int | None:
    found = [one for one in items(document.get(listed)) if string(one.get(key)).removesuffix(":latest") == model]
    found = found or [one for one in items(document.get(listed)) if one.get(key) == model]
    return next((tokens for one in found if (tokens := count(one.get(field)))), None)


_ASKED: Final[tuple[tuple[str, str, Told], ...]] = (
    ("GET", "/props", of_llama_cpp),
    ("GET", "/api/v0/models", of_lm_studio),
    ("GET", "/v1/models", of_vllm),
    ("GET", "/api/ps", of_ollama_running),
    ("POST", "/api/show", of_ollama_shown),
)


def context_of(spec: ModelSpec, told: int | None, unknown: int = NO_CONTEXT) -> int:
    """The tokens of question and answer together; `told` by the server, if it was asked and knows."""
    if spec.context is not None:
        return spec.context
    hosted = spec.kind in RUNNERS or (spec.base_url is None and spec.kind in API_KINDS)
    return told or (HOSTED if hosted else unknown)


class _Learned(Struct, frozen=True):
    """A limit learned from refusals, at `since` and until `until`, in seconds of the clock.

    `told`: what the server had said by then; `asked`: whether it had been asked.
    """

    tokens: int
    since: float
    until: float
    told: int | None
    asked: bool


class Contexts:
    """The contexts of models, remembered for ten minutes, since a server may be restarted with a different one.

    What is learned from a refusal ends when its server reports another size.
    """

    def __init__(self, http: httpx2.AsyncClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._http = http
        self._clock = clock
        self._known: dict[str, tuple[float, int | None]] = {}
        self._learned: dict[str, _Learned] = {}
        self._ended: dict[str, float] = {}
        """When a server reported another size: what was learned before counts no more, whoever tells it."""

    async def of(self, spec: ModelSpec, unknown: int = NO_CONTEXT) -> int:
        """The context of a model. Only local servers are asked; raises nothing."""
        told = await self._told_lately(spec)
        found, learned = context_of(spec, told, unknown), self._learned.get(spec.origin)
        if learned is None:
            return found
        now = self._clock()
        if not learned.asked:
            learned = self._learned[spec.origin] = structs.replace(learned, told=told, asked=True)
        if now >= learned.until or told != learned.told:
            del self._learned[spec.origin]
            self._ended[spec.origin] = now
            return found
        return min(found, learned.tokens)

    def learn(self, spec: ModelSpec, tokens: int, seconds: float) -> None:
        """For these seconds the model is known to read no more than so many tokens. Its server is asked again."""
        now, origin = self._clock(), spec.origin
        since = now - (REMEMBERED_S - seconds)
        before = self._learned.get(origin)
        if since < self._ended.get(origin, -math.inf) or (before is not None and before.since > since):
            return
        _, told = self._known.get(origin, (0.0, None))
        self._learned[origin] = _Learned(tokens, since, now + seconds, told, origin in self._known)
        if seconds >= REMEMBERED_S:  # its server has just refused something: it may have another size
            self._known.pop(origin, None)

    async def _told_lately(self, spec: ModelSpec) -> int | None:
        if spec.context is not None or spec.profile != "local" or spec.base_url is None:
            return None
        since, told = self._known.get(spec.origin, (0.0, None))
        if spec.origin not in self._known or self._clock() - since > REMEMBERED_S:
            told = await self._find_context(spec.base_url, spec.model)
            self._known[spec.origin] = (self._clock(), told)
        return told

    async def _find_context(self, base_url: str, model: str) -> int | None:
        answers = await asyncio.gather(
            *(self._ask(way, server_root(base_url) + path, model) for way, path, _ in _ASKED)
        )
        found = (read(answer, model) for (_, _, read), answer in zip(_ASKED, answers, strict=True))
        return next((tokens for tokens in found if tokens), None)

    async def _ask(self, way: str, url: str, model: str) -> Document:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                body = {"model": model} if way == "POST" else None
                response = await self._http.request(way, url, json=body)
        except (httpx2.HTTPError, TimeoutError):
            return {}
        return mapping(json_value(response.text)) if response.status_code == 200 else {}


def server_root(base_url: str) -> str:
    """The address of the server, without `/v1`."""
    url = urlsplit(base_url)
    return urlunsplit((url.scheme, url.netloc, url.path.rstrip("/").removesuffix("/v1"), "", ""))


# What it does not say ------------------------------------------------------------------------------------------------

SHORT: Final = 400
"""Tokens that every server keeps."""
_WORD: Final = "BLUE-HERON-4711"
_LINE: Final = "A line of a list that is of no interest here.\n"
_TOKENS_OF_LINE: Final = 12


def sentinel(context: int) -> Request:
    """A request of about four fifths of `context` tokens, with a word at its head that its end asks for."""
    lines = _LINE * max(1, context * 4 // 5 // _TOKENS_OF_LINE)
    question = f"{lines}\nWhat is the code word that the instructions name? Answer with the code word alone."
    return Request((ChatMessage("user", question),), f"The code word is {_WORD}.", max_tokens=64, whole=False)


def kept_sentinel(reply: Reply) -> bool:
    """Whether the head has reached the model."""
    return _WORD in reply.text.upper()


def lost_head(context: int) -> str:
    """The complaint about a server that lost the head of a request."""
    return f"the server loses the beginning of a request that should fit into {context:,} tokens, without saying so"
