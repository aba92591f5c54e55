"""The port of models that turn texts into vectors, so that what means the same is found whatever its words.

`llm/local_embedder.py` implements it with a model on this machine, `llm/remote_embedder.py` with a server. In: texts;
out: vectors of one model, which are treated like the texts themselves, as these can be guessed from them. Which texts a
model may be given says `core/memory/leaving.py`. Next: `core/memory/relevance.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType, Protocol

from msgspec import Struct

Vector = NewType("Vector", bytes)
"""Little-endian float32s of length one: `dimensions` of them."""


class EmbeddingModel(Struct, frozen=True):
    """A model that makes vectors. Only vectors of the same name, revision and number of dimensions can be compared."""

    name: str
    revision: str
    dimensions: int
    max_tokens: int
    """Of a longer text only the beginning is read."""
    languages: frozenset[str]
    """ISO 639-1 codes of those that it was made for; what is written in another one is searched by its words alone."""
    local: bool = False
    """Whether texts stay on machines of one's own."""


class EmbeddingFailed(Exception):
    """Why there are no vectors, as a clause. `away`: the model cannot be used at the moment, whatever the text."""

    def __init__(self, reason: str, *, away: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.away = away


class Embedder(Protocol):
    """A model that is ready. Questions and what is searched have methods of their own: some models tell them apart."""

    @property
    def model(self) -> EmbeddingModel:
        """Which one it is."""
        ...

    async def embed_query(self, text: str) -> Vector:
        """The vector of a question. Raises `EmbeddingFailed`, `Unavailable`."""
        ...

    async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        """The vectors of what is searched, in the order of the texts. Raises `EmbeddingFailed`, `Unavailable`."""
        ...
