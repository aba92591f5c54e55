"""OpenAI embeddings: `POST /v1/embeddings`. Texts are near each other if they share letters in a row.

Called by `endpoints.py` through `dialect.Speaker`. In: texts; out: a vector of length one for each, made of its hashed
trigrams, so that a misspelt word is found and another one of the same meaning is not. Nothing is random.
"""

from __future__ import annotations

import math
from array import array
from base64 import b64encode
from collections.abc import Iterator
from itertools import pairwise
from typing import Final
from zlib import crc32

from switchboard.domain.json_values import JsonMapping
from switchboard.testing.scripted_llm.answer import Answer, Json
from switchboard.testing.scripted_llm.dialect import BadRequest, wanted
from switchboard.testing.scripted_llm.openai_chat import OpenAi
from switchboard.testing.scripted_llm.request import EMBEDDINGS, Conversation, Dialect, Said

DIMENSIONS: Final = 256
"""Of a vector, unless the request asks for a number."""
_MOST_TEXTS: Final = 2_048
_MOST_CHARACTERS: Final = 32_768
"""8,192 tokens of four characters."""
_FORMATS: Final = ("float", "base64")


class OpenAiEmbeddings(OpenAi):
    """`POST /v1/embeddings`, never streamed."""

    name: Dialect = EMBEDDINGS

    def read(self, body: JsonMapping, _path: str) -> Conversation:
        """The texts, as messages of users."""
        model, given = wanted(body, "model", str), body.get("input")
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
            raise BadRequest("'$.input' is invalid: a text that is not empty, or a list of such")
        if len(texts) > _MOST_TEXTS:
            raise BadRequest(f"'$.input' is invalid: at most {_MOST_TEXTS} texts")
        if max(map(len, texts)) > _MOST_CHARACTERS:
            raise BadRequest("This model's maximum context length is 8192 tokens, however you requested more.")
        if body.get("encoding_format", "float") not in _FORMATS:
            raise BadRequest(f"encoding_format: one of {', '.join(_FORMATS)}")
        return Conversation(model, tuple(Said("user", text) for text in texts))

    def whole(self, answer: Answer) -> Json:
        """A `CreateEmbeddingResponse`."""
        body = answer.request.body
        dimensions = int(body.get("dimensions") or DIMENSIONS)
        vectors = [_vector_of(said.text, dimensions) for said in answer.request.messages]
        if body.get("encoding_format") == "base64":
            coded: list[object] = [b64encode(array("f", vector).tobytes()).decode() for vector in vectors]
        else:
            coded = list(vectors)
        data = [{"object": "embedding", "index": place, "embedding": one} for place, one in enumerate(coded)]
        used = answer.usage.input_tokens
        return {
            "object": "list",
            "data": data,
            "model": answer.model,
            "usage": {"prompt_tokens": used, "total_tokens": used},
        }

    def stream(self, answer: Answer) -> Iterator[bytes]:
        """Embeddings are not streamed."""
        raise BadRequest(f"stream: the scripted server does not stream embeddings of {answer.model}")

    def error_event(self, _answer: Answer, _status: int, message: str, /) -> bytes:
        """See `stream`."""
        raise BadRequest(message)


def _vector_of(text: str, dimensions: int) -> list[float]:
    numbers = [0.0] * dimensions
    for trigram in _trigrams_in(text):
        hashed = crc32(trigram.encode("utf-8", "surrogatepass"))
        numbers[(hashed >> 1) % dimensions] += 1.0 if hashed & 1 else -1.0
    length = math.hypot(*numbers)
    return [number / length for number in numbers] if length else [1.0, *numbers[1:]]


def _trigrams_in(text: str) -> Iterator[str]:
    for word in text.casefold().split():
        spaced = f" {word} "
        yield from (one + other[-1] for one, other in pairwise(spaced[at : at + 2] for at in range(len(spaced) - 1)))
