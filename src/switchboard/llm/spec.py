"""The settings of one model: `[[models]]`.

Read by `app/settings.py`, used by `build.py` and `dispatch.py`. No SDK is imported for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta, Struct

from switchboard.core.policy.budget import Price
from switchboard.domain.numbers import Count, NotNegative, Positive
from switchboard.llm.port import ApiKind, CliKind, Kind
from switchboard.ports.models import Habits

API_KINDS: Final[tuple[ApiKind, ...]] = get_args(ApiKind)
CLI_KINDS: Final[tuple[CliKind, ...]] = get_args(CliKind)
RUNNERS: Final[tuple[CliKind, ...]] = ("claude-code", "codex")
"""Command lines that can do the turns of butlers: their own tools can be switched off."""

Calls = Literal["native", "schema"]

Passed = Literal[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
]
"""What may be passed on to a program: network access and trusted certificates, but none of our secrets."""


class ModelTraits(Struct, frozen=True, kw_only=True):
    """What a test has shown of a model; names and meanings as in `[[models]]`. None: unknown, or usual.

    `schemas`: its server accepts a JSON Schema of the answer; `thinks`: it thought before it answered, or did not
    finish within a router's tokens. None: it was not asked, or gave no answer. `calls`: the setting with which it calls
    tools; None: with neither, or it was not asked. `tokens_per_second`: how fast a local model reads; `timeout`: the
    seconds that it should have at that speed, if that is more than it has.
    """

    schemas: bool | None = None
    thinks: bool | None = None
    calls: Calls | None = None
    tokens_per_second: float | None = None
    timeout: int | None = None


class ModelSpec(Struct, frozen=True):
    """One model and how it is reached. Seconds; prices in dollars per million tokens, None where nothing is paid.

    `base_url` None: the provider's own. The key comes from the variable `api_key_env` or from `api_key_file`; without
    either, none is sent. `profile` "local" is for servers on your own machine (LM Studio, Ollama, llama.cpp, vLLM).
    `concurrency`: number of simultaneous sessions; None: 1 for all models of a local server together, otherwise 4.
    `context`: the tokens of question and answer together that this model accepts; None: irrelevant. `vision`: it can
    see images. `schemas`: its server accepts a JSON Schema of the answer; `thinks`: it thinks before it answers.
    `calls`: how it calls tools, with the server's own means or as JSON in its answer.
    `program` is the command-line program, if it does not have its usual name; `pass_env` names the variables of ours
    passed to it, by default none. `login`: instead of a key, it has the login of the user that runs us.
    """

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    kind: Kind
    model: Annotated[str, Meta(min_length=1)]
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_file: Path | None = None
    timeout: Positive = 60.0
    concurrency: Count | None = None
    max_tokens: Count = 1024
    context: Count | None = None
    price_in: NotNegative | None = None
    price_out: NotNegative | None = None
    profile: Literal["local"] | None = None
    vision: bool = False
    schemas: bool = True
    thinks: bool = False
    calls: Calls = "native"
    program: str | None = None
    pass_env: tuple[Passed, ...] = ()
    login: bool = False

    @property
    def origin(self) -> str:
        """Identifies where returned blocks are valid: the same model at the same place."""
        return f"{self.kind} {self.base_url or ''} {self.model}"

    @property
    def writes_calls(self) -> bool:
        """Whether calls are looked for in the text of its answers."""
        return self.profile == "local" or self.calls == "schema"

    @property
    def habits(self) -> Habits:
        """The habits, as a planner is told them."""
        return Habits(self.schemas, self.thinks)

    @property
    def sessions(self) -> int:
        """How many sessions may run simultaneously."""
        return self.concurrency or (1 if self.profile == "local" else 4)

    @property
    def slot(self) -> str:
        """The slots that its sessions take: those of its local server, otherwise its own."""
        return self.base_url.rstrip("/") if self.profile == "local" and self.base_url else self.name

    @property
    def price(self) -> Price | None:
        """Prices in micro-dollars per million tokens."""
        if self.price_in is None and self.price_out is None:
            return None
        return Price(round((self.price_in or 0.0) * 1e6), round((self.price_out or 0.0) * 1e6))
