"""Vectors from a server that speaks like OpenAI's: `POST /embeddings`, with what that costs in the books.

`app/models/embedder.py` opens it for a process. In: texts; out: vectors of length one. It sends nothing that reads like
health, money or a secret, unless its server is one's own. After an outage it asks nothing for half a minute, so that
people whose messages are answered meanwhile do not wait for it. Next: `ports/embedder.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import httpx2
import msgspec
from msgspec import Struct

from switchboard.core.memory.leaving import is_private
from switchboard.core.memory.settings import EmbedderSpec
from switchboard.core.memory.vectors import pack_vector
from switchboard.core.policy.budget import Amount, BudgetRefusal, Cap
from switchboard.core.text.lenient import sanitize_error
from switchboard.core.text.storable import storable_text
from switchboard.core.text.tokens import estimate_tokens
from switchboard.domain.json_values import JsonObject
from switchboard.domain.llm import AWAY, Bill, ModelFailure, Usage
from switchboard.llm.openai_api import address_below
from switchboard.llm.spending import Spending
from switchboard.llm.web import broken_failure, status_failure
from switchboard.ports.embedder import EmbeddingFailed, EmbeddingModel, Vector

ASKER: Final = "memory"
"""What a model was asked for, in the account of models."""
_PATH: Final = b"/embeddings"
_BATCH: Final = 32
"""Texts of a request. The answer with the longest vectors that are permitted stays below the limit of `web.py`."""
_QUESTION_S: Final = 3.0
"""Somebody waits for the answer to a question; its words alone find nearly as much."""
_PAUSES: Final = (0.5, 2.0)
"""Seconds after which passages are sent again that met an outage."""
_LONGEST_WAIT: Final = 10.0
_PAUSE_S: Final = 30.0
"""For so long after an outage nothing is asked, unless the server names a time."""


class _Embedding(Struct, frozen=True):
    embedding: list[float | None]
    index: int | None = None


class _Used(Struct, frozen=True):
    prompt_tokens: int = 0
    total_tokens: int = 0


class _Answer(Struct, frozen=True):
    data: list[_Embedding]
    usage: _Used | None = None


class RemoteEmbedder:
    """Implements `switchboard.ports.embedder.Embedder` over a client that it closes."""

    def __init__(  # noqa: PLR0913 - what tests replace is optional
        self,
        http: httpx2.AsyncClient,
        spec: EmbedderSpec,
        key: Mapping[str, str],
        spending: Spending,
        cap: Cap,
        *,
        pauses: Sequence[float] = _PAUSES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`key`: the header with it. `cap`: what models may cost in a day, this included."""
        self._http, self._spec, self._spending, self._cap = http, spec, spending, cap
        self._pauses, self._clock = pauses, clock
        self._model = spec.as_model
        self._url = address_below(httpx2.URL(spec.base_url), _PATH)
        self._headers = {"Accept": "application/json", "User-Agent": "switchboard", **key}
        self._away = ""
        self._away_until = 0.0

    @property
    def model(self) -> EmbeddingModel:
        """As in the port."""
        return self._model

    async def aclose(self) -> None:
        """Close the client."""
        await self._http.aclose()

    async def embed_query(self, text: str) -> Vector:
        """As in the port. It is asked once, and not for long."""
        asked = self._prepare_texts([text], self._spec.query_prefix)
        return (await self._embed_batch(asked, min(self._spec.timeout, _QUESTION_S), ()))[0]

    async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        """As in the port, in batches."""
        asked = self._prepare_texts(texts, self._spec.passage_prefix)
        batches = [asked[start : start + _BATCH] for start in range(0, len(asked), _BATCH)]
        return [one for batch in batches for one in await self._embed_batch(batch, self._spec.timeout, self._pauses)]

    def _prepare_texts(self, texts: Sequence[str], prefix: str) -> list[str]:
        """The texts as they are sent. Raises EmbeddingFailed for what may not leave."""
        if not self._model.local and any(is_private(text) for text in texts):
            raise EmbeddingFailed("it reads like health, money or a secret, which is sent to no server of others")
        # Servers refuse a text that is empty, though its vector is only that of nothing.
        return [_cut_text(prefix + storable_text(text) or " ", self._spec.max_tokens) for text in texts]

    async def _embed_batch(self, texts: Sequence[str], seconds: float, pauses: Sequence[float]) -> list[Vector]:
        """Raises EmbeddingFailed."""
        left = self._away_until - self._clock()
        if left > 0:
            raise EmbeddingFailed(f"{self._away}; it is asked again in {left:.0f} s", away=True)
        try:
            return await self._ask_patiently(texts, seconds, pauses)
        except ModelFailure as failure:
            raise self._note_failure(failure) from failure

    def _note_failure(self, failure: ModelFailure) -> EmbeddingFailed:
        """What callers are told. What has nothing to do with these texts is remembered for a while."""
        told = "it refuses our key" if failure.kind == "auth" else sanitize_error(failure.message)
        reason = f"{self._spec.name} at {self._spec.host}: {told}"
        if not failure.alive:
            self._away, self._away_until = reason, self._clock() + (failure.retry_after or _PAUSE_S)
        return EmbeddingFailed(reason, away=not failure.alive)

    async def _ask_patiently(self, texts: Sequence[str], seconds: float, pauses: Sequence[float]) -> list[Vector]:
        """Raises ModelFailure, EmbeddingFailed."""
        for pause in pauses:
            try:
                return await self._pay_for(texts, seconds)
            except ModelFailure as failure:
                wait = max(pause, failure.retry_after or 0.0)
                if not (failure.retryable and failure.kind in AWAY) or wait > _LONGEST_WAIT:
                    raise
                await asyncio.sleep(wait)
        return await self._pay_for(texts, seconds)

    async def _pay_for(self, texts: Sequence[str], seconds: float) -> list[Vector]:
        """Ask once, within the budget of the day. Raises ModelFailure, EmbeddingFailed."""
        name, estimate = self._spec.name, sum(map(estimate_tokens, texts))
        reserved = await self._spending.reserve(Amount(estimate, self._cost_of(estimate)), self._cap)
        if isinstance(reserved, BudgetRefusal):
            raise EmbeddingFailed("the budget of the day is used up", away=True)
        bill: Bill | None = None
        try:
            answer = await self._ask_in_time(texts, seconds)
            tokens = _tokens_of(answer)
            usage = Usage(tokens or estimate, estimated=not tokens)
            bill = Bill(ASKER, name, usage, self._cost_of(usage.input_tokens))
            return _vectors_in(answer, len(texts), self._spec)
        except ModelFailure:
            bill = bill or Bill(ASKER, name, failed=True)
            raise
        finally:
            await self._spending.settle(reserved, bill)

    def _cost_of(self, tokens: int) -> int:
        """Micro-dollars, rounded up; a price in dollars per million tokens is one in micro-dollars per token."""
        return -int(-(self._spec.price or 0.0) * tokens // 1)

    async def _ask_in_time(self, texts: Sequence[str], seconds: float) -> _Answer:
        try:
            async with asyncio.timeout(seconds):
                return await self._ask(texts)
        except TimeoutError:
            raise ModelFailure("timeout", f"no answer within {seconds:g} s") from None

    async def _ask(self, texts: Sequence[str]) -> _Answer:
        body: JsonObject = {"model": self._spec.model, "input": list(texts), "encoding_format": "float"}
        if self._spec.shorten:
            body["dimensions"] = self._spec.dimensions
        try:
            response = await self._http.post(self._url, json=body, headers=self._headers)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise broken_failure(error) from error
        if not response.is_success:
            said = response.content.decode(errors="replace")
            raise status_failure(response.status_code, response.headers, said)
        try:
            return msgspec.json.decode(response.content, type=_Answer)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ModelFailure("garbage", f"the answer holds no vectors: {error}") from error


def _tokens_of(answer: _Answer) -> int:
    used = answer.usage or _Used()
    return max(used.prompt_tokens, used.total_tokens, 0)


def _vectors_in(answer: _Answer, wanted: int, spec: EmbedderSpec) -> list[Vector]:
    """The vectors in the order of the texts. Raises ModelFailure: with others nothing would be found, in silence."""
    found = answer.data
    order = [place if one.index is None else one.index for place, one in enumerate(found)]
    if sorted(order) != list(range(wanted)):
        raise ModelFailure("defect", f"{len(found)} vectors came for {wanted} texts, or some are counted twice")
    if wrong := next((one for one in found if len(one.embedding) != spec.dimensions), None):
        told = f"vectors of {len(wrong.embedding)} dimensions, not of the {spec.dimensions} in the settings"
        raise ModelFailure("defect", told)
    packed = [_pack_numbers(one.embedding) for one in found]
    return [packed[place] for place in sorted(range(wanted), key=order.__getitem__)]


def _pack_numbers(given: Sequence[float | None]) -> Vector:
    """Raises ModelFailure. Servers write null for what is not a number, which may well happen with a single text."""
    numbers = [one for one in given if one is not None]
    try:
        return pack_vector(numbers if len(numbers) == len(given) else ())
    except ValueError as error:
        raise ModelFailure("garbage", str(error), alive=True) from error


def _cut_text(text: str, tokens: int) -> str:
    """As much of a text as has no more than so many tokens, by our estimate."""
    while (estimate := estimate_tokens(text)) > tokens:
        text = text[: max(1, min(len(text) - 1, int(len(text) * tokens / estimate)))]
    return text
