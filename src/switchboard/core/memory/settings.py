"""The tables of the settings that are about memory: `[memory]`, and `[[embedders]]`, the servers that make vectors.

Read by `app/settings.py`, used by `app/memory/embedding.py`. Next: `languages.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from ipaddress import ip_address
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from switchboard.core.memory.languages import StemmedLanguage
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.numbers import Days, NotNegative, Positive
from switchboard.ports.embedder import EmbeddingModel

EmbedderChoice = Literal["local", "none"]
"""What `memory.embedder` names besides those of `[[embedders]]`: the model of the extra `memory`, or nothing."""
LOCAL: Final[EmbedderChoice] = "local"
NONE: Final[EmbedderChoice] = "none"
MOST_DIMENSIONS: Final = 4_000
"""Of vectors in half precision, PostgreSQL indexes no more."""
_URL: Final = re.compile(r"https?://[^\s/?#@][^\s#@]*")
_OWN: Final = ("localhost", "local", "lan", "internal", "home.arpa", "ts.net")

Language = Annotated[str, Meta(pattern=r"^[a-z]{2}$")]
"""An ISO 639-1 code."""


class MemorySettings(Struct, frozen=True):
    """What butlers remember; `compact_model` is asked for summaries and facts, None: the cheapest that has an API.

    `embedder` makes vectors, by which facts are found by their meaning: `local`, `none`, or one of `embedders`; None:
    the local one if it is installed. `languages`: those that people write, for stems and stop words.
    """

    compact_model: str | None = None
    keep_days: Days = 365
    """Days for which histories and summaries are kept; facts are kept until they are forgotten."""
    results_keep_days: Days = 30
    """Days for which long results of tools, and images, are kept at most."""
    embedder: Annotated[str, Meta(min_length=1)] | None = None
    languages: tuple[StemmedLanguage, ...] = ("en", "de")
    consolidation_tokens: Annotated[int, Meta(ge=0)] = 50_000
    """Tokens of a butler in 24 hours for finding facts in what was said since; 0: only compaction finds any."""

    def check_embedders(self, names: Sequence[str]) -> None:
        """Raises ValueError if `embedder` is none of these."""
        known = (LOCAL, NONE, *names)
        if self.embedder is not None and self.embedder not in known:
            raise ValueError(f"memory.embedder: there is no embedder {self.embedder}; there are: {', '.join(known)}")


class EmbedderSpec(Struct, frozen=True, kw_only=True):
    """`base_url`: an API like that of OpenAI, such as `https://api.openai.com/v1`; `/embeddings` is appended.

    The key comes from the variable `api_key_env`; without one, none is sent. `dimensions`: how many its vectors have;
    with `shorten` it is asked for so many, which few models can do. Of a text with more than `max_tokens` only the
    beginning is sent. `languages`: those that the model was made for. The prefixes are put before questions and before
    what is searched, for models that want them (`query: ` and `passage: `). `local`: the server is on a machine of
    your own, and gives nothing to others. A new `revision` says that the same name means other weights from now on.
    `timeout` in seconds; `price` in dollars per million tokens, None where nothing is paid.
    """

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    base_url: str
    model: Annotated[str, Meta(min_length=1, max_length=200)]
    dimensions: Annotated[int, Meta(ge=2, le=MOST_DIMENSIONS)]
    languages: Annotated[tuple[Language, ...], Meta(min_length=1)]
    api_key_env: str | None = None
    max_tokens: Annotated[int, Meta(ge=16)] = 512
    shorten: bool = False
    query_prefix: Annotated[str, Meta(max_length=500)] = ""
    passage_prefix: Annotated[str, Meta(max_length=500)] = ""
    local: bool = False
    revision: Annotated[str, Meta(min_length=1, max_length=50)] = "1"
    timeout: Positive = 10.0
    price: NotNegative | None = None

    def check(self) -> None:
        """Raises ValueError for a name that means something else, an address without a host, a host of others."""
        if _URL.fullmatch(self.base_url) is None:  # not shown, as it may hold a password
            raise ValueError("base_url must begin with http:// or https:// and name a host, without user or password")
        if self.name in {LOCAL, NONE}:
            raise ValueError(f"the name {self.name} has another meaning in memory.embedder; choose another one")
        if self.local and not _may_be_own(urlsplit(self.base_url).hostname or ""):
            raise ValueError(
                "local is for servers on machines of your own: localhost, a private address, a name without a dot, or "
                f"one that ends in {', '.join(f'.{one}' for one in _OWN[1:])}"
            )

    @property
    def host(self) -> str:
        """Where texts are sent, without the path."""
        return urlsplit(self.base_url).netloc

    @property
    def as_model(self) -> EmbeddingModel:
        """What tells its vectors from those of others: all that changes them is in the revision."""
        prefixes = f"{self.query_prefix}\n{self.passage_prefix}"
        mark = f"-{sha256(prefixes.encode()).hexdigest()[:8]}" if prefixes != "\n" else ""
        languages = frozenset(self.languages)
        return EmbeddingModel(
            self.model, f"{self.revision}{mark}", self.dimensions, self.max_tokens, languages, self.local
        )


def find_embedder(specs: Sequence[EmbedderSpec], name: str) -> EmbedderSpec:
    """The one of this name. Raises ConfigurationError."""
    found = next((one for one in specs if one.name == name), None)
    if found is None:
        names = ", ".join(one.name for one in specs) or "none"
        raise ConfigurationError(f"embedders: there is no {name} in the settings; there are: {names}")
    return found


def _may_be_own(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return "." not in host or any(host.endswith(f".{end}") for end in _OWN)
    return not address.is_global
